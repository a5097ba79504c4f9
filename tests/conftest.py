"""What all tests share: how hypothesis behaves."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No deadlines: a shared machine is not equally fast all the time, and a slow example is not a wrong one.
settings.register_profile(
    "sievemq", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("sievemq")

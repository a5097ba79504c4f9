"""Fixtures of the attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sievemq_broker import EmbeddedBroker

from .support import secured


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with users; one per module, so that no attack's throttle disturbs another's."""
    with secured() as broker:
        yield broker

"""How many of something there are, as people say it."""

from __future__ import annotations

from sievemq_core.counted import counted


def test_one_is_not_many() -> None:
    assert [counted(number, "message") for number in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]
    assert [counted(number, "batch", many="batches") for number in (1, 2)] == ["1 batch", "2 batches"]
    assert counted(1_234, "dead letter", form=",") == "1,234 dead letters"
    assert counted(1_234, "dead letter") == "1234 dead letters"

"""Staged sends: visible at once, and once."""

from __future__ import annotations

import pytest
from tests.broker.domain.support import World, message

from sievemq_broker.domain import DestinationPolicy
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.stages import OVERHEAD_BYTES
from sievemq_core.errors import ErrorCode, RequestError


class Staging(World):
    def __init__(self, *policies: tuple[str, DestinationPolicy]) -> None:
        super().__init__(*policies)
        self.names: dict[str, str] = {}

    def stage(
        self, stage_id: str, *names: str, key: str = "k", batch: int = 0, owner: str | None = None, lease: int = 60_000
    ) -> None:
        sends = [("queue:q", message(name)) for name in names]
        made = self.namespace.stages.stage("c1", key, batch, Sends(sends), owner=owner, lease=lease, now=self.now)
        self.names[stage_id] = made

    def publish(self, *ids: str, key: str = "k", batch: int = 0, owner: str | None = None) -> int | None:
        names = [self.names.get(stage_id, stage_id) for stage_id in ids]
        return self.namespace.stages.publish(key, batch, names, owner=owner, now=self.now)


@pytest.fixture
def world() -> Staging:
    return Staging()


def test_staged_messages_are_invisible_until_published(world: Staging) -> None:
    world.stage("a", "1", "2")
    world.stage("b", "3")
    assert world.browse("queue:q") == []
    assert world.namespace.stages.bytes > 3 * OVERHEAD_BYTES
    assert world.publish("b", "a") == 3
    assert world.browse("queue:q") == ["3", "1", "2"]
    assert (len(world.namespace.stages), world.namespace.stages.bytes) == (0, 0)


def test_a_batch_is_published_once(world: Staging) -> None:
    world.stage("a", "1")
    assert world.publish("a") == 1
    world.stage("b", "1")  # who does not know whether it was, does it again
    assert world.publish("b") is None
    assert world.publish("a") is None
    assert world.browse("queue:q") == ["1"]
    assert len(world.namespace.stages) == 0
    world.stage("c", "2", batch=1)
    assert world.publish("c", batch=1) == 1
    assert world.publish("a", batch=0) is None  # an earlier one as well
    world.stage("d", "3", key="other")
    assert world.publish("d", key="other") == 1
    assert world.browse("queue:q") == ["1", "2", "3"]


def test_batches_of_failed_attempts_are_dropped(world: Staging) -> None:
    world.stage("first try", "1")
    world.stage("second try", "1")
    assert world.publish("second try") == 1
    assert world.browse("queue:q") == ["1"]
    assert len(world.namespace.stages) == 0


def test_an_empty_batch_is_published_once(world: Staging) -> None:
    assert world.publish() == 0
    assert world.publish() is None
    world.stage("a", batch=1)
    assert world.publish("a", batch=1) == 0
    assert world.publish("a", batch=1) is None


def test_a_stage_that_is_named_twice_is_sent_once(world: Staging) -> None:
    world.stage("a", "1", "2")
    world.stage("b", "3")
    assert world.publish("a", "b", "a") == 3
    assert world.browse("queue:q") == ["1", "2", "3"]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b"])
def test_a_key_that_cannot_be_is_refused_and_not_remembered(world: Staging, key: str) -> None:
    with pytest.raises(RequestError, match="a publisher's key"):
        world.publish(key=key)
    assert not world.namespace.stages.published


def test_users_do_not_share_keys(world: Staging) -> None:
    world.stage("a", "1", owner="ann", batch=7)
    assert world.publish("a", owner="ann", batch=7) == 1
    world.stage("b", "2", owner="bob")
    assert world.publish("b", owner="bob") == 1


def test_publish_of_an_ended_stage_publishes_nothing(world: Staging) -> None:
    world.stage("a", "1")
    with pytest.raises(RequestError, match="the stage b does not exist") as refused:
        world.publish("a", "b")
    assert refused.value.code is ErrorCode.NOT_FOUND
    for other in ({"key": "l"}, {"batch": 1}, {"owner": "eve"}):
        with pytest.raises(RequestError, match="does not exist"):
            world.publish("a", **other)
    assert world.browse("queue:q") == []
    assert world.publish("a") == 1


def test_all_or_nothing() -> None:
    world = Staging(("queue:q", DestinationPolicy(max_messages=2)))
    world.stage("a", "1", "2")
    world.stage("b", "3")
    with pytest.raises(RequestError, match="may hold 2"):
        world.publish("a", "b")
    assert world.browse("queue:q") == []
    assert world.publish("b") == 1  # it was not counted as published


def test_the_lease_ends(world: Staging) -> None:
    world.stage("a", "1", lease=5_000)
    world.advance(4_999)
    assert len(world.namespace.stages) == 1
    world.advance(1)
    assert (len(world.namespace.stages), world.namespace.stages.bytes) == (0, 0)
    with pytest.raises(RequestError, match="Its lease has ended"):
        world.publish("a")


def test_discard(world: Staging) -> None:
    world.stage("a", "1", "2")
    world.stage("b", "3", batch=1)
    assert world.namespace.stages.discard("k", 0, owner=None) == 2
    assert world.namespace.stages.discard("k", 0, owner=None) == 0
    assert len(world.namespace.stages) == 1
    world.advance(100_000)
    assert world.namespace.stages.bytes == 0


def test_limits(world: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.domain.stages.MAX_STAGED_BYTES", 500)
    world.stage("a", "1")
    with pytest.raises(RequestError, match="may take 500") as refused:
        world.stage("b", "2", "3")
    assert refused.value.code is ErrorCode.RESOURCE_ALLOCATION
    for wrong, says in (({"key": ""}, "printable"), ({"key": "k" * 256}, "255"), ({"lease": 5}, "1000 to")):
        with pytest.raises(RequestError, match=says):
            world.stage("c", **wrong)


def test_the_key_used_longest_ago_is_forgotten(world: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.domain.stages.MAX_KEYS", 2)
    for key in ("a", "b"):
        world.stage(key, key, key=key)
        assert world.publish(key, key=key) == 1
    assert world.publish(key="a") is None
    world.stage("c", "c", key="c")
    assert world.publish("c", key="c") == 1
    assert list(world.namespace.stages.published) == [(None, "a"), (None, "c")]


def test_another_user_cannot_make_the_broker_forget_a_key(world: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.domain.stages.MAX_KEYS", 3)
    world.stage("a", "a", owner="anna")
    assert world.publish("a", owner="anna") == 1
    for number in range(10):
        world.stage(f"m{number}", "m", key=f"m{number}", owner="mallory")
        assert world.publish(f"m{number}", key=f"m{number}", owner="mallory") == 1
    assert list(world.namespace.stages.published) == [("anna", "k"), ("mallory", "m8"), ("mallory", "m9")]
    assert world.publish("a", owner="anna") is None

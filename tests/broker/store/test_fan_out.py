"""A broker that is killed while a message is delivered in slices has kept it for every subscription, or for none."""

from __future__ import annotations

from typing import Any, cast

from sievemq_broker.domain import Broker, Topic
from sievemq_broker.domain.fan_out import LARGE
from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.ports import Stored
from sievemq_broker.domain.restore import restore

from .support import NOW, DictStore, message

MANY = LARGE + 600


class Port:
    """Of a consumer without credit."""

    def __init__(self) -> None:
        self.writable = True
        self.needs: list[Stored] = []

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a consumer that takes nothing")


def topic_of(broker: Broker) -> Topic:
    return cast("Topic", broker.namespace("").declare("topic:t"))


def kept(store: DictStore) -> list[int]:
    """How many messages the subscriptions have after a restart; one number if all have the same."""
    broker = Broker()
    restore(broker, cast("Any", store.copy()), NOW)
    return sorted({subscription.queue.depth for subscription in topic_of(broker).subscriptions})


def test_every_subscription_has_it_or_none_whenever_the_broker_is_killed() -> None:
    store, broker, journal = DictStore(), Broker(), Journal()
    broker.keep_in(journal)
    space = broker.namespace("")
    for number in range(MANY):
        space.open_consumer(
            cast("Any", Port()), number, "topic:t", connection="x", subscription=f"s{number}",
            durable=True, shared=True, now=NOW,
        )  # fmt: skip
    seen = []

    def end_turn() -> bool:
        """Work, write what may be written, and be killed: True if there is more to do."""
        more = broker.work(NOW, 500)
        if not journal.holds and (write := journal.cut()):
            store.write(write, NOW)
        seen.append(kept(store))
        return more

    end_turn()
    space.send("topic:t", message("m1"), NOW)
    while end_turn():
        pass
    space.send("topic:t", message("m2"), NOW)
    assert end_turn()
    space.transfer("topic:t", message("m3"), NOW)  # cannot wait
    while end_turn():
        pass
    assert all(len(depths) == 1 for depths in seen)
    assert list(dict.fromkeys(depths[0] for depths in seen)) == [0, 1, 3]

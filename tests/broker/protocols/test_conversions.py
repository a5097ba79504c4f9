"""Messages are converted for clients of AMQP and STOMP a few in a turn, and once for all connections."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from sievemq_broker.protocols.amqp import connection as amqp_connection
from sievemq_broker.protocols.amqp import outbox as amqp_outbox
from sievemq_broker.protocols.amqp.frames import frame_of
from sievemq_broker.protocols.amqp.performatives import Flow
from sievemq_broker.protocols.foreign import ForeignConnection
from sievemq_broker.protocols.stomp import connection as stomp_connection
from sievemq_broker.protocols.stomp import outbox as stomp_outbox
from sievemq_core.message.body import encode_map
from sievemq_core.message.envelope import BodyKind

from ..session.harness import World, envelope
from .amqp import Amqp
from .stomp import Stomp

COSTLY = {f"property{number}": number for number in range(1_000)}


@pytest.fixture
def world() -> World:
    return World()


class Conversions:
    """How many there were, and in the call of a connection that had most."""

    def __init__(self) -> None:
        self.count = self.begin = self.most = 0

    def counted(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any) -> Any:
            self.count += 1
            return convert(*arguments)

        return act

    def measured(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any) -> Any:
            self.begin = self.count
            found = call(*arguments)
            self.most = max(self.most, self.count - self.begin)
            return found

        return act


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> Conversions:
    found = Conversions()
    for module, name in (
        (amqp_outbox, "payload_of"), (amqp_connection, "payload_of"),
        (stomp_outbox, "message_of"), (stomp_connection, "message_of"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, found.counted(getattr(module, name)))
    for name in ("receive_data", "catch_up", "data_to_send"):
        monkeypatch.setattr(ForeignConnection, name, found.measured(getattr(ForeignConnection, name)))
    return found


def fill(world: World, count: int, to: str = "queue:q", properties: dict[str, Any] | None = None) -> list[str]:
    sender = world.client()
    session = sender.session()
    texts = [f"m{number}" for number in range(count)]
    for text in texts:
        sender.queue_send(session, envelope(text, properties=properties or {}), to)
    world.settle()
    sender.exchange()
    return texts


@pytest.mark.needs_python("counts calls of functions")
@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize(("count", "properties", "most"), [(30, COSTLY, 1), (500, {}, 125)])
def test_a_backlog_is_converted_a_few_in_a_turn(
    world: World, conversions: Conversions, protocol: str, count: int, properties: dict[str, Any], most: int
) -> None:
    texts = fill(world, count, properties=properties)
    if protocol == "amqp":
        amqp = Amqp(world)
        amqp.receiver("q", credit=1_000)
        assert amqp.messages() == texts
    else:
        stomp = Stomp(world)
        stomp.say("SUBSCRIBE", id="1", destination="/queue/q", **{"prefetch-count": "1000"})
        assert stomp.messages() == texts
    assert conversions.count == count
    assert conversions.most <= most


@pytest.mark.needs_python("counts calls of functions")
@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
def test_a_browser_is_shown_messages_as_there_is_time(world: World, conversions: Conversions, protocol: str) -> None:
    texts = fill(world, 150, properties=COSTLY)
    world.services.spent = lambda: conversions.count > conversions.begin
    if protocol == "amqp":
        amqp = Amqp(world)
        amqp.receiver("q", credit=1_000, distribution_mode="copy")
        assert amqp.messages() == texts
    else:
        stomp = Stomp(world)
        stomp.say("SUBSCRIBE", id="1", destination="/queue/q", browser="true")
        assert stomp.messages() == [*texts, ""]
    assert (conversions.count, conversions.most) == (150, 1)


@pytest.mark.needs_python("counts calls of functions")
def test_a_message_is_converted_once_for_all_subscribers(world: World, conversions: Conversions) -> None:
    amqps, stomps = [Amqp(world) for _ in range(5)], [Stomp(world) for _ in range(5)]
    for amqp in amqps:
        amqp.receiver("topic:t", credit=10)
    for stomp in stomps:
        stomp.say("SUBSCRIBE", id="1", destination="/topic/t")
    texts = fill(world, 1, "topic:t")
    assert [client.rest() or client.messages() for client in amqps] == [texts] * 5
    assert [client.settle() or client.messages() for client in stomps] == [texts] * 5
    assert conversions.count == 2


def test_messages_without_an_id_have_one_of_each_delivery(world: World) -> None:
    clients = [Stomp(world) for _ in range(2)]
    for number, client in enumerate(clients):
        for each in range(2):
            client.say("SUBSCRIBE", id=f"{number}{each}", destination="/topic/t", ack="client-individual")
    fill(world, 1, "topic:t")
    for client in clients:
        client.settle()
        ids = [each.headers["message-id"] for each in client.take("MESSAGE")]
        assert len(ids) == len(set(ids)) == 2


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_what_is_delivered_at_once_costs_three_units_a_subscription_at_most(world: World, protocol: str) -> None:
    """Each on a connection of its own: one connection alone gets a turn's worth."""
    clients = [Stomp(world) if protocol == "stomp" else Amqp(world, container=f"c{n}") for n in range(40)]
    for client in clients:
        if isinstance(client, Stomp):
            client.say("SUBSCRIBE", id="0", destination="/topic/t", ack="client-individual")
        else:
            client.receiver("topic://t", credit=10)
    sender, budget = world.client(), world.broker.scheduler.budget
    sender.queue_send(sender.session(), envelope("m"), "topic:t")
    data = sender.wire.data_to_send()
    budget.renew(0)
    sender.broker.receive_data(data, world.now)
    once = 40  # the conversion, which all share
    assert len(clients) <= -budget.left <= 3 * len(clients) + once


def test_a_message_that_takes_more_than_a_turn_is_paid_for_in_later_ones(world: World) -> None:
    client = Amqp(world)
    client.receiver(credit=0)
    body = encode_map({f"value{number}": number for number in range(3_400)})
    for number in range(3):
        sender = world.client()
        sender.queue_send(sender.session(), (*envelope(str(number))[:11], int(BodyKind.MAP), body), "queue:q")
    world.settle()
    flow = Flow(
        next_incoming_id=0, incoming_window=100, next_outgoing_id=0, outgoing_window=1, handle=1, delivery_count=0,
        link_credit=10,
    )  # fmt: skip
    client.broker.receive_data(frame_of(flow), world.now)
    written = []
    while client.broker.has_data or client.broker.behind:
        written.append(len(client.broker.data_to_send()) > 10_000)
    assert written.count(True) == 3
    assert (True, True) not in pairwise(written)

"""What the broker counts of refusals and transactions: by reason and client, for one connection and for all."""

from __future__ import annotations

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.session import SessionSettings
from sievemq_broker.session.recent import Recent
from sievemq_broker.session.rights import Grant, Rights, Verb
from sievemq_broker.session.tally import Refusal, RolledBack
from sievemq_core.wire.commands import Command

from ..protocols.amqp import Amqp, message, selector
from ..protocols.stomp import Stomp
from .harness import START, TRANSACTED, Client, World, open_consumer


def limited(at_limit: str, **limits: int) -> World:
    return World(broker=Broker(DomainSettings(default_policy=DestinationPolicy(at_limit=at_limit, **limits))))


def ended(client: Client) -> tuple[int, int, int]:
    """Transactions of a client: committed, rolled back, of these with a refused commit. All clients have as many."""
    own, total = client.broker.peer.tally, client.world.services.tallies.total
    found = own.committed, own.rolled_back, own.refused_commits
    assert found == (total.committed, total.rolled_back, total.refused_commits)
    return found


def refusals(world: World) -> dict[tuple[str, str, str], int]:
    """Refused ones by address, reason and client."""
    latest = world.services.tallies.refusals.latest()
    assert {of.namespace for of, _ in latest} <= {"default"}
    return {of[1:4]: happened.count for of, happened in latest}


def test_refused_sends_are_counted_by_limit_and_client() -> None:
    world = limited("fail", max_messages=2)
    flooder, other = world.client(client_id="flooder"), world.client(user="ann")
    flooder.send(flooder.session(), *"abcde")
    world.services.real += 1_000
    other.send(other.session(), "f")
    assert refusals(world) == {("queue:q", "max_messages", "ann"): 1, ("queue:q", "max_messages", "flooder"): 3}
    assert world.services.tallies.reasons == {"max_messages": 4}
    assert (flooder.broker.peer.tally.refused, other.broker.peer.tally.refused) == (3, 1)
    assert world.queue().counts.refused == 4
    _, (of, happened) = world.services.tallies.refusals.latest()
    assert of == Refusal("default", "queue:q", "max_messages", "flooder")
    assert (happened.first, happened.last, happened.connection) == (START, START, flooder.broker.peer.member.id)


def test_a_client_without_a_name_is_its_host() -> None:
    world = limited("fail", max_messages=1)
    client = world.client()
    client.broker.peer.address = "[::1]:4711"
    client.send(client.session(), "a", "b")
    assert refusals(world) == {("queue:q", "max_messages", "::1"): 1}


def test_a_refused_commit_counts_each_of_its_messages() -> None:
    world = limited("fail", max_messages=2)
    client = world.client(client_id="c")
    session = client.session(TRANSACTED)
    client.send(session, *"abc")
    client.refused(Command.COMMIT, session, ())
    assert refusals(world) == {("queue:q", "max_messages", "c"): 3}
    assert world.queue().counts.refused == 3
    assert ended(client) == (0, 1, 1)
    client.send(session, "d")
    client.commit(session)
    assert ended(client) == (1, 1, 1)


def test_a_send_without_the_right_is_counted() -> None:
    world = World()
    world.services.users = {"ann": "secret"}
    world.services.rights = {"ann": Rights([Grant(frozenset({Verb.SEND}), "queue:mine")])}
    client = world.client(user="ann", password="secret")
    client.send(client.session(), "a", to="queue:other")
    assert refusals(world) == {("queue:other", "security", "ann"): 1}


def test_a_request_beyond_a_limit_is_counted() -> None:
    world = World(SessionSettings(max_sessions=1))
    client = world.client(client_id="c")
    client.session()
    client.refused(Command.OPEN_SESSION, 99, 1)
    client.refused(Command.OPEN_SESSION, 1, 9)  # no limit
    assert refusals(world) == {("", "max_sessions", "c"): 1}


def test_what_is_not_opened_is_counted_apart() -> None:
    world = World()
    world.services.users = {"ann": "secret"}
    world.services.rights = {"ann": Rights([Grant(frozenset({Verb.CONSUME}), "queue:mine")])}
    client = world.client(user="ann", password="secret")
    session = client.session()
    for request in (
        open_consumer(session, 5, "queue:other"),
        open_consumer(session, 5, "queue:mine", selector="a AND"),
        (Command.BROWSE, "queue:other", None, None, None, 10),
        (Command.DECLARE, "queue:" + "x" * 400),
        open_consumer(99, 5, "queue:mine"),  # a mistake of its program
    ):
        client.refused(*(request if type(request) is tuple else (request,)))
    assert refusals(world) == {
        ("queue:other", "security", "ann"): 2,
        ("queue:mine", "invalid_selector", "ann"): 1,
        (f"queue:{'x' * 294}", "security", "ann"): 1,
    }
    tallies = world.services.tallies
    assert (tallies.opens, tallies.reasons) == ({"security": 3, "invalid_selector": 1}, {})
    assert all(of.opens for of, _ in tallies.refusals.latest())


def test_a_withdrawn_send_and_commit_are_counted() -> None:
    world = limited("block", max_messages=1)
    client = world.client(client_id="c")
    session, transacted = client.session(), client.session(TRANSACTED)
    client.send(session, "a", "b")
    client.ask(Command.WITHDRAW, session, 2)
    client.send(transacted, "c", "d")
    commit = client.request(Command.COMMIT, transacted, ())
    client.ask(Command.WITHDRAW, transacted, 0)
    assert client.answer_to(commit) is not None
    assert world.services.tallies.reasons == {"withdrawn": 3}
    assert ended(client) == (0, 1, 1)


@pytest.mark.parametrize("at_limit", ["block", "drop-oldest", "drop-newest"])
def test_what_waits_or_is_dropped_is_not_refused(at_limit: str) -> None:
    world = limited(at_limit, max_messages=1)
    client = world.client()
    client.send(client.session(), "a", "b")
    assert refusals(world) == {}
    assert world.queue().counts.refused == 0


def test_a_message_larger_than_the_limit_is_refused_by_any_rule() -> None:
    world = limited("drop-oldest", max_bytes=10)
    client = world.client(client_id="c")
    client.send(client.session(), "a" * 20)
    assert refusals(world) == {("queue:q", "max_bytes", "c"): 1}
    assert world.queue().counts.refused == 1


# -- transactions -----------------------------------------------------------------------------------------------------


def test_transactions_are_counted_by_how_they_end(client: Client) -> None:
    session = client.session(TRANSACTED)
    client.send(session, "a")
    client.commit(session)
    client.send(session, "b")
    client.rollback(session)
    assert ended(client) == (1, 1, 0)
    latest = client.world.services.tallies.rollbacks.latest()
    assert [(of, happened.count) for of, happened in latest] == [(RolledBack("default", "memory"), 1)]


def test_a_transaction_without_a_message_is_not_counted(client: Client) -> None:
    session = client.session(TRANSACTED)
    consumer = client.consumer(session)
    client.send(client.session(), "buffered")
    client.commit(session)
    client.rollback(session)
    assert ended(client) == (0, 0, 0)
    consumer.credit()
    assert consumer.all() == ["buffered"]
    client.commit(session)
    assert ended(client) == (1, 0, 0)
    client.commit(session)
    assert ended(client) == (1, 0, 0)


def test_a_doomed_transaction_that_is_rolled_back_is_counted(client: Client) -> None:
    session = client.session(TRANSACTED)
    client.send(session, "a", to="temporary-queue:gone.1")
    client.rollback(session)
    assert ended(client) == (0, 1, 0)


@pytest.mark.parametrize("how", ["close", "goodbye", "lost"])
def test_an_open_transaction_is_rolled_back_with_its_session(how: str, client: Client) -> None:
    session, idle = client.session(TRANSACTED), client.session(TRANSACTED)
    client.send(session, "a")
    if how == "close":
        client.ask(Command.CLOSE_SESSION, session, ())
        client.ask(Command.CLOSE_SESSION, idle, ())
    elif how == "goodbye":
        client.say(Command.GOODBYE, 1, ())
    else:
        client.drop()
    assert ended(client) == (0, 1, 0)


def test_clients_of_other_protocols_are_counted_as_well() -> None:
    world = limited("fail", max_messages=1)
    tallies = world.services.tallies
    amqp = Amqp(world)
    amqp.coordinator()
    amqp.sender("q")
    for number, fail in ((0, True), (3, False)):
        name = amqp.declare(number)
        amqp.send(message("x"), number + 1, state=amqp.within(name))
        amqp.discharge(name, number + 2, fail=fail)
    assert (tallies.total.committed, tallies.total.rolled_back) == (1, 1)
    amqp.send(message("x"), 6)
    stomp = Stomp(world, login="ann")
    stomp.say("BEGIN", transaction="t")
    stomp.say("SEND", b"x", destination="other", transaction="t")
    stomp.say("ABORT", transaction="t")
    assert (tallies.total.committed, tallies.total.rolled_back) == (1, 2)
    stomp.say("SEND", b"x", destination="q")
    amqp.receiver("wrong", filter=selector("a AND"))
    Stomp(world, login="ann").say("SUBSCRIBE", id="1", destination="wrong", selector="a AND")
    assert [of[1:] for of, _ in tallies.refusals.latest()] == [
        ("queue:wrong", "invalid_selector", "ann", True),
        ("queue:wrong", "invalid_selector", amqp.broker.peer.name, True),
        ("queue:q", "max_messages", "ann", False),
        ("queue:q", "max_messages", amqp.broker.peer.name, False),
    ]


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_the_key_that_is_quiet_for_the_longest_time_is_dropped() -> None:
    recent: Recent[str] = Recent(most=2)
    recent.note("a", 1)
    recent.note("b", 2, "c1")
    recent.note("a", 3, "c2", 5)
    recent.note("c", 4)
    assert [(key, of.count, of.first, of.last, of.connection) for key, of in recent.latest()] == [
        ("c", 1, 4, 4, ""),
        ("a", 6, 1, 3, "c2"),
    ]

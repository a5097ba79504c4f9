"""Local transactions (section 25 of the API map), driven by commands."""

from __future__ import annotations

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.session import SessionSettings
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import AUTO, TRANSACTED, Client, World, envelope


def test_txn_02_sends_are_invisible_until_commit_and_confirmed_at_once(client: Client, other: Client) -> None:
    session = client.session(TRANSACTED)
    consumer = other.consumer(other.session())
    client.send(session, "a", "b")
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, session, 2)]
    assert consumer.all() == []
    assert other.browse() == []
    client.commit(session)
    assert consumer.all() == ["a", "b"]


@pytest.mark.parametrize("command", [Command.COMMIT, Command.ROLLBACK])
def test_txn_08_a_session_that_is_not_transacted_has_neither(client: Client, command: int) -> None:
    session = client.session(AUTO)
    code, text, _ = client.refused(command, session, ())
    assert code == ErrorCode.ILLEGAL_STATE
    assert "TXN-08" in text


def test_txn_09_a_failed_send_dooms_the_transaction(client: Client) -> None:
    session = client.session(TRANSACTED)
    consumer = client.consumer(session)
    client.send(client.session(), "in")
    assert consumer.all() == ["in"]
    client.send(session, "a", to="queue:out")
    client.send(session, "b", to="temporary-queue:gone.1")
    client.send(session, "c", to="queue:out")
    failed = client.take(Command.SEND_FAILED)
    assert [command[1:4] for command in failed] == [(session, 2, ErrorCode.INVALID_DESTINATION)]
    client.anew(session)
    code, text, details = client.refused(Command.COMMIT, session, client.handed(session))
    assert code == ErrorCode.TRANSACTION_ROLLED_BACK
    assert details["code"] == ErrorCode.INVALID_DESTINATION
    assert "temporary-queue:gone.1" in text
    consumer.credit()
    assert consumer.all() == ["in#2"]
    assert client.browse("queue:out") == []
    client.send(session, "d", to="queue:out")  # the next transaction is a fresh one
    client.commit(session)
    assert client.browse("queue:out") == [(1, "d")]


def test_txn_09_a_doomed_transaction_can_be_rolled_back(client: Client) -> None:
    session = client.session(TRANSACTED)
    client.send(session, "b", to="temporary-queue:gone.1")
    client.rollback(session)
    client.send(session, "c")
    client.commit(session)
    assert client.browse() == [(1, "c")]


def test_txn_09_a_commit_that_a_limit_stops_publishes_nothing() -> None:
    policies = (("queue:small", DestinationPolicy(max_messages=1)),)
    world = World(broker=Broker(DomainSettings(policies=policies)))
    client = world.client()
    session = client.session(TRANSACTED)
    client.send(session, "a", to="queue:large")
    client.send(session, "b", "c", to="queue:small")
    code, _, details = client.refused(Command.COMMIT, session, ())
    assert (code, details["code"]) == (ErrorCode.TRANSACTION_ROLLED_BACK, ErrorCode.RESOURCE_ALLOCATION)
    assert client.browse("queue:large") == client.browse("queue:small") == []


def test_txn_09_staged_bytes_are_limited() -> None:
    world = World(SessionSettings(staged_bytes=1000))
    client = world.client()
    session = client.session(TRANSACTED)
    client.send(session, "a", body=b"x" * 600)
    client.send(session, "b", body=b"x" * 600)
    assert client.take(Command.SEND_FAILED)[0][2:4] == (2, ErrorCode.RESOURCE_ALLOCATION)
    transaction = client.broker.peer.sessions[session].transaction
    assert transaction is not None
    assert len(transaction.staged) == 0  # a doomed transaction holds no memory
    assert client.refused(Command.COMMIT, session, ())[0] == ErrorCode.TRANSACTION_ROLLED_BACK
    client.send(session, "c", body=b"x" * 600)
    client.commit(session)
    assert len(client.browse()) == 1
    assert client.broker.peer.staged.used == 0


def test_txn_09_sends_of_one_write_are_staged_as_far_as_there_is_room() -> None:
    world = World(SessionSettings(staged_bytes=2_100))
    client = world.client()
    client.send(client.session(), "known")
    session = client.session(TRANSACTED)
    client.send(session, "a", "b", "c", "d", body=b"x" * 600)
    assert [command[2] for command in client.take(Command.SEND_FAILED)] == [4]
    assert client.take(Command.CONFIRM)[-1] == (Command.CONFIRM, session, 3)
    assert client.refused(Command.COMMIT, session, ())[0] == ErrorCode.TRANSACTION_ROLLED_BACK
    assert client.browse() == [(1, "known")]
    assert client.broker.peer.staged.used == 0


def test_txn_12_sends_of_one_write_are_committed_in_order_to_each_destination(client: Client) -> None:
    for address in ("queue:q", "queue:other"):
        client.send(client.session(), "known", to=address)
    session = client.session(TRANSACTED)
    numbers = [str(n) for n in range(40)]
    for number in numbers:
        to = "queue:other" if int(number) % 7 > 4 else "queue:q"
        client.queue_send(session, envelope(number, priority=4), to)
    client.world.settle()
    client.commit(session)
    for address, wanted in (("queue:q", range(5)), ("queue:other", range(5, 7))):
        texts = [text for _, text in client.browse(address)]
        assert texts == ["known", *(number for number in numbers if int(number) % 7 in wanted)]


def test_staged_bytes_are_those_of_all_transactions_of_the_connection() -> None:
    world = World(SessionSettings(staged_bytes=1000))
    client, other = world.client(), world.client()
    one, two = client.session(TRANSACTED), client.session(TRANSACTED)
    client.send(one, "a", body=b"x" * 600)
    client.send(two, "b", body=b"x" * 600)
    assert client.take(Command.SEND_FAILED)[0][1:4] == (two, 1, ErrorCode.RESOURCE_ALLOCATION)
    other.send(other.session(TRANSACTED), "c", body=b"x" * 600)
    assert other.take(Command.SEND_FAILED) == []
    client.ask(Command.CLOSE_SESSION, one, ())
    assert client.broker.peer.staged.used == 0
    client.rollback(two)
    client.send(two, "b", body=b"x" * 600)
    client.commit(two)
    assert len(client.browse()) == 1


def test_txn_09_a_destination_that_vanished_before_commit(client: Client, other: Client) -> None:
    address = other.ask(Command.CREATE_TEMPORARY, False)
    session = client.session(TRANSACTED)
    client.send(session, "a", to=address)
    client.send(session, "b")
    other.ask(Command.DELETE_TEMPORARY, address)
    code, _, details = client.refused(Command.COMMIT, session, ())
    assert (code, details["code"]) == (ErrorCode.TRANSACTION_ROLLED_BACK, ErrorCode.INVALID_DESTINATION)
    assert client.browse() == []


def test_txn_15_confirms_precede_the_answer_to_commit(world: World, client: Client) -> None:
    session = client.session(TRANSACTED)
    client.queue_send(session, envelope("a"))
    client.queue(Command.COMMIT, 7, session, ())
    world.settle()
    heard = [command for command in client.heard if command[0] in (Command.CONFIRM, Command.OK)]
    assert heard[-2:] == [(Command.CONFIRM, session, 1), (Command.OK, 7, None)]


def test_txn_18_a_connection_lost_before_commit_arrives_publishes_nothing_and_after_it_everything(world: World) -> None:
    for committed in (False, True):
        client = world.client()
        session = client.session(TRANSACTED)
        client.queue_send(session, envelope("a"))
        client.queue(Command.COMMIT, 7, session, ())
        data = client.wire.data_to_send()
        client.broker.receive_data(data if committed else data[:-1], world.now)
        client.drop()
        assert world.client().browse() == ([(1, "a")] if committed else [])


def test_rollback_lets_others_have_the_messages(client: Client, other: Client) -> None:
    consumer = client.consumer(client.session(TRANSACTED), credit=2)
    client.send(client.session(), "a", "b")
    assert consumer.receive() == ["a"]
    rival = other.consumer(other.session())
    client.rollback(consumer.session)
    assert rival.all() == ["a#2", "b"]

"""What a request covers is fixed when it is made; the next call tells the outcome of one that was broken off (D-41)."""

from __future__ import annotations

import pytest

from sievemq import JMSException, Queue, TextMessage, TransactionRolledBackException
from sievemq._engine import Completion, EngineConsumer, EngineProducer, EngineSession
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import FakeBroker, World

TRANSACTED, CLIENT = 0, 2


def numbers(broker: FakeBroker) -> list[int]:
    return [command[0] for command in broker.heard()]


def take(consumer: EngineConsumer) -> str | None:
    message = consumer.take() if consumer.flowing else None
    return message.get_body(str) if message is not None else None


def begin(session: EngineSession, verb: str) -> Completion[None]:
    """A call, as a front makes it."""
    session.begin(verb)
    return session.commit() if verb == "commit" else session.rollback()


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_nothing_is_handed_over_before_the_answer(broker: FakeBroker, verb: str) -> None:
    session = broker.session(TRANSACTED)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2)
    assert take(consumer) == "1"
    woken: list[bool] = []
    begin(session, verb)
    broker.deliver(consumer, 3)
    assert take(consumer) is None
    (request,) = broker.heard()
    consumer.waits(lambda: woken.append(True))
    broker.say(Command.OK, request[1], None)
    assert woken
    assert take(consumer) == ("2" if verb == "commit" else None)


def test_deliveries_resume_at_the_last_outstanding_answer(broker: FakeBroker) -> None:
    session = broker.session(CLIENT)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1)
    take(consumer)
    session.recover()
    session.recover()
    first, second = broker.heard()
    broker.say(Command.OK, first[1], None)
    broker.deliver(consumer, 2, count=2)  # taken back by the second
    assert take(consumer) is None
    broker.say(Command.OK, second[1], None)
    broker.deliver(consumer, 3, count=2)
    assert take(consumer) == "3"
    assert take(consumer) is None


def test_start_and_a_new_consumer_wait_for_the_answer(broker: FakeBroker) -> None:
    session = broker.session(TRANSACTED)
    begin(session, "commit")
    (commit,) = broker.heard()
    consumer = broker.consumer(session)
    broker.engine.stop()
    broker.engine.start()
    broker.deliver(consumer, 1)
    assert take(consumer) is None
    broker.say(Command.OK, commit[1], None)
    assert take(consumer) == "1"


def test_an_outcome_is_in_doubt_until_its_caller_has_it(broker: FakeBroker) -> None:
    session = broker.session(TRANSACTED)
    completion = begin(session, "commit")
    doubts = session.outcomes.doubts
    assert len(doubts) == 1
    broker.grant()
    assert len(doubts) == 1
    completion.result()
    assert len(doubts) == 1
    session.outcomes.hear(JMSException("time is over"))  # no outcome
    assert len(doubts) == 1
    session.outcomes.hear()
    assert doubts == []


def test_a_commit_that_was_broken_off_and_rolled_back_is_told_after_a_rollback_of_the_rest(broker: FakeBroker) -> None:
    session = broker.session(TRANSACTED)
    producer = broker.producer(session)
    producer.send(TextMessage("A"), Queue("q"))
    begin(session, "commit")  # and its caller goes away
    producer.send(TextMessage("B"), Queue("q"))
    resolved = session.resolve()
    commit = next(command for command in broker.heard() if command[0] == Command.COMMIT)
    broker.say(Command.ERROR, commit[1], ErrorCode.TRANSACTION_ROLLED_BACK, "no room", {})
    assert not resolved.done
    assert broker.grant()[0] == Command.ROLLBACK
    resolved.result()
    with pytest.raises(TransactionRolledBackException, match="no room") as told:
        session.outcomes.tell()
    session.outcomes.hear(told.value)
    assert told.value.committed == 0
    session.outcomes.tell()  # once


def test_commits_that_were_broken_off_and_took_effect_are_counted(broker: FakeBroker) -> None:
    session = broker.session(TRANSACTED)
    begin(session, "commit")
    resolved = session.resolve()
    broker.grant()
    resolved.result()
    session.outcomes.tell()
    assert numbers(broker) == []
    committing = begin(session, "commit")
    broker.refuse(ErrorCode.TRANSACTION_ROLLED_BACK)
    with pytest.raises(TransactionRolledBackException) as failure:
        committing.result()
    session.outcomes.hear(failure.value)
    assert failure.value.committed == 1
    assert session.outcomes.begun == 0


def test_a_commit_broken_off_before_it_was_sent_is_decided_with_the_next(broker: FakeBroker) -> None:
    session = broker.session(TRANSACTED)
    session.begin("commit")
    begin(session, "commit")
    broker.grant()
    assert session.outcomes.begun == 2
    session.outcomes.hear()
    assert session.outcomes.begun == 0
    session.begin("commit")
    begin(session, "rollback")
    broker.grant()
    with pytest.raises(TransactionRolledBackException) as failure:
        session.outcomes.tell()
    assert failure.value.committed == 0


def test_a_rollback_in_doubt_of_such_a_commit_takes_what_came_since_along(broker: FakeBroker) -> None:
    session = broker.session(TRANSACTED)
    session.begin("commit")
    begin(session, "rollback")
    broker.grant()
    broker.producer(session).send(TextMessage("later"), Queue("q"))
    resolved = session.resolve()
    assert broker.grant()[0] == Command.ROLLBACK
    resolved.result()
    with pytest.raises(TransactionRolledBackException):
        session.outcomes.tell()


def test_a_rollback_broken_off_before_it_was_sent_lets_nothing_be_committed(broker: FakeBroker) -> None:
    session = broker.session(TRANSACTED)
    session.begin("rollback")
    committing = begin(session, "commit")
    assert broker.grant()[0] == Command.ROLLBACK
    with pytest.raises(TransactionRolledBackException) as failure:
        committing.result()
    session.outcomes.hear(failure.value)
    assert failure.value.committed == 0


def test_a_failed_acknowledgement_is_told_as_it_is(broker: FakeBroker) -> None:
    session = broker.session(CLIENT)
    consumer = broker.consumer(session)
    broker.deliver(consumer, 1, 2)
    take(consumer)
    session.acknowledge()
    assert take(consumer) == "2"  # it covers what was handed over before
    resolved = session.resolve()
    broker.refuse(ErrorCode.INTERNAL, "a defect")
    resolved.result()
    with pytest.raises(JMSException, match="a defect"):
        session.outcomes.tell()


def test_closing_reports_an_outcome_that_no_call_can_raise(broker: FakeBroker) -> None:
    session = broker.session(TRANSACTED)
    begin(session, "commit")
    broker.refuse(ErrorCode.TRANSACTION_ROLLED_BACK, "no room")
    session.close()
    broker.grant()
    assert [str(error) for error in broker.reported] == ["no room"]


# -- over a loss ------------------------------------------------------------------------------------------------------


def texts(world: World) -> list[str]:
    queue = world.broker.namespace("default").queue("queue:q")
    return [entry.envelope.fields[12].decode() for entry in queue.main.waits(-1, queue.depth)]


@pytest.mark.parametrize("arrives", [True, False])
def test_txn_09_a_send_behind_a_commit_in_doubt_is_not_lost_in_silence(arrives: bool) -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory, TRANSACTED)
    producer = EngineProducer(session, Queue("q"))
    producer.send(TextMessage("A"), Queue("q"))
    begin(session, "commit")
    producer.send(TextMessage("B"), Queue("q"))
    if arrives:
        memory.lose_answers(world.clock.now)
    else:
        memory.drop(world.clock.now)
    memory.reopen()
    world.result(session.resolve())
    if not arrives:
        with pytest.raises(TransactionRolledBackException) as told:
            session.outcomes.tell()
        assert told.value.committed == 0
    else:
        session.outcomes.tell()
        second = begin(session, "commit")
        world.settle()
        with pytest.raises(TransactionRolledBackException) as failure:
            second.result()
        session.outcomes.hear(failure.value)
        assert failure.value.committed == 1
    assert texts(world) == (["A"] if arrives else [])


def test_a_send_behind_a_commit_that_waits_for_the_repair_is_not_covered_by_it() -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory, TRANSACTED)
    producer = EngineProducer(session, Queue("q"))
    memory.drop(world.clock.now)
    producer.send(TextMessage("A"), Queue("q"))
    first = begin(session, "commit")
    producer.send(TextMessage("B"), Queue("q"))
    memory.reopen()
    world.result(first)
    assert texts(world) == ["A"]
    world.result(begin(session, "rollback"))
    assert texts(world) == ["A"]


def test_ack_18_messages_behind_a_commit_in_doubt_are_not_covered_by_it() -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    sending, session = world.session(memory), world.session(memory, TRANSACTED)
    consumer = world.consumer(session)
    for text in "xyz":
        EngineProducer(sending, Queue("q")).send(TextMessage(text), Queue("q"))
    world.settle()
    assert take(consumer) == "x"
    first = begin(session, "commit")
    world.result(first)
    session.outcomes.hear()
    assert take(consumer) == "y"
    memory.drop(world.clock.now)
    memory.reopen()
    second = begin(session, "commit")
    world.settle()
    with pytest.raises(TransactionRolledBackException):
        second.result()
    again = consumer.take()
    assert again is not None
    assert (again.get_body(str), again.get_jms_redelivered()) == ("y", True)
    assert take(consumer) == "z"

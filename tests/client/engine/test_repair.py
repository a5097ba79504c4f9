"""When a loss is repaired, and what is sent then: the plan; sends, deliveries, transactions over losses, by a model."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq import JMSException, Queue, TextMessage, Topic, TransactionRolledBackException
from sievemq._engine import Completion, EngineProducer, Repair
from sievemq._engine.repair import is_passing
from sievemq.destinations import parse_destination
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import Memory, World

HOSTS = ("a", "b", "c")

# -- the plan ---------------------------------------------------------------------------------------------------------


def test_the_first_attempt_is_immediate_and_pauses_grow() -> None:
    repair = Repair(60_000, 50, 400)
    repair.begin(0)
    assert [repair.pause(0, 1.0) for _ in range(6)] == [0, 50, 100, 200, 400, 400]


@pytest.mark.parametrize(("hosts", "longest"), [(1, 2_000), (2, 500), (5, 500)])
def test_pauses_are_shorter_where_one_host_may_take_over_from_another(hosts: int, longest: int) -> None:
    repair = Repair(60_000, 50, None, hosts)
    repair.begin(0)
    assert max(repair.pause(0, 1.0) for _ in range(10)) == longest
    repair = Repair(60_000, 50, 700, hosts)
    repair.begin(0)
    assert max(repair.pause(0, 1.0) for _ in range(10)) == 700


def test_chance_takes_up_to_half_of_a_pause() -> None:
    repair = Repair(60_000, 100, 100)
    repair.begin(0)
    assert [repair.pause(0, chance) for chance in (0.0, 0.0, 0.5, 1.0)] == [0, 50, 75, 100]


def test_no_pause_is_longer_than_the_remaining_time() -> None:
    repair = Repair(1_000, 500, 5_000)
    repair.begin(10_000)
    repair.pause(10_000, 1.0)
    assert repair.pause(10_900, 1.0) == 100
    assert (repair.left(10_999), repair.left(11_000), repair.left(99_999)) == (1, 0, 0)


def test_a_connection_that_falls_as_soon_as_it_is_open_is_opened_more_slowly() -> None:
    repair = Repair(60_000, 50, 400)
    repair.begin(0)
    pauses = []
    for now in range(0, 1_000, 100):
        repair.begin(now, opened=now - 10)
        pauses.append(repair.pause(now, 1.0))
    assert pauses[:6] == [0, 50, 100, 200, 400, 400]
    repair.begin(10_000, opened=9_000)
    assert repair.pause(10_000, 1.0) == 0


def test_hosts_are_tried_beginning_with_the_last_good_one() -> None:
    assert [host for _, host in Repair.order(HOSTS, 1)] == ["b", "c", "a"]
    assert Repair.order(HOSTS, 2)[0] == (2, "c")


def test_temporary_errors_are_recognised() -> None:
    assert is_passing(JMSException("x", "CONNECTION_FAILED"))
    assert is_passing(JMSException("x", "SHUTTING_DOWN"))
    for code in ("AUTHENTICATION", "INVALID_CLIENT_ID", "MALFORMED_FRAME", "UNSUPPORTED_VERSION", None):
        assert not is_passing(JMSException("x", code))


@pytest.mark.parametrize("code", list(ErrorCode))
def test_which_ends_of_a_connection_are_repaired(code: ErrorCode) -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    memory.broker.close(code, "the end", world.clock.now)
    world.settle()
    assert memory.engine.repairing == code.repairable
    assert (memory.engine.failure is None) == code.repairable


# -- a sender that runs while the connection is restored --------------------------------------------------------------


class Interrupting(deque[Any]):
    """Something happens right before or behind an append."""

    def __init__(self, happens: Any, before: bool) -> None:
        super().__init__()
        self._happens, self._before = happens, before

    def append(self, item: Any) -> None:
        happens, self._happens = self._happens, None
        if happens is not None and self._before:
            happens()
        super().append(item)
        if happens is not None and not self._before:
            happens()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("place", ["unconfirmed", "waiting", "queue"])
@pytest.mark.parametrize("half_dead", [True, False])
def test_a_send_that_overlaps_the_repair_arrives_once(place: str, before: bool, half_dead: bool) -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory)
    producer = EngineProducer(session, Queue("q"))
    producer.send(TextMessage("first"), Queue("q"))

    def repair() -> None:
        if half_dead:
            memory.leave_half_dead()
        else:
            memory.drop(world.clock.now)
        memory.reopen()
        world.settle()

    owner: Any = memory.engine.outbox if place == "queue" else session.sends
    queue = Interrupting(repair, before)
    queue.extend(getattr(owner, place))
    setattr(owner, place, queue)
    fate = producer.send(TextMessage("second"), Queue("q"))
    producer.send(TextMessage("third"), Queue("q"))
    world.settle()
    assert fate is not None
    fate.result()
    assert texts(world) == ["first", "second", "third"]
    assert not session.sends.unconfirmed


def texts(world: World) -> list[str]:
    queue = world.broker.namespace("default").queue("queue:q")
    return [entry.envelope.fields[12].decode() for entry in queue.main.waits(-1, queue.depth)]


def test_tags_of_a_message_in_hand_mean_nothing_any_more() -> None:
    """A listener returns from a message of the lost connection after the repair."""
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory)
    consumer = world.consumer(session)
    EngineProducer(session, Queue("q")).send(TextMessage("x"), Queue("q"))
    world.settle()
    assert consumer.take() is not None
    memory.drop(world.clock.now)
    memory.reopen()
    world.settle()
    consumer.settle()
    world.settle()
    assert memory.engine.failure is None
    again = consumer.take()
    assert again is not None
    assert again.get_jms_redelivered()


def test_acknowledgements_from_before_a_loss_are_repeated_after_it() -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory)
    consumer = world.consumer(session)
    EngineProducer(session, Queue("q")).send(TextMessage("x"), Queue("q"))
    world.settle()
    assert consumer.take() is not None
    consumer.settle()  # and its acknowledgement is never written
    memory.drop(world.clock.now)
    memory.reopen()
    world.settle()
    assert consumer.take() is None
    assert texts(world) == []


def test_a_session_closed_during_an_outage_still_sends() -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory)
    memory.drop(world.clock.now)
    EngineProducer(session, Queue("q")).send(TextMessage("x"), Queue("q"))
    closed = session.close()
    memory.reopen()
    world.settle()
    closed.result()
    assert texts(world) == ["x"]


def test_a_lost_refusal_fails_the_send() -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory)
    fates = []
    producer = EngineProducer(session, None)
    gone = world.result(memory.engine.create_temporary(topic=False))
    world.result(memory.engine.delete_temporary(gone))
    for destination in (Queue("q"), parse_destination(gone), Queue("q")):
        fate = producer.send(TextMessage("x"), destination)
        assert fate is not None
        fates.append(fate)
    memory.lose_answers(world.clock.now)
    memory.reopen()
    world.settle()
    assert [type(fate.error).__name__ for fate in fates] == ["NoneType", "InvalidDestinationException", "NoneType"]
    assert texts(world) == ["x", "x"]


@pytest.mark.parametrize("lost", ["answer", "request"])
@pytest.mark.parametrize("verb", ["delete_temporary", "unsubscribe"])
def test_a_deletion_in_doubt_is_done(verb: str, lost: str) -> None:
    world = World()
    memory = world.connect(reconnect=5_000, client_id="me")
    session = world.session(memory)
    if verb == "unsubscribe":
        consumer = world.consumer(session, Topic("t"), subscription="s", durable=True)
        world.result(session.close_consumer(consumer))
        done = session.unsubscribe("s")
    else:
        done = memory.engine.delete_temporary(world.result(memory.engine.create_temporary(topic=False)))
    if lost == "answer":
        memory.lose_answers(world.clock.now)
    else:
        memory.drop(world.clock.now)
    memory.reopen()
    world.settle()
    done.result()


def test_a_broken_connection_without_the_option_stays_broken() -> None:
    world = World()
    memory = world.connect()
    memory.drop(world.clock.now)
    assert memory.engine.failure is not None
    assert not memory.engine.repairing


def test_no_command_is_sent_between_hello_and_welcome() -> None:
    world = World()
    memory = world.connect(reconnect=5_000)
    session = world.session(memory)
    memory.drop(world.clock.now)
    memory.engine.ping()
    EngineProducer(session, Queue("q")).send(TextMessage("x"), Queue("q"))
    assert memory.engine.data_to_send() == b""
    assert not memory.engine.has_output
    memory.reopen()
    assert memory.handshake is not None
    assert [packed[1] for packed in memory.handshake.wire.out] == [Command.HELLO]
    assert memory.engine.data_to_send() == b""


@pytest.mark.parametrize("again", [False, True])
def test_recovery_is_reported_after_all_objects_are_reopened(again: bool) -> None:
    """The listener may publish at once: the subscriber is there. Lost again before that, it is called later."""
    world = World()
    memory = world.connect(reconnect=5_000)
    world.consumer(world.session(memory), Topic("t"))
    told: list[set[int]] = []
    pending = memory.engine.outbox.requests.pending

    def restored() -> None:
        told.append({command[0] for answer, command in pending.values() if not answer.done})

    memory.engine.listen(None, None, restored)
    memory.drop(world.clock.now)
    memory.reopen()
    if again:
        while memory.engine.repairing:
            assert memory.exchange(world.clock.now)
        memory.lose_answers(world.clock.now)
        assert told == []
        memory.reopen()
    world.settle()
    assert told == [set()]


@pytest.mark.parametrize("what", ["consumer", "session"])
@pytest.mark.parametrize("prefetched", [False, True])
def test_ack_02_received_messages_stay_acknowledged_when_closing_loses_the_connection(
    what: str, prefetched: bool
) -> None:
    """In AUTO_ACKNOWLEDGE a receive that has returned is acknowledged. The acknowledgement leaves with the close."""
    world = World()
    memory = world.connect(reconnect=5_000)
    session, sending = world.session(memory), world.session(memory)
    consumer = world.consumer(session)
    for text in ("a", "b", "c") if prefetched else ("a", "b"):
        EngineProducer(sending, Queue("q")).send(TextMessage(text), Queue("q"))
    world.settle()
    for _ in range(2):
        assert consumer.take_for_good() is not None
    if what == "consumer":
        session.close_consumer(consumer)
    else:
        session.close()
    memory.drop(world.clock.now)  # nothing of that has been written
    memory.reopen()
    world.settle()
    reading = world.consumer(world.session(world.connect()))
    left = []
    while (message := world.receive(reading)) is not None:
        left.append((message.get_text(), message.get_jms_redelivered()))
    assert left == ([("c", False)] if prefetched else [])


# -- a model ----------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.sampled_from(
        [
            *("send", "send", "stage", "stage", "take", "take", "take a lot", "acknowledge", "commit", "rollback"),
            *("recover", "settle", "settle", "settle"),
            *("drop", "half dead", "lose answers", "reopen", "reopen"),
        ]
    ),
    max_size=60,
)


class Play:
    """One application with a producer, a transacted session and a CLIENT_ACKNOWLEDGE consumer, and its account."""

    def __init__(self) -> None:
        self.world = World()
        self.memory: Memory = self.world.connect(reconnect=5_000)
        self.plain = self.world.session(self.memory, 2)
        self.transacted = self.world.session(self.memory, 0)
        self.consumer = self.world.consumer(self.plain)
        self.taker = self.world.consumer(self.transacted)
        self.sent: dict[str, Completion[None]] = {}
        self.open_tx: list[str] = []
        self.commits: list[tuple[list[str], list[str], Completion[Any]]] = []
        self.acknowledged: list[tuple[list[str], Completion[Any]]] = []
        self.held: list[str] = []
        self.held_in_tx: list[str] = []
        self.unmarked: Counter[str] = Counter()
        self.seen: list[str] = []
        self._number = 0

    def _name(self) -> str:
        self._number += 1
        return f"{self._number}"

    @property
    def idle(self) -> bool:
        """No commit or acknowledgement is under way: an application waits for those."""
        return all(c.done for *_, c in self.commits[-1:]) and all(c.done for _, c in self.acknowledged[-1:])

    def act(self, step: str) -> None:
        world, memory, now = self.world, self.memory, self.world.clock.now
        if step == "settle":
            world.settle()
        elif step == "drop":
            memory.drop(now)
        elif step == "half dead" and not memory.cut:
            memory.leave_half_dead()
        elif step == "lose answers":
            memory.lose_answers(now)
        elif step == "reopen" and memory.cut:
            memory.reopen()
        elif not self.idle:
            pass
        elif step == "send":
            name = self._name()
            fate = EngineProducer(self.plain, Queue("q")).send(TextMessage(name), Queue("q"))
            assert fate is not None
            self.sent[name] = fate
        elif step == "stage":
            name = "t" + self._name()
            self.open_tx.append(name)
            EngineProducer(self.transacted, Queue("q")).send(TextMessage(name), Queue("q"))
        elif step in ("take", "take a lot"):
            for _ in range(1 if step == "take" else 5):
                self._take(self.consumer, self.held)
                self._take(self.taker, self.held_in_tx)
        elif step == "acknowledge":
            try:
                self.acknowledged.append((self.held, self.plain.acknowledge()))
            except JMSException:
                pass  # some came on a connection that is lost
            self.held = []
        elif step == "recover":
            self.plain.recover()
            self.held = []
        elif step == "commit":
            self.commits.append((self.open_tx, self.held_in_tx, self.transacted.commit()))
            self.open_tx, self.held_in_tx = [], []
        elif step == "rollback":
            self.transacted.rollback()
            self.open_tx, self.held_in_tx = [], []

    def _take(self, consumer: Any, held: list[str]) -> None:
        message = consumer.take() if consumer.flowing else None
        if message is not None:
            if consumer.taken >= consumer.credit.mark:
                consumer.top_up()
            self._see(message)
            held.append(message.get_text())

    def _see(self, message: Any) -> None:
        self.seen.append(message.get_text())
        if not message.get_jms_redelivered():
            self.unmarked[message.get_text()] += 1

    def end(self) -> None:
        if self.memory.cut:
            self.memory.reopen()
        self.world.settle()
        assert self.memory.engine.failure is None
        assert not self.memory.reported
        assert all(fate.done and fate.error is None for fate in self.sent.values())
        self.world.result(self.memory.engine.close())
        left = self._left()
        there = set(self.seen) | set(left)
        assert set(self.sent) <= there, "lost"
        assert max(self.unmarked.values(), default=0) <= 1, "doubled"
        done: set[str] = set()
        for names, taken, outcome in self.commits:
            if outcome.error is None:
                assert set(names) <= there, "lost from a committed transaction"
                done.update(taken)
            else:
                assert isinstance(outcome.error, TransactionRolledBackException), outcome.error
                assert not set(names) & there, "came from a transaction that was rolled back"
        assert not set(self.open_tx) & there
        for names, outcome in self.acknowledged:
            if outcome.error is None:
                done.update(names)
        assert not done & set(left), "came again after it was acknowledged"
        for session in (self.plain, self.transacted):
            assert not session.sends.unconfirmed

    def _left(self) -> list[str]:
        session = self.world.session(self.world.connect())
        left = []
        for name in ("q", "DLQ.q"):
            consumer = self.world.consumer(session, Queue(name))
            while True:
                self.world.settle()
                message = consumer.take()
                if message is None:
                    break
                if consumer.taken >= consumer.credit.mark:
                    consumer.top_up()
                self._see(message)
                left.append(message.get_text())
        return left


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_d_32_exl_04_every_message_is_accounted_for_after_any_loss(steps: list[str]) -> None:
    play = Play()
    for step in steps:
        play.act(step)
    play.end()

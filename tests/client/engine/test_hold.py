"""Sends that wait for room, without I/O: what is sent, kept, and resent (docs/protocol.md, section 6)."""

from __future__ import annotations

from typing import Any

import pytest

from sievemq import Queue, ResourceAllocationException, TextMessage
from sievemq._engine import Completion, EngineOptions, EngineProducer, EngineSession
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import FakeBroker

QUEUE = Queue("full")
FULL = "queue:full is full; it may hold 2 messages"


def opened(**options: Any) -> tuple[FakeBroker, EngineSession, EngineProducer]:
    broker = FakeBroker(EngineOptions(heartbeat=0, **options), window_messages=100)
    broker.welcome()
    session = broker.session()
    return broker, session, broker.producer(session, QUEUE)


def send(producer: EngineProducer, count: int = 1) -> list[Completion[None]]:
    fates = [producer.send(TextMessage("x"), QUEUE) for _ in range(count)]
    return [fate for fate in fates if fate is not None]


def said(broker: FakeBroker) -> list[int]:
    """The sequences of the SENDs since the last look."""
    return [command[2] for command in broker.heard() if command[0] == Command.SEND]


def block(broker: FakeBroker, session: EngineSession, sequence: int) -> None:
    broker.say(Command.FLOW, True, FULL, session.id, sequence, "queue:full")


def go_on(broker: FakeBroker, session: EngineSession, sequence: int) -> None:
    broker.say(Command.CONFIRM, session.id, sequence - 1)
    broker.say(Command.FLOW, False, "", session.id, sequence, None)


def test_skipped_sends_are_repeated_from_the_brokers_position() -> None:
    broker, session, producer = opened()
    send(producer, 5)
    assert said(broker) == [1, 2, 3, 4, 5]
    broker.say(Command.CONFIRM, session.id, 2)
    block(broker, session, 3)
    assert session.sends.window_is_full
    assert broker.engine.flow.blocked == (("queue:full", FULL),)
    assert said(broker) == []
    go_on(broker, session, 4)
    assert said(broker) == [4, 5]
    assert not session.sends.window_is_full
    assert broker.engine.flow.blocked == ()
    send(producer)
    assert said(broker) == [6]


def test_repeated_sends_leave_in_growing_batches() -> None:
    broker, session, producer = opened()
    send(producer, 60)
    said(broker)
    block(broker, session, 1)
    go_on(broker, session, 2)
    first = said(broker)
    assert first == list(range(2, 2 + len(first)))
    assert len(first) == 8
    assert session.sends.window_is_full
    broker.say(Command.CONFIRM, session.id, 9)
    second = said(broker)
    assert second == list(range(10, 26))  # the room of the eight, and as many again
    block(broker, session, 20)
    assert said(broker) == []
    go_on(broker, session, 21)
    third = said(broker)
    assert third[0] == 21
    broker.say(Command.CONFIRM, session.id, 60)
    assert said(broker) == []
    assert not session.sends.window_is_full
    assert session.sends.hold is None


def test_blocked_senders_continue_after_all_sends_are_repeated() -> None:
    broker, session, producer = opened()
    send(producer)
    block(broker, session, 1)
    waiting = session.sends.window_opens()
    assert not waiting.done
    go_on(broker, session, 2)
    assert waiting.done
    assert waiting.error is None


def test_a_send_during_the_block_is_repeated_in_order() -> None:
    broker, session, producer = opened()
    send(producer, 20)
    said(broker)
    block(broker, session, 1)
    send(producer)  # its thread had looked at the window before
    assert said(broker) == [21]  # passed over
    go_on(broker, session, 2)
    heard = said(broker)
    while session.sends.hold is not None:
        broker.say(Command.CONFIRM, session.id, heard[-1])
        heard += said(broker)
    assert heard == list(range(2, 22))


def test_a_withdrawn_send_is_replaced_where_it_stands() -> None:
    broker, session, producer = opened()
    fates = send(producer, 3)
    said(broker)
    block(broker, session, 1)
    broker.engine.expect(session.sends, fates[1], 1_000, 500, 2)
    assert broker.engine.tick(1_499) == 1
    assert broker.heard() == []
    broker.engine.tick(1_500)
    ((number, request, whose, sequence),) = broker.heard()
    assert (number, whose, sequence) == (Command.WITHDRAW, session.id, 2)
    assert not fates[1].done
    broker.say(Command.OK, request, None)
    with pytest.raises(ResourceAllocationException, match="may hold 2 messages; this message waited 500 ms"):
        fates[1].result()
    go_on(broker, session, 2)
    assert [command[:4] for command in broker.heard()] == [
        (Command.WITHDRAW, 0, session.id, 2),
        (Command.SEND, session.id, 3, "queue:full"),
    ]
    broker.say(Command.SEND_FAILED, session.id, 2, int(ErrorCode.RESOURCE_ALLOCATION), "withdrawn")
    broker.say(Command.CONFIRM, session.id, 3)
    assert [fate.done and fate.error is None for fate in fates] == [True, False, True]
    assert not broker.reported
    assert session.sends.sent_bytes == session.sends.confirmed_bytes
    assert not session.sends.withdrawn


def test_a_send_that_was_taken_after_all_has_succeeded() -> None:
    broker, session, producer = opened()
    (fate,) = send(producer)
    said(broker)
    broker.engine.expect(session.sends, fate, 0, 500, 1)
    broker.engine.tick(500)
    ((_, request, *_),) = broker.heard()
    broker.say(Command.CONFIRM, session.id, 1)
    broker.say(Command.OK, request, None)
    fate.result()
    assert not session.sends.withdrawn


def test_time_runs_with_the_brokers_clock_and_only_the_latest_is_kept() -> None:
    broker, session, producer = opened()
    fates = send(producer, 2)
    said(broker)
    for sequence, fate in enumerate(fates, 1):
        broker.engine.expect(session.sends, fate, 0, 10_000 * sequence, sequence)
    broker.say(Command.CONFIRM, session.id, 1)
    broker.say(Command.CLOCK, 15_000)
    broker.heard()
    assert broker.engine.tick(0) == 5_000
    assert broker.heard() == []
    broker.say(Command.CLOCK, 21_000)
    broker.heard()
    broker.engine.tick(0)
    assert [command[0] for command in broker.heard()] == [Command.WITHDRAW]
    assert broker.engine.next_deadline is None


def test_limits_of_welcome_are_checked_before_requests() -> None:
    broker = FakeBroker(sessions=1, consumers=1, temporaries=1)
    broker.welcome()
    session = broker.session()
    with pytest.raises(ResourceAllocationException, match="has as many sessions as the broker allows, 1;"):
        broker.engine.open_session(1)
    broker.consumer(session, QUEUE)
    with pytest.raises(ResourceAllocationException, match="has as many consumers as the broker allows, 1;"):
        session.open_consumer(QUEUE, "queue:full")
    broker.engine.create_temporary(topic=False)
    broker.grant("temporary-queue:c1.1")
    with pytest.raises(ResourceAllocationException, match="has as many temporaries as the broker allows, 1;"):
        broker.engine.create_temporary(topic=False)
    broker.heard()
    assert broker.engine.usable


def test_a_step_of_the_clock_in_an_outage_counts_for_sends_that_had_begun_before_it() -> None:
    """The client learns of it by the next WELCOME."""
    hour = 3_600_000
    broker, session, producer = opened(reconnect=60_000)
    (before,) = send(producer)
    broker.engine.expect(session.sends, before, 0, hour // 2, 1)
    said(broker)
    broker.engine.lost(None)
    broker.clock.now += 2_000
    (after,) = send(producer)
    broker.engine.expect(session.sends, after, 2_000, hour // 2, 2)
    broker.reopen()
    broker.welcome(time=broker.clock.now, clock_offset=hour, moved_at=broker.clock.now - 1_000)
    assert broker.engine.tick(2_000) == hour // 2
    assert [command[3] for command in broker.heard() if command[0] == Command.WITHDRAW] == [1]

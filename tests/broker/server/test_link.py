"""One accepted connection: gathered writes, back-pressure, the ways it ends. The transport is a recording."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from sievemq_broker.domain import Broker
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.net.link import (
    BRIEF,
    HIGH_WATER,
    LOW_WATER,
    MEMORY,
    READ_BYTES,
    READ_PAUSE,
    SHORT_READ_BYTES,
    Link,
    Links,
)
from sievemq_broker.server.net.turn import PIECE_SECONDS, TURN_SECONDS, Turn
from sievemq_broker.session.life import GONE

from .conftest import FakeConnection, StandingClock


class Ticking:
    """The turn's clock: it advances only where a test says so, however busy the machine is."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def take(self, seconds: float, connection: FakeConnection, data: bytes) -> None:
        self.now += seconds
        connection.output += data


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    """No turn ends early because another process had the processor."""
    clock = Ticking()
    monkeypatch.setattr("sievemq_broker.server.net.turn.time", clock)
    return clock


class Transport(asyncio.Transport):
    """Records what is done to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 4711)})
        self.writes: list[bytes] = []
        self.calls: list[str] = []
        self.limits: tuple[int | None, int | None] = (None, None)
        self.unsent = 0
        self.half_close = True
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def can_write_eof(self) -> bool:
        return self.half_close

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def __getattribute__(self, name: str) -> Any:
        if name in ("pause_reading", "resume_reading", "close", "abort", "write_eof"):
            return lambda: self.calls.append(name)
        return super().__getattribute__(name)


class Rig:
    """A link between a recorded transport and a fake connection."""

    def __init__(self, limit: int = 10) -> None:
        self.loop = asyncio.get_running_loop()
        self.turn = Turn(self.loop)
        self.links = Links(limit)
        self.refused: list[object] = []

    def open(self) -> tuple[Link, Transport, Any]:
        link = Link(
            self.links,
            self.turn,
            StandingClock(),
            SimpleNamespace(commits=None),  # type: ignore[arg-type]
            lambda shard, address, wake: FakeConnection(address, wake),  # type: ignore[arg-type, return-value]
            lambda connection, now: self.refused.append(connection),
        )
        transport = Transport()
        link.connection_made(transport)
        return link, transport, link.connection


async def end_of_turn() -> None:
    """Until everything that was scheduled so far has run."""
    await asyncio.sleep(0)


def echo(connection: FakeConnection, data: bytes) -> None:
    connection.output += data


async def test_connection_made_sets_water_marks_and_shows_the_peer() -> None:
    link, transport, connection = Rig().open()
    assert transport.limits == (HIGH_WATER, LOW_WATER)
    assert link.peer == connection.address == "192.0.2.7:4711"


async def test_reads_of_one_turn_are_answered_by_one_write() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    connection.answer = echo
    link.data_received(b"one ")
    link.data_received(b"two ")
    link.data_received(b"three")
    assert transport.writes == []
    await end_of_turn()
    assert transport.writes == [b"one two three"]
    assert (rig.links.bytes_in, rig.links.bytes_out) == (13, 13)


async def test_reads_are_short_once_the_turn_has_no_time_left(clock: Ticking) -> None:
    rig = Rig()
    links = [rig.open()[0] for _ in range(3)]
    sizes = [len(link.get_buffer(-1)) for link in links]
    for link in links:
        link.get_buffer(-1)[:2] = b"ab"
        link.buffer_updated(2)
        sizes.append(len(link.get_buffer(-1)))
        clock.now += TURN_SECONDS
    assert sizes == [READ_BYTES] * 4 + [SHORT_READ_BYTES] * 2
    assert [link.unheard for link in links] == [b"", b"ab", b"ab"]
    await end_of_turn()
    assert len(links[0].get_buffer(-1)) == READ_BYTES


async def test_output_from_others_is_written_once_in_the_same_turn() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    other_link, other_transport, other = rig.open()

    def forward(_: FakeConnection, data: bytes) -> None:
        other.output += data
        rig.turn.mark(rig.links.of(other))  # type: ignore[arg-type]

    connection.answer = forward
    link.data_received(b"a")
    link.data_received(b"b")
    other.answer = echo
    other_link.data_received(b"c")
    await end_of_turn()
    assert other_transport.writes == [b"abc"]
    assert transport.writes == []


async def test_output_queued_while_writing_is_written_next_turn() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    parts = [b"second", b"first"]

    def data_to_send() -> bytes:
        connection.output = b""
        part = parts.pop()
        if parts:
            connection.output = b"more"
            rig.turn.mark(link)
        return part

    connection.data_to_send = data_to_send
    connection.output = b"some"
    rig.turn.mark(link)
    await end_of_turn()
    assert transport.writes == [b"first"]
    await end_of_turn()
    assert transport.writes == [b"first", b"second"]


async def test_nothing_is_written_when_there_is_nothing() -> None:
    link, transport, connection = Rig().open()
    link.data_received(b"x")
    await end_of_turn()
    assert connection.received == [b"x"]
    assert transport.writes == []


async def test_congestion_stops_deliveries_and_its_end_starts_them() -> None:
    link, transport, connection = Rig().open()
    link.pause_writing()
    assert connection.calls == ["pause"]
    connection.output = b"what was held back"
    link.resume_writing()
    assert connection.calls == ["pause", "resume"]
    await end_of_turn()
    assert transport.writes == [b"what was held back"]
    assert transport.calls == []


async def test_a_peer_that_does_not_read_replies_is_not_read_from() -> None:
    link, transport, connection = Rig().open()
    connection.answer = echo
    transport.unsent = READ_PAUSE + 1
    link.data_received(b"ping")
    await end_of_turn()
    assert transport.calls == ["pause_reading"]
    link.data_received(b"already on its way")
    await end_of_turn()
    assert transport.calls == ["pause_reading"]
    transport.unsent = 0
    link.resume_writing()
    assert transport.calls == ["pause_reading", "resume_reading"]


async def test_a_flooding_client_rests_until_the_next_turn() -> None:
    link, transport, connection = Rig().open()
    for size in (READ_BYTES - 1, READ_BYTES, 1, READ_BYTES):
        link.data_received(bytes(size))
    assert transport.calls == ["pause_reading"]
    # what was read all the same is not kept waiting
    assert [len(data) for data in connection.received] == [READ_BYTES - 1, READ_BYTES, 1, READ_BYTES]
    await end_of_turn()
    assert transport.calls == ["pause_reading", "resume_reading"]
    link.data_received(bytes(READ_BYTES - 1))
    await end_of_turn()
    assert transport.calls == ["pause_reading", "resume_reading"]


async def test_a_connection_that_waits_for_something_is_not_read_from_until_then() -> None:
    link, transport, connection = Rig().open()
    connection.full = True
    link.data_received(b"a")
    await end_of_turn()
    assert transport.calls == ["pause_reading"]
    connection.full = False
    link.flush()
    assert transport.calls == ["pause_reading", "resume_reading"]


async def test_received_bytes_are_processed_before_the_next_read() -> None:
    rig = Rig()
    link, _, connection = rig.open()
    other_link, _, other = rig.open()
    for of, data in ((link, b"first"), (other_link, b"the other one"), (link, b"2nd")):
        buffer = of.get_buffer(-1)
        assert len(buffer) == READ_BYTES
        buffer[: len(data)] = data
        of.buffer_updated(len(data))
    assert connection.received == [b"first", b"2nd"]
    assert other.received == [b"the other one"]


async def test_a_flooding_client_that_does_not_read_is_read_again_when_both_end() -> None:
    link, transport, connection = Rig().open()
    connection.answer = echo
    transport.unsent = READ_PAUSE + 1
    link.data_received(bytes(READ_BYTES))
    await end_of_turn()
    assert transport.calls == ["pause_reading", "resume_reading", "pause_reading"]
    transport.unsent = 0
    link.resume_writing()
    assert transport.calls[3:] == ["resume_reading"]
    transport.unsent = READ_PAUSE + 1
    link.data_received(b"more")
    await end_of_turn()
    link.data_received(bytes(READ_BYTES))  # was on its way
    transport.unsent = 0
    link.resume_writing()
    assert transport.calls[4:] == ["pause_reading"]  # it has had its turn
    await end_of_turn()
    assert transport.calls[4:] == ["pause_reading", "resume_reading"]


async def test_a_flooding_client_that_is_cut_is_not_read_again() -> None:
    rig = Rig()
    link, transport, _ = rig.open()
    link.data_received(bytes(READ_BYTES))
    transport.closing = True
    rig.links.abort_all()
    await end_of_turn()
    assert transport.calls == ["pause_reading", "abort"]


async def test_the_end_of_a_flooding_client_is_noticed() -> None:
    link, transport, connection = Rig().open()
    connection.answer = refuse
    link.data_received(bytes(READ_BYTES))
    await end_of_turn()
    assert transport.calls == ["pause_reading", "resume_reading", "write_eof"]
    link.connection_lost(None)


def refuse(connection: FakeConnection, data: bytes) -> None:
    connection.output = b"no"
    connection.life.end()


@pytest.mark.parametrize(("half_close", "call"), [(True, "write_eof"), (False, "close")])
async def test_closing_connection_is_closed_after_its_last_write(half_close: bool, call: str) -> None:
    link, transport, connection = Rig().open()
    transport.half_close = half_close
    connection.answer = refuse
    link.data_received(b"nonsense")
    await end_of_turn()
    assert transport.writes == [b"no"]
    assert transport.calls == [call]
    link.data_received(b"late")
    await end_of_turn()
    assert transport.calls == [call]
    assert connection.received == [b"nonsense"]
    link.connection_lost(None)


async def test_peer_that_does_not_close_its_side_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.server.net.link.LINGER_SECONDS", 0.0)
    link, transport, connection = Rig().open()
    transport.unsent = READ_PAUSE + 1
    connection.answer = refuse
    link.data_received(b"nonsense")
    await end_of_turn()
    assert transport.calls == ["pause_reading", "write_eof", "resume_reading"]  # so that its end is noticed
    async with asyncio.timeout(60):
        while "abort" not in transport.calls:
            await end_of_turn()


async def test_end_of_stream_and_loss_reach_the_connection() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    link.eof_received()
    link.connection_lost(None)
    assert connection.calls == ["eof", "lost"]
    assert rig.links.open == set()
    assert rig.links.of(connection) is None
    link.flush()
    assert transport.writes == []


@pytest.mark.parametrize("where", ["receive_data", "receive_eof", "resume", "data_to_send"])
async def test_fault_of_the_broker_ends_only_this_connection(where: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    other_link, other_transport, other = rig.open()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    setattr(connection, where, fail)
    other.answer = echo
    with caplog.at_level(logging.ERROR):
        if where == "resume":
            link.resume_writing()
        elif where == "receive_eof":
            link.eof_received()
        else:
            connection.output = b"something"
            link.data_received(b"x")
        other_link.data_received(b"x")
        await end_of_turn()
    assert transport.calls == ["abort"]
    assert connection.life.state == GONE
    assert (other_transport.calls, other_transport.writes) == ([], [b"x"])
    assert "connection.failed" in caplog.text
    assert "a bug" in caplog.text


async def test_fault_in_the_domain_does_not_stop_the_turns() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    connection.answer = echo

    class Timers:
        def rearm(self) -> None:
            raise ZeroDivisionError("a bug")

    rig.turn.timers = Timers()
    rig.loop.set_exception_handler(lambda loop, context: None)
    for number in (1, 2):
        link.data_received(b"x")
        await end_of_turn()
        assert len(transport.writes) == number


async def test_a_connection_above_the_limit_receives_an_error() -> None:
    rig = Rig(limit=1)
    rig.open()
    _, _, extra = rig.open()
    assert rig.refused == [extra]
    assert (rig.links.accepted, rig.links.refused) == (2, 1)


async def test_a_refused_connection_that_has_not_ended_takes_no_place() -> None:
    rig = Rig(limit=1)
    link, _, _ = rig.open()
    lingering = [rig.open() for _ in range(3)]  # they have the error, and do not close their side
    link.connection_lost(None)
    rig.open()
    assert rig.refused == [connection for _, _, connection in lingering]
    assert rig.links.taken == 1
    for refused, _, _ in lingering:
        refused.connection_lost(None)
    assert rig.links.taken == 1
    rig.open()
    assert len(rig.refused) == 4


async def test_abort_all_cuts_every_connection() -> None:
    rig = Rig()
    transports = [rig.open()[1] for _ in range(3)]
    assert rig.links.abort_all() == 3
    assert all(transport.calls == ["abort"] for transport in transports)


async def test_when_empty_waits_for_the_last_link() -> None:
    rig = Rig()
    links = [rig.open()[0] for _ in range(2)]
    empty = rig.links.when_empty()
    links[0].connection_lost(None)
    assert not empty.done()
    links[1].connection_lost(ConnectionResetError())
    assert empty.done()
    assert rig.links.when_empty().done()


async def test_long_work_takes_several_turns_without_reading() -> None:
    link, transport, connection = Rig().open()
    connection.answer, connection.slow = echo, True
    link.data_received(b"abc")
    assert link.late
    assert transport.calls == ["pause_reading"]
    link.data_received(b"de")  # was on its way
    for written in ([b"a"], [b"a", b"b"], [b"a", b"b", b"c"], [b"a", b"b", b"c", b"d"]):
        await end_of_turn()
        assert transport.writes == written
    assert transport.calls == ["pause_reading"]
    await end_of_turn()
    await end_of_turn()
    assert b"".join(transport.writes) == b"abcde"
    assert not link.late
    assert transport.calls == ["pause_reading", "resume_reading"]


async def test_a_long_turn_reads_no_further_link_and_the_next_turn_does(clock: Ticking) -> None:
    rig = Rig()
    links = [rig.open() for _ in range(3)]
    for _, _, connection in links:
        connection.answer = lambda connection, data: clock.take(PIECE_SECONDS, connection, data)
    for number, (link, _, _) in enumerate(links):
        link.data_received(b"%d" % number)
    assert [connection.received for _, _, connection in links] == [[b"0"], [b"1"], []]
    assert [link.late for link, _, _ in links] == [False, False, True]
    assert rig.turn.late
    links[0][0].data_received(b"more")
    assert links[0][0].late  # behind the third
    for _ in range(3):
        await end_of_turn()
    assert [connection.received for _, _, connection in links] == [[b"0", b"more"], [b"1"], [b"2"]]
    assert not rig.turn.late
    rested = ["pause_reading", "resume_reading"]
    assert [transport.calls for _, transport, _ in links] == [rested, [], rested]


async def test_links_take_turns_where_all_have_more_input_than_time_allows(clock: Ticking) -> None:
    rig = Rig()
    links = [rig.open() for _ in range(5)]
    heard: list[bytes] = []

    def answer(connection: FakeConnection, data: bytes) -> None:
        heard.append(data)
        clock.take(PIECE_SECONDS, connection, data)

    for number, (link, _, connection) in enumerate(links):
        connection.answer, connection.slow = answer, True
        link.data_received(b"%d" % number * 4)
    while rig.turn.late:
        await end_of_turn()
    assert len(heard) == 20
    for first in range(2, 9):  # two were heard at once, and are the first to have said all
        assert sorted(heard[first : first + 5]) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_few_commands_left_do_not_wait_for_links_that_flood(clock: Ticking) -> None:
    rig = Rig()
    heard: list[bytes] = []

    def answer(connection: FakeConnection, data: bytes) -> None:
        heard.append(data)
        clock.take(PIECE_SECONDS, connection, data)

    for data in (*[b"x" * 2 * BRIEF] * 10, b"few"):
        link, _, connection = rig.open()
        connection.answer, connection.slow = answer, True
        link.data_received(data)
    for _ in range(4):
        await end_of_turn()
    assert set(b"few") <= set(b"".join(heard))


async def test_a_client_that_does_not_read_is_not_served_until_it_reads() -> None:
    link, transport, connection = Rig().open()
    connection.answer, connection.slow = echo, True
    transport.unsent = READ_PAUSE + 1
    link.data_received(b"abc")
    for _ in range(5):
        await end_of_turn()
    assert transport.writes == [b"a"]
    assert link.late
    transport.unsent = 0
    link.resume_writing()
    link.pause_writing()
    link.resume_writing()  # it is one turn that it has all the same
    for _ in range(5):
        await end_of_turn()
    assert transport.writes == [b"a", b"b", b"c"]
    assert not link.late
    assert transport.calls.count("resume_reading") == 1


async def test_the_end_of_the_stream_follows_all_received_bytes() -> None:
    link, transport, connection = Rig().open()
    connection.answer, connection.slow = echo, True
    link.data_received(b"abc")
    link.data_received(b"de")
    link.eof_received()
    assert connection.received == [b"a"]
    while link.late:
        await end_of_turn()
    assert connection.received == [b"a", b"b", b"c", b"d", b"e"]
    assert connection.calls[-1] == "eof"
    await end_of_turn()
    assert b"".join(transport.writes) == b"abcde"
    connection.answer = None
    for _ in range(3):
        await end_of_turn()
    assert connection.calls.count("eof") == 1


async def test_the_end_of_a_client_leaves_its_work_and_that_of_others_in_their_turns() -> None:
    link, _, connection = Rig().open()
    connection.slow = True
    link.data_received(b"abc")
    broker: Broker = connection.broker
    slices: list[int] = []

    def long(now: int, budget: Budget) -> Task[None]:
        for _ in range(100):
            budget.spend(broker.scheduler.turn)
            slices.append((yield))

    broker.scheduler.start("another client", long, 0)
    link.eof_received()
    link.connection_lost(None)
    assert (slices, connection.received) == ([], [b"a"])
    while link.late:
        await end_of_turn()
    assert (slices, connection.received) == ([], [b"a", b"b", b"c"])


async def test_a_link_whose_socket_is_gone_lives_until_its_input_is_carried_out() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    connection.answer, connection.slow = echo, True
    transport.unsent = READ_PAUSE + 1  # the client does not read, either
    link.data_received(b"abc")
    await end_of_turn()
    link.eof_received()
    transport.closing = True
    link.connection_lost(None)
    transport.writes.clear()
    assert connection.calls[-1] == "end_output"
    assert rig.links.open == {link}
    empty = rig.links.when_empty()
    connection.receive_eof = lambda now: connection.life.end()
    while link.late:
        await end_of_turn()
    assert connection.received == [b"a", b"b", b"c"]
    assert connection.calls[-1] == "lost"
    assert (transport.writes, rig.links.open, empty.done()) == ([], set(), True)
    assert "resume_reading" not in transport.calls


@pytest.mark.parametrize("how", ["abort", "close", "a fault"])
async def test_a_link_whose_socket_is_gone_ends_when_the_broker_ends_it(how: str) -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    connection.slow = True
    link.data_received(b"abc")
    link.eof_received()
    link.connection_lost(None)
    if how == "abort":
        rig.links.close()
    elif how == "close":
        connection.left, connection.output = b"", b"the reason"  # as the session layer does
        connection.life.end()
        link.flush()
    else:
        link.fail(ZeroDivisionError("a bug"))
    assert (connection.life.state, rig.links.open) == (GONE, set())
    for _ in range(4):
        await end_of_turn()
    assert connection.received == [b"a"]
    assert (transport.writes, rig.turn.late) == ([], False)
    assert "abort" not in transport.calls


@pytest.mark.parametrize("how", ["lost", "closed", "a fault"])
async def test_a_link_that_ends_while_late_is_read_no_more(how: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    connection.slow = True
    link.data_received(b"abc")
    link.data_received(b"de")
    if how == "lost":
        link.connection_lost(ConnectionResetError())
    elif how == "closed":
        connection.left = b""  # as the session layer does
        connection.output = b"no"
        connection.life.end()
        link.flush()
        assert transport.calls == ["pause_reading", "write_eof"]
    else:

        def fail(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        connection.catch_up = fail
    for _ in range(4):
        await end_of_turn()
    assert connection.received == [b"a"]
    assert not rig.turn.late
    if how == "a fault":
        assert "abort" in transport.calls
        assert "a bug" in caplog.text
    elif how == "closed":
        assert transport.calls[-1] == "resume_reading", "so that its end is noticed"
        link.connection_lost(None)


async def test_nothing_is_read_from_silenced_links_old_and_new() -> None:
    rig = Rig()
    _, transport, connection = rig.open()
    rig.links.silence(True)
    _, later, _ = rig.open()
    assert (transport.calls, later.calls) == (["pause_reading"], ["pause_reading"])
    assert connection.calls == ["hold_back True"], "the client's silence does not count"
    rig.links.silence(False)
    assert transport.calls == later.calls == ["pause_reading", "resume_reading"]
    assert connection.calls == ["hold_back True", "hold_back False"]
    _, last, _ = rig.open()
    assert last.calls == []


async def test_a_silenced_link_without_memory_waits_for_both() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    link._pause_reading(MEMORY)
    rig.links.silence(True)
    link.read_on()
    assert connection.calls == ["hold_back True", "hold_back True"]
    rig.links.silence(False)
    assert transport.calls == ["pause_reading", "resume_reading"]
    link._pause_reading(MEMORY)
    rig.links.silence(True)
    rig.links.silence(False)
    assert connection.calls[-1] == "hold_back True"
    link.read_on()
    assert connection.calls[-1] == "hold_back False"


async def test_a_cut_link_is_not_silenced() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    connection.slow = True
    link.data_received(b"ab")
    link.eof_received()
    link.connection_lost(None)
    calls = list(transport.calls)
    rig.links.silence(True)
    rig.links.silence(False)
    assert transport.calls == calls
    link.abort()


async def test_heartbeats_of_a_silent_broker_are_sent_each_half_interval() -> None:
    rig = Rig()
    link, transport, connection = rig.open()
    connection.heartbeats = (0, 1_000)
    rig.links.beat(10_000)
    assert transport.writes == [], "WELCOME is the first that a client gets"
    connection.output = b"welcome"
    rig.turn.mark(link)
    await end_of_turn()
    for now in (10_499, 10_500, 10_999, 11_000):
        rig.links.beat(now)
    assert transport.writes == [b"welcome", b"beat", b"beat"]
    rig.links.beat(5_000)
    assert transport.writes[-2:] == [b"beat", b"beat"], "the clock was set back"
    transport.unsent = 1
    rig.links.beat(6_000)
    transport.unsent = 0
    connection.heartbeats = (1_000, 0)
    rig.links.beat(7_000)
    assert len(transport.writes) == 4
    assert link.bytes_out == len(b"welcome") + 3 * len(b"beat")

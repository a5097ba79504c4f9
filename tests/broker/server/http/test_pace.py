"""Requests that come together have little of a turn, and a client that does not read gets no further answers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from sievemq_broker.config import Settings
from sievemq_broker.server.http import pace
from sievemq_broker.server.http.access import Access
from sievemq_broker.server.http.gate import DiskGate
from sievemq_broker.server.http.pace import Pace, resumed
from sievemq_broker.server.http.protocol import BufferedReads, PatientProtocol
from sievemq_broker.server.net.link import BRIEF, READ_BYTES, SHORT_READ_BYTES, Links
from sievemq_broker.server.net.turn import Turn

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG_GET = GET[:-2] + b"X: " + b"x" * BRIEF + b"\r\n\r\n"
HIGH_WATER = 1_000
_PASSED_ON = "connection_lost", "eof_received", "pause_writing", "resume_writing"


class Clock:
    """Stands while nothing is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace, "perf_counter", clock)
    return clock


async def began_in_turns(clock: Clock, seconds: list[float], urgent: tuple[int, ...] = ()) -> list[list[int]]:
    """Requests that take so long, which come together: those that begin in each turn of the loop."""
    gate = Pace()
    turns: list[list[int]] = [[]]

    async def request(number: int) -> None:
        await gate.admit(urgent=number in urgent)
        turns[-1].append(number)
        clock.now += seconds[number]

    tasks = [asyncio.create_task(request(number)) for number in range(len(seconds))]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turns.append([])
    return [turn for turn in turns if turn]


async def test_requests_that_take_little_begin_in_one_turn(clock: Clock) -> None:
    assert await began_in_turns(clock, [pace.SECONDS / 10] * 10) == [list(range(10))]


async def test_long_requests_begin_one_a_turn_in_their_order(clock: Clock) -> None:
    assert await began_in_turns(clock, [pace.SECONDS * 2] * 5) == [[0], [1], [2], [3], [4]]


async def test_probes_and_other_requests_take_turns(clock: Clock) -> None:
    began = await began_in_turns(clock, [pace.SECONDS * 2] * 8, urgent=(4, 5, 6))
    assert began == [[0], [4], [1], [5], [2], [6], [3], [7]]


async def test_requests_go_on_after_a_task_as_far_as_there_is_time_and_are_not_held_up_by_others(clock: Clock) -> None:
    gate, done = Pace(), asyncio.Event()
    turns: list[list[str]] = [[]]

    async def request(name: str, seconds: float) -> None:
        await gate.admit()
        await done.wait()
        await resumed.get()()
        turns[-1].append(name)
        clock.now += seconds

    async def other(name: str) -> None:
        await gate.admit(urgent=name == "probe")
        turns[-1].append(name)
        clock.now += pace.SECONDS * 2

    tasks = [asyncio.create_task(request(name, pace.SECONDS * 2)) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(other(name)) for name in ("first", "second", "third", "probe")]
    await asyncio.sleep(0)
    done.set()
    while not all(task.done() for task in tasks):
        turns.append([])
        await asyncio.sleep(0)
    assert max(map(len, turns)) == 1, "each takes all the time of a turn"
    order = [name for turn in turns for name in turn]
    assert [name for name in order if name in "abc"] == ["a", "b", "c"]
    assert order.index("c") < order.index("third"), "each line has its turn"
    assert order.index("probe") < order.index("third")


async def test_a_cancelled_request_does_not_hold_up_others(clock: Clock) -> None:
    gate = Pace()
    began = []

    async def request(number: int) -> None:
        await gate.admit()
        began.append(number)
        clock.now += pace.SECONDS * 2

    tasks = [asyncio.create_task(request(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert began == [0, 2, 3]


class Socket(asyncio.Transport):
    """Sends nothing until the test says so."""

    def __init__(self, protocol: PatientProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.unsent = 0
        self.reading = True
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent += len(data)
        if self.unsent > HIGH_WATER:
            self.protocol.pause_writing()

    def send(self) -> None:
        self.unsent = 0
        self.protocol.resume_writing()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class FakeTurn:
    """Has time for so many reads, and lets the test say when a later one begins."""

    def __init__(self, reads: int) -> None:
        self.reads = reads
        self.late: deque[tuple[PatientProtocol, bool]] = deque()

    def grant(self) -> bool:
        self.reads -= 1
        return self.reads >= 0

    def put_off(self, link: PatientProtocol, *, brief: bool) -> None:
        self.late.append((link, brief))

    def next(self) -> None:
        self.late.popleft()[0].catch_up()


class Rig:
    """A connection to an application with large answers."""

    def __init__(self, size: int, turn: FakeTurn | None = None, around: Callable[[Any], Any] = lambda app: app) -> None:
        self.begun = 0

        async def app(scope: Any, receive: Any, send: Any) -> None:
            self.begun += 1
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
            await send({"type": "http.response.body", "body": b"x" * size})

        config = uvicorn.Config(around(app), http="h11", ws="none", lifespan="off", log_config=None)
        config.load()
        self.protocol = PatientProtocol(config, ServerState(), {}, {}, lambda: cast("Turn | None", turn))
        self.socket = Socket(self.protocol)
        self.protocol.connection_made(self.socket)

    async def run(self) -> None:
        """As far as it comes without the client."""
        for _ in range(30):
            await asyncio.sleep(0)

    def close(self) -> None:
        self.protocol.connection_lost(ConnectionError())


async def test_a_client_that_does_not_read_has_one_answer_at_a_time() -> None:
    rig = Rig(size=10 * HIGH_WATER)
    rig.protocol.data_received(GET * 50)
    await rig.run()
    assert rig.begun == 1
    assert not rig.socket.reading
    for number in range(2, 51):
        rig.socket.send()
        await rig.run()
        assert rig.begun == number
    rig.socket.send()
    assert rig.socket.reading
    rig.close()


async def test_a_malformed_body_of_a_request_that_is_answered_ends_its_connection() -> None:
    turn = FakeTurn(reads=1)
    rig = Rig(size=1, turn=turn)
    rig.protocol.data_received(GET[:-2] + b"Transfer-Encoding: chunked\r\n\r\n")
    await rig.run()
    assert (rig.begun, rig.socket.closed) == (1, False)
    rig.protocol.data_received(b"no chunk\r\n")
    turn.next()
    assert rig.socket.closed
    rig.close()


async def test_pipelined_requests_with_small_answers_need_not_wait() -> None:
    rig = Rig(size=1)
    rig.protocol.data_received(GET * 3)
    await rig.run()
    assert rig.begun == 3
    rig.close()


async def test_a_connection_waits_for_the_next_request_once_its_answer_was_read() -> None:
    rig = Rig(size=10 * HIGH_WATER)
    rig.protocol.data_received(GET)
    await rig.run()
    assert rig.protocol.timeout_keep_alive_task is None
    rig.socket.send()
    assert rig.protocol.timeout_keep_alive_task is not None
    rig.protocol.data_received(GET)
    await rig.run()
    assert rig.begun == 2
    rig.close()


async def test_requests_are_parsed_in_the_time_of_the_turn_and_in_order() -> None:
    turn = FakeTurn(reads=1)
    first, brief, long = (Rig(size=1, turn=turn) for _ in range(3))
    first.protocol.data_received(GET)
    brief.protocol.data_received(GET[:20])
    long.protocol.data_received(LONG_GET + GET)
    brief.protocol.data_received(GET[20:])
    assert [(late, short) for late, short in turn.late] == [(brief.protocol, True), (long.protocol, False)]
    assert [rig.socket.reading for rig in (first, brief, long)] == [True, False, False]
    await first.run()
    assert [rig.begun for rig in (first, brief, long)] == [1, 0, 0]
    while turn.late:
        turn.next()
    assert brief.socket.reading
    assert not long.socket.reading, "its first request is not answered"
    await long.run()
    assert (brief.begun, long.begun) == (1, 2)
    for rig in (first, brief, long):
        rig.close()


@pytest.mark.parametrize("exhausted", [False, True])
def test_reads_are_short_once_the_turn_has_no_time_left(exhausted: bool) -> None:
    links, turn = Links(1), SimpleNamespace(exhausted=exhausted)
    reads = BufferedReads(cast("Any", SimpleNamespace(**dict.fromkeys(_PASSED_ON))), links, lambda: cast("Turn", turn))
    assert len(reads.get_buffer(-1)) == (SHORT_READ_BYTES if exhausted else READ_BYTES)


async def test_handing_a_connection_over_passes_on_unparsed_input() -> None:
    turn = FakeTurn(reads=1)
    rig = Rig(size=1, turn=turn)
    rig.protocol.data_received(GET + b"behind it, ")
    rig.protocol.data_received(b"and later")
    assert rig.protocol.hand_over() == (rig.socket, b"behind it, and later")
    turn.next()
    await rig.run()
    assert rig.begun == 1


async def test_probes_of_clients_that_send_very_many_have_no_priority(clock: Clock) -> None:
    begun: list[str] = []

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope["query_string"].decode())
        clock.now += pace.SECONDS * 2
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    access = Access(slow, cast("Any", SimpleNamespace(required=False)), Settings(), Counter())
    rigs = [Rig(size=0, around=lambda _: access) for _ in range(6)]
    for number, rig in enumerate(rigs):
        probe = GET.replace(b"/ ", b"/livez?%d " % number)
        rig.protocol.data_received(probe if number == 5 else probe + GET * (BRIEF // len(GET) + 1))
    await rigs[0].run()
    assert begun[:2] == ["0", "5"]
    for rig in rigs:
        rig.close()


async def test_an_answer_waits_for_a_lease_that_has_ended_while_others_had_their_turns() -> None:
    held: asyncio.Queue[Any] = asyncio.Queue()
    speaks = True

    class Commits:
        stuck = None

        def hold(self, output: Any, data: bytes, needs: list[object]) -> bool:
            holds = bool(needs) or not speaks
            needs.clear()
            if holds:
                held.put_nowait(output)
            return holds

    async def others() -> None:
        nonlocal speaks
        speaks = not speaks

    journal = SimpleNamespace(unwritten=["a write"], shares=[])
    shard = SimpleNamespace(commits=Commits(), broker=SimpleNamespace(journal=journal))
    turn = SimpleNamespace(worked=lambda: None)
    server = SimpleNamespace(shard=shard, turn=turn, trouble=None, is_shared=False, failure=None)
    resumed.set(others)
    answer = asyncio.create_task(DiskGate(cast("Any", server)).passed(changes=True))
    for _ in range(2):
        came = asyncio.create_task(held.get())
        await asyncio.wait({answer, came}, return_when=asyncio.FIRST_COMPLETED)
        assert not answer.done()
        came.result().release(b"")
    await answer
    assert held.empty()

"""The cost of a message in executed bytecodes: the same on every machine and in each run.

    python -m benchmarks.counted                  count, and compare with the table
    python -m benchmarks.counted --renew          count, and write the table (benchmarks/counts.json)
    python -m benchmarks.counted --instructions   also the processor's instructions, where valgrind is installed

The asyncio SDK and the broker's connections run in one process and one thread, on a loop with simulated time and
simulated sockets: what one end writes, the other reads in the next turn. Counted are bytecodes and calls of this
project's Python functions, and writes, at the clients and at the broker. `tests/test_benchmarks.py` fails if one is
more than three per cent above the table for this minor version of Python. A change that is worth its cost renews it.

Bytecodes leave out the work of C code (msgpack, sockets, the collector). Instructions include it, but depend on how
Python was built, so the table leaves them out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import re
import selectors
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from benchmarks.rig import NOW, Rig
from benchmarks.workloads import body_of, properties_of
from sievemq_broker.protocols.amqp import AmqpConnection
from sievemq_broker.protocols.amqp.frames import AMQP_HEADER, frame_of
from sievemq_broker.protocols.amqp.performatives import Attach, Begin, Flow, Open, Source, Target
from sievemq_broker.protocols.sieve import SieveConnection

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("counts.json")
#: How much more a case may cost than the table says.
MOST = 1.03
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
URL = "sievemq://memory:1?heartbeat=0&reconnect=0"
SUBSCRIBERS = 100
PRODUCT = tuple(f"{ROOT / part}/" for part in ("core", "client", "broker"))


# -- a loop without sockets and without time ---------------------------------------------------------------------------


class _Selector(selectors.DefaultSelector):
    """Does not wait; advances the loop's clock instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set")
        self.now += timeout
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, world: World) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)
        self.world = world

    def time(self) -> float:
        return self._clock.now

    async def create_connection(self, factory: Any, *arguments: Any, **options: Any) -> Any:  # type: ignore[override]
        protocol = factory()
        transport = _Transport(self.world, protocol)
        protocol.connection_made(transport)
        return transport, protocol


class _Transport(asyncio.Transport):
    """A client's end of a connection, and the broker's."""

    def __init__(self, world: World, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._world, self._protocol = world, protocol
        self.broker = SieveConnection(world.rig.broker, world.rig.services)
        world.transports.append(self)

    def write(self, data: Any) -> None:
        self._world.counted["client writes"] += 1
        self._world.loop.call_soon(self._world.arrive, self, bytes(data))

    def deliver(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self not in self._world.transports

    def close(self) -> None:
        if not self.is_closing():
            self._world.transports.remove(self)
            self.broker.lost(NOW)
            self._world.loop.call_soon(self._protocol.connection_lost, None)

    abort = close


class _Amqp:
    """An AMQP client with one link, which writes what Qpid JMS writes, and the broker's end of its connection. What it
    does for a message is not the product's code, so it is not counted."""

    def __init__(self, attach: Attach) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        self._world = loop.world
        self.broker = AmqpConnection(self._world.rig.broker, self._world.rig.services)
        self._world.transports.append(self)
        self._numbers = itertools.count()
        #: Numbers of the deliveries that are not settled.
        self.held: list[bytes] = []
        begin = Begin(next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW)
        frames = [frame_of(each) for each in (Open(container_id="c"), begin, attach)]
        if attach.role:
            flow = Flow(
                next_incoming_id=0, incoming_window=_WINDOW, next_outgoing_id=0, outgoing_window=_WINDOW, handle=0,
                delivery_count=0, link_credit=100_000,
            )  # fmt: skip
            frames.append(frame_of(flow))
        self.say(AMQP_HEADER, *frames)

    def say(self, *frames: bytes) -> None:
        self._world.arrive(self, b"".join(frames))

    def send(self, *messages: bytes) -> None:
        self.say(*[self._transfer(next(self._numbers).to_bytes(4, "big"), message) for message in messages])

    @staticmethod
    def _transfer(number: bytes, message: bytes) -> bytes:
        fields = b"\x43\x70" + number + b"\xa0\x04" + number + b"\x43\x42"
        return _framed(b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 5)) + fields + message)

    def settle(self) -> None:
        """Accept each delivery by a frame of its own, all of them at once."""
        held, self.held = self.held, []
        begin, end = b"\x00\x53\x15\xc0\x11\x05\x41", b"\x41\x00\x53\x24\x45"
        self.say(*[_framed(begin + 2 * (b"\x70" + number) + end) for number in held])

    def deliver(self, data: bytes) -> None:
        at = 8 if data.startswith(b"AMQP") else 0
        while at < len(data):
            if data[at + 8 : at + 11] == b"\x00\x53\x14":
                self.held.append(next(self._numbers).to_bytes(4, "big"))
            at += int.from_bytes(data[at : at + 4], "big")


_WINDOW = 2**31 - 1


def _framed(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def _amqp_message(workload: str, i: int) -> bytes:
    """A BytesMessage as Qpid JMS writes it."""
    values = properties_of(workload, i)
    region, quantity, urgent = values["region"].encode(), values["qty"], values["urgent"]
    application = (
        b"\xa1\x03qty\x54" + bytes((quantity,)) + b"\xa1\x06region\xa1" + bytes((len(region),)) + region
        + b"\xa1\x06urgent" + (b"\x41" if urgent else b"\x42")
    )  # fmt: skip
    message_id = b"ID:5f8a5e4c-3c1a-4d51-8f35-0c6a1a6d2a10:1:1:1-%d" % i
    standard = (
        b"\xa1" + bytes((len(message_id),)) + message_id + b"\x40\xa1\x01q\x40\x40\x40\xa3\x18application/octet-stream"
        b"\x40\x40\x83" + NOW.to_bytes(8, "big")
    )  # fmt: skip
    framed: bytes = (
        b"\x00\x53\x72\xc1\x29\x04\xa3\x0ex-opt-jms-dest\x51\x00"
        b"\xa3\x12x-opt-jms-msg-type\x51\x03\x00\x53\x73\xd0"
        + (len(standard) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x0a" + standard
        + b"\x00\x53\x74\xc1" + bytes((len(application) + 1, 6)) + application
        + b"\x00\x53\x75\xb0\x00\x00\x01\x00" + body_of(i, 256)
    )  # fmt: skip
    return framed


class World:
    """A broker, and clients that reach it through memory."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.transports: list[_Transport | _Amqp] = []
        self.loop = _Loop(self)
        self.at_broker = False
        self.counted: Counter[str] = Counter()

    def arrive(self, transport: _Transport | _Amqp, data: bytes) -> None:
        """The broker reads, works and writes: one turn of its loop."""
        self.at_broker = True
        transport.broker.receive_data(data, NOW)
        while self.rig.broker.work(NOW, 1_000):
            pass
        for each in self.transports:
            if each.broker.has_data:
                self.counted["broker writes"] += 1
                self.loop.call_soon(each.deliver, each.broker.data_to_send())
        self.at_broker = False


# -- the cases ---------------------------------------------------------------------------------------------------------

Case: TypeAlias = Callable[[int], Coroutine[Any, Any, None]]
Counts: TypeAlias = dict[str, dict[str, float]]


async def _context() -> Any:
    from sievemq.aio import ConnectionFactory

    return await ConnectionFactory(URL).create_context()


def _message(workload: str, i: int) -> Any:
    from sievemq import BytesMessage

    message = BytesMessage(body_of(i, 256))
    for name, value in properties_of(workload, i).items():
        message.set_object_property(name, value)
    return message


async def _producer(context: Any, persistent: bool = False) -> Any:
    from sievemq import DeliveryMode

    producer = context.create_producer()
    return producer if persistent else producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)


async def queue(n: int) -> None:
    """A queue, its consumer iterates: sent in a row, delivered, acknowledged (W1)."""
    context, receiving = await _context(), await _context()
    destination, producer = context.create_queue("q"), await _producer(context)
    consumer = await receiving.create_consumer(destination)
    for first in range(0, n, 100):
        for i in range(first, first + 100):
            await producer.send(destination, _message("W1", i))
        for _ in range(100):
            (await consumer.receive()).get_body(bytes)


async def confirmed(n: int) -> None:
    """PERSISTENT sends, one after the other, each awaited."""
    context = await _context()
    destination, producer = context.create_queue("q"), await _producer(context, persistent=True)
    for i in range(n):
        await producer.send(destination, _message("W1", i))


async def trips(n: int) -> None:
    """Request and reply, one at a time (W2)."""
    from sievemq import BytesMessage

    context, other = await _context(), await _context()
    requests, replies = context.create_queue("q"), await context.create_temporary_queue()
    answers, producer = await context.create_consumer(replies), await _producer(context)
    consumer, replying = await other.create_consumer(requests), await _producer(other)

    async def respond() -> None:
        async for request in consumer:
            reply = BytesMessage(request.get_body(bytes))
            reply.set_jms_correlation_id(request.get_jms_message_id())
            await replying.send(request.get_jms_reply_to(), reply)

    task = asyncio.create_task(respond())
    for i in range(n):
        message = _message("W2", i)
        message.set_jms_reply_to(replies)
        await producer.send(requests, message)
        (await answers.receive(10_000)).get_body(bytes)
    task.cancel()


async def subscribers(n: int) -> None:
    """A topic with 100 subscribers and a selector each; each message is for one of them (W5)."""
    context, receiving = await _context(), await _context()
    destination, producer = context.create_topic("t"), await _producer(context)
    left, done = n, asyncio.Event()

    def on_message(message: Any) -> None:
        nonlocal left
        message.get_body(bytes)
        left -= 1
        if not left:
            done.set()

    receiving.set_auto_start(False)
    for k in range(SUBSCRIBERS):
        (await receiving.create_consumer(destination, f"symbol = 'S{k}'")).set_message_listener(on_message)
    await receiving.start()
    for first in range(0, n, 100):
        for i in range(first, first + 100):
            await producer.send(destination, _message("W5", i % SUBSCRIBERS))
        await asyncio.sleep(0.05)
    await done.wait()


async def selective(n: int) -> None:
    """A queue with 4 consumers and a selector each; each message is for one of them (W4)."""
    context, receiving = await _context(), await _context()
    destination, producer = context.create_queue("q"), await _producer(context)
    left, done = n, asyncio.Event()

    def on_message(message: Any) -> None:
        nonlocal left
        message.get_body(bytes)
        left -= 1
        if not left:
            done.set()

    receiving.set_auto_start(False)
    for k in range(4):
        consumer = await receiving.create_consumer(destination, f"region = 'r{k}' AND qty > 50")
        consumer.set_message_listener(on_message)
    await receiving.start()
    for first in range(0, n, 100):
        for i in range(first, first + 100):
            await producer.send(destination, _message("W4", i))
        await asyncio.sleep(0.05)
    await done.wait()


async def correlated(n: int) -> None:
    """A consumer for a correlation id, receive, close: a thousand messages wait, so the broker looks the id up (W6)."""
    context = await _context()
    destination, producer = context.create_queue("q"), await _producer(context)
    for i in range(1_000):
        message = _message("W6", i)
        message.set_jms_correlation_id(f"c{i}")
        await producer.send(destination, message)
    for i in range(n):
        async with await context.create_consumer(destination, f"JMSCorrelationID = 'c{i}'") as consumer:
            (await consumer.receive(3_000)).get_body(bytes)


async def amqp(n: int) -> None:
    """A queue between two AMQP clients, 25 messages in a read, each settled by a frame of its own."""
    await asyncio.sleep(0)
    receiving = _Amqp(Attach(name="r", handle=0, role=True, source=Source(address="q"), target=Target()))
    sending = _Amqp(Attach(name="s", handle=0, role=False, source=Source(), target=Target(address="q")))
    for first in range(0, n, 25):
        sending.send(*[_amqp_message("W1", i) for i in range(first, first + 25)])
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(receiving.held) == 25
        receiving.settle()


#: Name -> the case, and messages of its shorter run; a longer one has twice as many, and the difference counts.
CASES: dict[str, tuple[Case, int]] = {
    "queue": (queue, 100),
    "confirmed send": (confirmed, 20),
    "request/reply": (trips, 20),
    "topic, 100 selectors": (subscribers, 100),
    "queue, 4 selectors": (selective, 100),
    "by correlation id": (correlated, 20),
    "queue, AMQP clients": (amqp, 100),
}

# -- counting ----------------------------------------------------------------------------------------------------------


class _Tracer:
    """Counts bytecodes and calls of the product's functions, by end."""

    def __init__(self, world: World) -> None:
        self._world, self._counted = world, world.counted

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PRODUCT):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._counted["broker calls" if self._world.at_broker else "client calls"] += 1
        return self._at_broker if self._world.at_broker else self._at_client

    def _at_broker(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self._counted["broker bytecodes"] += 1
        return self._at_broker

    def _at_client(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self._counted["client bytecodes"] += 1
        return self._at_client


def play(name: str, n: int, *, counting: bool) -> Counter[str]:
    """Run a case with `n` messages; the counts."""
    from sievemq.aio import connect

    vars(connect)["wall_clock"] = lambda: NOW
    world = World()
    gc.disable()
    with asyncio.Runner(loop_factory=lambda: world.loop) as runner:
        if counting:
            sys.settrace(_Tracer(world))
        try:
            runner.run(CASES[name][0](n))
        finally:
            sys.settrace(None)
    return world.counted


def count(name: str) -> dict[str, float]:
    n = CASES[name][1]
    play(name, n, counting=False)  # imports, caches: the work that a process does once
    less, more = play(name, n, counting=True), play(name, 2 * n, counting=True)
    return {key: round((more[key] - less[key]) / n, 1) for key in sorted(more)}


def grown(found: Counts, known: Counts) -> list[str]:
    """A line for each count that is higher than the table allows."""
    return [
        f"{name}: {value:g} {key} a message, the table has {known.get(name, {}).get(key, 0):g}"
        for name, counts in found.items()
        for key, value in counts.items()
        if value > known.get(name, {}).get(key, 0) * MOST
    ]


def instructions(name: str) -> float | None:
    """Instructions of the whole process for one message more, by callgrind; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    n, totals = 5 * CASES[name][1], []
    for messages in (n, 2 * n):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable]
        done = subprocess.run(
            [*command, "-m", "benchmarks.counted", "--play", name, str(messages)],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        totals.append(int(re.search(r"Collected : (\d+)", done.stderr)[1]))  # type: ignore[index]
    return (totals[1] - totals[0]) / n


def main() -> None:
    """Count, print, and renew the table if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renew", action="store_true", help="write the table")
    parser.add_argument("--instructions", action="store_true", help="the processor's instructions as well")
    parser.add_argument("--play", nargs=2, metavar=("CASE", "N"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        play(given.play[0], int(given.play[1]), counting=False)
        return
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of what is counted
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.counted", *sys.argv[1:]],
                  {**os.environ, "PYTHONHASHSEED": "0"})  # fmt: skip
    found = {name: count(name) for name in CASES}
    table: dict[str, Counts] = json.loads(TABLE.read_text())
    known = table.get(MINOR, {})
    print(f"| Python {MINOR} | | a message | the table |\n| --- | --- | --- | --- |")
    for name, counts in found.items():
        for key, value in counts.items():
            print(f"| {name} | {key} | {value:g} | {known.get(name, {}).get(key, '-')} |")
        if given.instructions:
            total = instructions(name)
            print(f"| {name} | instructions | {'no valgrind' if total is None else f'{total:,.0f}'} | |", flush=True)
    if given.renew:
        TABLE.write_text(json.dumps({**table, MINOR: found}, indent=1, sort_keys=True) + "\n")
    elif worse := grown(found, known):
        sys.exit("\n".join(["above the table by more than 3 %:", *worse]))


if __name__ == "__main__":
    main()

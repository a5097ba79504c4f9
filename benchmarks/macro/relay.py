"""The baseline: a bare uvloop + msgpack relay of the very frames that SieveMQ's client and broker exchange.

It does what no broker in Python can do without, and nothing else: reads SEND frames from a source, decodes them, packs
each envelope again behind a DELIVER head, and writes that to the sinks. No queue, no acknowledgement, no checks, no
selectors; source and sink only move bytes. SieveMQ's figures are given as a share of its.

    bytes    relays what it reads, unread: what the loop and the sockets can do
    decode   cuts and decodes every frame, relays it as it came
    repack   as decode, and packs a DELIVER for every SEND: the work of a relay that is not told anything else
"""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.queues
import socket
import statistics
import struct
import time
from typing import Any, cast

import msgpack
import uvloop

from benchmarks.machine import cpu_seconds
from benchmarks.workloads import body_of, properties_of

MODES = ("bytes", "decode", "repack")
SENDS_PER_FRAME = 100
SEND, DELIVER = 24, 80

_head = struct.Struct(">BBBIBQBI").pack
_context = multiprocessing.get_context("spawn")


def send_frame(workload: str, size: int, sends: int, queue: str = "queue:baseline") -> bytes:
    """A frame of `sends` SEND commands with bodies of `size` bytes, as the SDK writes it."""
    commands = []
    for i in range(sends):
        properties = msgpack.packb(properties_of(workload, i))
        message_id = f"ID:0123456789abcdef:{i + 1_000_000}"
        envelope = (message_id, 1_763_700_000_000, 4, 1, 0, 0, None, None, None, properties, None, 2, body_of(i, size))
        commands.append(msgpack.packb((SEND, 1, i + 1_000_000, queue, envelope)))
    payload = b"".join(commands)
    return len(payload).to_bytes(4, "big") + payload


class Relay(asyncio.Protocol):
    """Either end of the relay; the first byte says which: S a source, K a sink."""

    mode = "bytes"
    sinks: list[asyncio.Transport] = []  # noqa: RUF012 - one relay per process
    source: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.kind = b""
        self.rest = b""
        self.tag = 0
        self.unpack = msgpack.Unpacker(use_list=False, max_buffer_size=1 << 27)
        self.transport.set_write_buffer_limits(high=4 << 20)

    def pause_writing(self) -> None:
        if Relay.source and self.kind == b"K":
            Relay.source.pause_reading()

    def resume_writing(self) -> None:
        if Relay.source and self.kind == b"K":
            Relay.source.resume_reading()

    def data_received(self, data: bytes) -> None:
        if not self.kind:
            self.kind, data = data[:1], data[1:]
            if self.kind == b"S":
                Relay.source = self.transport
            else:
                Relay.sinks.append(self.transport)
            if not data:
                return
        if self.kind == b"K":  # an echo on its way back
            assert Relay.source is not None
            Relay.source.write(data)
            return
        out = data if Relay.mode == "bytes" else self.relayed(data)
        if out:
            for sink in Relay.sinks:
                sink.write(out)

    def relayed(self, data: bytes) -> bytes:
        buffer = self.rest + data if self.rest else data
        position, end, out = 0, len(buffer), []
        repack, unpack, pack, tag = Relay.mode == "repack", self.unpack, _pack, self.tag
        while end - position >= 4:
            stop = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
            if stop > end:
                break
            unpack.feed(buffer[position + 4 : stop])
            if repack:
                delivers = []
                for command in unpack:
                    tag += 1
                    delivers.append(_head(0x95, DELIVER, 0xCE, 1, 0xCF, tag, 0xCE, 1) + pack(command[4]))
                payload = b"".join(delivers)
                out.append(len(payload).to_bytes(4, "big") + payload)
            else:
                for _ in unpack:
                    pass
                out.append(buffer[position:stop])
            position = stop
        self.rest, self.tag = buffer[position:], tag
        return b"".join(out)


_pack = msgpack.Packer().pack


def _relay_main(ports: multiprocessing.queues.Queue[int], mode: str) -> None:
    async def serve() -> None:
        Relay.mode = mode
        server = await asyncio.get_running_loop().create_server(Relay, "127.0.0.1", 0)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _connect(port: int, who: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(who)
    return sock


def _sink_main(port: int, total: int, sinks: int, events: multiprocessing.queues.Queue[Any], echo: bool) -> None:
    import selectors

    socks = [_connect(port, b"K") for _ in range(sinks)]
    events.put("ready")
    if echo:
        while data := socks[0].recv(65536):
            socks[0].sendall(data)
        return
    chooser = selectors.DefaultSelector()
    for sock in socks:
        chooser.register(sock, selectors.EVENT_READ)
    buffer, got = bytearray(1 << 18), 0
    start = time.process_time()
    while got < total * sinks:
        for key, _ in chooser.select():
            got += key.fileobj.recv_into(buffer)  # type: ignore[union-attr]
    events.put((time.monotonic(), time.process_time() - start))


class _Running:
    """A relay process and sink processes, ended on leaving."""

    def __init__(self, mode: str, total: int, sinks: tuple[int, ...], echo: bool = False) -> None:
        self.events = _context.Queue()
        ports = _context.Queue()
        self.processes = [_context.Process(target=_relay_main, args=(ports, mode))]
        self.processes[0].start()
        self.port = ports.get(timeout=60)
        for count in sinks:
            sink = _context.Process(target=_sink_main, args=(self.port, total, count, self.events, echo))
            sink.start()
            self.processes.append(sink)
        for _ in sinks:
            self.events.get(timeout=60)
        self.source = _connect(self.port, b"S")
        # The relay has seen a connection once its first byte arrived; an idle loop turn later all of them are in.
        time.sleep(0.2)

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *exc: object) -> None:
        self.source.close()
        for process in self.processes:
            process.terminate()
            process.join()

    def relay_cpu(self) -> float:
        return cpu_seconds(self.processes[0].pid or 0)


def _bytes_out(mode: str, frame: bytes) -> int:
    if mode != "repack":
        return len(frame)
    unpacker = msgpack.Unpacker(use_list=False)
    unpacker.feed(frame[4:])
    return 4 + sum(21 + len(_pack(command[4])) for command in unpacker)


def _flow(mode: str, n: int, size: int, sinks: tuple[int, ...], workload: str) -> dict[str, Any]:
    frame = send_frame(workload, size, SENDS_PER_FRAME)
    frames = max(1, n // SENDS_PER_FRAME)
    with _Running(mode, frames * _bytes_out(mode, frame), sinks) as running:
        cpu0, own0 = running.relay_cpu(), time.process_time()
        start = time.monotonic()
        for _ in range(frames):
            running.source.sendall(frame)
        ends = [running.events.get(timeout=60) for _ in sinks]
        seconds = max(end for end, _ in ends) - start
        delivered = frames * SENDS_PER_FRAME * sum(sinks)
        return {
            "msgs": delivered,
            "seconds": round(seconds, 3),
            "msgs_per_s": round(delivered / seconds),
            "cpu_s": {
                "source": round(time.process_time() - own0, 2),
                "sinks": round(sum(cpu for _, cpu in ends), 2),
                "relay": round(running.relay_cpu() - cpu0, 2),
            },
        }


def throughput(mode: str, n: int, size: int, workload: str = "W1") -> dict[str, Any]:
    """Messages per second from one source to one sink."""
    return _flow(mode, n, size, (1,), workload)


def fan_out(mode: str, n: int, size: int) -> dict[str, Any]:
    """Deliveries per second from one source to ten sinks in two processes."""
    return _flow(mode, n, size, (5, 5), "W3")


def round_trips(mode: str, n: int, size: int) -> dict[str, Any]:
    """One message at a time to an echoing sink and back: the round trip of a request and its reply."""
    frame = send_frame("W2", size, 1)
    out = _bytes_out(mode, frame)
    times = []
    with _Running(mode, 0, (1,), echo=True) as running:
        cpu0 = running.relay_cpu()
        sock = running.source
        for _ in range(n + n // 10):
            start = time.perf_counter()
            sock.sendall(frame)
            got = 0
            while got < out:
                got += len(sock.recv(65536))
            times.append((time.perf_counter() - start) * 1e6)
        cpu = running.relay_cpu() - cpu0
    times = sorted(times[n // 10 :])
    return {
        "msgs": n,
        "seconds": round(sum(times) / 1e6, 3),
        "msgs_per_s": round(1e6 / statistics.fmean(times)),
        "p50_us": round(times[len(times) // 2], 1),
        "p99_us": round(times[int(len(times) * 0.99)], 1),
        "cpu_s": {"relay": round(cpu, 2)},
    }

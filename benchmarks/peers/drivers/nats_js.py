"""NATS JetStream through nats-py: a stream in memory with work-queue retention and explicit acknowledgements."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from benchmarks.peers.drivers.nats import BURST, ROOM, connect, headers
from benchmarks.peers.receipts import DEADLINE_S, now, percentile, receipts_of
from benchmarks.workloads import body_of, correlated

#: Publishes that await their acknowledgement at a time.
WINDOW = 1_000


def stream_of(dest: str) -> str:
    """A stream's name must not have dots."""
    return dest.replace(".", "_")


async def make_stream(stream: Any, dest: str) -> None:
    """The stream of a destination; made by whichever part is first."""
    from nats.js.api import RetentionPolicy, StorageType, StreamConfig

    await stream.add_stream(
        StreamConfig(
            name=stream_of(dest),
            subjects=[dest, f"{dest}.>"],
            storage=StorageType.MEMORY,
            retention=RetentionPolicy.WORK_QUEUE,
            allow_direct=True,
        )
    )


async def produce(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    client = await connect(job)
    n, workload, dest, size = job["n"], job["workload"], job["dest"], job["size"]
    stream = client.jetstream(publish_async_max_pending=WINDOW)
    if workload == "W6":
        await make_stream(stream, dest)
    await stage.ready_go()
    start = now()
    if job["confirm"] or workload == "W6":
        for i in range(n):
            subject = f"{dest}.c{i}" if workload == "W6" else dest
            await stream.publish_async(subject, body_of(i, size), headers=headers(workload, i))
        await stream.publish_async_completed()
    else:
        for i in range(n):
            await client.publish(dest, body_of(i, size), headers=headers(workload, i))
            if i % BURST == BURST - 1:
                await asyncio.sleep(0)
        await client.flush(60)
    return {"t_start": start, "t_end": now(), "sent": n}


async def consume(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from nats.js.api import AckPolicy, ConsumerConfig

    client = await connect(job)
    stream, dest = client.jetstream(), job["subs"][0]["dest"]
    await make_stream(stream, dest)
    receipts, done = receipts_of(job), asyncio.Event()

    async def on_message(message: Any) -> None:
        last = receipts.add(message.data)
        await client.publish(message.reply, b"+ACK")
        if last:
            done.set()

    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=5_000)
    names = {"queue": "w", "durable": "w", "stream": stream_of(dest)}
    await stream.subscribe(dest, **names, cb=on_message, manual_ack=True, config=config, **ROOM)
    await client.flush()
    stage.ready()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(done.wait(), DEADLINE_S)
    await client.flush(10)
    return {**receipts.result(), "t_end": now()}  # acknowledged, too


async def correlate(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    client = await connect(job)
    stream, name, times, wrong = client.jetstream(), stream_of(job["dest"]), [], 0
    await stage.ready_go()
    start = now()
    for k in correlated(job["n"]):
        before = now()
        message = await stream.get_last_msg(name, f"{job['dest']}.c{k}", direct=True)
        await stream.delete_msg(name, message.seq)
        times.append(now() - before)
        wrong += int(message.data[:10]) != k
    p50, p99 = percentile(times, 50), percentile(times, 99)
    figures = {"received": len(times), "mismatch": wrong, "p50_us": p50, "p99_us": p99}
    return {"t_start": start, "t_end": now(), **figures}

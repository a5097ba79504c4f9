"""NATS core through nats-py: at most once, no acknowledgement."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from benchmarks.peers.receipts import DEADLINE_S, now, percentile, receipts_of
from benchmarks.workloads import body_of, properties_of

#: Messages that a subscription may buffer, and their bytes: enough that the client drops none.
ROOM = {"pending_msgs_limit": 1 << 22, "pending_bytes_limit": 1 << 31}
#: Publishes between two turns of the loop, in which the client writes.
BURST = 100


async def connect(job: dict[str, Any]) -> Any:
    """A connection that buffers enough not to flush after each publish."""
    import nats

    return await nats.connect(job["url"], pending_size=8 * 1024 * 1024, max_outstanding_pings=50)


def headers(workload: str, i: int) -> dict[str, str]:
    return {name: str(value) for name, value in properties_of(workload, i).items()}


async def produce(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    client = await connect(job)
    n, workload, dest, size = job["n"], job["workload"], job["dest"], job["size"]
    await stage.ready_go()
    start = now()
    for i in range(n):
        subject = f"{dest}.{properties_of(workload, i)['symbol']}" if workload == "W5" else dest
        await client.publish(subject, body_of(i, size), headers=headers(workload, i))
        if i % BURST == BURST - 1:
            await asyncio.sleep(0)  # the task that writes runs
    await client.flush(60)
    return {"t_start": start, "t_end": now(), "sent": n}


async def consume(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    subs = job["subs"]
    clients = {conn: await connect(job) for conn in sorted({sub["conn"] for sub in subs})}
    receipts, done = receipts_of(job), asyncio.Event()

    async def on_message(message: Any) -> None:
        if receipts.add(message.data):
            done.set()

    for sub in subs:
        subject = f"{sub['dest']}.{sub['key']}" if sub["key"] else sub["dest"]
        group = "q" if sub["kind"] == "queue" else ""
        await clients[sub["conn"]].subscribe(subject, queue=group, cb=on_message, **ROOM)
    for client in clients.values():
        await client.flush()
    stage.ready()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(done.wait(), DEADLINE_S)
    return receipts.result()


async def respond(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    client = await connect(job)

    async def on_message(message: Any) -> None:
        await client.publish(message.reply, message.data, headers=message.headers)

    await client.subscribe(job["dest"], queue="q", cb=on_message)
    await client.flush()
    stage.ready()
    await asyncio.sleep(DEADLINE_S + 10)
    return {}


async def request(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    client = await connect(job)
    n, times = job["n"], []

    async def call(i: int) -> None:
        body = body_of(i, job["size"])
        reply = await client.request(job["dest"], body, headers=headers("W2", i), timeout=10)
        if int(reply.data[:10]) != i:
            raise RuntimeError(f"a wrong reply to request {i}")

    for i in range(200):
        await call(i)
    await stage.ready_go()
    start = now()
    for i in range(n):
        before = now()
        await call(i)
        times.append(now() - before)
    p50, p99 = percentile(times, 50), percentile(times, 99)
    return {"t_start": start, "t_end": now(), "received": n, "p50_us": p50, "p99_us": p99}

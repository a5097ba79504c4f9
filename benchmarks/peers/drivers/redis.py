"""Redis' protocol through redis-py and hiredis: streams with a consumer group as queues, pub/sub as topics."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from benchmarks.peers.receipts import DEADLINE_S, now, percentile, receipts_of
from benchmarks.workloads import body_of, correlated, properties_of

#: Commands of one pipeline, and messages of one XREADGROUP.
PIPELINE, READ = 500, 1_000


def client(job: dict[str, Any]) -> Any:
    import redis.asyncio

    return redis.asyncio.Redis.from_url(job["url"], socket_timeout=None, single_connection_client=True)


def fields(workload: str, i: int, size: int) -> dict[str, Any]:
    """A message as the fields of a stream's entry."""
    properties = {
        name: int(value) if isinstance(value, bool) else value for name, value in properties_of(workload, i).items()
    }
    return {**properties, "b": body_of(i, size)}


def entries_of(result: Any, dest: str) -> list[Any]:
    """The entries of one stream in the answer of XREAD or XREADGROUP, in either version of the protocol."""
    if not result:
        return []
    if isinstance(result, dict):
        found = result[dest.encode()]
        return list(found[0] if found and isinstance(found[0], list) else found)
    return list(result[0][1])


async def produce(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    import msgpack

    server = client(job)
    n, workload, dest, size = job["n"], job["workload"], job["dest"], job["size"]
    await server.ping()
    await stage.ready_go()
    start = now()
    for first in range(0, n, PIPELINE):
        pipeline = server.pipeline(transaction=False)
        for i in range(first, min(n, first + PIPELINE)):
            properties = properties_of(workload, i)
            if workload == "W6":
                pipeline.set(f"{dest}:c{i}", msgpack.packb([body_of(i, size), properties]))
            elif job["kind"] == "queue":
                pipeline.xadd(dest, fields(workload, i, size))
            else:
                channel = f"{dest}.{properties['symbol']}" if workload == "W5" else dest
                pipeline.publish(channel, msgpack.packb([body_of(i, size), properties]))
        await pipeline.execute()
    return {"t_start": start, "t_end": now(), "sent": n}


async def consume(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    if job["subs"][0]["kind"] == "queue":
        return await consume_stream(job, stage)
    return await consume_channels(job, stage)


async def consume_stream(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    server, dest, receipts = client(job), job["subs"][0]["dest"], receipts_of(job)
    await server.xgroup_create(dest, "g", id="0", mkstream=True)
    stage.ready()
    end, complete = now() + DEADLINE_S * 10**9, False
    while not complete and now() < end:
        entries = entries_of(await server.xreadgroup("g", "c1", {dest: ">"}, count=READ, block=2_000), dest)
        if not entries:
            continue
        for _, found in entries:
            complete = receipts.add(found[b"b"])
        ids = [entry[0] for entry in entries]
        pipeline = server.pipeline(transaction=False)
        pipeline.xack(dest, "g", *ids)
        pipeline.xdel(dest, *ids)
        await pipeline.execute()
    return {**receipts.result(), "t_end": now()}  # acknowledged, too


async def consume_channels(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    import msgpack

    receipts, done, ready = receipts_of(job), asyncio.Event(), asyncio.Semaphore(0)
    channels: dict[int, list[str]] = {}
    for sub in job["subs"]:
        channels.setdefault(sub["conn"], []).append(f"{sub['dest']}.{sub['key']}" if sub["key"] else sub["dest"])

    async def pump(names: list[str]) -> None:
        subscription, subscribed = client(job).pubsub(), 0
        await subscription.subscribe(*names)
        while subscribed < len(names):
            message = await subscription.get_message(timeout=5)
            subscribed += bool(message and message["type"] == "subscribe")
        ready.release()
        async for message in subscription.listen():
            if message["type"] == "message" and receipts.add(msgpack.unpackb(message["data"])[0]):
                done.set()

    tasks = [asyncio.create_task(pump(names)) for names in channels.values()]
    for _ in tasks:
        await ready.acquire()
    stage.ready()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(done.wait(), DEADLINE_S)
    return receipts.result()


async def respond(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    server, dest = client(job), job["dest"]
    await server.xgroup_create(dest, "g", id="0", mkstream=True)
    stage.ready()
    while True:
        for number, found in entries_of(await server.xreadgroup("g", "c1", {dest: ">"}, count=10, block=5_000), dest):
            pipeline = server.pipeline(transaction=False)
            pipeline.xadd(found[b"reply"], {"b": found[b"b"]})
            pipeline.xack(dest, "g", number)
            await pipeline.execute()


async def request(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    server, dest, replies = client(job), job["dest"], f"{job['dest']}.reply"
    n, times, last = job["n"], [], "0"

    async def call(i: int, last: Any) -> Any:
        await server.xadd(dest, {**fields("W2", i, job["size"]), "reply": replies})
        number, found = entries_of(await server.xread({replies: last}, count=1, block=10_000), replies)[0]
        if int(found[b"b"][:10]) != i:
            raise RuntimeError(f"a wrong reply to request {i}")
        return number

    for i in range(200):
        last = await call(i, last)
    await stage.ready_go()
    start = now()
    for i in range(n):
        before = now()
        last = await call(i, last)
        times.append(now() - before)
    p50, p99 = percentile(times, 50), percentile(times, 99)
    return {"t_start": start, "t_end": now(), "received": n, "p50_us": p50, "p99_us": p99}


async def correlate(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    import msgpack

    server, times, wrong = client(job), [], 0
    await server.ping()
    await stage.ready_go()
    start = now()
    for k in correlated(job["n"]):
        before = now()
        found = await server.getdel(f"{job['dest']}:c{k}")
        times.append(now() - before)
        wrong += found is None or int(msgpack.unpackb(found)[0][:10]) != k
    p50, p99 = percentile(times, 50), percentile(times, 99)
    figures = {"received": len(times), "mismatch": wrong, "p50_us": p50, "p99_us": p99}
    return {"t_start": start, "t_end": now(), **figures}

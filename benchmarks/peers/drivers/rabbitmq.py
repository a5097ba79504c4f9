"""RabbitMQ through aio-pika: classic transient queues, non-persistent messages."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from benchmarks.peers.receipts import DEADLINE_S, now, percentile, receipts_of
from benchmarks.workloads import body_of, properties_of

#: Messages that an acknowledgement covers, messages not acknowledged, publishes not confirmed.
ACKNOWLEDGE_EVERY, PREFETCH, WINDOW = 100, 1_000, 500
EXCHANGES = {"W3": "fanout", "W5": "headers"}


async def connect(job: dict[str, Any]) -> Any:
    """A connection that does not repair itself."""
    import aio_pika

    return await aio_pika.connect(job["url"])


async def produce(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    import aio_pika

    channel = await (await connect(job)).channel(publisher_confirms=job["confirm"])
    n, workload, dest = job["n"], job["workload"], job["dest"]
    kind = EXCHANGES.get(workload)
    exchange = await channel.declare_exchange(dest, kind) if kind else channel.default_exchange
    key = "" if kind else dest

    def publish(i: int) -> Any:
        mode = aio_pika.DeliveryMode.NOT_PERSISTENT
        message = aio_pika.Message(body_of(i, job["size"]), headers=properties_of(workload, i), delivery_mode=mode)
        return exchange.publish(message, key, mandatory=False)

    await stage.ready_go()
    start = now()
    if job["confirm"]:
        for first in range(0, n, WINDOW):
            await asyncio.gather(*map(publish, range(first, min(n, first + WINDOW))))
    else:
        for i in range(n):
            await publish(i)
    end = now()
    await channel.close()
    return {"t_start": start, "t_end": end, "sent": n}


async def consume(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    subs, kind = job["subs"], EXCHANGES.get(job["workload"])
    receipts, done = receipts_of(job), asyncio.Event()
    every = 10 if job["workload"] == "W5" else ACKNOWLEDGE_EVERY
    channels: dict[int, Any] = {}
    left: dict[int, int] = {}
    for sub in subs:
        if sub["conn"] not in channels:
            channels[sub["conn"]] = await (await connect(job)).channel()
            await channels[sub["conn"]].set_qos(prefetch_count=PREFETCH)
        left[sub["conn"]] = left.get(sub["conn"], 0) + sub["expected"]

    def handler(conn: int) -> Any:
        async def on_message(message: Any) -> None:
            last = receipts.add(message.body)
            left[conn] -= 1
            if left[conn] % every == 0:
                await message.ack(multiple=True)
            if last:
                done.set()

        return on_message

    for sub in subs:
        channel = channels[sub["conn"]]
        if kind:
            exchange = await channel.declare_exchange(sub["dest"], kind)
            queue = await channel.declare_queue("", exclusive=True)
            matching = {"x-match": "all", "symbol": sub["key"]} if kind == "headers" else None
            await queue.bind(exchange, "", arguments=matching)
        else:
            queue = await channel.declare_queue(sub["dest"], durable=False, auto_delete=False)
        await queue.consume(handler(sub["conn"]))
    stage.ready()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(done.wait(), DEADLINE_S)
    return receipts.result()


async def respond(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    import aio_pika

    channel = await (await connect(job)).channel(publisher_confirms=False)
    queue = await channel.declare_queue(job["dest"], durable=False)

    async def on_message(message: Any) -> None:
        reply = aio_pika.Message(message.body, correlation_id=message.correlation_id)
        await channel.default_exchange.publish(reply, message.reply_to, mandatory=False)

    await queue.consume(on_message, no_ack=True)
    stage.ready()
    await asyncio.sleep(DEADLINE_S + 10)
    return {}


async def request(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    import aio_pika

    channel = await (await connect(job)).channel(publisher_confirms=False)
    replies = await channel.declare_queue("", exclusive=True)
    box: asyncio.Queue[Any] = asyncio.Queue()
    await replies.consume(box.put, no_ack=True)
    n, times = job["n"], []

    async def call(i: int) -> None:
        message = aio_pika.Message(
            body_of(i, job["size"]),
            headers=properties_of("W2", i),
            reply_to=replies.name,
            correlation_id=str(i),
            delivery_mode=aio_pika.DeliveryMode.NOT_PERSISTENT,
        )
        await channel.default_exchange.publish(message, job["dest"], mandatory=False)
        reply = await box.get()
        if reply.correlation_id != str(i):
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

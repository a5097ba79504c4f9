"""SieveMQ through its asyncio SDK, as a user would write it; otherwise as ``sievemq.py`` beside it."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.peers.receipts import DEADLINE_S, now, percentile, receipts_of
from benchmarks.workloads import body_of, correlated, properties_of


async def produce(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq import BytesMessage, CompletionListener, DeliveryMode
    from sievemq.aio import ConnectionFactory

    class Confirms(CompletionListener):
        def __init__(self, expected: int) -> None:
            self.left, self.failed, self.all = expected, 0, asyncio.Event()

        def on_completion(self, message: Any) -> None:
            self.left -= 1
            if not self.left:
                self.all.set()

        def on_exception(self, message: Any, exception: Exception) -> None:
            self.failed += 1
            self.on_completion(message)

    n, workload, size = job["n"], job["workload"], job["size"]
    async with await ConnectionFactory(job["url"]).create_context() as context:
        create = context.create_topic if job["kind"] == "topic" else context.create_queue
        destination = create(job["dest"])
        producer = context.create_producer()
        confirms = Confirms(n)
        if job["confirm"]:
            producer.set_async(confirms)
        else:
            producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        await stage.ready_go()
        start = now()
        for i in range(n):
            message = BytesMessage(body_of(i, size))
            for name, value in properties_of(workload, i).items():
                message.set_object_property(name, value)
            if workload == "W6":
                message.set_jms_correlation_id(f"c{i}")
            await producer.send(destination, message)
        sent = now()
        if job["confirm"]:
            await asyncio.wait_for(confirms.all.wait(), DEADLINE_S)
            if confirms.failed:
                raise RuntimeError(f"{confirms.failed} of {n} sends failed")
    return {"t_start": start, "t_end": now() if workload in ("W1c", "W6") else sent, "sent": n}


async def consume(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq.aio import ConnectionFactory

    subs = job["subs"]
    factory = ConnectionFactory(job["url"])
    receipts = receipts_of(job)
    contexts = {conn: await factory.create_context() for conn in sorted({sub["conn"] for sub in subs})}

    async def open_consumer(sub: dict[str, Any]) -> Any:
        context = contexts[sub["conn"]]
        create = context.create_topic if sub["kind"] == "topic" else context.create_queue
        return await context.create_consumer(create(sub["dest"]), sub["selector"])

    if len(subs) == 1:
        consumer = await open_consumer(subs[0])
        stage.ready()
        async for message in consumer:
            if receipts.add(message.get_body(bytes)):
                break
    else:
        done = asyncio.Event()

        def on_message(message: Any) -> None:
            if receipts.add(message.get_body(bytes)):
                done.set()

        for context in contexts.values():
            context.set_auto_start(False)
        for sub in subs:
            consumer = await open_consumer(sub)
            consumer.set_message_listener(on_message)
        for context in contexts.values():
            await context.start()
        stage.ready()
        await asyncio.wait_for(done.wait(), DEADLINE_S)
    return receipts.result()


async def respond(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq import BytesMessage, DeliveryMode
    from sievemq.aio import ConnectionFactory

    context = await ConnectionFactory(job["url"]).create_context()
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    consumer = await context.create_consumer(context.create_queue(job["dest"]))
    stage.ready()
    async for request in consumer:
        reply = BytesMessage(request.get_body(bytes))
        reply.set_jms_correlation_id(request.get_jms_message_id())
        reply_to = request.get_jms_reply_to()
        assert reply_to is not None
        await producer.send(reply_to, reply)
    return {}


async def request(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq import BytesMessage, DeliveryMode
    from sievemq.aio import ConnectionFactory

    n, times = job["n"], []
    async with await ConnectionFactory(job["url"]).create_context() as context:
        queue, replies = context.create_queue(job["dest"]), await context.create_temporary_queue()
        consumer = await context.create_consumer(replies)
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)

        async def call(i: int) -> None:
            message = BytesMessage(body_of(i, job["size"]))
            for name, value in properties_of("W2", i).items():
                message.set_object_property(name, value)
            message.set_jms_reply_to(replies)
            await producer.send(queue, message)
            reply = await consumer.receive(10_000)
            if reply is None or int((reply.get_body(bytes) or b"")[:10]) != i:
                raise RuntimeError(f"no reply, or a wrong one, to request {i}")

        for i in range(200):
            await call(i)
        await stage.ready_go()
        start = now()
        for i in range(n):
            before = now()
            await call(i)
            times.append(now() - before)
        end = now()
    p50, p99 = percentile(times, 50), percentile(times, 99)
    return {"t_start": start, "t_end": end, "received": n, "p50_us": p50, "p99_us": p99}


async def correlate(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq.aio import ConnectionFactory

    received, wrong, times = 0, 0, []
    async with await ConnectionFactory(job["url"]).create_context() as context:
        queue = context.create_queue(job["dest"])
        await stage.ready_go()
        start = now()
        for k in correlated(job["n"]):
            before = now()
            async with await context.create_consumer(queue, f"JMSCorrelationID = 'c{k}'") as consumer:
                message = await consumer.receive(3_000)
            times.append(now() - before)
            if message is not None:
                received += 1
                wrong += int((message.get_body(bytes) or b"")[:10]) != k
        end = now()
    p50, p99 = percentile(times, 50), percentile(times, 99)
    return {"t_start": start, "t_end": end, "received": received, "mismatch": wrong, "p50_us": p50, "p99_us": p99}

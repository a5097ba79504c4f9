"""SieveMQ through its blocking SDK, as a user would write it.

The parts `produce`, `consume`, `request`, `respond` and `correlate` get a job and a stage, play their part with the
public API alone, and return figures.
"""

from __future__ import annotations

import threading
from typing import Any

from benchmarks.peers.receipts import DEADLINE_S, now, percentile, receipts_of
from benchmarks.workloads import body_of, correlated, properties_of


def produce(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq import BytesMessage, CompletionListener, ConnectionFactory, DeliveryMode

    class Confirms(CompletionListener):
        def __init__(self, expected: int) -> None:
            self.left, self.failed, self.all = expected, 0, threading.Event()

        def on_completion(self, message: Any) -> None:
            self.left -= 1
            if not self.left:
                self.all.set()

        def on_exception(self, message: Any, exception: Exception) -> None:
            self.failed += 1
            self.on_completion(message)

    n, workload, size = job["n"], job["workload"], job["size"]
    with ConnectionFactory(job["url"]).create_context() as context:
        create = context.create_topic if job["kind"] == "topic" else context.create_queue
        destination = create(job["dest"])
        producer = context.create_producer()
        confirms = Confirms(n)
        if job["confirm"]:
            producer.set_async(confirms)
        else:
            producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        stage.ready_go_sync()
        start = now()
        for i in range(n):
            message = BytesMessage(body_of(i, size))
            for name, value in properties_of(workload, i).items():
                message.set_object_property(name, value)
            if workload == "W6":
                message.set_jms_correlation_id(f"c{i}")
            producer.send(destination, message)
        sent = now()
        if job["confirm"] and (not confirms.all.wait(DEADLINE_S) or confirms.failed):
            raise RuntimeError(f"{confirms.left} of {n} sends were not confirmed, {confirms.failed} failed")
    return {"t_start": start, "t_end": now() if workload in ("W1c", "W6") else sent, "sent": n}


def consume(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq import BytesMessage, ConnectionFactory

    subs = job["subs"]
    factory = ConnectionFactory(job["url"])
    receipts = receipts_of(job)
    contexts = {conn: factory.create_context() for conn in sorted({sub["conn"] for sub in subs})}

    def open_consumer(sub: dict[str, Any]) -> Any:
        context = contexts[sub["conn"]]
        create = context.create_topic if sub["kind"] == "topic" else context.create_queue
        return context.create_consumer(create(sub["dest"]), sub["selector"])

    if len(subs) == 1:
        consumer = open_consumer(subs[0])
        stage.ready()
        for message in consumer:
            if receipts.add(message.get_body(bytes) or b""):
                break
    else:
        done, lock = threading.Event(), threading.Lock()

        def on_message(message: BytesMessage) -> None:
            with lock:  # several sessions, several threads
                if receipts.add(message.get_body(bytes) or b""):
                    done.set()

        for context in contexts.values():
            context.set_auto_start(False)
        for sub in subs:
            open_consumer(sub).set_message_listener(on_message)
        for context in contexts.values():
            context.start()
        stage.ready()
        done.wait(DEADLINE_S)
    return receipts.result()


def respond(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq import BytesMessage, ConnectionFactory, DeliveryMode

    context = ConnectionFactory(job["url"]).create_context()
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    consumer = context.create_consumer(context.create_queue(job["dest"]))
    stage.ready()
    for request in consumer:
        reply = BytesMessage(request.get_body(bytes))
        reply.set_jms_correlation_id(request.get_jms_message_id())
        reply_to = request.get_jms_reply_to()
        assert reply_to is not None
        producer.send(reply_to, reply)
    return {}


def request(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq import BytesMessage, ConnectionFactory, DeliveryMode

    n, times = job["n"], []
    with ConnectionFactory(job["url"]).create_context() as context:
        queue, replies = context.create_queue(job["dest"]), context.create_temporary_queue()
        consumer = context.create_consumer(replies)
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)

        def call(i: int) -> None:
            message = BytesMessage(body_of(i, job["size"]))
            for name, value in properties_of("W2", i).items():
                message.set_object_property(name, value)
            message.set_jms_reply_to(replies)
            producer.send(queue, message)
            reply = consumer.receive(10_000)
            if reply is None or int((reply.get_body(bytes) or b"")[:10]) != i:
                raise RuntimeError(f"no reply, or a wrong one, to request {i}")

        for i in range(200):
            call(i)
        stage.ready_go_sync()
        start = now()
        for i in range(n):
            before = now()
            call(i)
            times.append(now() - before)
        end = now()
    p50, p99 = percentile(times, 50), percentile(times, 99)
    return {"t_start": start, "t_end": end, "received": n, "p50_us": p50, "p99_us": p99}


def correlate(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    from sievemq import ConnectionFactory

    received, wrong, times = 0, 0, []
    with ConnectionFactory(job["url"]).create_context() as context:
        queue = context.create_queue(job["dest"])
        stage.ready_go_sync()
        start = now()
        for k in correlated(job["n"]):
            before = now()
            with context.create_consumer(queue, f"JMSCorrelationID = 'c{k}'") as consumer:
                message = consumer.receive(3_000)
            times.append(now() - before)
            if message is not None:
                received += 1
                wrong += int((message.get_body(bytes) or b"")[:10]) != k
        end = now()
    p50, p99 = percentile(times, 50), percentile(times, 99)
    return {"t_start": start, "t_end": end, "received": received, "mismatch": wrong, "p50_us": p50, "p99_us": p99}

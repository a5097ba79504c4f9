"""RabbitMQ through pika, which does with less Python what aio-pika does: queues alone."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.receipts import DEADLINE_S, now, receipts_of
from benchmarks.workloads import body_of, properties_of

#: Messages that an acknowledgement covers, messages not acknowledged, publishes not confirmed, publishes in one turn.
ACKNOWLEDGE_EVERY, PREFETCH, WINDOW, BURST = 100, 1_000, 1_000, 200


def produce(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    import pika

    producer = _Producer(job, stage)
    connection = pika.SelectConnection(
        pika.URLParameters(job["url"]),
        on_open_callback=lambda opened: opened.channel(on_open_callback=producer.on_channel),
        on_close_callback=lambda closed, error: closed.ioloop.stop(),
    )
    producer.connection = connection
    connection.ioloop.start()
    return {"t_start": producer.start, "t_end": producer.end, "sent": job["n"]}


class _Producer:
    """Publishes in bursts from the client's loop, with confirms if the job asks for them."""

    def __init__(self, job: dict[str, Any], stage: Any) -> None:
        self._job, self._stage = job, stage
        self._sent = self._confirmed = self.start = self.end = 0
        self._channel: Any = None
        self.connection: Any = None

    def on_channel(self, channel: Any) -> None:
        self._channel = channel
        if self._job["confirm"]:
            channel.confirm_delivery(self._on_confirm, callback=lambda frame: self._begin())
        else:
            self._begin()

    def _begin(self) -> None:
        self._stage.ready_go_sync()
        self.start = now()
        self._pump()

    def _on_confirm(self, frame: Any) -> None:
        self._confirmed = frame.method.delivery_tag
        if self._confirmed >= self._job["n"]:
            self._finish()

    def _finish(self) -> None:
        if not self.end:
            self.end = now()
            self.connection.close()

    def _pump(self) -> None:
        import pika

        job = self._job
        stop = min(job["n"], self._sent + BURST)
        if job["confirm"]:
            stop = min(stop, self._confirmed + WINDOW)
        for i in range(self._sent, stop):
            properties = pika.BasicProperties(headers=properties_of(job["workload"], i), delivery_mode=1)
            self._channel.basic_publish("", job["dest"], body_of(i, job["size"]), properties)
        self._sent = max(self._sent, stop)
        if self._sent < job["n"]:
            self.connection.ioloop.call_later(0, self._pump)
        elif not job["confirm"]:
            self._finish()


def consume(job: dict[str, Any], stage: Any) -> dict[str, Any]:
    import pika

    (sub,) = job["subs"]
    receipts, left = receipts_of(job), sub["expected"]
    connection = pika.BlockingConnection(pika.URLParameters(job["url"]))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    channel.queue_declare(sub["dest"], durable=False)

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal left
        last = receipts.add(body)
        left -= 1
        if left % ACKNOWLEDGE_EVERY == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if last:
            channel.stop_consuming()

    channel.basic_consume(sub["dest"], on_message)
    connection.call_later(DEADLINE_S, channel.stop_consuming)
    stage.ready()
    channel.start_consuming()
    return receipts.result()

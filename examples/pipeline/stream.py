"""Everything that goes through a queue, kept as Parquet while it is consumed, and some of it sent on, exactly once.

Orders are sent and consumed; a tap copies them, so the stream sees them all the same. The query is stopped and started
again: its checkpoint and the tap know where it was. Then the large German orders go to another queue; run a second time
under the same name, nothing is sent twice. Needs the extra `spark` and Java 17. Written to be read, or run, from top to
bottom, or pasted cell by cell into a notebook.
"""

from __future__ import annotations

import tempfile

from sievemq import ConnectionFactory, Queue, TextMessage
from sievemq_broker import EmbeddedBroker
from sievemq_spark import drain, lag, spark_session, where

ORDERS = [("DE", 80), ("DE", 1200), ("FR", 450), (None, 50), ("DE", 2500), ("AT", 700)]


def send_and_consume(url: str, orders: list[tuple[str | None, int]]) -> None:
    """An application at work: what it sends is consumed at once."""
    with ConnectionFactory(url).create_context() as context:
        producer, consumer = context.create_producer(), context.create_consumer(Queue("orders"))
        for country, total in orders:
            properties = {"total": total} | ({"country": country} if country else {})
            producer.send(Queue("orders"), TextMessage(f"an order of {total}", properties=properties))
            consumer.receive(60_000)


with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as folder:
    spark = spark_session("local[2]", settings={"spark.ui.showConsoleProgress": "false"})

    # %% A stream over a tap. The tap is made when the query first starts; from then on nothing is missed. No order has
    # been sent yet, so the queue is not there: failOnMissing=false makes it, with its tap.
    source = spark.readStream.format("sievemq").options(url=broker.url, destination="queue:orders", tap="archive")
    source = source.option("columns", "country STRING, total INT").option("maxMessagesPerTrigger", 1_000)
    orders = source.option("failOnMissing", "false").load()

    def catch_up() -> dict[str, int]:
        """What there is now, into Parquet; from a scheduler, or without the trigger for ever. How far it is behind."""
        writer = orders.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{folder}/orders")
        query.awaitTermination()
        return lag(query.lastProgress)

    catch_up()
    send_and_consume(broker.url, ORDERS[:4])
    catch_up()
    send_and_consume(broker.url, ORDERS[4:])
    print(f"behind: {catch_up()}")

    # %% Every order is there once, though the queue is empty.
    kept = spark.read.parquet(f"{folder}/orders")
    print(f"kept {kept.count()} orders, {kept.filter(where('country IS NULL')).count()} of them without a country")

    # %% Large German ones to another queue, all or none; the same write under the same name is done once.
    large = kept.filter(where("country = 'DE' AND total > 1000")).drop("country", "total")
    for _ in range(2):
        writer = large.write.format("sievemq").options(url=broker.url, destination="queue:large", writeId="large-de")
        writer.mode("append").save()

    # %% Take them from there for good: gone when the block has ended well, still there if it raises.
    with drain(spark, broker.url, "queue:large", tap="review", columns="total INT") as review:
        print(f"review: {sorted(row['total'] for row in review.select('total').collect())}")
    with ConnectionFactory(broker.url).create_context() as context:
        left = sum(1 for _ in context.create_browser(Queue("large")))
    print(f"left on queue:large: {left}")
    spark.stop()

"""Before a consumer goes live: what would its selector have matched, and what did it miss for lack of a property?

Orders are sent to a queue, browsed into an archive, and two selectors are tried on it; then the German ones are sent
again to another queue. Needs the extra `spark` and Java 17. Written to be read, or run, from top to bottom.
"""

from __future__ import annotations

import tempfile

from sievemq import ConnectionFactory, Queue, TextMessage
from sievemq_broker import EmbeddedBroker
from sievemq_spark import spark_session, where
from sievemq_spark.archive import archive, read_archive, read_queues
from sievemq_spark.backtest import backtest
from sievemq_spark.replay import replay

ORDERS: list[tuple[str, dict[str, str | int]]] = [
    ("one chair", {"country": "DE", "total": 80}),
    ("a table", {"country": "DE", "total": 1200}),
    ("ten lamps", {"country": "FR", "total": 450}),
    ("a gift card", {"total": 50}),  # no country: NOT (country = 'DE') is UNKNOWN for it
]

with EmbeddedBroker() as broker, tempfile.TemporaryDirectory() as folder:
    with ConnectionFactory(broker.url).create_context() as context:
        producer = context.create_producer()
        for text, properties in ORDERS:
            producer.send(Queue("orders"), TextMessage(text, properties=properties))

    spark = spark_session("local[2]", settings={"spark.ui.showConsoleProgress": "false"})

    # The queue as it stands, without touching it, into Parquet. Run it as often as you like.
    done = archive(spark, read_queues(spark, broker.url, "queue:orders"), f"{folder}/archive")
    print(f"archived {done.added} of {done.seen} orders")

    orders = read_archive(spark, f"{folder}/archive")
    result = backtest(orders, ["NOT (country = 'DE')", "country <> 'DE' OR country IS NULL"])
    for line in result.results:
        missing = ", ".join(f"{count} without {' or '.join(names)}" for names, count in line.causes.items())
        print(f"{line.selector}: {line.matched} matched, {line.unknown} unknown{f' ({missing})' if missing else ''}")
    print(f"only the second matches {result.only_second}")

    # The same language as a Column.
    row = orders.filter(where("total BETWEEN 400 AND 500")).select("body_text").first()
    print(f"between 400 and 500: {row['body_text'] if row else 'nothing'}")

    sent = replay(orders, broker.url, destination="queue:germany", selector="country = 'DE'").sent
    print(f"replayed {sent} orders to queue:germany")
    spark.stop()

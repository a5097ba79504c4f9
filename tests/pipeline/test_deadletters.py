"""Dead letters of a real broker: why they are there, and what sets them apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sievemq import ConnectionFactory, JMSContext, Queue, TextMessage
from sievemq_broker import EmbeddedBroker
from sievemq_spark.archive import Archived, archive, archive_stream, read_archive, read_outcomes, read_queues
from sievemq_spark.backtest import backtest, coverage
from sievemq_spark.deadletters import deadletters
from sievemq_spark.outcomes import outcomes
from sievemq_spark.profile import profile
from sievemq_spark.replay import Changes, Replayed, replay

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

ORDERS, BAD = 40, 8


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """40 orders, of which release 2 cannot ship to 'IS': 8 end in the dead-letter queue."""
    with EmbeddedBroker() as broker:
        with ConnectionFactory(broker.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
            producer = context.create_producer()
            for number in range(ORDERS):
                bad = number % 5 == 0
                message = TextMessage(f"order {number}", properties={"number": number, "release": 2 if bad else 1})
                message.set_string_property("country", "IS" if bad else "DE")
                if not bad:
                    message.set_boolean_property("paid", True)
                producer.send(Queue("orders"), message)
            consumer = context.create_consumer(Queue("orders"), "country = 'IS'")
            while consumer.receive_no_wait() is not None:
                context.recover()
        yield broker


@pytest.fixture(scope="module")
def tapped(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The archive of taps on a queue and on its dead-letter queue: 40 orders, of which 8 were dead-lettered.

    Each order to 'IS' fails, and so does every other one of release 2 (which are 16).
    """
    path = str(tmp_path_factory.mktemp("tapped") / "archive")
    with EmbeddedBroker() as broker:

        def run() -> Archived:
            given = spark, broker.url, "queue:orders,queue:DLQ.orders", path
            return archive_stream(*given, tap="audit", outcomes=True, fail_on_missing=False)

        run()
        with ConnectionFactory(broker.url).create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
            producer = context.create_producer()
            for number in range(ORDERS):
                country = "IS" if number % 5 == 0 else "DE"
                properties = {"country": country, "release": 2 if number % 5 < 2 else 1}
                producer.send(Queue("orders"), TextMessage(f"order {number}", properties=properties))
            consumer = context.create_consumer(Queue("orders"), "country = 'IS'")
            while consumer.receive_no_wait() is not None:
                context.recover()
            consumer.close()
            consumer = context.create_consumer(Queue("DLQ.orders"))
            message = consumer.receive(60_000)
            assert message is not None
            message.acknowledge()
        assert run().added == ORDERS + BAD
    return path


def test_a_dead_letter_is_not_compared_with_itself(spark: Any, tapped: str) -> None:
    messages = read_archive(spark, tapped)
    result = deadletters(messages.filter("destination = 'queue:DLQ.orders'"), messages)
    assert (result.messages, result.normal) == (BAD, ORDERS - BAD)
    found = {(each.property, each.value): each for each in result.values}
    assert (found["country", "IS"].dead, found["country", "IS"].normal, found["country", "IS"].lift) == (BAD, 0, None)
    assert found["release", "2"].normal == BAD
    assert found["release", "2"].lift == pytest.approx(1 / (BAD / (ORDERS - BAD)))


def test_a_message_and_its_dead_letter_count_once(spark: Any, tapped: str) -> None:
    messages, fates = read_archive(spark, tapped), read_outcomes(spark, tapped)
    assert messages.count() == ORDERS + BAD
    tested = backtest(messages, ["country = 'IS'"])
    assert (tested.messages, tested.results[0].matched) == (ORDERS, BAD)
    covered = coverage(messages, ["country = 'IS'"])
    assert (covered.messages, covered.one) == (ORDERS, BAD)
    seen = profile(messages)
    assert seen.messages == sum(seen.times.values()) == ORDERS
    assert {each.name: each.types for each in seen.properties} == {
        "country": {"String": ORDERS},
        "release": {"int": ORDERS},
    }
    happened = outcomes(messages, fates)
    assert (happened.messages, happened.open) == (ORDERS, ORDERS - BAD)
    assert [(fate.outcome, fate.messages, fate.share) for fate in happened.fates] == [("dead-lettered", BAD, 1.0)]


def test_a_dead_letter_queue_alone_is_traffic(spark: Any, tapped: str) -> None:
    messages, fates = read_archive(spark, tapped), read_outcomes(spark, tapped)
    there = "destination = 'queue:DLQ.orders'"
    assert backtest(messages.filter(there), ["country = 'IS'"]).results[0].matched == BAD
    happened = outcomes(messages.filter(there), fates.filter(there))
    assert (happened.messages, happened.open) == (BAD, BAD - 1)
    assert [fate.outcome for fate in happened.fates] == ["acknowledged"]


def test_replay_sends_a_message_and_its_dead_letter_once(spark: Any, tapped: str) -> None:
    with EmbeddedBroker() as broker:
        messages = read_archive(spark, tapped)
        assert replay(messages, broker.url, destination="queue:again", dry_run=True).selected == ORDERS
        assert replay(messages, broker.url, destination="queue:again", selector="country = 'IS'").selected == BAD
        with ConnectionFactory(broker.url).create_context() as context:
            assert len(list(context.create_browser(Queue("again")))) == BAD


@pytest.fixture(scope="module")
def kept(spark: Any, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("dead") / "archive")
    done = archive(spark, read_queues(spark, broker.url, "orders,DLQ.orders"), path)
    assert done.added == ORDERS
    return path


def test_reasons_and_what_they_have_in_common(spark: Any, kept: str) -> None:
    messages = read_archive(spark, kept)
    result = deadletters(messages, messages)
    assert (result.messages, result.normal) == (BAD, ORDERS - BAD)
    assert result.reasons == {("attempts", "queue:orders"): BAD}
    assert result.attempts == {6: BAD}
    assert sum(result.times.values()) == BAD
    assert result.time_to_fail.keys() == {50, 90, 99, 100}
    assert 0 <= result.time_to_fail[50] <= result.time_to_fail[100]
    found = {(each.property, each.value): each for each in result.values}
    assert found.keys() == {("country", "IS"), ("release", "2"), ("paid", None)}  # numbers occur once each
    iceland = found["country", "IS"]
    assert (iceland.type, iceland.dead, iceland.normal, iceland.dead_share, iceland.lift) == (
        "String",
        BAD,
        0,
        1.0,
        None,
    )
    assert found["release", "2"].type == "int"
    unpaid = found["paid", None]
    assert (unpaid.type, unpaid.dead, unpaid.normal) == (None, BAD, 0)


def test_a_lift(spark: Any, kept: str) -> None:
    """Two orders to Iceland are normal traffic."""
    from pyspark.sql import functions

    messages = read_archive(spark, kept)
    healthy = messages.filter("destination = 'queue:orders'")
    pretend = messages.withColumn("properties", messages.properties).filter("destination <> 'queue:orders'")
    clean = Changes().apply(pretend)  # without what makes them dead letters, and as other messages
    clean = clean.withColumn("message_id", functions.concat("message_id", functions.lit("x")))
    result = deadletters(pretend, healthy.unionByName(clean.limit(2)))
    iceland = next(each for each in result.values if (each.property, each.value) == ("country", "IS"))
    assert (iceland.dead, iceland.normal) == (BAD, 2)
    assert iceland.lift == pytest.approx((BAD / BAD) / (2 / (ORDERS - BAD + 2)))


def test_without_normal_traffic_and_without_dead_letters(spark: Any, kept: str) -> None:
    alone = deadletters(read_archive(spark, kept), values=2)
    assert (alone.messages, alone.normal, len(alone.values)) == (BAD, 0, 2)
    assert all(each.lift is None for each in alone.values)
    none = deadletters(read_archive(spark, kept).filter("destination = 'queue:orders'"))
    assert (none.messages, none.reasons, none.values, none.time_to_fail) == (0, {}, [], {})


def test_dead_letters_are_replayed_mended(spark: Any, kept: str, broker: EmbeddedBroker) -> None:
    """The selector sees them as they were archived; what makes them dead letters does not go with them."""
    from sievemq import Short

    changes = Changes(
        {"DLQ.orders": "queue:retry"}, {"country": "GL", "mended": Short(1), "odd 'name'": None} , ["release"]
    )  # fmt: skip
    with pytest.raises(Exception, match="odd 'name'"):
        changes.check()
    changes = Changes({"DLQ.orders": "queue:retry"}, {"country": "G'L", "mended": Short(1), "nil": None}, ["release"])
    url = broker.namespace("staging").url
    count = replay(read_archive(spark, kept), url, selector="country = 'IS'", changes=changes)
    assert count == Replayed(BAD, BAD, 0)
    with ConnectionFactory(url).create_context() as context:
        consumer = context.create_consumer(Queue("retry"))
        for number in range(0, ORDERS, 5):
            message = consumer.receive_no_wait()
            assert message is not None
            properties = {name: value for name, value in message.properties.items() if not name.startswith("JMSX")}
            assert properties == {"number": number, "country": "G'L", "mended": 1, "nil": None}
            assert type(properties["mended"]) is Short
        assert consumer.receive_no_wait() is None

"""A consumer on what other brokers take for a pattern: a warning says that it is a name."""

from __future__ import annotations

import warnings

import pytest

import sievemq.aio
from sievemq import ConnectionFactory, Destination, DestinationNameWarning, JMSContext, Queue, Topic, WildcardWarning

from .both import Api

PATTERNS = ["prices.*", "prices/#", "prices.>", "*", "#", "prices/+/eu", "prices.*.eu", "orders*"]
NAMES = ["prices", "prices.eu", "lang.c#", "a+b", "a>b", "prices/eu", "#1"]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_consumer_on_a_pattern_warns_at_the_line_of_the_application(sievemq_context: JMSContext, name: str) -> None:
    destinations: list[Destination] = [Topic(name), Queue(name)]
    for destination in destinations:
        with pytest.warns(WildcardWarning, match=r"is a name and no pattern.*select by a property") as told:
            sievemq_context.create_consumer(destination)
        assert told[0].filename == __file__
    with pytest.warns(WildcardWarning):
        sievemq_context.create_shared_consumer(Topic(name), "all")
    sievemq_context.create_producer().send(Topic(name), "a producer knows what it sends to")


async def test_every_way_to_subscribe_warns(api: Api) -> None:
    context, session = await api.context(client_id="one"), await api.session(client_id="two")
    topic, queue = Topic("prices.*"), Queue("orders.*")
    for owner in (context, session):
        for create, arguments in (
            (owner.create_consumer, (topic,)), (owner.create_consumer, (queue,)),
            (owner.create_shared_consumer, (topic, "shared")), (owner.create_durable_consumer, (topic, "durable")),
            (owner.create_shared_durable_consumer, (topic, "both")),
        ):  # fmt: skip
            with pytest.warns(WildcardWarning):
                await create(*arguments)
    with pytest.warns(WildcardWarning):
        await session.create_durable_subscriber(topic, "more")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_does_not(sievemq_context: JMSContext, name: str) -> None:
    sievemq_context.create_consumer(Topic(name))  # warnings are errors


async def test_a_consumer_of_asyncio_warns_too(sievemq_url: str) -> None:
    async with await sievemq.aio.ConnectionFactory(sievemq_url).create_context() as context:
        with pytest.warns(WildcardWarning) as told:
            await context.create_consumer(Topic("prices.*"))
    assert told[0].filename == __file__


@pytest.mark.parametrize("name", ["orders?consumer.prefetchSize=1", "a,b", "/queue/orders", "/exchange/a/b"])
async def test_a_consumer_on_another_notation_of_other_brokers_warns(api: Api, name: str) -> None:
    context = await api.context()
    with pytest.warns(DestinationNameWarning, match="is (one|a) name"):
        await context.create_consumer(Queue(name))


def test_the_warning_can_be_an_error(sievemq_url: str) -> None:
    with ConnectionFactory(sievemq_url).create_context() as context, warnings.catch_warnings():
        warnings.simplefilter("error", WildcardWarning)
        with pytest.raises(WildcardWarning):
            context.create_consumer(Topic("prices.*"))

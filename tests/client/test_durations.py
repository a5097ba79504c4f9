"""A length of time is a timedelta wherever the API takes one; an int is milliseconds, and anything else is an error."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module

import pytest

import sievemq
from sievemq import JMSException, Message, Queue, TextMessage
from sievemq.url import ClientOptions
from sievemq_core.durations import milliseconds, seconds

from .both import SOON, Api

MINUTE = timedelta(minutes=1)
WRONG = [0.5, "5", True, -1, timedelta(seconds=-1)]


def test_a_timedelta_is_rounded_up_to_a_whole_millisecond() -> None:
    assert [milliseconds("t", timedelta(microseconds=n)) for n in (0, 1, 1000, 1001)] == [0, 1, 1, 2]
    assert (milliseconds("t", 7), milliseconds("t", timedelta.max)) == (7, 86_400_000_000_000_000)


@pytest.mark.parametrize("wrong", [*WRONG, None])
def test_invalid_durations_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"^a timeout (is a timedelta or|cannot be negative)"):
        milliseconds("a timeout", wrong)


@pytest.mark.parametrize("wrong", ["5", True, -0.1, float("nan"), None, timedelta(seconds=-1)])
def test_invalid_numbers_of_seconds_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"^within (is a timedelta or|cannot be negative)"):
        seconds("within", wrong)


async def test_a_receive_waits_for_a_timedelta(api: Api) -> None:
    broker = api.start_broker()
    consumers = [
        await (await (await api.connect()).create_session()).create_consumer(api.queue()),
        await (await api.context()).create_consumer(api.queue()),
    ]
    for consumer in consumers:
        waiting = api.task(consumer.receive(MINUTE))
        await api.until_receiving(consumer)
        await broker.clock.advance(MINUTE)
        assert await waiting is None


async def test_a_receive_of_a_body_waits_for_a_timedelta(api: Api) -> None:
    broker = api.start_broker()
    consumer = await (await api.context()).create_consumer(api.queue())
    waiting = api.task(consumer.receive_body(str, MINUTE))
    await api.until_receiving(consumer)
    await broker.clock.advance(MINUTE)
    assert await waiting is None


@pytest.mark.parametrize("wrong", [*WRONG, timedelta(0)])
async def test_a_receive_refuses_invalid_timeouts(api: Api, wrong: object) -> None:
    consumer = await (await api.context()).create_consumer(api.queue())
    for receive in (consumer.receive, lambda timeout: consumer.receive_body(str, timeout)):
        with pytest.raises(ValueError, match="a timeout"):
            await receive(wrong)


async def test_time_to_live_and_delay_of_a_producer(api: Api) -> None:
    broker = api.start_broker()
    light = (await api.context()).create_producer().set_time_to_live(2 * MINUTE).set_delivery_delay(MINUTE)
    classic = await (await api.session()).create_producer(Queue("orders"))
    classic.set_time_to_live(2 * MINUTE)
    classic.set_delivery_delay(MINUTE)
    for producer in (light, classic):
        assert (producer.get_time_to_live(), producer.get_delivery_delay()) == (120_000, 60_000)
        producer.set_send_timeout(MINUTE)
        assert producer.get_send_timeout() == 60_000
    await light.send(Queue("orders"), "light")
    await classic.send(TextMessage("classic"))
    await classic.send(TextMessage("short"), time_to_live=timedelta(seconds=61))
    assert await api.left() == []
    await broker.clock.advance(MINUTE)
    assert await api.left() == ["light", "classic", "short"]
    await broker.clock.advance(timedelta(seconds=2))
    assert await api.left() == ["light", "classic"]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_producer_refuses_invalid_durations(api: Api, wrong: object) -> None:
    light = (await api.context()).create_producer()
    classic = await (await api.session()).create_producer(Queue("orders"))
    for producer in (light, classic):
        for setter in (producer.set_time_to_live, producer.set_delivery_delay, producer.set_send_timeout):
            with pytest.raises(JMSException, match=r"timedelta|negative"):
                setter(wrong)
    with pytest.raises(JMSException, match=r"^a time to live"):
        await classic.send(Message(), time_to_live=wrong)


def test_options_of_a_factory() -> None:
    times = dict.fromkeys(("heartbeat", "connect_timeout", "reconnect", "request_timeout", "send_timeout"), MINUTE)
    options = ClientOptions(**times, busy_poll=timedelta(microseconds=70))
    assert {getattr(options, name) for name in times} == {60_000}
    assert options.busy_poll == 70
    assert repr(sievemq.ConnectionFactory("sievemq://a", reconnect=timedelta(hours=1))).endswith("reconnect=3600000')")
    with pytest.raises(ValueError, match=r"reconnect must be a timedelta, or milliseconds .*, not 0\.5"):
        ClientOptions(reconnect=0.5)
    with pytest.raises(ValueError, match=r"reconnect must be .*, not False"):
        ClientOptions(reconnect=False)
    with pytest.raises(ValueError, match=r"reconnect must be .*, not 172800000"):
        ClientOptions(reconnect=timedelta(days=2))


async def test_the_clock_of_a_broker_moves_by_a_timedelta(api: Api) -> None:
    clock = api.start_broker().clock
    clock.freeze()
    before = clock.now()
    await clock.advance(MINUTE)
    await clock.advance(MINUTE, seconds=1, milliseconds=1)
    assert clock.now() - before == 2 * MINUTE + timedelta(milliseconds=1001)
    with pytest.raises(TypeError, match=r"write advance\(seconds="):
        clock.advance(60)
    with pytest.raises(ValueError, match="advances by 0 or more"):
        clock.advance(timedelta(seconds=-1))


async def test_a_short_receive_ends(api: Api) -> None:
    consumer = await (await api.context()).create_consumer(api.queue())
    assert await consumer.receive(timedelta(microseconds=1)) is None
    await api.fill("orders", "one")
    assert await consumer.receive_body(str, timedelta(milliseconds=SOON)) == "one"


@pytest.mark.parametrize("transport", ["blocking", "aio"])
def test_no_message_is_stamped_with_a_millisecond_that_has_not_begun(transport: str) -> None:
    """A float of seconds is rounded, so that a message could outlive its time by one."""
    wall_clock = import_module(f"sievemq.{transport}.transport").wall_clock
    assert wall_clock(lambda: 1_700_000_000_000_999_999) == 1_700_000_000_000
    assert wall_clock(lambda: 1_700_000_000_001_000_000) == 1_700_000_000_001

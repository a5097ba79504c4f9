"""CompletionListener and asynchronous sends (section 12 of the API map, §7.3)."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.both import Api, text

from sievemq import (
    BytesMessage,
    IllegalStateException,
    IllegalStateRuntimeException,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageFormatException,
    StreamMessage,
    TextMessage,
    UnsupportedOperationError,
)


async def test_cpl_01_once_and_as_certain_as_a_returned_send(api: Api) -> None:
    """The message is on the queue when the callback is called."""
    session = await api.session()
    producer = await session.create_producer(api.queue())
    shown = []

    async def act(message: Message, error: Exception | None) -> None:
        browser = await session.create_browser(api.queue())
        shown.append([text(each) async for each in browser])

    completions = api.completions(act)
    for number in range(3):
        await producer.send(TextMessage(str(number)), completion_listener=completions)
        await completions.arrived(number + 1)
    await producer.close()
    assert completions.errors == []
    assert [body[-1] for body in shown] == ["0", "1", "2"]
    assert len(completions.outcomes) == 3


async def test_cpl_02_a_failure_that_the_call_could_not_raise(api: Api) -> None:
    owner = await api.session()
    vanished = await owner.create_temporary_queue()
    producer = await (await api.session()).create_producer()
    await vanished.delete()
    completions = api.completions()
    message = TextMessage("one")
    await producer.send(vanished, message, completion_listener=completions)
    (failed,) = await completions.arrived(1)
    assert failed[0] is message
    assert isinstance(failed[1], InvalidDestinationException)


async def test_cpl_03_cpl_04_a_raised_exception_is_not_passed_to_the_listener(api: Api) -> None:
    session = await api.session()
    producer = await session.create_producer(api.queue())
    unidentified = await session.create_producer()
    completions = api.completions()
    message = TextMessage("one")
    with pytest.raises(JMSException):
        await producer.send(message, priority=10, completion_listener=completions)
    with pytest.raises(JMSException):
        await producer.send(message, delivery_mode=7, completion_listener=completions)
    with pytest.raises(MessageFormatException):
        await producer.send(None, completion_listener=completions)
    with pytest.raises(UnsupportedOperationError):
        await producer.send(api.queue(), message, completion_listener=completions)
    with pytest.raises(InvalidDestinationException):
        await unidentified.send(None, message, completion_listener=completions)
    with pytest.raises(ValueError):
        await producer.send(message, completion_listener=None)
    await session.close()
    assert completions.outcomes == []
    assert await api.left() == []


async def test_cpl_05_never_before_the_send_has_returned(api: Api) -> None:
    """Nor in the thread of control that sends."""
    producer = await (await api.session()).create_producer(api.queue())
    me = asyncio.current_task()
    events: list[str] = []
    callers = []

    def act(message: Message, error: Exception | None) -> None:
        events.append(f"called {text(message)}")
        if api.world == "aio":
            callers.append(asyncio.current_task())

    completions = api.completions(act)
    for number in range(50):
        # The blocking call runs on another thread: its return is seen here a little later than it happened.
        events.append(f"sending {number}")
        await producer.send(TextMessage(str(number)), completion_listener=completions)
        events.append(f"returned {number}")
    await completions.arrived(50)
    earlier = "returned" if api.world == "aio" else "sending"
    for number in range(50):
        assert events.index(f"{earlier} {number}") < events.index(f"called {number}")
    assert me not in callers


async def test_cpl_06_one_callback_at_a_time_in_a_session(api: Api) -> None:
    session = await api.session()
    other = await api.session()
    running, most = 0, 0

    async def act(message: Message, error: Exception | None) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await other.create_producer(api.queue())  # waits, so that another call could begin
        running -= 1

    completions = api.completions(act)
    producers = [await session.create_producer(api.queue(name)) for name in ("a", "b", "c")]
    for _ in range(5):
        for producer in producers:
            await producer.send(TextMessage("x"), completion_listener=completions)
    await completions.arrived(15)
    assert completions.errors == []
    assert most == 1


async def test_cpl_07_in_the_order_of_the_calls(api: Api) -> None:
    """Success and failure alike."""
    vanished = await (await api.session()).create_temporary_queue()
    producer = await (await api.session()).create_producer()
    await vanished.delete()
    completions = api.completions()
    for number in range(20):
        to = vanished if number % 3 == 0 else api.queue()
        await producer.send(to, TextMessage(str(number)), completion_listener=completions)
    outcomes = await completions.arrived(20)
    assert [(text(message), error is None) for message, error in outcomes] == [
        (str(number), number % 3 != 0) for number in range(20)
    ]


async def test_cpl_07_jpr_10_in_the_order_of_the_calls_of_a_context(api: Api) -> None:
    """Over all its producers."""
    context = await api.context()
    completions = api.completions()
    producers = [context.create_producer().set_async(completions) for _ in range(3)]
    for number in range(21):
        await producers[number % 3].send(api.queue(), str(number))
    outcomes = await completions.arrived(21)
    assert [(text(message), error) for message, error in outcomes] == [(str(number), None) for number in range(21)]
    assert producers[0].get_async() is completions
    producers[0].set_async(None)
    assert producers[0].get_async() is None


async def test_cpl_08_ord_09_sync_and_async_sends_keep_their_order(api: Api) -> None:
    session = await api.session()
    producer = await session.create_producer(api.queue())
    completions = api.completions()
    for number in range(30):
        if number % 3 == 2:
            await producer.send(TextMessage(str(number)))
        else:
            await producer.send(TextMessage(str(number)), completion_listener=completions)
    await completions.arrived(20)
    assert await api.left() == [str(number) for number in range(30)]


@pytest.mark.parametrize("closed", ["producer", "session", "connection"])
async def test_cpl_09_clo_23_pro_08_close_waits_for_sends_and_callbacks(api: Api, closed: str) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    begun, go = api.signal(), api.signal()

    async def act(message: Message, error: Exception | None) -> None:
        begun.set()
        await go.wait()

    completions = api.completions(act)
    for number in range(10):
        await producer.send(TextMessage(str(number)), completion_listener=completions)
    await begun.wait()
    closing = api.task({"producer": producer, "session": session, "connection": connection}[closed].close())
    await api.left("nothing")
    assert not closing.done()
    go.set()
    await closing
    assert [error for _, error in completions.outcomes] == [None] * 10
    assert await api.left() == [str(number) for number in range(10)]


async def test_cpl_09_ctx_08_a_context_waits_likewise(api: Api) -> None:
    context = await api.context()
    completions = api.completions()
    producer = context.create_producer().set_async(completions)
    for number in range(10):
        await producer.send(api.queue(), str(number))
    await context.close()
    assert [error for _, error in completions.outcomes] == [None] * 10


async def test_cpl_11_clo_13_a_callback_cannot_close_its_producer_session_or_connection(api: Api) -> None:
    connection = await api.connect()
    session = await connection.create_session()
    producer = await session.create_producer(api.queue())
    context = await api.context()
    refused: list[type[Exception]] = []

    def refuses(*calls: object) -> object:
        async def act(message: Message, error: Exception | None) -> None:
            for call in calls:
                try:
                    await call()
                except IllegalStateException as refusal:
                    refused.append(type(refusal))

        return act

    completions = api.completions(refuses(producer.close, session.close, connection.close))
    await producer.send(TextMessage("one"), completion_listener=completions)
    await completions.arrived(1)
    assert refused == [IllegalStateException] * 3
    completions = api.completions(refuses(context.close))
    await context.create_producer().set_async(completions).send(api.queue(), "one")
    await completions.arrived(1)
    assert refused[3:] == [IllegalStateRuntimeException]


async def test_cpl_12_cpl_17_other_calls_of_the_session_still_work(api: Api) -> None:
    """In the callback, and meanwhile outside of it."""
    session = await api.session()
    producer = await session.create_producer(api.queue())
    begun, go = api.signal(), api.signal()

    async def act(message: Message, error: Exception | None) -> None:
        begun.set()
        await go.wait()
        await producer.send(TextMessage(f"after {text(message)}"))

    completions = api.completions(act)
    await producer.send(TextMessage("one"), completion_listener=completions)
    await begun.wait()
    await producer.send(TextMessage("two"))
    consumer = await session.create_consumer(api.queue())
    assert await api.texts(consumer, 2) == ["one", "two"]
    go.set()
    assert await api.texts(consumer, 1) == ["after one"]
    await completions.arrived(1)
    assert completions.errors == []


async def test_cpl_14_hdr_14_provider_headers_in_the_callback(api: Api) -> None:
    producer = await (await api.session()).create_producer(api.queue())
    seen = []

    def act(message: Message, error: Exception | None) -> None:
        seen.append((message.get_jms_message_id(), message.get_jms_destination(), message.get_jms_timestamp()))

    completions = api.completions(act)
    message = TextMessage("one")
    await producer.send(message, completion_listener=completions)
    await completions.arrived(1)
    ((identity, destination, timestamp),) = seen
    assert identity.startswith("ID:")
    assert destination == api.queue()
    assert timestamp > 0


async def test_cpl_15_mod_09_bytes_and_streams_can_be_read_in_the_callback(api: Api) -> None:
    producer = await (await api.session()).create_producer(api.queue())
    binary, stream = BytesMessage(), StreamMessage()
    binary.write_int(7)
    stream.write_string("seven")
    read = []

    def act(message: Message, error: Exception | None) -> None:
        read.append(message.read_int() if message is binary else message.read_string())

    completions = api.completions(act)
    await producer.send(binary, completion_listener=completions)
    await producer.send(stream, completion_listener=completions)
    await completions.arrived(2)
    assert completions.errors == []
    assert read == [7, "seven"]


async def test_cpl_18_a_callback_may_stop_the_connection(api: Api) -> None:
    connection = await api.connect()
    producer = await (await connection.create_session()).create_producer(api.queue())
    context = await api.context()

    async def stop(message: Message, error: Exception | None) -> None:
        await connection.stop()
        await context.stop()

    completions = api.completions(stop)
    await producer.send(TextMessage("one"), completion_listener=completions)
    await completions.arrived(1)
    assert completions.errors == []


async def test_pro_24_py_22_a_pair_of_callables(api: Api) -> None:
    producer = await (await api.session()).create_producer(api.queue())
    got, done = [], api.signal()

    def completed(message: Message) -> None:
        got.append(text(message))
        done.set()

    def failed(message: Message, error: Exception) -> None:
        got.append(error)

    await producer.send(TextMessage("one"), completion_listener=(completed, failed))
    await done.wait()
    assert got == ["one"]
    for wrong in (1, "x", (completed,), object()):
        with pytest.raises(TypeError):
            await producer.send(TextMessage("one"), completion_listener=wrong)

"""ConnectionMetaData (section 6 of the API map), ExceptionListener (section 7), shared use of a connection (§2.14)."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.client.both import SOON, Api, text

from sievemq import (
    InvalidDestinationException,
    JMSContext,
    JMSException,
    JMSRuntimeException,
    Message,
    SessionMode,
    TextMessage,
)


async def test_met_01_met_02_the_version_of_the_specification(api: Api) -> None:
    data = (await api.connect()).get_meta_data()
    assert data.get_jms_version() == "3.1"
    assert (data.get_jms_major_version(), data.get_jms_minor_version()) == (3, 1)


async def test_objects_of_the_api_have_a_repr_of_their_own(api: Api) -> None:
    connection, session = await api.connect(), await api.session()
    browser = await session.create_browser(api.queue())
    assert repr(browser) == "<QueueBrowser queue:orders>"
    assert re.fullmatch(r"<ConnectionMetaData Jakarta Messaging 3\.1, SieveMQ/\S+>", repr(connection.get_meta_data()))


@pytest.mark.parametrize(
    ("text", "meant"),
    [("transacted", "SESSION_TRANSACTED"), ("auto", "AUTO_ACKNOWLEDGE"), ("client_acknowledge", "CLIENT_ACKNOWLEDGE")]
    + [(name, name) for name in SessionMode.__members__],
)
async def test_fac_04_text_is_no_session_mode(api: Api, text: str, meant: str) -> None:
    with pytest.raises(JMSRuntimeException, match=f"; the session mode is JMSContext.{meant}$"):
        await api.factory().create_context(text)


async def test_fac_05_a_user_name_needs_a_password(api: Api) -> None:
    with pytest.raises(JMSRuntimeException, match=r"'anna'.* needs a password, .*JMSContext.DUPS_OK_ACKNOWLEDGE$"):
        await api.factory().create_context("anna")
    with pytest.raises(JMSRuntimeException, match="needs a password"):
        await api.factory().create_context(user_name="anna", session_mode=api.SESSION_TRANSACTED)


@pytest.mark.parametrize("mode", ["transacted", 4, -1, True, 1.0])
async def test_con_02_a_wrong_session_mode_names_the_modes(api: Api, mode: object) -> None:
    named = "SESSION_TRANSACTED, AUTO_ACKNOWLEDGE, CLIENT_ACKNOWLEDGE, DUPS_OK_ACKNOWLEDGE"
    with pytest.raises(JMSRuntimeException, match=named):
        await api.factory().create_context(session_mode=mode)
    with pytest.raises(JMSRuntimeException, match=named):
        await (await api.context()).create_context(mode)
    connection = await api.connect()
    with pytest.raises(JMSException, match=named):
        await connection.create_session(session_mode=mode)


async def test_con_01_con_02_con_03_ses_10_ses_11_kinds_of_session(api: Api) -> None:
    connection = await api.connect()
    assert (await connection.create_session()).get_acknowledge_mode() == api.AUTO_ACKNOWLEDGE
    for mode in range(4):
        session = await connection.create_session(mode)
        assert session.get_acknowledge_mode() == mode
        assert session.get_transacted() is (mode == api.SESSION_TRANSACTED)
        assert (await connection.create_session(session_mode=mode)).get_acknowledge_mode() == mode
    assert (await connection.create_session(True, api.CLIENT_ACKNOWLEDGE)).get_acknowledge_mode() == 0
    assert (await connection.create_session(False, api.CLIENT_ACKNOWLEDGE)).get_acknowledge_mode() == 2
    for wrong in ((-1,), (4,), (False, 0), (1, 2)):
        with pytest.raises(JMSException):
            await connection.create_session(*wrong)
    with pytest.raises(TypeError, match="takes a session_mode, or transacted"):
        await connection.create_session(True, session_mode=1)


async def test_con_02_the_mode_is_an_enum(api: Api) -> None:
    assert (await api.context(2)).get_session_mode() is SessionMode.CLIENT_ACKNOWLEDGE
    assert (await api.session(0)).get_acknowledge_mode() is JMSContext.SESSION_TRANSACTED


@pytest.mark.parametrize("credentials", [(1.0,), (b"me", "secret"), ("me", b"secret"), (None, 5)])
async def test_fac_05_credentials_are_text(api: Api, credentials: tuple[object, ...]) -> None:
    with pytest.raises(JMSRuntimeException, match="is text, not"):
        await api.factory().create_context(*credentials)


async def test_met_03_met_04_met_05_the_provider(api: Api) -> None:
    for data in ((await api.connect()).get_meta_data(), (await api.context()).get_meta_data()):
        assert data.get_jms_provider_name() == "SieveMQ"
        major, minor = data.get_provider_major_version(), data.get_provider_minor_version()
        assert data.get_provider_version().split(".")[:2] == [str(major), str(minor)]


async def test_met_06_every_listed_property_is_carried_or_set(api: Api) -> None:
    """JSX-01 … JSX-03: the names that the metadata lists, and no more, are given to a receiver."""
    connection = await api.connect()
    listed = list(connection.get_meta_data().get_jmsx_property_names())
    assert sorted(listed) == ["JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq"]
    session = await connection.create_session()
    message = TextMessage("grouped")
    message.set_string_property("JMSXGroupID", "g")
    message.set_int_property("JMSXGroupSeq", 1)
    await (await session.create_producer(api.queue())).send(message)
    received = await (await session.create_consumer(api.queue())).receive(SOON)
    assert sorted(name for name in received.get_property_names() if name.startswith("JMSX")) == sorted(listed)


async def test_exl_03_a_raised_exception_is_not_reported_again(api: Api) -> None:
    broker = api.start_broker()
    reports = api.reports()
    connection = await api.connect(reconnect=0)
    connection.set_exception_listener(reports)
    session = await connection.create_session()
    gone = await session.create_temporary_queue()
    await gone.delete()
    with pytest.raises(InvalidDestinationException):
        await (await session.create_producer()).send(gone, TextMessage("nowhere"))
    with pytest.raises(JMSException):
        await session.create_consumer(api.queue(), "= =")
    with pytest.raises(InvalidDestinationException):
        await session.unsubscribe("nobody")
    assert await (await session.create_consumer(api.queue())).receive_no_wait() is None  # the broker has said it all
    broker.drop_connections()
    heard = await reports.arrived()
    # Reports come one after the other, so the loss would have been preceded by what was raised.
    assert len(heard) == 1
    assert not isinstance(heard[0], InvalidDestinationException)


async def test_exl_06_a_contexts_listener_gets_the_checked_class(api: Api) -> None:
    broker = api.start_broker()
    reports = api.reports()
    context = await api.context(reconnect=0)
    context.set_exception_listener(reports)
    assert context.get_exception_listener() is not None
    broker.drop_connections()
    heard = await reports.arrived()
    assert isinstance(heard[0], JMSException)
    assert not isinstance(heard[0], JMSRuntimeException)


async def test_con_20_clo_14_stop_and_close_do_not_wait_for_an_exception_listener(api: Api) -> None:
    """A report that loses nothing: an unconfirmed send to a queue that is gone. The connection lives on."""
    running, go = api.signal(), api.signal()
    connection = await api.connect()

    async def on_exception(error: JMSException) -> None:
        running.set()
        await go.wait()

    connection.set_exception_listener(on_exception)
    session = await connection.create_session()
    gone = await session.create_temporary_queue()
    producer = await session.create_producer(gone)
    await gone.delete()
    await producer.send(TextMessage("nowhere"), delivery_mode=1)
    await running.wait()
    await connection.stop()
    await connection.start()
    await connection.stop()
    await connection.close()
    assert not go.is_set
    go.set()


async def test_thr_01_fac_08_factory_connection_and_destination_are_shared_by_threads_of_control(api: Api) -> None:
    factory, connection, queue = api.factory(), await api.connect(), api.queue()

    async def work(number: int) -> None:
        for turn in range(5):
            session = await connection.create_session()
            await (await session.create_producer(queue)).send(TextMessage(f"{number}.{turn}"))
            await session.close()
            async with await factory.create_connection() as other:
                assert other.get_client_id() is None
            await connection.start()

    await asyncio.gather(*(api.task(work(number)) for number in range(6)))
    consumer = await (await connection.create_session()).create_consumer(queue)
    received = [text(await consumer.receive(SOON)) or "" for _ in range(30)]
    assert sorted(received) == sorted(f"{number}.{turn}" for number in range(6) for turn in range(5))
    for number in range(6):  # each session's messages in its order
        assert [name for name in received if name.startswith(f"{number}.")] == [f"{number}.{turn}" for turn in range(5)]


async def test_thr_04_a_session_with_a_listener_belongs_to_its_delivery_thread(api: Api) -> None:
    """Another thread of control is refused where its call would disturb the listener's (THR-06); close is allowed."""
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    listening = await session.create_consumer(api.queue("listening"))
    listener = api.listener()
    listening.set_message_listener(listener)
    other = await session.create_consumer(api.queue("other"))
    for receive in (other.receive, other.receive_no_wait, listening.receive):
        with pytest.raises(JMSException):
            await receive()
    await api.fill("listening", "one")
    assert [text(message) for message in await listener.arrived(1)] == ["one"]
    await api.task(session.close())
    with pytest.raises(JMSException):
        session.create_message()


async def test_py_04_a_call_that_waits_returns_when_it_is_done(api: Api) -> None:
    """The broker has the message when send has returned, and has lost it when receive has and the session is closed."""
    session = await api.session()
    producer = await session.create_producer(api.queue())
    for number in range(3):
        await producer.send(TextMessage(str(number)))
        assert await api.left() == [str(n) for n in range(number + 1)]
    consumer = await session.create_consumer(api.queue())
    waiting = api.task(consumer.receive())
    first: Message = await waiting
    assert text(first) == "0"
    await session.close()
    assert await api.left() == ["1", "2"]

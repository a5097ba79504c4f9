"""Local transactions (section 25 of the API map, §6.2.7)."""

from __future__ import annotations

import pytest
from tests.client.both import SOON, Api, outline, text

from sievemq import (
    DeliveryMode,
    IllegalStateException,
    IllegalStateRuntimeException,
    JMSException,
    Message,
    Queue,
    TextMessage,
    Topic,
    TransactionRolledBackException,
)


async def test_txn_01_a_transaction_follows_the_other(api: Api) -> None:
    """Nothing begins one; commit and rollback end one and begin the next."""
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    for body, end in (("1", session.commit), ("2", session.rollback), ("3", session.commit), ("4", None)):
        await producer.send(TextMessage(body))
        if end is not None:
            await end()
    assert await api.left() == ["1", "3"]


async def test_txn_01_ending_an_empty_transaction(api: Api) -> None:
    session = await api.session(api.SESSION_TRANSACTED)
    await session.commit()
    await session.rollback()
    await session.commit()


@pytest.mark.parametrize("mode", [DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT])
@pytest.mark.parametrize("destination", [Queue("orders"), Topic("prices")], ids=str)
async def test_txn_02_brw_08_sends_show_after_commit(api: Api, destination: Queue | Topic, mode: int) -> None:
    """To consumers and to browsers."""
    consumer = await (await api.session()).create_consumer(destination)
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(destination)
    await producer.send(TextMessage("one"), delivery_mode=mode)
    await producer.send(TextMessage("two"), delivery_mode=mode)
    assert await consumer.receive_no_wait() is None
    if isinstance(destination, Queue):
        assert await api.left(destination) == []
    await session.commit()
    assert await api.texts(consumer, 2) == ["one", "two"]


async def test_txn_03_received_is_acknowledged_by_commit(api: Api) -> None:
    await api.fill("orders", "one", "two", "three")
    session = await api.session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 2)
    await session.commit()
    await api.texts(consumer, 1)
    await session.close()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 1) == [("three", True, 2)]
    assert await again.receive_no_wait() is None


async def test_txn_04_rollback(api: Api) -> None:
    """What was sent vanishes, what was received comes again, marked; what was only buffered comes unmarked."""
    await api.fill("orders", "one", "two", "three")
    session = await api.session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 2)
    await (await session.create_producer(api.queue("answers"))).send(TextMessage("never"))
    await session.rollback()
    assert await api.left("answers") == []
    assert await api.outlines(consumer, 3) == [("one", True, 2), ("two", True, 2), ("three", False, 1)]
    await session.commit()
    await session.close()
    assert await api.left() == []


@pytest.mark.parametrize("closed", ["session", "connection"])
@pytest.mark.parametrize("rolled_back", [False, True])
async def test_txn_05_txn_06_clo_02_close_rolls_back(api: Api, closed: str, rolled_back: bool) -> None:
    """With or without an explicit rollback before, the same messages are there again."""
    await api.fill("orders", "one", "two")
    connection = await api.connect()
    session = await connection.create_session(api.SESSION_TRANSACTED)
    await api.texts(await session.create_consumer(api.queue()), 2)
    await (await session.create_producer(api.queue("answers"))).send(TextMessage("never"))
    if rolled_back:
        await session.rollback()
    await {"session": session, "connection": connection}[closed].close()
    assert await api.left("answers") == []
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 2) == [("one", True, 2), ("two", True, 2)]


async def test_txn_05_a_lost_connection_rolls_back(api: Api) -> None:
    broker = api.start_broker()
    await api.fill("orders", "one")
    session = await api.session(api.SESSION_TRANSACTED, reconnect=0)
    await api.texts(await session.create_consumer(api.queue()), 1)
    await (await session.create_producer(api.queue("answers"))).send(TextMessage("never"))
    broker.drop_connections()
    again = await (await api.session()).create_consumer(api.queue())
    assert await api.outlines(again, 1) == [("one", True, 2)]
    assert await api.left("answers") == []


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_txn_07_a_consumer_closed_before_the_end(api: Api, end: str) -> None:
    await api.fill("orders", "one", "two")
    session = await api.session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.queue())
    await api.texts(consumer, 1)
    await consumer.close()
    other = await (await api.session()).create_consumer(api.queue())
    assert await api.texts(other, 1) == ["two"]
    assert await other.receive_no_wait() is None
    await getattr(session, end)()
    if end == "commit":
        assert await other.receive_no_wait() is None
    else:
        assert await api.outlines(other, 1) == [("one", True, 2)]


@pytest.mark.parametrize("mode", [Api.AUTO_ACKNOWLEDGE, Api.CLIENT_ACKNOWLEDGE, Api.DUPS_OK_ACKNOWLEDGE])
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_txn_08_ses_12_ses_13_ctx_11_no_transaction_to_end(api: Api, mode: int, end: str) -> None:
    with pytest.raises(IllegalStateException):
        await getattr(await api.session(mode), end)()
    with pytest.raises(IllegalStateRuntimeException):
        await getattr(await api.context(mode), end)()


async def test_txn_09_exc_13_a_commit_that_cannot_complete_is_a_rollback(api: Api) -> None:
    """One destination has vanished: nothing is sent, nothing acknowledged, and the session goes on."""
    await api.fill("orders", "one", "two")
    owner = await api.session()
    vanishing = await owner.create_temporary_queue()
    session = await api.session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.queue())
    producer = await session.create_producer()
    await api.texts(consumer, 1)
    await producer.send(api.queue("answers"), TextMessage("never"))
    await producer.send(vanishing, TextMessage("never"))
    await vanishing.delete()
    with pytest.raises(TransactionRolledBackException):
        await session.commit()
    assert await api.left("answers") == []
    assert await api.outlines(consumer, 2) == [("one", True, 2), ("two", False, 1)]
    await producer.send(api.queue("answers"), TextMessage("answer"))
    await session.commit()
    assert await api.left("answers") == ["answer"]
    await session.close()
    assert await api.left() == []


async def test_txn_09_d_24_a_send_to_nowhere_shows_at_commit(api: Api) -> None:
    owner = await api.session()
    vanished = await owner.create_temporary_queue()
    await vanished.delete()
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer()
    await producer.send(vanished, TextMessage("never"))
    with pytest.raises(TransactionRolledBackException):
        await session.commit()
    await session.commit()


async def test_txn_10_all_or_nothing_over_destinations_and_directions(api: Api) -> None:
    await api.fill("a", "one")
    await api.fill("b", "two")
    watching = await (await api.session()).create_consumer(api.topic())
    for end, expected in (("rollback", []), ("commit", ["answer"])):
        session = await api.session(api.SESSION_TRANSACTED)
        for name in ("a", "b"):
            assert text(await (await session.create_consumer(api.queue(name))).receive(SOON)) is not None
        producer = await session.create_producer()
        await producer.send(api.queue("answers"), TextMessage("answer"))
        await producer.send(api.topic(), TextMessage("answer"))
        await getattr(session, end)()
        await session.close()
        assert await api.left("answers") == expected
        assert await api.left("a") == ([] if end == "commit" else ["one"])
        assert await api.left("b") == ([] if end == "commit" else ["two"])
        if end == "rollback":
            assert await watching.receive_no_wait() is None
    assert await api.texts(watching, 1) == ["answer"]


async def test_txn_11_no_reply_to_an_uncommitted_request(api: Api) -> None:
    answering = await (await api.session()).create_consumer(api.queue("requests"))
    session = await api.session(api.SESSION_TRANSACTED)
    request = session.create_text_message("?")
    request.set_jms_reply_to(await session.create_temporary_queue())
    await (await session.create_producer(api.queue("requests"))).send(request)
    assert await answering.receive_no_wait() is None
    await session.commit()
    assert await api.texts(answering, 1) == ["?"]


async def test_txn_12_ord_01_order_within_a_destination(api: Api) -> None:
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer()
    for number in range(20):
        await producer.send(api.queue("ab"[number % 2]), TextMessage(str(number)))
    await session.commit()
    assert await api.left("a") == [str(number) for number in range(0, 20, 2)]
    assert await api.left("b") == [str(number) for number in range(1, 20, 2)]


async def test_txn_13_con_03_the_acknowledge_mode_is_ignored(api: Api) -> None:
    connection = await api.connect()
    for mode in (api.AUTO_ACKNOWLEDGE, api.CLIENT_ACKNOWLEDGE, api.DUPS_OK_ACKNOWLEDGE):
        session = await connection.create_session(True, mode)
        assert session.get_transacted()
        assert session.get_acknowledge_mode() == api.SESSION_TRANSACTED
        await session.commit()


async def test_txn_14_hdr_03_times_are_those_of_the_send(api: Api) -> None:
    broker = api.start_broker()
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    producer.set_delivery_delay(30_000)
    message = TextMessage("one")
    completions = api.completions()
    await producer.send(message, time_to_live=600_000, completion_listener=completions)
    await completions.arrived(1)  # the broker has it, so the clock moves after the send for both ends
    sent = message.get_jms_timestamp()
    await broker.clock.advance(seconds=60)
    await session.commit()
    # EXP-11: the delay has passed since the send.
    received = await (await (await api.session()).create_consumer(api.queue())).receive(SOON)
    assert received.get_jms_timestamp() == sent
    assert received.get_jms_expiration() == sent + 600_000
    assert received.get_jms_delivery_time() == sent + 30_000


async def test_txn_15_cpl_10_commit_and_rollback_wait_for_asynchronous_sends(api: Api) -> None:
    """And for their callbacks."""
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    for end in (session.commit, session.rollback):
        completions = api.completions()
        for number in range(20):
            await producer.send(TextMessage(str(number)), completion_listener=completions)
        await end()
        assert [outcome for _, outcome in completions.outcomes] == [None] * 20
    assert await api.left() == [str(number) for number in range(20)]


async def test_cpl_11_clo_13_no_end_in_a_completion_callback(api: Api) -> None:
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    refused = []

    async def act(message: Message, error: Exception | None) -> None:
        for call in (session.commit, session.rollback, producer.close, session.close):
            try:
                await call()
            except IllegalStateException as refusal:
                refused.append(refusal)

    completions = api.completions(act)
    await producer.send(TextMessage("one"), completion_listener=completions)
    await completions.arrived(1)
    assert len(refused) == 4
    await session.commit()
    assert await api.left() == ["one"]


async def test_cpl_16_completion_is_not_visibility(api: Api) -> None:
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue())
    completions = api.completions()
    await producer.send(TextMessage("one"), completion_listener=completions)
    assert [error for _, error in await completions.arrived(1)] == [None]
    assert await api.left() == []
    await session.commit()
    assert await api.left() == ["one"]


async def test_txn_18_a_commit_that_fails_half_way_doubles_nothing(api: Api) -> None:
    """The client does not learn the result; the broker did all of it or nothing, here nothing."""
    broker = api.start_broker()
    await api.fill("orders", "one")
    session = await api.session(api.SESSION_TRANSACTED, reconnect=0)
    await api.texts(await session.create_consumer(api.queue()), 1)
    await (await session.create_producer(api.queue("answers"))).send(TextMessage("answer"))
    broker.drop_connections()
    with pytest.raises(JMSException):
        await session.commit()
    again = await api.session(api.SESSION_TRANSACTED)
    message = await (await again.create_consumer(api.queue())).receive(SOON)
    assert outline(message) == ("one", True, 2)
    await (await again.create_producer(api.queue("answers"))).send(TextMessage("answer"))
    await again.commit()
    await again.close()
    assert await api.left("answers") == ["answer"]
    assert await api.left() == []


async def test_ctx_10_ctx_11_a_contexts_transaction(api: Api) -> None:
    await api.fill("orders", "one")
    context = await api.context(api.SESSION_TRANSACTED)
    assert context.get_transacted()
    assert context.get_session_mode() == api.SESSION_TRANSACTED
    consumer = await context.create_consumer(api.queue())
    producer = context.create_producer()
    await api.texts(consumer, 1)
    await producer.send(api.queue("answers"), "never")
    await context.rollback()
    assert await api.outlines(consumer, 1) == [("one", True, 2)]
    await producer.send(api.queue("answers"), "answer")
    await context.commit()
    await context.close()
    assert await api.left() == []
    assert await api.left("answers") == ["answer"]


async def test_thr_06_no_commit_while_another_receives(api: Api) -> None:
    session = await api.session(api.SESSION_TRANSACTED)
    consumer = await session.create_consumer(api.queue())
    receiving = api.task(consumer.receive())
    await api.until_receiving(consumer)
    for end in (session.commit, session.rollback):
        with pytest.raises(IllegalStateException):
            await end()
    await session.close()
    assert await receiving is None

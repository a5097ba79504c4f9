"""MessageListener (section 15 of the API map, §8.7)."""

from __future__ import annotations

import logging

import pytest
from tests.client.both import SOON, Api, outline, text

from sievemq import IllegalStateException, Message, TextMessage

ITSELF = [Api.AUTO_ACKNOWLEDGE, Api.DUPS_OK_ACKNOWLEDGE]


async def test_lis_01_py_22_an_object_or_a_callable(api: Api) -> None:
    await api.fill("orders", "one")
    await api.fill("other", "two")
    session = await api.session()
    whole, plain = api.listener(), api.listener()
    (await session.create_consumer(api.queue())).set_message_listener(whole)
    (await session.create_consumer(api.queue("other"))).set_message_listener(plain.on_message)
    await whole.arrived(1)
    await plain.arrived(1)
    assert (whole.texts, plain.texts) == (["one"], ["two"])


async def test_lis_01_a_plain_function(api: Api) -> None:
    await api.fill("orders", "one", "two")
    got, done = [], api.signal()

    def on_message(message: Message) -> None:
        got.append(text(message))
        if len(got) == 2:
            done.set()

    (await (await api.session()).create_consumer(api.queue())).set_message_listener(on_message)
    await done.wait()
    assert got == ["one", "two"]


async def test_mco_02_the_listener_can_be_read_and_unset(api: Api) -> None:
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    assert consumer.get_message_listener() is None
    listener = api.listener()
    consumer.set_message_listener(listener)
    assert consumer.get_message_listener() is listener
    consumer.set_message_listener(None)
    assert consumer.get_message_listener() is None
    await api.fill("orders", "one")
    assert await api.texts(consumer, 1) == ["one"]
    assert listener.messages == []


async def test_lis_02_one_call_at_a_time_over_all_consumers_of_a_session(api: Api) -> None:
    connection = await api.connect(start=False)
    session = await connection.create_session()
    yielding = await (await api.connect()).create_session()
    running, most = 0, 0

    async def act(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        (await yielding.create_producer()).get_priority()  # waits, so that another call could begin
        running -= 1

    listener = api.listener(act)
    for name in ("a", "b", "c"):
        await api.fill(name, *map(str, range(5)))
        (await session.create_consumer(api.queue(name))).set_message_listener(listener)
    await connection.start()
    await listener.arrived(15)
    assert most == 1


async def test_lis_02_con_25_different_sessions_run_at_once(api: Api) -> None:
    """Each of two listeners ends only when the other one has begun."""
    await api.fill("a", "one")
    await api.fill("b", "one")
    connection = await api.connect()
    begun = {"a": api.signal(), "b": api.signal()}
    listeners = []
    for mine, other in (("a", "b"), ("b", "a")):

        async def act(message: Message, mine: str = mine, other: str = other) -> None:
            begun[mine].set()
            await begun[other].wait()

        listener = api.listener(act)
        listeners.append(listener)
        (await (await connection.create_session()).create_consumer(api.queue(mine))).set_message_listener(listener)
    for listener in listeners:
        await listener.arrived(1)


@pytest.mark.parametrize("mode", ITSELF)
async def test_lis_04_ack_22_d_33_a_raising_listener_gets_the_message_redelivered(api: Api, mode: int) -> None:
    """Before the later ones, marked."""

    def act(message: Message) -> None:
        if text(message) == "bad" and message.get_int_property("JMSXDeliveryCount") < 3:
            raise ValueError("not yet")

    await api.fill("orders", "bad", "good")
    listener = api.listener(act)
    session = await api.session(mode)
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    messages = await listener.arrived(4)
    assert [outline(message) for message in messages] == [
        ("bad", False, 1),
        ("bad", True, 2),
        ("bad", True, 3),
        ("good", False, 1),
    ]
    await session.close()
    assert await api.left() == []


@pytest.mark.parametrize("mode", ITSELF)
async def test_lis_04_ack_23_attempts_have_an_end(api: Api, mode: int) -> None:
    """Six by default, then the message is a dead letter and the next one comes."""

    def act(message: Message) -> None:
        if text(message) == "bad":
            raise ValueError("never")

    await api.fill("orders", "bad", "good")
    listener = api.listener(act)
    (await (await api.session(mode)).create_consumer(api.queue())).set_message_listener(listener)
    await listener.arrived(7)
    assert listener.texts == ["bad"] * 6 + ["good"]
    dead = await (await api.session()).create_consumer(api.queue("DLQ.orders"))
    assert await api.texts(dead, 1) == ["bad"]


async def test_lis_05_a_raising_listener_in_client_mode(api: Api) -> None:
    """The next message comes; the failed one stays unacknowledged until recover."""

    def act(message: Message) -> None:
        if text(message) == "bad" and not message.get_jms_redelivered():
            raise ValueError("no")

    await api.fill("orders", "bad", "good")
    listener = api.listener(act)
    session = await api.session(api.CLIENT_ACKNOWLEDGE)
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    await listener.arrived(2)
    assert listener.texts == ["bad", "good"]
    await session.recover()
    messages = await listener.arrived(4)
    assert [outline(message) for message in messages[2:]] == [("bad", True, 2), ("good", True, 2)]
    await listener.messages[-1].acknowledge()
    await session.close()
    assert await api.left() == []


async def test_lis_06_txn_16_a_raising_listener_in_a_transaction(api: Api) -> None:
    """The next message comes, nothing is rolled back: the commit covers both."""

    def act(message: Message) -> None:
        if text(message) == "bad":
            raise ValueError("no")

    await api.fill("orders", "bad", "good")
    listener = api.listener(act)
    session = await api.session(api.SESSION_TRANSACTED)
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    messages = await listener.arrived(2)
    assert [outline(message) for message in messages] == [("bad", False, 1), ("good", False, 1)]
    await session.commit()
    await session.close()
    assert await api.left() == []


async def test_lis_08_a_context_makes_later_listeners_safe(api: Api) -> None:
    """Each is set on a started connection whose session has a running listener already."""
    context = await api.context()
    listener = api.listener()
    for name in ("a", "b", "c"):
        await api.fill(name, *(f"{name}{number}" for number in range(20)))
        (await context.create_consumer(api.queue(name))).set_message_listener(listener)
    await listener.arrived(60)
    for name in ("a", "b", "c"):
        mine = [body for body in listener.texts if body and body.startswith(name)]
        assert mine == [f"{name}{number}" for number in range(20)]


async def test_lis_09_a_raising_listener_is_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    def act(message: Message) -> None:
        if not message.get_jms_redelivered():
            raise ValueError("the reason")

    await api.fill("orders", "one")
    listener = api.listener(act)
    with caplog.at_level(logging.WARNING, "sievemq"):
        (await (await api.session()).create_consumer(api.queue())).set_message_listener(listener)
        await listener.arrived(2)
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert any("the reason" in str(error) for error in errors)


async def test_lis_09_message_contents_are_not_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """The reader of a log may not be allowed to read messages: the log names id and destination only."""

    def act(message: Message) -> None:
        if not message.get_jms_redelivered():
            raise ValueError

    await api.fill("orders", "a secret body", secret="a secret property")
    listener = api.listener(act)
    with caplog.at_level(logging.DEBUG, "sievemq"):
        (await (await api.session()).create_consumer(api.queue())).set_message_listener(listener)
        await listener.arrived(2)
    assert f"{listener.messages[0].get_jms_message_id()!r} of queue:orders" in caplog.text
    assert "secret" not in caplog.text


async def test_thr_05_a_listener_uses_its_own_session(api: Api) -> None:
    """Makes producers and consumers, sends, acknowledges, recovers."""
    session = await api.session(api.CLIENT_ACKNOWLEDGE)

    async def act(message: Message) -> None:
        producer = await session.create_producer(api.queue("answers"))
        await producer.send(TextMessage(f"answer to {text(message)}"))
        await (await session.create_consumer(api.queue("unused"))).close()
        await (await session.create_browser(api.queue("answers"))).close()
        if message.get_jms_redelivered():
            await message.acknowledge()
        else:
            await session.recover()

    listener = api.listener(act)
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    await api.fill("orders", "one")
    await listener.arrived(2)
    await session.close()
    assert await api.left() == []
    assert await api.left("answers") == ["answer to one"] * 2


async def test_thr_05_txn_03_a_listener_commits(api: Api) -> None:
    session = await api.session(api.SESSION_TRANSACTED)
    producer = await session.create_producer(api.queue("answers"))

    async def act(message: Message) -> None:
        await producer.send(TextMessage(f"answer to {text(message)}"))
        if text(message) == "bad" and not message.get_jms_redelivered():
            await session.rollback()
        else:
            await session.commit()

    await api.fill("orders", "one", "bad", "two")
    listener = api.listener(act)
    (await session.create_consumer(api.queue())).set_message_listener(listener)
    await listener.arrived(4)
    assert listener.texts == ["one", "bad", "bad", "two"]
    answers = await (await api.session()).create_consumer(api.queue("answers"))
    assert await api.texts(answers, 3) == ["answer to one", "answer to bad", "answer to two"]
    assert await answers.receive_no_wait() is None


async def test_mco_14_an_idle_listener_does_not_starve_other_consumers(api: Api) -> None:
    """What waits in the buffer of a busy listener comes to the one that asks."""
    await api.fill("orders", *map(str, range(10)))
    go = api.signal()
    busy = api.listener(lambda message: go.wait())
    (await (await api.session()).create_consumer(api.queue())).set_message_listener(busy)
    other = await (await api.session()).create_consumer(api.queue())
    got = await api.texts(other, 9)
    go.set()
    await busy.arrived(1)
    assert sorted(got + busy.texts, key=str) == [str(number) for number in range(10)]


async def test_mco_14_a_listener_waits_too(api: Api) -> None:
    """What an idle receiver has in its buffer comes to a listener with nothing to do."""
    await api.fill("orders", *map(str, range(10)))
    idle = await (await api.session(api.CLIENT_ACKNOWLEDGE)).create_consumer(api.queue())
    assert await api.texts(idle, 1) == ["0"]
    listener = api.listener()
    (await (await api.session()).create_consumer(api.queue())).set_message_listener(listener)
    await listener.arrived(9)
    assert listener.texts == [str(number) for number in range(1, 10)]


async def test_mco_02_lis_03_a_listener_that_is_unset_while_it_runs(api: Api) -> None:
    """A receive then waits for it: its message is not done with yet, and must not be acknowledged by the next one."""
    await api.fill("orders", "one", "two")
    session = await api.session()
    consumer = await session.create_consumer(api.queue())
    running, go = api.signal(), api.signal()

    async def act(message: Message) -> None:
        consumer.set_message_listener(None)
        with pytest.raises(IllegalStateException):
            await consumer.receive()
        running.set()
        await go.wait()

    listener = api.listener(act)
    consumer.set_message_listener(listener)
    await running.wait()
    receiving = api.task(consumer.receive(SOON))
    await api.left("nothing")
    assert not receiving.done()
    go.set()
    assert outline(await receiving) == ("two", False, 1)
    assert listener.texts == ["one"]

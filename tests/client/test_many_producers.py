"""Many producers into one small queue where senders wait: the limit holds, nobody starves, nothing is lost."""

from __future__ import annotations

from collections import defaultdict

from sievemq import BytesMessage, Message

from .both import SOON, Api

LIMIT = 1024 * 1024
SIZE = 16 * 1024
PRODUCERS = 50
EACH = 20

#: Beyond the limit of a queue: the message that each session waits with, of SIZE bytes and some headers.
SLACK = PRODUCERS * (SIZE + 512)


class Peak:
    """The most that the queue has held, and the most that has waited outside, looked at in every turn of the broker."""

    def __init__(self, api: Api) -> None:
        self.held = self.waiting = 0
        self._api = api
        api.broker.call(lambda domain: api.broker.server.turn.watchers.append(self._look))

    def _look(self) -> None:
        domain = self._api.broker.server.shard.broker
        queue = domain.namespace(self._api.namespace).find("queue:full")
        if queue is not None:
            self.held = max(self.held, queue.bytes)
        self.waiting = max(self.waiting, domain.rooms.bytes)


async def test_the_limit_holds_for_any_number_of_senders_and_none_starves(api: Api) -> None:
    """Fifty connections, each with far more on its way than fits."""
    api.start_broker(settings={"destinations": {"full": {"max_bytes": LIMIT, "at_limit": "block"}}})
    peak = Peak(api)
    completions = api.completions()
    body = bytes(SIZE)
    producers = []
    for _ in range(PRODUCERS):
        session = await api.session()
        producers.append(await session.create_producer(api.queue("full")))

    async def flood(number: int) -> None:
        for index in range(EACH):
            message = BytesMessage(body)
            message.set_int_property("producer", number)
            message.set_int_property("index", index)
            await producers[number].send(message, completion_listener=completions)

    tasks = [api.task(flood(number)) for number in range(PRODUCERS)]
    domain = api.broker.server.shard.broker
    await api._until(lambda: len([None for waiters in domain.rooms.waiting.values() for _ in waiters]) == PRODUCERS)
    consumer = await (await api.session()).create_consumer(api.queue("full"))
    got: dict[int, list[int]] = defaultdict(list)
    for _ in range(PRODUCERS * EACH):
        message: Message = await consumer.receive(SOON)
        got[message.get_int_property("producer")].append(message.get_int_property("index"))
    assert got == {number: list(range(EACH)) for number in range(PRODUCERS)}
    for task in tasks:
        await task
    await api._until(lambda: len(completions.outcomes) == PRODUCERS * EACH)
    assert all(error is None for _, error in completions.outcomes)
    assert LIMIT // 2 < peak.held <= LIMIT
    assert 0 < peak.waiting <= SLACK
    assert not domain.rooms.waiting
    assert domain.rooms.bytes == 0


async def test_a_waiting_client_that_is_cut_off_or_leaves_leaves_nothing_behind(api: Api) -> None:
    api.start_broker(settings={"destinations": {"full": {"max_messages": 1, "at_limit": "block"}}})
    await api.fill("full", "a")
    domain = api.broker.server.shard.broker
    stays = await api.session(reconnect=0)
    staying = api.task((await stays.create_producer(api.queue("full"))).send(BytesMessage(b"stays")))
    await api._until(lambda: bool(domain.rooms.waiting))
    leaves, cut = await api.connect(reconnect=0, send_timeout=50), await api.connect(reconnect=0)
    leaving = await (await leaves.create_session()).create_producer(api.queue("full"))
    leaving.set_send_timeout(0)
    gone = [api.task(leaving.send(BytesMessage(b"leaves")))]
    await api._until(lambda: bool(leaves.blocked))
    cutting = await (await cut.create_session()).create_producer(api.queue("full"))
    gone.append(api.task(cutting.send(BytesMessage(b"is cut off"))))
    await api._until(lambda: bool(cut.blocked))
    waiting = domain.rooms.bytes
    await leaves.close()
    (link,) = [link for link in api.broker.server.links.open if link.connection.peer.member.id == _id_of(cut)]
    api.broker.call(lambda _: link.abort())
    for task in gone:
        try:
            await task
        except Exception as error:
            assert type(error).__module__ == "sievemq.exceptions"  # noqa: PT017
        else:
            raise AssertionError("it was taken")
    await api._until(lambda: sum(map(len, domain.rooms.waiting.values())) == 1)
    assert 0 < domain.rooms.bytes < waiting
    consumer = await (await api.session()).create_consumer(api.queue("full"))
    assert await api.texts(consumer, 1) == ["a"]
    await staying
    message = await consumer.receive(SOON)
    assert message.get_body(bytes) == b"stays"
    assert await consumer.receive_no_wait() is None
    assert not domain.rooms.waiting


def _id_of(connection: object) -> str:
    engine = getattr(connection, "_engine", None) or connection._object._engine  # type: ignore[attr-defined]
    return str(engine.terms.connection_id)

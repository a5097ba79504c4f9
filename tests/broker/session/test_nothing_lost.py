"""Random conversations of several clients: no message is lost, none is held twice, every count is right."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_core.wire.commands import Command

from .harness import AUTO, CLIENT, TRANSACTED, Client, Consumer, Delivery, World

QUEUES = ("queue:1", "queue:2")


class Model:
    """The expected state, kept beside the commands."""

    def __init__(self) -> None:
        # Six attempts are soon over here, and dead letters are another story.
        policy = DomainSettings(default_policy=DestinationPolicy(max_attempts=0))
        self.world = World(broker=Broker(policy))
        self.sent = 0
        self.live: set[str] = set()
        self.marks: dict[str, int] = {}
        #: by session: what the application has seen and not settled, and what a transaction has sent
        self.held: dict[tuple[Client, int], list[str]] = {}
        self.staged: dict[tuple[Client, int], list[str]] = {}
        self.modes: dict[tuple[Client, int], int] = {}
        self.clients: list[Client] = []
        self.sessions: list[tuple[Client, int]] = []
        self.consumers: list[Consumer] = []
        #: by client whose transport is paused: WANTs that are answered when it goes on
        self.wants: defaultdict[Client, list[int]] = defaultdict(list)
        for _ in range(2):
            self.connect()

    def connect(self) -> None:
        client = self.world.client()
        self.clients.append(client)
        for mode in (TRANSACTED, AUTO, CLIENT):
            key = (client, client.session(mode))
            self.modes[key] = mode
            self.held[key] = []
            self.staged[key] = []
            self.sessions.append(key)

    # -- what applications do -----------------------------------------------------------------------------------------

    def send(self, pick: int, priority: int) -> None:
        key = client, session = self.sessions[pick % len(self.sessions)]
        self.sent += 1
        text = f"m{self.sent}"
        client.send(session, text, to=QUEUES[pick % 2], priority=priority)
        self.marks[text] = 0
        if self.modes[key] == TRANSACTED:
            self.staged[key].append(text)
        else:
            self.live.add(text)

    def open(self, pick: int, credit: int) -> None:
        client, session = self.sessions[pick % len(self.sessions)]
        if len(self.consumers) < 8:
            self.consumers.append(client.consumer(session, QUEUES[pick % 2], credit=credit))

    def receive(self, pick: int, count: int) -> None:
        if not self.consumers:
            return
        consumer = self.consumers[pick % len(self.consumers)]
        taken: list[Delivery] = consumer.deliveries[:count]
        consumer.receive(count)
        for delivery in taken:
            assert delivery.text in self.live
            assert delivery.count == 1 + self.marks[delivery.text], delivery
            assert all(delivery.text not in held for held in self.held.values()), "held twice"
            self.held[consumer.client, consumer.session].append(delivery.text)

    def want(self, pick: int) -> None:
        if self.consumers:
            consumer = self.consumers[pick % len(self.consumers)]
            if not consumer.deliveries:
                client = consumer.client
                request = client.request(Command.WANT, consumer.id)
                if client.broker.outbox.congested:
                    self.wants[client].append(request)
                else:
                    assert client.answer_to(request) is not None

    def credit(self, pick: int, credit: int) -> None:
        if self.consumers:
            self.consumers[pick % len(self.consumers)].credit(credit)

    def settle(self, pick: int) -> None:
        """Acknowledge or commit, as the session's mode has it."""
        key = client, session = self.sessions[pick % len(self.sessions)]
        if self.modes[key] == TRANSACTED:
            client.commit(session)
            self.live.update(self.staged[key])
            self.staged[key] = []
        elif self.modes[key] == CLIENT:
            client.ask(Command.ACKNOWLEDGE_ALL, session, client.handed(session))
        else:
            for consumer in client.consumers.values():
                if consumer.session == session and consumer.seen:
                    consumer.acknowledge()
        self.live.difference_update(self.held[key])
        self.held[key] = []

    def return_all(self, pick: int) -> None:
        """Recover or roll back."""
        key = client, session = self.sessions[pick % len(self.sessions)]
        (client.rollback if self.modes[key] == TRANSACTED else client.recover)(session)
        self.staged[key] = []
        self._mark(self.held[key])
        self.held[key] = []

    def close_consumer(self, pick: int) -> None:
        if self.consumers:
            self.consumers.pop(pick % len(self.consumers)).close()

    def close_session(self, pick: int) -> None:
        key = client, session = self.sessions.pop(pick % len(self.sessions))
        client.ask(Command.CLOSE_SESSION, session, client.handed(session))
        self._mark(self.held.pop(key))
        self.consumers = [c for c in self.consumers if (c.client, c.session) != key]
        client.anew(session)
        if not self.sessions:
            self.connect()

    def pause(self, pick: int) -> None:
        self.clients[pick % len(self.clients)].broker.pause()

    def resume(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        client.broker.resume(self.world.now)
        self.world.settle()
        assert all(client.answer_to(request) is not None for request in self.wants.pop(client, []))

    def goodbye(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        handed = [n for c in client.consumers.values() if c.seen for n in (c.id, c.seen)]
        client.ask(Command.GOODBYE, tuple(handed))
        self._gone(client)

    def drop(self, pick: int) -> None:
        client = self.clients[pick % len(self.clients)]
        for consumer in client.consumers.values():
            self._mark([delivery.text for delivery in consumer.deliveries])
        client.drop()
        self._gone(client)

    def _gone(self, client: Client) -> None:
        for key in [key for key in self.held if key[0] is client]:
            self._mark(self.held.pop(key))
        self.sessions = [key for key in self.sessions if key[0] is not client]
        self.consumers = [consumer for consumer in self.consumers if consumer.client is not client]
        self.clients.remove(client)
        self.connect()

    def _mark(self, texts: list[str]) -> None:
        for text in texts:
            self.marks[text] += 1

    # -- what must be true --------------------------------------------------------------------------------------------

    def check(self) -> None:
        assert self.world.services.reports == []
        assert all(client.fatal is None for client in self.clients)
        buffered = [d.text for client in self.clients for c in client.consumers.values() for d in c.deliveries]
        held = [text for texts in self.held.values() for text in texts]
        everywhere = buffered + held
        assert len(everywhere) == len(set(everywhere))
        assert set(everywhere) <= self.live

    def end(self) -> None:
        for client in list(self.clients):
            self.drop(self.clients.index(client))
        observer = self.world.client()
        left = [(text, count) for queue in QUEUES for count, text in observer.browse(queue)]
        assert dict(left) == {text: 1 + self.marks[text] for text in self.live}
        assert len(left) == len(self.live)


pick = st.integers(0, 20)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), pick, st.sampled_from([4, 4, 4, 9, 0])),
        st.tuples(st.just("send"), pick, st.just(4)),
        st.tuples(st.just("open"), pick, st.sampled_from([0, 1, 3, 50])),
        st.tuples(st.just("receive"), pick, st.integers(1, 4)),
        st.tuples(st.just("receive"), pick, st.integers(1, 4)),
        st.tuples(st.just("credit"), pick, st.integers(0, 5)),
        st.tuples(st.just("want"), pick),
        st.tuples(st.just("settle"), pick),
        st.tuples(st.just("return_all"), pick),
        st.tuples(st.sampled_from(["close_consumer", "close_session", "pause", "resume", "goodbye", "drop"]), pick),
    ),
    min_size=5,
    max_size=60,
)


@given(steps)
@settings(max_examples=200)
def test_random_conversations(said: list[tuple[str, int, *tuple[int, ...]]]) -> None:
    model = Model()
    for name, *arguments in said:
        getattr(model, name)(*arguments)
        model.check()
    model.end()

"""Both ends of a connection in memory: a real client-side WireConnection talks to a real SieveConnection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sievemq_broker.domain import Queue
from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.protocols.sieve.connection import TABLE
from sievemq_broker.session import AuthenticationError, Identity, Peer, Services, SessionSettings
from sievemq_broker.session.rights import ALL_RIGHTS, Rights
from sievemq_broker.session.verbs import OpenConsumer, Request
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import BodyKind, Envelope, pack_properties
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection

TRANSACTED, AUTO, CLIENT, DUPS_OK = range(4)
START = 1_700_000_000_000


def envelope(text: str = "", *, mid: str | None = None, priority: int = 4, **more: Any) -> tuple[Any, ...]:
    """The fields of a text message. `more`: expiration, delivery_time, timestamp, properties, correlation_id, body."""
    packed, letters = pack_properties(more.get("properties", {}))
    body = more.get("body", text.encode())
    return (
        mid, more.get("timestamp", START), priority, 2, more.get("expiration", 0), more.get("delivery_time", 0),
        more.get("correlation_id"), None, None, packed, letters, int(BodyKind.TEXT), body,
    )  # fmt: skip


class MemoryServices(Services[Peer]):
    """A rim without I/O: a clock that stands still, users in a dict, wakes and reports in lists."""

    def __init__(self, settings: SessionSettings | None = None) -> None:
        super().__init__(settings)
        self.real = START
        self.users: dict[str, str] | None = None
        #: Of users that may not do everything.
        self.rights: dict[str, Rights] = {}
        self.woken: list[SieveConnection] = []
        self.reports: list[tuple[str, BaseException]] = []
        #: By namespace, why it cannot be entered here.
        self.elsewhere: dict[str, SieveError] = {}
        #: What is called once it is known where a namespace is, and its name; None if that is known at once.
        self.placing: list[tuple[Callable[[str | SieveError, int], None], str]] | None = None
        self._ids = 0

    def connection_id(self) -> str:
        self._ids += 1
        return f"c{self._ids}"

    def authenticate(self, peer: Peer, user: str | None, password: str | None, later: object) -> Identity:
        if self.users is not None and (user is None or self.users.get(user) != password):
            raise AuthenticationError(f"user {user!r} or the password is wrong")
        return Identity(user, self.rights.get(user or "", ALL_RIGHTS))

    def place(
        self, peer: Peer, namespace: str, instead: str, later: Callable[[str | SieveError, int], None]
    ) -> str | None:
        found = super().place(peer, namespace, instead, later)
        if found in self.elsewhere:
            raise self.elsewhere[found]
        if self.placing is None:
            return found
        self.placing.append((later, found or ""))
        return None

    def now(self) -> int:
        return self.real + self.clock_offset

    def report(self, peer: Peer, doing: str, error: BaseException) -> None:
        self.reports.append((doing, error))


class _Failing:
    """Hears of the messages that enter a queue, and fails at one of them."""

    def __init__(self, after: int) -> None:
        self.left = after

    def accepted(self, *_: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise ZeroDivisionError


@contextmanager
def failing(queue: Queue, after: int = 0) -> Iterator[None]:
    """A fault of the broker in what enters a queue: of so many messages all is well. It must have been met."""
    observer: Any = _Failing(after)
    queue.observe(observer)
    yield
    queue.unobserve(observer)
    assert observer.left == -1


class World:
    """One broker and its clients."""

    def __init__(self, settings: SessionSettings | None = None, broker: Broker | None = None) -> None:
        self.services = MemoryServices(settings)
        self.broker = broker or Broker()
        self.services.broker = self.broker
        self.clients: list[Client] = []
        #: Pending work is done while bytes are carried; otherwise only what a client waits for.
        self.works = False

    @property
    def now(self) -> int:
        return self.services.now()

    def client(self, **hello: Any) -> Client:
        """A client past its handshake."""
        client = Client(self)
        client.hello(**hello)
        assert client.take(Command.WELCOME), client.fatal
        return client

    def queue(self, address: str = "queue:q") -> Queue:
        """A queue of the default namespace."""
        return self.broker.namespace("default").queue(address)

    def settle(self) -> None:
        """Carry bytes both ways until both ends are silent, as turns of a loop would."""
        busy = True
        while busy:
            busy = False
            for client in self.clients:
                busy |= client.exchange()
            if self.works or self.broker.busy is not None or any(each.broker.behind for each in self.clients):
                busy |= self.broker.work(self.now)
                busy |= any(each.broker.has_data for each in self.clients if each.transport_open and each.reading)

    def later(self, ms: int) -> None:
        """Time passes."""
        self.services.real += ms
        self.broker.due(self.now)
        self.settle()


class Client:
    """A client's end: sends commands, keeps its input. It sends nothing on its own, except on a test's request."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wire = WireConnection("client")
        self.broker = self.connect()
        self.heard: list[tuple[Any, ...]] = []
        self.fatal: tuple[Any, ...] | None = None
        self.transport_open = True
        self.reading = True
        self._request = 100
        self._ids = 0
        self._sequences: dict[int, int] = {}
        #: What was sent, by session; and whether what waited for room is resent at once when there is some.
        self.sends: dict[int, list[tuple[Any, ...]]] = {}
        self.goes_on = True
        self.consumers: dict[int, Consumer] = {}
        #: How many messages each DELIVER_SEVERAL had.
        self.rows: list[int] = []
        world.clients.append(self)

    def connect(self) -> SieveConnection:
        """The broker's end."""
        services = self.world.services
        return SieveConnection(
            self.world.broker, services, TABLE, address="memory", wake=lambda: services.woken.append(self.broker)
        )

    # -- transport ----------------------------------------------------------------------------------------------------

    def exchange(self) -> bool:
        """One turn: what was said goes over, what the broker has comes back. True if anything moved."""
        if not self.transport_open:
            return False
        said = b"" if self.broker.behind else self.wire.data_to_send()
        late = self.broker.behind
        if late:
            self.broker.catch_up(self.world.now)
        elif said:
            self.broker.receive_data(said, self.world.now)
        data = self.broker.data_to_send() if self.reading and self.broker.has_data else b""
        if data:
            for command in self.wire.receive_data(data):
                self._hear(command)
        if self.broker.closing and not self.broker.has_data:
            self.transport_open = False
            self.broker.lost(self.world.now)
        return bool(said or data or late)

    def _hear(self, command: tuple[Any, ...]) -> None:
        number = command[0]
        if number == Command.DELIVER:
            consumer = self.consumers[command[1]]
            consumer.deliveries.append(Delivery(consumer, command))
        elif number == Command.DELIVER_SEVERAL:
            _, consumer_id, tag, envelopes = command
            self.rows.append(len(envelopes))
            for at, fields in enumerate(envelopes, tag):
                self._hear((Command.DELIVER, consumer_id, at, 1, fields))
        elif number == Command.RECALL:
            self.consumers[command[1]].recalled(command[2])
            self.heard.append(command)
        elif number == Command.FLOW and not command[1] and command[4] and self.goes_on:
            self.heard.append(command)
            self.go_on(command[3], command[4])
        elif number == Command.ERROR and command[1] == 0:
            self.fatal = command
        else:
            self.heard.append(command)

    def say(self, *command: Any) -> None:
        """Queue a command and let everything settle."""
        self.wire.send(*command)
        self.world.settle()

    def queue(self, *command: Any) -> None:
        """Queue a command without sending it yet."""
        self.wire.send(*command)

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self.broker.receive_data(data, self.world.now)
        self.world.settle()

    def drop(self) -> None:
        """The transport breaks."""
        self.transport_open = False
        self.broker.lost(self.world.now)
        self.world.settle()

    def take(self, number: int) -> list[tuple[Any, ...]]:
        """The commands of this number heard so far; they are not kept."""
        found = [command for command in self.heard if command[0] == number]
        self.heard = [command for command in self.heard if command[0] != number]
        return found

    # -- requests -----------------------------------------------------------------------------------------------------

    def hello(
        self, *, version: int = 1, namespace: str = "", user: str | None = None, password: str | None = None,
        client_id: str | None = None, heartbeat: int = 0, resume: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.say(Command.HELLO, version, namespace, user, password, client_id, heartbeat, "harness", resume, options)

    def ask(self, command: int | Request, *fields: Any) -> Any:
        """A request that must be granted: its result. It gets a number of its own."""
        answer = self.answer_to(self.request(command, *fields))
        assert answer is not None, f"no answer; fatal: {self.fatal}"
        assert answer[0] == Command.OK, answer
        return answer[2]

    def refused(self, command: int | Request, *fields: Any) -> tuple[int, str, dict[str, Any]]:
        """A request that must be refused, the connection living on: code, text and details."""
        answer = self.answer_to(self.request(command, *fields))
        assert answer is not None, f"no answer; fatal: {self.fatal}"
        assert answer[0] == Command.ERROR, answer
        assert self.fatal is None
        assert not self.broker.closing
        return answer[2:]

    def request(self, command: int | Request, *fields: Any) -> int:
        """Say a request; its number."""
        self._request += 1
        if isinstance(command, Request):
            command, _, *fields = command
        self.say(command, self._request, *fields)
        return self._request

    def answer_to(self, request: int) -> tuple[Any, ...] | None:
        """The OK or ERROR that answered; None so far."""
        for command in self.heard:
            if command[0] in (Command.OK, Command.ERROR) and command[1] == request:
                self.heard.remove(command)
                return command
        return None

    def session(self, mode: int = AUTO) -> int:
        self._ids += 1
        self.ask(Command.OPEN_SESSION, self._ids, mode)
        self._sequences[self._ids] = 0
        return self._ids

    def consumer(self, session: int, destination: str = "queue:q", *, credit: int = 10, **more: Any) -> Consumer:
        self._ids += 1
        consumer = self.consumers[self._ids] = Consumer(self, session, self._ids)
        self.ask(open_consumer(session, self._ids, destination, credit, **more))
        return consumer

    def send(self, session: int, *texts: str, to: str = "queue:q", **more: Any) -> None:
        """Send text messages."""
        for text in texts:
            self.queue_send(session, envelope(text, **more), to)
        self.world.settle()

    def queue_send(self, session: int, fields: tuple[Any, ...], to: str = "queue:q") -> int:
        """Queue a SEND without sending it; its sequence."""
        sequence = self._sequences[session] = self._sequences[session] + 1
        command = (Command.SEND, session, sequence, to, fields)
        self.sends.setdefault(session, []).append(command)
        self.wire.send(*command)
        return sequence

    def go_on(self, session: int, sequence: int) -> None:
        """Say again what was sent in a session, from this send on."""
        for command in self.sends.get(session, ())[sequence - 1 :]:
            self.wire.send(*command)

    def handed(self, session: int) -> tuple[int, ...]:
        """What the application has seen of each of the session's consumers."""
        return tuple(n for c in self.consumers.values() if c.session == session and c.seen for n in (c.id, c.seen))

    def commit(self, session: int) -> None:
        self.ask(Command.COMMIT, session, self.handed(session))

    def rollback(self, session: int) -> None:
        self.anew(session)
        self.ask(Command.ROLLBACK, session, self.handed(session))

    def recover(self, session: int) -> None:
        self.anew(session)
        self.ask(Command.RECOVER, session, self.handed(session))

    def anew(self, session: int) -> None:
        """Buffers are void from here on; the credit must be granted anew."""
        for consumer in self.consumers.values():
            if consumer.session == session:
                consumer.deliveries.clear()

    def browse(self, destination: str = "queue:q", selector: str | None = None) -> list[tuple[int, str]]:
        """Delivery count and text of everything in a queue."""
        found: list[tuple[int, str]] = []
        cursor = None
        while True:
            cursor, *page = self.ask(Command.BROWSE, destination, selector, None, cursor, 3)
            found += [(count, Envelope(fields).fields[12].decode()) for count, fields in page]
            if cursor is None:
                return found


def open_consumer(
    session: int, consumer: int, destination: str = "queue:q", credit: int = 1, *, request: int = 0,
    selector: str | None = None, dialect: str | None = None, no_local: bool = False, subscription: str | None = None,
    durable: bool = False, shared: bool = False, tag: int = 0,
) -> OpenConsumer:  # fmt: skip
    return OpenConsumer(
        request=request,
        session=session,
        consumer=consumer,
        destination=destination,
        selector=selector,
        dialect=dialect,
        no_local=no_local,
        subscription=subscription,
        durable=durable,
        shared=shared,
        credit=credit,
        tag=tag,
    )


class Delivery:
    """A DELIVER that was heard."""

    def __init__(self, consumer: Consumer, command: tuple[Any, ...]) -> None:
        self.consumer = consumer
        _, _, self.tag, self.count, self.fields = command
        self.text = self.fields[12].decode()

    def __repr__(self) -> str:
        return f"{self.text}#{self.count}"


class Consumer:
    """A consumer as its client sees it: a buffer, and how much of it the application has seen."""

    def __init__(self, client: Client, session: int, consumer_id: int) -> None:
        self.client = client
        self.session = session
        self.id = consumer_id
        self.deliveries: list[Delivery] = []
        #: Tag of the last message that the application has seen.
        self.seen = 0
        #: Answer RECALL at once with the unseen messages, as a client does.
        self.answers_recall = True

    def recalled(self, tags: Iterable[int]) -> None:
        if self.answers_recall:
            buffered = {d.tag for d in self.deliveries}
            given = tuple(tag for tag in tags if tag in buffered)
            self.deliveries = [d for d in self.deliveries if d.tag not in given]
            self.client.wire.send(Command.RELEASE, self.id, given)

    def receive(self, count: int = 1) -> list[str]:
        """The application sees up to `count` messages: ``text``, or ``text#n`` for the n-th delivery of one."""
        self.client.world.settle()
        taken, self.deliveries = self.deliveries[:count], self.deliveries[count:]
        if taken:
            self.seen = taken[-1].tag
        return [d.text if d.count == 1 else f"{d.text}#{d.count}" for d in taken]

    def all(self) -> list[str]:
        """The application sees everything there is."""
        return self.receive(1_000_000)

    def acknowledge(self, tag: int | None = None, credit: int = 0) -> None:
        """Acknowledge what was seen."""
        self.client.say(Command.ACKNOWLEDGE, self.id, self.seen if tag is None else tag, credit)

    def credit(self, credit: int = 10) -> None:
        self.client.say(Command.CREDIT, self.id, credit)

    def close(self) -> None:
        self.client.ask(Command.CLOSE_CONSUMER, self.id, self.seen)
        self.deliveries.clear()

"""``sievemq bench …``: how fast a broker is, with a user's own messages and selectors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import cycle
from math import lcm
from time import monotonic, perf_counter_ns
from typing import Annotated, NamedTuple

import typer

from sievemq import BytesMessage, DeliveryMode, JMSException, Session, Topic
from sievemq.blocking import Connection, MessageConsumer, MessageProducer
from sievemq.cli.broker_access import connect, failures, warned
from sievemq.cli.completing import queues
from sievemq.cli.exits import INTERRUPTED, NOT_FOUND, USAGE
from sievemq.cli.grouping import grouped
from sievemq.cli.manage.actions import JsonOption
from sievemq.cli.measuring import Load, Meter, print_result
from sievemq.cli.options import DEFAULT_URL, UrlOption, UserOption, destination_of
from sievemq.cli.outgoing import NonPersistentOption, PropertiesOption
from sievemq.cli.values import parse_duration, parse_property
from sievemq.destinations import Destination
from sievemq_core.output import complain

bench = typer.Typer(
    help="Measure a broker with your own messages and selectors: send, receive, request, topic. Each ends after "
    "--count messages or --seconds; Ctrl-C ends it with what was measured. Exit codes: as everywhere; 3 if nothing was "
    "sent or received, 130 after Ctrl-C.",
    no_args_is_help=True,
)

#: Ms that a receive waits before it looks whether to go on.
_RECEIVE = 100
#: Different messages at most that properties with several values make.
_VARIANTS = 1_000
#: Messages per transaction of `--fill`.
_BATCH = 1_000
#: Bytes of the time at the beginning of what is published.
_STAMP = 8

DestinationArgument = Annotated[
    str | None, typer.Argument(metavar="DEST", help="By default one of the command's own, which ends with it.")
]
CountOption = Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many messages; 0: --seconds.")]
SecondsOption = Annotated[str, typer.Option("--seconds", help="End after this time, such as 30s.")]
RateOption = Annotated[float, typer.Option("--rate", min=0, help="Messages per second; 0: as many as go.")]
ConnectionsOption = Annotated[
    int, typer.Option("--connections", "-c", min=1, max=1_000, help="Connections that share it.")
]
SizeOption = Annotated[int, typer.Option("--size", min=0, max=64 * 1024 * 1024, help="Bytes of each body.")]
SelectorsOption = Annotated[
    list[str] | None,
    typer.Option("--selector", "-s", help="Of the consumers; with several each consumer gets the next one."),
]


class Bounds(NamedTuple):
    """Options: how much."""

    most: CountOption = 0
    seconds: SecondsOption = "10s"
    rate: RateOption = 0.0
    connections: ConnectionsOption = 1

    def load(self) -> Load:
        milliseconds = parse_duration(self.seconds)
        if not milliseconds:
            complain("sievemq: --seconds must be above 0")
            raise typer.Exit(USAGE)
        return Load(self.most, milliseconds / 1000, self.rate, self.connections)


class Sent(NamedTuple):
    """Options: what is sent."""

    size: SizeOption = 100
    properties: PropertiesOption = None
    non_persistent: NonPersistentOption = False

    def check(self) -> None:
        """End the command if an option is wrong."""
        for text in self.properties or ():
            parse_property(text)

    def messages(self) -> list[BytesMessage]:
        """The messages that are sent in turn: a property that is given several times has each value in turn."""
        values: dict[str, list[object]] = {}
        for name, value in map(parse_property, self.properties or ()):
            values.setdefault(name, []).append(value)
        made = []
        for number in range(min(_VARIANTS, lcm(*map(len, values.values())))):
            message = BytesMessage(bytes(self.size))
            for name, choices in values.items():
                message.set_object_property(name, choices[number % len(choices)])  # type: ignore[arg-type]
            made.append(message)
        return made

    @property
    def mode(self) -> DeliveryMode:
        return DeliveryMode.NON_PERSISTENT if self.non_persistent else DeliveryMode.PERSISTENT


class Broker(NamedTuple):
    """Options: the broker and the user."""

    url: UrlOption = DEFAULT_URL
    user: UserOption = None

    def connect(self, stack: ExitStack) -> Connection:
        connection = stack.enter_context(connect(self.url, self.user))
        connection.start()
        return connection


class _Crew:
    """The connections of a run, one for each worker."""

    def __init__(self, stack: ExitStack, broker: Broker, workers: int) -> None:
        self._connections = [broker.connect(stack) for _ in range(workers)]
        self._next = iter(self._connections)

    def take(self) -> Connection:
        return next(self._next)

    def close(self) -> None:
        """Let workers end that wait for the broker."""
        for connection in self._connections:
            with suppress(JMSException):
                connection.close()


@bench.command()
@grouped
def send(
    destination: DestinationArgument = None,
    *,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Messages per transaction; 1: none.")] = 1,
    bounds: Bounds,
    sent: Sent,
    broker: Broker,
    as_json: JsonOption = False,
) -> None:
    """Send messages; the latency is that of a send, or of a transaction.

    A PERSISTENT send waits for the broker, a NON_PERSISTENT one does not. Messages stay in DEST.
    """
    load = bounds.load()
    target = None if destination is None else destination_of(destination)
    sent.check()

    def work(meter: Meter, connection: Connection) -> None:
        mode = Session.SESSION_TRANSACTED if batch > 1 else Session.AUTO_ACKNOWLEDGE
        with connection.create_session(mode) as session:
            producer = session.create_producer(target or session.create_temporary_queue())
            producer.set_delivery_mode(sent.mode)
            turn = cycle(sent.messages())
            while meter.goes_on():
                began, count = monotonic(), meter.at_most(batch)
                for _ in range(count):
                    producer.send(next(turn))
                if batch > 1:
                    session.commit()
                meter.note(monotonic() - began, count)

    _run(load, bounds, broker, work)
    _print(load, "sent", "a send" if batch == 1 else f"a transaction of {batch:,}", as_json)


@bench.command()
@grouped
def receive(
    destination: Annotated[
        str,
        typer.Argument(metavar="DEST", help="queue:NAME, topic:NAME, or NAME of a queue.", autocompletion=queues),
    ],
    *,
    selectors: SelectorsOption = None,
    fill: Annotated[int, typer.Option("--fill", min=0, help="Send so many messages first.")] = 0,
    bounds: Bounds,
    sent: Sent,
    broker: Broker,
    as_json: JsonOption = False,
) -> None:
    """Receive and consume messages; the latency is that of a receive with its acknowledgement."""
    load = bounds.load()
    sent.check()
    target = destination_of(destination)
    if fill:
        _fill(broker, target, sent, fill)
    wanted = cycle(selectors or [None])

    def work(meter: Meter, connection: Connection) -> None:
        with connection.create_session(Session.AUTO_ACKNOWLEDGE) as session:
            consumer = session.create_consumer(target, next(wanted))
            while meter.goes_on():
                began = monotonic()
                if consumer.receive(_RECEIVE) is not None:
                    meter.note(monotonic() - began)

    _run(load, bounds, broker, work)
    _print(load, "received", "a receive", as_json)


@bench.command()
@grouped
def request(
    destination: DestinationArgument = None,
    *,
    bounds: Bounds,
    sent: Sent,
    broker: Broker,
    as_json: JsonOption = False,
) -> None:
    """Send requests and wait for each reply; the latency is that of the round trip.

    Without DEST the command answers its requests itself; otherwise an application has to.
    """
    load = bounds.load()
    sent.check()

    def work(meter: Meter, connection: Connection, target: Destination) -> None:
        with connection.create_session(Session.AUTO_ACKNOWLEDGE) as session:
            replies = session.create_temporary_queue()
            consumer, producer = session.create_consumer(replies), session.create_producer(target)
            producer.set_delivery_mode(sent.mode)
            turn = cycle(sent.messages())
            while meter.goes_on():
                message = next(turn)
                message.set_jms_reply_to(replies)
                began = monotonic()
                producer.send(message)
                while consumer.receive(_RECEIVE) is None:
                    if not load.goes_on():
                        return
                meter.note(monotonic() - began)

    with failures(), ExitStack() as stack:
        crew = _Crew(stack, broker, bounds.connections)
        others = []
        target: Destination
        if destination is None:
            session = broker.connect(stack).create_session(Session.AUTO_ACKNOWLEDGE)
            target = session.create_temporary_queue()
            producer = session.create_producer(None)
            producer.set_delivery_mode(sent.mode)
            others.append(partial(_answer, load, session.create_consumer(target), producer))
        else:
            target = destination_of(destination)
        load.run(lambda meter: work(meter, crew.take(), target), crew.close, others)
    _print(load, "replies", "a round trip", as_json)


@bench.command()
@grouped
def topic(
    destination: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="topic:NAME, or NAME. By default one of the command's own.")
    ] = None,
    *,
    subscribers: Annotated[int, typer.Option("--subscribers", min=1, max=1_000, help="Subscribers of the topic.")] = 4,
    selectors: SelectorsOption = None,
    bounds: Bounds,
    sent: Sent,
    broker: Broker,
    as_json: JsonOption = False,
) -> None:
    """Publish to subscribers of this command; the latency is from publication until a subscriber has the message."""
    load = bounds.load()
    sent.check()
    heard = [Meter(load, 0, 0.0) for _ in range(subscribers)]

    def work(meter: Meter, connection: Connection, target: Destination) -> None:
        with connection.create_session(Session.AUTO_ACKNOWLEDGE) as session:
            producer = session.create_producer(target)
            producer.set_delivery_mode(sent.mode)
            turn = cycle(sent.messages())
            padding = bytes(max(0, sent.size - _STAMP))
            while meter.goes_on():
                message = next(turn)
                message.clear_body()
                message.write_bytes(perf_counter_ns().to_bytes(_STAMP, "big") + padding)
                producer.send(message)
                meter.note(None)

    with failures(), ExitStack() as stack:
        crew = _Crew(stack, broker, bounds.connections)
        connection = broker.connect(stack)
        session = connection.create_session(Session.AUTO_ACKNOWLEDGE)
        target: Destination = _topic_of(destination) or session.create_temporary_topic()
        wanted, others = cycle(selectors or [None]), []
        with warned():
            for meter in heard:
                own = connection.create_session(Session.AUTO_ACKNOWLEDGE)
                others.append(partial(_hear, load, meter, own.create_consumer(target, next(wanted))))
        load.run(lambda meter: work(meter, crew.take(), target), crew.close, others)
    count = sum(meter.done for meter in heard)
    for meter in heard:
        load.meters[0].latencies.extend(meter.latencies)
    more = {"delivered": count, "deliveries_per_second": round(count / load.seconds, 1)}
    _print(load, "published", "until it was received", as_json, more)


# -- what they share --------------------------------------------------------------------------------------------------


def _run(load: Load, bounds: Bounds, broker: Broker, work: Callable[[Meter, Connection], None]) -> None:
    with failures(), warned(), ExitStack() as stack:
        crew = _Crew(stack, broker, bounds.connections)
        load.run(lambda meter: work(meter, crew.take()), crew.close)


def _fill(broker: Broker, target: Destination, sent: Sent, count: int) -> None:
    """Send messages, so that there are some to receive."""
    turn = cycle(sent.messages())
    with failures(), ExitStack() as stack:
        session = broker.connect(stack).create_session(Session.SESSION_TRANSACTED)
        producer = session.create_producer(target)
        producer.set_delivery_mode(sent.mode)
        for number in range(1, count + 1):
            producer.send(next(turn))
            if number % _BATCH == 0 or number == count:
                session.commit()


def _answer(load: Load, consumer: MessageConsumer, producer: MessageProducer) -> None:
    """Answer requests with their own bodies."""
    while True:
        message = consumer.receive(_RECEIVE)
        if message is not None:
            reply = BytesMessage(message.get_body(bytes) or b"")
            producer.send(message.get_jms_reply_to(), reply)
        elif not load.goes_on():
            return


def _hear(load: Load, meter: Meter, consumer: MessageConsumer) -> None:
    """Receive what is published, and how long it took."""
    while True:
        message = consumer.receive(_RECEIVE)
        if message is not None:
            stamp = int.from_bytes((message.get_body(bytes) or b"")[:_STAMP], "big")
            meter.note((perf_counter_ns() - stamp) / 1e9)
        elif not load.goes_on():
            return


def _topic_of(text: str | None) -> Destination | None:
    if text is None:
        return None
    found = destination_of(text if ":" in text else f"topic:{text}")
    if not isinstance(found, Topic):
        complain(f"sievemq: {found} is no topic")
        raise typer.Exit(USAGE)
    return found


def _print(load: Load, what: str, latency: str, as_json: bool, more: dict[str, float] | None = None) -> None:
    print_result(load, what, latency, as_json, more)
    if load.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not load.done:
        raise typer.Exit(NOT_FOUND)

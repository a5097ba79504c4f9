"""Queues and topics as a test sees them: their messages, and assertions that read like the requirement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Unpack

from sievemq import Message
from sievemq.advice import DoubtfulSelectorWarning, warn
from sievemq.destinations import Destination, parse_destination
from sievemq.exceptions import from_core
from sievemq.messages import received
from sievemq_broker.domain import management
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.dead_letters import dead_letter_address
from sievemq_broker.domain.management import scheduled
from sievemq_broker.domain.policy import DestinationPolicy, PolicyRules
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import finish
from sievemq_broker.rules import policy_rules
from sievemq_broker.session.peer import Peer
from sievemq_core.counted import counted
from sievemq_core.durations import Seconds, seconds
from sievemq_core.errors import SieveError
from sievemq_core.message.dead_letters import ORIGIN, REASON, REASONS
from sievemq_core.message.destination import Address, Kind, misspelt_kind, parse_address
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector import CompiledSelector, SelectorError, compile_selector
from sievemq_testing.excerpt import show_message
from sievemq_testing.journal import Journal, connection_of, matches
from sievemq_testing.listeners import ListenerErrors
from sievemq_testing.reasons import held_by, near_destination, why_not
from sievemq_testing.running import RunningNamespace

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """A consumer at one moment.

    Attributes:
        id: within its connection.
        connection: id of its connection.
        client_id: of the connection.
        selector: its text; None for none.
        credit: messages that may still be delivered to it.
        unacknowledged: messages that it holds.
        waiting: a caller waits there, in a receive or with a listener, and no message has arrived since. An AMQP or
            STOMP client does not say so: it waits while a message may be delivered to it.
    """

    id: int
    connection: str
    client_id: str | None
    selector: str | None
    credit: int
    unacknowledged: int
    waiting: bool


@dataclass(frozen=True, slots=True)
class ConnectionView:
    """A connection at one moment.

    Attributes:
        id: its id.
        client_id: its client id; None for none.
        agent: client library, version, and the name of the application where it has one (option ``application``).
        consumers: destinations of its open consumers.
        protocol: ``sieve``, ``stomp`` or ``amqp``.
    """

    id: str
    client_id: str | None
    agent: str
    consumers: tuple[str, ...]
    protocol: str

    def __str__(self) -> str:
        named = f", client id {self.client_id!r}" if self.client_id else ""
        consuming = f", with consumers of {', '.join(self.consumers)}" if self.consumers else ", without consumers"
        return f"connection {self.id} of {self.agent or 'an unnamed client'}{named}{consuming}"


class _View:
    """Base class of the views of queues and topics.

    Args:
        namespace: where.
        address: which.
        journal: the namespace's journal; called on the broker's thread.
        errors: what listeners have raised.
    """

    def __init__(
        self, namespace: RunningNamespace, address: Address, journal: Callable[[], Journal], errors: ListenerErrors
    ) -> None:
        self.name = str(address)
        self._namespace = namespace
        self._address = address
        self._journal = journal
        self._errors = errors

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} in {self._namespace.name!r}>"

    def _ask(self, look: Callable[[Broker], Any]) -> Any:
        return self._namespace.broker.call(look)

    def _destination(self, broker: Broker) -> Any:
        """The broker's own object; None while there is none."""
        namespace = broker.namespaces.get(self._namespace.name)
        return None if namespace is None else namespace.destinations.get(self.name)

    def _queues(self, broker: Broker) -> list[Queue]:
        """The queue, or those of a topic's subscriptions. Runs on the broker's thread."""
        destination = self._destination(broker)
        if isinstance(destination, Topic):
            return [subscription.queue for subscription in destination.subscriptions]
        return [] if destination is None else [destination]

    def _now(self) -> int:
        return self._namespace.broker.server.clock.now()

    # -- policy -----------------------------------------------------------------------------------------------------

    def configure(self, /, **rules: Unpack[PolicyRules]) -> DestinationPolicy:
        """Change the destination's policy, now; see :class:`sievemq_broker.domain.policy.DestinationPolicy`.

        ``configure(max_attempts=3, redelivery_delay=timedelta(seconds=1))``.

        Returns:
            The policy that applies from now on.

        Raises:
            ValueError: there is no such rule, or it cannot have the value.
        """
        changes = policy_rules(rules)

        def change(broker: Broker) -> DestinationPolicy:
            destination = broker.namespace(self._namespace.name).declare(self._address)
            changed = replace(destination.policy, **changes)
            for each in (destination, *destination.queues):
                each.configure(changed)
            return changed

        result: DestinationPolicy = self._ask(change)
        return result

    # -- assertions -------------------------------------------------------------------------------------------------

    def _assert_events(
        self, kind: str, word: str, selector: str | None, count: int | None, within: Seconds
    ) -> list[Message]:
        __tracebackhide__ = True
        condition = compiled(selector)
        journal = self._journal()
        needed = at_least(count)

        def happened() -> list[Envelope]:
            return [event.envelope for event in journal.of(kind, where=self.name) if event.envelope is not None]

        def chosen() -> list[Envelope]:
            return [envelope for envelope in happened() if condition is None or matches(condition, envelope)]

        self._namespace.broker.wait_for(lambda _: len(chosen()) >= needed, within)
        all_of_them, found, forgotten = self._ask(lambda _: (happened(), chosen(), journal.forgotten(kind, self.name)))
        if len(found) >= 1 if count is None else len(found) == count and not forgotten:
            return [self._message(envelope) for envelope in found]
        text = [shortfall(self.name, word, selector, count, within, len(found))]
        text += listed(found, word)
        if condition is not None:
            others = [envelope for envelope in all_of_them if envelope not in found]
            text += listed(others, f"{word}, but does not match", lambda envelope: why_not(condition, envelope))
        text += self._if_missing()
        if kind == "acknowledged":
            text += self._ask(lambda broker: _held(self._queues(broker)))
        if forgotten:
            text.append(
                f"  {forgotten} more {'was' if forgotten == 1 else 'were'} {word} before, which the journal no "
                "longer has; TestBroker(journal_events=…) keeps more"
            )
        failure, cause = self._failure(text)
        raise failure from cause

    def _existed(self) -> bool:
        kinds = ("accepted", "published", "consumer opened")
        return bool(self._ask(lambda _: self._journal().of(*kinds, where=self.name)))

    def _if_missing(self) -> list[str]:
        """The line about a destination that has never existed; none if it has."""
        if self._ask(self._destination) is not None or self._existed():
            return []
        return [f"  {missing(self.name, self._namespace.destinations)}"]

    def _failure(self, text: list[str]) -> tuple[AssertionError, BaseException | None]:
        """An error, and its cause: the last exception of a listener that got a message from here."""

        def sent(_: Broker) -> set[object]:
            return {event.message_id for event in self._journal().of("accepted", where=self.name)}

        raised = self._errors.of(self._ask(sent))
        times = Counter(f"  a listener raised {error!r:.200} at {name}" for name, error in raised)
        shown = [f"{line}{f', {number} times' if number > 1 else ''}" for line, number in list(times.items())[-_SHOWN:]]
        return AssertionError("\n".join([*text, *shown])), raised[-1][1] if raised else None

    def _message(self, envelope: Envelope, count: int = 1) -> Message:
        return received(envelope.fields, parse_destination(self.name), count, None)


class QueueView(_View):
    """A queue of a namespace; it need not exist yet. Every property is read from the broker."""

    # -- what is there ----------------------------------------------------------------------------------------------

    def messages(self, selector: str | None = None) -> list[Message]:
        """The waiting messages, in the order of delivery, without scheduled ones and those in flight.

        Args:
            selector: only what matches.

        Raises:
            InvalidSelectorException: the selector has a mistake.
        """
        condition = compiled(selector)
        waiting = self._ask(lambda broker: self._browse(broker, self.name, condition))
        return [self._message(envelope, count) for count, envelope in waiting]

    def _browse(self, broker: Broker, address: str, condition: CompiledSelector | None) -> list[tuple[int, Envelope]]:
        """The waiting messages of a queue of the namespace. Runs on the broker's thread."""
        found: list[tuple[int, Envelope]] = []
        namespace = broker.namespaces.get(self._namespace.name)
        if namespace is None or address not in namespace.destinations:
            return found
        cursor: int | None = None
        while True:
            cursor, page = namespace.browse(address, condition, cursor, 1_000, self._now())
            found += page
            if cursor is None:
                return found

    def scheduled(self, selector: str | None = None) -> list[Message]:
        """The messages that wait for their delivery time, or for the end of their redelivery delay."""
        condition = compiled(selector)
        return [self._message(envelope) for envelope in self._ask(lambda broker: self._delayed(broker, condition))]

    def _delayed(self, broker: Broker, condition: CompiledSelector | None) -> list[Envelope]:
        """As :meth:`scheduled`. Runs on the broker's thread."""
        queue = self._destination(broker)
        if queue is None:
            return []
        page = partial(scheduled, queue, condition, (-1, -1), max(1, len(queue.scheduled)))
        return [entry.envelope for entry in finish(page, 0)[0]]

    def dead_letters(self, selector: str | None = None) -> list[Message]:
        """The messages of this queue that are on its dead-letter queue."""
        condition = compiled(selector)
        letters = self._ask(lambda broker: self._letters(broker, condition, None))
        where = parse_destination(dead_letter_address(self.name) or self.name)
        return [received(envelope.fields, where, count, None) for count, envelope in letters]

    def _letters(
        self, broker: Broker, condition: CompiledSelector | None, reason: str | None
    ) -> list[tuple[int, Envelope]]:
        """The dead letters of this queue, and of one reason. Runs on the broker's thread."""
        target = dead_letter_address(self.name)
        if target is None:
            return self._browse(broker, self.name, condition)
        return [
            (count, envelope)
            for count, envelope in self._browse(broker, target, condition)
            if envelope.properties.get(ORIGIN) == self.name and reason in (None, envelope.properties.get(REASON))
        ]

    @property
    def depth(self) -> int:
        """Messages that wait."""
        return self._count(lambda queue: queue.depth)

    @property
    def in_flight(self) -> int:
        """Messages that consumers hold and have not acknowledged."""
        return self._count(lambda queue: queue.in_flight)

    @property
    def acknowledged(self) -> int:
        """Messages acknowledged so far."""
        return self._count(lambda queue: queue.acknowledged)

    @property
    def expired(self) -> int:
        """Messages that have expired so far."""
        return self._count(lambda queue: queue.counts.expired)

    @property
    def redelivered(self) -> int:
        """Messages redelivered so far."""
        return self._count(lambda queue: queue.counts.redelivered)

    def _count(self, figure: Callable[[Queue], int]) -> int:
        def look(broker: Broker) -> int:
            queue = self._destination(broker)
            return 0 if queue is None else figure(queue)

        result: int = self._ask(look)
        return result

    @property
    def consumers(self) -> list[ConsumerView]:
        """The consumers of it."""

        def look(broker: Broker) -> list[ConsumerView]:
            queue = self._destination(broker)
            return [] if queue is None else [self._consumer(consumer) for consumer in queue.consumers]

        result: list[ConsumerView] = self._ask(look)
        return result

    def _peer(self, consumer: Consumer) -> Peer | None:
        return self._namespace.broker.server.shard.services.connections.get(connection_of(consumer.port))

    def _waits(self, consumer: Consumer) -> bool:
        if consumer.waiting or not consumer.credit:
            return consumer.waiting
        peer = self._peer(consumer)
        return peer is not None and peer.out.protocol != "sieve"

    def _consumer(self, consumer: Consumer) -> ConsumerView:
        connection = connection_of(consumer.port)
        condition = consumer.view.condition
        known = self._peer(consumer)
        return ConsumerView(
            consumer.id,
            connection,
            None if known is None else known.member.client_id,
            None if condition is None else str(condition),
            consumer.credit,
            consumer.unacknowledged,
            self._waits(consumer),
        )

    def purge(self) -> int:
        """Drop the waiting and scheduled messages; returns how many there were."""
        return int(self._ask(lambda broker: 0 if (queue := self._destination(broker)) is None else queue.clear()))

    def retry(self, selector: str | None = None) -> int:
        """Send the dead letters of this queue back to it, with attempts counted from zero.

        Args:
            selector: only those that match.

        Returns:
            How many there were.

        Raises:
            InvalidSelectorException: the selector has a mistake.
            RuntimeError: a dead letter cannot be sent back, for instance because the queue is full.
        """
        compiled(selector)
        target = dead_letter_address(self.name)
        condition = compiled(selector if target is None else letters_of(self.name, selector))

        def retry(broker: Broker) -> int:
            namespace = broker.namespace(self._namespace.name)
            letters = namespace.destinations.get(target or self.name)
            if not isinstance(letters, Queue):
                return 0
            choice = management.Choice(condition)
            retry = partial(management.retry, namespace, lambda origin: None, letters, choice)
            outcome: management.Handled = finish(retry, self._now())
            if outcome.stopped is not None:
                raise outcome.stopped
            return outcome.touched

        try:
            return int(self._ask(retry))
        except SieveError as error:
            raise RuntimeError(f"the dead letters of {self.name} cannot be sent back: {error}") from error

    def pause(self) -> None:
        """Stop deliveries; sending continues."""

        def pause(broker: Broker) -> None:
            namespace = broker.namespace(self._namespace.name)
            namespace.pause(namespace.queue(self._address))

        self._ask(pause)

    def resume(self) -> None:
        """Deliver again."""

        def resume(broker: Broker) -> None:
            namespace = broker.namespace(self._namespace.name)
            namespace.unpause(namespace.queue(self._address), self._now())

        self._ask(resume)

    # -- assertions -------------------------------------------------------------------------------------------------

    def assert_received(
        self, selector: str | None = None, *, count: int | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """Messages have arrived in this queue, with any outcome.

        Args:
            selector: only those that match.
            count: the exact number; None for at least one.
            within: seconds, or a timedelta, to wait for them at most.

        Returns:
            The messages, in order of arrival.

        Raises:
            AssertionError: lists what did arrive, and why it does not match.
            InvalidSelectorException: the selector has a mistake.
            RuntimeError: called on a running event loop with time to wait.
        """
        __tracebackhide__ = True
        return self._assert_events("accepted", "received", selector, count, within)

    def assert_consumed(
        self, selector: str | None = None, *, count: int | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """Messages of this queue were acknowledged. Arguments and errors as for :meth:`assert_received`."""
        __tracebackhide__ = True
        return self._assert_events("acknowledged", "consumed", selector, count, within)

    def assert_dead_letters(
        self, selector: str | None = None, *, count: int | None = None, reason: str | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """Messages of this queue have become dead letters, and are still there.

        Args:
            selector: only those that match.
            count: the exact number; None for at least one.
            reason: ``attempts``, ``expired`` or ``rejected``: only those.
            within: seconds, or a timedelta, to wait for them at most.

        Returns:
            The dead letters.

        Raises:
            AssertionError: states how many there are.
            InvalidSelectorException: the selector has a mistake.
            ValueError: there is no such reason.
        """
        __tracebackhide__ = True
        check_reason(reason)
        condition, needed = compiled(selector), at_least(count)
        self._namespace.broker.wait_for(lambda broker: len(self._letters(broker, condition, reason)) >= needed, within)
        letters = self._ask(lambda broker: self._letters(broker, condition, reason))
        where = parse_destination(dead_letter_address(self.name) or self.name)
        found = [received(envelope.fields, where, times, None) for times, envelope in letters]
        if len(found) >= 1 if count is None else len(found) == count:
            return found
        raise AssertionError(other_letters(self.name, selector, count, reason, len(found), self._if_missing()))

    def assert_scheduled(
        self, selector: str | None = None, *, count: int | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """Messages wait for their delivery time, or for the end of their redelivery delay: a test may skip that.

        Args:
            selector: only those that match.
            count: the exact number; None for at least one.
            within: seconds, or a timedelta, to wait for them at most.

        Returns:
            The messages.

        Raises:
            AssertionError: states how many there are.
            InvalidSelectorException: the selector has a mistake.
            RuntimeError: called on a running event loop with time to wait.
        """
        __tracebackhide__ = True
        condition, needed = compiled(selector), at_least(count)
        self._namespace.broker.wait_for(lambda broker: len(self._delayed(broker, condition)) >= needed, within)
        found = self.scheduled(selector)
        if len(found) >= 1 if count is None else len(found) == count:
            return found
        text = [shortfall(self.name, "scheduled", selector, count, within, len(found)), *self._if_missing()]
        raise AssertionError("\n".join(text))

    def assert_awaited(self, *, count: int = 1, within: Seconds = 0.0) -> None:
        """A consumer waits for a message here. A thread's ``receive`` must have begun to wait before a test skips its
        time.

        Args:
            count: the number of consumers, at least.
            within: seconds, or a timedelta, to wait for that at most.

        Raises:
            AssertionError: states how many wait.
        """
        __tracebackhide__ = True

        def look(broker: Broker) -> bool:
            queue = self._destination(broker)
            return queue is not None and sum(map(self._waits, queue.consumers)) >= count

        if not self._namespace.broker.wait_for(look, within):
            raise AssertionError(unawaited(self.name, count, self.consumers, self._if_missing()))

    def assert_empty(self, *, within: Seconds = 0.0) -> None:
        """No message waits, is scheduled or is in flight.

        Args:
            within: seconds, or a timedelta, to wait for that at most.

        Raises:
            AssertionError: lists the messages that are left; or there never was such a queue: a mistake in its name.
        """
        __tracebackhide__ = True

        def left(broker: Broker) -> tuple[int, int, int] | None:
            queue: Queue | None = self._destination(broker)
            return None if queue is None else (queue.depth, len(queue.scheduled), queue.in_flight)

        if self._namespace.broker.wait_for(lambda broker: left(broker) == (0, 0, 0), within):
            return
        found = self._ask(left)
        if found is None:
            if self._existed():
                return  # it was deleted
            raise AssertionError(missing(self.name, self._namespace.destinations))
        depth, later, in_flight = found
        if depth or later or in_flight:
            text = [f"{self.name} is not empty: {depth} wait, {later} are scheduled, {in_flight} are in flight"]
            text += [f"  waits: {message!r}" for message in self.messages()[:_SHOWN]]
            text += self._ask(lambda broker: _held(self._queues(broker)))
            failure, cause = self._failure(text)
            raise failure from cause


class TopicView(_View):
    """A topic of a namespace; it need not exist yet."""

    @property
    def subscriptions(self) -> list[Mapping[str, Any]]:
        """The subscriptions: name, client_id, selector, durable, shared, depth, consumers."""

        def look(broker: Broker) -> list[Mapping[str, Any]]:
            topic = self._destination(broker)
            if topic is None:
                return []
            return [
                {
                    "name": subscription.name,
                    "client_id": subscription.client_id,
                    "selector": None if subscription.condition is None else str(subscription.condition),
                    "durable": subscription.durable,
                    "shared": subscription.shared,
                    "depth": subscription.queue.depth,
                    "in_flight": subscription.queue.in_flight,
                    "consumers": len(subscription.queue.consumers),
                }
                for subscription in topic.subscriptions
            ]

        result: list[Mapping[str, Any]] = self._ask(look)
        return result

    def assert_received(
        self, selector: str | None = None, *, count: int | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """This topic has accepted messages, with or without subscribers. A transaction's send counts after its commit.

        Arguments, return and errors as for :meth:`QueueView.assert_received`.
        """
        __tracebackhide__ = True
        return self._assert_events("published", "received", selector, count, within)

    def assert_awaited(self, *, count: int = 1, within: Seconds = 0.0) -> None:
        """Consumers are subscribed: messages published from now on reach them.

        Args:
            count: subscriptions with an open consumer, at least.
            within: seconds, or a timedelta, to wait for that at most.

        Raises:
            AssertionError: how many there are.
        """
        __tracebackhide__ = True

        def active(broker: Broker) -> int:
            topic = self._destination(broker)
            return 0 if topic is None else sum(subscription.active for subscription in topic.subscriptions)

        if not self._namespace.broker.wait_for(lambda broker: active(broker) >= count, within):
            raise AssertionError(unsubscribed(self.name, count, self._ask(active)))

    def assert_consumed(
        self, selector: str | None = None, *, count: int | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """Messages of this topic were acknowledged, through any subscription; each acknowledgement counts."""
        __tracebackhide__ = True
        return self._assert_events("acknowledged", "consumed", selector, count, within)


def shortfall(name: str, word: str, selector: str | None, count: int | None, within: Seconds, found: int) -> str:
    """The first line of a failed assertion about messages."""
    return (
        f"{name}: {'at least 1 message' if count is None else counted(count, 'message')} should have been {word}"
        + (f' that match "{selector}"' if selector else "")
        + (f" within {seconds('within', within):g} s" if within else "")
        + f"; {found or 'none'} {'was' if found == 1 else 'were'}"
    )


def missing(name: str, names: Iterable[str]) -> str:
    """The error of an assertion about a destination that has never existed."""
    kind = name.partition(":")[0]
    others = sorted(other for other in names if other.startswith(f"{kind}:"))
    there = near_destination(name, others)
    hint = f"did you mean {there}?" if there is not None else f"there are {', '.join(others) or f'no {kind}s'}"
    return f"{name} has never existed: no client has sent to it or consumed from it; {hint}"


def check_reason(reason: str | None) -> None:
    """Raise a ValueError if no dead letter can have this reason."""
    if reason is not None and reason not in REASONS:
        raise ValueError(f"the reason of a dead letter is one of {', '.join(map(repr, REASONS))}, not {reason!r}")


def other_letters(
    name: str, selector: str | None, count: int | None, reason: str | None, found: int, more: list[str]
) -> str:
    """The error of a queue that has another number of dead letters."""
    wanted = "at least 1 dead letter" if count is None else counted(count, "dead letter")
    text = (
        f"{name}: there should be {wanted}"
        + (f' that match "{selector}"' if selector else "")
        + (f" with the reason {reason!r}" if reason else "")
        + f"; there {'is' if found == 1 else 'are'} {found or 'none'}"
    )
    return "\n".join([text, *more])


def unawaited(name: str, count: int, consumers: list[ConsumerView], more: list[str]) -> str:
    """The error of a queue on which too few consumers wait."""
    waiting = sum(consumer.waiting for consumer in consumers)
    found = f"{waiting} of {len(consumers)} {'is' if waiting == 1 else 'are'}"
    return "\n".join([f"{name}: {counted(count, 'consumer')} should be waiting for a message; {found}", *more])


def unsubscribed(name: str, count: int, found: int) -> str:
    return f"{name}: {counted(count, 'subscription')} should have an open consumer; {found or 'none'} has"


def letters_of(name: str, selector: str | None) -> str:
    origin = "{} = '{}'".format(ORIGIN, name.replace("'", "''"))
    return f"({selector}) AND {origin}" if selector and not selector.isspace() else origin


def at_least(count: int | None) -> int:
    if count is None:
        return 1
    if type(count) is not int or count < 0:
        raise ValueError(f"count is an int that is not negative, or None for at least one; not {count!r}")
    return count


def compiled(selector: str | None) -> CompiledSelector | None:
    """A selector of an assertion, None for none; warns of a doubtful one as a consumer does."""
    try:
        found = compile_selector(selector)
    except SelectorError as error:
        raise from_core(error) from error
    for finding in () if found is None else found.warnings:
        warn(f"{finding.message} (in the selector {selector!r:.200})", DoubtfulSelectorWarning)
    return found


def listed(envelopes: list[Envelope], what: str, reason: Callable[[Envelope], str] | None = None) -> list[str]:
    lines = [
        f"  {what}: {show_message(envelope)}{f': {reason(envelope)}' if reason is not None else ''}"
        for envelope in envelopes[:_SHOWN]
    ]
    if len(envelopes) > _SHOWN:
        lines.append(f"  and {len(envelopes) - _SHOWN} more")
    return lines


def _held(queues: list[Queue]) -> list[str]:
    """The consumers that hold messages of these queues unacknowledged."""
    lines = []
    for name, held in list(held_by(queues))[:_SHOWN]:
        lines.append(f"  {name} holds {counted(len(held), 'message')} unacknowledged:")
        lines += [f"    {show_message(envelope)}" for envelope in held[:_SHOWN]]
        if len(held) > _SHOWN:
            lines.append(f"    and {len(held) - _SHOWN} more")
    return lines


def address_of(destination: str | Destination, topic: bool) -> Address:
    """A destination as a test names it: ``orders``, or with its kind, ``queue:orders``, or as what clients use."""
    name = str(destination)
    misspelt = misspelt_kind(name)
    if misspelt is not None:
        raise ValueError(misspelt)
    address = parse_address(name)
    if topic and address.kind is Kind.QUEUE and not name.startswith("queue:"):
        return Address(Kind.TOPIC, name)
    if address.kind.is_topic != topic:
        raise ValueError(f"{name} is a {address.kind.value}; ask for it with .{'topic' if not topic else 'queue'}()")
    return address

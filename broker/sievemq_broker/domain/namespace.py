"""A namespace: its destinations, subscriptions and client ids, and every verb that names one of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from sievemq_broker.domain import capacity, dead_letters
from sievemq_broker.domain.admission import MESSAGE_BYTES, Gate, Limited, NoRoomError, Overfull, Rooms
from sievemq_broker.domain.backlog import check_cursor, check_part
from sievemq_broker.domain.client_ids import ClientIds
from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.deadlines import Deadlines
from sievemq_broker.domain.entry import Entry, key_of
from sievemq_broker.domain.examining import examine
from sievemq_broker.domain.failure import Failure
from sievemq_broker.domain.journal import ENTRY_BYTES, Journal
from sievemq_broker.domain.origin import RequestId
from sievemq_broker.domain.overrides import overridden
from sievemq_broker.domain.place import Place
from sievemq_broker.domain.policy import BLOCK, FAIL, DomainSettings, NamespacePolicy
from sievemq_broker.domain.ports import DeliveryPort, Observer
from sievemq_broker.domain.publishing import (
    Publishing,
    Sends,
    Weighing,
    is_large,
    load_of,
    to_weigh,
)
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.stages import Stages
from sievemq_broker.domain.subscriptions import Subscriptions
from sievemq_broker.domain.tap import CopyTap
from sievemq_broker.domain.taps import Taps
from sievemq_broker.domain.temporaries import GoneError, Temporaries
from sievemq_broker.domain.topic import Topic
from sievemq_broker.domain.work import Budget, Job, Make, Task
from sievemq_broker.matching.condition import Condition
from sievemq_core.counted import counted
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.message.destination import Address, parse_address
from sievemq_core.message.envelope import DELIVERY_MODE, Envelope
from sievemq_core.message.headers import PERSISTENT

Destination: TypeAlias = Queue | Topic


class Above(Protocol):
    """The part of the broker that namespaces need."""

    @property
    def settings(self) -> DomainSettings:
        """Policies and limits."""

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers of the outcome of all messages."""

    @property
    def journal(self) -> Journal | None:
        """The journal."""

    @property
    def deadlines(self) -> Deadlines:
        """The broker's deadlines."""

    @property
    def rooms(self) -> Rooms:
        """Senders that wait at a limit."""

    @property
    def over(self) -> Overfull | None:
        """The limit that the broker has reached with all messages together; None below it."""

    @property
    def gate(self) -> Gate | None:
        """Counts arrivals while the broker is near its limit."""

    @property
    def on_deleted(self) -> Callable[[Destination], None] | None:
        """Called with each queue and topic before it is deleted."""

    def stamp_soon(self, tap: CopyTap) -> None:
        """See :meth:`~sievemq_broker.domain.broker.Broker.stamp_soon`."""

    @property
    def fan_out(self) -> Job[None] | None:
        """The message that is being delivered to very many subscriptions."""

    @property
    def busy(self) -> Job[None] | None:
        """The task that must complete before another message is delivered to very many subscriptions."""

    def begin_fan_out(self, deliver: Make[None], take: Callable[[], None], *, moved: bool) -> None:
        """Begin to deliver a message to very many subscriptions. No other one is under way."""

    def finish_fan_out(self, now: int) -> None:
        """Complete such a delivery at once."""

    def publish(self, publishing: Publishing, key: Hashable, now: int) -> None:
        """Begin to publish a batch."""

    def add_work(self, queue: Queue) -> None:
        """A queue has pending work."""


class Namespace:
    """A namespace: its destinations are separate from those of others. Addresses are :class:`Address` or text; text is
    faster.

    Attributes:
        name: of the namespace.
        destinations: by address in canonical text.
        temporaries: the owners of temporary destinations.
        client_ids: of the open connections.
        subscriptions: the named ones.
        taps: see :mod:`sievemq_broker.domain.tap`.
        policy: its limits, None if it has none.
        over: the limit that it has reached; None below its limits.
        gate: counts arrivals; None if it has no limits.
        stages: sends that wait to be published together, see :mod:`sievemq_broker.domain.stages`.
        publishing: the large batch that is being published; None if there is none.
    """

    def __init__(self, name: str, broker: Above) -> None:
        self.name = name
        self.broker = broker
        self.destinations: dict[str, Destination] = {}
        self.policy = broker.settings.policy_for_namespace(name)
        self.over: Overfull | None = None
        self.gate: Gate | None = None
        self.temporaries = Temporaries(self)
        self.client_ids = ClientIds()
        self.subscriptions = Subscriptions(self, broker.settings.max_subscriptions)
        self.taps = Taps(self, broker.stamp_soon)
        self.stages = Stages(self)
        self.publishing: Publishing | None = None
        # Destinations by the names that senders use, such as a bare name: all of them, and those that may be sent to
        # without further checks.
        self._known: dict[str | Address, Destination] = {}
        self._routes: dict[str | Address, Destination] = {}

    def __repr__(self) -> str:
        return f"<Namespace {self.name!r} destinations={len(self.destinations)}>"

    @property
    def journal(self) -> Journal | None:
        return self.broker.journal

    @property
    def deadlines(self) -> Deadlines:
        return self.broker.deadlines

    # -- destinations -------------------------------------------------------------------------------------------

    def find(self, address: Address | str) -> Destination | None:
        """The destination with this address, or None.

        Raises:
            AddressError: the text is no address.
        """
        return self.destinations.get(str(address if isinstance(address, Address) else parse_address(address)))

    def declare(self, address: Address | str) -> Destination:
        """The destination with this address; created if there is none.

        Raises:
            AddressError: the text is no address.
            GoneError: a temporary destination is gone (TMP-08).
            RequestError: INVALID_DESTINATION if auto-creation is off;
                RESOURCE_ALLOCATION if there are too many.
        """
        destination = self._routes.get(address)
        if destination is not None:
            return destination
        given = address
        destination = self._known.get(given)
        if destination is None:
            if isinstance(address, str):
                address = parse_address(address)
            destination = self.destinations.get(str(address))
            if destination is None:
                self._check_missing(address)
                destination = self.create(address)
            self._known[given] = destination
        broker = self.broker
        journal = broker.journal
        if (
            (journal is None or not journal.guards)
            and self.over is None
            and self.gate is None
            and broker.over is None
            and broker.gate is None
        ):
            self._routes[given] = destination  # otherwise every send takes this way
        return destination

    def _check_missing(self, address: Address) -> None:
        """Raise unless a destination that is not there may be used: it can be created."""
        if address.kind.is_temporary:
            raise GoneError(address)
        if not self.broker.settings.auto_create:
            text = f"{address} does not exist and destinations are not made on first use here; create it first"
            raise RequestError(text, ErrorCode.INVALID_DESTINATION, {"destination": str(address)})

    def create(self, address: Address | str) -> Destination:
        """Find or create a destination.

        Raises:
            RequestError: RESOURCE_ALLOCATION if there are too many.
        """
        if isinstance(address, str):
            address = parse_address(address)
        text = str(address)
        destination = self.destinations.get(text)
        if destination is None:
            settings = self.broker.settings
            if len(self.destinations) >= settings.max_destinations:
                raise RequestError(
                    f"namespace {self.name!r} has {counted(len(self.destinations), 'destination')}, as many as are "
                    "allowed; delete unused ones",
                    ErrorCode.RESOURCE_ALLOCATION,
                    {"limit": "max_destinations"},
                )
            destination = self.destinations[text] = self._make(address, text)
        return destination

    def _make(self, address: Address, text: str) -> Destination:
        place, policy, journal = Place(self.name, text), self.broker.settings.policy_for(text), self.broker.journal
        if address.kind.is_topic:
            made: Destination = Topic(
                place, policy, lambda where, how, left: Queue(where, how, self, left), self.client_ids, self.broker
            )
        else:
            made = Queue(place, policy, self)
        if journal is not None and not address.kind.is_temporary:
            number = 0
            if isinstance(made, Queue):
                number = journal.take_number()
                made.observe(journal.ledger(number))
            journal.destination_made(place, number)
        return made

    def delete(self, address: Address | str, reason: str = "deleted by an administrator") -> bool:
        """Delete a destination with its messages and subscriptions. Consumers are closed with a notice to their ports.

        Returns:
            False if there was none.
        """
        destination = self.find(address)
        if destination is None:
            return False
        text = f"{destination.label} was {reason}"
        if isinstance(destination, Topic):
            if self.broker.on_deleted is not None:
                self.broker.on_deleted(destination)
            for subscription in list(destination.subscriptions):
                subscription.queue.delete(ErrorCode.INVALID_DESTINATION, text)
                self.subscriptions.drop(subscription)
        else:
            destination.delete(ErrorCode.INVALID_DESTINATION, text)
        del self.destinations[destination.label]
        journal = self.broker.journal
        if journal is not None and self.temporaries.owner_of(destination.label) is None:
            if destination.paused:
                journal.destination_paused(destination.place, False)
            journal.destination_deleted(destination.place)
        self.taps.drop_all_on(destination.label)
        self.temporaries.forget(destination.label)
        known = parse_address(destination.label)
        forms: tuple[str | Address, ...] = (known, destination.label, known.name)
        for routes in (self._known, self._routes):
            for form in forms:
                if routes.get(form) is destination:
                    del routes[form]
        return True

    def pause(self, destination: Destination) -> None:
        """Stop deliveries from a destination, also after a restart. Producers can still send."""
        destination.pause()
        self._note_pause(destination)

    def unpause(self, destination: Destination, now: int) -> None:
        destination.unpause(now)
        self._note_pause(destination)

    def _note_pause(self, destination: Destination) -> None:
        journal = self.broker.journal
        if journal is not None and self.temporaries.owner_of(destination.label) is None:
            journal.destination_paused(destination.place, destination.paused)

    # -- sending ------------------------------------------------------------------------------------------------

    def send(
        self,
        address: Address | str,
        envelope: Envelope,
        now: int,
        connection: str | None = None,
        waited: bool = False,
    ) -> list[Limited] | None:
        """Send a message. Either all subscriptions of a topic get it or none does, except those that drop it because of
        their limits.

        Args:
            address: the destination; created if it does not exist.
            now: ms epoch.
            connection: id of the sender's connection, for no_local.
            waited: the message has waited for room, and is the next.

        Returns:
            None if the message was sent. Otherwise the places where it must wait for room (:attr:`Broker.rooms`).

        Raises:
            AddressError, RequestError: as :meth:`declare`; RESOURCE_ALLOCATION if a limit would be passed.
        """
        destination = self._routes.get(address)
        if destination is None:
            try:
                destination = self._look_up(address, envelope)
            except NoRoomError as error:
                return [error.place]
            if waited and (busy := self._busy(destination)):
                return busy
            load = partial(_load_of, ((destination, envelope),), connection)
            over = self.over or self.broker.over or self._enter(load)
            if over is not None:
                if over.refuses:
                    self._check_over()
                return [over]
        elif waited and (busy := self._busy(destination)):
            return busy
        policy = destination.policy
        if policy.special:
            envelope = overridden(policy, envelope, now)
            if policy.limited:
                waiting = () if waited else self.broker.rooms.waiting
                full = capacity.send_within(destination, envelope, now, connection, waiting)
                envelope.compact()
                return full
        self.send_row(destination, [envelope], now, connection)
        return None

    def _busy(self, destination: Destination) -> list[Limited]:
        """What a message that has waited for room must wait for next, if it would be delivered in slices and may not
        yet."""
        busy = self.broker.busy if destination.large else None
        return [] if busy is None else [busy]

    def route(self, address: str) -> Destination | None:
        """The destination for :meth:`send_row`; None if :meth:`send` must examine each message."""
        destination = self._routes.get(address)
        return None if destination is None or destination.policy.special else destination

    def send_row(self, destination: Destination, envelopes: list[Envelope], now: int, connection: str | None) -> None:
        """:meth:`send` for one message or several. Cannot fail.

        Args:
            envelopes: in order. One; or several, none of which expires, or is for later.
            now: ms epoch.
            connection: id of the sender's connection, for no_local.
        """
        if isinstance(destination, Topic):
            destination.publish(envelopes, now, connection)
        else:
            destination.accept(envelopes, now)
        for envelope in envelopes:  # the destination is known; in flight only the packed bytes are needed
            envelope.compact()

    def transfer(self, address: Address | str, envelope: Envelope, now: int) -> None:
        """Send a message that was in the broker before, or whose sender cannot wait. It is refused if a producer would
        have to wait, or if the message would be dropped.

        Raises:
            AddressError, RequestError: as :meth:`send`.
        """
        destination = self._routes.get(address)
        if destination is None:
            destination = self._look_up(address, envelope)
            self._count(((destination, envelope),))  # the caller has checked whether there is room
        envelope = overridden(destination.policy, envelope, now, moved=True)
        if destination.policy.limited:
            capacity.move_within(destination, envelope, now)
            return
        if isinstance(destination, Queue):
            self.deadlines.spend(2 * (destination.index.most + destination.fan_out))
            destination.accept([envelope], now)
        else:
            destination.publish([envelope], now, None, moved=True)

    def weighing(self, sends: Sends, connection: str | None) -> dict[str, Weighing]:
        """A :class:`Weighing` for each topic, by address, that :meth:`begin` needs. :meth:`examining` carries them out.

        Args:
            connection: id of the sender's connection, for no_local.
        """
        contested = self.publishing is not None or bool(self.broker.rooms.waiting)
        gated = self.gate is not None or self.broker.gate is not None
        topics = to_weigh(sends, self.destinations, contested, gated)
        return {address: Weighing(topic, connection) for address, topic in topics.items()}

    def examining(self, sends: Sends, weighed: Mapping[str, Weighing] | None = None) -> Make[int] | None:
        """Makes the task that is needed before these messages are sent. None if no selectors are costly, there are not
        very many subscriptions, and no overrides change how much a large batch adds to a limit.

        Args:
            sends: a message is replaced if rules of its destination change it.
            weighed: for a COMMIT the result of :meth:`weighing`; None for single sends, which must wait here until the
                broker may deliver in slices. A batch waits later.
        """
        together = weighed is not None
        costly: dict[str, Destination] | None = None
        for address in sends.totals:
            destination = self._known.get(address) or self._find_text(address)
            if destination is not None and (
                destination.index.costly
                or (destination.large and not together)
                or (weighed and address in weighed)
                or (together and destination.policy.overrides and destination.policy.limited)
            ):
                costly = costly or {}
                costly[address] = destination
        return (
            None
            if costly is None
            else partial(examine, sends, costly, None if together else self.broker, weighed or {})
        )

    def examine(self, sends: Sends, now: int, budget: Budget) -> Task[int]:
        """Carry out :meth:`examining`. Returns the time."""
        examining = self.examining(sends)
        if examining is not None:
            now = yield from examining(now, budget)
        return now

    def _find_text(self, address: str) -> Destination | None:
        """The destination with this address, if there is one. An invalid address raises when it is used."""
        try:
            return self.find(address)
        except SieveError:
            return None

    def set_over(self, over: Overfull | None) -> None:
        """The namespace has reached a limit; None: it is below its limits."""
        if self.over is not None:
            self.over.end()
        self.over = over
        self.forget_routes()

    def check_kept(self, sends: Sends) -> None:
        """Raise unless all of these messages together can be stored, as :meth:`Journal.check`."""
        journal = self.broker.journal
        if journal is None:
            return
        if journal.refusing is None and journal.has_room(2 * sends.bytes):
            return
        size, where = 0, ""
        for address, envelope in sends:
            destination = self.declare(address)
            kept = _kept_bytes(destination, envelope)
            if kept:
                size += kept
                where = destination.label
        if size:
            journal.check(size, where)

    def commit(
        self,
        sends: Sends,
        now: int,
        connection: str | None = None,
        *,
        patient: bool = False,
        waited: bool = False,
        acknowledges: bool = False,
    ) -> list[Limited] | None:
        """Send several messages, all or none (TXN-10), in order (TXN-12).

        Args:
            now: ms epoch.
            connection: id of the sender's connection, for no_local.
            patient: the sender can wait for room; one that cannot is refused.
            waited: it has waited for room, and is the next.
            acknowledges: the transaction also acknowledges messages: see :meth:`enter_several`.

        Returns:
            None if all were sent. Otherwise, for a patient sender, the places that need room; then nothing was sent.

        Raises:
            AddressError, RequestError: as :meth:`send`; nothing has been sent then.
        """
        checked: list[tuple[Destination, Envelope]] = []
        load: dict[Queue, tuple[int, int, int]] = {}
        try:
            self.check_kept(sends)
        except NoRoomError as error:
            if patient:
                return [error.place]
            raise
        for address, envelope in sends:
            destination = self.declare(address)
            if destination.policy.special:
                envelope = overridden(destination.policy, envelope, now)
                if destination.policy.limited:
                    queues = (
                        destination.matching(envelope, connection) if isinstance(destination, Topic) else [destination]
                    )
                    length = len(envelope.packed)
                    for queue in queues:
                        messages, size, largest = load.get(queue, (0, 0, 0))
                        load[queue] = messages + 1, size + length, max(largest, length)
            checked.append((destination, envelope))
        full = self.enter_several(partial(_load_of, checked, connection), patient, acknowledges) if checked else []
        waiting = () if waited else self.broker.rooms.waiting
        full += capacity.lacking((([queue], *of) for queue, of in load.items()), patient, waiting)
        if full:
            return full
        for destination, envelope in checked:
            if destination.policy.limited:
                queues = destination.matching(envelope, connection) if isinstance(destination, Topic) else [destination]
                capacity.admit_to(destination, queues, envelope, now, moved=False)
                envelope.compact()
            else:
                self.send_row(destination, [envelope], now, connection)
        return None

    def is_large(self, sends: Sends) -> bool:
        """True if a batch must be added in slices, by :meth:`begin`."""
        return is_large(sends, self.destinations)

    def begin(
        self,
        sends: Sends,
        now: int,
        connection: str | None = None,
        *,
        patient: bool = False,
        waited: bool = False,
        acknowledges: bool = False,
        weighed: Mapping[str, Weighing] | None = None,
    ) -> Publishing | list[Limited]:
        """:meth:`commit` in slices. No other batch may be under way in this namespace.

        Args:
            sends: its messages.
            weighed: the result of :meth:`weighing`, examined since.

        Returns:
            The batch that has begun. Otherwise, for a patient sender, the places that need room.

        Raises:
            AddressError, RequestError: as :meth:`commit`. Nothing was sent then.
        """
        destinations = {address: self.declare(address) for address in sends.totals}
        try:
            self.check_kept(sends)
        except NoRoomError as error:
            if patient:
                return [error.place]
            raise
        waiting = () if waited else self.broker.rooms.waiting
        load, roomy = load_of(sends, destinations, connection, bool(waiting), weighed or {})
        batch = partial(_load_of_batch, sends, destinations, connection, weighed or {})
        full = self.enter_several(batch, patient, acknowledges) if sends else []
        if waiting:
            roomy.clear()  # blocked senders come first
        going_to = ((queues, *of) for goal, of in load.items() if goal not in roomy and (queues := goal.queues))
        full += capacity.lacking(going_to, patient, waiting)
        if full:
            return full
        reserved = {
            goal: (messages, size)
            for goal, (messages, size, _) in load.items()
            if goal.policy.at_limit in (FAIL, BLOCK)
        }
        publishing = self.publishing = Publishing(sends, destinations, reserved, connection, self.broker)
        publishing.then(self._published)
        self.broker.publish(publishing, self, now)
        return publishing

    def _published(self, now: int) -> None:
        self.publishing = None

    def publish(
        self, sends: Sends, now: int, connection: str | None, weighed: Mapping[str, Weighing] | None = None
    ) -> Publishing | None:
        """:meth:`commit`, or :meth:`begin` for a large batch.

        Returns:
            A large batch, which has begun.

        Raises:
            AddressError, RequestError: as there.
        """
        if self.is_large(sends):
            begun = self.begin(sends, now, connection, weighed=weighed)
            assert isinstance(begun, Publishing)  # a sender that cannot wait is refused
            return begun
        self.commit(sends, now, connection)
        return None

    def _look_up(self, address: Address | str, envelope: Envelope) -> Destination:
        """Find the destination of a message whose address is not in use yet, or while not every message can be
        stored."""
        destination = self.declare(address)
        journal = self.broker.journal
        if journal is not None and journal.guards:
            kept = _kept_bytes(destination, envelope)
            if kept:
                persistent = (destination.policy.delivery_mode or envelope.fields[DELIVERY_MODE]) == PERSISTENT
                what = "PERSISTENT messages" if persistent else "messages, which its tap keeps,"
                journal.check(kept, destination.label, what)
        return destination

    def set_gate(self, gate: Gate | None) -> None:
        """Count arrivals; None if there are no limits."""
        self.gate = gate
        self.forget_routes()

    # -- limits -------------------------------------------------------------------------------------------------

    def check_room(self, address: Address, envelope: Envelope) -> None:
        """Raise unless the namespace and the broker have room for a message whose sender cannot wait.

        Raises:
            AddressError, RequestError: as :meth:`declare`; RESOURCE_ALLOCATION.
        """
        over = (
            self.over or self.broker.over or self._enter(partial(_load_of, ((self.declare(address), envelope),), None))
        )
        if over is not None:
            raise self._refusal(over)

    def enter_several(
        self,
        load: Callable[[], tuple[int, int]],
        patient: bool,
        acknowledges: bool,
    ) -> list[Limited]:
        """Count an arriving batch. A batch that acknowledges something makes room itself, so it need not
        wait for the broker, and is accepted even if the broker is full.

        Args:
            load: its messages and bytes, called if they are limited.

        Returns:
            What is at its limit: the batch must not come in then.

        Raises:
            RequestError: RESOURCE_ALLOCATION, it could never come in; or would have to wait, and cannot.
        """
        waits = patient and not acknowledges
        over = (self.broker.over if waits else None) or self.over
        over = over or self._enter(load, whether_full=waits)
        if over is None:
            return []
        if over.refuses or not patient:
            self._check_over()
        return [over]

    def _enter(self, load: Callable[[], tuple[int, int]], *, whether_full: bool = True) -> Overfull | None:
        """Count sends that are about to arrive.

        Args:
            load: messages and bytes, called if they are limited.
            whether_full: ask whether the broker has room; otherwise they come in though it has none.

        Returns:
            None; or what is at its limit, of the namespace and the broker: they must not come in then.

        Raises:
            RequestError: RESOURCE_ALLOCATION, they could never come in.
        """
        gate, broker_gate = self.gate, self.broker.gate
        if gate is None and broker_gate is None:
            return None
        messages, size = load()
        over = None if gate is None else gate.enter(messages, size)
        if over is None and broker_gate is not None:
            if whether_full:
                return broker_gate.enter(messages, size)
            broker_gate.count(messages, size)
        return over

    def _count(self, sends: Iterable[tuple[Destination, Envelope]]) -> None:
        for gate in (self.gate, self.broker.gate):
            if gate is not None:
                gate.count(*_load_of(sends, None))

    def _check_over(self) -> None:
        """Raise RequestError RESOURCE_ALLOCATION if the namespace is at its limit, for a sender that cannot wait."""
        if self.over is not None:
            raise self._refusal(self.over)

    def _refusal(self, over: Overfull) -> RequestError:
        details: dict[str, object] = {"namespace": self.name, "limit": over.limit}
        if over is self.over and self.policy is not None:
            details["rule"] = self.policy.pattern
        return RequestError(over.limit_text, ErrorCode.RESOURCE_ALLOCATION, details)

    def configure(self, policy: NamespacePolicy | None) -> None:
        """Have other limits from now on; None for none. What exceeds them stays, and senders that wait try again."""
        self.policy = policy
        self.set_over(None)

    def forget_routes(self) -> None:
        """Look every destination up again, since the checks for its senders have changed."""
        self._routes.clear()

    # -- receiving ----------------------------------------------------------------------------------------------

    def open_consumer(
        self,
        port: DeliveryPort,
        consumer_id: int,
        address: Address | str,
        selector: Condition | None = None,
        *,
        connection: str,
        client_id: str | None = None,
        no_local: bool = False,
        subscription: str | None = None,
        durable: bool = False,
        shared: bool = False,
        credit: int = 0,
        now: int,
        request: RequestId | None = None,
    ) -> Consumer:
        """Open a consumer. If that is refused, nothing is left behind.

        Args:
            address: a queue, or a topic; made if it does not exist.
            selector: the compiled selector, None for none.
            no_local: topics: not what the same connection publishes (SES-21); ignored for queues.
            subscription: name; needed for durable and shared ones.
            durable: the subscription outlives its consumers.
            now: ms epoch.
            request: that asks for it.

        Raises:
            AddressError, RequestError: as :meth:`declare`; INVALID_DESTINATION for what does not fit the kind of
                destination (SES-33) or a temporary one of another connection (TMP-03); ILLEGAL_STATE and
                SUBSCRIPTION_IN_USE by section 29.
        """
        destination = self.declare(address)
        owner = self.temporaries.owner_of(destination.label)
        if owner is not None and owner != connection:
            raise RequestError(
                f"{destination.label} belongs to another connection; only that one may consume from it",
                ErrorCode.INVALID_DESTINATION,
                {"destination": destination.label},
            )
        if isinstance(destination, Queue):
            if durable or shared or subscription is not None:
                raise RequestError(
                    f"{destination.label} is a queue; only topics have durable or shared subscriptions",
                    ErrorCode.INVALID_DESTINATION,
                    {"destination": destination.label},
                )
            return destination.open_consumer(port, consumer_id, selector, credit, now)
        if durable or shared:
            found = self.subscriptions.subscribe(
                destination,
                subscription,
                client_id,
                selector,
                durable=durable,
                shared=shared,
                no_local=no_local,
                connection=connection,
                temporary=owner is not None,
                request=request,
            )
        else:
            destination.refuse_if_full()
            found = self.subscriptions.make(
                destination,
                None,
                client_id,
                selector,
                durable=False,
                shared=False,
                no_local=no_local,
                connection=connection,
            )
        return found.queue.open_consumer(port, consumer_id, None, credit, now)

    def unsubscribe(self, client_id: str | None, name: str) -> Queue:
        """Delete a durable subscription and its messages.

        Returns:
            The queue that it had: very many messages are removed as pending work (:attr:`Queue.empty`).

        Raises:
            RequestError: INVALID_DESTINATION if there is none (SUB-24); SUBSCRIPTION_IN_USE if it has a consumer
                (SUB-25) or a message of it is not acknowledged (SUB-26).
        """
        return self.subscriptions.unsubscribe(client_id, name)

    # -- browsing -----------------------------------------------------------------------------------------------

    def browse(
        self,
        address: Address | str,
        selector: Condition | None,
        cursor: Any,
        limit: int,
        now: int,
        part: int = 0,
        parts: int = 0,
    ) -> tuple[int | None, list[tuple[Any, ...]]]:
        """A page of the messages that wait in a queue, in the order in which they would be delivered (BRW-03). Changes
        nothing. A queue that does not exist but would be created on first use is shown as empty, and not created.

        Args:
            selector: only what matches.
            cursor: what the last page answered; None for the first.
            limit: messages of the page; 0 only verifies the queue, and the cursor says whether it is there already.
            now: ms epoch; expired messages are not shown (BRW-09).
            part: only messages of this part, from 0.
            parts: how many parts there are; 0 for the whole queue.

        Returns:
            Cursor of the next page, None at the end; and pairs of delivery count and message, with the place in the
            order of delivery as a third member if there are parts. A page may be short, even empty, before the end: the
            work for one is bounded.

        Raises:
            AddressError, RequestError: as :meth:`declare`; INVALID_DESTINATION for a topic (BRW-12).
        """
        after = check_cursor(cursor)
        check_part(part, parts)
        if isinstance(address, str):
            address = parse_address(address)
        if self.find(address) is None and not address.kind.is_topic:
            self._check_missing(address)
            return None, []
        queue = self.queue(address)
        following, entries = queue.backlog.page(selector, after, limit, now, part=part, parts=parts)
        if parts:
            return following, [(entry.count + 1, entry.envelope, key_of(entry)) for entry in entries]
        return following, [(entry.count + 1, entry.envelope) for entry in entries]

    def queue(self, address: Address | str) -> Queue:
        """The queue with this address; created if there is none.

        Raises:
            AddressError, RequestError: as :meth:`declare`; INVALID_DESTINATION for a topic.
        """
        destination = self.declare(address)
        if isinstance(destination, Topic):
            raise RequestError(
                f"{destination.label} is a topic; only queues can be browsed or managed message by message",
                ErrorCode.INVALID_DESTINATION,
                {"destination": destination.label},
            )
        return destination

    # -- dead letters -------------------------------------------------------------------------------------------

    def dead_letter(
        self, place: Place, entry: Entry, reason: str, failure: Failure, now: int
    ) -> dead_letters.DeadLettering:
        """Move a message to its dead-letter queue (D-22), if that is possible."""
        self.deadlines.spend(dead_letters.effort_of(entry))
        return dead_letters.dead_letter(self.transfer, place, entry, reason, failure, now)

    # -- for its queues -----------------------------------------------------------------------------------------

    @property
    def observers(self) -> tuple[Observer, ...]:
        return self.broker.observers

    def add_work(self, queue: Queue) -> None:
        self.broker.add_work(queue)

    def blocked_senders(self, queue: Queue) -> int:
        return self.broker.rooms.waiters_at(queue)

    def queue_deleted(self, queue: Queue) -> None:
        if self.broker.on_deleted is not None:
            self.broker.on_deleted(queue)


def _kept_bytes(destination: Destination, envelope: Envelope) -> int:
    """Bytes that the journal would write for a message sent there; 0 if it would keep nothing."""
    size = len(envelope.packed)
    copies = sum([tap.kept for tap in destination.taps])  # of messages in any mode
    kept = copies * (size + ENTRY_BYTES)
    if (destination.policy.delivery_mode or envelope.fields[DELIVERY_MODE]) != PERSISTENT:
        return kept
    durable: int
    if isinstance(destination, Topic):
        durable = sum([subscription.durable for subscription in destination.subscriptions])
    else:
        durable = not destination.label.startswith("temporary")
    return kept + size + durable * ENTRY_BYTES if durable else kept


def _load_of(sends: Iterable[tuple[Destination, Envelope]], connection: str | None) -> tuple[int, int]:
    """Messages and bytes of a batch, for each queue that would get some.

    Args:
        connection: id of the sender's connection, for no_local.
    """
    messages = size = 0
    for destination, envelope in sends:
        copies = 1 if isinstance(destination, Queue) else destination.copies(envelope, connection)
        messages += copies
        size += copies * (len(envelope.packed) + MESSAGE_BYTES)
    return messages, size


def _load_of_batch(
    sends: Sends, destinations: Mapping[str, Destination], connection: str | None, weighed: Mapping[str, Weighing]
) -> tuple[int, int]:
    """The same of a large batch. Where selectors decide and nothing has counted before, each message is examined."""
    messages = size = 0
    for address, (count, total, _) in sends.totals.items():
        destination = destinations[address]
        weighing = weighed.get(address)
        if weighing is not None:
            for some_messages, some_bytes, _ in weighing.result().values():
                messages += some_messages
                size += some_bytes + some_messages * MESSAGE_BYTES
        elif isinstance(destination, Topic) and not destination.takes_all:
            some = _load_of([(destination, envelope) for to, envelope in sends if to == address], connection)
            messages += some[0]
            size += some[1]
        else:
            copies = len(destination.queues)
            messages += count * copies
            size += (total + count * MESSAGE_BYTES) * copies
    return messages, size

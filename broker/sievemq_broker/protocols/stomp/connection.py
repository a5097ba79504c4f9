"""One accepted STOMP connection: frames in, commands to the client's Peer; answers and messages out. No I/O, no clock.

A frame is carried out when all before it are: while an answer is due, or a send waits for room, further frames wait
here and nothing more is read from the client (:attr:`StompConnection.full`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any, Final

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import INFER, TEXT
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.protocols.base import no_wake
from sievemq_broker.protocols.foreign import (
    PAGE,
    Converted,
    ForeignConnection,
    Line,
    ignore,
    unexpected,
    user_and_namespace,
)
from sievemq_broker.protocols.stomp.frames import Frame, FrameParser, encode
from sievemq_broker.protocols.stomp.mapping import (
    address_of,
    envelope_of,
    message_id_of,
    message_of,
    temporary_kind,
)
from sievemq_broker.protocols.stomp.outbox import StompOutbox, StompSubscription
from sievemq_broker.session import verbs
from sievemq_broker.session.life import CLOSING
from sievemq_broker.session.peer import Peer, Table
from sievemq_broker.session.ports import Services, Watcher
from sievemq_broker.session.session import SessionMode
from sievemq_broker.session.table import TABLE
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError, shown
from sievemq_core.limits import HANDSHAKE_FRAME_BYTES, MAX_CREDIT, MAX_NAME_CHARS
from sievemq_core.message.destination import Kind
from sievemq_core.message.envelope import Envelope

VERSIONS: Final = ("1.2", "1.1", "1.0")

#: Messages that a subscription holds unacknowledged, where its SUBSCRIBE names no number.
PREFETCH: Final = 100

#: The session of all subscriptions and of sends outside of transactions. Transactions have those behind it.
_SESSION: Final = 1

#: What the broker remembers of a frame.
_NAMES: Final = ("id", "destination", "transaction", "receipt")

#: Bytes of the body that a CONNECT may have: it needs none.
_CONNECT_BODY: Final = 1_024

_ACKS: Final = frozenset({"auto", "client", "client-individual"})
_DURABLE: Final = ("activemq.subscriptionName", "durable-subscription-name")
_PREFETCHES: Final = ("activemq.prefetchSize", "prefetch-count")
_NO_LOCAL: Final = ("no-local", "activemq.noLocal")


class _Transaction:
    """A transaction that BEGIN opened."""

    __slots__ = ("sends", "session", "settled")

    def __init__(self, session: int) -> None:
        self.session = session
        self.sends = 0
        #: ACK and NACK inside: subscription, tags and message ids, outcome. Those alike that follow each other are one.
        self.settled: list[tuple[StompSubscription, dict[int, str], Outcome]] = []

    def settle(self, subscription: StompSubscription, held: dict[int, str], outcome: Outcome) -> None:
        """An ACK or NACK inside."""
        if self.settled and self.settled[-1][::2] == (subscription, outcome):
            self.settled[-1][1].update(held)
        else:
            self.settled.append((subscription, held, outcome))

    def take_back(self) -> dict[StompSubscription, dict[int, str]]:
        """What is not settled after all, by subscription."""
        found: dict[StompSubscription, dict[int, str]] = {}
        for subscription, held, _ in self.settled:
            found.setdefault(subscription, {}).update(held)
        return found

    def count_send(self) -> int:
        self.sends += 1
        return self.sends


class StompConnection(ForeignConnection[FrameParser, StompOutbox]):
    """The broker's end of one STOMP connection.

    Args:
        services: of the I/O layer.
        wake: called when output appears while the connection is not being fed: call :meth:`data_to_send` soon, not from
            there.
        watcher: is informed of the client's commands.
    """

    __slots__ = (
        "_browsers", "_message_ids", "_receipt", "_sends", "_sessions", "_temporaries", "_transactions", "_types",
    )  # fmt: skip

    def __init__(
        self,
        broker: Broker,
        services: Services[Peer],
        table: Table = TABLE,
        *,
        address: str = "",
        wake: Callable[[], None] = no_wake,
        watcher: Watcher[Peer] | None = None,
        make_outbox: Callable[..., StompOutbox] = StompOutbox,
    ) -> None:
        parser = FrameParser(_CONNECT_BODY, HANDSHAKE_FRAME_BYTES)
        outbox = make_outbox(services.settings, wake, services.converted.setdefault("stomp", Converted()))
        line = Line(parser, outbox, "CONNECT", b"\n")
        super().__init__(broker, services, table, address, watcher, parser, outbox, line)
        #: The header of CONNECT for the types of properties; None leaves them to the rules of destinations.
        self._types: str | None = None
        #: The receipt requested by the frame that is being carried out.
        self._receipt: str | None = None
        #: The last message id, and send outside of transactions.
        self._message_ids = self._sends = 0
        self._sessions = _SESSION
        self._transactions: dict[str, _Transaction] = {}
        #: Ids of subscriptions that browse.
        self._browsers: set[str] = set()
        #: Temporary destinations as the client calls them, and their addresses.
        self._temporaries: dict[str, str] = {}

    # -- in -----------------------------------------------------------------------------------------------------------

    def _fail(self, error: SieveError, frame: Frame | None, now: int) -> None:
        if self.peer.life.state < CLOSING:
            if frame is not None:
                self.outbox.blame(frame.headers.get("receipt"))
            self.peer.fail(error, now)

    def _ask(
        self,
        now: int,
        then: Callable[[Any], None],
        request: verbs.Request,
        *,
        refused: Callable[[SieveError], None] | None = None,
    ) -> None:
        super()._ask(now, then, request, refused=refused or self.outbox.end_with(self._receipt))

    def _carry_out(self, frame: Frame, now: int) -> None:
        command, headers = frame.command, frame.headers
        if self.outbox.is_new:
            if command not in ("CONNECT", "STOMP"):
                raise unexpected(f"{command} before CONNECT")
            self._connect(headers, now)
            return
        self._receipt = receipt = headers.get("receipt")
        if frame.size - len(frame.body) > MAX_NAME_CHARS:
            _check_names(headers)
        match command:
            case "SEND":
                self._send(frame, receipt, now)
                return
            case "SUBSCRIBE":
                self._subscribe(headers, now)
            case "UNSUBSCRIBE":
                self._unsubscribe(headers, now)
            case "ACK":
                self._settle(headers, Outcome.ACKNOWLEDGED, now)
            case "NACK":
                requeue = headers.get("requeue", "true").lower() != "false"
                self._settle(headers, Outcome.FAILED if requeue else Outcome.REJECTED, now)
            case "BEGIN":
                self._begin(headers, now)
            case "COMMIT":
                self._commit(headers, receipt, now)
                return
            case "ABORT":
                self._abort(headers, now)
            case "DISCONNECT":
                self._disconnect(receipt, now)
                return
            case _:
                raise unexpected(f"{command} on a connection that is open")
        if not self.outbox.failed:
            self._give_receipt(receipt)

    def _give_receipt(self, receipt: str | None) -> None:
        """Send the receipt of a frame once it is carried out."""
        if self.outbox.waiting or self.peer.agenda.behind or self._todo:
            self._todo.append(lambda _: self.outbox.receipt(receipt))
        else:
            self.outbox.receipt(receipt)

    # -- the connection -----------------------------------------------------------------------------------------------

    def _connect(self, headers: dict[str, str], now: int) -> None:
        wanted = [version.strip() for version in headers.get("accept-version", "1.0").split(",")]
        version = next((each for each in VERSIONS if each in wanted), None)
        if version is None:
            raise ProtocolError(
                f"none of the versions {shown(','.join(wanted))} is supported; {', '.join(VERSIONS)} are",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        theirs_out, theirs_in = _heartbeats(headers.get("heart-beat", "0,0"))
        ours = self._services.settings.heartbeat_ms
        user, namespace = user_and_namespace(headers.get("login"))
        self._types = headers.get("sievemq-types")
        if self._types not in (None, TEXT, INFER):
            raise ProtocolError(
                f"sievemq-types must be {TEXT} or {INFER}, not {shown(self._types)}", ErrorCode.ILLEGAL_STATE
            )

        def welcomed(real: int) -> None:
            self._line.agree(
                max(theirs_out, ours) if theirs_out and ours else 0, max(theirs_in, ours) if theirs_in and ours else 0
            )
            self._heartbeat.welcomed(real)
            self._parser.speak(version, self._services.settings.body_bytes)
            self.outbox.connected(version, f"{ours},{ours}")
            self.peer.open_session(_SESSION, SessionMode.CLIENT_ACKNOWLEDGE, 0)

        self.outbox.expect(0, welcomed)
        agent = f"STOMP {version} {headers.get('client-name', '')}".strip()
        hello = verbs.Hello(
            namespace=namespace,
            user=user,
            password=headers.get("passcode"),
            client_id=headers.get("client-id"),
            agent=agent,
            host=headers.get("host", ""),
        )
        self._do(now, hello)

    def _disconnect(self, receipt: str | None, now: int) -> None:
        def leave(now: int) -> None:
            goodbye = verbs.Goodbye(request=self._new_id(), handed=())
            self._ask(now, lambda _: self.outbox.receipt(receipt), goodbye)

        self._do_each(_stopping(tuple(self.outbox.subscriptions.by_consumer.values())), leave, now)

    # -- sends --------------------------------------------------------------------------------------------------------

    def _send(self, frame: Frame, receipt: str | None, now: int) -> None:
        headers, peer = frame.headers, self.peer
        if peer.clock_lag:  # what it sends gets the broker's time
            peer.see_clock(self._services.clock_offset)
        address = self._address(_header(headers, "destination", "SEND"), headers, now)
        self._check_name(address)
        reply_to = headers.get("reply-to")
        if reply_to is not None:
            reply_to = self._address(reply_to, {}, now)
        self._message_ids += 1
        message_id = f"ID:{peer.member.id}:s{self._message_ids}"
        fields = envelope_of(headers, frame.body, message_id, now, reply_to, self._infers(address))
        transaction = self._transaction(headers)
        if transaction is None:
            session, self._sends = _SESSION, self._sends + 1
            sequence = self._sends
        else:
            session, sequence = transaction.session, transaction.count_send()
        if receipt is not None:
            self.outbox.await_confirm(session, sequence, receipt)
        send = verbs.send(session=session, sequence=sequence, destination=address, envelope=fields)
        self._do(now, send, frame.size)
        if receipt is not None:
            peer.flush_confirms()

    def _infers(self, address: str) -> bool:
        if self._types is not None:
            return self._types == INFER
        destination = self.peer.namespace.destinations.get(address)
        policy = self.peer.broker.settings.policy_for(address) if destination is None else destination.policy
        return policy.stomp_types == INFER

    def _address(self, destination: str, headers: dict[str, str], now: int) -> str:
        kind = temporary_kind(destination)
        if kind is None:
            return address_of(destination, headers)
        address = self._temporaries.get(destination)
        if address is None:
            made: list[str] = []
            topic = kind is Kind.TEMPORARY_TOPIC
            self._ask(now, made.append, verbs.CreateTemporary(request=self._new_id(), topic=topic))
            if not made:
                raise self.outbox.take_failure()
            address = self._temporaries[destination] = made[0]
        return address

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def _subscribe(self, headers: dict[str, str], now: int) -> None:
        destination = _header(headers, "destination", "SUBSCRIBE")
        number = headers.get("id")
        if number is None:
            if self.outbox.version != "1.0":
                raise _missing("id", "SUBSCRIBE")
            number = destination
        if number in self._browsers or number in self.outbox.subscriptions.by_id:
            raise RequestError(f"there is a subscription {shown(number)} already", ErrorCode.ILLEGAL_STATE)
        ack = headers.get("ack", "auto")
        if ack not in _ACKS:
            raise RequestError(
                f"ack must be auto, client or client-individual, not {shown(ack)}", ErrorCode.ILLEGAL_STATE
            )
        address = self._address(destination, headers, now)
        self._check_name(address)
        selector, dialect = headers.get("selector"), headers.get("selector-dialect")
        if headers.get("browser") == "true":
            if len(self._browsers) >= self._services.settings.max_consumers:
                raise RequestError(
                    "too many browsers; UNSUBSCRIBE those that have ended", ErrorCode.RESOURCE_ALLOCATION
                )
            self._browsers.add(number)
            self._browse(number, destination, address, selector, dialect, None, now)
            return
        consumer = self._new_id()
        durable = next((headers[name] for name in _DURABLE if name in headers), None)
        subscription = StompSubscription(number, consumer, destination, ack, durable)
        self.outbox.subscriptions.add(subscription)
        open_consumer = verbs.OpenConsumer(
            request=self._new_id(),
            session=_SESSION,
            consumer=consumer,
            destination=address,
            selector=selector,
            dialect=dialect,
            no_local=any(headers.get(name) == "true" for name in _NO_LOCAL),
            subscription=durable,
            durable=durable is not None,
            shared=False,
            credit=_credit(headers),
        )
        self._ask(now, ignore, open_consumer)

    def _browse(
        self,
        number: str,
        destination: str,
        address: str,
        selector: str | None,
        dialect: str | None,
        cursor: object,
        now: int,
    ) -> None:
        """Send a page of a queue, and then the next; a frame without a body is the end."""

        def show(message_id: str, envelope: Envelope | None, _: int) -> None:
            common, body = ([("browser", "end")], b"") if envelope is None else message_of(envelope.fields)
            headers = [("subscription", number), ("message-id", message_id), ("destination", destination)]
            self.outbox.write(encode("MESSAGE", [*headers, *common], body, self.outbox.version))

        def page(answer: Any) -> None:
            following, messages = answer
            for at, (_, envelope) in enumerate(messages):  # each when there is time for it
                self._todo.append(partial(show, message_id_of(envelope.fields, f"{number}-{at}"), envelope))
            end = partial(show, f"{number}-end", None)
            again = partial(self._browse, number, destination, address, selector, dialect, following)
            self._todo.append(end if following is None else again)

        browse = verbs.Browse(
            request=self._new_id(), destination=address, selector=selector, dialect=dialect, cursor=cursor, limit=PAGE
        )
        self._ask(now, page, browse)

    def _unsubscribe(self, headers: dict[str, str], now: int) -> None:
        number = headers.get("id", headers.get("destination"))
        if number is None:
            raise _missing("id", "UNSUBSCRIBE")
        durable = next((headers[name] for name in _DURABLE if name in headers), None)
        subscription = self.outbox.subscriptions.by_id.get(number)
        if number in self._browsers:
            self._browsers.discard(number)
        elif subscription is None and durable is None:
            raise RequestError(f"there is no subscription {shown(number)}", ErrorCode.NOT_FOUND)
        if subscription is not None:
            consumer = subscription.consumer
            for command in _stopping((subscription,)):
                self._do(now, command)
            held = tuple(subscription.held)
            close = verbs.CloseConsumer(request=self._new_id(), consumer=consumer, handed=subscription.last)
            self._ask(now, ignore, close)
            self.outbox.subscriptions.remove(consumer)
            if held:  # the application may have seen them
                self._do(now, verbs.Settle(consumer=consumer, tags=held, outcome=Outcome.LEFT, credit=0))
        if durable is not None:
            self._ask(now, ignore, verbs.Unsubscribe(request=self._new_id(), subscription=durable))

    # -- settlement ---------------------------------------------------------------------------------------------------

    def _settle(self, headers: dict[str, str], outcome: Outcome, now: int) -> None:
        subscription, tag = self._delivery(headers, "ACK" if outcome is Outcome.ACKNOWLEDGED else "NACK")
        if subscription.ack == "client-individual":
            tags: tuple[int, ...] = (tag,)
        else:  # cumulative
            tags = tuple(takewhile(tag.__ge__, subscription.held))
        transaction = self._transaction(headers)
        held = {each: subscription.held.pop(each) for each in tags}
        if transaction is None:
            self._settle_tags(subscription, tags, outcome, len(tags), now)
        else:
            transaction.settle(subscription, held, outcome)

    def _settle_tags(
        self, subscription: StompSubscription, tags: tuple[int, ...], outcome: Outcome, credit: int, now: int
    ) -> None:
        self._do(now, verbs.Settle(consumer=subscription.consumer, tags=tags, outcome=outcome, credit=credit))

    def _delivery(self, headers: dict[str, str], command: str) -> tuple[StompSubscription, int]:
        """The subscription and tag of the message that an ACK or NACK names.

        Raises:
            RequestError: it names none that is not settled.
        """
        subscriptions = self.outbox.subscriptions
        if self.outbox.version == "1.2":
            named = _header(headers, "id", command)
            consumer, _, tag = named.partition("-")
            if _is_number(consumer) and _is_number(tag):
                given = subscriptions.by_consumer.get(int(consumer))
                if given is not None and int(tag) in given.held:
                    return given, int(tag)
        else:
            named = _header(headers, "message-id", command)
        # Also of version 1.2: some clients name the message-id there, which with other brokers is the same.
        number = headers.get("subscription")
        meant = subscriptions.by_consumer.values() if number is None else subscriptions.of_id(number)
        for subscription in meant:
            at = subscription.named(named)
            if at is not None:
                return subscription, at
        raise RequestError(
            f"{command} names {shown(named)}: there is no unsettled message of that id on this connection",
            ErrorCode.NOT_FOUND,
        )

    # -- transactions -------------------------------------------------------------------------------------------------

    def _transaction(self, headers: dict[str, str]) -> _Transaction | None:
        name = headers.get("transaction")
        if name is None:
            return None
        transaction = self._transactions.get(name)
        if transaction is None:
            raise RequestError(f"there is no transaction {shown(name)}; BEGIN begins one", ErrorCode.NOT_FOUND)
        return transaction

    def _begin(self, headers: dict[str, str], now: int) -> None:
        name = _header(headers, "transaction", "BEGIN")
        if name in self._transactions:
            raise RequestError(f"there is a transaction {shown(name)} already", ErrorCode.ILLEGAL_STATE)
        self._sessions += 1
        session = verbs.OpenSession(request=self._new_id(), session=self._sessions, mode=SessionMode.TRANSACTED)
        self._ask(now, ignore, session)
        self._transactions[name] = _Transaction(self._sessions)

    def _commit(self, headers: dict[str, str], receipt: str | None, now: int) -> None:
        transaction = self._end_of(headers, "COMMIT")

        def committed(_: object) -> None:
            self._todo.append(partial(self._committed, transaction, receipt))

        commit = verbs.Commit(request=self._new_id(), session=transaction.session, handed=())
        self._ask(now, committed, commit)

    def _committed(self, transaction: _Transaction, receipt: str | None, now: int) -> None:
        """Its messages are sent: its ACKs and NACKs are carried out next, as far as there is time in this turn."""
        for subscription, held, outcome in transaction.settled:
            self._todo.append(partial(self._settle_tags, subscription, tuple(held), outcome, len(held)))
        self._todo.append(partial(self._close_session, transaction, lambda _: self.outbox.receipt(receipt)))

    def _abort(self, headers: dict[str, str], now: int) -> None:
        transaction = self._end_of(headers, "ABORT")
        for subscription, held in transaction.take_back().items():
            self._todo.append(partial(self._undo, subscription, held))
        if self._todo:
            self._todo.append(partial(self._close_session, transaction, ignore))
        else:
            self._close_session(transaction, ignore, now)

    def _undo(self, subscription: StompSubscription, held: dict[int, str], now: int) -> None:
        if subscription.consumer in self.outbox.subscriptions.by_consumer:
            subscription.hold_again(held)  # the client may settle them again
        else:
            self._settle_tags(subscription, tuple(held), Outcome.LEFT, 0, now)

    def _close_session(self, transaction: _Transaction, then: Callable[[object], None], now: int) -> None:
        self.outbox.forget_session(transaction.session)
        self._ask(now, then, verbs.CloseSession(request=self._new_id(), session=transaction.session, handed=()))

    def _end_of(self, headers: dict[str, str], command: str) -> _Transaction:
        _header(headers, "transaction", command)
        transaction = self._transaction(headers)
        assert transaction is not None
        del self._transactions[headers["transaction"]]
        return transaction

    # -- what STOMP has no frame for ----------------------------------------------------------------------------------

    @property
    def _has_duties(self) -> bool:
        return bool(self.outbox.subscriptions.written)

    def _do_duties(self, now: int) -> None:
        self._acknowledge_written(now)

    def _give_back(self, consumer: int, now: int) -> None:
        self._do(now, verbs.Release(consumer=consumer, tags=()))

    def _acknowledge_written(self, now: int) -> None:
        """Acknowledge the messages sent to subscriptions with ``ack: auto``, since their client does not. They are in
        the output of this write or of an earlier one."""
        for each in self.outbox.subscriptions.take_written():
            if each.written:
                tag, credit = each.take_written()
                self._do(now, verbs.acknowledge(consumer=each.consumer, tag=tag, credit=credit))


def _stopping(subscriptions: Iterable[StompSubscription]) -> Iterator[verbs.Carried]:
    """What delivers nothing more to these subscriptions, and acknowledges what was sent to those with ``ack: auto``."""
    for each in subscriptions:
        yield verbs.credit(consumer=each.consumer, credit=0, instead=True)
        if each.written:
            tag, _ = each.take_written()
            yield verbs.acknowledge(consumer=each.consumer, tag=tag, credit=0)


def _check_names(headers: dict[str, str]) -> None:
    """Check the length of headers with names.

    Raises:
        RequestError: RESOURCE_ALLOCATION, one is too long.
    """
    for name in _NAMES:
        if len(headers.get(name, "")) > MAX_NAME_CHARS:
            raise RequestError(
                f"the header {name} has at most {MAX_NAME_CHARS} characters, not {len(headers[name])}",
                ErrorCode.RESOURCE_ALLOCATION,
            )


def _header(headers: dict[str, str], name: str, command: str) -> str:
    value = headers.get(name)
    if value is None:
        raise _missing(name, command)
    return value


def _missing(name: str, command: str) -> RequestError:
    return RequestError(f"{command} needs the header {name}", ErrorCode.ILLEGAL_STATE)


def _is_number(text: str) -> bool:
    """True for digits, and no more than a 64-bit integer surely holds."""
    return text.isascii() and text.isdigit() and len(text) < 19


def _heartbeats(text: str) -> tuple[int, int]:
    """The intervals of a heart-beat header: in which the client sends, and in which it expects input; ms."""
    first, _, second = (part.strip() for part in text.partition(","))
    if not (_is_number(first) and _is_number(second)):
        raise ProtocolError(f"heart-beat must be two numbers of ms, not {shown(text)}", ErrorCode.MALFORMED_FRAME)
    return int(first), int(second)


def _credit(headers: dict[str, str]) -> int:
    """Messages that a subscription may hold unacknowledged."""
    text = next((headers[name] for name in _PREFETCHES if name in headers), None)
    if text is None:
        return PREFETCH
    if not (_is_number(text) and int(text) > 0):
        raise RequestError(f"a prefetch must be a number above 0, not {shown(text)}", ErrorCode.ILLEGAL_STATE)
    return min(int(text), MAX_CREDIT)

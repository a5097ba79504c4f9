"""One accepted STOMP connection: frames in, commands to the client's Peer; answers and messages out. No I/O, no clock.

A frame is carried out when all before it are: while an answer is due, or a send waits for room, further frames wait
here and nothing more is read from the client (:attr:`StompConnection.full`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.consumer import Outcome
from sievemq_broker.domain.policy import INFER, TEXT
from sievemq_broker.protocols.heartbeat import Heartbeat
from sievemq_broker.protocols.stomp.frames import Frame, FrameParser, encode
from sievemq_broker.protocols.stomp.mapping import (
    address_of,
    envelope_of,
    message_id_of,
    message_of,
    temporary_kind,
)
from sievemq_broker.protocols.stomp.outbox import Outbox, Subscription
from sievemq_broker.session.peer import Peer, Services, Table, Watcher
from sievemq_broker.session.table import TABLE
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError, shown
from sievemq_core.limits import MAX_CREDIT
from sievemq_core.message.destination import Kind
from sievemq_core.wire.commands import Command

__all__ = ["StompConnection"]

VERSIONS: Final = ("1.2", "1.1", "1.0")

#: Messages that a subscription holds unacknowledged, where its SUBSCRIBE names no number.
PREFETCH: Final = 100

#: Messages in one page of a browser.
_PAGE: Final = 100

#: The session of all subscriptions and of sends outside of transactions. Transactions have those behind it.
_SESSION: Final = 1
_TRANSACTED, _CLIENT_ACKNOWLEDGE = 0, 2

_ACKS: Final = frozenset({"auto", "client", "client-individual"})
_DURABLE: Final = ("activemq.subscriptionName", "durable-subscription-name")
_PREFETCHES: Final = ("activemq.prefetchSize", "prefetch-count")
_NO_LOCAL: Final = ("no-local", "activemq.noLocal")


def _no_wake() -> None:
    """Whatever feeds the connection looks for output by itself."""


class _Transaction:
    """What one BEGIN has begun.

    Args:
        session: number of the transacted session that stages its sends.
    """

    __slots__ = ("sends", "session", "settled")

    def __init__(self, session: int) -> None:
        self.session = session
        self.sends = 0
        #: ACK and NACK inside: subscription, tags and message ids, outcome.
        self.settled: list[tuple[Subscription, dict[int, str], Outcome]] = []

    def count_send(self) -> int:
        """The number of the next SEND inside."""
        self.sends += 1
        return self.sends


class _Line:
    """What a :class:`~sievemq_broker.protocols.heartbeat.Heartbeat` looks at.

    Args:
        parser: has what arrived and is no whole frame.
        outbox: writes heart-beats.
    """

    __slots__ = ("_heard", "_outbox", "_parser", "interval_in", "interval_out")

    #: The size of a frame is not known before its end.
    frame_text = "a frame"

    def __init__(self, parser: FrameParser, outbox: Outbox) -> None:
        self._parser = parser
        self._outbox = outbox
        self._heard = False
        self.interval_in = self.interval_out = 0

    def agree(self, incoming: int, outgoing: int) -> None:
        """Milliseconds after which something is to be heard, and to be said; 0 for never."""
        self.interval_in, self.interval_out = incoming, outgoing

    @property
    def awaited(self) -> str:
        """What is still to come of the handshake, for people."""
        return "" if self._outbox.open else "CONNECT"

    @property
    def frame_number(self) -> int:
        """Which frame is not complete yet: another number for each; 0 between two frames."""
        return self._parser.number + 1 if self._parser.pending else 0

    @property
    def unfinished(self) -> int:
        """Bytes of it that came."""
        return self._parser.pending

    def heard(self) -> bool:
        """True if anything arrived since the last call."""
        heard, self._heard = self._heard, False
        return heard

    def excuse(self) -> None:
        """Count as heard."""
        self._heard = True

    def heartbeat_due(self) -> None:
        """A heart-beat: a line feed between two frames."""
        self._outbox.write(b"\n")


class StompConnection:
    """The broker's end of one STOMP connection; see :class:`~sievemq_broker.server.net.link.Connection`.

    Args:
        broker: the domain.
        services: what the rim provides.
        table: what is done for each verb.
        address: of the other end, for people.
        wake: called when output appears while nothing feeds the connection: call :meth:`data_to_send` soon, not from
            there.
        watcher: hears of what the client does.
        make_outbox: makes the outbox.
    """

    __slots__ = (
        "_browsers",
        "_deliver_again",
        "_heartbeat",
        "_held_back",
        "_ids",
        "_line",
        "_message_ids",
        "_more",
        "_parser",
        "_receipt",
        "_sends",
        "_services",
        "_sessions",
        "_temporaries",
        "_todo",
        "_transactions",
        "_types",
        "outbox",
        "peer",
    )  # fmt: skip

    def __init__(
        self,
        broker: Broker,
        services: Services,
        table: Table = TABLE,
        *,
        address: str = "",
        wake: Callable[[], None] = _no_wake,
        watcher: Watcher | None = None,
        make_outbox: Callable[..., Outbox] = Outbox,
    ) -> None:
        settings = services.settings
        self._services = services
        self._parser = FrameParser(settings.body_bytes)
        self.outbox = make_outbox(settings, wake)
        self.peer = Peer(broker, services, self.outbox, table, address, watcher)
        self._deliver_again = self._held_back = False
        #: What CONNECT says of the types of properties; None leaves that to the rules of destinations.
        self._types: str | None = None
        self._line = _Line(self._parser, self.outbox)
        self._heartbeat = Heartbeat(self._line, settings, services.now() - services.clock_offset)
        #: The receipt that the frame asks for that is carried out.
        self._receipt: str | None = None
        #: The last request and consumer, session, message id, and send outside of transactions.
        self._ids = self._message_ids = self._sends = 0
        self._sessions = _SESSION
        self._transactions: dict[str, _Transaction] = {}
        #: What follows an answer, before the next frame; and there may be a whole frame behind it.
        self._todo: deque[Callable[[int], None]] = deque()
        self._more = False
        #: Ids of subscriptions that browse.
        self._browsers: set[str] = set()
        #: Temporary destinations as the client calls them, and their addresses.
        self._temporaries: dict[str, str] = {}

    # -- in -----------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: int) -> None:
        """Carry out what arrived, as far as there is time. Never raises: what is wrong ends this connection at most.

        Args:
            data: bytes from the peer, cut anywhere.
            now: milliseconds since 1970.
        """
        if self.peer.closing:
            return
        self._line.excuse()
        self._parser.receive(data)
        self.outbox.attend()
        self._go_on(now)
        if not self.outbox.unread:
            self.outbox.leave()

    def catch_up(self, now: int) -> None:
        """Carry out what is left, as far as there is time. Never raises."""
        self.outbox.attend()
        if self.peer.behind:
            self.peer.catch_up(now)
        self._go_on(now)
        if not self.outbox.unread:
            self.outbox.leave()

    @property
    def behind(self) -> bool:
        """True if there was no time for all that arrived: :meth:`catch_up` is to be called."""
        return self.peer.behind or self._ready

    @property
    def full(self) -> bool:
        """True while frames wait: for an answer, for room, or until the client has read what it was sent."""
        return self.outbox.waiting or self.outbox.crowded

    def _go_on(self, now: int) -> None:
        """Carry out frames, as far as there is time and nothing is to be waited for."""
        peer, outbox, spent = self.peer, self.outbox, self._services.spent
        self._more = True
        while not (peer.closing or peer.behind or outbox.waiting or outbox.crowded or outbox.failed):
            frame: Frame | None = None
            try:
                if self._todo:
                    self._todo.popleft()(now)
                    continue
                frame = self._parser.next()
                if frame is None:
                    self._more = False
                    break
                self._carry_out(frame, now)
            except SieveError as error:
                self._fail(error, frame, now)
            if spent():
                break
        if outbox.failed and not peer.closing:
            self._fail(outbox.take_failure(), None, now)

    def _fail(self, error: SieveError, frame: Frame | None, now: int) -> None:
        """ERROR, then the end of the connection (STOMP 1.2, "ERROR")."""
        if not self.peer.closing:
            if frame is not None:
                self.outbox.blame(frame.headers.get("receipt"))
            self.peer.fail(error, now)

    def _do(self, now: int, size: int, *command: Any) -> None:
        """Have the client's Peer carry out a command."""
        self.peer.carry_out([command], size, now)

    def _ask(self, now: int, then: Callable[[Any], None], verb: int, *fields: Any) -> None:
        """The same for a request, whose answer goes to `then`. No frame is carried out before it has come."""
        self._ids += 1
        self.outbox.expect(self._ids, then, self._receipt)
        self._do(now, 0, verb, self._ids, *fields)

    def _carry_out(self, frame: Frame, now: int) -> None:
        command, headers = frame.command, frame.headers
        if not self.outbox.open:
            if command not in ("CONNECT", "STOMP"):
                raise _unexpected(f"{command} before CONNECT")
            self._connect(headers, now)
            return
        self._receipt = receipt = headers.get("receipt")
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
                raise _unexpected(f"{command} on a connection that is open")
        if not self.outbox.failed:
            self.outbox.receipt(receipt)

    # -- the connection -----------------------------------------------------------------------------------------------

    def _connect(self, headers: dict[str, str], now: int) -> None:
        wanted = [version.strip() for version in headers.get("accept-version", "1.0").split(",")]
        version = next((each for each in VERSIONS if each in wanted), None)
        if version is None:
            raise ProtocolError(
                f"of the versions {shown(','.join(wanted))} none is spoken here; {', '.join(VERSIONS)} are",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        theirs_out, theirs_in = _heartbeats(headers.get("heart-beat", "0,0"))
        ours = self._services.settings.heartbeat_ms
        user, namespace = headers.get("login"), ""
        if user is not None and "@" in user:
            user, _, namespace = user.rpartition("@")
        host = headers.get("host", "")
        if not namespace and (host.startswith("/") or host in self.peer.broker.namespaces):
            namespace = host.removeprefix("/")
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
            self._parser.speak(version)
            self.outbox.connected(version, f"{ours},{ours}")
            self.peer.open_session(_SESSION, _CLIENT_ACKNOWLEDGE, 0)

        self.outbox.expect(0, welcomed)
        agent = f"STOMP {version} {headers.get('client-name', '')}".strip()
        client_id = headers.get("client-id")
        self._do(
            now, 0, Command.HELLO, 1, namespace, user or None, headers.get("passcode"), client_id, 0, agent, None, {}
        )

    def _disconnect(self, receipt: str | None, now: int) -> None:
        handed = [number for each in self.outbox.subscriptions.values() for number in (each.consumer, each.last)]
        self._ask(now, lambda _: self.outbox.receipt(receipt), Command.GOODBYE, tuple(handed))

    # -- sends --------------------------------------------------------------------------------------------------------

    def _send(self, frame: Frame, receipt: str | None, now: int) -> None:
        headers, peer = frame.headers, self.peer
        if peer.clock_lag:  # what it sends gets the broker's time
            peer.see_clock(self._services.clock_offset)
        address = self._address(_header(headers, "destination", "SEND"), headers, now)
        reply_to = headers.get("reply-to")
        if reply_to is not None:
            reply_to = self._address(reply_to, {}, now)
        self._message_ids += 1
        message_id = f"ID:{peer.id}:s{self._message_ids}"
        fields = envelope_of(headers, frame.body, message_id, now, reply_to, self._infers(address))
        transaction = self._transaction(headers)
        if transaction is None:
            session, self._sends = _SESSION, self._sends + 1
            sequence = self._sends
        else:
            session, sequence = transaction.session, transaction.count_send()
        if receipt is not None:
            self.outbox.await_confirm(session, sequence, receipt)
        self._do(now, frame.size, Command.SEND, session, sequence, address, fields)
        if receipt is not None:
            peer.flush_confirms()

    def _infers(self, address: str) -> bool:
        """True if properties sent to a destination get the type that their text shows."""
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
            self._ask(now, made.append, Command.CREATE_TEMPORARY, kind is Kind.TEMPORARY_TOPIC, None)
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
        if number in self._browsers or self._find(number) is not None:
            raise RequestError(f"there is a subscription {shown(number)} already", ErrorCode.ILLEGAL_STATE)
        ack = headers.get("ack", "auto")
        if ack not in _ACKS:
            raise RequestError(
                f"ack must be auto, client or client-individual, not {shown(ack)}", ErrorCode.ILLEGAL_STATE
            )
        address = self._address(destination, headers, now)
        selector = headers.get("selector")
        if headers.get("browser") == "true":
            self._browsers.add(number)
            self._browse(number, destination, address, selector, None, now)
            return
        self._ids += 1
        consumer = self._ids
        durable = next((headers[name] for name in _DURABLE if name in headers), None)
        subscription = Subscription(number, consumer, destination, ack, durable)
        self.outbox.subscriptions[consumer] = subscription
        no_local = any(headers.get(name) == "true" for name in _NO_LOCAL)
        self._ask(
            now, _nothing, Command.OPEN_CONSUMER, _SESSION, consumer, address, selector, None, no_local, durable,
            durable is not None, False, _credit(headers), 0,
        )  # fmt: skip

    def _browse(
        self, number: str, destination: str, address: str, selector: str | None, cursor: object, now: int
    ) -> None:
        """Send a page of a queue, and then the next; a frame without a body is the end."""

        def page(answer: Any) -> None:
            following, messages = answer
            for at, (_, envelope) in enumerate(messages):
                common, body = message_of(envelope.fields)
                headers = [
                    ("subscription", number),
                    ("message-id", message_id_of(envelope.fields, f"{number}-{at}")),
                    ("destination", destination),
                ]
                self.outbox.write(encode("MESSAGE", [*headers, *common], body, self.outbox.version))
            if following is not None:
                self._todo.append(partial(self._browse, number, destination, address, selector, following))
                return
            headers = [("subscription", number), ("message-id", f"{number}-end"), ("destination", destination)]
            self.outbox.write(encode("MESSAGE", [*headers, ("browser", "end")], b"", self.outbox.version))

        self._ask(now, page, Command.BROWSE, address, selector, None, cursor, _PAGE, 0, 0)

    def _unsubscribe(self, headers: dict[str, str], now: int) -> None:
        number = headers.get("id", headers.get("destination"))
        if number is None:
            raise _missing("id", "UNSUBSCRIBE")
        durable = next((headers[name] for name in _DURABLE if name in headers), None)
        subscription = self._find(number)
        if number in self._browsers:
            self._browsers.discard(number)
        elif subscription is None and durable is None:
            raise RequestError(f"there is no subscription {shown(number)}", ErrorCode.NOT_FOUND)
        if subscription is not None:
            consumer = subscription.consumer
            self._acknowledge_written(now)
            held = tuple(subscription.held)
            self._ask(now, _nothing, Command.CLOSE_CONSUMER, consumer, subscription.last)
            del self.outbox.subscriptions[consumer]
            if held:  # the application may have seen them
                self._do(now, 0, Command.SETTLE, consumer, held, int(Outcome.FAILED), 0)
        if durable is not None:
            self._ask(now, _nothing, Command.UNSUBSCRIBE, durable)

    def _find(self, number: str) -> Subscription | None:
        return next((each for each in self.outbox.subscriptions.values() if each.id == number), None)

    # -- settlement ---------------------------------------------------------------------------------------------------

    def _settle(self, headers: dict[str, str], outcome: Outcome, now: int) -> None:
        subscription, tag = self._delivery(headers, "ACK" if outcome is Outcome.ACKNOWLEDGED else "NACK")
        if subscription.ack == "client-individual":
            tags: tuple[int, ...] = (tag,)
        else:  # cumulative
            tags = tuple(each for each in subscription.held if each <= tag)
        transaction = self._transaction(headers)
        held = {each: subscription.held.pop(each) for each in tags}
        if transaction is None:
            self._do(now, 0, Command.SETTLE, subscription.consumer, tags, int(outcome), len(tags))
        else:
            transaction.settled.append((subscription, held, outcome))

    def _delivery(self, headers: dict[str, str], command: str) -> tuple[Subscription, int]:
        """The subscription and tag of the message that an ACK or NACK names.

        Raises:
            RequestError: it names none that is not settled.
        """
        if self.outbox.version == "1.2":
            named = _header(headers, "id", command)
            consumer, _, tag = named.partition("-")
            if _is_number(consumer) and _is_number(tag):
                given = self.outbox.subscriptions.get(int(consumer))
                if given is not None and int(tag) in given.held:
                    return given, int(tag)
        else:
            named = _header(headers, "message-id", command)
        # Also of version 1.2: some clients name the message-id there, which with other brokers is the same.
        number = headers.get("subscription")
        for subscription in self.outbox.subscriptions.values():
            if number is None or subscription.id == number:
                for at, message_id in subscription.held.items():
                    if message_id == named:
                        return subscription, at
        raise RequestError(
            f"{command} names {shown(named)}: no message that was delivered here and is not settled",
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
        self._ask(now, _nothing, Command.OPEN_SESSION, self._sessions, _TRANSACTED, 0)
        self._transactions[name] = _Transaction(self._sessions)

    def _commit(self, headers: dict[str, str], receipt: str | None, now: int) -> None:
        transaction = self._end_of(headers, "COMMIT")

        def committed(_: object) -> None:
            self._todo.append(partial(self._committed, transaction, receipt))

        self._ask(now, committed, Command.COMMIT, transaction.session, ())

    def _committed(self, transaction: _Transaction, receipt: str | None, now: int) -> None:
        """Its messages are sent: in the same turn, as a rule, its ACKs and NACKs are carried out."""
        for subscription, held, outcome in transaction.settled:
            tags = tuple(held)
            self._do(now, 0, Command.SETTLE, subscription.consumer, tags, int(outcome), len(tags))
        self._ask(now, lambda _: self.outbox.receipt(receipt), Command.CLOSE_SESSION, transaction.session, ())

    def _abort(self, headers: dict[str, str], now: int) -> None:
        transaction = self._end_of(headers, "ABORT")
        for subscription, held, _ in transaction.settled:
            if subscription.consumer in self.outbox.subscriptions:
                subscription.held.update(held)  # the client may settle them anew
            else:
                self._do(now, 0, Command.SETTLE, subscription.consumer, tuple(held), int(Outcome.FAILED), 0)
        self._ask(now, _nothing, Command.CLOSE_SESSION, transaction.session, ())

    def _end_of(self, headers: dict[str, str], command: str) -> _Transaction:
        _header(headers, "transaction", command)
        transaction = self._transaction(headers)
        assert transaction is not None
        del self._transactions[headers["transaction"]]
        return transaction

    # -- out ----------------------------------------------------------------------------------------------------------

    @property
    def has_data(self) -> bool:
        """True if there is something to write, or to go on with."""
        outbox = self.outbox
        return outbox.unread > 0 or self._deliver_again or outbox.failed or self._ready or self._has_duties

    @property
    def _ready(self) -> bool:
        """Frames, or what follows an answer, can be carried out."""
        return (bool(self._todo) or self._more) and not (self.full or self.peer.behind or self.peer.closing)

    @property
    def _has_duties(self) -> bool:
        """Something is to be said for the client, since STOMP clients do not say it."""
        peer, outbox = self.peer, self.outbox
        if peer.behind or peer.closing:
            return False
        return (
            peer.clock_lag != 0
            or bool(outbox.asked_back)
            or any(each.written for each in outbox.subscriptions.values())
        )

    def data_to_send(self) -> bytes:
        """Everything to write now. May wake the rim again at once: call it again next turn then."""
        peer, outbox = self.peer, self.outbox
        now = self._services.now()
        if outbox.failed or self._ready:
            outbox.attend()
            self._go_on(now)
        if self._deliver_again and not outbox.congested:
            self._resume_consumers(now)
        if peer.unconfirmed:
            peer.flush_confirms()
        data = outbox.take()
        if not peer.gone:
            if outbox.sent():
                self._deliver_again = True
            if self._has_duties:
                self._do_duties(now)
            if self._ready:
                outbox.touch()
        return data

    def _do_duties(self, now: int) -> None:
        if self.peer.clock_lag:
            self.peer.see_clock(self._services.clock_offset)
        for consumer in self.outbox.take_asked_back():
            self._do(now, 0, Command.RELEASE, consumer, ())
        self._acknowledge_written(now)

    def _acknowledge_written(self, now: int) -> None:
        """Acknowledge what subscriptions with ``ack: auto`` are sent, since their client does not. It is in the output
        that goes out now, or went out."""
        for each in tuple(self.outbox.subscriptions.values()):
            if each.written:
                tag, credit = each.take_written()
                self._do(now, 0, Command.ACKNOWLEDGE, each.consumer, tag, credit)

    def urgent_flow(self, text: str) -> bytes:
        """STOMP has no frame for it."""
        return b""

    def pause(self) -> None:
        """The transport holds more than it likes: no messages until :meth:`resume`."""
        if not self.peer.gone:
            self.outbox.pause()

    def resume(self, now: int) -> None:
        """The transport has room again."""
        self.outbox.unpause()
        if not self.peer.gone:
            self._resume_consumers(now)

    def _resume_consumers(self, now: int) -> None:
        self._deliver_again = False
        self.outbox.reopen()
        self.peer.resume_consumers(now)

    # -- state, time and the end --------------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """True once the transport is to be closed after writing."""
        return self.peer.closing

    @property
    def heartbeats(self) -> tuple[int, int]:
        """Milliseconds after which something is to be heard, and to be said; 0 for never."""
        return self._line.interval_in, self._line.interval_out

    @property
    def frame_bytes(self) -> int:
        """Bytes that the frame has which is not complete yet, 0 between two frames."""
        return self._parser.pending

    @property
    def frame_number(self) -> int:
        """Which frame is not complete yet: another number for each; 0 between two frames."""
        return self._line.frame_number

    @property
    def unpublished(self) -> int:
        """Bytes that came and are no messages yet."""
        return self._parser.pending + self.peer.unpublished

    def receive_eof(self, now: int) -> None:
        """The peer has sent its last byte."""
        self.lost(now)

    def lost(self, now: int) -> None:
        """The transport is gone: everything comes back (ACK-18, TXN-05, CON-11). Idempotent."""
        self.peer.lost(now)
        self._parser.drop()
        self._todo.clear()
        self.outbox.disown()

    def hold_back(self, held: bool) -> None:
        """From now on nothing is read from the peer, or something is again: its silence is no fault of it."""
        self._held_back = held
        self._heartbeat.excuse()

    def close(self, code: ErrorCode, text: str, now: int) -> None:
        """End the connection from this side, with ERROR as the last word. Idempotent."""
        self.peer.close(code, text, now)

    def tick(self, now: int) -> int | None:
        """Heart-beats, the handshake's deadline, and a frame that does not come to its end.

        Returns:
            When to call again at the latest (ms since 1970), None for never.
        """
        if self.peer.closing:
            return None
        if self.peer.unconfirmed:
            self.peer.flush_confirms()
        offset = self._services.clock_offset
        if self._held_back or self.outbox.waiting:
            self._heartbeat.excuse()
        try:
            following = self._heartbeat.tick(now - offset)
        except ProtocolError as error:
            self.peer.close(error.code, error.text, now)
            return None
        return None if following is None else following + offset

    def clock_jumped(self, by: int) -> None:
        """The machine's clock was set, by so many ms: deadlines of the peer are where they would have been."""
        self._heartbeat.clock_jumped(by)


def _nothing(_: object) -> None:
    """A request was carried out, and nothing follows."""


def _header(headers: dict[str, str], name: str, command: str) -> str:
    value = headers.get(name)
    if value is None:
        raise _missing(name, command)
    return value


def _missing(name: str, command: str) -> RequestError:
    return RequestError(f"{command} needs the header {name}", ErrorCode.ILLEGAL_STATE)


def _unexpected(text: str) -> ProtocolError:
    return ProtocolError(text, ErrorCode.UNEXPECTED_COMMAND)


def _is_number(text: str) -> bool:
    """True for digits, and no more than a 64-bit integer surely holds."""
    return text.isascii() and text.isdigit() and len(text) < 19


def _heartbeats(text: str) -> tuple[int, int]:
    """What a heart-beat header says: the intervals in which the client sends, and wants to hear; ms."""
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

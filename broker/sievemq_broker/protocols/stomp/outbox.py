"""What a STOMP client is sent: answers as they come, messages until the outbox is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sievemq_broker.domain.ports import deliver_each
from sievemq_broker.protocols.stomp.frames import encode
from sievemq_broker.protocols.stomp.mapping import message_id_of, message_of
from sievemq_broker.session.peer import PortOwner
from sievemq_broker.session.settings import SessionSettings
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.message.envelope import Envelope

__all__ = ["Outbox", "Subscription"]


@dataclass(slots=True)
class Subscription:
    """One SUBSCRIBE of a client: a consumer of the broker's.

    Attributes:
        id: the client's; STOMP 1.0 lets it leave that out.
        consumer: number of the consumer.
        destination: as the client wrote it.
        ack: ``auto``, ``client`` or ``client-individual``.
        durable: name of a durable subscription, None for none.
        held: what was delivered and is not settled: tag -> message-id. Without what a transaction settles.
        last: tag of the last message that was delivered, 0 for none.
        written: tag of the last message that auto acknowledgement has still to settle; 0 for none.
        unsettled: how many these are.
    """

    id: str
    consumer: int
    destination: str
    ack: str
    durable: str | None = None
    held: dict[int, str] = field(default_factory=dict)
    last: int = 0
    written: int = 0
    unsettled: int = 0

    def note(self, tag: int, message_id: str) -> None:
        """A message is written to the client."""
        self.last = tag
        if self.ack == "auto":
            self.written = tag
            self.unsettled += 1
        else:
            self.held[tag] = message_id

    def take_written(self) -> tuple[int, int]:
        """Tag of the last message that auto acknowledgement has to settle, and how many these are; once."""
        written = self.written, self.unsettled
        self.written = self.unsettled = 0
        return written


class Outbox:
    """The :class:`~sievemq_broker.session.peer.ClientPort` of one STOMP connection.

    Args:
        settings: its `outbox_high` are the bytes of waiting output above which no more messages are taken.
        wake: called when output appears while nothing feeds the connection.
    """

    __slots__ = (
        "_awake", "_blamed", "_failure", "_high", "_last", "_over", "_owner", "_parts", "_receipts", "_requests",
        "_settings", "_size", "_starved", "_stopped", "_wake", "asked_back", "congested", "open", "session",
        "subscriptions", "version", "writable",
    )  # fmt: skip

    def __init__(self, settings: SessionSettings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._high = settings.outbox_high
        self._wake = wake
        self._owner: PortOwner | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._awake = self._over = self._starved = False
        self.writable = True
        self.congested = False
        #: True between CONNECTED and the end.
        self.open = False
        self.version = "1.2"
        #: What CONNECTED names: the connection's id, and the intervals of heart-beats.
        self.session = ""
        #: Open subscriptions by the number of their consumer. The connection adds and removes them.
        self.subscriptions: dict[int, Subscription] = {}
        #: Consumers whose buffered messages were asked back: a STOMP client cannot give them back.
        self.asked_back: list[int] = []
        #: Receipts that wait for sends to be settled: session -> [(sequence, receipt)], in order.
        self._receipts: dict[int, list[tuple[int, str]]] = {}
        #: What follows the answer to a request, and the receipt that its frame has asked for.
        self._requests: dict[int, tuple[Callable[[Any], None], str | None]] = {}
        #: Answers that the connection waits for, and sessions whose send or COMMIT waits for room.
        self._stopped: set[int] = set()
        self._failure: SieveError | None = None
        self._blamed: str | None = None
        #: The last message that was written out, packed, and what all subscriptions have in common of it.
        self._last: tuple[bytes, list[tuple[str, str]], bytes, str] = (b"", [], b"", "")

    # -- what the connection uses -----------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """True while the client's next frame cannot be carried out: an answer is due, or a send waits for room."""
        return bool(self._requests) or bool(self._stopped)

    @property
    def crowded(self) -> bool:
        """True while the client does not read what it is sent."""
        return self.congested or self._size > self._high

    def expect(self, request: int, then: Callable[[Any], None], receipt: str | None = None) -> None:
        """Call `then` with the answer to a request; until then no further frame is carried out. `receipt` is the one
        that the frame has asked for: an ERROR instead of the answer names it."""
        self._requests[request] = then, receipt

    def await_confirm(self, session: int, sequence: int, receipt: str) -> None:
        """Send a RECEIPT once a send is settled."""
        self._receipts.setdefault(session, []).append((sequence, receipt))

    def take_asked_back(self) -> list[int]:
        """Consumers whose buffered messages were asked back, once."""
        asked, self.asked_back = self.asked_back, []
        return list(dict.fromkeys(asked))

    def take_failure(self) -> SieveError:
        """Why the connection has to end, once; :attr:`failed` is true."""
        failure, self._failure = self._failure, None
        assert failure is not None
        return failure

    def blame(self, receipt: str | None) -> None:
        """The next ERROR concerns the frame that has asked for this receipt."""
        self._blamed = receipt

    @property
    def failed(self) -> bool:
        """True if :meth:`take_failure` has something."""
        return self._failure is not None

    def receipt(self, receipt: str | None) -> None:
        """RECEIPT, if one was asked for."""
        if receipt is not None:
            self.write(encode("RECEIPT", [("receipt-id", receipt)], version=self.version))

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        self._parts.append(data)
        self._size += len(data)
        self.nudge()

    def take(self) -> bytes:
        """Everything that is queued; nothing is any more."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self._size = 0
        self._awake = False
        return data

    def sent(self) -> bool:
        """The rim has taken all output. True if deliveries were held back and can go on next turn; it is woken then."""
        if not self._starved or self.congested:
            return False
        self.touch()
        return True

    def nudge(self) -> None:
        """There is output: see that it is written."""
        if not self._awake:
            self._awake = True
            self._wake()

    def attend(self) -> None:
        """The rim looks for output when it has fed the connection."""
        self._awake = True

    def leave(self) -> None:
        """It has fed the connection, and there is no output for which it looks."""
        if not self._over:
            self._awake = False

    def pause(self) -> None:
        """The transport is congested."""
        self.congested = self._starved = True
        self.writable = False

    def unpause(self) -> None:
        """The transport has room again."""
        self.congested = False

    def reopen(self) -> None:
        """Messages are taken again."""
        self.writable, self._starved = True, False

    def disown(self) -> None:
        """The transport is gone: connection, outbox and rim refer to each other no more."""
        self._owner = None
        self._wake = _no_wake
        self._requests.clear()

    # -- what the domain says ---------------------------------------------------------------------------------------

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """Queue a MESSAGE."""
        subscription = self.subscriptions[consumer_id]
        last, common, body, message_id = self._last
        delivery = f"{consumer_id}-{tag}"
        if last is not packed:
            fields = Envelope.from_packed(packed).fields
            common, body = message_of(fields)
            message_id = message_id_of(fields, delivery)
            self._last = packed, common, body, message_id
        headers = [
            ("subscription", subscription.id),
            ("message-id", message_id),
            ("destination", subscription.destination),
            ("redelivered", "true" if count > 1 else "false"),
        ]
        subscription.note(tag, message_id)
        if subscription.ack != "auto" and self.version == "1.2":
            headers.append(("ack", delivery))
        if count > 1:
            headers.append(("JMSXDeliveryCount", str(count)))
        self.write(encode("MESSAGE", [*headers, *common], body, self.version))
        if self._size > self._high:
            self.writable = False
            self._starved = True

    def deliver_row(self, consumer_id: int, tag: int, row: list[bytes]) -> int:
        """Queue first deliveries of several messages."""
        return deliver_each(self, consumer_id, tag, row)

    def recall(self, consumer_id: int, tags: list[int]) -> None:
        """Other consumers wait for buffered messages. A STOMP client cannot give any back."""
        if not self._over:
            self.asked_back.append(consumer_id)
            self.nudge()

    def closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The consumer is gone: its destination was deleted, or an administrator closed it."""
        if not self._over and self._owner is not None:
            self._owner.consumer_closed(consumer_id, code, text)

    def settled(self, consumer_id: int) -> None:
        """A WANT is answered; a STOMP client has none."""

    # -- what the client's Peer says ----------------------------------------------------------------------------------

    @property
    def protocol(self) -> str:
        """What the client speaks."""
        return "stomp"

    @property
    def unread(self) -> int:
        """Bytes that wait to be written."""
        return self._size

    def attach(self, owner: PortOwner) -> None:
        """From now on this is the port of `owner`."""
        self._owner = owner

    def shut(self) -> None:
        """The connection is over."""
        self.writable = self._starved = False
        self._over = self._awake = True

    def touch(self) -> None:
        """Something of this client's was carried out: wake the rim, even if it knows of output already."""
        self._awake = True
        self._wake()

    def welcome(
        self, connection: str, version: int, heartbeat: int, options: dict[str, Any], limits: dict[str, Any],
        features: dict[str, Any], now: int,
    ) -> None:  # fmt: skip
        """The handshake is done: CONNECTED follows."""
        self.session = connection
        then, _ = self._requests.pop(0)
        then(now - features["clock_offset"])

    def connected(self, version: str, heartbeats: str) -> None:
        """CONNECTED.

        Args:
            version: protocol version of the connection.
            heartbeats: intervals in ms, as the header has them.
        """
        self.version = version
        self.open = True
        headers = [("version", version), ("session", self.session), ("server", self._settings.broker.replace(" ", "/"))]
        if version != "1.0":
            headers.append(("heart-beat", heartbeats))
        self.write(encode("CONNECTED", headers, version=version))

    def answer(self, request: int, result: object = None) -> None:
        """A request was carried out."""
        expected = self._requests.pop(request, None)
        if expected is not None:
            expected[0](result)

    def answer_page(self, request: int, cursor: object, messages: list[tuple[Any, ...]]) -> None:
        """A page of messages."""
        self.answer(request, (cursor, messages))

    def refuse(self, request: int, error: SieveError) -> None:
        """A request was refused: STOMP ends the connection (STOMP 1.2, "ERROR")."""
        _, receipt = self._requests.pop(request, (None, None))
        self._end(error, receipt)

    def confirm(self, session: int, sequence: int) -> None:
        """Sends are settled."""
        receipts = self._receipts.get(session)
        if receipts:
            done = [receipt for at, receipt in receipts if at <= sequence]
            del receipts[: len(done)]
            for receipt in done:
                self.receipt(receipt)

    def refuse_send(self, session: int, sequence: int, error: SieveError) -> None:
        """A send was refused: STOMP ends the connection."""
        self._end(error, dict(self._receipts.get(session, ())).get(sequence))

    def flow(
        self, blocked: bool, text: str, session: int = 0, sequence: int = 0, destination: str | None = None
    ) -> None:
        """Sends wait for room: nothing more is read from the client until they go on."""
        if not session:
            return  # the broker's own limit: sends that come meanwhile wait one by one
        if blocked:
            self._stopped.add(session)
        elif session in self._stopped:
            self._stopped.discard(session)
            self.touch()

    def consumer_gone(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The broker has closed a consumer: STOMP has no word for that but ERROR."""
        subscription = self.subscriptions.pop(consumer_id, None)
        if subscription is not None:
            self._end(RequestError(f"the subscription to {subscription.destination} has ended: {text}", code))

    def clock(self, offset: int) -> None:
        """The clock was moved; the times of a STOMP client's messages are the broker's. The connection sees to it."""
        self.touch()

    def shutdown(self, grace: int, text: str) -> None:
        """The broker ends soon; STOMP has no word for it."""

    def fail(self, error: SieveError) -> None:
        """ERROR, the last word."""
        first, _, _ = error.text.partition("\n")
        lines = [("message", first), ("code", error.code.name), ("content-type", "text/plain")]
        if self._blamed is not None:
            lines.append(("receipt-id", self._blamed))
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            lines.append(("version", "1.2,1.1,1.0"))
        self.write(encode("ERROR", lines, error.text.encode("utf-8", "replace"), self.version))
        self.open = False

    def _end(self, error: SieveError, receipt: str | None = None) -> None:
        if self._failure is None:
            self._failure = error
            self._blamed = receipt
        self.touch()


def _no_wake() -> None:
    """Nothing writes any more."""

"""Output to a STOMP client: answers as they come, messages until the outbox is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sievemq_broker.protocols.foreign import Converted, ForeignOutbox
from sievemq_broker.protocols.stomp.frames import encode, header_lines
from sievemq_broker.protocols.stomp.mapping import message_of
from sievemq_broker.session.settings import SessionSettings
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.message.envelope import MESSAGE_ID, Envelope, EnvelopeFields

#: So many tags of settled messages are kept by name, and as many as there are messages.
_SPARE: Final = 100

#: The cost of a delivery in units of the scheduler: the broker carries out an acknowledgement of most of them as well.
_DELIVERY: Final = 3


@dataclass(slots=True, eq=False)
class StompSubscription:
    """One SUBSCRIBE of a client: a consumer of the broker's.

    Attributes:
        id: the client's; STOMP 1.0 lets it leave that out.
        consumer: number of the consumer.
        destination: as the client wrote it.
        ack: ``auto``, ``client`` or ``client-individual``.
        durable: name of a durable subscription, None for none.
        held: what was delivered and is not settled: tag -> message-id, in the order of delivery. Without what a
            transaction settles.
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
    #: Tags by message-id, in order; several messages may have the same one. Those that are settled are dropped when
    #: they are found, or outnumber the others.
    _named: dict[str, list[int]] = field(default_factory=dict)
    _tags: int = 0

    def note(self, tag: int, message_id: str) -> None:
        self.last = tag
        if self.ack == "auto":
            self.written = tag
            self.unsettled += 1
            return
        self.held[tag] = message_id
        self._tags += 1
        if self._tags > 2 * len(self.held) + _SPARE:
            self._name_all()
        else:
            self._named.setdefault(message_id, []).append(tag)

    def named(self, message_id: str) -> int | None:
        """Tag of the first message with this id that is not settled."""
        tags = self._named.get(message_id, [])
        while tags and tags[0] not in self.held:
            del tags[0]
        return tags[0] if tags else None

    def hold_again(self, messages: dict[int, str]) -> None:
        """A transaction that has settled messages is aborted."""
        self.held = dict(sorted((self.held | messages).items()))
        self._name_all()

    def _name_all(self) -> None:
        self._named = {}
        self._tags = len(self.held)
        for tag, message_id in self.held.items():
            self._named.setdefault(message_id, []).append(tag)

    def take_written(self) -> tuple[int, int]:
        """Tag of the last message that auto acknowledgement has to settle, and how many these are; once."""
        written = self.written, self.unsettled
        self.written = self.unsettled = 0
        return written


class StompSubscriptions:
    """The open subscriptions of one client.

    Attributes:
        by_consumer: them, by the number of their consumer.
        by_id: them, by the client's id.
        written: those with messages that auto acknowledgement may have still to settle, by consumer.
    """

    __slots__ = ("by_consumer", "by_id", "written")

    def __init__(self) -> None:
        self.by_consumer: dict[int, StompSubscription] = {}
        self.by_id: dict[str, StompSubscription] = {}
        self.written: dict[int, StompSubscription] = {}

    def add(self, subscription: StompSubscription) -> None:
        """The client has sent SUBSCRIBE with an id that it does not use."""
        self.by_consumer[subscription.consumer] = self.by_id[subscription.id] = subscription

    def remove(self, consumer: int) -> StompSubscription | None:
        """It has ended. Returns it, if it had not ended before."""
        subscription = self.by_consumer.pop(consumer, None)
        if subscription is not None:
            del self.by_id[subscription.id]
            self.written.pop(consumer, None)
        return subscription

    def of_id(self, number: str) -> list[StompSubscription]:
        """The one with this id, if there is one."""
        return [self.by_id[number]] if number in self.by_id else []

    def note(self, subscription: StompSubscription, tag: int, message_id: str) -> None:
        """A message is written to the client."""
        subscription.note(tag, message_id)
        if subscription.written:
            self.written[subscription.consumer] = subscription

    def take_written(self) -> list[StompSubscription]:
        """Return :attr:`written`, and forget it."""
        written = list(self.written.values())
        self.written.clear()
        return written


class StompOutbox(ForeignOutbox):
    """The :class:`~sievemq_broker.session.ports.ClientPort` of one STOMP connection.

    Args:
        settings: its `outbox_high` are the bytes of waiting output above which no more messages are taken.
        wake: called when output appears while nothing feeds the connection.
    """

    __slots__ = ("_blamed", "_receipts", "subscriptions", "version")

    def __init__(self, settings: SessionSettings, wake: Callable[[], None], converted: Converted) -> None:
        super().__init__(settings, wake, converted)
        self.version = "1.2"
        self.subscriptions = StompSubscriptions()
        #: Receipts that wait for sends to be settled: session -> [(sequence, receipt)], in order.
        self._receipts: dict[int, list[tuple[int, str]]] = {}
        #: The receipt requested by the frame that the next ERROR concerns.
        self._blamed: str | None = None

    # -- what the connection uses -----------------------------------------------------------------------------------

    def await_confirm(self, session: int, sequence: int, receipt: str) -> None:
        """Send a RECEIPT once a send is settled."""
        self._receipts.setdefault(session, []).append((sequence, receipt))

    def forget_session(self, session: int) -> None:
        self._receipts.pop(session, None)

    def blame(self, receipt: str | None) -> None:
        """The next ERROR concerns the frame that requested this receipt."""
        self._blamed = receipt

    def receipt(self, receipt: str | None) -> None:
        if receipt is not None:
            self.write(encode("RECEIPT", [("receipt-id", receipt)], version=self.version))

    def end_with(self, receipt: str | None) -> Callable[[SieveError], None]:
        """ERROR, which ends the connection, with the receipt that the frame requested."""

        def end(error: SieveError) -> None:
            if not self.failed:
                self._blamed = receipt
            self.end(error)

        return end

    # -- called by the domain -----------------------------------------------------------------------------------------

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """Queue a MESSAGE."""
        subscription = self.subscriptions.by_consumer[consumer_id]
        version, delivery = self.version, f"{consumer_id}-{tag}"
        fields: EnvelopeFields | None = None
        made = self._converted.find(packed, version)
        if made is None:
            fields = Envelope.from_packed(packed, compact=False).fields
            common, body = message_of(fields)
            made = [common, body, fields[MESSAGE_ID], None]
            self._converted.keep(packed, made, version)
        elif made[3] is None:  # several are given it: its headers are escaped once for the others
            made[3] = "\n".join(header_lines("MESSAGE", made[0], version))
        self.count_conversion(packed, fields, _DELIVERY)
        common, body, message_id, lines = made
        message_id = str(message_id or delivery)
        headers = [
            ("subscription", subscription.id),
            ("message-id", message_id),
            ("destination", subscription.destination),
            ("redelivered", "true" if count > 1 else "false"),
        ]
        self.subscriptions.note(subscription, tag, message_id)
        if subscription.ack != "auto" and self.version == "1.2":
            headers.append(("ack", delivery))
        if count > 1:
            headers.append(("JMSXDeliveryCount", str(count)))
        if lines is None:
            headers += common
        self.write_message(encode("MESSAGE", headers, body, version, () if lines is None else (lines,)))

    # -- called by the client's Peer ----------------------------------------------------------------------------------

    @property
    def drops_replies(self) -> bool:
        """A refusal would be an ERROR, which ends the connection."""
        return True

    @property
    def protocol(self) -> str:
        return "stomp"

    def connected(self, version: str, heartbeats: str) -> None:
        """CONNECTED.

        Args:
            heartbeats: intervals in ms, as the header has them.
        """
        self.version = version
        headers = [("version", version), ("session", self.session), ("server", self._settings.broker.replace(" ", "/"))]
        if version != "1.0":
            headers.append(("heart-beat", heartbeats))
        self.write(encode("CONNECTED", headers, version=version))

    def confirm(self, session: int, sequence: int) -> None:
        receipts = self._receipts.get(session)
        if receipts:
            done = [receipt for at, receipt in receipts if at <= sequence]
            del receipts[: len(done)]
            for receipt in done:
                self.receipt(receipt)

    def refuse_send(self, session: int, sequence: int, error: SieveError) -> None:
        """A send was refused: STOMP ends the connection."""
        self.end_with(dict(self._receipts.get(session, ())).get(sequence))(error)

    def consumer_gone(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        subscription = self.subscriptions.remove(consumer_id)
        if subscription is not None:
            text = f"the subscription to {subscription.destination} has ended: {text}"
            self.end_with(None)(RequestError(text, code))

    def fail(self, error: SieveError) -> None:
        """ERROR, the last word."""
        first, _, _ = error.text.partition("\n")
        lines = [("message", first), ("code", error.code.name), ("content-type", "text/plain")]
        if self._blamed is not None:
            lines.append(("receipt-id", self._blamed))
        if "url" in error.details and error.code is ErrorCode.REDIRECT:
            lines.append(("redirect", str(error.details["url"])))
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            lines.append(("version", "1.2,1.1,1.0"))
        self.write(encode("ERROR", lines, error.text.encode("utf-8", "replace"), self.version))

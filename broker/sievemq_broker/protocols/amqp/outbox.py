"""The output to an AMQP client: answers at once, messages until the outbox is full."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from sievemq_broker.protocols.amqp.composites import Composite
from sievemq_broker.protocols.amqp.errors import error_of
from sievemq_broker.protocols.amqp.frames import AMQP, AMQP_HEADER, MIN_FRAME, SASL, frame_of
from sievemq_broker.protocols.amqp.links import AmqpSession, IncomingLink, Link, OutgoingLink, Rest, Unfinished
from sievemq_broker.protocols.amqp.mapping import payload_of
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Close,
    Detach,
    Disposition,
    Error,
    Open,
    Rejected,
    SaslOutcome,
    TransactionalState,
)
from sievemq_broker.protocols.amqp.types import Symbol
from sievemq_broker.protocols.foreign import Converted, ForeignOutbox
from sievemq_broker.session.settings import SessionSettings
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, RequestError, SieveError
from sievemq_core.message.envelope import EXPIRATION, EnvelopeFields
from sievemq_core.wire.codec import unpack_value

#: Bytes of a transfer without its payload, at the most.
_PERFORMATIVE: Final = 64

#: In an open that is followed by a close.
_NOT_ESTABLISHED: Final = Symbol("amqp:connection-establishment-failed")


class Stage(Enum):
    """How far the headers and the SASL frames are, before the open of the client."""

    START = "start"
    SASL = "sasl"
    CHALLENGED = "challenged"
    SIGNED_IN = "signed in"
    HEADER = "header"


#: The stages that may follow each.
NEXT_STAGES: Final = {
    Stage.START: frozenset({Stage.SASL, Stage.HEADER}),
    Stage.SASL: frozenset({Stage.CHALLENGED, Stage.SIGNED_IN}),
    Stage.CHALLENGED: frozenset({Stage.SIGNED_IN}),
    Stage.SIGNED_IN: frozenset({Stage.HEADER}),
    Stage.HEADER: frozenset(),
}


@mypyc_attr(allow_interpreted_subclasses=True)  # the test kit's is one
class AmqpOutbox(ForeignOutbox):
    """The :class:`~sievemq_broker.session.ports.ClientPort` of one AMQP connection.

    Args:
        settings: its `outbox_high` are the bytes of waiting output above which no more messages are taken.
        wake: called when output appears while nothing feeds the connection.
        now: the time, milliseconds since 1970.
    """

    __slots__ = (
        "_awaited", "_behind", "_commits", "_frame", "_hostname", "_now", "_oversized", "_owing", "_passed",
        "_returned", "_written", "consumers", "dropped", "stage", "unfinished",
    )  # fmt: skip

    def __init__(
        self, settings: SessionSettings, wake: Callable[[], None], now: Callable[[], int], converted: Converted
    ) -> None:
        super().__init__(settings, wake, converted)
        self._now = now
        #: The largest frame that the client accepts.
        self._frame = MIN_FRAME
        #: What the client has named in its open.
        self._hostname: str | None = None
        self.stage = Stage.START
        #: Deliveries of the client whose last transfer has not arrived.
        self.unfinished = Unfinished()
        #: Open consumers by number. The connection adds and removes them.
        self.consumers: dict[int, OutgoingLink] = {}
        #: Deliveries of the client whose sends are not settled: broker's session -> (sequence, link, id, transaction,
        #: tag). Those that the client has settled have no id.
        self._awaited: dict[int, deque[tuple[int, IncomingLink, int | None, bytes | None, bytes | None]]] = {}
        #: Consumers with messages that count as acknowledged once they are written.
        self._written: dict[int, OutgoingLink] = {}
        #: Consumers that have used half of their credit, of clients that have granted more.
        self._owing: dict[int, OutgoingLink] = {}
        #: Links of consumers that the broker has closed, and the tags of messages that their client cannot have. It can
        #: settle none of the others either.
        self._returned: dict[OutgoingLink, list[int]] = {}
        #: Consumers and the tags of messages that are larger than their clients accept.
        self._oversized: dict[int, list[int]] = {}
        #: Sessions whose client's window has no room for all that was delivered.
        self._behind: dict[AmqpSession, None] = {}
        #: Broker's sessions with a send that waits for room since the batch began: the first send that was passed over.
        self._passed: dict[int, int] = {}
        #: Links by which the client sends that were detached because of what it sent.
        self.dropped: list[IncomingLink] = []
        #: Called with the answer to a COMMIT, and with its refusal.
        self._commits: dict[int, tuple[Callable[[Any], None], Callable[[SieveError], None]]] = {}

    # -- what the connection uses -----------------------------------------------------------------------------------

    def may_reach(self, stage: Stage) -> bool:
        return stage in NEXT_STAGES[self.stage]

    def reach(self, stage: Stage) -> None:
        self.stage = stage

    def opened(self, frame_bytes: int) -> None:
        """The client accepts frames of this size, and the handshake is complete."""
        self._frame = max(MIN_FRAME, frame_bytes)

    def frame(self, performative: Composite | None, channel: int = 0, kind: int = AMQP) -> None:
        """Queue a frame; a heartbeat without a performative."""
        self.write(frame_of(performative, channel, b"", kind))

    def await_confirm(
        self,
        number: int,
        sequence: int,
        link: IncomingLink,
        delivery: int | None,
        transaction: bytes | None,
        tag: bytes | None,
    ) -> None:
        """Settle a delivery of the client once its send is settled.

        Args:
            delivery: its id; None if the client has settled it: then its link is detached should the send be refused.
        """
        self._awaited.setdefault(number, deque()).append((sequence, link, delivery, transaction, tag))

    def settle(self, link: IncomingLink, delivery: int, state: Composite, last: int | None = None) -> None:
        """Send the outcome of a delivery of the client, or of those up to `last`, and forget them. If the client must
        settle first, the disposition does not settle them."""
        if link.session.ended:
            return
        last = delivery if last is None else last
        said = Disposition(role=True, first=delivery, last=last, settled=not link.second, state=state)
        self.frame(said, link.session.channel)

    def detach(self, link: Link, error: SieveError, tag: bytes | None = None) -> None:
        """Detach a link because of an error, of the delivery with this tag, unless it is detached already."""
        self._detach(link, error_of(error, tag))

    def _detach(self, link: Link, error: Error) -> None:
        if link.session.detach(link):
            if isinstance(link, IncomingLink):
                self.unfinished.end(link)
                self.dropped.append(link)
            self.frame(Detach(handle=link.handle, closed=True, error=error), link.session.channel)

    def reject(
        self,
        link: IncomingLink,
        delivery: int | None,
        error: SieveError,
        transaction: bytes | None = None,
        tag: bytes | None = None,
    ) -> None:
        """Refuse a delivery of the client. If no outcome can say so, since the client has settled it or does not know
        that outcome, its link is detached with the reason.

        Args:
            delivery: its id; None if the client has settled it.
        """
        if delivery is None or not link.rejects:
            self.detach(link, error, tag)
        else:
            self._settle(link, delivery, delivery, Rejected(error=error_of(error, tag)), transaction)

    @property
    def awaits_confirms(self) -> bool:
        """True if a client waits for outcomes of its deliveries."""
        return any(self._awaited.values())

    def forget_session(self, number: int) -> None:
        self._awaited.pop(number, None)
        self._passed.pop(number, None)
        self._stopped.discard(number)

    @property
    def waiting(self) -> bool:
        """True while the client's next frame cannot be carried out: an answer is due. A send or COMMIT that waits for
        room holds up its link alone."""
        return bool(self._requests)

    def is_stopped(self, number: int) -> bool:
        """True if a send of a broker's session waits for room."""
        return number in self._stopped

    def take_passed(self) -> dict[int, int]:
        """Broker's sessions whose sends were passed over, and the first of these; returned once."""
        passed, self._passed = self._passed, {}
        return passed

    @property
    def has_passed(self) -> bool:
        return bool(self._passed)

    def take_dropped(self) -> list[IncomingLink]:
        """:attr:`dropped`, once."""
        dropped, self.dropped = self.dropped, []
        return dropped

    def take_resumed(self) -> list[int]:
        """Broker's sessions whose send no longer waits for room; returned once."""
        resumed, self.resumed = self.resumed, []
        return resumed

    def expect_commit(self, request: int, then: Callable[[Any], None], refused: Callable[[SieveError], None]) -> None:
        """As :meth:`expect`, of a COMMIT: frames are carried out meanwhile, since it may wait for room."""
        self._commits[request] = then, refused

    def commits(self, request: int) -> bool:
        return request in self._commits

    def transfer(self, link: OutgoingLink, tag: int, payload: bytes) -> None:
        """Queue a message, in as many frames as it needs. What the client's window or this outbox has no room for
        follows later."""
        session = link.session
        number = session.deliver(link, tag)
        if len(payload) <= self._frame - _PERFORMATIVE and session.room > 0:
            session.count_out()
            self.write_message(link.writer.frame(number, payload, False))
            if link.settled:
                self._end_delivery(link, tag)
        else:
            session.begin_rest(Rest(link, tag, number, payload))
            self._behind[session] = None
            self._write_rest(session)

    def _write_rest(self, session: AmqpSession) -> None:
        rest = session.rest
        while rest is not None and self.writable and session.room > 0:
            session.count_out()
            self.write_message(rest.next(self._frame - _PERFORMATIVE))
            if rest.ended:
                session.end_rest()
                if rest.link.settled:
                    self._end_delivery(rest.link, rest.tag)
                rest = None

    def _end_delivery(self, link: OutgoingLink, tag: int) -> None:
        """A message on a link whose deliveries need no settlement is written to its end."""
        if tag:
            link.end_delivery(tag)
            self._written[link.id] = link

    @property
    def behind(self) -> list[AmqpSession]:
        """The sessions whose client's window has no room for all that was delivered."""
        return [*self._behind]

    def go_on(self, session: AmqpSession) -> None:
        """Write what waits for the client's window, as far as there is room."""
        while self.writable and session.room > 0:
            if session.rest is not None:
                self._write_rest(session)
            elif session.waiting:
                held = session.take_waiting()
                if held is not None:
                    self._write_delivery(*held)
                    link = held[0]
                    if link.draining is not None and not link.held:
                        session.park(link)
            else:
                break
        if session.rest is None and not session.waiting:
            self._behind.pop(session, None)

    @property
    def has_duties(self) -> bool:
        """True if :meth:`take_written`, :meth:`take_owing`, :meth:`take_returned` or :meth:`take_oversized` has
        something."""
        return bool(self._written or self._owing or self._returned or self._oversized)

    def take_oversized(self) -> dict[int, list[int]]:
        """The tags of messages that are larger than the clients of these consumers accept; returned once."""
        oversized, self._oversized = self._oversized, {}
        return oversized

    def take_returned(self) -> dict[OutgoingLink, list[int]]:
        """The links of consumers that the broker has closed, and the tags of messages that were not written to them;
        returned once."""
        returned, self._returned = self._returned, {}
        return returned

    def take_owing(self) -> list[OutgoingLink]:
        """Consumers that have used half of their credit, of clients that have granted more; returned once."""
        owing, self._owing = self._owing, {}
        return [each for each in owing.values() if each.id in self.consumers]

    def take_written(self) -> list[int]:
        """Pairs of a consumer with messages that count as acknowledged, since they are written, and the tag of its last
        one; returned once."""
        written, self._written = self._written, {}
        return [number for each in written.values() if each.id in self.consumers
                for number in (each.id, each.take_written())]  # fmt: skip

    def stop_deliveries(self) -> None:
        super().stop_deliveries()
        self._commits.clear()
        self.unfinished.end_all()

    # -- called by the domain -----------------------------------------------------------------------------------------

    def deliver(self, consumer_id: int, tag: int, count: int, packed: bytes) -> None:
        """Queue a message. If the client's window has no room for it, it waits as it is, in the order of delivery."""
        consumer = self.consumers[consumer_id]
        if consumer.owed and consumer.use():
            self._owing[consumer_id] = consumer
        session = consumer.session
        if session.shut:
            session.hold(consumer, tag, count, packed)
            self._behind[session] = None
        else:
            self._write_delivery(consumer, tag, count, packed)

    def _write_delivery(self, consumer: OutgoingLink, tag: int, count: int, packed: bytes) -> None:
        fields: EnvelopeFields | None = None
        payload: bytes | None = self._converted.find(packed, consumer.address) if count <= 1 else None
        if payload is None:
            fields = unpack_value(packed)
            payload, was_read = payload_of(fields, consumer.address, count, self._now())
            if count <= 1 and not fields[EXPIRATION]:
                self._converted.keep(packed, payload, consumer.address)
            if not was_read:
                fields = None
        self.count_conversion(packed, fields)
        if 0 < consumer.most < len(payload):
            consumer.pass_over()
            self._oversized.setdefault(consumer.id, []).append(tag)
        else:
            self.transfer(consumer, tag, payload)

    # -- called by the client's Peer ----------------------------------------------------------------------------------

    @property
    def withheld(self) -> dict[int, int]:
        """See :attr:`AmqpSession.withheld`."""
        return {number: tag for session in self._behind for number, tag in session.withheld.items()}

    @property
    def protocol(self) -> str:
        return "amqp"

    def confirm(self, session: int, sequence: int) -> None:
        """Sends are settled: settle their deliveries."""
        awaited = self._awaited.get(session)
        while awaited and awaited[0][0] <= sequence:
            _, link, first, transaction, _ = awaited.popleft()
            if first is None:
                continue
            last = first
            while (
                awaited
                and transaction is None
                and awaited[0][0] <= sequence
                and awaited[0][1] is link
                and awaited[0][2] == last + 1
            ):
                awaited.popleft()
                last += 1
            self._settle(link, first, last, Accepted(), transaction)

    def refuse_send(self, session: int, sequence: int, error: SieveError) -> None:
        """A send was refused: reject its delivery. Earlier ones are accepted first."""
        awaited = self._awaited.get(session)
        if awaited and awaited[0][0] == sequence:
            _, link, delivery, transaction, tag = awaited.popleft()
            self.reject(link, delivery, error, transaction, tag)

    def _settle(self, link: IncomingLink, first: int, last: int, outcome: Composite, transaction: bytes | None) -> None:
        state = outcome if transaction is None else TransactionalState(txn_id=transaction, outcome=outcome)
        self.settle(link, first, state, last)

    def answer(self, request: int, result: object = None) -> None:
        commit = self._commits.pop(request, None)
        if commit is None:
            super().answer(request, result)
        else:
            commit[0](result)

    def refuse(self, request: int, error: SieveError) -> None:
        commit = self._commits.pop(request, None)
        if commit is None:
            super().refuse(request, error)
        else:
            commit[1](error)

    def flow(
        self, blocked: bool, text: str, session: int = 0, sequence: int = 0, destination: str | None = None
    ) -> None:
        """A send or COMMIT of a session waits for room, or no longer does."""
        if blocked and sequence:
            self._passed.setdefault(session, sequence + 1)
        elif not blocked and session in self._stopped:
            self.resumed.append(session)
        super().flow(blocked, text, session, sequence, destination)

    def consumer_gone(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The broker has closed a consumer: its link is detached."""
        consumer = self.consumers.pop(consumer_id, None)
        if consumer is not None:
            consumer.session.leave(consumer)
            self._returned[consumer] = self._oversized.pop(consumer_id, []) + consumer.take_kept()
            error = error_of(RequestError(text, code))
            if code is ErrorCode.INVALID_DESTINATION:
                error = error.having(condition="amqp:resource-deleted")
            self._detach(consumer, error)

    def opening(self, hostname: str | None) -> None:
        """The client has sent open, and wants to reach this host."""
        self._hostname = hostname

    def fail(self, error: SieveError) -> None:
        """Send close as the last frame, or its equivalent in the handshake."""
        if self.stage in (Stage.SASL, Stage.CHALLENGED):
            self.frame(SaslOutcome(code=1 if error.code is ErrorCode.AUTHENTICATION else 2), kind=SASL)
        elif self.stage is not Stage.START:
            if self.stage is Stage.HEADER and self.is_new:
                self.frame(Open(container_id=self._settings.broker, properties={_NOT_ESTABLISHED: True}))
            self.frame(Close(error=error_of(error, hostname=self._hostname)))
        else:
            self.write(AMQP_HEADER)

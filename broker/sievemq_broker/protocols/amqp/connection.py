"""One accepted AMQP connection: frames in, commands to the client's Peer; answers and messages out. No I/O, no clock.

An AMQP session is a session of the broker's, and a link by which the client receives is a consumer. A transaction is a
transacted session that stages its sends; its settlements are carried out after the commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.dead_letters import dead_letter_address
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.work import TURN, Budget, Task
from sievemq_broker.protocols.amqp.composites import read
from sievemq_broker.protocols.amqp.errors import (
    FramingError,
    LinkError,
    SessionError,
    UnknownTransactionError,
    error_of,
)
from sievemq_broker.protocols.amqp.frames import (
    AMQP,
    AMQP_HEADER,
    MIN_FRAME,
    SASL,
    SASL_HEADER,
    Frame,
    FrameParser,
    frame_of,
)
from sievemq_broker.protocols.amqp.incoming import IncomingSends
from sievemq_broker.protocols.amqp.links import (
    WINDOW,
    AmqpSession,
    Browser,
    Coordination,
    IncomingLink,
    Link,
    OutgoingLink,
    Settled,
    Transaction,
    ahead,
)
from sievemq_broker.protocols.amqp.mapping import (
    address_of,
    check_node_properties,
    envelope_of,
    filters_of,
    kind_of,
    payload_of,
    value_of,
)
from sievemq_broker.protocols.amqp.outbox import AmqpOutbox, Stage
from sievemq_broker.protocols.amqp.outcomes import Settlement, default_outcome
from sievemq_broker.protocols.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Open,
    Received,
    Rejected,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from sievemq_broker.protocols.amqp.types import Symbol, UShort
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
from sievemq_broker.session import verbs
from sievemq_broker.session.life import CLOSING
from sievemq_broker.session.peer import Peer, Table
from sievemq_broker.session.ports import Services, SignIn, Watcher
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.session import SessionMode
from sievemq_broker.session.settings import AuthenticationError
from sievemq_broker.session.table import TABLE
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError, shown
from sievemq_core.limits import HANDSHAKE_FRAME_BYTES, MAX_CREDIT, MAX_NAME_CHARS
from sievemq_core.message.destination import Kind, parse_address
from sievemq_core.message.envelope import PROPERTIES
from sievemq_core.wire.commands import Command

#: The largest frame that is accepted: a larger message arrives in several transfers.
FRAME_BYTES: Final = 1024 * 1024

#: Stands for the settlements that a frame leads to.
_SETTLE: Final = verbs.Settle(consumer=0, tags=(), outcome=Outcome.ACKNOWLEDGED, credit=0)

#: The largest message on a link to a coordinator: declare and discharge take a few dozen.
_COORDINATION_BYTES: Final = 64 * 1024

#: Deliveries that a producer may have under way; its credit is renewed when half of it is used.
CREDIT: Final = 1_000

#: Commands of transfers and dispositions that are carried out together, at the most. Far more would be read in a turn
#: and carried out in the next one.
_MOST: Final = 50

_SCRAM: Final = "SCRAM-SHA-256"
_OFFERED: Final = ("ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", "sole-connection-for-container")
_SOLE: Final = "sole-connection-for-container"
_OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


@mypyc_attr(allow_interpreted_subclasses=True)  # the test kit's is one
class AmqpConnection(ForeignConnection[FrameParser, AmqpOutbox]):
    """The broker's end of one AMQP connection.

    Args:
        services: of the I/O layer.
        wake: called when output appears while the connection is not being fed: call :meth:`data_to_send` soon, not from
            there.
        watcher: is informed of the client's commands.
    """

    __slots__ = (
        "_acknowledged",
        "_batch",
        "_batch_bytes",
        "_behind",
        "_channels",
        "_committing",
        "_ended",
        "_held_bytes",
        "_idle",
        "_incoming",
        "_message_ids",
        "_numbers",
        "_password",
        "_released",
        "_sign_in",
        "_stalled",
        "_transactions",
        "_user",
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
        make_outbox: Callable[..., AmqpOutbox] = AmqpOutbox,
    ) -> None:
        parser = FrameParser(HANDSHAKE_FRAME_BYTES)
        converted = services.converted.setdefault("amqp", Converted())
        outbox = make_outbox(services.settings, wake, services.now, converted)
        line = _Line(parser, outbox)
        super().__init__(broker, services, table, address, watcher, parser, outbox, line)
        #: The user who has signed in by SASL.
        self._user: str | None = None
        self._password: str | None = None
        self._sign_in: SignIn | None = None
        #: The last number of a session of the broker's, and of a message id.
        self._numbers = self._message_ids = 0
        self._channels: dict[int, AmqpSession] = {}
        #: Channels of sessions that ended because of an error, and whose client has not answered that.
        self._ended: set[int] = set()
        self._transactions: dict[bytes, Transaction] = {}
        #: Commands of consecutive transfers and dispositions, which are carried out together, and the bytes that they
        #: were; among them the tags that are acknowledged, by consumer.
        self._batch: list[tuple[Any, ...]] = []
        self._batch_bytes = 0
        self._acknowledged: dict[int, list[int]] = {}
        #: Transactions that are being committed.
        self._committing: dict[Transaction, None] = {}
        #: The link of each session of the broker that carries sends; the sends of links that were detached.
        self._incoming: dict[int, IncomingLink] = {}
        self._idle: list[IncomingSends] = []
        #: Links of which something waits for room; frames that wait until there are none; bytes of all that.
        self._stalled: dict[IncomingLink, None] = {}
        self._behind: deque[Frame] = deque()
        #: The last frame that has waited long enough.
        self._released: Frame | None = None
        self._held_bytes = 0

    def _carry_out(self, frame: Frame, now: int) -> None:
        if self._stalled and frame is not self._released and self._must_wait(frame):
            return
        body = frame.body
        session = self._channels.get(frame.channel) if len(self._batch) < _MOST and frame.kind == AMQP else None
        if session is not None:
            if type(body) is Transfer:
                session.count_in()
                self._transfer(session, body, frame.payload, now)
                return
            if type(body) is Disposition:
                self._disposition(session, body, frame.size, now)
                return
        if self._batch:  # and a frame that is not part of it
            self._behind_batch(partial(self._carry_out, frame), now)
        else:
            self._carry_out_alone(frame, now)

    def _carry_out_alone(self, frame: Frame, now: int) -> None:
        """Carry out a frame that is no part of a batch."""
        body = frame.body
        if frame.kind < 0:
            self._header(body)
            return
        if frame.kind == SASL:
            self._sasl(body)
            return
        if body is None:
            return  # a heartbeat
        if self.outbox.is_new:
            if not isinstance(body, Open) or self.outbox.stage is not Stage.HEADER:
                raise unexpected(f"{_name(body)} before open")
            self._open(frame.channel, body, now)
            return
        if isinstance(body, Close):
            self._stop_delivering([*self.outbox.consumers.values()], self._say_goodbye, now)
            return
        if isinstance(body, Begin):
            self._begin(frame.channel, body, now)
            return
        session = self._channels.get(frame.channel)
        if session is None:
            if frame.channel not in self._ended:
                raise unexpected(f"{_name(body)} on channel {frame.channel}, where no session has begun")
            if isinstance(body, End):
                self._ended.discard(frame.channel)
            return
        self._carry_out_in(session, body, now)

    def _carry_out_in(self, session: AmqpSession, body: object, now: int) -> None:
        match body:
            case Flow():
                self._flow(session, body, now)
            case Attach():
                self._attach(session, body, now)
            case Detach():
                self._detach(session, body, now)
            case End():
                self._end(session, now)
            case _:
                raise unexpected(f"{_name(body)} on a connection that is open")

    def _fail(self, error: SieveError, frame: Frame | None, now: int) -> None:
        if self._batch:  # what came before
            self._behind_batch(partial(self._fail, error, None), now)
        elif self.peer.life.state >= CLOSING:
            return
        elif isinstance(error, SessionError):
            self._end(error.session, now, error)
        elif isinstance(error, LinkError) and isinstance(error.link, IncomingLink):
            self._detach_incoming(error.link, error, now)
        else:
            self.peer.fail(error, now)

    # -- batches ------------------------------------------------------------------------------------------------------

    def _add(self, size: int, command: verbs.Carried) -> None:
        self._batch.append(command)
        self._batch_bytes += size

    def _finish(self, now: int) -> None:
        batch = self._batch
        if batch:
            size, self._batch, self._batch_bytes, self._acknowledged = self._batch_bytes, [], 0, {}
            self.peer.carry_out(batch, size, now)
            if self.outbox.has_passed or self.peer.agenda.behind:
                self._todo.appendleft(partial(self._stall, batch))
            if self.outbox.dropped or self.outbox.resumed:
                self._look_after_links()

    def _behind_batch(self, act: Callable[[int], None], now: int) -> None:
        """Do something once the batch is carried out, before the next frame."""
        self._todo.append(act)
        self._finish(now)

    # -- links that wait for room -------------------------------------------------------------------------------------

    def _stall(self, batch: list[tuple[Any, ...]], now: int) -> None:
        """A batch is carried out. Keep the sends of it that were passed over, behind one that waits for room."""
        for number, first in self.outbox.take_passed().items():
            link = self._incoming.get(number)
            if link is None:
                continue
            sends = [(_size_of(each), verbs.PlainCommand(each)) for each in batch
                     if each[0] == Command.SEND and each[1] == number and each[2] >= first]  # fmt: skip
            before = link.incoming.bytes
            link.incoming.pass_over(sends)
            self._hold(link, link.incoming.bytes - before)
            if link.attached and link.credit > 0:  # what is on its way is taken
                link.allow(0)
                self._answer_flow(link.session, link)
            link.incoming.block(self.outbox.is_stopped(number))
            self._later.append(partial(self._go_on_sending, link))

    def _hold(self, link: IncomingLink, size: int) -> None:
        self._stalled[link] = None
        self._count_held(size)

    def _count_held(self, change: int) -> None:
        """Count bytes that wait. Above the limit nothing more is read before some go on."""
        self._held_bytes += change
        self._laden = self._held_bytes > self._services.settings.window_bytes

    def _must_wait(self, frame: Frame) -> bool:
        """True if a frame must wait for a link of which something waits: then it is kept."""
        body = frame.body
        if self._behind or isinstance(body, Close):
            self._behind.append(frame)
            return True
        session = self._channels.get(frame.channel) if frame.kind == AMQP else None
        if session is None:
            return False
        if session.behind or (isinstance(body, End) and self._is_busy(session)):
            session.behind.append(frame)
            self._count_held(frame.size)
            return True
        if not isinstance(body, (Transfer, Flow, Attach, Detach)) or body.handle is None:
            return False
        link = session.links.get(body.handle)
        if not isinstance(link, IncomingLink) or link not in self._stalled:
            return False
        if isinstance(body, Transfer):
            session.count_in()
            number = body.delivery_id
            if (
                number is not None
                and not link.incoming.continues(link.first is not None)
                and not session.begin_delivery(number)
            ):
                raise _wrong_first(link, body)
        elif isinstance(body, Flow):
            self._open_window(session, body)
        before = link.incoming.bytes
        link.incoming.hold(frame)
        self._count_held(link.incoming.bytes - before)
        return True

    def _release(self, frame: Frame, now: int) -> None:
        self._released = frame
        self._carry_out(frame, now)

    def _is_busy(self, session: AmqpSession) -> bool:
        """True while something of a session waits for room."""
        return any(link.session is session for link in self._stalled) or any(
            transaction.settles(session) for transaction in self._committing
        )

    def _go_on(self, now: int) -> None:
        if self.outbox.dropped or self.outbox.resumed:
            self._look_after_links()
        super()._go_on(now)

    def _look_after_links(self) -> None:
        """Go on with links that no longer wait for room, and end those that were detached by the broker."""
        for link in self.outbox.take_dropped():
            self._drop(link)
        for number in self.outbox.take_resumed():
            resumed = self._incoming.get(number)
            if resumed is not None:
                resumed.incoming.block(False)
                self._later.append(partial(self._go_on_sending, resumed))

    def _drop(self, link: IncomingLink) -> None:
        """A link was detached from here. What its client has sent for it meanwhile is ignored, up to its answer."""
        self._retire(link)
        if link not in self._stalled:
            return
        incoming = link.incoming
        before = incoming.bytes
        ours = True
        for frame in incoming.take_frames():
            ours = ours and isinstance(frame.body, (Transfer, Flow))
            if not ours:
                self._later.append(partial(self._repeat_for, link, frame))
        self._count_held(incoming.bytes - before)
        self._later.append(partial(self._go_on_sending, link))

    def _go_on_sending(self, link: IncomingLink, now: int) -> None:
        """Repeat what was passed over of a link whose send no longer waits; then carry out the frames behind it."""
        incoming = link.incoming
        if incoming.blocked or link not in self._stalled:
            return
        before = incoming.bytes
        frame: Frame | None = None
        sends = incoming.take_sends(_MOST)
        for size, send in sends:
            self._add(size, send)
        if not sends:
            frame = incoming.next_frame
            if frame is None and not self._batch:
                self._end_stall(link)
                return
            # What was repeated may have to wait once more: the wait ends when it is carried out.
            if frame is not None and len(self._batch) < _MOST and (isinstance(frame.body, Transfer) or not self._batch):
                incoming.take_frame()
            else:
                frame = None
        self._count_held(incoming.bytes - before)
        self._later.append(partial(self._go_on_sending, link))
        if frame is None:
            self._finish(now)
        else:
            self._repeat_for(link, frame, now)

    def _repeat(self, session: AmqpSession, frame: Frame, now: int) -> None:
        if isinstance(frame.body, Transfer):
            self._transfer(session, frame.body, frame.payload, now, waited=True)
        elif isinstance(frame.body, Flow):
            self._flow_of(session, frame.body, now)
        else:
            self._release(frame, now)

    def _repeat_for(self, link: IncomingLink, frame: Frame, now: int) -> None:
        """Carry out a frame that has waited for a link, unless it waits for a later one with the same handle now."""
        session = link.session
        later = session.links.get(frame.body.handle)
        if later is not link and isinstance(later, IncomingLink) and later in self._stalled:
            before = later.incoming.bytes
            later.incoming.hold(frame)
            self._count_held(later.incoming.bytes - before)
        elif not session.ended:
            self._repeat(session, frame, now)

    def _end_stall(self, link: IncomingLink) -> None:
        """Nothing of a link waits any more."""
        del self._stalled[link]
        session = link.session
        if link.attached:
            self._renew(session, link)
        else:
            self._retire(link)
        for each in self._channels.values():
            if each.behind and not self._is_busy(each):
                self._later.append(partial(self._go_on_behind, each))
        if self._behind and not self._stalled:
            self._later.append(partial(self._release, self._behind.popleft()))

    def _go_on_behind(self, session: AmqpSession, now: int) -> None:
        """Carry out end, and the frames behind it."""
        if session.behind:
            frame = session.behind.popleft()
            self._count_held(-frame.size)
            self._later.append(partial(self._go_on_behind, session))
            self._release(frame, now)

    def _retire(self, link: IncomingLink) -> None:
        """A link was detached: another one gets its session of the broker, once nothing of it waits."""
        number = link.incoming.number
        if link not in self._stalled and number and self._incoming.pop(number, None) is not None:
            self._idle.append(link.incoming)

    def _close_senders(self, session: AmqpSession) -> Iterator[verbs.Carried]:
        """A session has ended, with all of its links."""
        for link in [link for link in self._incoming.values() if link.session is session]:
            incoming = link.incoming
            self._incoming.pop(incoming.number, None)
            if link in self._stalled:
                del self._stalled[link]
                self._count_held(-incoming.bytes)
            yield verbs.CloseSession(request=self._new_id(), session=incoming.number, handed=())
            self.outbox.forget_session(incoming.number)

    # -- the handshake ------------------------------------------------------------------------------------------------

    def _header(self, header: bytes) -> None:
        outbox = self.outbox
        if header == SASL_HEADER and outbox.may_reach(Stage.SASL):
            outbox.reach(Stage.SASL)
            outbox.write(SASL_HEADER)
            outbox.frame(SaslMechanisms(sasl_server_mechanisms=self._mechanisms()), kind=SASL)
        elif header == AMQP_HEADER and outbox.may_reach(Stage.HEADER):
            outbox.reach(Stage.HEADER)
            outbox.write(AMQP_HEADER)
        else:
            raise ProtocolError(
                f"the protocol header {shown(header)} is not expected here; AMQP 1.0 is spoken, with SASL or without",
                ErrorCode.UNSUPPORTED_VERSION,
            )

    def _mechanisms(self) -> list[str]:
        """How this client may sign in, the best first."""
        self._sign_in = self._services.scram(self.peer)
        certified = ["EXTERNAL"] if self.peer.member.identity.user is not None else []
        return [*certified, *([_SCRAM] if self._sign_in is not None else []), "PLAIN", "ANONYMOUS"]

    def _sasl(self, body: object) -> None:
        stage, outbox = self.outbox.stage, self.outbox
        if isinstance(body, SaslResponse) and stage is Stage.CHALLENGED and self._sign_in is not None:
            identity, answer = self._sign_in.last(body.response)
            self.peer.entitle(identity)
            self._signed_in(answer)
        elif not isinstance(body, SaslInit) or stage is not Stage.SASL:
            raise unexpected(f"the SASL frame {_name(body)}")
        elif body.mechanism == _SCRAM and self._sign_in is not None:
            challenge = self._sign_in.first(body.initial_response or b"", self._claimed)
            outbox.reach(Stage.CHALLENGED)
            outbox.frame(SaslChallenge(challenge=challenge), kind=SASL)
        elif body.mechanism == "EXTERNAL" and self.peer.member.identity.user is not None:
            claimed = self._claimed((body.initial_response or b"").decode("utf-8", "replace"))
            if claimed not in ("", self.peer.member.identity.user):
                raise ProtocolError(f"the client certificate is not that of {shown(claimed)}", ErrorCode.AUTHENTICATION)
            self._signed_in(None)
        elif body.mechanism in ("PLAIN", "ANONYMOUS"):
            self._check(body)
        else:
            raise ProtocolError(
                f"the mechanism {shown(body.mechanism)} is not offered; use {', '.join(self._mechanisms())}",
                ErrorCode.AUTHENTICATION,
            )

    def _claimed(self, name: str) -> str:
        """The user of a given name. A namespace in the name is kept for open; the user has no password there."""
        user, namespace = user_and_namespace(name)
        self._user = f"@{namespace}" if namespace else None
        return user or ""

    def _check(self, init: SaslInit) -> None:
        if init.mechanism == "PLAIN":
            parts = (init.initial_response or b"").split(b"\0")
            if len(parts) != 3:
                raise ProtocolError("the response of PLAIN has three parts", ErrorCode.AUTHENTICATION)
            self._user, self._password = (part.decode("utf-8", "replace") for part in parts[1:])
        user, _ = user_and_namespace(self._user)
        self.outbox.expect(0, lambda _: self._signed_in(None))

        def later(found: Identity | AuthenticationError, now: int) -> None:
            if self.peer.life.state < CLOSING:
                if isinstance(found, AuthenticationError):
                    self.outbox.refuse(0, found)
                else:
                    self.outbox.answer(0)
                    self.outbox.wake()

        if self._services.authenticate(self.peer, user, self._password, later) is not None:
            self.outbox.answer(0)

    def _signed_in(self, additional: bytes | None) -> None:
        self.outbox.reach(Stage.SIGNED_IN)
        self.outbox.frame(SaslOutcome(code=0, additional_data=additional), kind=SASL)

    @property
    def _channel_max(self) -> int:
        return min(self._services.settings.max_sessions, 65_536) - 1

    def _open(self, channel: int, theirs: Open, now: int) -> None:
        if channel:
            raise FramingError(f"open on channel {channel}; it belongs to channel 0")
        if theirs.max_frame_size < MIN_FRAME:
            raise FramingError(f"a max-frame-size of {theirs.max_frame_size}; the least is {MIN_FRAME}")
        settings = self._services.settings
        user, namespace = user_and_namespace(self._user)
        # Qpid JMS makes up an id for a connection that was given none; it begins so, and names no client.
        sole = _SOLE in (theirs.desired_capabilities or ()) and not theirs.container_id.startswith("ID:")

        def welcomed(real: int) -> None:
            idle = theirs.idle_time_out or 0
            self._line.agree(settings.heartbeat_ms, max(idle // 2, 100) if idle else 0)
            self._heartbeat.welcomed(real)
            self._parser.accept(FRAME_BYTES)
            product, _, version = settings.broker.partition(" ")
            properties: dict[Any, Any] = {
                Symbol("product"): product,
                Symbol("version"): version,
                Symbol("queue-prefix"): "queue:",
                Symbol("topic-prefix"): "topic:",
            }
            if settings.peers:
                properties[Symbol("failover-server-list")] = [_server(peer) for peer in settings.peers]
            self.outbox.frame(
                Open(
                    container_id=f"{settings.broker}/{self.outbox.session}".replace(" ", "/"),
                    max_frame_size=FRAME_BYTES,
                    channel_max=self._channel_max,
                    idle_time_out=settings.heartbeat_ms or None,
                    offered_capabilities=list(_OFFERED),
                    properties=properties,
                )
            )
            self.outbox.opened(min(theirs.max_frame_size, FRAME_BYTES))

        self.outbox.opening(theirs.hostname)
        self.outbox.expect(0, welcomed)
        product = (theirs.properties or {}).get("product", "")
        agent = f"AMQP 1.0 {product}".strip()
        password, self._password = self._password, None
        hello = verbs.Hello(
            namespace=namespace,
            user=user,
            password=password,
            client_id=theirs.container_id if sole else None,
            agent=agent,
            host=theirs.hostname or "",
        )
        self._do(now, hello)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def _begin(self, channel: int, theirs: Begin, now: int) -> None:
        if channel > self._channel_max:
            raise FramingError(f"begin on channel {channel}; the channel-max is {self._channel_max}")
        if channel in self._channels or channel in self._ended:
            raise unexpected(f"begin on channel {channel}, where a session is open")
        self._numbers += 1
        session = AmqpSession(channel, self._numbers, theirs.incoming_window, theirs.next_outgoing_id)
        self._channels[channel] = session

        def begun(_: object) -> None:
            self.outbox.frame(
                Begin(
                    remote_channel=channel,
                    next_outgoing_id=0,
                    incoming_window=WINDOW,
                    outgoing_window=WINDOW,
                    handle_max=self._services.settings.max_consumers,
                ),
                channel,
            )

        self._open_session(session.number, SessionMode.CLIENT_ACKNOWLEDGE, begun, now)

    def _open_session(
        self,
        number: int,
        mode: SessionMode,
        then: Callable[[object], None],
        now: int,
        refused: Callable[[SieveError], None] | None = None,
    ) -> None:
        self._ask(now, then, verbs.OpenSession(request=self._new_id(), session=number, mode=mode), refused=refused)

    def _end(self, session: AmqpSession, now: int, error: SieveError | None = None) -> None:
        if error is not None:
            self._ended.add(session.channel)
        self._stop_delivering([*session.links.values()], partial(self._close_session, session, error), now)

    def _close_session(self, session: AmqpSession, error: SieveError | None, now: int) -> None:
        """Nothing more is delivered to a session that ends."""
        self.peer.flush_confirms()
        self._channels.pop(session.channel, None)
        handed = _flat(session.withheld)
        session.drop()
        for transaction in self._transactions.values():
            transaction.lose(session)
        for transaction in tuple(self._committing):
            # Only after an error: otherwise the end of the session waits for it.
            if transaction.settles(session) or transaction.link.session is session:
                self._do(now, verbs.Withdraw(request=self._new_id(), session=transaction.number, sequence=0))

        def over(_: int) -> None:
            self.outbox.forget_session(session.number)
            self.outbox.frame(End(error=None if error is None else error_of(error)), session.channel)

        def closed(_: object) -> None:
            self._roll_back(lambda link: link.session is session)
            self._todo.append(over)

        def close(now: int) -> None:
            if session.behind:
                self._later.append(partial(self._go_on_behind, session))
            self._ask(now, closed, verbs.CloseSession(request=self._new_id(), session=session.number, handed=handed))

        self._do_each(self._close_senders(session), close, now)

    def _say_goodbye(self, now: int) -> None:
        """Nothing more is delivered to a client that closes its connection."""
        goodbye = verbs.Goodbye(request=self._new_id(), handed=_flat(self.outbox.withheld))
        self._ask(now, lambda _: self.outbox.frame(Close()), goodbye)

    def _open_window(self, session: AmqpSession, flow: Flow) -> None:
        was_shut = session.shut
        session.open_window(flow.next_incoming_id, flow.incoming_window)
        if was_shut and session.room > 0:
            self._window_opened(session)

    def _flow(self, session: AmqpSession, flow: Flow, now: int) -> None:
        self._open_window(session, flow)
        if flow.handle is not None:
            self._flow_of(session, flow, now)
        elif flow.echo:
            self._answer_flow(session)

    def _flow_of(self, session: AmqpSession, flow: Flow, now: int) -> None:
        """The part of a flow that is about a link."""
        assert flow.handle is not None
        link = self._attached_link(session, flow.handle, flow)
        if isinstance(link, IncomingLink):
            if flow.delivery_count is not None:
                link.reach(flow.delivery_count)
            if not self._renew(session, link) and flow.echo:
                self._answer_flow(session, link)
        elif isinstance(link, OutgoingLink) and link.id:
            # What the client counts may be behind: deliveries are on their way to it.
            behind = ahead(link.delivery_count, 0 if flow.delivery_count is None else flow.delivery_count)
            limit = link.delivery_count + (flow.link_credit or 0) - behind
            granted = max(0, limit - link.delivery_count - link.held)
            if isinstance(link, Browser):
                link.grant(granted, flow.drain)
                self._go_on_browsing(link)
                return
            link.drain_to(None)
            self._reject_oversized(now)
            credit = min(granted, MAX_CREDIT)
            link.owe(granted - credit)
            self._do(now, verbs.credit(consumer=link.id, credit=credit, instead=True))
            if flow.drain:
                self._drain(link, limit, now)
            elif flow.echo:
                self._answer_flow(session, link, max(0, limit - link.delivery_count))

    def _drain(self, link: OutgoingLink, limit: int, now: int) -> None:
        """Deliver to a link what there is; then credit that is left, up to this count of deliveries, is used up."""
        before, passed = link.met, link.oversized

        def act(now: int) -> None:
            if link.id not in self.outbox.consumers:
                return
            self._reject_oversized(now)
            if credit := link.repay():
                self._do(now, verbs.credit(consumer=link.id, credit=credit))
            if before < link.met and link.delivery_count + link.held < limit:  # there may be more
                self._drain(link, limit, now)
            else:
                self._do(now, verbs.credit(consumer=link.id, credit=0, instead=True))
                link.drain_to(limit)
                self._end_drain(link)

        if before - passed < limit:
            want = verbs.Want(request=self._new_id(), consumer=link.id)
            self._ask(now, lambda _: self._todo.append(act), want)
        else:
            self._todo.append(act)

    def _end_drain(self, link: OutgoingLink) -> None:
        """Inform the client that it has drained a link, unless messages still wait for its window."""
        if link.draining is not None and not link.held:
            link.advance(link.draining)
            self._answer_flow(link.session, link, 0, drain=True)

    def _window_opened(self, session: AmqpSession) -> None:
        """The client's window, or the transport, has room again: write what waits for it, and what depends on that."""
        self.outbox.go_on(session)
        if session.parked:
            self._todo.append(partial(self._go_on_parked, session, session.take_parked()))

    def _go_on_parked(self, session: AmqpSession, parked: deque[OutgoingLink], now: int) -> None:
        """Go on with the links that waited for the client's window, one after the other. Those that it shuts out again
        wait until it opens once more."""
        link = parked.popleft()
        if parked:
            self._todo.append(partial(self._go_on_parked, session, parked))
        if session.ended or link.gone:
            return
        if isinstance(link, Browser):
            if link.credit or link.drain:
                self._go_on_browsing(link)
        else:
            self._end_drain(link)

    def _go_on_delivering(self) -> None:
        for session in self.outbox.behind:
            self._window_opened(session)

    def _answer_flow(
        self, session: AmqpSession, link: Link | None = None, credit: int = 0, *, drain: bool = False
    ) -> None:
        frame = Flow(
            next_incoming_id=session.next_in,
            incoming_window=WINDOW,
            next_outgoing_id=session.next_out,
            outgoing_window=WINDOW,
        )
        if isinstance(link, (IncomingLink, OutgoingLink)):
            frame = frame.having(
                handle=link.handle,
                delivery_count=link.delivery_count % 2**32,
                link_credit=link.credit if isinstance(link, IncomingLink) else credit,
                drain=drain,
            )
        self.outbox.frame(frame, session.channel)

    # -- links --------------------------------------------------------------------------------------------------------

    def _attach(self, session: AmqpSession, theirs: Attach, now: int) -> None:
        if theirs.handle in session.links:
            raise SessionError(
                session, f"attach of handle {theirs.handle}, which is attached", "amqp:session:handle-in-use"
            )
        if session.handles >= self._services.settings.max_consumers:
            raise RequestError("too many links in a session; detach unused ones", ErrorCode.RESOURCE_ALLOCATION)
        try:
            if len(theirs.name) > MAX_NAME_CHARS:
                raise RequestError(
                    f"the name of a link has at most {MAX_NAME_CHARS} characters, not {len(theirs.name)}",
                    ErrorCode.RESOURCE_ALLOCATION,
                )
            if theirs.role:
                self._attach_consumer(session, theirs, now)
            else:
                self._attach_incoming(session, theirs, now)
        except SieveError as error:
            if error.code.fatal:
                raise
            self._refuse_link(session, theirs, error)

    def _refuse_link(self, session: AmqpSession, theirs: Attach, error: SieveError) -> None:
        """Attach without a terminus, then detach with the error (part 2, section 2.6.3)."""
        session.refuse(theirs.handle)
        self.outbox.frame(
            Attach(
                name=theirs.name,
                handle=theirs.handle,
                role=not theirs.role,
                source=None if theirs.role else theirs.source,
                target=theirs.target if theirs.role else None,
                initial_delivery_count=0 if theirs.role else None,
            ),
            session.channel,
        )
        self.outbox.frame(Detach(handle=theirs.handle, closed=True, error=error_of(error)), session.channel)

    def _attach_incoming(self, session: AmqpSession, theirs: Attach, now: int) -> None:
        target = theirs.target
        refused = partial(self._refuse_link, session, theirs)
        second = theirs.rcv_settle_mode == 1
        outcomes = theirs.source.outcomes if isinstance(theirs.source, Source) else None
        rejects = not outcomes or "amqp:rejected:list" in outcomes  # many clients list none, and know all
        if isinstance(target, Coordinator):
            coordination = Coordination(
                session, theirs.handle, theirs.name, second=second, rejects=rejects, most=_COORDINATION_BYTES
            )
            self._attach_to(session, theirs, coordination, target)
            return
        if not isinstance(target, Target):
            raise RequestError("a link by which the client sends needs a target", ErrorCode.INVALID_DESTINATION)
        most = self._services.settings.body_bytes
        link = IncomingLink(session, theirs.handle, theirs.name, second=second, rejects=rejects, most=most)
        if target.dynamic:
            check_node_properties(target.dynamic_node_properties)
            kind = kind_of(target.capabilities)

            def to(made: str) -> None:
                link.own(made)
                self._to(link, theirs, target.having(address=made), made)

            self._make_temporary(kind, to, refused, now)
        elif target.address is None:
            self._open_incoming(session, theirs, link, target)
        else:
            address = address_of(target.address, kind_of(target.capabilities))
            self._check_name(address)
            declare = verbs.Declare(request=self._new_id(), destination=address)
            self._ask(now, lambda _: self._to(link, theirs, target, address), declare, refused=refused)

    def _to(self, link: IncomingLink, theirs: Attach, target: Target, address: str) -> None:
        link.lead(address)
        self._open_incoming(link.session, theirs, link, target)

    def _open_incoming(self, session: AmqpSession, theirs: Attach, link: IncomingLink, target: Any) -> None:
        """Give a link a session of the broker for its sends, and attach it."""
        if self._idle:
            self._send_by(self._idle.pop(), session, theirs, link, target)
            return
        self._numbers += 1
        incoming = IncomingSends(self._numbers)
        refused = partial(self._refuse_link, session, theirs)

        def opened(_: object) -> None:
            self._send_by(incoming, session, theirs, link, target)

        self._todo.append(
            lambda now: self._open_session(incoming.number, SessionMode.CLIENT_ACKNOWLEDGE, opened, now, refused)
        )

    def _send_by(
        self, incoming: IncomingSends, session: AmqpSession, theirs: Attach, link: IncomingLink, target: Any
    ) -> None:
        link.send_by(incoming)
        self._incoming[incoming.number] = link
        self._attach_to(session, theirs, link, target)

    def _attach_to(self, session: AmqpSession, theirs: Attach, link: IncomingLink, target: Any) -> None:
        session.attach(link)
        answer = _attached(theirs, theirs.source, target, max_message_size=link.most)
        self.outbox.frame(answer, session.channel)
        link.reach(theirs.initial_delivery_count or 0)
        link.allow(CREDIT)
        self._answer_flow(session, link)

    def _renew(self, session: AmqpSession, link: IncomingLink) -> bool:
        """Grant credit if half of it is used. True if it was."""
        if link.credit > CREDIT // 2 or link in self._stalled:
            return False
        link.allow(CREDIT)
        self._answer_flow(session, link)
        return True

    def _make_temporary(
        self, kind: Kind | None, then: Callable[[str], None], refused: Callable[[SieveError], None], now: int
    ) -> None:
        """A dynamic node is a temporary destination; `then` gets its address."""
        topic = kind is not None and kind.is_topic
        self._ask(now, then, verbs.CreateTemporary(request=self._new_id(), topic=topic), refused=refused)

    def _attach_consumer(self, session: AmqpSession, theirs: Attach, now: int) -> None:
        source = theirs.source
        if not isinstance(source, Source):
            self._find_subscription(session, theirs)
            return
        if source.dynamic:
            check_node_properties(source.dynamic_node_properties)
            self._make_temporary(
                kind_of(source.capabilities),
                lambda made: self._todo.append(
                    partial(self._consume, session, theirs, source.having(address=made), made, made=made)
                ),
                partial(self._refuse_link, session, theirs),
                now,
            )
            return
        if source.address is None:
            raise RequestError("a link by which the client receives needs an address", ErrorCode.INVALID_DESTINATION)
        address = address_of(source.address, kind_of(source.capabilities))
        self._check_name(address)
        self._consume(session, theirs, source, address, now)

    def _find_subscription(self, session: AmqpSession, theirs: Attach) -> None:
        """A link without a source: it finds the durable subscription of its name, to end it."""
        name = theirs.name.partition("|")[0]
        link = OutgoingLink(session, theirs.handle, theirs.name, 0, "", subscription=name, durable=True)
        session.attach(link)
        source = Source(address=name, durable=2, expiry_policy="never", distribution_mode="copy")
        self._attached(theirs, link, source)

    def _attached(self, theirs: Attach, link: OutgoingLink, source: Source) -> None:
        answer = _attached(theirs, source, theirs.target, initial_delivery_count=0)
        self.outbox.frame(answer, link.session.channel)

    def _consume(
        self, session: AmqpSession, theirs: Attach, source: Source, address: str, now: int, *, made: str | None = None
    ) -> None:
        topic = parse_address(address).kind.is_topic
        capabilities = source.capabilities or ()
        filters = filters_of(source.filter)
        source = source.having(filter=filters.in_force or None, outcomes=list(_OUTCOMES))
        if source.distribution_mode == "copy" and not topic:
            browser = Browser(
                session, theirs.handle, theirs.name, self._new_id(), address, settled=True, selector=filters.selector,
                dialect=filters.dialect, most=theirs.max_message_size or 0,
            )  # fmt: skip

            def verified(_: object) -> None:
                session.attach(browser)
                self._attached(theirs, browser, source)

            self._ask(now, verified, self._page_of(browser, 0), refused=partial(self._refuse_link, session, theirs))
            return
        durable = topic and (source.durable > 0 or source.expiry_policy == "never")
        shared = topic and "shared" in capabilities
        name = theirs.name.partition("|")[0] if durable or shared else None
        if durable and self.peer.member.client_id is None and not (shared and "global" in capabilities):
            raise RequestError(
                "a durable subscription needs a client id: the container-id of a connection that asks for the "
                f"capability {_SOLE}. Only one that all containers share needs none: ask for the capabilities shared "
                "and global of the source",
                ErrorCode.ILLEGAL_STATE,
            )
        link = OutgoingLink(
            session, theirs.handle, theirs.name, self._new_id(), address, settled=theirs.snd_settle_mode == 1,
            outcome=default_outcome(source), subscription=name, durable=durable, most=theirs.max_message_size or 0,
        )  # fmt: skip
        link.own(made)

        def opened(_: object) -> None:
            session.attach(link)
            self._attached(theirs, link, source)

        def refused(error: SieveError) -> None:
            self.outbox.consumers.pop(link.id, None)
            self._refuse_link(session, theirs, error)

        self.outbox.consumers[link.id] = link
        open_consumer = verbs.OpenConsumer(
            request=self._new_id(),
            session=session.number,
            consumer=link.id,
            destination=address,
            selector=filters.selector,
            dialect=filters.dialect,
            no_local=filters.no_local,
            subscription=name,
            durable=durable,
            shared=shared,
            credit=0,
        )
        self._ask(now, opened, open_consumer, refused=refused)

    def _detach(self, session: AmqpSession, theirs: Detach, now: int) -> None:
        self._attached_link(session, theirs.handle, theirs)
        link = session.take_detached(theirs.handle)
        if link is None:
            return  # it was detached from here at the same time
        answer = Detach(handle=theirs.handle, closed=theirs.closed)

        def detached(_: object) -> None:
            self.outbox.frame(answer, session.channel)

        def refused(error: SieveError) -> None:
            self.outbox.frame(answer.having(error=error_of(error)), session.channel)

        def delete(made: str, now: int) -> None:
            self._ask(now, detached, verbs.DeleteTemporary(request=self._new_id(), destination=made), refused=detached)

        def over(_: object) -> None:
            if link.made is None or not theirs.closed:
                detached(None)
            else:  # while others consume from it, it stays until the connection ends
                self._todo.append(partial(delete, link.made))

        if not isinstance(link, OutgoingLink):
            self.outbox.unfinished.end(link)
            self._roll_back(lambda each: each is link)
            self.peer.flush_confirms()
            if isinstance(link, IncomingLink):
                self._retire(link)
            self._todo.append(over)
            return

        def unsubscribe(name: str, now: int) -> None:
            self._ask(now, detached, verbs.Unsubscribe(request=self._new_id(), subscription=name), refused=refused)

        def closed(_: object) -> None:
            assert link.subscription is not None
            self._todo.append(partial(unsubscribe, link.subscription))

        def stopped(now: int) -> None:
            session.leave(link)
            if isinstance(link, Browser):
                self._forget([(link, [])], lambda _: detached(None), now)
            elif not link.id:
                closed(None) if theirs.closed else over(None)
            else:
                then = closed if link.durable and theirs.closed else over
                self._forget([(link, [])], partial(self._close_consumer, link, then), now)

        self._stop_delivering([link], stopped, now)

    def _forget(self, links: list[tuple[OutgoingLink, list[int]]], then: Callable[[int], None], now: int) -> None:
        """Return the deliveries of links that are gone, then call `then`, with the time.

        Args:
            links: and tags of messages beside these that their clients cannot have.
            then: called afterwards.
            now: ms since 1970.
        """
        commands: list[verbs.Carried] = []

        def forget(now: int, budget: Budget) -> Task[int]:
            for link, unseen in links:
                left, withheld = yield from link.session.forget(link, now, budget)
                if left:
                    commands.append(_settlement(link.id, left, Outcome.LEFT))
                if withheld or unseen:
                    commands.append(verbs.Release(consumer=link.id, tags=withheld + unseen))
            return now

        def returned(now: int) -> None:
            self._do_each(iter(commands), then, now)

        self._in_slices(forget, _SETTLE, returned, now)

    def _close_consumer(self, link: OutgoingLink, then: Callable[[object], None], now: int) -> None:
        """The deliveries of a link that was detached are returned, but for what a transaction has settled."""
        self.outbox.consumers.pop(link.id, None)
        handed = max([each.last_tag(link) for each in (*self._transactions.values(), *self._committing)], default=0)
        self._ask(now, then, verbs.CloseConsumer(request=self._new_id(), consumer=link.id, handed=handed))

    def _attached_link(self, session: AmqpSession, handle: int, body: object) -> Link | None:
        """The link with this handle; None if it was detached from here, and the client may not know that yet.

        Raises:
            SessionError: no link has this handle.
        """
        link = session.links.get(handle)
        if link is None and not session.was_detached(handle):
            text = f"{_name(body)} on handle {handle}, to which no link is attached"
            raise SessionError(session, text, "amqp:session:unattached-handle")
        return link

    def _stop_delivering(self, links: list[Link], then: Callable[[int], None], now: int) -> None:
        """Deliver nothing more to these links, then call `then`, with the time. What was sent to them settled is
        acknowledged, and what was too large for them goes back as it was."""
        self._reject_oversized(now)
        self._acknowledge_written(now)
        self._do_each(self._stop(links), then, now)

    def _stop(self, links: list[Link]) -> Iterator[verbs.Carried]:
        for link in links:
            if isinstance(link, IncomingLink):
                self.outbox.unfinished.end(link)
            elif isinstance(link, OutgoingLink) and self.outbox.consumers.get(link.id) is link:
                yield verbs.credit(consumer=link.id, credit=0, instead=True)
                if kept := link.take_kept():
                    yield verbs.Release(consumer=link.id, tags=kept)
                if written := link.take_written():
                    yield verbs.acknowledge(consumer=link.id, tag=written, credit=0)
                self.outbox.consumers.pop(link.id, None)

    def _go_on_browsing(self, link: Browser) -> None:
        if not link.busy:
            link.begin()
            self._todo.append(partial(self._browse, link))

    def _browse(self, link: Browser, now: int) -> None:
        """Write as many messages as there is credit for, one after the other, while the client's window has room; read
        a page when none is left."""
        if link.session.shut:
            link.pause()
            link.session.park(link)
        elif link.page and link.credit:
            count, envelope = link.next()
            payload, _ = payload_of(envelope.fields, link.address, count + 1, self._services.now())
            if 0 < link.most < len(payload):
                link.grant(link.credit + 1, link.drain)
            else:
                self.outbox.transfer(link, 0, payload)
            self._todo.append(partial(self._browse, link))
        elif link.credit and not link.ended:

            def page(answer: Any) -> None:
                link.turn(*answer)
                self._todo.append(partial(self._browse, link))

            self._ask(now, page, self._page_of(link, PAGE), refused=partial(self.outbox.detach, link))
        else:
            link.pause()
            if link.drain:
                link.advance(link.delivery_count + link.rest())
                self._answer_flow(link.session, link, 0, drain=True)

    def _page_of(self, link: Browser, limit: int) -> verbs.Browse:
        """The request for the next page."""
        return verbs.Browse(
            request=self._new_id(),
            destination=link.address,
            selector=link.selector,
            dialect=link.dialect,
            cursor=link.cursor,
            limit=limit,
        )

    # -- deliveries of the client -------------------------------------------------------------------------------------

    def _transfer(
        self, session: AmqpSession, transfer: Transfer, payload: bytes, now: int, *, waited: bool = False
    ) -> None:
        link = session.links.get(transfer.handle)
        if not isinstance(link, IncomingLink):
            if self._attached_link(session, transfer.handle, transfer) is not None:
                raise SessionError(session, "a transfer on a link by which the client receives", "amqp:not-allowed")
            return
        first = link.first
        if first is None:
            first = transfer
            number = transfer.delivery_id
            if (
                number is None
                or transfer.delivery_tag is None
                or (transfer.rcv_settle_mode == 1 and not link.second)
                or not (waited or session.begin_delivery(number))
            ):
                raise _wrong_first(link, transfer)
        else:
            _check_continuation(link, first, transfer)
        if transfer.aborted:
            self.outbox.unfinished.end(link)
            link.count()
            self._renew(session, link)
            return
        if link.size + len(payload) > link.most and (transfer.more or link.first is not None):
            self._detach_incoming(link, _too_large(link, link.size + len(payload)), now)
            return
        if transfer.more:
            self._take_part(link, transfer, payload, now)
            return
        if link.first is not None:
            payload = self.outbox.unfinished.end(link) + payload
        link.count()
        if link.credit <= CREDIT // 2:
            self._renew(session, link)
        if isinstance(link, Coordination):
            self._behind_batch(partial(self._coordinate, link, first.delivery_id or 0, payload), now)
        else:
            self._send(session, link, first, transfer, payload, now)

    def _take_part(self, link: IncomingLink, transfer: Transfer, payload: bytes, now: int) -> None:
        """Keep a part of a delivery. All that a connection has begun and not ended have a limit together, since
        nothing holds back a single link of it."""
        unfinished, most = self.outbox.unfinished, self._services.settings.incomplete_bytes
        size = unfinished.bytes + len(payload)
        if most and size > most and link.size < unfinished.bytes:
            text = f"deliveries of this connection that are not complete have {size} bytes; at most {most} are accepted"
            self._detach_incoming(link, RequestError(text, ErrorCode.RESOURCE_ALLOCATION), now)
        else:
            unfinished.take(link, self._parser.number, transfer, payload)

    def _detach_incoming(self, link: IncomingLink, error: SieveError, now: int, tag: bytes | None = None) -> None:
        """Detach a link because of a delivery, with this tag, that cannot be rejected."""
        if not link.session.detach(link):
            return
        self.outbox.unfinished.end(link)
        self._drop(link)
        detach = Detach(handle=link.handle, closed=True, error=error_of(error, tag))

        def act(_: int) -> None:
            self._roll_back(lambda each: each is link)
            self.outbox.frame(detach, link.session.channel)

        self._behind_batch(act, now)

    def _send(
        self, session: AmqpSession, link: IncomingLink, first: Transfer, last: Transfer, message: bytes, now: int
    ) -> None:
        peer, outbox = self.peer, self.outbox
        if peer.clock_lag:  # what it sends gets the broker's time
            peer.see_clock(self._services.clock_offset)
        state = first.state if first.state is not None else last.state
        named = state.txn_id if isinstance(state, TransactionalState) else None
        settled = bool(first.settled or last.settled)
        transaction: Transaction | None = None
        try:
            transaction = None if named is None else self._transaction(named)
            if not message:
                raise RequestError("a delivery without a payload is no message", ErrorCode.MESSAGE_FORMAT)
            if len(message) > link.most:
                raise _too_large(link, len(message))
            self._message_ids += 1
            fields, to = envelope_of(message, f"ID:{peer.member.id}:a{self._message_ids}", now)
            address = link.address or to
            if address is None:
                raise RequestError("a message on a link without an address needs a `to`", ErrorCode.INVALID_DESTINATION)
            if link.address is None:
                self._check_name(address)
        except SieveError as error:
            if error.code.fatal:
                raise
            if settled and transaction is not None:
                transaction.fail(error)
            elif settled or not link.rejects:
                self._detach_incoming(link, error, now, first.delivery_tag)
            else:
                rejected = Rejected(error=error_of(error, first.delivery_tag))
                outbox.settle(link, first.delivery_id or 0, rejected)
            return
        if transaction is None:
            number, sequence = link.incoming.number, link.incoming.count()
        else:
            number, sequence = transaction.number, transaction.count_send()
        if not (settled and transaction is not None):
            delivery = None if settled else first.delivery_id
            outbox.await_confirm(number, sequence, link, delivery, named, first.delivery_tag)
        send = verbs.send(session=number, sequence=sequence, destination=address, envelope=fields)
        self._add(len(message), send)

    # -- settlement of deliveries to the client -----------------------------------------------------------------------

    def _disposition(self, session: AmqpSession, given: Disposition, size: int, now: int) -> None:
        if not given.role:
            return  # for its own deliveries, which are settled here at once
        state = given.state
        transaction: Transaction | None = None
        if isinstance(state, TransactionalState):
            try:
                transaction = self._transaction(state.txn_id)
            except UnknownTransactionError as error:
                raise SessionError(session, error.text, error.condition) from None
        elif (state is None or isinstance(state, Received)) and not given.settled:
            return  # nothing has become of them yet
        settlement = Settlement(session, given, transaction)
        if settlement.take(TURN) < TURN:
            for (link, outcome), tags in settlement.settled.items() if transaction is None else ():
                together = self._acknowledged.get(link.id) if outcome is Outcome.ACKNOWLEDGED else None
                if together is not None:
                    together += tags
                    continue
                if outcome is Outcome.ACKNOWLEDGED:
                    self._acknowledged[link.id] = tags
                self._add(size, _settlement(link.id, tags, outcome))
            if settlement.found and not given.settled:
                self._behind_batch(partial(self._answer_disposition, session, given), now)
        else:
            self._behind_batch(partial(self._settle_all, session, given, settlement), now)

    def _answer_disposition(self, session: AmqpSession, given: Disposition, now: int) -> None:
        if not given.settled and not session.ended:
            last = given.first if given.last is None else given.last
            answer = Disposition(role=False, first=given.first, last=last, settled=True, state=given.state)
            self.outbox.frame(answer, session.channel)

    def _settle_all(self, session: AmqpSession, given: Disposition, settlement: Settlement, now: int) -> None:
        """Carry out a disposition of very many deliveries."""
        answer = partial(self._answer_disposition, session, given)
        if isinstance(given.state, TransactionalState):
            self._in_slices(settlement.take_all, _SETTLE, answer, now)
        else:
            settled = settlement.settled
            self._in_slices(
                settlement.take_all, _SETTLE, lambda now: self._do_each(_settled(settled), answer, now), now
            )

    # -- transactions -------------------------------------------------------------------------------------------------

    def _transaction(self, name: bytes) -> Transaction:
        transaction = self._transactions.get(name)
        if transaction is None:
            raise UnknownTransactionError(name)
        return transaction

    def _coordinate(self, link: Coordination, delivery: int, message: bytes, now: int) -> None:
        wanted = read(value_of(message))
        match wanted:
            case Declare():
                self._numbers += 1
                transaction = Transaction(link, self._numbers)
                name = self._numbers.to_bytes(8)

                def declared(_: object) -> None:
                    self._transactions[name] = transaction
                    self.outbox.settle(link, delivery, Declared(txn_id=name))

                self._open_session(transaction.number, SessionMode.TRANSACTED, declared, now)
            case Discharge():
                self._discharge(link, delivery, wanted, now)
            case _:
                text = f"a coordinator takes declare and discharge, not {shown(wanted)}"
                self._refuse_coordination(link, delivery, RequestError(text, ErrorCode.ILLEGAL_STATE), now)

    def _discharge(self, link: Coordination, delivery: int, wanted: Discharge, now: int) -> None:
        transaction = self._transactions.pop(wanted.txn_id, None)
        if transaction is None:
            self._refuse_coordination(link, delivery, UnknownTransactionError(wanted.txn_id), now)
            return

        def over(error: SieveError | None, now: int) -> None:
            def ended(_: object) -> None:
                if error is None:
                    self.outbox.settle(link, delivery, Accepted())
                else:
                    self._refuse_coordination(link, delivery, error, now)

            self._complete(transaction, wanted.fail or error is not None, ended, now)

        if wanted.fail:
            over(None, now)
        elif transaction.doom is not None:
            over(transaction.doom, now)
        elif any(each.keeps_back(wanted.txn_id) for each in self._stalled):
            text = "sends of the transaction waited for room behind sends outside of it; it was rolled back"
            over(RequestError(text, ErrorCode.TRANSACTION_ROLLED_BACK), now)
        else:
            self._commit(link, transaction, over, now)

    def _commit(
        self, link: Coordination, transaction: Transaction, over: Callable[[SieveError | None, int], None], now: int
    ) -> None:
        """Commit a transaction. While that waits for room, what its link is sent waits, and nothing else.

        Args:
            over: called then, with the error.
            now: ms since 1970.
        """

        def answered(error: SieveError | None) -> None:
            self._todo.append(partial(over, error))
            self._committing.pop(transaction, None)
            if link.incoming.blocked:
                link.incoming.block(False)
                self._later.append(partial(self._go_on_sending, link))

        request = self._new_id()
        self._committing[transaction] = None
        self.outbox.expect_commit(request, lambda _: answered(None), answered)
        self._do(now, verbs.Commit(request=request, session=transaction.number, handed=()))
        if self.outbox.commits(request):
            link.incoming.block(True)
            self._hold(link, 0)

    def _refuse_coordination(self, link: Coordination, delivery: int, error: SieveError, now: int) -> None:
        """Refuse what a coordinator link was sent (part 4, section 4.3)."""
        if link.rejects:
            self.outbox.reject(link, delivery, error)
        else:
            self._detach_incoming(link, error, now)

    def _complete(self, transaction: Transaction, failed: bool, then: Callable[[Any], None], now: int) -> None:
        """The sends of a transaction are published, or are dropped now: settle what it has settled, and end it."""

        def closed(answer: Any) -> None:
            self.outbox.forget_session(transaction.number)
            then(answer)

        def settled(now: int) -> None:
            close = verbs.CloseSession(request=self._new_id(), session=transaction.number, handed=())
            self._ask(now, closed, close)

        self._do_each(_settled(transaction.settled, failed=failed), settled, now)

    def _roll_back(self, of: Callable[[Link], bool]) -> None:
        """Links were detached: roll back the transactions that were declared on them (part 4, section 4.1)."""
        for name in [name for name, each in self._transactions.items() if of(each.link)]:
            self._todo.append(partial(self._complete, self._transactions.pop(name), True, ignore))

    @property
    def frame_bytes(self) -> int:
        """Bytes of the incomplete frame, and of deliveries whose last transfer has not arrived; 0 if there are none."""
        return self._parser.pending + self.outbox.unfinished.bytes

    @property
    def unpublished(self) -> int:
        return super().unpublished + self._held_bytes + self.outbox.unfinished.bytes

    # -- what AMQP has no frame for -----------------------------------------------------------------------------------

    @property
    def _has_duties(self) -> bool:
        return (bool(self.peer.unconfirmed) and self.outbox.awaits_confirms) or self.outbox.has_duties

    def _reject_oversized(self, now: int) -> None:
        """Messages that are larger than their clients accept become dead letters, and the next ones are delivered. A
        dead letter stays with its link, since it would be delivered there again and again."""
        for number, tags in self.outbox.take_oversized().items():
            link = self.outbox.consumers.get(number)
            if link is not None and dead_letter_address(link.address) is None:
                link.keep(tags)
                self._do(now, verbs.credit(consumer=number, credit=len(tags)))
            else:
                settle = verbs.Settle(consumer=number, tags=tags, outcome=Outcome.REJECTED, credit=len(tags))
                self._do(now, settle)

    def _acknowledge_written(self, now: int) -> None:
        written = self.outbox.take_written()
        if written:
            self._do(now, verbs.AcknowledgeSeveral(acknowledged=written))

    def _do_duties(self, now: int) -> None:
        self._reject_oversized(now)
        self._acknowledge_written(now)
        for link in self.outbox.take_owing():
            self._do(now, verbs.credit(consumer=link.id, credit=link.repay()))
        returned = self.outbox.take_returned()
        if returned:
            self._forget([*returned.items()], ignore, now)

    def _give_back(self, consumer: int, now: int) -> None:
        self._do(now, verbs.Release(consumer=consumer, tags=()))


class _Line(Line):
    """A line on which a message may come in several frames: it has the deadline of one frame."""

    __slots__ = ("_unfinished",)

    def __init__(self, parser: FrameParser, outbox: AmqpOutbox) -> None:
        super().__init__(parser, outbox, "open", frame_of(None))
        self._unfinished = outbox.unfinished

    @property
    def frame_text(self) -> str:
        """What is incomplete, for people."""
        return "a delivery in several transfers" if self._unfinished.number else "a frame"

    @property
    def frame_number(self) -> int:
        """The number of the oldest incomplete delivery, else of the incomplete frame; 0 if there is none."""
        return self._unfinished.number or super().frame_number

    @property
    def unfinished(self) -> int:
        return self._unfinished.oldest_bytes or super().unfinished


def _size_of(send: tuple[Any, ...]) -> int:
    """Bytes of a SEND, most of them."""
    return sum([len(part) for part in send[4][PROPERTIES:] if isinstance(part, (bytes, str))])


def _attached(theirs: Attach, source: Any, target: Any, **more: Any) -> Attach:
    """The broker's end of a link that the client attaches."""
    return Attach(
        name=theirs.name,
        handle=theirs.handle,
        role=not theirs.role,
        snd_settle_mode=theirs.snd_settle_mode,
        rcv_settle_mode=theirs.rcv_settle_mode,
        source=source,
        target=target,
        **more,
    )


def _flat(tags: dict[int, int]) -> tuple[int, ...]:
    return tuple(number for pair in tags.items() for number in pair)


def _too_large(link: IncomingLink, size: int) -> RequestError:
    """The error for a message above the max-message-size that the broker has announced."""
    text = f"a message of {size} bytes or more; at most {link.most} are accepted (max_body_bytes), all sections counted"
    return RequestError(text, ErrorCode.MESSAGE_TOO_LARGE)


def _wrong_first(link: IncomingLink, transfer: Transfer) -> LinkError:
    """Why a transfer cannot be the first of a delivery on this link (part 2, section 2.7.5)."""
    number = transfer.delivery_id
    if number is None:
        text = "the first transfer of a delivery needs a delivery-id"
    elif transfer.delivery_tag is None:
        text = "the first transfer of a delivery needs a delivery-tag"
    elif transfer.rcv_settle_mode == 1 and not link.second:
        text = "rcv-settle-mode second in a transfer, on a link that has agreed on first"
    else:
        text = f"the delivery-id {number} was used, or comes after a later one; each is used once"
    return LinkError(link, text)


def _check_continuation(link: IncomingLink, first: Transfer, transfer: Transfer) -> None:
    """Check that a transfer continues a delivery (part 2, section 2.7.5).

    Raises:
        LinkError: it belongs to another one.
    """
    for name, begun, given in (
        ("delivery-id", first.delivery_id, transfer.delivery_id),
        ("delivery-tag", first.delivery_tag, transfer.delivery_tag),
        ("message-format", first.message_format or 0, transfer.message_format),
    ):
        if given is not None and given != begun:
            raise LinkError(
                link, f"a transfer with the {name} {shown(given)} amid a delivery with the {name} {shown(begun)}"
            )


def _settled(settled: Settled, *, failed: bool = False) -> Iterator[verbs.Carried]:
    """The commands that settle deliveries, all of them as failed if so."""
    for (link, outcome), tags in settled.items():
        yield _settlement(link.id, tags, Outcome.FAILED if failed else outcome)


def _settlement(consumer: int, tags: list[int], outcome: Outcome | None) -> verbs.NamedCommand:
    """The command that settles deliveries; without an outcome they go back as they were."""
    if outcome is None:
        return verbs.Release(consumer=consumer, tags=tags, unasked=True)
    return verbs.Settle(consumer=consumer, tags=tags, outcome=outcome, credit=0)


def _server(peer: str) -> dict[Symbol, object]:
    """A peer in a failover-server-list, with the fields of amqp:connection:redirect (2.8.16)."""
    host, _, port = peer.rpartition(":")
    return {Symbol("network-host"): host.strip("[]"), Symbol("port"): UShort(int(port))}


def _name(body: object) -> str:
    return "a heartbeat" if body is None else type(body).__name__.lower()

"""The ports of a connected client: its output, its observer, and the part of the I/O layer that it needs.

The type of the client is a parameter, since a client holds all of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.failure import Party
from sievemq_broker.domain.journal import Share
from sievemq_broker.domain.ports import DeliveryPort, Stored
from sievemq_broker.domain.settlement import Outcome
from sievemq_broker.domain.tap_log import Tapped
from sievemq_broker.session.life import Life
from sievemq_broker.session.lost import LostConnections
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.session import Session
from sievemq_broker.session.settings import AuthenticationError, SessionSettings
from sievemq_broker.session.tally import Tallies
from sievemq_broker.session.verbs import Welcome
from sievemq_core.compiled import mypyc_attr
from sievemq_core.errors import ErrorCode, SieveError
from sievemq_core.message.envelope import Envelope
from sievemq_core.selector import CompiledSelector


class Client(Protocol):
    """A connected client, as far as all of them are informed together."""

    def clock_moved(self) -> None:
        """The clock's offset changed."""

    def flow_changed(self) -> None:
        """The broker has reached a limit, or is below it again."""


ClientT = TypeVar("ClientT", bound=Client)
WatchedT = TypeVar("WatchedT", contravariant=True)


class PortOwner(Protocol):
    """Calls of the domain to a client, besides deliveries."""

    def hold_back(self, consumer_id: int) -> None:
        """A consumer might have got a message, but the port was not writable."""

    def consumer_closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The domain has closed a consumer."""

    def want_settled(self, consumer_id: int) -> None:
        """The domain has delivered what a waiting consumer can get."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientPort(DeliveryPort, Protocol):
    """The output of a client: a protocol encodes it, and writes it once per turn of the loop.

    Attributes:
        congested: True while the transport holds more output than its high-water mark.
    """

    __slots__ = ()

    congested: bool

    @property
    def protocol(self) -> str:
        """The client's protocol, as in the setting `protocols`."""

    @property
    def follows_clock(self) -> bool:
        """True if the client gets the broker's time, and moves of its clock."""

    @property
    def drops_replies(self) -> bool:
        """True if a message to a temporary destination that is gone is dropped, since a refusal would end the
        connection: of a service, for instance, because one of its clients has given up."""

    @property
    def unread(self) -> int:
        """Bytes that wait to be written."""

    @property
    def withheld(self) -> dict[int, int]:
        """The consumers with deliveries that the client cannot have, since its window has no room for them: by number,
        the last tag before these."""

    def attach(self, owner: PortOwner, life: Life) -> None:
        """Become the port of `owner`, whose connection has this life."""

    def introduce(self, party: Party) -> None:
        """The client has these names from now on."""

    def stop_deliveries(self) -> None:
        """The client is gone, or about to be: drop later output of the domain, and input that was not decoded."""

    def wake(self) -> None:
        """A deferred command of this client was carried out: notify the I/O layer, even if output was queued already.
        The store must note the client's progress in the same batch. Otherwise a client that reconnects after a crash
        repeats the command."""

    def welcome(self, welcome: Welcome) -> None:
        """The handshake is complete."""

    def answer(self, request: int, result: object = None) -> None:
        """A request was carried out."""

    def answer_page(self, request: int, cursor: object, messages: list[tuple[Any, ...]]) -> None:
        """A page of messages, in answer to a request."""

    def answer_tapped(self, request: int, first: int, found: list[Tapped]) -> None:
        """Messages of a tap from the sequence `first` on, in answer to a request."""

    def refuse(self, request: int, error: SieveError) -> None:
        """A request was refused."""

    def confirm(self, session: int, sequence: int) -> None:
        """The sends of a session up to this one are settled."""

    def refuse_send(self, session: int, sequence: int, error: SieveError) -> None:
        """A send was refused."""

    def flow(
        self, blocked: bool, text: str, session: int = 0, sequence: int = 0, destination: str | None = None
    ) -> None:
        """Senders must wait, or may go on; those of one session, from one of its sends on, if one is given."""

    def consumer_gone(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        """The broker has closed a consumer."""

    def clock(self, offset: int, frozen_at: int | None) -> None:
        """The clock was moved, frozen or resumed (test clocks only)."""

    def shutdown(self, grace: int, text: str) -> None:
        """The broker stops in `grace` milliseconds."""

    def fail(self, error: SieveError) -> None:
        """Send the error that ends the connection."""


class Watcher(Protocol[WatchedT]):
    """Observes what a client does; for the test kit's journal."""

    def sending(self, peer: WatchedT, address: str, envelope: Envelope, transacted: bool) -> None:
        """A message has arrived, and is about to be accepted or staged."""

    def sent(self, peer: WatchedT, address: str, envelopes: Sequence[Envelope], now: int) -> None:
        """Messages were accepted."""

    def refused(self, peer: WatchedT, session: Session, sequence: int, error: SieveError) -> None:
        """A send is refused."""

    def committed(
        self, peer: WatchedT, sends: Sequence[tuple[str, Envelope]], error: SieveError | None, now: int
    ) -> None:
        """A transaction was committed; with an error, its commit was refused and it was rolled back."""

    def ending(self, peer: WatchedT, lost: bool) -> None:
        """A client is about to end."""


def _never() -> bool:
    """Always False: there is always time left."""
    return False


class SignIn(Protocol):
    """A sign-in in which the client proves that it knows the password, by two messages."""

    def first(self, message: bytes, user_of: Callable[[str], str]) -> bytes:
        """The answer to the first message; `user_of` maps a name in it to the user."""

    def last(self, message: bytes) -> tuple[Identity, bytes]:
        """The user, and the answer to the last message. Both methods raise AuthenticationError."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Services(ABC, Generic[ClientT]):
    """The part of the I/O layer that clients need; one per broker. A test implements it in a few lines.

    Args:
        settings: what every client is announced, and what is enforced.
    """

    def __init__(self, settings: SessionSettings | None = None) -> None:
        self.settings = settings or SessionSettings()
        #: Clients past their handshake, by id. They maintain it; the I/O layer and the management API read it.
        self.connections: dict[str, ClientT] = {}
        #: Lost clients that may come back.
        self.lost = LostConnections()
        #: Milliseconds by which a test moved the clock; part of every `now`. Changed by :meth:`move_clock`.
        self.clock_offset = 0
        #: The time of that on the machine's clock: milliseconds since 1970 without the offset.
        self.moved_at = 0
        #: The limit because of which the broker accepts no sends; None if there is none. Changed by :meth:`flow`.
        self.blocked: str | None = None
        #: What ends the deliveries of a connection that is lost. Changed by :meth:`end`.
        self.lost_as = Outcome.LOST
        #: Where blocked senders wait; set by the code that creates both.
        self.broker: Broker | None = None
        #: Messages to temporary destinations that were gone.
        self.replies_dropped = 0
        #: What was refused to clients, and how their transactions ended.
        self.tallies = Tallies()
        #: What may be stored of the progress of sessions whose verbs are not complete: by connection and session the
        #: last send and request before, and what the verb has done so far.
        self.unstored: dict[tuple[str, int], tuple[int, int, Stored]] = {}
        #: By protocol, what its connections share of converted messages.
        self.converted: dict[str, Any] = {}
        #: Called after each command of a batch: True if the client has used its time and the rest must wait
        #: (:attr:`Agenda.behind`). The I/O layer may set it.
        self.spent: Callable[[], bool] = _never

    def use(self, settings: SessionSettings) -> None:
        """Announce and enforce these; connections that are open may keep the ones that they were announced."""
        self.settings = settings

    def end(self) -> None:
        """The broker ends, and another one goes on: connections that are lost from now on are so because of that."""
        self.lost_as = Outcome.KILLED

    def unstored_of(self, connection: str) -> list[Stored]:
        """What verbs of a connection have done that are not complete."""
        return [share for (of, _), (_, _, share) in self.unstored.items() if of == connection]

    def begin_storing(self, client: ClientT, key: tuple[str, int], sent: int, settled: int, share: Share) -> None:
        """A verb takes several turns, and is stored when it is complete. Until then the client's progress is stored as
        it was before; a broker that crashes must not take the verb as carried out.

        Args:
            client: whose.
            key: its connection and session.
            sent, settled: the session's progress before.
            share: what the verb does.
        """
        self.unstored[key] = sent, settled, share

        def complete() -> None:
            del self.unstored[key]
            self.note_progress(client)

        share.when_complete(complete)

    def note_progress(self, client: ClientT) -> None:
        """Store the client's progress in the next write."""

    @abstractmethod
    def connection_id(self) -> str:
        """A new id, unique over all starts of the broker, without ``.`` and ``:`` (it is part of addresses)."""

    @abstractmethod
    def authenticate(
        self,
        peer: ClientT,
        user: str | None,
        password: str | None,
        later: Callable[[Identity | AuthenticationError, int], None],
    ) -> Identity | None:
        """Authenticate a client.

        Args:
            peer: the client in its handshake.
            user: name of the user.
            password: in clear.
            later: called with the result and the time, if the check takes a while; in the same thread.

        Returns:
            None if that takes a while.

        Raises:
            AuthenticationError: the credentials are not accepted.
        """

    def place(
        self, peer: ClientT, namespace: str, instead: str, later: Callable[[str | SieveError, int], None]
    ) -> str | None:
        """Find the namespace of a client that has signed in.

        Args:
            namespace: the name; "" if only the other one will do.
            instead: is meant if there is a namespace of this name.
            later: called with the result and the time, if it takes a while to find out whether another broker has the
                namespace; in the same thread.

        Returns:
            The one of them that is meant, which may not be there yet. None if that takes a while.

        Raises:
            SieveError: it cannot be entered here; REDIRECT if another broker has it.
        """
        broker = self.broker
        return instead if instead and broker is not None and instead in broker.namespaces else namespace

    def not_entitled(self, peer: ClientT, user: str | None) -> None:  # may do nothing
        """A user's credentials are right, and it has no right in the namespace. It may be counted."""

    def scram(self, peer: ClientT) -> SignIn | None:
        """A sign-in by SCRAM-SHA-256; None if that is not available."""
        return None

    @abstractmethod
    def now(self) -> int:
        """Milliseconds since 1970, the clock's offset included: the same clock that `now` arguments come from."""

    @abstractmethod
    def report(self, peer: ClientT, doing: str, error: BaseException) -> None:
        """An error of the broker itself ended a connection. Log it with its traceback.

        Args:
            peer: the one that ends; all others go on.
            doing: what was being done, for people.
            error: the exception.
        """

    def advise(self, peer: ClientT, destination: str, selector: CompiledSelector) -> None:  # may do nothing
        """A consumer was opened whose selector is legal and probably not intended. It may be logged.

        Args:
            peer: whose consumer it is.
            destination: the address.
            selector: with warnings.
        """

    def drop_replies(self, peer: ClientT, destination: str, messages: int) -> None:
        """A client has sent messages to a temporary destination that is gone, and they were dropped. It may be logged.

        Args:
            peer: the client.
            destination: the address.
            messages: how many.
        """
        self.replies_dropped += messages

    @property
    def frozen_at(self) -> int | None:
        """The time at which time stands still (test clocks only): no deadline is reached. None while it runs."""
        return None

    def move_clock(self, offset: int, now: int) -> None:
        """Inform every client that the clock now shows `now` and runs `offset` milliseconds ahead (test clocks
        only)."""
        self.clock_offset = offset
        self.moved_at = now - offset
        for peer in tuple(self.connections.values()):
            peer.clock_moved()

    def flow(self, blocked: str | None) -> None:
        """Accept no sends to any destination, or accept them again.

        Args:
            blocked: for people, which limit is reached; None to go on.
        """
        if blocked == self.blocked:
            return
        self.blocked = blocked
        if self.broker is not None:
            self.broker.set_over(blocked)
        for peer in tuple(self.connections.values()):
            peer.flow_changed()

"""The handlers of the verbs about the connection itself: user, namespace; the clock, and the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from sievemq_broker.session.checks import pairs
from sievemq_broker.session.life import CLOSING
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Identity
from sievemq_broker.session.settings import AuthenticationError
from sievemq_broker.session.verbs import ClockSeen, Goodbye, Heartbeat, Hello, Ping, SetClientId, Welcome
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError, shown

_F = TypeVar("_F")


def on_hello(peer: Peer, command: Hello, now: int) -> None:
    """Authenticate the client. The welcome follows at once, or when the I/O layer has the result.

    Raises:
        ProtocolError: the connection is refused; the code says why.
        AuthenticationError: the credentials are wrong, or there is no right in that namespace.
    """
    peer.life.sign_in()
    hello = command.without_password()  # it is not needed any more

    def later(found: Identity | AuthenticationError, now: int) -> None:
        _go_on(peer, hello, found, partial(_welcome, peer, hello), now)

    identity = peer.services.authenticate(peer, command.user, command.password, later)
    if identity is not None:
        _welcome(peer, hello, identity, now)


def _go_on(peer: Peer, hello: Hello, found: _F | SieveError, act: Callable[[_F, int], None], now: int) -> None:
    """Something was found out that took a while. Never raises: no command of the client is being carried out."""
    if peer.life.state >= CLOSING:
        return
    try:
        if isinstance(found, SieveError):
            raise found
        act(found, now)
    except SieveError as error:
        peer.fail(error, now)
    except Exception as error:  # the broker's own fault: other connections must go on
        peer.crash(hello, error, now)
    peer.out.wake()


def _welcome(peer: Peer, hello: Hello, identity: Identity, now: int) -> None:
    """Welcome an authenticated user.

    Raises:
        ProtocolError, AuthenticationError: as :func:`on_hello`.
    """
    services, member = peer.services, peer.member

    def later(found: str | SieveError, now: int) -> None:
        _go_on(peer, hello, found, partial(_enter, peer, hello, identity), now)

    with _fatal():
        try:
            name, instead = member.asks_for(identity, hello)
        except AuthenticationError:
            services.not_entitled(peer, identity.user)
            raise
        namespace = services.place(peer, name, instead, later)
    if namespace is None:
        member.entitle(identity)  # if the user changes meanwhile, the client has to sign in again
    else:
        _enter(peer, hello, identity, namespace, now)


def _enter(peer: Peer, hello: Hello, identity: Identity, namespace: str, now: int) -> None:
    """The namespace is here."""
    with _fatal():
        try:
            peer.enter(identity, hello, namespace)
        except AuthenticationError:
            peer.services.not_entitled(peer, identity.user)
            raise
    _begin(peer, hello, now)


def _begin(peer: Peer, hello: Hello, now: int) -> None:
    """Complete the handshake, once the connections whose id and client id it takes have returned their messages."""
    client_id, resume = hello.client_id, hello.resume
    again = partial(_begin, peer, hello)
    if resume is not None:
        with _fatal():
            peer.end_lost(resume, now)
        if peer.agenda.wait_for_return(resume.connection, hello, again):
            return
    if client_id is not None and peer.agenda.wait_for_return(peer.namespace.client_ids.holder(client_id), hello, again):
        return
    space, memory = peer.namespace, None
    if peer.broker.namespaces.get(space.name) is not space:  # it was deleted meanwhile
        _welcome(peer, hello, peer.member.identity, now)
        return
    with _fatal():
        if resume is None:
            peer.member.begin()
        else:
            memory = peer.take_place(resume, now)
            peer.owe(*peer.services.unstored_of(peer.member.id))  # it learns what was carried out
        if client_id is not None:
            peer.member.claim_client_id(client_id)
    services = peer.services
    services.connections[peer.member.id] = peer
    peer.out.welcome(
        Welcome(
            connection=peer.member.id,
            now=now,
            clock_offset=services.clock_offset,
            frozen_at=services.frozen_at,
            moved_at=services.moved_at,
            subscriptions=peer.broker.settings.max_subscriptions,
            resumed=memory,
        )
    )
    peer.welcomed()


@contextmanager
def _fatal() -> Iterator[None]:
    """Make an error fatal: any error of a sign-in ends the connection, since there is no request to refuse."""
    try:
        yield
    except AuthenticationError:
        raise
    except SieveError as error:
        raise ProtocolError(error.text, error.code, error.details) from error


def on_heartbeat(peer: Peer, command: Heartbeat, now: int) -> None:
    """Do nothing: receiving it was enough."""


def on_set_client_id(peer: Peer, command: SetClientId, now: int) -> None:
    """Claim a client id; one live connection holds it (CON-05, SUB-31). One that has left holds it
    until it has returned its messages. A refused claim leaves none (CON-10)."""
    if peer.member.client_id is not None:
        raise RequestError(
            f"this connection has the client id {peer.member.client_id!r} already (CON-07)", ErrorCode.ILLEGAL_STATE
        )
    holder = peer.namespace.client_ids.holder(command.client_id)
    if peer.agenda.wait_for_return(holder, command, partial(on_set_client_id, peer, command)):
        return
    peer.member.claim_client_id(command.client_id)
    peer.introduce()
    peer.out.answer(command.request)


def on_goodbye(peer: Peer, command: Goodbye, now: int) -> None:
    """Close everything in order, answer, end (CLO-02)."""
    if any(peer.wait_for_commit(session, command, on_goodbye) for session in peer.sessions.values()):
        return  # earlier commands are answered first
    if not peer.wait_for_delivery(peer.sessions.values(), command, on_goodbye, now):
        peer.leave(now, pairs(command.handed), command.request)


def on_ping(peer: Peer, command: Ping, now: int) -> None:
    """Answered after everything before it, by the time of the machine."""
    peer.flush_confirms()
    peer.out.answer(command.request, now - peer.services.clock_offset)


def on_clock_seen(peer: Peer, command: ClockSeen, now: int) -> None:
    """Times in envelopes from here on include this offset (test clocks only)."""
    offset = command.offset
    if type(offset) is not int:
        raise ProtocolError(f"CLOCK_SEEN.offset must be an integer, not {shown(offset)}")
    peer.see_clock(offset, True)

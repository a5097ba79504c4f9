"""Handlers of the commands about taps and staged sends.

A tap that copies shows messages and takes none away, so it needs the right to browse; one that drains, the right to
consume. A tap belongs to its maker: another user who uses or deletes it must be allowed to manage the destination,
for it could make that one miss messages. A destination that is not there is made only for who might also have it made
by sending or consuming. Staged sends were allowed one by one when they were sent, and are checked
again when they are published: a lease may be a day, and rights can be taken away meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.publishing import Sends, Weighing
from sievemq_broker.domain.tap import CopyTap, DrainTap
from sievemq_broker.domain.work import TURN
from sievemq_broker.session.checks import check_unread, require_there, the_selector
from sievemq_broker.session.life import CLOSING
from sievemq_broker.session.peer import Peer
from sievemq_broker.session.rights import Identity, Verb
from sievemq_broker.session.settings import SessionSettings
from sievemq_broker.session.verbs import AcknowledgeTap, DeleteTap, Discard, FetchTap, LookTap, OpenTap, Publish, Stage
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, shown
from sievemq_core.limits import MAX_ARRAY
from sievemq_core.message.destination import parse_address

#: Messages and bytes of one FETCH_TAP: a few milliseconds of a turn.
FETCH_MESSAGES = 2_000
FETCH_BYTES = 1024 * 1024


def on_open_tap(peer: Peer, command: OpenTap, now: int) -> None:
    """Open or create a tap. Selector and rights are verified before anything is created."""
    name, destination, mode, options = command.tap, command.destination, command.mode, command.options
    identity, namespace = peer.member.identity, peer.namespace
    allow_open(identity, namespace, name, destination, mode)
    compiled = the_selector(command.selector, command.dialect, peer.settings.dialect)
    this = peer.member.id, command.request
    maker = maker_of(peer.settings, now)
    tap = namespace.taps.open(maker, name, destination, mode, compiled, options, now, identity.user, this)
    reader = options.get("reader")
    if type(reader) is str:
        tap.take_claim(reader, peer.member.id, peer.services.connections)
    tap.read_by(this)
    peer.owe_all()
    peer.out.answer(command.request, {"made": tap.origin.is_request(this), **_state(tap)})


def on_look_tap(peer: Peer, command: LookTap, now: int) -> None:
    """The sequence up to which the reader may read; a drain tap takes what is needed from its queue."""
    if peer.wait_for_publishing(command, on_look_tap):
        return
    tap = _the_tap(peer, command)
    upto, more = tap.look(command.after, command.messages, command.bytes, now)
    peer.out.answer(command.request, {**_state(tap), "upto": upto, "more": more})


def on_fetch_tap(peer: Peer, command: FetchTap, now: int) -> None:
    """A page of messages."""
    if peer.wait_for_publishing(command, on_fetch_tap):
        return
    check_unread(peer.out.unread, "fetching")
    tap = _the_tap(peer, command)
    limit = max(1, min(command.limit, FETCH_MESSAGES))
    found = tap.fetch(command.id, command.after, command.upto, limit, FETCH_BYTES, now)
    first = max(command.after + 1, tap.log.first)
    peer.owe_all()  # after a crash other records would have the sequences of those that are not stored
    peer.out.answer_tapped(command.request, first, found)


def on_acknowledge_tap(peer: Peer, command: AcknowledgeTap, now: int) -> None:
    """The reader has processed everything up to a sequence."""
    tap = _the_tap(peer, command)
    tap.acknowledge(command.id, command.upto, now)
    peer.owe_all()  # a repeated one changes nothing, and the first may not be stored yet
    peer.out.answer(command.request, _state(tap))


def on_delete_tap(peer: Peer, command: DeleteTap, now: int) -> None:
    """Delete a tap."""
    if command.made_by:
        known = peer.namespace.taps.get(command.tap, command.destination)
        if known is None or not known.origin.is_request((peer.member.id, command.made_by)):
            peer.out.answer(command.request, False)
            return
    try:
        tap = _the_tap(peer, command)
    except RequestError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        peer.out.answer(command.request, False)
        return
    if tap.lag <= TURN:
        peer.namespace.taps.drop(tap, now)
        peer.out.answer(command.request, True)
    else:
        job = peer.broker.scheduler.start(tap, tap.empty, now, later=True)
        job.then(partial(peer.when_over, job, command, partial(_emptied, peer, tap, command.request)))


def _emptied(peer: Peer, tap: CopyTap | DrainTap, request: int, now: int) -> None:
    """A tap with many messages has few left."""
    if tap.open:
        peer.namespace.taps.drop(tap, now)
    peer.out.answer(request, True)


def on_stage(peer: Peer, command: Stage, now: int) -> None:
    """Stage a session's sends until a publisher, on any connection, publishes them."""
    session = peer.session(command.session)
    transaction = session.transaction
    if transaction is None:
        raise RequestError("only a transacted session can stage its sends", ErrorCode.ILLEGAL_STATE)
    if peer.wait_for_commit(session, command, on_stage):
        return
    peer.confirm(session, session.sent)
    doom = transaction.doom
    sends = transaction.staged
    transaction.hand_over()
    if doom is not None:
        raise RequestError(
            f"nothing was staged: {doom.text}",
            ErrorCode.TRANSACTION_ROLLED_BACK,
            {**doom.details, "code": int(doom.code)},
        )
    stages = peer.namespace.stages
    maker, owner = maker_of(peer.settings, now), peer.member.identity.user
    stage = stages.stage(maker, command.key, command.batch, sends, owner=owner, lease=command.lease, now=now)
    peer.out.answer(command.request, stage)


def on_publish(peer: Peer, command: Publish, now: int) -> None:
    """Publish all that is staged for a batch, once. A large batch takes several turns, and is answered when it is
    visible."""
    names = command.stages
    if peer.wait_for_publishing(command, on_publish):
        return
    if type(names) is not tuple or len(names) > MAX_ARRAY or not {str}.issuperset(map(type, names)):
        raise ProtocolError(f"PUBLISH.stages must be an array of names, not {shown(names)}")
    sends = peer.namespace.stages.staged(command.key, command.batch, names, owner=peer.member.identity.user)
    weighed = peer.namespace.weighing(sends, peer.member.id)
    examining = peer.namespace.examining(sends, weighed) if sends else None
    publish = partial(_publish, sends=sends, weighed=weighed)
    if examining is None:
        publish(peer, command, now)
    else:
        peer.agenda.examine(examining, command, partial(publish, peer, command), now)


def _publish(
    peer: Peer,
    command: Publish,
    now: int,
    sends: Sends,
    weighed: Mapping[str, Weighing],
) -> None:
    """The rest of a PUBLISH, once the selectors for its messages are evaluated."""
    if peer.wait_for_publishing(command, on_publish, first=True):
        return
    stages = peer.namespace.stages
    identity, namespace = peer.member.identity, peer.namespace.name

    def allow_to(address: str) -> None:
        identity.require(Verb.SEND, namespace, address)

    def complete(now: int) -> None:
        if peer.life.state >= CLOSING:
            return
        assert publishing is not None
        if publishing.error is not None:
            peer.crash(command, publishing.error, now)
        else:
            peer.out.answer(command.request, sent)
        peer.late_output()

    sent = stages.publish(
        command.key,
        command.batch,
        command.stages,
        owner=identity.user,
        now=now,
        connection=peer.member.id,
        allow=None if identity.rights.unlimited else allow_to,
        sends=sends,
        weighed=weighed,
    )
    publishing = peer.namespace.publishing
    if publishing is None:
        peer.owe()  # it may have been published before
        peer.out.answer(command.request, sent)
    else:
        publishing.then(complete)


def on_discard(peer: Peer, command: Discard, now: int) -> None:
    """Discard what was staged for a batch."""
    stages, owner = peer.namespace.stages, peer.member.identity.user
    peer.out.answer(command.request, stages.discard(command.key, command.batch, owner=owner, name=command.stage))


def maker_of(settings: SessionSettings, now: int) -> str:
    """The beginning of names that no broker assigns twice. A connection's id would not do: a reconnecting client keeps
    its id, even with a restarted broker."""
    return f"{settings.incarnation or 'tap'}-{now:x}"


def allow_open(identity: Identity, namespace: Namespace, name: str, destination: str, mode: str) -> None:
    """Raise unless a user may create this tap, or open it.

    Raises:
        AddressError: the destination is none.
        RequestError: SECURITY.
    """
    _allow(identity, namespace.name, mode, destination)
    require_there(identity, namespace, destination)
    known = namespace.taps.get(name, destination)
    if known is not None:
        _allow_this(identity, known)


def allow(identity: Identity, tap: CopyTap | DrainTap) -> None:
    """Raise unless a user may read, acknowledge and delete a tap.

    Raises:
        RequestError: SECURITY.
    """
    _allow(identity, tap.destination.place.namespace, tap.mode, tap.destination.label)
    _allow_this(identity, tap)


def _the_tap(peer: Peer, command: LookTap | FetchTap | AcknowledgeTap | DeleteTap) -> CopyTap | DrainTap:
    tap = peer.namespace.taps.find(command.tap, command.destination)
    allow(peer.member.identity, tap)
    tap.read_by((peer.member.id, command.request))
    return tap


def _allow_this(identity: Identity, tap: CopyTap | DrainTap) -> None:
    if tap.owner != identity.user:
        try:
            identity.require(Verb.MANAGE, tap.destination.place.namespace, tap.destination.label)
        except RequestError as error:
            said = f"the tap {tap.name!r} is another user's, and {error.text}; or choose another name for yours"
            raise RequestError(said, error.code, error.details) from None


def _allow(identity: Identity, namespace: str, mode: str, destination: str) -> None:
    verb = Verb.CONSUME if mode == "drain" else Verb.BROWSE
    identity.require(verb, namespace, str(parse_address(destination)))


def _state(tap: CopyTap | DrainTap) -> dict[str, Any]:
    return {
        "id": tap.id,
        "mode": tap.mode,
        "first": tap.log.first,
        "last": tap.log.last,
        "acknowledged": tap.acknowledged,
        "lost": tap.lost,
        "missed": tap.missed,
        "bytes": tap.held_bytes,
    }

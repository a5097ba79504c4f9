"""Sends that are carried out one by one, and what becomes of each; a COMMIT that waits for room.

A send is accepted, refused, told to wait for room, or accepted and delivered in slices. :class:`Send` handles all four,
for a message that has just arrived and for one that has waited.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sievemq_broker.domain.admission import Limited
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.temporaries import GoneError
from sievemq_broker.domain.work import Job
from sievemq_broker.session.peer import Handler, Peer
from sievemq_broker.session.session import Session
from sievemq_broker.session.verbs import Commit
from sievemq_broker.session.waiting import BlockedSender
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import Command

_SEND: Final[CommandTuple] = (int(Command.SEND),)


class Send:
    """A session's next send: its destination has limits, costly selectors or very many subscriptions, or is new.

    Args:
        peer: the client.
        session: whose next send it is.
        address: the destination.
        envelope: the message.
        urgent: the client may wait for the confirm.
    """

    __slots__ = ("_address", "_envelope", "_peer", "_session", "_urgent")

    def __init__(self, peer: Peer, session: Session, address: str, envelope: Envelope, urgent: bool) -> None:
        self._peer = peer
        self._session = session
        self._address = address
        self._envelope = envelope
        self._urgent = urgent

    def begin(self, now: int) -> None:
        """Evaluate the selectors that may take long, then try to send."""
        sends = Sends([(self._address, self._envelope)])
        examining = self._peer.namespace.examining(sends)
        if examining is None:
            self._attempt(now)
        else:
            size = len(self._envelope.packed)
            self._peer.agenda.examine(examining, _SEND, partial(self._examined, sends), now, size)

    def _examined(self, sends: Sends, now: int) -> None:
        [(_, self._envelope)] = sends  # with the administrator's values
        self._attempt(now)

    def _attempt(self, now: int) -> None:
        """Send the message. Counted as sent when the broker has it: from then on it is sent, even if the connection is
        lost."""
        peer, session = self._peer, self._session
        before = peer.broker.fan_out
        try:
            full = peer.namespace.send(self._address, self._envelope, now, peer.member.id, waited=session.send_waits)
        except SieveError as error:
            refuse(peer, session, error, self._address)
            return
        fan_out = peer.broker.fan_out
        if full is not None:
            self._wait(full)
        elif fan_out is None or fan_out is before:
            session.count_next()
            self._accepted(now)
        else:
            peer.flush_confirms()  # of earlier sends: this one takes some turns
            if fan_out.share is not None:
                key = peer.member.id, session.id
                peer.services.begin_storing(peer, key, session.sent, session.settled, fan_out.share)
            session.count_next()
            self._deliver(fan_out, now)

    def _wait(self, full: list[Limited]) -> None:
        """There is no room for it."""
        peer, session = self._peer, self._session
        if session.blocked_sender is not None:
            session.blocked_sender.wait_in(full)
            return
        peer.confirm(session, session.sent)
        sender = BlockedSender(peer.broker.rooms, full, peer.services.now(), self._retry, envelope=self._envelope)
        session.wait(sender)
        peer.out.flow(True, sender.text, session.id, session.sent + 1, self._address)

    def _retry(self, now: int) -> None:
        """There is room again. Never raises."""
        if self._session.blocked_sender is None:
            return
        try:
            self._attempt(now)
        except Exception as error:  # the broker's own fault: other connections must go on
            self._crash(error, now)

    def _deliver(self, fan_out: Job[None], now: int) -> None:
        sender = self._session.blocked_sender
        if sender is None:
            self._peer.agenda.go_on_after(fan_out, _SEND, self._accepted, now)
        else:
            sender.deliver(fan_out, partial(self._delivered, fan_out))

    def _delivered(self, fan_out: Job[None], now: int) -> None:
        if fan_out.error is None:
            self._accepted(now)
        else:
            self._crash(fan_out.error, now)

    def _accepted(self, now: int) -> None:
        """Confirm it. If it has waited, its client sends those behind it again."""
        peer, session = self._peer, self._session
        if session.blocked_sender is None:
            peer.took(session, 0, self._urgent or peer.broker.journal is not None)  # its rule may have stored it
        else:
            session.end_wait()
            peer.confirm(session, session.sent)
            _resume(peer, session)
        if peer.watcher is not None:
            peer.watcher.sent(peer, self._address, [self._envelope], now)

    def _crash(self, error: Exception, now: int) -> None:
        self._peer.crash(_SEND, error, now)
        self._peer.late_output()


def refuse(peer: Peer, session: Session, error: SieveError, address: str = "", reason: str = "") -> None:
    """Refuse the session's next send, which may wait for room; earlier ones are confirmed first.

    Args:
        address: where it was sent to, if that is known.
        reason: for the counts of refused sends; what the error says if not given.
    """
    waited = session.send_waits
    session.count_next()
    if waited:
        session.end_wait()
    sequence = session.sent
    if peer.watcher is not None:
        peer.watcher.refused(peer, session, sequence, error)
    if isinstance(error, GoneError) and peer.out.drops_replies:
        peer.services.drop_replies(peer, str(error.details["destination"]), 1)
        peer.confirm(session, sequence)
    else:
        peer.count_refusal(error, address, reason)
        peer.confirm(session, sequence - 1)
        session.refuse(sequence, error, peer.settings.window_messages if peer.member.keep else 0)
        peer.out.refuse_send(session.id, sequence, error)
    if waited:
        _resume(peer, session)


def _resume(peer: Peer, session: Session) -> None:
    """Ask the client for the messages behind the send that waited."""
    peer.out.flow(False, "", session.id, session.again)
    peer.late_output()


def wait_to_commit(
    peer: Peer, session: Session, full: list[Limited], command: Commit, handler: Handler
) -> None:  # fmt: skip
    """The session's COMMIT, with all staged messages, waits for room."""
    sender = session.blocked_sender
    if sender is not None:
        sender.wait_in(full)
        return
    retry = partial(peer.carry_out_late, command, handler)
    sender = BlockedSender(
        peer.broker.rooms, full, peer.services.now(), retry, transaction=session.transaction, request=command.request
    )
    session.wait(sender)
    peer.out.flow(True, sender.text, session.id, 0, getattr(full[0], "label", None) if len(full) == 1 else None)


def end_commit_wait(peer: Peer, session: Session) -> None:
    """The COMMIT was carried out, or refused: if it has waited, its answer informs the client."""
    if session.blocked_sender is not None:
        session.end_wait()
        peer.out.flow(False, "", session.id)
        peer.late_output()

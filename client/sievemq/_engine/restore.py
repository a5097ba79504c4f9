"""What a client says on a connection that takes the place of a lost one, so that the application need not know (D-32).

All of it is said in one go behind WELCOME, in this order: sessions; temporary destinations, where the broker has
forgotten them; rollbacks; sends that are unconfirmed and did not arrive; consumers; requests that had no answer. A
COMMIT or ACKNOWLEDGE_ALL that may have been carried out is not said again: WELCOME tells whether it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sievemq._engine.answers import check_resumed
from sievemq._engine.completion import Completion
from sievemq.exceptions import JMSException, TransactionRolledBackException
from sievemq_core.wire.commands import Command

if TYPE_CHECKING:
    from sievemq._engine.connection import ClientConnection
    from sievemq._engine.consumer import EngineConsumer
    from sievemq._engine.session import EngineSession

__all__ = ["MAX_HANDED", "restore", "resume_options"]

#: Requests after which the broker has taken back what it delivered, and all credit.
_RECOVERING: Final = frozenset({Command.RECOVER, Command.ROLLBACK})
#: What WELCOME tells of a session: the last of its sends that arrived, its last request that was carried out.
Progress: TypeAlias = Mapping[int, tuple[int, int]]

#: Consumers of which a HELLO can tell what the application has seen: a HELLO is small. Of further ones everything
#: counts as seen.
MAX_HANDED: Final = 1_000


def resume_options(connection: ClientConnection) -> dict[str, object]:
    """The options of a HELLO that takes the place of a lost connection."""
    done: list[int] = []
    for session in connection.sessions.values():
        if session.acknowledges_itself:
            for consumer in islice(session.consumers.values(), MAX_HANDED - len(done) // 2):
                if consumer.done:
                    done += (consumer.id, consumer.done)
    return {"handed": tuple(connection.handed_when_lost), "done": tuple(done), "ids": connection.last_ids}


def restore(connection: ClientConnection, resumed: object, renewed: bool) -> list[Completion[Any]]:
    """Say everything; what is said from here on comes behind it.

    Args:
        connection: WELCOME has just arrived.
        resumed: what it says under that name: False, or what the broker remembers.
        renewed: it is another incarnation than the one that was lost.

    Returns:
        The answers that are awaited until everything that was open is open again.

    Raises:
        ProtocolError: what it remembers is not in form; nothing has been said.
    """
    memory: Mapping[str, Any] = resumed if isinstance(resumed, dict) else {}
    check_resumed(memory)
    known: Progress = {number: (sent, settled) for number, sent, settled, *_ in memory.get("sessions", ())}
    for number, sequence, code, text, *_ in memory.get("refused", ()):
        session = connection.sessions.get(number)
        if session is not None and sequence > session.sends.confirmed:
            session.sends.failed(sequence, code, text)
    _settle_doubtful(connection, known, renewed and not connection.features.get("durable"))

    # A sender that runs meanwhile adds to its session's unconfirmed sends first, then to the outbox: so it is said
    # once, or twice with one number, which the broker passes over.
    connection.outbox.clear()
    connection.outbox_bytes = 0
    pending = dict(connection.requests.pending)
    opening = {
        command[:1] + command[2:3] if command[0] == Command.OPEN_SESSION else command[:1] + command[3:4]: number
        for number, (_, command) in pending.items()
        if command[0] in _OPENING
    }
    answers: list[Completion[Any]] = []
    arrived = {
        session: _open_session(connection, session, known, opening, answers)
        for session in tuple(connection.sessions.values())
    }
    if not memory.get("temporaries", bool(memory)):
        answers += [_create_again(connection, *temporary) for temporary in tuple(connection.temporaries.items())]
    for number, (_, command) in pending.items():
        if command[0] in _RECOVERING:  # sends that came before are forgotten already
            connection.say(command[0], *command[2:], number=number)
    for session, count in arrived.items():
        for packed in islice(_snapshot(session.sends.unconfirmed), count, None):
            connection.wire.send_packed(packed)
            connection.hurry()  # something may have waited for its confirm
    answers += [_open_consumer(connection, consumer, opening) for consumer in tuple(connection.consumers.values())]
    for number, (_, command) in pending.items():
        if command[0] not in _OPENING and command[0] not in _RECOVERING:
            connection.say(command[0], *command[2:], number=number)
    return answers


def _snapshot(unconfirmed: deque[bytes]) -> tuple[bytes, ...]:
    while True:
        try:
            return tuple(unconfirmed)
        except RuntimeError:  # a sender has just added one
            continue


def _settle_doubtful(connection: ClientConnection, known: Progress, forgotten: bool) -> None:
    """Those requests that had been said when the connection was lost, and of which it matters."""
    for number in connection.requests.doubtful:
        entry = connection.requests.pending.pop(number, None)
        if entry is None:
            continue
        completion, command = entry
        progress = known.get(command[2])
        if progress is not None and progress[1] == number:
            completion.succeed(None)
        elif command[0] == Command.ACKNOWLEDGE_ALL:
            completion.fail(JMSException(_RETURNED, "CONNECTION_LOST", connection.cause))
        elif progress is not None or forgotten:  # an open transaction ends with its connection (TXN-05, TXN-09)
            completion.fail(TransactionRolledBackException(_ROLLED_BACK, "TRANSACTION_ROLLED_BACK", connection.cause))
        else:
            completion.fail(JMSException(_UNKNOWN, "CONNECTION_LOST", connection.cause))
    connection.requests.doubtful.clear()


def _open_session(
    connection: ClientConnection,
    session: EngineSession,
    known: Progress,
    opening: Mapping[tuple[int, int], int],
    answers: list[Completion[Any]],
) -> int:
    """Open a session again; how many of its unconfirmed sends had arrived."""

    def opened(answer: Completion[Any]) -> None:
        if answer.error is not None:
            connection.give_up(answer.error)

    arrived, sends = 0, session.sends
    if not session.transacted and session.id in known:  # what a transacted one had sent was rolled back
        arrived = min(max(0, known[session.id][0] - sends.confirmed), len(sends.unconfirmed))
    number = opening.get((Command.OPEN_SESSION, session.id))
    answer = connection.say(Command.OPEN_SESSION, session.id, session.mode, sends.confirmed + arrived, number=number)
    if number is None:
        answer.add_callback(opened)
    answers.append(answer)
    return arrived


def _create_again(connection: ClientConnection, address: str, topic: bool) -> Completion[Any]:
    def created(answer: Completion[Any]) -> None:
        if answer.error is not None and connection.usable:
            connection.temporaries.pop(address, None)
            connection.report(answer.error)

    answer = connection.say(Command.CREATE_TEMPORARY, topic, address)
    answer.add_callback(created)
    return answer


def _open_consumer(
    connection: ClientConnection, consumer: EngineConsumer, opening: Mapping[tuple[int, int], int]
) -> Completion[Any]:
    def opened(answer: Completion[Any]) -> None:
        if answer.error is not None and connection.usable:
            consumer.session.consumer_is_gone(consumer, answer.error)
            connection.report(answer.error)

    number = opening.get((Command.OPEN_CONSUMER, consumer.id))
    credit = 0 if consumer.shut or not connection.started else consumer.window.size
    consumer.begin_again(credit)
    answer = connection.say(Command.OPEN_CONSUMER, *consumer.fields(credit), number=number)
    if number is None:
        answer.add_callback(opened)
    connection.heed_deliveries(consumer)
    return answer


_OPENING: Final = frozenset({Command.OPEN_SESSION, Command.OPEN_CONSUMER})
_RETURNED: Final = (
    "the connection was lost before the acknowledgement was carried out: the messages come again, marked as redelivered"
)
_ROLLED_BACK: Final = "the connection was lost before the commit was carried out: the transaction was rolled back"
_UNKNOWN: Final = (
    "the connection was lost while the commit was on its way, and the broker does not remember it any more: whether it "
    "was carried out is not known"
)

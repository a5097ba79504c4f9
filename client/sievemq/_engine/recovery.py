"""What a client sends on a connection that replaces a lost one, so that the application need not know (D-32).

All of it is sent in one go behind WELCOME, in this order: sessions; temporary destinations, where the broker has
forgotten them; rollbacks; sends that are unconfirmed and did not arrive; consumers; requests that had no answer. A
COMMIT or ACKNOWLEDGE_ALL that may have been carried out is not sent again: WELCOME shows whether it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from sievemq._engine.answers import check_resumed
from sievemq._engine.consumer import EngineConsumer
from sievemq._engine.deliveries import Deliveries
from sievemq._engine.outbox import Completion, Outbox
from sievemq._engine.session import EngineSession
from sievemq._engine.terms import Terms
from sievemq.exceptions import JMSException, TransactionRolledBackException
from sievemq_core.wire.commands import Command

#: Requests after which the broker has taken back what it delivered, and all credit.
_RECOVERING: Final = frozenset({Command.RECOVER, Command.ROLLBACK})
#: A session in WELCOME: its last send that arrived, its last request that was carried out.
Progress: TypeAlias = Mapping[int, tuple[int, int]]

#: Consumers of which a HELLO can tell what the application has seen: a HELLO is small. Of further ones everything
#: counts as seen.
_MAX_HANDED: Final = 1_000


class Recovery:
    """Freezes the open sessions and consumers of a lost connection, and opens them again.

    Args:
        give_up: called where a session cannot be opened again: the connection is lost beyond repair.
    """

    __slots__ = ("_deliveries", "_give_up", "_handed", "_outbox", "_sessions", "_temporaries", "_terms")

    def __init__(
        self,
        outbox: Outbox,
        terms: Terms,
        deliveries: Deliveries,
        sessions: dict[int, EngineSession],
        temporaries: dict[str, bool],
        give_up: Callable[[Exception], None],
    ) -> None:
        self._outbox = outbox
        self._terms = terms
        self._deliveries = deliveries
        self._sessions = sessions
        self._temporaries = temporaries
        self._give_up = give_up
        #: Pairs of consumer and last tag that the application may have seen, from the last loss.
        self._handed: list[int] = []

    def freeze(self) -> None:
        """The connection is lost: nothing is delivered until it is restored; commands wait."""
        outbox = self._outbox
        handed: list[int] = []
        for consumer in self._deliveries.consumers.values():
            if not consumer.opened.done:  # what it got has not arrived
                handed += (consumer.id, 0)
        outbox.hold()
        self._deliveries.routes.clear()
        for session in tuple(self._sessions.values()):
            for pair in session.freeze():
                handed += pair
        self._handed = handed[: 2 * _MAX_HANDED]

    def options(self, last_session: int) -> dict[str, object]:
        """The options of a HELLO that takes the place of a lost connection."""
        done: list[int] = []
        failed: list[int] = []
        for session in self._sessions.values():
            for consumer in islice(session.consumers.values(), _MAX_HANDED - max(len(done) // 2, len(failed) // 3)):
                acknowledged = consumer.done
                if consumer.failed_behind is not None:
                    acknowledged = consumer.failed_behind
                    failed += (consumer.id, acknowledged, consumer.handed)
                if acknowledged and session.acknowledges_itself:
                    done += (consumer.id, acknowledged)
        handed = list(self._handed)
        room = _MAX_HANDED - max(len(done), len(handed)) // 2
        for number, (seen, acknowledged) in islice(reversed(self._deliveries.closed.items()), room):
            handed += (number, seen)
            done += (number, acknowledged)
        ids = last_session, self._deliveries.last_id
        return {"handed": tuple(handed), "done": tuple(done), "failed": tuple(failed), "ids": ids}

    def restore(self, resumed: object, renewed: bool) -> list[Completion[Any]]:
        """Send everything; later commands follow it. WELCOME has just arrived.

        Args:
            resumed: what it carries under that name: False, or what the broker remembers.
            renewed: it is another incarnation than the one that was lost.

        Returns:
            The answers that are awaited until everything that was open is open again.

        Raises:
            ProtocolError: the progress in it has another form; nothing was sent.
        """
        outbox, requests = self._outbox, self._outbox.requests
        memory: Mapping[str, Any] = resumed if isinstance(resumed, dict) else {}
        check_resumed(memory)
        known: Progress = {number: (sent, settled) for number, sent, settled, *_ in memory.get("sessions", ())}
        for number, sequence, code, text, *_ in memory.get("refused", ()):
            refused = self._sessions.get(number)
            if refused is not None and sequence > refused.sends.confirmed:
                refused.sends.failed(sequence, code, text)
        self._settle_doubtful(known, renewed and not self._terms.features.get("durable"))

        # A sender that runs meanwhile adds to its session's unconfirmed sends first, then to the outbox: so it is sent
        # once, or twice with one number, which the broker passes over.
        outbox.clear()
        pending = dict(requests.pending)
        opening = {
            command[:1] + command[2:3] if command[0] == Command.OPEN_SESSION else command[:1] + command[3:4]: number
            for number, (_, command) in pending.items()
            if command[0] in _OPENING
        }
        answers: list[Completion[Any]] = []
        arrived = {
            session: self._open_session(session, known, opening, answers) for session in tuple(self._sessions.values())
        }
        if not memory.get("temporaries", bool(memory)):
            answers += [self._create_again(*temporary) for temporary in tuple(self._temporaries.items())]
        for number, (_, command) in pending.items():
            if command[0] in _RECOVERING:  # sends that came before are forgotten already
                outbox.send_first(command[0], *command[2:], number=number)
        later: list[bytes] = []  # sends behind a COMMIT or STAGE that waits
        for session, count in arrived.items():
            sends, covered = session.sends, session.covered
            for sequence, packed in enumerate(_snapshot(sends.unconfirmed)[count:], sends.confirmed + count + 1):
                if covered is None or sequence <= covered:
                    outbox.wire.send_packed(packed)
                else:
                    later.append(packed)
                outbox.hurry()  # something may have waited for its confirm
        answers += [self._open_consumer(consumer, opening) for consumer in tuple(self._deliveries.consumers.values())]
        for number, (_, command) in pending.items():
            if command[0] not in _OPENING and command[0] not in _RECOVERING:
                outbox.send_first(command[0], *command[2:], number=number)
        for packed in later:
            outbox.wire.send_packed(packed)
        return answers

    def _settle_doubtful(self, known: Progress, forgotten: bool) -> None:
        """Settle requests that were sent before the connection was lost, and that must not be repeated blindly."""
        cause = self._outbox.cause
        for number, (completion, command) in self._outbox.requests.take_doubtful():
            progress = known.get(command[2])
            if progress is not None and progress[1] == number:
                completion.succeed(None)
            elif command[0] == Command.ACKNOWLEDGE_ALL:
                completion.fail(JMSException(_RETURNED, "CONNECTION_LOST", cause))
            elif progress is not None or forgotten:  # an open transaction ends with its connection (TXN-05, TXN-09)
                completion.fail(TransactionRolledBackException(_ROLLED_BACK, "TRANSACTION_ROLLED_BACK", cause))
            else:
                completion.fail(JMSException(_UNKNOWN, "CONNECTION_LOST", cause))

    def _open_session(
        self,
        session: EngineSession,
        known: Progress,
        opening: Mapping[tuple[int, int], int],
        answers: list[Completion[Any]],
    ) -> int:
        """Open a session again; how many of its unconfirmed sends had arrived."""

        def opened(answer: Completion[Any]) -> None:
            if answer.error is not None:
                self._give_up(answer.error)

        arrived, sends = 0, session.sends
        if not session.transacted and session.id in known:  # sends of a transacted session were rolled back
            arrived = min(max(0, known[session.id][0] - sends.confirmed), len(sends.unconfirmed))
        number = opening.get((Command.OPEN_SESSION, session.id))
        answer = session.recreate(sends.confirmed + arrived, number)
        if number is None:
            answer.add_callback(opened)
        answers.append(answer)
        return arrived

    def _create_again(self, address: str, topic: bool) -> Completion[Any]:
        def created(answer: Completion[Any]) -> None:
            if answer.error is not None and self._outbox.usable:
                self._temporaries.pop(address, None)
                self._outbox.report(answer.error)

        answer = self._outbox.send_first(Command.CREATE_TEMPORARY, topic, address)
        answer.add_callback(created)
        return answer

    def _open_consumer(self, consumer: EngineConsumer, opening: Mapping[tuple[int, int], int]) -> Completion[Any]:
        def opened(answer: Completion[Any]) -> None:
            if answer.error is not None and self._outbox.usable:
                self.close_consumer(consumer, answer.error)

        number = opening.get((Command.OPEN_CONSUMER, consumer.id))
        answer = consumer.recreate(self._deliveries.started, number)
        if number is None:
            answer.add_callback(opened)
        self._deliveries.stop_ignoring(consumer)
        return answer

    def close_consumer(self, consumer: EngineConsumer, error: Exception) -> None:
        """The broker closed a consumer, or does not open it again."""
        session = self._sessions.get(consumer.session)
        if session is not None:
            session.consumer_is_gone(consumer, error)
        self._outbox.report(error)


def _snapshot(unconfirmed: deque[bytes]) -> tuple[bytes, ...]:
    while True:
        try:
            return tuple(unconfirmed)
        except RuntimeError:  # a sender has just added one
            continue


_OPENING: Final = frozenset({Command.OPEN_SESSION, Command.OPEN_CONSUMER})
_RETURNED: Final = (
    "the connection was lost before the acknowledgement was carried out: the messages are redelivered with "
    "JMSRedelivered set, or have become dead letters meanwhile"
)
_ROLLED_BACK: Final = "the connection was lost before the commit was carried out: the transaction was rolled back"
_UNKNOWN: Final = (
    "the connection was lost while the commit was on its way, and the broker no longer remembers it: its outcome is "
    "unknown"
)

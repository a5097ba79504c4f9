"""The consumers of a connected client, of all its sessions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.session.checks import pairs, undelivered, unknown
from sievemq_broker.session.lost import Returned
from sievemq_broker.session.ports import ClientPort
from sievemq_broker.session.session import Session
from sievemq_core.errors import ErrorCode, ProtocolError

#: Consumers that are resumed in a turn.
_RESUMED: Final = 500


class Deliveries:
    """The consumers of a client, their sessions, and the requests that wait for one of them.

    Attributes:
        consumers: by id. Closed ones stay while they hold messages of their session (ACK-19).
        owners: the session of each.
        retired: the closed ones.
        highest: the highest id that the client has used.
    """

    __slots__ = ("_held_back", "_line", "_out", "_wants", "consumers", "highest", "owners", "retired")

    def __init__(self, out: ClientPort) -> None:
        self._out = out
        self.consumers: dict[int, Consumer] = {}
        self.owners: dict[int, Session] = {}
        self.retired: set[int] = set()
        self.highest = 0
        #: Requests of unanswered WANTs, by consumer.
        self._wants: dict[int, list[int]] = {}
        #: Consumers that the output has held back, those first that have waited longest; and the same without order.
        self._line: deque[int] = deque()
        self._held_back: set[int] = set()

    # -- consumers and their ids --------------------------------------------------------------------------------------

    def claim(self, consumer_id: int) -> None:
        """The client uses this id from now on."""
        self.highest = max(self.highest, consumer_id)

    def check_once_open(self, consumer_id: int) -> None:
        """Skip a command for a consumer that was closed meanwhile; raise for an id that was never opened."""
        if consumer_id > self.highest:
            raise unknown("consumer", consumer_id)

    def add(self, session: Session, consumer: Consumer) -> None:
        session.consumers[consumer.id] = self.consumers[consumer.id] = consumer
        self.owners[consumer.id] = session

    def retire(self, consumer: Consumer) -> None:
        """A consumer was closed: its WANTs are answered. It stays while it holds messages of its session."""
        if self._wants:
            self.want_settled(consumer.id)
        if consumer.unacknowledged:
            self.retired.add(consumer.id)
        else:
            self.forget(consumer.id)

    def forget(self, consumer_id: int) -> None:
        """Drop a closed consumer that holds no messages any more."""
        self.consumers.pop(consumer_id, None)
        self.retired.discard(consumer_id)
        session = self.owners.pop(consumer_id, None)
        if session is not None:
            session.consumers.pop(consumer_id, None)

    def forget_settled(self, session: Session) -> None:
        """Drop the session's closed consumers whose last message is settled."""
        if self.retired:
            for consumer_id, consumer in tuple(session.consumers.items()):
                if consumer_id in self.retired and not consumer.unacknowledged:
                    self.forget(consumer_id)

    def release(self, session: Session) -> None:
        """A session is closed, which closes its consumers."""
        for consumer_id in session.consumers.keys() & self._wants.keys():
            self.want_settled(consumer_id)
        for consumer_id in session.consumers:
            self.consumers.pop(consumer_id, None)
            self.owners.pop(consumer_id, None)
        self.retired.difference_update(session.consumers)

    def clear(self) -> None:
        self.consumers.clear()
        self.owners.clear()
        self.retired.clear()
        self._wants.clear()
        self._line.clear()
        self._held_back.clear()

    # -- what they hold -----------------------------------------------------------------------------------------------

    @property
    def hold_messages(self) -> bool:
        return any(consumer.unacknowledged for consumer in self.consumers.values())

    def returned(self) -> dict[int, Returned]:
        """What goes back of each when the connection is lost."""
        party = self._out.party
        return {
            consumer.id: Returned(consumer.source, [], self.owners[consumer.id].transaction is not None, count, party)
            for consumer in self.consumers.values()
            if (count := consumer.unacknowledged)
        }

    def acknowledge(self, done: Mapping[int, int], now: int) -> None:
        """The client reports, on another connection, up to which tag it has acknowledged each."""
        for consumer_id, tag in done.items():
            consumer = self.consumers.get(consumer_id)
            if consumer is not None and self.owners[consumer_id].transaction is None:
                consumer.acknowledge(min(tag, consumer.tag), now)

    def handed_to(self, session: Session, handed: Sequence[int]) -> dict[int, int]:
        """The pairs of `handed` for consumers of this session that still hold messages. Consumers that are gone are
        skipped: the broker may have closed one while the command was on its way.

        Raises:
            ProtocolError: a consumer of another session or of none, or a tag that was never delivered.
        """
        seen = pairs(handed)
        for consumer_id, tag in tuple(seen.items()):
            consumer = session.consumers.get(consumer_id)
            if consumer is None:
                if consumer_id in self.consumers or consumer_id > self.highest:
                    raise ProtocolError(
                        f"'handed' names consumer {consumer_id}, which is not one of session {session.id}",
                        ErrorCode.UNEXPECTED_COMMAND,
                    )
                del seen[consumer_id]
            elif tag > consumer.tag:
                raise undelivered(consumer_id, tag, consumer.tag)
        return seen

    def hold_back(self, consumer_id: int) -> None:
        """The output accepts nothing for this consumer now."""
        if consumer_id not in self._held_back:
            self._held_back.add(consumer_id)
            self._line.append(consumer_id)

    def resume(self, now: int) -> bool:
        """The output is writable again. One after the other, so that a consumer with a long backlog does not hold up
        those behind it.

        Returns:
            True if it still is, and there are more consumers to resume, in the next turn.
        """
        line, out = self._line, self._out
        for _ in range(min(len(line), _RESUMED)):
            if not out.writable:
                return False
            consumer_id = line.popleft()
            self._held_back.discard(consumer_id)
            consumer = self.consumers.get(consumer_id)
            if consumer is not None:
                consumer.resume(now)
        return out.writable and bool(line)

    # -- callers that wait, and the calls of the domain ---------------------------------------------------------------

    def wants(self, consumer_id: int) -> int:
        return len(self._wants.get(consumer_id, ()))

    def await_settled(self, consumer_id: int, request: int) -> None:
        """Answer a WANT when the domain has settled it."""
        self._wants.setdefault(consumer_id, []).append(request)

    def want_settled(self, consumer_id: int) -> None:
        for request in self._wants.pop(consumer_id, ()):
            self._out.answer(request)

    def settle_wants(self) -> None:
        for consumer_id in tuple(self._wants):
            self.want_settled(consumer_id)

    def consumer_closed(self, consumer_id: int, code: ErrorCode, text: str) -> None:
        self.want_settled(consumer_id)
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            return  # its session is being closed
        self._out.consumer_gone(consumer_id, code, text)
        self.retire(consumer)

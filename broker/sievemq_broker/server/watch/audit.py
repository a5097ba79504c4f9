"""The record of actions: who did what, when, from where, to what, and to how much. Never a body, a selector, a secret.

Two kinds of rows, so that a flood of attempts does not displace what was done:

    actions    what an operator has changed
    attempts   sign-ins, and what was refused. Those that repeat a row within ten minutes are counted in one more row
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from typing import Any, Final, Literal

from sievemq_broker import logs
from sievemq_broker.server.credentials.sign_ins import SIGNED_OUT, Door
from sievemq_broker.server.watch.history import History

#: Rows of each kind that are kept.
ACTIONS: Final = 10_000
ATTEMPTS: Final = 5_000

#: Milliseconds for which attempts that repeat a row are counted; and of how many rows. Others count as one.
REPEATED_MS: Final = 600_000
_MOST_REPEATED: Final = 500

#: What a row has besides time, action, outcome and `via`: the user, and the address that it came from; namespace and
#: address of what it was done to; how many messages, or other things, it changed.
COLUMNS: Final = ("user", "peer", "namespace", "address", "touched")

#: The outcome of an action that was carried out.
DONE: Final = "done"

log = logs.get("audit")


@dataclass(slots=True)
class _Repeats:
    begin: int
    times: int = 0

    def count(self) -> None:
        self.times += 1


class Audit:
    """The record of one broker.

    Args:
        history: where it is kept.
        now: the broker's time, ms since 1970.
    """

    def __init__(self, history: History, now: Callable[[], int]) -> None:
        self._actions = history.rows("actions", ACTIONS)
        self._attempts = history.rows("attempts", ATTEMPTS)
        self._now = now
        #: By what an attempt was, since its row was written.
        self._repeats: dict[tuple[tuple[str, Any], ...], _Repeats] = {}

    @property
    def last(self) -> int:
        """Id of the newest row; 0 if there is none."""
        return max(self._actions.last, self._attempts.last)

    def since(self, after: int) -> Iterator[dict[str, Any]]:
        """Rows with a greater id, oldest first."""
        return merge(self._actions.since(after), self._attempts.since(after), key=_id)

    def before(
        self, below: int | None = None, only: Literal["actions", "attempts"] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Rows with a smaller id, newest first; all without one.

        Args:
            below: the id.
            only: of one kind.
        """
        rows = [kind.before(below) for kind in (self._actions, self._attempts) if only in (None, kind.kind)]
        return merge(*rows, key=_id, reverse=True)

    def record(self, action: str, *, via: str, outcome: str = DONE, **about: Any) -> None:
        """Record an action that was carried out.

        Args:
            action: its name; that of the operation for calls of the management API.
            via: how it came: `http`, `console`, `cli`, `signal`, `file`.
            outcome: `done`, or why it ended early.
            about: values of JSON: those of COLUMNS, and others that describe it. None is left out.
        """
        row = _row(action, via, outcome, about)
        log.info("audit.action", **row)
        self._actions.add({"time": self._now(), **row})

    def attempted(self, action: str, *, via: str, outcome: str, **about: Any) -> None:
        """Record a sign-in, or an action that was refused. Arguments as of :meth:`record`."""
        now, row = self._now(), _row(action, via, outcome, about)
        if self._is_repeated(row):
            return
        if len(self._repeats) >= _MOST_REPEATED:
            row = _row(action, via, outcome, {"others": True})
            if self._is_repeated(row):
                return
        self._repeats[_key(row)] = _Repeats(now)
        log.info("audit.attempt", **row)
        self._attempts.add({"time": now, **row})

    def _is_repeated(self, row: Mapping[str, Any]) -> bool:
        """Count an attempt whose row was written; False if there is none."""
        found = self._repeats.get(_key(row))
        if found is None:
            return False
        found.count()
        return True

    def signed_in(self, outcome: str, door: Door, user: str | None) -> None:
        """Record a sign-in, or the end of a session."""
        action = "sign_out" if outcome == SIGNED_OUT else "sign_in"
        self.attempted(action, via=door.protocol, outcome=outcome, user=user, peer=door.address, port=door.port or None)

    def look(self, *, ends: bool = False) -> None:
        """At each tick: write down how often attempts were repeated.

        Args:
            ends: the broker ends, so they are not counted any longer.
        """
        now = self._now()
        for key, repeats in list(self._repeats.items()):
            if not ends and 0 <= now - repeats.begin < REPEATED_MS:
                break  # the others are younger
            del self._repeats[key]
            if repeats.times:
                row = {**dict(key), "times": repeats.times, "since": repeats.begin}
                log.info("audit.attempt", **row)
                self._attempts.add({"time": now, **row})


def _row(action: str, via: str, outcome: str, about: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in about.items() if value is not None}
    row = {"action": action, "outcome": outcome, "via": via}
    row.update({name: given.pop(name) for name in COLUMNS if name in given})
    return {**row, "details": given} if given else row


def _key(row: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in row.items() if name != "details")


def _id(row: Mapping[str, Any]) -> int:
    number: int = row["id"]
    return number

"""The tables of namespaces in a simulated world: which shard each is in, and patterns for new ones.

They change as in the database: a call is lost, or its answer, or an old backend carries it out once more, much later. A
move that was given up holds the head of its shard: it is carried out or not before anything else is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sievemq_broker.domain.journal import NAMESPACE, Write
from sievemq_broker.domain.store import AwayError, FencedError, StoreError
from sievemq_broker.store.lease import ShardSight

if TYPE_CHECKING:
    from .simulated import Process, World

#: Planted faults: a process chooses the shard of a new namespace by the patterns that it has read at its start, and
#: claims nothing; an assignment is carried out after its process was killed, whoever owns the shard then; each is
#: carried out twice.
PATTERNS_CACHED, ASSIGN_NOT_FENCED, ASSIGN_TWICE = "patterns cached", "assign not fenced", "assign carried out late"


class Names:
    """The tables, and what must be so.

    Attributes:
        rows: the shard of each namespace.
        patterns: in their order, and the shard of each.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.rows: dict[str, str] = {}
        self.patterns: list[tuple[str, str]] = []
        #: Moves without an answer yet, by shard.
        self._begun: dict[str, list[Move]] = {}

    def begin(self, move: Move) -> None:
        self._begun.setdefault(move.shard, []).append(move)

    def end(self, move: Move) -> None:
        if move in self._begun.get(move.shard, ()):
            self._begun[move.shard].remove(move)

    def settle(self, shard: str) -> None:
        """Something else locks the head of a shard: moves that were given up end."""
        for move in self._begun.pop(shard, ()):
            if self._world.chance.random() < 0.5:
                move.give_up()
            else:
                with suppress(StoreError):
                    move.carry_out()

    def check(self, shard: str, write: Write) -> None:
        """I12: a write that defines a namespace is that of its shard, and no other shard has it."""
        for part in write.parts:
            for (kind, key), value in part.definitions.items():
                if kind == NAMESPACE and value is not None:
                    self._check_name(shard, str(key[0]))

    def _check_name(self, shard: str, name: str) -> None:
        found = [
            database.shard
            for database in self._world.databases.values()
            if (NAMESPACE, (name,)) in database.store.defined and database.shard != shard
        ]
        if found:
            self._world.blame(f"I12: {name} is in {found[0]}, and is made in {shard}")
        elif self.rows.get(name, shard) != shard:
            self._world.blame(f"I12: {name} is made in {shard}, and placed in {self.rows[name]}")

    def entered(self, shard: str, name: str) -> None:
        """I12: a client of a namespace was welcomed."""
        if self.rows.get(name, shard) != shard:
            self._world.blame(f"I12: a client of {name} is welcomed in {shard}, which is in {self.rows[name]}")


class Move:
    """One transaction that changes the shard of a namespace."""

    def __init__(self, names: Names, fence: Callable[[], None], name: str, shard: str, to: str) -> None:
        self._names, self._fence, self._name, self._to = names, fence, name, to
        self.shard = shard
        self._is_over = False

    def carry_out(self) -> str:
        """Once at most. Returns the shard that has the namespace now.

        Raises:
            FencedError: another process owns the shard.
        """
        if not self._is_over:
            self._is_over = True
            self._fence()
            if self._names.rows.get(self._name) == self.shard:
                self._names.rows[self._name] = self._to
        return self._names.rows.get(self._name, self.shard)

    def give_up(self) -> None:
        self._is_over = True


class SimPlaces:
    """See :class:`~sievemq_broker.store.places.Places`: the tables over a connection of a process's own."""

    def __init__(self, process: Process) -> None:
        from .simulated import Line

        self._process = process
        self._line = Line(process)
        self._names = process.world.names
        self._cached = list(self._names.patterns)

    @property
    def _fault(self) -> str:
        return self._process.world.fault

    def names(self, shard: str) -> list[str]:
        return self._line.call(lambda: [name for name, where in self._names.rows.items() if where == shard])

    def all_names(self) -> dict[str, str]:
        return self._line.call(lambda: dict(self._names.rows))

    def count(self) -> int:
        return self._line.call(lambda: len(self._names.rows))

    def find(self, names: Sequence[str]) -> dict[str, str]:
        return self._line.call(lambda: self._find(names))

    def _find(self, names: Sequence[str]) -> dict[str, str]:
        rows = self._names.rows
        return {name: rows[name] for name in names if name in rows}

    def stored(self, names: Sequence[str], shards: Sequence[str]) -> dict[str, str]:
        databases = [self._process.world.databases[shard] for shard in shards]
        return self._line.call(
            lambda: {
                name: database.shard
                for name in names
                for database in databases
                if (NAMESPACE, (name,)) in database.store.defined
            }
        )

    def claim(self, wanted: Mapping[str, str]) -> dict[str, str]:
        if self._fault == PATTERNS_CACHED:
            return dict(wanted)

        def claim() -> dict[str, str]:
            for name, shard in wanted.items():
                self._names.rows.setdefault(name, shard)
            return self._find(list(wanted))

        return self._line.call(claim)

    def move(self, name: str, shard: str, token: str, to: str) -> str:
        names, database, fault = self._names, self._process.world.databases[shard], self._fault

        def fence() -> None:
            if database.row.token != token and fault != ASSIGN_NOT_FENCED:
                raise FencedError("another owner")

        if fault == ASSIGN_TWICE:
            self._again(Move(names, fence, name, shard, to))
        move = Move(names, fence, name, shard, to)
        if fault == ASSIGN_NOT_FENCED and self._process.world.happens(0.3):
            self._again(move)
            self._process.kill()
            raise AwayError("the process is dead")

        def carry_out() -> str:
            names.end(move)
            names.settle(shard)
            return move.carry_out()

        names.begin(move)
        return self._line.call(carry_out)

    def _again(self, move: Move) -> None:
        """A planted fault: an old backend carries it out at some time."""
        world = self._process.world

        def again() -> None:
            with suppress(StoreError):
                move.carry_out()

        world.after(world.chance.uniform(0.5, 8.0), again)

    def patterns(self) -> list[tuple[str, str]]:
        if self._fault == PATTERNS_CACHED:
            return self._cached
        return self._line.call(lambda: list(self._names.patterns))

    def set_pattern(self, pattern: str, shard: str | None) -> None:
        def change() -> None:
            patterns = [each for each in self._names.patterns if each[0] != pattern]
            self._names.patterns = patterns if shard is None else [*patterns, (pattern, shard)]

        self._line.call(change)

    def shards(self) -> list[ShardSight]:
        def look() -> list[ShardSight]:
            found = []
            for shard, database in self._process.world.databases.items():
                row = database.row
                found.append(ShardSight(shard, None if row.released else row.owner, row.epoch, None))
            return found

        return self._line.call(look)

    def close(self) -> None:
        pass

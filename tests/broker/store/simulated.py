"""A world in one thread: virtual time, a database with a lease, and processes with the real broker, journal, commits,
progress, keeper and lease. Every delay and every failure comes from a seed.

    Link ── bytes ──► SieveConnection ─► Broker ─► Journal ─► Commits ─► Store ──┐
                                                        Keeper ─► Leases ────────┴─► Database

What is faked is what the port of a store promises: a write is fenced by its token and known by its number, and the row
of the lease changes as it was seen or not at all. A process that is paused does nothing, while the database and the
network go on; what it has sent arrives. A connection to the database that breaks leaves open whether the last call was
carried out, and a copy of a write may commit much later.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tests.broker.session.harness import START, MemoryServices

from sievemq_broker.domain import Broker, DestinationPolicy, DomainSettings
from sievemq_broker.domain.journal import Batch, Key, Write
from sievemq_broker.domain.ports import Stored
from sievemq_broker.domain.restore import restore
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.domain.store import AwayError, FencedError, StoreError
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.protocols.sieve.connection import TABLE
from sievemq_broker.server.durability.candidates import Candidate, Candidates
from sievemq_broker.server.durability.commits import Commits, Holder
from sievemq_broker.server.durability.keeper import Keeper
from sievemq_broker.server.durability.progress import Progress
from sievemq_broker.server.durability.slot import Slot
from sievemq_broker.server.durability.worker import Worker
from sievemq_broker.server.placement import Placement
from sievemq_broker.session import Peer, SessionSettings
from sievemq_broker.session.life import CLOSING, GONE
from sievemq_broker.store.follower import Follower
from sievemq_broker.store.lease import FOLLOWING, OWNING, Lease, Owner, Sight, Terms
from sievemq_core.errors import SieveError
from sievemq_core.wire.connection import WireConnection

from .following import Reading, Tables, TableStore, anatomy
from .simulated_names import Names, SimPlaces
from .support import name_of

if TYPE_CHECKING:
    from .simulation import Checker, Client

TERMS = Terms(beat=0.5, lease=3.0, margin=0.6, patience=20.0)
KEEP = 600_000

#: No message is poison, however often its consumer is killed.
POLICIES = (("*", DestinationPolicy(max_attempts=0)),)

#: Planted faults of a takeover by a process that has followed.
FOLLOWERS = (
    "new batches forgotten",
    "states of what was followed forgotten",
    "followed batches that are gone restored",
)

#: Commits that a promoted replica may lack.
MOST_LOST = 500

T = TypeVar("T")
Act = Callable[[], object]


class Event:
    """Something that happens at a time; in a process, unless that is None."""

    __slots__ = ("act", "is_cancelled", "process")

    def __init__(self, act: Act, process: Process | None) -> None:
        self.act = act
        self.process = process
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class World:
    """Time, chance, and everything there is.

    Args:
        seed: of every decision.
        fault: the planted one; "" for none.
        loses: replicas that lack the last commits are promoted now and then.
        shards: their names.
        machines: how many; a process runs on each.
    """

    def __init__(
        self, seed: int, fault: str = "", *, loses: bool = False, shards: Sequence[str] = ("main",), machines: int = 3
    ) -> None:
        self.chance = random.Random(seed)
        self.fault = fault
        self.loses = loses
        #: Processes follow the messages before they take the shard over.
        self.follows = fault in FOLLOWERS or (not fault and bool(seed % 2))
        self.now = 0.0
        self.is_calm = True
        #: Clients that come and go stay away.
        self.is_over = False
        #: How often a message to or from the database is slow.
        self.slow = self.chance.choice((0.01, 0.03, 0.15))
        self._events: list[tuple[float, int, Event]] = []
        self._number = 0
        self.wrong: list[str] = []
        self.counts: dict[str, int] = {}
        #: How many processes there were.
        self.runs = 0
        self.server = Server()
        self.databases = {shard: Database(self, shard) for shard in shards}
        self.names = Names(self)
        self.processes: list[Process | None] = [None] * machines
        self.partitions: set[int] = set()
        #: Seconds by which the wall clock of each machine is ahead.
        self.wall_ahead = [0.0] * machines
        self.checker: Checker
        self.clients: list[Client] = []

    @property
    def database(self) -> Database:
        """Of the only shard."""
        (database,) = self.databases.values()
        return database

    def count(self, what: str) -> int:
        self.counts[what] = self.counts.get(what, 0) + 1
        return self.counts[what]

    def promote(self, lag: float) -> None:
        """A replica becomes the primary that lacks the commits of the last seconds."""
        for database in self.databases.values():
            database.lose(lag)
        self.server.generation += 1
        self.count("promotions")

    def blame(self, text: str) -> None:
        self.wrong.append(f"{self.now:.3f} {text}")

    # -- time -----------------------------------------------------------------------------------------------------

    def after(self, delay: float, act: Act, process: Process | None = None) -> Event:
        event = Event(act, process)
        self._number += 1
        heapq.heappush(self._events, (self.now + delay, self._number, event))
        return event

    def run(self, until: Callable[[], bool], end: float) -> bool:
        """Let things happen. False if this was not reached in time."""
        while not until():
            if self.wrong or self.now > end:
                return False
            time, number, event = heapq.heappop(self._events)
            process = event.process
            if event.is_cancelled or (process is not None and process.is_dead):
                continue
            if process is not None and process.paused_until > time:
                awake = process.paused_until + self.chance.random() * 0.002
                heapq.heappush(self._events, (awake, number, event))
                continue
            self.now = time
            event.act()
        return True

    # -- delays ---------------------------------------------------------------------------------------------------

    def near(self) -> float:
        """To and from clients."""
        return self.chance.expovariate(400)

    def far(self) -> float:
        """To and from the database."""
        if not self.is_calm and self.chance.random() < self.slow:
            return self.chance.uniform(0.05, 1.2)
        return self.chance.expovariate(300)

    def happens(self, probability: float) -> bool:
        return not self.is_calm and self.chance.random() < probability


class Row(NamedTuple):
    """The row of the lease."""

    token: str = ""
    beat: int = 0
    released: bool = False
    epoch: int = 0
    owner: Owner | None = None
    heir: str = ""


class Moment(NamedTuple):
    """The database before a commit, when that was, and which messages the commit is about."""

    time: float
    row: Row
    store: TableStore
    new: tuple[str, ...]
    touched: frozenset[str]


class Server:
    """Of all databases."""

    def __init__(self) -> None:
        self.is_up = True
        #: Raised by each restart: connections are broken.
        self.generation = 0


class Database:
    """The truth about a shard, with its last commits. The broker's tables as PostgreSQL keeps them: each verb is a
    transaction."""

    def __init__(self, world: World, shard: str) -> None:
        self.world = world
        self.shard = shard
        self.row = Row()
        self.store = TableStore()
        self.history: deque[Moment] = deque(maxlen=MOST_LOST)
        #: All tokens that have owned the shard.
        self.tokens: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        #: Messages whose last commits a promotion has lost: nothing is promised about them.
        self.lost: set[str] = set()
        self.takeover_lost = False

    def note(self, new: tuple[str, ...] = (), touched: frozenset[str] = frozenset()) -> None:
        """A commit follows."""
        if self.world.loses:
            self.history.append(Moment(self.world.now, self.row, self.store, new, touched))

    # -- the lease ------------------------------------------------------------------------------------------------

    def take(self, seen: Sight, token: str, owner: Owner) -> bool:
        row = self.row
        as_seen = (row.token, row.beat, row.released) == (seen.token, seen.beat, seen.released)
        if not as_seen and self.world.fault != "take without comparing":
            return False
        self.world.names.settle(self.shard)
        if token in self.tokens and token != row.token and not self.world.loses:
            self.world.blame("I4: a token comes again")
        self.note()
        self.row = Row(token, row.beat + 1, False, row.epoch + 1, owner)
        self.tokens.add(token)
        self.world.count("takeovers")
        return True

    def ask(self, seen: Sight, token: str) -> bool:
        if (self.row.token, self.row.released) != (seen.token, False):
            return False
        self.note()
        self.row = self.row._replace(heir=token)
        self.world.count("asked for")
        return True

    def beat(self, token: str) -> str | None:
        if self.row.token != token:
            return None
        self.note()
        self.row = self.row._replace(beat=self.row.beat + 1)
        return self.row.heir

    def release(self, token: str) -> None:
        if self.row.token == token:
            self.note()
            self.row = self.row._replace(released=True)
            self.world.count("releases")

    # -- messages -------------------------------------------------------------------------------------------------

    def write(self, token: str, write: Write, now: int) -> None:
        fault, following = self.world.fault, self.store.next_write
        self.world.names.settle(self.shard)
        fenced = token != self.row.token
        if fenced and fault != "fence after commit":
            raise FencedError("another owner")
        if write.number < following and not fenced:
            self.world.count("repeated writes")
            if fault != "repeat without number":
                return
        if write.number > following and not fenced:
            raise FencedError(f"{write.number - following} writes are lost")
        new = {str(name_of(packed)): part.base | place for part in write.parts for place, packed in _accepted(part)}
        self._check(write, new)
        self.world.names.check(self.shard, write)
        touched = frozenset(new) | {name for number in _outcomes(write) if (name := self.names.get(number))}
        self.note(tuple(new), touched)
        if self.world.loses:
            self.store = self.store.copy()
        self.store.next_write = write.number
        self.store.write(write, now)
        self.store.next_write = max(following, write.number + 1)
        self.numbers.update(new)
        self.names.update((number, name) for name, number in new.items())
        self.world.count("writes")
        if fenced:
            raise FencedError("another owner")

    def _check(self, write: Write, new: Mapping[str, int]) -> None:
        """I5, I7, I9: what one write does."""
        gone = {self.names.get(number) for part in write.parts for number in part.gone}
        for name in new:
            if name in self.numbers and not self.excuses(name):
                self.world.blame(f"I9: {name} was stored before")
            if missing := [each for each in self.world.checker.together.get(name, ()) if each not in new]:
                self.world.blame(f"I7: {name} is stored without {missing}")
            relayed = name.partition("~")[2]
            if relayed and relayed not in gone and not self.excuses(relayed):
                self.world.blame(f"I7: {name} is stored and {relayed} is not gone")

    def excuses(self, name: str) -> bool:
        """Nothing is promised about it, or about the message that was relayed as this one."""
        return name in self.lost or name.partition("~")[2] in self.lost

    def holds(self, name: str) -> bool:
        return name in self.numbers or self.excuses(name)

    def is_gone(self, name: str) -> bool:
        return self.excuses(name) or self.numbers.get(name, -1) not in self.store.messages

    def is_marked(self, name: str) -> bool:
        """A restart would mark it as redelivered, or it is gone."""
        saved = self.store.messages.get(self.numbers.get(name, -1))
        return self.excuses(name) or (name in self.numbers and (saved is None or saved.state != 0))

    # -- failures -------------------------------------------------------------------------------------------------

    def lose(self, lag: float) -> None:
        """A replica has become the primary that lacks the commits of the last seconds."""
        token = self.row.token
        while self.history and self.history[-1].time > self.world.now - lag:
            moment = self.history.pop()
            self.row, self.store = moment.row, moment.store
            self.lost |= moment.touched
            for name in moment.new:
                self.names.pop(self.numbers.pop(name, -1), None)
        if self.row.token != token:
            # The owner before goes on. What its clients have sent to the lost one as well may be carried out twice.
            self.takeover_lost = True
            self.lost |= self.world.checker.sent - self.world.checker.promised


def _accepted(part: Batch) -> Iterator[tuple[int, bytes]]:
    return ((place, packed) for place, (_, packed) in enumerate(part.accepted))


def _outcomes(write: Write) -> set[int]:
    return {number for part in write.parts for number in (*part.held, *part.states, *part.gone)}


class Line:
    """A connection of a process to the database. A call runs at the time at which it arrives."""

    _views = 0

    def __init__(self, process: Process) -> None:
        self._process = process
        self._generation: int | None = None
        self.view = 0

    def call(self, act: Callable[[], T]) -> T:
        """Carry out a call, or lose it, or its answer.

        Raises:
            AwayError: there was no answer.
        """
        process = self._process
        world, server = process.world, process.world.server
        if not server.is_up or process.slot in world.partitions:
            self.break_off()
            raise AwayError("the database does not answer")
        if self._generation is None:
            Line._views += 1
            self._generation, self.view = server.generation, Line._views
        if self._generation != server.generation:
            self.break_off()
            raise AwayError("the connection to the database is broken")
        late = world.happens(0.02)
        if world.happens(0.02):
            late = late or world.chance.random() < 0.5
            self.break_off()
            self._copy(act, late)
            raise AwayError("the call was lost")
        answer = act()
        self._copy(act, late)
        if world.happens(0.02):
            self.break_off()
            raise AwayError("the answer was lost")
        return answer

    def _copy(self, act: Act, late: bool) -> None:
        """An old backend carries it out much later."""
        world, server = self._process.world, self._process.world.server
        generation = server.generation

        def again() -> None:
            if server.generation == generation and server.is_up:
                try:
                    act()
                except StoreError:
                    pass

        if late:
            world.count("late copies")
            world.after(world.chance.uniform(0.01, 12.0), again)

    def break_off(self) -> None:
        self._generation = None
        self._process.worker_delay = self._process.world.chance.uniform(0.01, 1.0)


class SimLeases:
    """The row of the lease, over a connection of its own."""

    def __init__(self, process: Process, database: Database) -> None:
        self._process = process
        self._database = database
        self._line = Line(process)

    def look(self) -> Sight:
        process, database = self._process, self._database

        def look() -> Sight:
            row, writes = database.row, database.store.next_write - 1
            view = 0 if process.world.fault == "observed over any connection" else self._line.view
            ahead = process.world.wall_ahead[process.slot]
            return Sight(row.token, row.beat, row.released, row.epoch, row.owner, writes, view, ahead, row.heir)

        return self._heard(self._line.call(look))

    def take(self, seen: Sight, token: str, owner: Owner) -> bool:
        def take() -> bool:
            if seen.view and seen.view != self._line.view:
                return False
            return self._database.take(seen, token, owner)

        return self._heard(self._line.call(take))

    def ask(self, seen: Sight, token: str) -> bool:
        return self._heard(self._line.call(lambda: self._database.ask(seen, token)))

    def beat(self, token: str) -> str | None:
        return self._heard(self._line.call(lambda: self._database.beat(token)))

    def release(self, token: str) -> None:
        self._line.call(lambda: self._database.release(token))

    def close(self) -> None:
        pass

    def _heard(self, answer: T) -> T:
        self._process.answers.append(self._process.world.now)
        return answer


class SimListing(Tables):
    """What a follower reads, over a connection of its own."""

    def __init__(self, process: Process, database: Database) -> None:
        super().__init__()
        self._database = database
        self._line = Line(process)

    def last_write(self) -> int:
        """Read all of it, for the calls of one step."""
        tables = self._line.call(lambda: self._database.store.tables.copy())
        self.data, self.writes = tables.data, tables.writes
        return self.writes


class Wrong(Reading):
    """Planted faults: what a takeover forgets of the difference to what was followed."""

    def __init__(self, fault: str, store: TableStore, follower: Follower | None) -> None:
        self._built = {} if follower is None else dict(follower._built)
        super().__init__(store, follower)
        if fault == "states of what was followed forgotten" and follower is not None:
            kept = {own: row for own, row in self.tables.changed.items() if own not in self._built}
            self.tables.changed = kept
        elif fault == "new batches forgotten" and self._built:
            newest = max(self._built)
            self.tables.data = {own: row for own, row in self.tables.data.items() if own <= newest}
            self.tables.changed = {own: row for own, row in self.tables.changed.items() if own <= newest}
        elif fault == "followed batches that are gone restored":
            missing = {own: b"" for own in self._built if own not in self.tables.data}
            self.tables.data = {**self.tables.data, **missing}
            self.tables.batches = self._with_built  # type: ignore[method-assign]

    def _with_built(self) -> Iterator[tuple[int, bytes | SavedBatch, bytes | None]]:
        for own, row, state in Tables.batches(self.tables):
            yield own, self._built[own][1] if own in self._built else row, state


class SimStore:
    """The store of one owner, as restored.

    Args:
        saved: the contents when it was opened.
        follower: of the shard until then; None for none.
    """

    room, full_below, free, total, reserve = 2**40, 1_000, 2**40, 0, 0
    incarnation = "sim"

    def __init__(self, process: Process, saved: TableStore, epoch: int, follower: Follower | None = None) -> None:
        self._process = process
        self._database = process.database
        self._line = Line(process)
        self._saved = saved
        self._reading = Wrong(process.world.fault, saved, follower)
        self.epoch = epoch
        self.batch_bytes = saved.batch_bytes
        self.next_write, self.next_batch = saved.next_write, saved.next_batch

    def definitions(self, kind: str) -> Mapping[Key, tuple[Any, ...]]:
        return self._saved.definitions(kind)

    def batches(self) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        return self._reading.batches()

    def write(self, write: Write, now: int) -> None:
        self._line.call(lambda: self._database.write(self._process.token, write, now))

    def reopen(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    def size(self) -> int:
        return 0

    def tidy(self) -> int:
        return self.room

    def relieve(self) -> None:
        pass


class Loop:
    """What commits and keeper use of an event loop, in one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        #: What threads have passed to the loop, in order.
        self._passed: deque[Act] = deque()

    def time(self) -> float:
        return self._process.clock()

    def call_later(self, delay: float, act: Callable[..., object], *args: object) -> Event:
        return self._process.after(delay, lambda: act(*args))

    def call_soon(self, act: Callable[..., object], *args: object, context: object = None) -> Event:
        return self._process.after(0, lambda: act(*args))

    def call_soon_threadsafe(self, act: Callable[..., object], *args: object) -> Event:
        process = self._process
        self._passed.append(lambda: act(*args))
        return process.after(process.world.far() + process.worker_delay, lambda: self._passed.popleft()())

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False


class SimWorker(Worker):
    """Carries out calls one after the other, each when it arrives at the database."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = False
        self._ended = process.loop.create_future()

    def put(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)
        self._begin()

    def end(self) -> asyncio.Future[None]:
        self.put(lambda: self._process.loop.call_soon_threadsafe(self._ended.set_result, None) and None)
        return self._ended

    def _begin(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        world, call = self._process.world, self._waiting.popleft()

        def arrive() -> None:
            self._process.worker_delay = 0.0
            call()
            self._process.after(world.far() + self._process.worker_delay, self._go_on)
            self._process.worker_delay = 0.0

        world.after(world.far(), arrive)

    def _go_on(self) -> None:
        self._is_busy = False
        self._begin()


class SimServices(MemoryServices):
    """Of one process that owns the shard."""

    def __init__(self, process: Process) -> None:
        super().__init__(SessionSettings(incarnation="sim", durable=True))
        self._process = process
        self._last_id = 0

    def connection_id(self) -> str:
        self._last_id += 1
        return f"sim-{self._process.token[:8]}-{self._last_id}"

    def now(self) -> int:
        return self._process.wall()

    def note_progress(self, client: Peer) -> None:
        self._process.commits.note(client)

    def place(
        self, peer: Peer, namespace: str, instead: str, later: Callable[[str | SieveError, int], None]
    ) -> str | None:
        placement = self._process.placement
        if placement is None:
            return super().place(peer, namespace, instead, later)
        return placement.enter(namespace, instead, "sieve", 0, lambda found: later(found, self.now()))

    def report(self, peer: Peer, doing: str, error: BaseException) -> None:
        self._process.world.blame(f"a fault of the broker: {doing}: {error!r}")


class LateProgress(Progress):
    """A planted fault: progress is in the write after that with the messages."""

    __slots__ = ("_late",)

    def note(self, connections: Any) -> None:
        late = getattr(self, "_late", ())
        self._late = list(connections)
        super().note(late)


class HastyCommits(Commits):
    """A planted fault: output does not wait for its write."""

    def hold(self, link: Holder, data: bytes, needs: list[Stored]) -> bool:
        needs.clear()
        return super().hold(link, data, needs)


class HastyLease(Lease):
    """Planted faults: how the time of a lease is counted."""

    __slots__ = ("clock", "fault")

    def saw(self, sight: Sight, asked: float, now: float) -> int:
        if self.fault == "observed over any connection" and self.seen is not None:
            self._still = asked - self._since  # and across any gap
        return super().saw(sight, asked, now)

    def answered(self, asked: float) -> None:
        super().answered(self.clock() if self.fault == "lease counted from the answer" else asked)


class SimFollowing:
    """Builds the messages of a shard, in steps of its process."""

    def __init__(self, follower: Follower, shard: str, number: int) -> None:
        self.follower = follower

    def start(self) -> None:
        pass

    def drop(self) -> None:
        pass


class Ward:
    """A shard as one process sees it, before and after it is taken.

    Attributes:
        before: what a follower has read, for a planted fault.
        follower: has built its messages; None if nothing is built.
        keeper: there once it is followed.
    """

    keeper: Keeper
    is_shared = True
    writes = 0

    def __init__(self, process: Process, database: Database) -> None:
        world = process.world
        self.process = process
        self.database = database
        self.before: TableStore | None = None
        self.follower: Follower | None = None
        self.lease = HastyLease(TERMS, f"{world.chance.getrandbits(64):016x}")
        self.lease.fault, self.lease.clock = world.fault, process.lease_clock

    def keep(self, candidate: Candidate, slot: Slot) -> Keeper:
        process, machine = self.process, f"machine{self.process.slot}"
        self.keeper = Keeper(
            process.loop,
            self.lease,
            SimLeases(process, self.database),
            Owner(machine, f"sievemq://{machine}", process.address, ""),
            candidate,
            self,
            worker=SimWorker(process),
            prober=SimWorker(process),
            now=process.lease_clock,
            probe=self._accepts,
            slot=slot,
            shard=candidate.name,
            asks=process.asks,
        )
        return self.keeper

    def _accepts(self, address: str) -> bool:
        """Whether the kernel of that machine accepts a connection."""
        world = self.process.world
        if world.fault == "suspicion taken for death" and self.lease.suspects:
            return False
        return any(each is not None and address == each.address for each in world.processes)

    # -- of a source ------------------------------------------------------------------------------------------------

    def follower_of(self, limit: int) -> Follower:
        follower = Follower(SimListing(self.process, self.database), after=0.0)
        if self.process.world.follows:
            self.follower = follower
        return follower

    # -- what the keeper reports ------------------------------------------------------------------------------------

    def silence(self, reason: str | None) -> None:
        self.process.silence(reason)

    def asked(self) -> None:
        self.process.asked()

    def failed(self, error: StoreError) -> None:
        self.process.leave_for(str(error))

    def gone(self, error: StoreError) -> None:
        self.process.leave_for(str(error))

    def hangs(self, seconds: float) -> bool:
        return self.process.hangs(seconds)


class SimSource:
    """Where a shard is stored, for a follower."""

    is_shared = True

    def __init__(self, ward: Ward) -> None:
        self.follower = ward.follower_of


class Process:
    """One run of a broker process: it follows, takes a shard, serves it, until it is killed or gone.

    Args:
        slot: the machine that it is on.

    Attributes:
        own: the shard that it has taken; the first that it follows before that.
        placement: where namespaces are; None in a world with one shard.
    """

    broker: Broker
    commits: Commits
    services: SimServices

    def __init__(self, world: World, slot: int) -> None:
        self.world = world
        self.slot = slot
        chance = world.chance
        self._ahead = chance.uniform(0, 1e6)
        self._rate = chance.uniform(0.999, 1.001)
        world.runs += 1
        self.address = f"machine{slot}:{world.runs}"
        self.is_dead = False
        self.is_stopping = False
        self.paused_until = 0.0
        self.worker_delay = 0.0
        #: When the database has answered its beats and looks.
        self.answers: deque[float] = deque((world.now,), maxlen=100)
        self.loop: Any = Loop(self)
        self.links: dict[Link, None] = {}
        self._dirty: dict[Link, None] = {}
        self._fed: dict[Link, None] = {}
        self._turn_due = False
        self._serves = self._is_owner = False
        self._read_at = world.now
        self.asks = world.runs % 4 == 0
        self._wards = {shard: Ward(self, database) for shard, database in world.databases.items()}
        self.own = next(iter(self._wards.values()))
        sources: Any = {shard: SimSource(ward) for shard, ward in self._wards.items()}
        following: Any = SimFollowing
        self._candidates = Candidates(sources, 0, following)
        self.placement: Placement | None = None
        if len(world.databases) > 1:
            self.placement = Placement(
                self.loop, SimPlaces(self), tuple(world.databases), self, worker=SimWorker(self), ports=(0,)
            )
        self._candidates.start(
            lambda candidate, slot: self._wards[candidate.name].keep(candidate, slot),
            self._taken,
            lambda error: self.leave_for(str(error)),
        )
        self.after(0.25, self._tick)

    @property
    def lease(self) -> HastyLease:
        return self.own.lease

    @property
    def token(self) -> str:
        return self.own.lease.token

    @property
    def database(self) -> Database:
        return self.own.database

    # -- time -----------------------------------------------------------------------------------------------------

    def after(self, delay: float, act: Act) -> Event:
        return self.world.after(delay, act, self)

    def clock(self) -> float:
        """Of the machine, in seconds, set by nobody."""
        return self._ahead + self.world.now * self._rate

    def lease_clock(self) -> float:
        return self.wall() / 1000 if self.world.fault == "lease by the wall clock" else self.clock()

    def wall(self) -> int:
        """Ms epoch."""
        return START + round((self.world.now + self.world.wall_ahead[self.slot]) * 1000)

    # -- what a keeper reports --------------------------------------------------------------------------------------

    def _taken(self, candidate: Candidate) -> None:
        """A shard is this process's: restore it."""
        own = self._wards[candidate.name]
        world, database = self.world, own.database
        if self._is_owner:
            world.blame("I4: a process owns two shards")
        self.own, self._is_owner = own, True

        def read() -> None:
            if not world.server.is_up or self.slot in world.partitions:
                self.after(0, lambda: self.leave_for("the store does not answer"))
            elif database.row.token != self.token:
                self.after(0, lambda: self.leave_for("fenced while opening"))
            else:
                saved = database.store.copy()
                if world.fault == "read before the takeover" and own.before is not None:
                    saved = own.before
                seconds = world.chance.uniform(0.0, 4.0) if not world.is_calm else 0.1
                store = SimStore(self, saved, database.row.epoch, own.follower)
                generation = world.server.generation
                self.after(seconds, lambda: self._restored(store, saved, generation))

        world.after(world.far(), read)

    def silence(self, reason: str | None) -> None:
        self.world.count("silent" if reason else "speaks again")
        if reason is None and self._serves:
            self.commits.opened()
            for link in tuple(self.links):
                link.read()

    def asked(self) -> None:
        if self._serves and not self.is_stopping:
            self.world.count("handovers asked for")
            self.stop()

    def hangs(self, seconds: float) -> bool:
        return self._serves and self.commits.hangs(seconds)

    # -- serving --------------------------------------------------------------------------------------------------

    def _restored(self, store: SimStore, saved: TableStore, generation: int) -> None:
        world, lease, database = self.world, self.lease, self.database
        kept = database.store
        if (database.row.token, world.server.generation) == (self.token, generation) and (
            saved.messages != kept.messages or saved.defined != kept.defined
        ):
            world.blame("I11: restored something else than the database has")
        self.broker = Broker(DomainSettings(policies=POLICIES))
        restore(self.broker, store, self.wall())
        if self.own.follower is not None:
            self._compare(saved)
        journal = self.broker.journal
        assert journal is not None
        kind = HastyCommits if world.fault == "output not held" else Commits
        speaks = (lambda: True) if world.fault == "no gate" else self.own.keeper.speaks
        self.commits = kind(
            self.loop,
            self,  # type: ignore[arg-type]
            journal,
            store,
            self.broker.refuse_persistent,
            self.broker.guard_persistent,
            lambda error: self.leave_for(str(error)),
            worker=SimWorker(self),
            speaks=speaks,
            patience=1.0 if world.fault == "no patience" else lease.terms.patience,
        )
        self.services = SimServices(self)
        self.services.broker = self.broker
        kept = LateProgress if world.fault == "progress in a later write" else Progress
        progress = kept(journal, self.services)
        progress.restore(store, self.wall() + KEEP, self.broker)
        self.commits.start(progress)
        if self.placement is None:
            self._serve()
        else:
            names = [name for name in self.broker.namespaces if name != "default"]
            self.placement.own(database.shard, self.token, names).add_done_callback(self._placed)

    def _placed(self, owned: asyncio.Future[None]) -> None:
        if owned.exception() is None:
            self._serve()
        else:
            self.leave_for(str(owned.exception()))

    def _serve(self) -> None:
        self._serves = True
        self.own.keeper.restored()
        self.world.count("restores")

    # -- namespaces ---------------------------------------------------------------------------------------------------

    def use_of(self, namespace: str) -> str | None:
        """As of Shard in server/shard.py."""
        space = self.broker.namespaces.get(namespace)
        if space is None:
            return None
        connected = any(peer.namespace is space for peer in self.services.connections.values())
        if connected or space.destinations or self.services.lost.number_in(namespace):
            return "in use"
        return None

    def drop(self, namespace: str, then: Act) -> None:
        self.broker.delete_namespace(namespace)
        self.commits.synced().add_done_callback(lambda synced: None if synced.cancelled() else then())
        self.worked()

    def _compare(self, saved: TableStore) -> None:
        """I11: all of it is as it would be had nothing been followed."""
        assert self.own.follower is not None
        world, cold = self.world, Broker(DomainSettings(policies=POLICIES))
        restore(cold, saved, self.wall())
        if anatomy(self.broker) != anatomy(cold):
            world.blame("I11: a restore differs from one without a follower")
        world.count("followed takeovers")
        if self.own.follower.messages:
            world.count("warm takeovers")

    def now(self) -> int:
        """The clock of the commits."""
        return self.wall()

    @property
    def listens(self) -> bool:
        return self._serves and not self.is_dead and not self.is_stopping

    @property
    def reads(self) -> bool:
        """Whether input is read now."""
        return self.lease.state == OWNING

    def accept(self, client: Client, wire: WireConnection) -> Link:
        link = Link(self, client, wire)
        self.links[link] = None
        return link

    def fed(self, link: Link) -> None:
        self.commits.fed(link.connection.peer)
        self._fed[link] = None
        self.worked()

    def mark(self, link: Link) -> None:
        self.commits.note(link.connection.peer)
        self._dirty[link] = None
        self.worked()

    def worked(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.after(0, self._end_turn)

    def _end_turn(self) -> None:
        self._turn_due = False
        while self.broker.work(self.wall()):
            pass
        fed, self._fed = {**self._fed, **self._dirty}, {}
        self._dirty = {}
        for link in fed:
            link.flush()
        self.commits.end_turn()
        for link in fed:
            if link.connection.behind:
                link.catch_up()

    def _tick(self) -> None:
        self.after(0.25, self._tick)
        if not self._is_owner:
            self._follow()
        if self._serves and self.lease.state == OWNING:
            self.broker.due(self.wall())
            self.commits.sweep()

    def _follow(self) -> None:
        for each in self._wards.values():
            if each.follower is not None and self.world.chance.random() < 0.3:
                try:
                    each.follower.step(self.clock())
                except AwayError:
                    self.world.count("steps without an answer")
        if self.world.now >= self._read_at + 2.0:
            self._read_at = self.world.now
            for each in self._wards.values():
                each.before = each.database.store.copy()

    # -- the end --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self.world.count("kills")
        self._leave()

    def leave_for(self, reason: str) -> None:
        world, terms = self.world, TERMS
        world.count("exits")
        is_owner = self.database.row.token == self.token and not self.database.row.released
        if self._serves and is_owner and not world.loses:
            # A pause counts as patience, and so does the time until a write is tried again.
            awake = max(world.now - terms.patience + terms.lease, self.paused_until)
            if any(awake < answer < world.now - 2.0 for answer in self.answers):
                world.blame(f"I14: gave up, although the store has answered: {reason}")
        self._leave()

    def stop(self) -> None:
        """End in order: return what clients have, write the rest, release the shard."""
        if self.is_stopping:
            return
        if self.lease.state == FOLLOWING or not self._serves:
            self._leave()
            return
        self.is_stopping = True
        self.world.count("stops")
        for link in tuple(self.links):
            link.cut()
            self.world.after(self.world.near(), link.end_at_client)
        self.after(0.05, self._write_rest)

    def _write_rest(self) -> None:
        self.commits.synced().add_done_callback(lambda _: self._release())

    def _release(self) -> None:
        self.own.keeper.close().add_done_callback(lambda _: self._leave())

    def _leave(self) -> None:
        if self.is_dead:
            return
        self.is_dead = True
        world = self.world
        world.processes[self.slot] = None
        for link in self.links:
            world.after(world.near(), link.end_at_client)
        delay = world.chance.uniform(0.2, 3.0)
        world.after(delay, lambda: world.processes.__setitem__(self.slot, Process(world, self.slot)))


class Link:
    """One connection: the broker's end, and what is under way in both directions."""

    def __init__(self, process: Process, client: Client, wire: WireConnection) -> None:
        self.process = process
        self.client = client
        self.wire = wire
        self.connection = SieveConnection(
            process.broker, process.services, TABLE, address=client.name, wake=lambda: process.mark(self)
        )
        self.held = 0
        self.is_open = True
        self.up: deque[bytes] = deque()
        self.down: deque[list[tuple[Any, ...]]] = deque()
        self._unread: list[bytes] = []

    # -- in -------------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """Bytes of the client have arrived at the machine."""
        self._unread.append(self.up.popleft())
        self.read()

    def read(self) -> None:
        if self._unread and self.is_open and self.process.reads:
            data = b"".join(self._unread)
            self._unread.clear()
            self.process.commits.begin()
            self.connection.receive_data(data, self.process.wall())
            self.process.fed(self)

    def catch_up(self) -> None:
        if self.is_open:
            self.process.commits.begin()
            self.connection.catch_up(self.process.wall())
            self.process.fed(self)

    # -- out ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        connection = self.connection
        if connection.peer.life.state == GONE:
            return
        if connection.has_data and (data := connection.data_to_send()):
            if self.process.commits.hold(self, data, connection.peer.out.needs):
                self.held += len(data)
            else:
                self._hand(data)
        self._close_if_done()

    def release(self, data: bytes) -> None:
        self.held -= len(data)
        if self.is_open:
            self._hand(data)
            self._close_if_done()

    def _hand(self, data: bytes) -> None:
        """Output leaves the broker."""
        world = self.process.world
        commands = self.wire.receive_data(data)
        world.checker.handed(self, commands)
        self.down.append(commands)
        world.after(world.near(), self._deliver)

    def _deliver(self) -> None:
        self.client.heard(self, self.down.popleft())

    # -- the end --------------------------------------------------------------------------------------------------

    def _close_if_done(self) -> None:
        if self.connection.peer.life.state == CLOSING and not self.held:
            self.cut()
            self.process.world.after(self.process.world.near(), self.end_at_client)

    def cut(self) -> None:
        """The broker learns that it is lost, or closes it."""
        if self.is_open:
            self.is_open = False
            self.process.links.pop(self, None)
            self.connection.lost(self.process.wall())
            self.process.worked()

    def end_at_client(self) -> None:
        if self.down:  # what left before arrives before
            self.process.world.after(0.01, self.end_at_client)
        else:
            self.client.lost(self)

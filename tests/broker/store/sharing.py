"""A store that several brokers of one process share: dictionaries, the row of the lease, and faults by broker."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.broker.server.wire_client import WireClient

from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.admission import UNLIMITED
from sievemq_broker.domain.journal import Key, Write
from sievemq_broker.domain.saved import SavedBatch, SavedState
from sievemq_broker.domain.store import AwayError, FencedError, Store
from sievemq_broker.server.server import Server
from sievemq_broker.store.follower import Follower
from sievemq_broker.store.lease import FOLLOWING, Leases, Owner, Sight
from sievemq_core.wire.commands import Command

from .following import Reading, SharedTables, TableStore
from .placing import DictPlaces, Tables

#: Seconds that a test waits for what must happen.
DEADLINE = 30.0

#: Of tests in which a lease ends when they say so, however busy the machine is.
LONG = {"beat_seconds": 0.02, "lease_seconds": 60.0}

#: Of tests in which the owner does not look at its lease.
RARE = {"beat_seconds": 3_600.0, "lease_seconds": 14_400.0}


class World:
    """The part of the database that one shard has.

    Attributes:
        cluster: of the shards that :class:`Cluster` gathers.
    """

    cluster: Cluster | None = None

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.data = TableStore()
        self.sight = Sight("", 0, False, 0, None, 0, 1, 0.0)
        #: Set whenever the row changes.
        self.changed = threading.Condition(self.lock)

    def set(self, **fields: Any) -> None:
        with self.changed:
            self.sight = self.sight._replace(**fields)
            self.changed.notify_all()

    def until(self, fits: Callable[[Sight], bool]) -> None:
        """Return when the row is so."""
        with self.changed:
            assert self.changed.wait_for(lambda: fits(self.sight), DEADLINE)

    def seize(self) -> None:
        """Another process takes the shard, whatever its owner thinks."""
        self.set(token="another", epoch=self.sight.epoch + 1, beat=0, owner=None)


class Cluster(Tables):
    """The tables of several shards, whose owners are those that have taken them.

    Args:
        names: of the shards.
    """

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.worlds = {name: World() for name in names}
        for world in self.worlds.values():
            world.cluster = self

    def shards(self) -> list[str]:
        return sorted(self.worlds)

    def owner(self, shard: str) -> tuple[str, Owner | None]:
        sight = self.worlds[shard].sight
        return sight.token, None if sight.released else sight.owner


class Access:
    """How one broker reaches the database: a source for its shard."""

    where = "a dictionary"

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_away = False
        #: Called before the messages are read.
        self.before_reading: Callable[[], None] = lambda: None
        #: Called before each write.
        self.before_writing: Callable[[], None] = lambda: None
        self.offset = 0.0
        self.closed: list[str] = []

    def check(self) -> None:
        if self.is_away:
            raise AwayError("the dictionary is away")

    @contextmanager
    def away(self) -> Iterator[None]:
        self.is_away = True
        try:
            yield
        finally:
            self.is_away = False

    def leases(self) -> Leases:
        return Row(self)

    def places(self) -> DictPlaces:
        assert self.world.cluster is not None
        return DictPlaces(self.world.cluster)

    def follower(self, limit: int) -> Follower:
        return Follower(SharedTables(self.world.data.tables, self.world.lock, self.check), limit)

    def open(
        self, token: str, incarnation: str, is_wanted: Callable[[], bool], follower: Follower | None = None
    ) -> Store:
        return SharedStore(self, token, follower)

    def history(self) -> None:
        """In memory alone."""


class Row:
    """The row, for one broker."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._world = access.world

    def look(self) -> Sight:
        self._access.check()
        with self._world.lock:
            writes = self._world.data.next_write - 1
            return self._world.sight._replace(writes=writes, offset=self._access.offset)

    def take(self, seen: Sight, token: str, owner: Owner) -> bool:
        self._access.check()
        with self._world.lock:
            now = self._world.sight
            if (now.token, now.beat, now.released) != (seen.token, seen.beat, seen.released):
                return False
            self._world.set(token=token, beat=0, released=False, epoch=now.epoch + 1, owner=owner, heir="")
            return True

    def ask(self, seen: Sight, token: str) -> bool:
        self._access.check()
        with self._world.lock:
            if (self._world.sight.token, self._world.sight.released) != (seen.token, False):
                return False
            self._world.set(heir=token)
            return True

    def beat(self, token: str) -> str | None:
        self._access.check()
        with self._world.lock:
            if self._world.sight.token != token:
                return None
            self._world.set(beat=self._world.sight.beat + 1)
            return self._world.sight.heir

    def release(self, token: str) -> None:
        self._access.check()
        with self._world.lock:
            self._access.closed.append("released")
            if self._world.sight.token == token:
                self._world.set(released=True)

    def close(self) -> None:
        self._access.closed.append("lease")


class SharedStore:
    """The messages, for one owner."""

    incarnation = "shared"
    room = free = UNLIMITED
    full_below = total = reserve = time = 0

    def __init__(self, access: Access, token: str, follower: Follower | None = None) -> None:
        self._access = access
        self._token = token
        self._follower = follower
        self._data = access.world.data
        self.epoch = access.world.sight.epoch
        self.batch_bytes = self._data.batch_bytes

    @property
    def next_write(self) -> int:
        return self._data.next_write

    @property
    def next_batch(self) -> int:
        return self._data.next_batch

    def definitions(self, kind: str) -> Mapping[Key, tuple[Any, ...]]:
        return self._data.definitions(kind)

    def batches(self) -> Iterator[tuple[SavedBatch, SavedState | None]]:
        self._access.before_reading()
        return Reading(self._data, self._follower).batches()

    def write(self, write: Write, now: int) -> None:
        self._access.check()
        self._access.before_writing()
        with self._access.world.lock:
            if self._access.world.sight.token != self._token:
                raise FencedError("another broker owns the shard")
            self._data.write(write, now)

    def reopen(self) -> None:
        self._access.check()

    def close(self) -> None:
        self._access.closed.append("store")

    def abandon(self) -> None:
        self._access.closed.append("abandoned")

    def size(self) -> int:
        return 0

    def tidy(self) -> int:
        return self.room

    def relieve(self) -> None:
        pass


class SharingBroker(EmbeddedBroker):
    """A broker over such a database.

    Args:
        world: the shard `main`; or several, by name, of which it takes one.
        asks: for this shard; it asks the owner to hand it over.
    """

    def __init__(
        self, world: World | Mapping[str, World], terms: Mapping[str, float], *, asks: str = "", **options: Any
    ) -> None:
        settings = {"heartbeat_seconds": 60, **terms, **options.pop("settings", {})}
        super().__init__(settings=settings, **options)
        worlds = {"main": world} if isinstance(world, World) else world
        self.accesses = {name: Access(each) for name, each in worlds.items()}
        self.access = next(iter(self.accesses.values()))
        self._asks = asks

    def _make_server(self) -> Server:
        server = Server(self._settings, self._adjustable, sources=self.accesses)
        if self._asks:
            server.ask_for(self._asks)
        return server


@contextmanager
def cluster() -> Iterator[tuple[SharingBroker, SharingBroker, SharingBroker]]:
    """The owners of a and b, and a spare. Namespace `mine` is in a, `space` in b."""
    tables = Cluster("a", "b")
    tables.rows |= {"mine": "a", "space": "b"}
    with ExitStack() as stack:
        brokers = []
        for number in range(3):
            broker = SharingBroker(
                tables.worlds, LONG, store="postgresql://nobody@nowhere/none", settings={"shards": "a,b"}
            )
            brokers.append(stack.enter_context(broker))
            if number < 2:
                broker.wait_until_serving(DEADLINE)
        yield brokers[0], brokers[1], brokers[2]


def hosts(*brokers: EmbeddedBroker) -> str:
    """A URL that names several brokers."""
    return "sievemq://" + ",".join(f"127.0.0.1:{broker.server.port}" for broker in brokers)


def get(broker: EmbeddedBroker, path: str, method: str = "GET") -> tuple[int, Any]:
    parts = urlsplit(broker.http_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        text = response.read().decode()
        kind = response.headers.get("content-type", "")
        return response.status, json.loads(text) if kind.startswith("application/json") else text
    finally:
        connection.close()


def until(broker: EmbeddedBroker, holds: Callable[[Server], bool]) -> None:
    """Return once it holds at the end of a turn."""
    seen = asyncio.run_coroutine_threadsafe(_until(broker.server, holds), _loop_of(broker))
    seen.result(DEADLINE)


def _loop_of(broker: EmbeddedBroker) -> asyncio.AbstractEventLoop:
    assert broker._loop is not None
    return broker._loop


async def _until(server: Server, holds: Callable[[Server], bool]) -> None:
    done = asyncio.get_running_loop().create_future()

    def look() -> bool:
        if holds(server) and not done.done():
            done.set_result(None)
        return not done.done()

    server.ticks.at_each_round(look)
    await done


def send(client: WireClient, sequence: int, mode: int = 2) -> None:
    envelope = (None, 1, 4, mode, 0, 0, None, None, None, None, None, 2, b"m")
    client.say(Command.SEND, 1, sequence, "queue:q", envelope)


def last_words(client: WireClient) -> list[int]:
    """The commands that a client gets until its connection ends."""
    try:
        while data := client.sock.recv(1 << 20):
            client.waiting += client.wire.receive_data(data)
    except ConnectionResetError:
        pass
    return [command[0] for command in client.waiting]


def is_away(server: Server) -> bool:
    """A call of the keeper has failed."""
    return any("does not answer" in each for each in server.shard_warnings)


@contextmanager
def silent(broker: SharingBroker) -> Iterator[None]:
    """The store is away, and the lease is over: by a clock that goes forward, so that however busy the machine is it is
    over now and at no other time."""
    with broker.access.away():
        until(broker, is_away)
        pass_lease(broker)
        until(broker, lambda server: server.role == "silent")
        yield


def pass_lease(owner: EmbeddedBroker) -> None:
    """Its lease is over, unless a beat is answered."""

    def pass_it(server: Server) -> None:
        keeper = server.shard.keeper
        assert keeper is not None
        now, lease = keeper._now, keeper.lease.terms.lease
        keeper._now = lambda: now() + lease

    _loop_of(owner).call_soon_threadsafe(pass_it, owner.server)


def outwait_lease(follower: EmbeddedBroker) -> None:
    """The clock of a follower runs fast until it takes the shard: soon the row was still for the whole lease."""

    def hurry(server: Server) -> None:
        (keeper,) = server.keepers.values()
        now, lease, ahead = keeper._now, keeper.lease, 0.0

        def fast() -> float:
            nonlocal ahead
            if lease.state == FOLLOWING:
                ahead += lease.terms.lease / 20
            return now() + ahead

        keeper._now = fast

    _loop_of(follower).call_soon_threadsafe(hurry, follower.server)

"""A cluster under load: three shards on four processes that share a PostgreSQL database. Clients are redirected to the
owner of their namespace. Owners, spares and the database fail at random moments; every message is accounted for, as in
takeover.py, and each namespace is in one shard.

    python -m tests.broker.store.cluster --faults 100 --seed 7

Faults are those of takeover.py for the owner of a shard, which the spare takes over, and
- spare       the spare is killed, and started again;
- two         two owners are killed: one shard waits until a process is started again;
- all         all processes are killed, and started again.

Meanwhile clients create namespaces, several at a time through different processes, and patterns and assignments of new
names change: what these clients send to a namespace is found in one place.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import psycopg
from msgpack import unpackb
from tests.postgres import Database, Pooler

from sievemq_core.message.envelope import MESSAGE_ID, Envelope
from sievemq_core.wire.commands import Command

from .kill import Broken, Client, RedirectedError
from .takeover import DEADLINE, PATIENCE, WELCOME, Pair, Process, lives, options, serving, show

SHARDS = ("s0", "s1", "s2")
NAMES = ("a", "b", "c", "d")
NAMESPACES = ("n0", "n1", "n2")
FAULTS = (
    "kill", "pause", "nap", "restore", "partition", "hiccup", "cut", "restart", "stop", "handover", "spare", "two",
    "all",
)  # fmt: skip
#: Redirects in a row that a client follows.
REDIRECTS = 4
#: Clients that create a namespace at a time, and seconds between two of them.
RACERS, RACE_SECONDS = 3, 0.2


class Cluster(Pair):
    """Three shards on four processes.

    Attributes:
        targets: shards whose owners are disturbed.
        target: the one of them whose owner is disturbed now.
        redirects: that clients have followed.
        raced: by namespace that clients have created at a time, what they have sent there and was confirmed.
    """

    def __init__(
        self,
        seed: int,
        database: Database,
        folder: Path,
        faults: Sequence[str] = FAULTS,
        pooler: Pooler | None = None,
        away: float | None = None,
    ) -> None:
        self.targets: Sequence[str] = SHARDS
        self.target = SHARDS[0]
        self.redirects = 0
        self.raced: dict[str, set[str]] = defaultdict(set)
        self._owner_of: dict[str, Process] = {}
        super().__init__(seed, database, folder, faults, pooler=pooler, away=away, names=NAMES, namespaces=NAMESPACES)
        self._by_url = {broker.url: broker for broker in self.brokers}
        for namespace, shard in zip(NAMESPACES, SHARDS, strict=True):
            database.execute("INSERT INTO sievemq.namespace VALUES (%s, %s)", namespace.encode(), shard)

    # -- the brokers ------------------------------------------------------------------------------------------------

    def new_broker(self, name: str, shards: str) -> Process:
        return super().new_broker(name, f"--shards={','.join(SHARDS)}")

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        self.settle()
        self.up.set()

    def owner(self, other_than: Process | None = None) -> Process:
        return self.owner_of(self.target, other_than)

    def owner_of(self, shard: str, other_than: Process | None = None) -> Process:
        """Wait until a process owns a shard."""
        owner = self.until(lambda: self._find(shard, other_than), f"no owner of {shard}")
        assert isinstance(owner, Process)
        return owner

    def _find(self, shard: str, other_than: Process | None) -> Process | None:
        return next((each for each in self.brokers if each is not other_than and each.shard() == shard), None)

    def other(self, owner: Process) -> Process:
        """The spare."""
        spare = self.until(self._find_spare, "no spare")
        assert isinstance(spare, Process)
        return spare

    def _find_spare(self) -> Process | None:
        return next((each for each in self.brokers if each.code() is None and each.runs() and not each.owns()), None)

    def settle(self) -> None:
        for shard in SHARDS:
            self.owner_of(shard)
        self._check_namespaces()

    def _start_again(self, *brokers: Process) -> None:
        for broker in brokers:
            broker.send(signal.SIGKILL)
        for broker in brokers:
            broker.wait()
            broker.start()

    # -- the clients ------------------------------------------------------------------------------------------------

    def client_of(self, broker: Process, client_id: str | None, namespace: str) -> Client:
        for _ in range(REDIRECTS + 1):
            try:
                if namespace not in NAMESPACES:  # one of those that are not connected all the time
                    return Client(broker.port, client_id, namespace=namespace, welcome=WELCOME, patience=PATIENCE)
                return super().client_of(broker, client_id, namespace)
            except RedirectedError as redirected:
                self.redirects += 1
                broker = self._by_url[redirected.url]
            except (EOFError, TimeoutError) as error:  # for now it cannot be found out, or has no owner
                raise ConnectionRefusedError(str(error)) from error
        raise ConnectionRefusedError("redirected too often")

    def race(self) -> None:
        """Create namespaces, each by several clients at a time, until it is over."""
        number = 0
        while not self.over.wait(RACE_SECONDS):
            number += 1
            if number % 5 == 0:
                self._change_patterns()
            name = f"r{number}"
            racers = [threading.Thread(target=self._create, args=(name, f"{name}-{each}")) for each in range(RACERS)]
            for racer in racers:
                racer.start()
            for racer in racers:
                racer.join()

    def _change_patterns(self) -> None:
        chance = random.Random(len(self.raced))
        try:
            self._database.execute("DELETE FROM sievemq.placement")
            self._database.execute("INSERT INTO sievemq.placement VALUES (1, 'r*', %s)", chance.choice(SHARDS))
        except psycopg.Error:
            pass  # the database is away

    def _create(self, namespace: str, message: str) -> None:
        for _ in range(3):
            try:
                with closing(self.connect(None, namespace)) as client:
                    client.request(Command.OPEN_SESSION, 1, 1)
                    client.send("queue:q", message, 20)
                    client.flush()
                    client.await_confirm()
            except Broken:
                continue
            with self.accounts.lock:
                self.raced[namespace].add(message)
            return

    # -- what must be so --------------------------------------------------------------------------------------------

    def _check_namespaces(self) -> None:
        """I12: what is stored of a namespace is in its shard."""
        placed = {bytes(name).decode(): shard for name, shard in self._database.execute("TABLE sievemq.namespace")}
        stored = self._database.execute("SELECT shard, key FROM sievemq.definition WHERE kind = 'namespace'")
        for shard, key in stored:
            (name,) = unpackb(key)
            if placed.get(name) != shard:
                self.accounts.faults.append(f"{name} is stored in {shard}, and placed in {placed.get(name)}")

    def drain(self) -> None:
        super().drain()
        self._check_namespaces()
        for namespace, names in self.raced.items():
            with closing(self.until(lambda name=namespace: self._connected(name), "no client")) as client:  # type: ignore[misc]
                client.request(Command.OPEN_SESSION, 1, 1)
                client.consume(1, "queue:q", 100)
                client.request(Command.PING)
                found = {str(Envelope.from_packed(each[3]).fields[MESSAGE_ID]) for each in client.deliveries}
            if lost := names - found:
                self.accounts.faults.append(f"{sorted(lost)} of the namespace {namespace} are lost: {sorted(found)}")

    def _connected(self, namespace: str) -> Client | None:
        try:
            return self.connect(None, namespace)
        except Broken:
            return None

    def _play(self, kills: int, steps: int) -> list[str]:
        racing = threading.Thread(target=self.race, daemon=True)
        racing.start()
        try:
            return super()._play(kills, steps)
        finally:
            self.over.set()
            racing.join(DEADLINE)

    # -- faults -----------------------------------------------------------------------------------------------------

    def disturb(self) -> None:
        self.target = self.random.choice(self.targets)
        self.wish = (f"--shard={self.target}",)
        super().disturb()

    def _kill(self, owner: Process) -> None:
        self.other(owner)  # else the takeover would last until it has started
        super()._kill(owner)

    def _spare(self, owner: Process) -> None:
        self._start_again(self.other(owner))

    def _two(self, owner: Process) -> None:
        shard = self.random.choice([each for each in SHARDS if each != self.target])
        self._start_again(owner, self.owner_of(shard))

    def _all(self, owner: Process) -> None:
        self._start_again(*self.brokers)


def run(
    seed: int, folder: Path, faults: int, steps: int, kinds: Sequence[str], *, pooled: bool = False
) -> tuple[list[str], Cluster]:
    """One life of a cluster: a database, four processes, so many faults. Returns what is wrong."""
    with serving(pooled=pooled, connections=120) as (database, pooler):
        cluster = Cluster(seed, database, folder, kinds, pooler)
        return cluster.play(faults, steps), cluster


def main() -> int:
    parser = options(__doc__, 100, FAULTS)
    parser.add_argument("--pooled", action="store_true", help="with PgBouncer")
    chosen = parser.parse_args()

    def play(seed: int, folder: Path, faults: int) -> tuple[list[str], Cluster]:
        return run(seed, folder, faults, chosen.steps, chosen.kinds.split(","), pooled=chosen.pooled)

    messages = done = redirects = raced = 0
    takeovers = list[float]()
    for cluster in lives("cluster", chosen, play, len(SHARDS)):
        messages, done = messages + cluster.confirmed, done + cluster.kills
        takeovers += cluster.figures.takeovers
        redirects, raced = redirects + cluster.redirects, raced + len(cluster.raced)
    print(f"{messages} confirmed deliveries over {done} faults, none lost, none unmarked twice")
    print(f"{raced} namespaces created in races, each in one shard; {redirects} redirects")
    show("takeover after a kill", takeovers)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Takeovers under load: two brokers share a PostgreSQL database. Owner, followers and database fail at random moments,
and every message is accounted for, as in kill.py.

    python -m tests.broker.store.takeover --faults 200 --seed 7

A fault is one of
- kill        the owner is killed; the other one takes over; the killed one is started again and follows;
- pause       the owner stops itself at a place of its next write (places.py) until the other one has taken over, and
              goes on then, with half of its clients still connected to it;
- nap         the same, but it goes on before its lease is over for anyone;
- restore     the owner is killed, and the one that takes over stops amid its restore;
- partition   nothing passes between the owner and the database until the other one has taken over; then everything does
              that was sent meanwhile;
- hiccup      the same, for less than a lease;
- cut         all connections of the brokers to the database are ended (pg_terminate_backend);
- restart     the database is stopped at once, and started again: no client may lose its connection by that, a stream
              of events goes on, and requests by HTTP are answered soon, whatever the answer;
- promote     a synchronous standby of the database takes the place of its primary, which is killed;
- lose        the same with a standby that was cut off before and lacks the last writes: the owner ends, and logs how
              many. Nothing is promised about the messages that these writes were about;
- forget      a standby that lacks the last takeover is promoted: the former owner goes on; the other one ends, and logs
              how many writes are lost with its takeover;
- stop        the owner ends in order (SIGTERM), and the other one takes over;
- handover    the other one is started again with --handover, and the owner hands the shard over to it.

At no other time is a message lost, seen twice without its mark, or half of a transaction there.

    python -m tests.broker.store.takeover --kinds restart --away 20 --faults 5

shows that clients keep their connections, and when they get confirms again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

from tests.ports import free_port
from tests.postgres import USER, Database, Pooler, Server

from sievemq_broker.store.postgres_tables import FORMAT

from ...client.relay import Relay
from .kill import STEPS, Client, Life, exit_at_sigterm, folder_for
from .places import PLACES

ROOT = Path(__file__).parents[3]
NAMES = ("a", "b")
FAULTS = (
    "kill", "pause", "nap", "restore", "partition", "hiccup", "cut", "restart", "promote", "lose", "forget", "stop",
    "handover",
)  # fmt: skip
#: Kinds that PgBouncer cannot follow here.
UNPOOLED = ("promote", "lose", "forget")
#: Seconds: the lease, so short that a run has many; how long a takeover may take on a busy machine; a database is away.
LEASE, BEAT = 2.0, 0.25
DEADLINE = 60.0
AWAY = 3.0
#: Seconds that a client waits for WELCOME, and for anything else: a broker that was stopped answers nothing.
WELCOME, PATIENCE = 1.0, 15.0
WRITES = "SELECT max(n) FROM sievemq.written"
#: The status of a broker that answers no request for now.
SILENT = 503
#: The exit code of a broker that another one has superseded.
SUPERSEDED = 75


class Standby(Server):
    """A server that follows another one, until it is promoted."""

    def __init__(self, primary: Server) -> None:
        self._primary = primary
        super().__init__()

    def _initialise(self) -> None:
        options = "-h", str(self._primary.folder), "-U", USER, "--checkpoint=fast", "--write-recovery-conf", "--no-sync"
        command = (*self.as_user, str(self._programs / "pg_basebackup"), "-D", str(self.folder / "data"), *options)
        subprocess.run(command, cwd=self.folder, capture_output=True, timeout=120, check=True)


class Existing(Database):
    """A database that has the tables already."""

    def __init__(self, server: Server) -> None:
        self.server, self.url = server, server.url


class Cable(Relay):
    """What connects a broker and the database, which listens in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(0)
        self.folder = folder

    def _reach(self) -> socket.socket:
        database = socket.socket(socket.AF_UNIX)
        try:
            database.connect(str(self.folder / ".s.PGSQL.5432"))
        except OSError:
            database.close()
            raise
        return database

    def unplug(self) -> None:
        """Let nothing pass, not even the end of a connection: neither side notices."""
        self.hold()
        self.stand()

    def plug(self) -> None:
        """Let pass what was sent meanwhile, and what comes."""
        with self._lock:
            self._holding, self._held = False, []
            known = self._selector.get_map()
            for pair in self._pairs:
                if pair.open and pair.client not in known:
                    self._register(pair)

    def _move(self, *event: Any) -> None:
        if not self._holding:  # else it came just before
            super()._move(*event)


class Process:
    """One of the brokers: a process after the other, on the same ports.

    Args:
        folder: for its log.
        store: URL of the database.
        shards: the option that names its shard, or those that it may take.
        host: address that it listens on.
        prefix: the beginning of its command.

    Attributes:
        version: of the tables that its next run knows; 0 for the present one.
        lease: in seconds.
    """

    def __init__(
        self, name: str, folder: Path, store: str, shards: str, host: str = "127.0.0.1", prefix: Sequence[str] = ()
    ) -> None:
        self.name, self.host = name, host
        self.port, self.http_port = free_port(), free_port()
        self.place = folder / f"{name}.place"
        self.log = folder / f"{name}.log"
        self.url = f"sievemq://{self.host}:{self.port}"
        self._store, self._shards, self._prefix = store, shards, prefix
        self.version = 0
        self.lease = LEASE
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("SIEVEMQ_")}
        environ["SIEVEMQ_DESTINATIONS"] = json.dumps({"*": {"max_attempts": 0}})
        environ["STORE_VERSION"] = str(self.version or FORMAT)
        options = {
            "port": self.port, "http-port": self.http_port, "store": self._store, "host": self.host,
            "beat-seconds": BEAT, "lease-seconds": self.lease, "advertise": self.url, "drain-seconds": 1,
        }  # fmt: skip
        arguments = ["--insecure", self._shards, *more, *(f"--{key}={value}" for key, value in options.items())]
        command = (sys.executable, "-m", "tests.broker.store.places")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, *command, str(self.place), "broker", *arguments],
                stdout=log, stderr=subprocess.STDOUT, env=environ, cwd=ROOT,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def owns(self) -> bool:
        return self._is_well("/activez")

    def shard(self) -> str | None:
        """The one that it owns; None if it owns none, or is silent."""
        try:
            with self.get("/activez", timeout=1.0) as answer:
                return str(json.loads(answer.read())["shard"])
        except (OSError, urllib.error.HTTPError, ValueError):
            return None

    def runs(self) -> bool:
        return self._is_well("/livez")

    def get(self, path: str, method: str = "GET", timeout: float = PATIENCE) -> HTTPResponse:
        """Send a request; returns when the answer begins.

        Raises:
            HTTPError: it is an error.
            OSError: there is none.
        """
        request = urllib.request.Request(f"http://{self.host}:{self.http_port}{path}", method=method)
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=timeout)
        return answer

    def _is_well(self, path: str) -> bool:
        try:
            with self.get(path, timeout=1.0) as answer:
                return answer.status == 200
        except (OSError, urllib.error.HTTPError):
            return False

    def code(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def announced(self) -> int:
        """How many lost writes its last run has logged at its end."""
        records = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        found = [each for each in records if each["event"] == "store.lost_writes" and "reason" in each]
        return int(found[-1]["writes"]) if found else 0

    def is_stopped(self) -> bool:
        """True while SIGSTOP holds it."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(DEADLINE)

    def end(self) -> None:
        """End the process whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(DEADLINE)


class Tracked(Client):
    """A client that its run knows while it is open."""

    def __init__(
        self, open_: set[Tracked], broker: Process, client_id: str | None, namespace: str, patience: float
    ) -> None:
        super().__init__(
            broker.port, client_id, namespace=namespace, host=broker.host, welcome=WELCOME, patience=patience
        )
        self._open = open_
        open_.add(self)

    def close(self) -> None:
        self._open.discard(self)
        super().close()


@dataclass
class Figures:
    """What was measured.

    Attributes:
        takeovers: seconds from a kill to the first broker that owns the shard.
        returns: seconds from the end of the database's restart until clients get on.
        lost: writes that a promotion has lost.
        faults: their kinds.
    """

    takeovers: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    lost: int = 0
    faults: list[str] = field(default_factory=list)


class Pair(Life):
    """Two brokers on a shard, from its first owner to its last.

    Args:
        database: of a server of its own, which is stopped and started.
        folder: for logs.
        faults: kinds to choose from.
        shard: of both.
        pooler: before the database, for the brokers.
        away: seconds for which a restarted database is away; by chance if not given.
        names: of the brokers.
        namespaces: of the clients.
    """

    def __init__(
        self,
        seed: int,
        database: Database,
        folder: Path,
        faults: Sequence[str] = FAULTS,
        shard: str = "main",
        pooler: Pooler | None = None,
        away: float | None = None,
        names: Sequence[str] = NAMES,
        namespaces: tuple[str, ...] = ("",),
    ) -> None:
        super().__init__(seed, folder, namespaces=namespaces)
        self._away = away
        self.figures = Figures()
        self._database = database
        self._kinds = faults
        self._sockets = database.server.folder if pooler is None else pooler.folder
        self._cables: dict[str, Cable] = {}
        self.brokers = [self.new_broker(name, f"--shard={shard}") for name in names]
        self._clients: set[Tracked] = set()
        self._standbys: list[Standby] = []

    @property
    def confirmed(self) -> int:
        """Deliveries."""
        return sum(map(len, self.accounts.confirmed.values()))

    # -- the brokers ------------------------------------------------------------------------------------------------

    def new_broker(self, name: str, shards: str) -> Process:
        """One of the brokers, and what connects it to the database."""
        cable = self._cables[name] = Cable(self._sockets)
        store = self._database.url.replace("@/", f"@127.0.0.1:{cable.port}/").partition("?")[0]
        return Process(name, self.directory, store, shards)

    def part(self, broker: Process) -> None:
        """Part a broker from the database."""
        self._cables[broker.name].unplug()

    def join(self, broker: Process) -> None:
        self._cables[broker.name].plug()

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        self.owner()
        self.up.set()

    def stop(self) -> None:
        self.until(lambda: all(broker.runs() for broker in self.brokers), "some broker did not start")
        for broker in sorted(self.brokers, key=Process.owns):  # the owner last: nobody takes over from it
            broker.send(signal.SIGTERM)
            code = broker.wait()
            if code:
                self.accounts.faults.append(f"broker {broker.name} ended with {code}")

    def end(self) -> None:
        for broker in self.brokers:
            broker.end()
        for cable in self._cables.values():
            cable.close()
        for standby in self._standbys:
            standby.close()

    def owner(self, other_than: Process | None = None) -> Process:
        """Wait until one owns the shard."""
        return self.until(lambda: next((b for b in self.brokers if b is not other_than and b.owns()), None), "no owner")

    def other(self, owner: Process) -> Process:
        """A broker that follows the owner."""
        (other,) = (broker for broker in self.brokers if broker is not owner)
        return other

    def until(self, found: Callable[[], Any], what: str) -> Any:
        """Wait until there is something.

        Raises:
            AssertionError: it does not come.
        """
        end, pause = time.monotonic() + DEADLINE, threading.Event()
        while not (something := found()):
            assert time.monotonic() < end, f"{what} within {DEADLINE} s; {self.accounts.faults}"
            pause.wait(0.02)
        return something

    # -- the clients ------------------------------------------------------------------------------------------------

    def connect(self, client_id: str | None, namespace: str = "") -> Client:
        error: Exception = ConnectionRefusedError()
        for broker in random.sample(self.brokers, len(self.brokers)):
            try:
                return self.client_of(broker, client_id, namespace)
            except OSError as refused:
                error = refused
        self.over.wait(0.05)
        raise error

    def client_of(self, broker: Process, client_id: str | None, namespace: str) -> Client:
        """Connect to a broker."""
        return Tracked(self._clients, broker, client_id, namespace, PATIENCE + (self._away or 0.0))

    def hang_up(self) -> None:
        """End half of the connections to a broker that answers nothing, as heartbeats would."""
        for client in list(self._clients):
            if self.random.random() < 0.5:
                with suppress(OSError):  # it is closed
                    client.sock.shutdown(socket.SHUT_RDWR)

    # -- faults -----------------------------------------------------------------------------------------------------

    #: Options that name the shard that a broker asks for.
    wish: Sequence[str] = ()

    def disturb(self) -> None:
        kind = self.random.choice(self._kinds)
        self.figures.faults.append(kind)
        getattr(self, f"_{kind}")(self.owner())
        for broker in self.brokers:  # on a busy machine one may miss its lease at any time
            code = broker.code()
            if code is not None:
                if code != SUPERSEDED:
                    self.accounts.faults.append(f"broker {broker.name} ended with {code} at {kind}")
                broker.start()
        self.settle()
        self.kills += 1

    def settle(self) -> None:
        """Wait until all is as before a fault."""
        self.owner()

    def _kill(self, owner: Process) -> None:
        begin = time.monotonic()
        owner.send(signal.SIGKILL)
        owner.wait()
        self.owner(other_than=owner)
        self.figures.takeovers.append(time.monotonic() - begin)
        owner.start()

    def _stop_at(self, broker: Process, place: str) -> None:
        broker.place.write_text(place, encoding="utf-8")
        self.until(lambda: broker.is_stopped() or broker.code() is not None, f"{broker.name} did not stop at {place}")

    def _pause(self, owner: Process) -> None:
        self._stop_at(owner, self.random.choice(PLACES[:-1]))
        self.owner(other_than=owner)
        self.hang_up()
        self.over.wait(self.random.random())
        owner.send(signal.SIGCONT)
        code = owner.wait()
        if code != SUPERSEDED:
            self.accounts.faults.append(f"a superseded owner ended with {code}")
        owner.start()

    def _nap(self, owner: Process) -> None:
        self._stop_at(owner, self.random.choice(PLACES[:-1]))
        self.over.wait(self.random.random() * LEASE / 2)
        owner.send(signal.SIGCONT)

    def _restore(self, owner: Process) -> None:
        other = self.other(owner)
        other.place.write_text("restore", encoding="utf-8")
        owner.send(signal.SIGKILL)
        owner.wait()
        self.until(other.is_stopped, f"{other.name} did not stop amid its restore")
        owner.start()
        self.owner(other_than=other)
        other.send(signal.SIGCONT)
        code = other.wait()
        if code != SUPERSEDED:
            self.accounts.faults.append(f"one that was superseded amid its restore ended with {code}")
        other.start()

    def _partition(self, owner: Process) -> None:
        self.part(owner)
        self.owner(other_than=owner)
        self.hang_up()
        self.over.wait(self.random.random())
        self.join(owner)
        code = owner.wait()
        if code != SUPERSEDED:
            self.accounts.faults.append(f"an owner without its database ended with {code}")
        owner.start()

    def _hiccup(self, owner: Process) -> None:
        self.part(owner)
        self.over.wait(self.random.random() * LEASE / 2)
        self.join(owner)

    def _cut(self, owner: Process) -> None:
        self._database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE starts_with(application_name, 'sievemq')"
        )

    def _restart(self, owner: Process) -> None:
        self.until(lambda: len(self._clients) == self.parts, "some client is not connected")
        before, events = set(self._clients), owner.get("/api/v1/events")
        self._await_event(owner, events)
        self._database.server.stop(crash=True)
        end = time.monotonic() + (self.random.random() * AWAY if self._away is None else self._away)
        for path, method in (("/api/v1/broker", "GET"), ("/api/v1/namespaces/default/destinations/queue:in", "PUT")):
            while time.monotonic() < end and self._status(owner, path, method) != SILENT:
                self.over.wait(0.05)
        self.over.wait(max(0.0, end - time.monotonic()))
        self._database.server.start()
        begin = time.monotonic()
        self.accounts.await_steps(self.parts)
        self.figures.returns.append(time.monotonic() - begin)
        self.until(owner.owns, f"{owner.name} did not go on")
        if self._clients != before:
            self.accounts.faults.append(f"{len(before - self._clients)} clients lost their connection by a restart")
        self._await_event(owner, events)
        events.close()

    def _await_event(self, owner: Process, events: HTTPResponse) -> None:
        """Read a stream of events up to the next figures."""
        while (line := events.readline()) and b"event: tick" not in line:
            pass
        if not line:
            self.accounts.faults.append(f"a stream of events of {owner.name} has ended")

    def _status(self, owner: Process, path: str, method: str) -> int:
        """How a request is answered while the database is away."""
        try:
            with owner.get(path, method) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError as error:
            self.accounts.faults.append(f"{method} {path} of {owner.name}: {error!r}")
            return SILENT

    def _promote(self, owner: Process) -> None:
        primary, standby = self._database.server, self._new_standby()
        self.accounts.await_steps(self.random.randrange(100))
        primary.stop(crash=True)
        primary.close()
        self._change_to(standby)
        self._lead_to(standby)
        self.until(owner.owns, f"{owner.name} did not go on")

    def _lose(self, owner: Process) -> None:
        primary, standby = self._database.server, self._new_standby()
        self._cut_off(standby)
        self.accounts.await_steps(1 + self.random.randrange(200))
        kept = self._promote_for(primary, standby)
        self._lead_to(standby)
        self._expect_announced(owner, primary, kept)

    def _forget(self, owner: Process) -> None:
        primary, standby = self._database.server, self._new_standby()
        self.part(owner)
        self._cut_off(standby)
        other = self.owner(other_than=owner)
        self.hang_up()
        self.accounts.await_steps(1 + self.random.randrange(100))
        kept = self._promote_for(primary, standby)
        self._lead_to(standby)
        self.join(owner)
        self._expect_announced(other, primary, kept)

    def _cut_off(self, standby: Standby) -> None:
        """The standby gets no more writes. Until now each one has waited for it."""
        self.accounts.at_risk = True
        self._set(self._database, "synchronous_standby_names", "")
        other = Existing(standby)
        self._set(other, "primary_conninfo", "")
        self.until(lambda: not other.execute("SELECT 1 FROM pg_stat_wal_receiver"), "the standby still follows")

    def _promote_for(self, primary: Server, standby: Standby) -> int:
        """Kill the primary, and promote the standby. Returns the number of its last write."""
        primary.stop(crash=True)
        self._change_to(standby)
        kept: int = self._database.execute(WRITES)[0][0]
        return kept

    def _expect_announced(self, broker: Process, primary: Server, kept: int) -> None:
        """A broker ends, and logs how many writes are lost; then all is as before."""
        code = broker.wait()
        if code != SUPERSEDED:
            self.accounts.faults.append(f"a broker whose database has lost writes ended with {code}")
        primary.start()
        lost = Existing(primary).execute(WRITES)[0][0] - kept
        primary.close()
        # The last one may have been committed without an answer.
        announced = broker.announced()
        if announced not in (lost, lost - 1):
            self.accounts.faults.append(f"{lost} writes were lost, and {announced} announced")
        self.figures.lost += lost
        broker.start()
        self.owner()
        self.until(lambda: len(self._clients) == self.parts, "some client is not connected")
        self.accounts.at_risk = False

    def _new_standby(self) -> Standby:
        """A standby for which each write waits."""
        standby = Standby(self._database.server)
        self._standbys.append(standby)
        standby.start()
        self._set(self._database, "synchronous_standby_names", "*")
        self.until(
            lambda: self._database.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"), "no standby"
        )
        return standby

    def _set(self, database: Database, name: str, value: str) -> None:
        database.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        database.execute("SELECT pg_reload_conf()")

    def _change_to(self, standby: Standby) -> None:
        self._database.server, self._database.url = standby, standby.url
        self._database.execute("SELECT pg_promote()")

    def _lead_to(self, standby: Standby) -> None:
        """Have the brokers reach it from now on."""
        for cable in self._cables.values():
            cable.folder = standby.folder

    def _stop(self, owner: Process) -> None:
        owner.send(signal.SIGTERM)
        self.owner(other_than=owner)
        code = owner.wait()
        if code:
            self.accounts.faults.append(f"an owner ended with {code} after SIGTERM")
        owner.start()

    def _handover(self, owner: Process) -> None:
        other = self.other(owner)
        self.until(other.runs, f"{other.name} did not start")
        other.send(signal.SIGTERM)
        other.wait()
        other.start("--handover", *self.wish)
        self.owner(other_than=owner)
        code = owner.wait()
        if code != SUPERSEDED:
            self.accounts.faults.append(f"an owner that was asked for its shard ended with {code}")
        owner.start()


P = TypeVar("P", bound=Pair)


def run(
    seed: int,
    folder: Path,
    faults: int,
    steps: int,
    kinds: Sequence[str],
    *,
    pooled: bool = False,
    away: float | None = None,
) -> tuple[list[str], Pair]:
    """One life: a database, two brokers, so many faults. Returns what is wrong."""
    with serving(pooled=pooled) as (database, pooler):
        pair = Pair(seed, database, folder, kinds, pooler=pooler, away=away)
        return pair.play(faults, steps), pair


@contextmanager
def serving(*, pooled: bool, connections: int = 60) -> Iterator[tuple[Database, Pooler | None]]:
    """A database of a server of its own, which accepts so many connections.

    Args:
        pooled: with PgBouncer before it.
    """
    with ExitStack() as stack:
        server = Server(max_connections=str(connections))
        stack.callback(server.close)
        server.start()
        pooler = None
        if pooled:
            pooler = Pooler(server)
            stack.callback(pooler.close)
        yield Database(server), pooler


def options(about: str | None, faults: int, kinds: Sequence[str], steps: int = STEPS) -> argparse.ArgumentParser:
    """The options of a program that plays lives, and what they are if not given.

    Args:
        about: the program's docstring.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=faults)
    parser.add_argument("--kinds", default=",".join(kinds))
    parser.add_argument("--steps", type=int, default=steps, help="of the clients, between two faults")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    return parser


def lives(
    name: str,
    chosen: argparse.Namespace,
    play: Callable[[int, Path, int], tuple[list[str], P]],
    incarnations: int = 1,
) -> Iterator[P]:
    """Play lives of ten faults each until all are done; what is wrong in one ends the program.

    Args:
        name: of the program.
        chosen: its options.
        play: one life, by seed, folder and number of faults. Returns what is wrong, and who lived.
        incarnations: of brokers that clients see in a life; one for each shard.
    """
    exit_at_sigterm()
    done, seed = 0, chosen.seed
    while done < chosen.faults:
        with folder_for(name) as folder:
            wrong, lived = play(seed, folder, min(10, chosen.faults - done))
            done += lived.kills
            print(
                f"seed {seed}: {done} faults ({' '.join(lived.figures.faults)}), {lived.confirmed} confirmed in this "
                f"life, {len(wrong)} violations",
                flush=True,
            )
            assert not wrong, "\n".join(wrong[:50])
            assert len(lived.incarnations) == incarnations, lived.incarnations
        yield lived
        seed += 1


def show(what: str, seconds: Sequence[float]) -> None:
    """Print how long something took, if it has happened."""
    if seconds:
        longest = max(seconds)
        print(f"{what}: median {sorted(seconds)[len(seconds) // 2]:.2f} s, longest {longest:.2f} s")


def main() -> int:
    parser = options(__doc__, 200, FAULTS)
    parser.add_argument("--pooled", action="store_true", help="with PgBouncer, which cannot follow a promotion here")
    parser.add_argument("--away", type=float, help="seconds for which a restarted database is away")
    chosen = parser.parse_args()
    kinds = [kind for kind in chosen.kinds.split(",") if not (chosen.pooled and kind in UNPOOLED)]

    def play(seed: int, folder: Path, faults: int) -> tuple[list[str], Pair]:
        return run(seed, folder, faults, chosen.steps, kinds, pooled=chosen.pooled, away=chosen.away)

    messages = done = lost = 0
    takeovers, returns = list[float](), list[float]()
    for pair in lives("takeover", chosen, play):
        messages, done, lost = messages + pair.confirmed, done + pair.kills, lost + pair.figures.lost
        takeovers += pair.figures.takeovers
        returns += pair.figures.returns
    print(f"{messages} confirmed deliveries over {done} faults, none lost, none unmarked twice")
    if lost:
        print(f"but for what {lost} writes were about that replicas lacked: all of these were announced")
    show("takeover after a kill", takeovers)
    show("clients get on after a restart", returns)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Kill -9 under load: a broker with a data directory is killed at random moments and started again, and every message
is accounted for.

    python tests/broker/store/kill.py --kills 200 --seed 7

Clients speak the protocol themselves and do nothing clever: a broken connection is opened again, nothing is sent
again. So what is known of a message is simple: it was confirmed or its fate is open; it was seen unmarked, or marked.

    producers ─► queue:in ─► relays, in transactions ─► queue:out
              ─► queue:plain ─► consumers                            some producers commit three at a time, or 6,000
              ─► topic:t ─► two durable subscriptions

At the end of each life of the directory what is left is drained, and then
- every confirmed message was seen where it had to come, and of a transaction all messages or none;
- none was seen unmarked twice;
- what a relay consumed is in queue:out exactly once, or still in queue:in;
- a subscription saw each producer's messages in order.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sievemq_broker.store.blob import State
from sievemq_broker.store.database import DATABASE, connect
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.message.envelope import MESSAGE_ID, Envelope, pack_properties
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

COMMAND = [sys.executable, "-c", "from sievemq.cli import main; main()"]
DEADLINE = 60.0
#: Of the clients, in the longest life of a broker process.
STEPS = 2_500
#: Messages of a transaction that the broker carries out in several turns, and their bytes: it is written ahead.
#: Seconds within which some of the kills follow its COMMIT.
LARGE, LARGE_BODY = 6_000, 1_000
LARGE_SECONDS = 0.3
SUBSCRIPTIONS = ("all", "some")

Broken = (OSError, ProtocolError, EOFError)


class RedirectedError(EOFError):
    """The broker at a URL has the namespace."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class Client:
    """One connection, read and written by one thread.

    Args:
        namespace: that its destinations are in.
        host: of the broker.
        welcome: seconds that the broker may take to answer HELLO.
        patience: seconds that it may take for anything else.

    Raises:
        RedirectedError: the namespace is another broker's.
        OSError, ProtocolError, EOFError: there is no broker, or it refuses the client now.
    """

    def __init__(
        self,
        port: int,
        client_id: str | None = None,
        *,
        namespace: str = "",
        host: str = "127.0.0.1",
        welcome: float = DEADLINE,
        patience: float = DEADLINE,
    ) -> None:
        self.namespace = namespace
        self.patience = patience
        self.sock = socket.create_connection((host, port), timeout=welcome)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wire = WireConnection("client")
        self.deliveries: list[tuple[int, int, int, bytes]] = []
        self.answers: dict[int, tuple[Any, ...]] = {}
        self.confirmed = 0
        self.sent = 0
        self.requests = 0
        self.welcome: tuple[Any, ...] = ()
        try:
            self.say(Command.HELLO, PROTOCOL_VERSION, namespace, None, None, client_id, 0, "kill", None, {})
            while not self.welcome:
                self.read()
            self.sock.settimeout(patience)
        except Broken:
            self.sock.close()  # the broker was killed before it could answer
            raise

    def say(self, *command: object) -> None:
        self.wire.send(*command)
        self.sock.sendall(self.wire.data_to_send())

    def read(self) -> None:
        data = self.sock.recv(1 << 18)
        if not data:
            raise EOFError
        for command in self.wire.receive_data(data):
            number = command[0]
            if number == Command.DELIVER:
                self.deliveries.append(_delivery(command))
            elif number == Command.CONFIRM:
                self.confirmed = command[2]
            elif number in (Command.OK, Command.ERROR):
                if number == Command.ERROR and not command[1]:
                    if command[2] == ErrorCode.REDIRECT:
                        raise RedirectedError(command[4]["url"])
                    raise EOFError
                self.answers[command[1]] = command
            elif number == Command.WELCOME:
                self.welcome = command
            elif number == Command.SEND_FAILED:
                raise AssertionError(command)

    def request(self, number: int, *fields: object) -> tuple[Any, ...]:
        self.requests += 1
        mine = self.requests
        self.say(number, mine, *fields)
        while mine not in self.answers:
            self.read()
        return self.answers.pop(mine)

    def send(self, where: str, name: str, size: int) -> None:
        self.sent += 1
        packed, letters = pack_properties({"n": self.sent % 10})
        self.wire.send(
            Command.SEND, 1, self.sent, where,
            (name, 1, 4, 2, 0, 0, None, None, None, packed, letters, 2, b"x" * size),
        )  # fmt: skip

    def flush(self) -> None:
        self.sock.sendall(self.wire.data_to_send())

    def await_confirm(self) -> None:
        while self.confirmed < self.sent:
            self.read()

    def consume(self, consumer: int, where: str, credit: int, subscription: str | None = None) -> None:
        selector = "n > 4" if subscription == "some" else None
        answer = self.request(
            Command.OPEN_CONSUMER, 1, consumer, where, selector, None, False, subscription,
            subscription is not None, False, credit,
        )  # fmt: skip
        if answer[0] != Command.OK:
            raise EOFError(answer)

    def close(self) -> None:
        self.sock.close()


def _delivery(command: tuple[Any, ...]) -> tuple[int, int, int, bytes]:
    _, consumer, tag, count, envelope = command[:5]
    packed = envelope if isinstance(envelope, bytes) else Envelope(envelope).packed
    return consumer, tag, count, packed


class Accounts:
    """What is known of every message."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        #: place -> names that must come there.
        self.confirmed: dict[str, set[str]] = defaultdict(set)
        #: place -> name -> how often seen unmarked; marked.
        self.unmarked: dict[str, Counter[str]] = defaultdict(Counter)
        self.marked: dict[str, Counter[str]] = defaultdict(Counter)
        #: place -> names in the order of being seen unmarked.
        self.order: dict[str, list[str]] = defaultdict(list)
        #: transactions of producers: their names, and whether the commit was answered.
        self.transactions: list[tuple[list[str], bool]] = []
        self.faults: list[str] = []
        #: Nothing is promised about what happens now: the database will lose it. And the messages that it was about.
        self.at_risk = False
        self.excused: set[str] = set()
        #: what the clients have done so far, and the condition to wait for it
        self.steps = 0
        self._wanted = 0
        self._reached = threading.Event()

    def step(self) -> None:
        """A client has sent something, or has heard that it is done, or has got messages."""
        with self.lock:
            self.steps += 1
            if self.steps >= self._wanted:
                self._reached.set()

    def await_steps(self, number: int) -> None:
        """Return after so many more steps of the clients."""
        with self.lock:
            self._wanted = self.steps + number
            self._reached.clear()
        if number:
            self.await_event(self._reached)

    def await_event(self, event: threading.Event) -> None:
        """Wait for what clients bring about, as long as they take steps: on a busy machine these are slow.

        Raises:
            AssertionError: they take none.
        """
        steps = self.steps
        while not event.wait(DEADLINE):
            assert self.steps > steps, f"the clients got stuck: {self.faults}"
            steps = self.steps

    def concerns(self, *names: str) -> None:
        """Something happens to messages. The lock is held."""
        if self.at_risk:
            self.excused.update(names)

    def saw(self, place: str, name: str, count: int) -> None:
        with self.lock:
            self.concerns(name)
            if count == 1:
                self.unmarked[place][name] += 1
                self.order[place].append(name)
            else:
                self.marked[place][name] += 1

    def seen(self, place: str) -> set[str]:
        return set(self.unmarked[place]) | set(self.marked[place])

    def violations(self) -> list[str]:
        """What is wrong; empty if all is well."""
        found = list(self.faults)
        for place, names in self.unmarked.items():
            twice = [name for name, n in names.items() if n > 1 and name not in self.excused]
            found += [f"{place}: {name} came {names[name]} times unmarked" for name in twice]
        for place in ("plain", *SUBSCRIPTIONS):
            lost = self.confirmed[place] - self.seen(place) - self.excused
            found += [f"{place}: {name} was confirmed and is lost" for name in lost]
        relayed: Counter[str] = Counter(name.split("~")[1] for name in self.seen("out"))
        found += [f"{name} was relayed {n} times" for name, n in relayed.items() if n > 1]
        left = self.seen("left in")
        found += [f"{name} was relayed and is still there" for name in left & set(relayed)]
        lost = self.confirmed["in"] - left - set(relayed) - self.excused
        found += [f"in: {name} was confirmed and is lost" for name in lost]
        plain = self.seen("plain")
        for names, answered in self.transactions:
            if not self.excused.isdisjoint(names):
                continue
            there = plain.intersection(names)
            if there and len(there) < len(names):
                found.append(f"of the transaction {names} only {sorted(there)} came")
            if answered and not there:
                found.append(f"the committed transaction {names} is lost")
        for place in SUBSCRIPTIONS:
            last: dict[str, int] = {}
            for name in self.order[place]:
                if name in self.excused:
                    continue
                producer, _, number = name.partition("-")
                if int(number) < last.get(producer, -1):
                    found.append(f"{place}: {name} came behind {producer}-{last[producer]}")
                last[producer] = int(number)
        return found


def has_ahead(directory: Path) -> bool:
    """True if there are messages that were written ahead of the end of their commit."""
    database = connect(directory / DATABASE, read_only=True)
    try:
        states = database.execute("SELECT id, data FROM state").fetchall()
    finally:
        database.close()
    return any(State.unpack(batch_id, data).live == 0 for batch_id, data in states)


class Life:
    """One data directory from its first broker to its last.

    Args:
        options: of the broker.
        namespaces: the same clients are in each of them.
    """

    def __init__(
        self, seed: int, directory: Path, options: tuple[str, ...] = (), namespaces: tuple[str, ...] = ("",)
    ) -> None:
        self.namespaces = namespaces
        self.random = random.Random(seed)
        self.directory = directory
        self.options = options
        self.accounts = Accounts()
        self.port = 0
        self.http_url: str | None = None
        self.process: subprocess.Popen[str] | None = None
        self.up = threading.Event()
        #: The COMMIT of a large transaction is sent now.
        self.committing = threading.Event()
        self.over = threading.Event()
        self.incarnations: set[str] = set()
        #: How often the broker was killed, and how often of that after it had written a part of a commit ahead.
        self.kills = self.kills_ahead = 0
        #: Clients that play at a time.
        self.parts = 0

    # -- the broker ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
        # A message that is with a consumer at every crash is no poison here, however often that happens.
        environ["SIEVEMQ_DESTINATIONS"] = json.dumps({"*": {"max_attempts": 0}})
        self.process = subprocess.Popen(
            [*COMMAND, "broker", "--port", "0", "--no-http", "--data-dir", str(self.directory), *self.options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record["event"] == "broker.ready":
                self.port = urlsplit(record["url"]).port or 0
                self.http_url = record["http_url"]
                self.up.set()
                return
        raise AssertionError(f"the broker did not start: {said}")

    def kill(self) -> None:
        assert self.process is not None
        self.up.clear()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.kills += 1
        self.kills_ahead += has_ahead(self.directory)

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        rest = self.process.stdout.read()
        self.process.stdout.close()
        code = self.process.wait(DEADLINE)
        if code:
            self.accounts.faults.append(f"the broker ended with {code}: {rest}")

    def end(self) -> None:
        """End the broker whatever it does."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)
        if self.process.stdout is not None:
            self.process.stdout.close()

    # -- who uses it --------------------------------------------------------------------------------------------

    def play(self, kills: int, steps: int) -> list[str]:
        """Kill the broker so many times; returns what is wrong afterwards.

        Args:
            kills: how many.
            steps: of the clients, in the longest life of a broker process. Each life has a number of them by chance,
                and ends with whatever the broker is doing then: in a commit as well as between two. Half of them end
                soon after a large COMMIT.
        """
        try:
            return self._play(kills, steps)
        finally:
            self.over.set()  # after an error clients would go on for as long as this process runs
            self.end()

    def _play(self, kills: int, steps: int) -> list[str]:
        self.start()
        self.subscribe()
        parts = [
            *((self.produce, (number,)) for number in range(3)),
            *((self.produce_in_transactions, (number,)) for number in range(3, 5)),
            *((self.relay, (number,)) for number in range(2)),
            *((self.consume, ("queue:plain", "plain", None)) for _ in range(2)),
            *((self.consume, ("topic:t", name, name)) for name in SUBSCRIPTIONS),
        ]
        self.parts = len(parts) * len(self.namespaces)
        threads = [
            threading.Thread(target=self.play_part, args=(namespace, *part), daemon=True)
            for namespace in self.namespaces
            for part in parts
        ]
        for thread in threads:
            thread.start()
        for _ in range(kills):
            self.accounts.await_steps(self.random.randrange(steps))
            if self.random.random() < 0.5:
                self.committing.clear()
                self.accounts.await_event(self.committing)
                self.over.wait(LARGE_SECONDS * self.random.random())
            self.disturb()
        self.accounts.await_steps(steps)
        self.over.set()
        for thread in threads:
            thread.join(DEADLINE)
            if thread.is_alive():
                self.accounts.faults.append("a client hangs")
        self.drain()
        self.stop()
        return self.accounts.violations()

    def disturb(self) -> None:
        """Do what the clients have to live through."""
        self.kill()
        self.start()

    def connect(self, client_id: str | None, namespace: str = "") -> Client:
        """Connect a client to the broker.

        Raises:
            OSError, ProtocolError, EOFError: there is none, or it refuses the client now.
        """
        return Client(self.port, client_id, namespace=namespace)

    def play_part(self, namespace: str, part: Any, arguments: tuple[Any, ...]) -> None:
        """Let one client live until it is over, on one connection after the other."""
        state: dict[str, int] = {}
        while not self.over.is_set():
            if not self.up.wait(DEADLINE):
                continue
            client = None
            try:
                client = self.connect(arguments[2] if part == self.consume else None, namespace)
                with self.accounts.lock:
                    self.incarnations.add(client.welcome[3])
                part(client, state, *arguments)
            except Broken:
                pass
            except Exception as error:
                self.accounts.faults.append(f"{part.__name__}: {error!r}")
                return
            finally:
                if client is not None:
                    client.close()

    def subscribe(self) -> None:
        for namespace, name in itertools.product(self.namespaces, SUBSCRIPTIONS):
            client = self.connect(name, namespace)
            client.request(Command.OPEN_SESSION, 1, 2)
            client.consume(1, "topic:t", 0, name)
            client.close()

    def produce(self, client: Client, state: dict[str, int], number: int) -> None:
        client.request(Command.OPEN_SESSION, 1, 1)
        choose = random.Random(f"{number}{state}")
        while not self.over.is_set():
            batch: list[tuple[str, str, int]] = []
            for _ in range(choose.choice((1, 1, 5, 40))):
                state["n"] = state.get("n", 0) + 1
                where = choose.choice(("in", "plain", "t"))
                name = f"{client.namespace}p{number}-{state['n']}"
                client.send(f"topic:{where}" if where == "t" else f"queue:{where}", name, 200)
                batch.append((where, name, client.sent % 10))
            client.flush()
            self.accounts.step()
            client.await_confirm()
            self.accounts.step()
            with self.accounts.lock:
                for where, name, n in batch:
                    self.accounts.concerns(name)
                    if where != "t":
                        self.accounts.confirmed[where].add(name)
                        continue
                    self.accounts.confirmed["all"].add(name)
                    if n > 4:
                        self.accounts.confirmed["some"].add(name)

    def produce_in_transactions(self, client: Client, state: dict[str, int], number: int) -> None:
        client.request(Command.OPEN_SESSION, 1, 0)
        choose = random.Random(f"{number}{state}")
        while not self.over.is_set():
            names = []
            count, size = (LARGE, LARGE_BODY) if choose.random() < 0.02 else (3, 50)
            for _ in range(count):
                state["n"] = state.get("n", 0) + 1
                names.append(f"{client.namespace}p{number}-{state['n']}")
                client.send("queue:plain", names[-1], size)
            answered = False
            self.accounts.step()
            if count == LARGE:
                self.committing.set()
            try:
                answered = client.request(Command.COMMIT, 1, ())[0] == Command.OK
                self.accounts.step()
            finally:
                with self.accounts.lock:
                    self.accounts.concerns(*names)
                    self.accounts.transactions.append((names, answered))

    def relay(self, client: Client, state: dict[str, int], number: int) -> None:
        client.request(Command.OPEN_SESSION, 1, 0)
        client.consume(1, "queue:in", 20)
        while not self.over.is_set():
            client.sock.settimeout(0.1)
            try:
                while not client.deliveries:
                    client.read()
            except TimeoutError:
                continue
            finally:
                client.sock.settimeout(client.patience)
            taken, client.deliveries = client.deliveries, []
            for _, _, count, packed in taken:
                name = self.saw(client, "in", count, packed)
                state["n"] = state.get("n", 0) + 1
                client.send("queue:out", f"{client.namespace}r{number}.{state['n']}~{name}", 20)
            self.accounts.step()
            client.request(Command.COMMIT, 1, (1, taken[-1][1]))
            self.accounts.step()
            client.say(Command.CREDIT, 1, len(taken))

    def consume(self, client: Client, state: dict[str, int], where: str, place: str, subscription: str | None) -> None:
        client.request(Command.OPEN_SESSION, 1, 1)
        client.consume(1, where, 50, subscription)
        client.sock.settimeout(0.1)
        while not self.over.is_set():
            try:
                if not client.deliveries:  # some came with the answer to OPEN_CONSUMER
                    client.read()
            except TimeoutError:
                continue
            taken, client.deliveries = client.deliveries, []
            for _, _, count, packed in taken:
                self.saw(client, place, count, packed)
            if taken:
                self.accounts.step()
                client.say(Command.ACKNOWLEDGE, 1, taken[-1][1], len(taken))

    def saw(self, client: Client, place: str, count: int, packed: bytes) -> str:
        """A client has got a message. Returns its name."""
        name = str(Envelope.from_packed(packed).fields[MESSAGE_ID])
        self.accounts.saw(place, name, count)
        if not name.startswith(client.namespace):
            self.accounts.faults.append(f"{name} came in the namespace {client.namespace}")
        return name

    def drain(self) -> None:
        """Take everything that is left."""
        places = [("queue:in", "left in", None), ("queue:plain", "plain", None), ("queue:out", "out", None)]
        places += [("topic:t", name, name) for name in SUBSCRIPTIONS]
        for namespace, (where, place, subscription) in itertools.product(self.namespaces, places):
            deadline = time.monotonic() + DEADLINE
            while True:
                try:
                    client = self.connect(subscription, namespace)
                    client.request(Command.OPEN_SESSION, 1, 1)
                    client.consume(1, where, 10_000, subscription)
                    break
                except Broken:  # the broker has not seen yet that the last holder of the client id is gone
                    if time.monotonic() > deadline:
                        raise
            while True:
                client.request(Command.PING)
                if not client.deliveries:
                    break
                taken, client.deliveries = client.deliveries, []
                for _, _, count, packed in taken:
                    self.saw(client, place, count, packed)
                client.say(Command.ACKNOWLEDGE, 1, taken[-1][1], len(taken))
            client.close()


def exit_at_sigterm() -> None:
    """Have SIGTERM end this program as SIGINT does: together with what it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextmanager
def folder_for(name: str) -> Iterator[Path]:
    """A temporary folder, which stays only if something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix=f"sievemq-{name}-"))
    try:
        yield folder
    except Exception:
        print(f"what it has left is in {folder}")
        raise
    except BaseException:  # an interrupt
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def main() -> int:
    """Run lives of ten kills each until all kills are done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--steps", type=int, default=STEPS, help="of its clients, in the longest life of a broker")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    exit_at_sigterm()
    done = ahead = messages = 0
    seed = arguments.seed
    while done < arguments.kills:
        kills = min(10, arguments.kills - done)
        with folder_for("kill") as directory:
            life = Life(seed, directory)
            wrong = life.play(kills, arguments.steps)
            done, ahead = done + life.kills, ahead + life.kills_ahead
            confirmed = sum(map(len, life.accounts.confirmed.values()))
            messages += confirmed
            print(f"seed {seed}: {done} kills, {confirmed} confirmed in this life, {len(wrong)} violations", flush=True)
            assert not wrong, "\n".join(wrong[:50])
            assert len(life.incarnations) == 1, life.incarnations
        seed += 1
    print(f"{done} kills, {ahead} amid a commit that was partly written ahead")
    print(f"{messages} confirmed deliveries, none lost, none unmarked twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())

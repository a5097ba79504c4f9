"""Takeovers in simulated worlds: three broker processes, one database, clients; pauses, kills, partitions, lost
answers, copies of writes that commit late, clocks that are set, and promoted replicas that lack the last commits.

    python -m tests.broker.store.simulation --seeds 2000
    python -m tests.broker.store.simulation --fault "no gate" --seeds 100 --first
    python -m tests.broker.store.simulation --seed 17 --loses
    python -m tests.broker.store.simulation --cluster --seeds 500

Producers, transacted producers, a publisher of batches, a relay, consumers and a durable subscriber speak the protocol.
What leaves a broker is checked as it leaves, and each write as it commits:

    I1   what was confirmed or committed is in the database, or was consumed
    I2   no message is delivered unmarked twice
    I3   what was acknowledged is never delivered again
    I4   each commit is the current owner's, and no token comes again
    I5   each write is applied once
    I6   nothing leaves a broker that does not own the shard any more
    I7   a transaction is stored in one write
    I8   a subscriber gets the messages of a producer in order
    I9   a repeated send takes effect once, and a client is never told of a send that is not stored
    I10  the delivery count of a message never falls
    I11  an owner restores what the database has
    I12  a namespace is in one shard
    I13  once all is well, a process owns the shard, and everything arrives
    I14  an owner waits for its database for as long as its patience lasts
    I15  a batch is published once, and the number of the last one never falls; a tap has each message once, and neither
         its sequences nor what was acknowledged go back

In a cluster there are three shards on four processes, with the same clients in a namespace of each. Others create
namespaces, or are sent to their owners, while patterns and assignments change.

With a promotion that lacks commits, nothing is promised about the messages that these commits were about; if they
included a takeover, nothing about sends without a confirm either.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, ClassVar, NamedTuple

from tests.broker.session.harness import AUTO, CLIENT, TRANSACTED, envelope, open_consumer

from sievemq_broker.domain import Queue
from sievemq_broker.store.lease import STATES
from sievemq_core.errors import ErrorCode
from sievemq_core.message.envelope import MESSAGE_ID
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_core.wire.connection import WireConnection

from .simulated import KEEP, Database, Link, Process, World
from .simulated_names import ASSIGN_NOT_FENCED, ASSIGN_TWICE, PATTERNS_CACHED
from .support import name_of

#: Seconds of a run in which things fail, and for which everything may take to arrive after that.
TROUBLE, PEACE = 25.0, 60.0


class Bias(NamedTuple):
    """What a world has more of, so that a fault is found in few of them.

    Attributes:
        loses: replicas that lack the last commits are promoted.
        often: kinds of trouble.
        slow: how often a message to or from the database is slow.
        cluster: there are several shards.
    """

    loses: bool = False
    often: tuple[str, ...] = ()
    slow: float = 0.0
    cluster: bool = False


#: Planted faults, and in which worlds they are looked for.
FAULTS = {
    "fence after commit": Bias(),
    "repeat without number": Bias(),
    "read before the takeover": Bias(often=("stop",)),
    "output not held": Bias(),
    "progress in a later write": Bias(),
    "no gate": Bias(slow=0.1),
    "no patience": Bias(),
    "take without comparing": Bias(often=("stop",), slow=0.3),
    "suspicion taken for death": Bias(slow=0.1),
    "lease counted from the answer": Bias(slow=0.3),
    "lease by the wall clock": Bias(),
    "observed over any connection": Bias(loses=True, often=("isolation",)),
    "new batches forgotten": Bias(),
    "states of what was followed forgotten": Bias(),
    "followed batches that are gone restored": Bias(),
    PATTERNS_CACHED: Bias(cluster=True),
    ASSIGN_NOT_FENCED: Bias(cluster=True),
    ASSIGN_TWICE: Bias(cluster=True),
}

#: Of a cluster.
SHARDS, MACHINES = ("s0", "s1", "s2"), 4
#: Namespaces that several clients create at a time, and that are assigned.
SHARED_NAMES = 4


class Checker:
    """What is known of every message, and what must not be."""

    def __init__(self, world: World) -> None:
        self.world = world
        #: The messages of a transaction, by each of them.
        self.together: dict[str, tuple[str, ...]] = {}
        self.sent: set[str] = set()
        self.promised: set[str] = set()
        self.acknowledged: set[str] = set()
        self.unmarked: Counter[str] = Counter()
        self.deliveries: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def handed(self, link: Link, commands: Iterable[tuple[Any, ...]]) -> None:
        """Output leaves a broker."""
        world, process, client = self.world, link.process, link.client
        database = process.database
        if database.row.token != process.token and not database.takeover_lost:
            world.blame(f"I6: {[COMMANDS[command[0]].name for command in commands]} after another owner's takeover")
        for command in commands:
            number = command[0]
            if number == Command.DELIVER:
                self._delivered(database, client, command[3], str(command[4][MESSAGE_ID]))
            elif number == Command.CONFIRM and client.is_confirmed_singly:
                self._promise(database, (name for sequence, name in client.sends.items() if sequence <= command[2]))
            elif number == Command.OK:
                self._answered(database, *client.requests.get(command[1], ("", ())))
            elif number == Command.WELCOME:
                world.names.entered(database.shard, client.namespace)
                if client.is_confirmed_singly and command[7]["resumed"]:
                    for _, sent, _ in command[7]["resumed"]["sessions"]:
                        self._promise(database, (name for sequence, name in client.sends.items() if sequence <= sent))
            elif number == Command.SEND_FAILED:
                world.blame(f"{client.name}: {command}")

    def _delivered(self, database: Database, client: Client, count: int, name: str) -> None:
        world = self.world
        world.count("deliveries")
        if database.excuses(name):
            return
        if name in self.acknowledged:
            world.blame(f"I3: {name} is delivered, and was acknowledged")
        if count == 1:
            self.unmarked[name] += 1
            if self.unmarked[name] > 1:
                world.blame(f"I2: {name} is delivered unmarked again")
            if client.keeps_order:
                producer, _, number = name.partition("-")
                if int(number) < self._last.get(producer, -1):
                    world.blame(f"I8: {name} is delivered behind {producer}-{self._last[producer]}")
                self._last[producer] = int(number)
        if not database.is_marked(name):
            world.blame(f"I2: {name} is delivered, and the database does not know")
        if count < self.deliveries.get(name, 0):
            world.blame(f"I10: {name} is delivered with count {count} after {self.deliveries[name]}")
        self.deliveries[name] = count

    def copied(self, database: Database, name: str) -> None:
        """A reader has got a message of a tap."""
        if name in self.deliveries:
            self.world.blame(f"I15: {name} is in the tap twice")
        if not database.holds(name):
            self.world.blame(f"I15: {name} is read from a tap, and the database does not know")
        self.deliveries[name] = 1

    def _promise(self, database: Database, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.promised:
                self.promised.add(name)
                if not database.holds(name):
                    self.world.blame(f"I1: {name} is confirmed, and not stored")

    def _answered(self, database: Database, kind: str, names: tuple[str, ...]) -> None:
        if kind in ("commit", "publish"):
            self._promise(database, names)
        elif kind == "relay":
            self._promise(database, names[1:])
            names = names[:1]
        if kind in ("acknowledge", "relay"):
            for name in names:
                self.acknowledged.add(name)
                if not database.is_gone(name):
                    self.world.blame(f"I3: {name} is acknowledged, and still stored")

    def check_end(self) -> None:
        """Everything was consumed."""
        databases = self.world.databases.values()
        lost = (name for name in self.promised - self.deliveries.keys() if not any(d.excuses(name) for d in databases))
        for name in sorted(lost):
            self.world.blame(f"I1: {name} was confirmed, and is lost")


# -- clients ----------------------------------------------------------------------------------------------------------


class Client:
    """Connects to one broker after the other until one welcomes it, and connects again when the connection is lost.

    Args:
        name: of the client; before a dot it has that of its namespace.

    Attributes:
        namespace: that its destinations are in.
        sends: names of its messages, by sequence.
        requests: what each of its requests is, and about which messages.
    """

    keep = 0
    client_id: str | None = None
    is_confirmed_singly = False
    keeps_order = False

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.namespace = name.rpartition(".")[0]
        self.sends: dict[int, str] = {}
        self.requests: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.link: Link | None = None
        self._wire = WireConnection("client")
        self._connection: str | None = None
        self._slot = 0
        self._attempt = 0
        self._request = 0
        self._heard = 0.0
        self._is_ready = False
        self._connect()

    # -- what a kind of client adds -------------------------------------------------------------------------------

    def welcomed(self, sessions: dict[int, tuple[int, int]]) -> None:
        """A connection stands.

        Args:
            sessions: what the broker knows of the lost one: by session the last send, and the last request.
        """
        raise NotImplementedError

    def answered(self, request: int, kind: str, result: Any) -> None:
        """A request was carried out."""

    def confirmed(self, sequence: int) -> None:
        """Sends were."""

    def delivered(self, tag: int, name: str) -> None:
        """A message came."""

    def broke(self) -> None:
        """The connection is lost."""

    @property
    def waits(self) -> bool:
        """The client expects something of the broker."""
        return False

    # -- the connection -------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        self.world.after(self.world.chance.uniform(0.01, 0.3), self._try)

    def _try(self) -> None:
        process = self.world.processes[self._slot % len(self.world.processes)]
        if process is None or not process.listens:
            self._slot += 1
            self._connect()
            return
        self._wire = WireConnection("client")
        self.link = process.accept(self, self._wire)
        self._is_ready = False
        self._heard = self.world.now
        self._attempt += 1
        options = {"keep": self.keep, "attempt": self._attempt}
        resume = self._connection if self.keep else None
        self.say(Command.HELLO, 1, self.namespace, None, None, self.client_id, 0, self.name, resume, options)
        self.flush()
        self.world.after(1.0, partial(self._watch, self.link))

    def _watch(self, link: Link) -> None:
        """Give up a connection on which nothing comes."""
        if self.link is link:
            if self.world.now - self._heard > 5.0 and (self.waits or not self._is_ready):
                self._slot += 1
                self.drop()
            else:
                self.world.after(1.0, partial(self._watch, link))

    def drop(self) -> None:
        """The client, or the network, ends the connection."""
        link = self.link
        if link is not None:
            self.world.after(self.world.near(), link.cut, link.process)
            self.lost(link)

    def lost(self, link: Link) -> None:
        if self.link is link:
            self.link = None
            self._is_ready = False
            self.broke()
            self._connect()

    def say(self, *command: object) -> None:
        self._wire.send(*command)

    def ask(self, kind: str, names: tuple[str, ...], command: int, *fields: object) -> int:
        """Say a request; its number."""
        self._request += 1
        self.requests[self._request] = kind, names
        self.say(command, self._request, *fields)
        return self._request

    def flush(self) -> None:
        link, data = self.link, self._wire.data_to_send()
        if link is not None and data:
            link.up.append(data)
            self.world.after(self.world.near(), link.arrive, link.process)

    @property
    def ready(self) -> bool:
        return self.link is not None and self._is_ready

    def heard(self, link: Link, commands: list[tuple[Any, ...]]) -> None:
        if self.link is not link:
            return
        self._heard = self.world.now
        for command in commands:
            number = command[0]
            if number == Command.WELCOME:
                self._connection, self._is_ready = command[4], True
                resumed = command[7]["resumed"] or {"sessions": ()}
                self.welcomed({session: (sent, settled) for session, sent, settled in resumed["sessions"]})
            elif number == Command.DELIVER:
                self.delivered(command[2], str(command[4][MESSAGE_ID]))
            elif number == Command.CONFIRM:
                self.confirmed(command[2])
            elif number == Command.OK:
                self.answered(command[1], self.requests[command[1]][0], command[2])
            elif number == Command.ERROR:
                if command[2] == ErrorCode.REDIRECT:
                    self._slot = int(command[4]["url"].removeprefix("sievemq://machine"))
                elif command[2] == ErrorCode.UNAVAILABLE:
                    self._slot += 1
                elif command[2] == ErrorCode.INTERNAL:
                    self.world.blame(f"{self.name}: {command}")
                self.world.count(f"errors {ErrorCode(command[2]).name}")
                self.drop()
                return
        self.flush()

    def send(self, sequence: int, where: str, name: str) -> None:
        self.sends[sequence] = name
        self.world.checker.sent.add(name)
        self.say(Command.SEND, 1, sequence, where, envelope(mid=name))


class Producer(Client):
    """Sends messages one by one, without waiting for the confirms; repeats those of a lost connection that the broker
    does not know."""

    keep = KEEP
    is_confirmed_singly = True

    def __init__(self, world: World, name: str, where: str) -> None:
        self._where = where
        self._sequence = self._confirmed = 0
        self.is_open = False
        super().__init__(world, name)
        self._act()

    def _act(self) -> None:
        if self.world.is_calm and self.world.now > TROUBLE:
            return
        self.world.after(self.world.chance.expovariate(4), self._act)
        if self._sequence - self._confirmed < 20:
            for _ in range(self.world.chance.randint(1, 3)):
                self._sequence += 1
                self.sends[self._sequence] = f"{self.name}-{self._sequence}"
                if self.is_open:
                    self.send(self._sequence, self._where, self.sends[self._sequence])
            self.flush()

    def welcomed(self, sessions: dict[int, tuple[int, int]]) -> None:
        self._confirmed = max(self._confirmed, sessions.get(1, (0, 0))[0])
        self.ask("open", (), Command.OPEN_SESSION, 1, AUTO, self._confirmed)
        for sequence in range(self._confirmed + 1, self._sequence + 1):
            self.send(sequence, self._where, self.sends[sequence])
        self.is_open = True

    def confirmed(self, sequence: int) -> None:
        self._confirmed = max(self._confirmed, sequence)

    def broke(self) -> None:
        self.is_open = False

    @property
    def waits(self) -> bool:
        return self._confirmed < self._sequence


class Grouped(Client):
    """Sends messages that belong together, a group at a time."""

    #: Groups a second, and messages of one at most.
    rate: ClassVar = 3
    most: ClassVar = 3

    def __init__(self, world: World, name: str, where: str) -> None:
        self._where = where
        self._number = 0
        self._names: tuple[str, ...] = ()
        self._is_open = False
        super().__init__(world, name)
        self._act()

    def _act(self) -> None:
        if self.world.is_calm and self.world.now > TROUBLE:
            return
        self.world.after(self.world.chance.expovariate(self.rate), self._act)
        if not self._names:
            first = self._number + 1
            self._number += self.world.chance.randint(2, self.most)
            self._names = tuple(f"{self.name}-{number}" for number in range(first, self._number + 1))
            self.world.checker.together.update(dict.fromkeys(self._names, self._names))
            if self._is_open:
                self._say()

    def _say(self) -> None:
        """Send the group."""
        raise NotImplementedError

    def broke(self) -> None:
        self._is_open = False

    @property
    def waits(self) -> bool:
        return bool(self._names)


class TransactedProducer(Grouped):
    """Sends two or three messages a transaction. After a loss WELCOME shows whether the last one was committed; if not,
    it is sent again."""

    keep = KEEP

    def __init__(self, world: World, name: str, where: str) -> None:
        self._sequence = self._commit = 0
        super().__init__(world, name, where)

    def _say(self) -> None:
        for name in self._names:
            self._sequence += 1
            self.send(self._sequence, self._where, name)
        self._commit = self.ask("commit", self._names, Command.COMMIT, 1, ())
        self.flush()

    def welcomed(self, sessions: dict[int, tuple[int, int]]) -> None:
        if self._commit and sessions.get(1, (0, 0))[1] == self._commit:
            self._names, self._commit = (), 0
        self.ask("open", (), Command.OPEN_SESSION, 1, TRANSACTED, self._sequence)
        self._is_open = True
        if self._names:
            self._say()

    def answered(self, request: int, kind: str, result: Any) -> None:
        if request == self._commit:
            self._names, self._commit = (), 0


class Publisher(Grouped):
    """Stages batches and publishes each under a number; says the last one again after a loss, until it is known."""

    rate, most = 2, 4

    def __init__(self, world: World, name: str, where: str) -> None:
        self._batch = 1
        super().__init__(world, name, where)

    def _say(self) -> None:
        for sequence, name in enumerate(self._names, len(self.sends) + 1):
            self.send(sequence, self._where, name)
        self.ask("stage", (), Command.STAGE, 1, self.name, self._batch, 600_000)
        self.flush()

    def welcomed(self, sessions: dict[int, tuple[int, int]]) -> None:
        self.sends.clear()
        self.ask("open", (), Command.OPEN_SESSION, 1, TRANSACTED, 0)
        self._is_open = True
        if self._names:
            self._say()

    def answered(self, request: int, kind: str, result: Any) -> None:
        if kind == "stage":
            self.ask("publish", self._names, Command.PUBLISH, self.name, self._batch, (result,))
        elif kind == "publish":
            self._names = ()
            self._batch += 1


class Consumer(Client):
    """Acknowledges what came, or a part of it, a little later."""

    def __init__(self, world: World, name: str, where: str, subscription: str | None = None) -> None:
        self._where = where
        self._subscription = subscription
        if subscription is not None:
            self.client_id = name
            self.keeps_order = True
        self.has_opened = False
        self._buffer: list[tuple[int, str]] = []
        self._is_due = False
        self._consumer = 0
        self._opens = 0
        super().__init__(world, name)

    def welcomed(self, sessions: dict[int, tuple[int, int]]) -> None:
        self._consumer += 1
        self.ask("open", (), Command.OPEN_SESSION, 1, CLIENT, 0)
        opening = open_consumer(
            1, self._consumer, self._where, 4, subscription=self._subscription, durable=self._subscription is not None
        )
        self._opens = self.ask("open", (), opening[0], *opening[2:])

    def answered(self, request: int, kind: str, result: Any) -> None:
        self.has_opened = self.has_opened or request == self._opens

    def delivered(self, tag: int, name: str) -> None:
        self._buffer.append((tag, name))
        if not self._is_due:
            self._is_due = True
            self.world.after(self.world.chance.expovariate(20), partial(self._acknowledge, self.link))

    def _acknowledge(self, link: Link | None) -> None:
        if self.link is not link or not self._buffer:
            return
        self._is_due = False
        count = self.world.chance.randint(1, len(self._buffer))
        done, self._buffer = self._buffer[:count], self._buffer[count:]
        names = tuple(name for _, name in done)
        self.ask("acknowledge", names, Command.ACKNOWLEDGE_ALL, 1, (self._consumer, done[-1][0]))
        self.say(Command.CREDIT, self._consumer, count)
        self.flush()
        if self._buffer:
            self._is_due = True
            self.world.after(self.world.chance.expovariate(20), partial(self._acknowledge, link))

    def broke(self) -> None:
        self._buffer.clear()
        self._is_due = False

    @property
    def waits(self) -> bool:
        """An idle consumer would not learn that its broker is silent; a real one has heartbeats."""
        return True


class Relay(Client):
    """Passes messages on, each in a transaction; forgets a lost one, whose message comes again if it must."""

    def __init__(self, world: World, name: str, source: str, target: str) -> None:
        self._source, self._target = source, target
        self._sequence = self._consumer = 0
        super().__init__(world, name)

    def welcomed(self, sessions: dict[int, tuple[int, int]]) -> None:
        self._sequence = 0
        self._consumer += 1
        self.ask("open", (), Command.OPEN_SESSION, 1, TRANSACTED, 0)
        opening = open_consumer(1, self._consumer, self._source, 1)
        self.ask("open", (), opening[0], *opening[2:])

    def delivered(self, tag: int, name: str) -> None:
        self._sequence += 1
        self.send(self._sequence, self._target, f"o~{name}")
        self.ask("relay", (name, f"o~{name}"), Command.COMMIT, 1, (self._consumer, tag))

    def answered(self, request: int, kind: str, result: Any) -> None:
        if kind == "relay":
            self.say(Command.CREDIT, self._consumer, 1)

    @property
    def waits(self) -> bool:
        return True


class TapReader(Client):
    """Reads what a tap copies from a topic, and acknowledges it now and then. It remembers how far it has read."""

    def __init__(self, world: World, name: str, where: str) -> None:
        self._place = name, where
        self._id = ""
        self._read = self._acknowledged = 0
        super().__init__(world, name)

    @property
    def has_opened(self) -> bool:
        return bool(self._id)

    def welcomed(self, sessions: dict[int, tuple[int, int]]) -> None:
        self.ask("tap", (), Command.OPEN_TAP, *self._place, "copy", None, None, {"lease": KEEP})

    def answered(self, request: int, kind: str, result: Any) -> None:
        if kind == "fetch":
            assert self.link is not None
            first, _, _, envelopes = result
            names = [envelope[MESSAGE_ID] for envelope in envelopes]
            if names and first != self._read + 1:
                self.world.blame(f"I15: the tap continues with {first} behind {self._read}")
            self._read += len(names)
            for name in names:
                self.world.checker.copied(self.link.process.database, name)
        elif kind == "look" and result["upto"] > self._read:
            self.ask("fetch", (), Command.FETCH_TAP, *self._place, self._id, self._read, result["upto"], 50)
            return
        else:
            self._id = result["id"]
            if result["acknowledged"] < self._acknowledged and kind != "look":
                self.world.blame(f"I15: the tap has forgotten {self._acknowledged}")
            if kind != "look":
                self._acknowledged = max(self._acknowledged, result["acknowledged"])
        self.world.after(self.world.chance.uniform(0.05, 0.5), partial(self._go_on, self.link))

    def _go_on(self, link: Link | None) -> None:
        if self.link is not link or not self.ready:
            return
        if self._read > self._acknowledged and self.world.chance.random() < 0.5:
            self.ask("acknowledge tap", (), Command.ACKNOWLEDGE_TAP, *self._place, self._id, self._read)
        else:
            self.ask("look", (), Command.LOOK_TAP, *self._place, self._read, 0, 0)
        self.flush()

    @property
    def waits(self) -> bool:
        return True


class Creator(Client):
    """Enters one namespace after the other, which may be new. It leaves at once, or sends a message and takes what is
    there first."""

    is_confirmed_singly = True

    def __init__(self, world: World, name: str) -> None:
        self._visits = 0
        self._has_entered = False
        super().__init__(world, name)
        self._choose()

    def _choose(self) -> None:
        chance = self.world.chance
        self._visits += 1
        self._has_entered = False
        is_new = chance.random() < 0.3
        number = SHARED_NAMES + self.world.count("new namespaces") if is_new else chance.randrange(SHARED_NAMES)
        self.namespace = f"r{number}"
        self._slot = chance.randrange(MACHINES)
        self.sends.clear()

    def welcomed(self, sessions: dict[int, tuple[int, int]]) -> None:
        self.world.count("namespaces entered")
        self._has_entered = True
        if self.world.is_over or self.world.chance.random() < 0.4:
            self._leave()
            return
        self.ask("open", (), Command.OPEN_SESSION, 1, CLIENT, 0)
        self.send(1, "queue:q", f"{self.name}-{self._visits}")

    def confirmed(self, sequence: int) -> None:
        opening = open_consumer(1, 1, "queue:q", 1)
        self.ask("open", (), opening[0], *opening[2:])

    def delivered(self, tag: int, name: str) -> None:
        self.ask("acknowledge", (name,), Command.ACKNOWLEDGE_ALL, 1, (1, tag))

    def answered(self, request: int, kind: str, result: Any) -> None:
        if kind == "acknowledge":
            self._leave()

    def _leave(self) -> None:
        self.ask("goodbye", (), Command.GOODBYE, ())
        self.flush()
        self.world.after(0.1, self.drop)

    def broke(self) -> None:
        if self._has_entered:  # else it was sent elsewhere
            self._choose()

    @property
    def waits(self) -> bool:
        return True


class Operator:
    """Assigns namespaces and patterns to shards, and deletes queues that are empty."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._plan()

    def _plan(self) -> None:
        self.world.after(self.world.chance.expovariate(20.0), self._act)

    def _act(self) -> None:
        if self.world.is_over:
            return
        self._plan()
        world, chance = self.world, self.world.chance
        serving = [each for each in world.processes if each is not None and each.listens and each.reads]
        if not serving:
            return
        process = chance.choice(serving)
        process.after(0, partial(chance.choice((self._assign, self._assign, self._set_pattern, self._delete)), process))

    def _assign(self, process: Process) -> None:
        name = f"r{self.world.chance.randrange(SHARED_NAMES)}"
        if process.placement is not None and (process.placement.here(name) or self.world.chance.random() < 0.2):
            self._ask(process, name)

    def _set_pattern(self, process: Process) -> None:
        self._ask(process, self.world.chance.choice(("r*", "r?", "?1*")))

    def _ask(self, process: Process, name: str) -> None:
        assert process.placement is not None
        process.placement.assign(name, self.world.chance.choice(SHARDS)).add_done_callback(self._asked)

    def _asked(self, done: Any) -> None:
        error = done.exception()
        if error is None:
            self.world.count("assigned")
        else:
            self.world.count(f"not assigned: {error.code.name}")

    def _delete(self, process: Process) -> None:
        for name, space in process.broker.namespaces.items():
            queue = space.destinations.get("queue:q")
            if name.startswith("r") and isinstance(queue, Queue) and not queue.depth and not queue.consumers:
                space.delete("queue:q")
                self.world.count("queues deleted")
        process.worked()


# -- a run ------------------------------------------------------------------------------------------------------------


class Trouble:
    """Lets things fail, at random times, until peace begins."""

    #: Mean seconds between two of a kind.
    EVERY: ClassVar = {
        "pause": 3.0, "kill": 12.0, "partition": 9.0, "outage": 18.0, "clock": 15.0, "stop": 9.0, "drop": 4.0,
        "promotion": 14.0, "isolation": 14.0, "sweep": 20.0,
    }  # fmt: skip

    #: The last of them: where commits are lost, and where there are several shards.
    ONLY = ("promotion", "isolation", "sweep")

    def __init__(self, world: World, often: tuple[str, ...] = ()) -> None:
        self.world = world
        for kind, mean in self.EVERY.items():
            factor = 0.3 if kind in often else world.chance.choice((0.5, 1.0, 3.0))
            if kind not in self.ONLY or (len(world.databases) > 1 if kind == "sweep" else world.loses):
                self._plan(getattr(self, kind), mean * factor)

    def _plan(self, act: Callable[[], None], mean: float) -> None:
        def happen() -> None:
            if not self.world.is_calm:
                act()
                self._plan(act, mean)

        self.world.after(self.world.chance.expovariate(1 / mean), happen)

    def _slot(self) -> int:
        """Often the owner's."""
        chance, processes = self.world.chance, self.world.processes
        owners = [slot for slot, each in enumerate(processes) if each is not None and each.listens]
        return chance.choice(owners) if owners and chance.random() < 0.6 else chance.randrange(len(processes))

    def _process(self) -> Process | None:
        return self.world.processes[self._slot()]

    def pause(self) -> None:
        if (process := self._process()) is not None:
            process.paused_until = self.world.now + self.world.chance.choice((0.5, 1.5, 2.0, 3.5, 4.0, 8.0))
            self.world.count("pauses")

    def kill(self) -> None:
        if (process := self._process()) is not None:
            process.kill()

    def stop(self) -> None:
        if (process := self._process()) is not None and process.paused_until < self.world.now:
            process.stop()

    def sweep(self) -> None:
        """Two owners end at the same time."""
        owners = [process for process in self.world.processes if process is not None and process.listens]
        for process in self.world.chance.sample(owners, min(2, len(owners))):
            process.kill()

    def partition(self) -> None:
        slot = self._slot()
        self.world.partitions.add(slot)
        self.world.count("partitions")
        self.world.after(self.world.chance.choice((0.5, 2.0, 5.0, 12.0)), lambda: self.world.partitions.discard(slot))

    def outage(self) -> None:
        server = self.world.server
        server.is_up = False
        server.generation += 1
        self.world.count("outages")
        self.world.after(self.world.chance.choice((0.3, 2.0, 8.0)), lambda: setattr(server, "is_up", True))

    def clock(self) -> None:
        self.world.wall_ahead[self.world.chance.randrange(len(self.world.processes))] = self.world.chance.choice(
            (0.0, 0.0, 0.0, -40.0, 0.4, 40.0)
        )

    def drop(self) -> None:
        self.world.chance.choice(self.world.clients).drop()

    def promotion(self) -> None:
        self.world.promote(self.world.chance.choice((0.05, 0.5, 4.0)))

    def isolation(self) -> None:
        """A replica and a broker are cut off, and the replica is promoted when they are back."""
        slot, lag = self.world.chance.randrange(len(self.world.processes)), self.world.chance.choice((0.5, 4.0))
        self.world.partitions.add(slot)
        self.world.after(lag, lambda: self._reunite(slot, lag))

    def _reunite(self, slot: int, lag: float) -> None:
        self.world.partitions.discard(slot)
        if not self.world.is_calm:
            self.world.promote(lag)


def run(seed: int, fault: str = "", *, loses: bool = False, cluster: bool = False) -> World:
    """One world from its beginning to its end."""
    bias = FAULTS.get(fault, Bias())
    cluster = cluster or bias.cluster
    shards, machines = (SHARDS, MACHINES) if cluster else (("main",), 3)
    world = World(seed, fault, loses=loses or bias.loses, shards=shards, machines=machines)
    world.slow = bias.slow or world.slow
    world.checker = Checker(world)
    for slot in range(len(world.processes)):
        world.processes[slot] = Process(world, slot)
    prefixes = [f"n{number}." for number in range(len(shards))] if cluster else [""]
    world.names.rows.update({prefix[:-1]: shard for prefix, shard in zip(prefixes, shards, strict=True) if prefix})
    openers: list[Consumer | TapReader] = [opener for prefix in prefixes for opener in _openers(world, prefix)]
    world.clients += openers
    if not world.run(lambda: all(opener.has_opened for opener in openers), 10.0):
        world.blame("I13: no process has taken the shard")
        return world
    producers = [producer for prefix in prefixes for producer in _producers(world, prefix)]
    world.clients += producers
    world.clients += [consumer for prefix in prefixes for consumer in _consumers(world, prefix)]
    begin = world.now
    for database in world.databases.values():
        database.history.clear()  # the subscriptions are not lost
    world.is_calm = False
    Trouble(world, bias.often)
    if cluster:
        world.clients += [Creator(world, f"creator{number}") for number in range(6)]
        Operator(world)
    world.run(lambda: world.now >= begin + TROUBLE, begin + TROUBLE)
    _make_peace(world)
    world.run(lambda: world.now >= begin + TROUBLE + 5.0 * cluster, begin + TROUBLE + 5.0)  # the last creators leave
    world.clients += [
        Consumer(world, f"{name}.rest", "queue:q") for name in list(world.names.rows) if name.startswith("r")
    ]
    if not world.run(
        lambda: not any(producer.waits for producer in producers) and not any(_left(world)), world.now + PEACE
    ):
        waiting = [producer.name for producer in producers if producer.waits]
        world.blame(f"I13: not all arrives: {_left(world)[:5]} left, {waiting} wait; {_states(world)}")
    world.checker.check_end()
    return world


def _openers(world: World, prefix: str) -> list[Consumer | TapReader]:
    """Clients of a namespace whose subscriptions are there before anything is sent."""
    readers = [] if world.loses else [TapReader(world, f"{prefix}tap", "topic:k")]  # may be ahead of a tap that loses
    return [Consumer(world, f"{prefix}subscriber", "topic:t", "s"), *readers]


def _producers(world: World, prefix: str) -> list[Producer | TransactedProducer | Publisher]:
    return [
        Producer(world, f"{prefix}q", "queue:q"),
        Producer(world, f"{prefix}t", "topic:t"),
        Producer(world, f"{prefix}i", "queue:i"),
        TransactedProducer(world, f"{prefix}x", "queue:q"),
        TransactedProducer(world, f"{prefix}y", "topic:t"),
        Publisher(world, f"{prefix}p", "queue:q"),
        *(() if world.loses else (Producer(world, f"{prefix}k", "topic:k"),)),
    ]


def _consumers(world: World, prefix: str) -> list[Client]:
    return [
        Consumer(world, f"{prefix}consumer1", "queue:q"),
        Consumer(world, f"{prefix}consumer2", "queue:q"),
        Relay(world, f"{prefix}relay", "queue:i", "queue:o"),
        Consumer(world, f"{prefix}sink", "queue:o"),
    ]


def _left(world: World) -> list[str]:
    """Messages that are not consumed yet."""
    stored = (saved for database in world.databases.values() for saved in database.store.messages.values())
    return [str(name_of(saved.packed)) for saved in stored]


def _make_peace(world: World) -> None:
    world.is_calm = world.is_over = True
    world.partitions.clear()
    world.server.is_up = True
    world.wall_ahead = [0.0] * len(world.processes)
    for process in world.processes:
        if process is not None:
            process.paused_until = min(process.paused_until, world.now)


def _states(world: World) -> str:
    return ", ".join("dead" if each is None else STATES[each.lease.state] for each in world.processes)


def attempt(seed: int, fault: str, loses: bool, cluster: bool) -> tuple[int, list[str], dict[str, int]]:
    """A run, for a process pool."""
    logging.disable()
    world = run(seed, fault, loses=loses, cluster=cluster)
    return seed, world.wrong, world.counts


def first_found(fault: str, seeds: int, first: int = 0) -> str | None:
    """What the first run finds of a planted fault; None if no run does."""
    for seed in range(first, first + seeds):
        if wrong := run(seed, fault).wrong:
            return f"seed {seed}: {wrong[0]}"
    return None


def runs(
    seeds: Iterable[int], fault: str, loses: bool, cluster: bool
) -> Iterator[tuple[int, list[str], dict[str, int]]]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(partial(attempt, fault=fault, loses=loses, cluster=cluster), seeds, chunksize=4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2_000, help="how many worlds (default: %(default)s)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--seed", type=int, help="this world alone")
    parser.add_argument("--fault", choices=(*FAULTS, "each"), default="", help="plant a fault: it must be found")
    parser.add_argument("--loses", action="store_true", help="promote replicas that lack the last commits")
    parser.add_argument("--cluster", action="store_true", help="three shards on four processes")
    options = parser.parse_args()
    logging.disable()
    if options.fault == "each":
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            search = partial(first_found, seeds=options.seeds, first=options.first)
            searches = {fault: pool.submit(search, fault) for fault in FAULTS}
            for fault, each in searches.items():
                print(f"{fault:32} {each.result() or 'NOT FOUND'}", flush=True)
        return sum(each.result() is None for each in searches.values())
    begin, counts, wrong = time.perf_counter(), defaultdict[str, int](int), 0
    seeds = range(options.first, options.first + options.seeds) if options.seed is None else (options.seed,)
    for seed, found, counted in runs(seeds, options.fault, options.loses, options.cluster):
        for name, number in counted.items():
            counts[name] += number
        if found:
            wrong += 1
            print(f"seed {seed}: {found[0]}", flush=True)
    print(", ".join(f"{name} {number}" for name, number in sorted(counts.items())))
    print(f"{len(seeds)} worlds, {wrong} with a broken promise, {time.perf_counter() - begin:.1f} s")
    return int(bool(wrong) is not bool(options.fault))


if __name__ == "__main__":
    sys.exit(main())

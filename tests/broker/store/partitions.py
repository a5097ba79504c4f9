"""Takeovers over a network that is parted: two brokers, the database and the clients are in network namespaces of their
own. Needs root, `ip` and `iptables`.

    python -m tests.broker.store.partitions --faults 20 --seed 7

Packets between two of them are dropped where they arrive: no error reaches the sender. A fault is one of
- owner_database      the other one takes over; joined again, the owner finds that out and ends;
- owner_all           the same for an owner whose machine is cut off from everything;
- owner_clients       clients wait, and the follower does not take over;
- owner_follower      nothing happens;
- follower_database   nothing happens, and the follower takes over afterwards as before.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.postgres import USER, Database, Server

from .takeover import LEASE, NAMES, SUPERSEDED, Pair, Process, lives, options

FAULTS = ("owner_database", "owner_all", "owner_clients", "owner_follower", "follower_database")
NET = "10.231.7"
DATABASE, CLIENTS = "db", "clients"
ADDRESSES = {DATABASE: f"{NET}.1", **{name: f"{NET}.{number}" for number, name in enumerate(NAMES, 2)}}
#: The clients are where this process is.
ADDRESSES[CLIENTS] = f"{NET}.254"
#: In leases, how long an owner is cut off that keeps the shard.
LONG = 1.5


def _do(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _spaces(bridge: str) -> dict[str, str]:
    return {name: f"{bridge}{name}" for name in (DATABASE, *NAMES)}


def _remove(bridge: str) -> None:
    """Remove a network, or what is there of it."""
    spaces = _spaces(bridge).values()
    # First the devices: connections that ended unanswered keep a namespace, and so its device, for minutes.
    for device in (*(f"{space}v" for space in spaces), bridge):
        with suppress(OSError):
            _do("ip", "link", "delete", device)
    for space in spaces:
        with suppress(OSError):
            _do("ip", "netns", "delete", space)


def _abandoned() -> set[str]:
    """Bridges of processes that are gone, which could remove nothing when they were killed."""
    names = [name for _, name in socket.if_nameindex()] + [path.name for path in Path("/run/netns").glob("*")]
    found = {(each[0], each[1]) for name in names if (each := re.match(r"smq(\d+)", name))}
    return {bridge for bridge, pid in found if not Path(f"/proc/{pid}").exists()}


class Network:
    """A namespace for the database and for each broker, on one bridge that is named for this process. First, networks
    of such processes that are gone are removed: they have the same addresses.

    Raises:
        OSError: the system allows none, or has no `ip`.
    """

    def __init__(self) -> None:
        self._bridge = f"smq{os.getpid()}"
        self._spaces = _spaces(self._bridge)

    def __enter__(self) -> Self:
        for bridge in _abandoned():
            _remove(bridge)
        try:
            _do("ip", "link", "add", self._bridge, "type", "bridge")
            _do("ip", "address", "add", f"{ADDRESSES[CLIENTS]}/24", "dev", self._bridge)
            _do("ip", "link", "set", self._bridge, "up")
            for name, space in self._spaces.items():
                _do("ip", "netns", "add", space)
                _do("ip", "link", "add", f"{space}v", "type", "veth", "peer", "name", "eth0", "netns", space)
                _do("ip", "link", "set", f"{space}v", "master", self._bridge, "up")
                _do("ip", "-n", space, "address", "add", f"{ADDRESSES[name]}/24", "dev", "eth0")
                for device in ("lo", "eth0"):
                    _do("ip", "-n", space, "link", "set", device, "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _remove(self._bridge)

    def inside(self, name: str) -> tuple[str, ...]:
        """The beginning of a command that runs in a namespace."""
        return "ip", "netns", "exec", self._spaces[name]

    def part(self, one: str, other: str) -> None:
        """Drop what one of them sends to the other."""
        self._rule("-A", one, other)

    def join(self, one: str, other: str) -> None:
        self._rule("-D", one, other)

    def _rule(self, what: str, one: str, other: str) -> None:
        for here, there in ((one, other), (other, one)):
            if here != CLIENTS:
                _do(*self.inside(here), "iptables", what, "INPUT", "-s", ADDRESSES[there], "-j", "DROP")
        if CLIENTS in (one, other):
            here = other if one == CLIENTS else one
            _do(*self.inside(here), "iptables", what, "OUTPUT", "-d", ADDRESSES[CLIENTS], "-j", "DROP")


class Parted(Pair):
    """Two brokers in namespaces."""

    def __init__(self, seed: int, database: Database, folder: Path, faults: Sequence[str], network: Network) -> None:
        self._network = network
        super().__init__(seed, database, folder, faults)

    def new_broker(self, name: str, shards: str) -> Process:
        store = f"postgresql://{USER}@{ADDRESSES[DATABASE]}/postgres"
        return Process(name, self.directory, store, shards, ADDRESSES[name], self._network.inside(name))

    def part(self, broker: Process) -> None:
        self._network.part(broker.name, DATABASE)

    def join(self, broker: Process) -> None:
        self._network.join(broker.name, DATABASE)

    def _owner_database(self, owner: Process) -> None:
        self._partition(owner)

    def _owner_all(self, owner: Process) -> None:
        others = [name for name in ADDRESSES if name != owner.name]
        for name in others:
            self._network.part(owner.name, name)
        self.owner(other_than=owner)
        self.hang_up()
        for name in others:
            self._network.join(owner.name, name)
        code = owner.wait()
        if code != SUPERSEDED:
            self.accounts.faults.append(f"an owner that was cut off ended with {code}")
        owner.start()

    def _owner_clients(self, owner: Process) -> None:
        self._nothing(owner, owner.name, CLIENTS)

    def _owner_follower(self, owner: Process) -> None:
        self._nothing(owner, *NAMES)

    def _follower_database(self, owner: Process) -> None:
        self._nothing(owner, self.other(owner).name, DATABASE)

    def _nothing(self, owner: Process, one: str, other: str) -> None:
        """Part two of them, which must not cost the owner its shard."""
        before = owner.pid
        self._network.part(one, other)
        self.over.wait(LEASE * LONG)
        if self.other(owner).owns():
            self.accounts.faults.append(f"{one} and {other} were parted, and the follower took over")
        self._network.join(one, other)
        self.until(owner.owns, f"{owner.name} did not go on")
        if owner.pid != before or owner.code() is not None:
            self.accounts.faults.append(f"{one} and {other} were parted, and the owner ended")


def run(seed: int, folder: Path, faults: int, steps: int, kinds: Sequence[str]) -> tuple[list[str], Pair]:
    """One life over a network of its own. Returns what is wrong."""
    with Network() as network:
        server = Server(listen_addresses=ADDRESSES[DATABASE])
        try:
            with (server.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {NET}.0/24 trust\n")
            server.as_user = (*network.inside(DATABASE), *server.as_user)
            server.start()
            pair = Parted(seed, Database(server), folder, kinds, network)
            return pair.play(faults, steps), pair
        finally:
            server.close()


def main() -> int:
    chosen = options(__doc__, 20, FAULTS, steps=800).parse_args()

    def play(seed: int, folder: Path, faults: int) -> tuple[list[str], Pair]:
        return run(seed, folder, faults, chosen.steps, chosen.kinds.split(","))

    for _ in lives("partitions", chosen, play):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())

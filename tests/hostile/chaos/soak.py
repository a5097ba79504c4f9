"""Many clients in many processes, some of them killed at any moment; every message is accounted for.

    python tests/hostile/chaos/soak.py --seconds 300 --seed 1 [--cut | --crash] [--limit 50]

ends with 0 if nothing was lost, doubled or out of order and the broker stayed as it was (memory, open files, latency;
with --crash memory, open files and what it has stored, from life to life: see steady.py), and prints the seed, what
was done, and what was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sievemq import ConnectionFactory

HERE = Path(__file__).parent
#: Seconds beyond those asked for, on a machine so busy that too little has come about in them.
PATIENCE = 120.0
#: Deliveries that make an account worth it.
LEAST = 40
#: How often one that has not begun to play yet is spared: on a busy machine none would ever play.
SPARED = 0.9
#: Seconds that those who play from the beginning may take to begin.
START = 60.0
#: How fast the players' clients repair a loss: faster than applications would, for there are many.
RECONNECT = "?reconnect=30000&reconnect_delay=5&reconnect_max_delay=50"
ROLES = ("produce", "aio-produce", "consume", "consume", "aio-consume", "keep")


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"chaos_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Stage:
    """Players and their journals.

    Args:
        url: the broker's.
        folder: for the journals.
        seed: what is done when, as far as processes allow.
        seconds: how long they play.
        options: further arguments of each player.
    """

    def __init__(self, url: str, folder: Path, seed: int, seconds: float, options: tuple[str, ...] = ()) -> None:
        self._url, self._folder, self._seed, self._options = url, folder, seed, options
        self._started = 0
        self.late = False
        self.wrong: list[str] = []
        self.killed = 0
        self._journals: dict[subprocess.Popen[bytes], Path] = {}
        self.players = [(role, self._start(role)) for role in ROLES]
        for _, player in self.players:
            self._await(player)
        self._ends = time.monotonic() + seconds

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        self._started += 1
        seed = self._seed * 100_000 + self._started
        journal = self._folder / f"{role}-{seed}.journal"
        with (self._folder / f"{role}-{seed}.errors").open("wb") as errors:
            player = subprocess.Popen(
                [sys.executable, str(HERE / "player.py"), self._url, role, str(seed), str(journal), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        self._journals[player] = journal
        return player

    def _await(self, player: subprocess.Popen[bytes]) -> None:
        """Until it begins to play, or ends: on a busy machine that takes as long as a short play."""
        ends = time.monotonic() + START
        while not self._journals[player].exists() and player.poll() is None and time.monotonic() < ends:
            with contextlib.suppress(subprocess.TimeoutExpired):
                player.wait(0.02)

    def kill_one(self, chance: random.Random) -> None:
        """Kill -9 one of them and start another in its place."""
        number = chance.randrange(len(self.players))
        role, player = self.players[number]
        if player.poll() is None and not self._journals[player].exists() and chance.random() < SPARED:
            return
        if player.poll() is not None:
            self.wrong.append(f"{role} ended by itself with {player.returncode}")
        player.kill()
        player.wait()
        self.killed += 1
        self.players[number] = (role, self._start(role))

    def goes_on(self, reached: bool) -> bool:
        """Whether all is not over yet: the time is not, or not enough has come about.

        Args:
            reached: was done to them what was to be.
        """
        late = time.monotonic() - self._ends
        return late < 0 or (late < PATIENCE and not (reached and self._deliveries() > LEAST))

    def wait(self, chance: random.Random, pause: float) -> None:
        """Let them play for so many seconds, or until one ends by itself. A late one gets more time."""
        left = self._ends - time.monotonic()
        self.late = left <= 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            chance.choice(self.players)[1].wait(min(20 * pause, 5.0) if self.late else min(left, pause))

    def _deliveries(self) -> int:
        return sum(journal.read_bytes().count(b" D ") for journal in self._folder.glob("*.journal"))

    def end(self) -> None:
        """Ask all to end; one that does not within two minutes hangs."""
        for _, player in self.players:
            player.terminate()
        for role, player in self.players:
            try:
                if player.wait(120) not in (0, -signal.SIGTERM):  # that early it has no handler yet
                    self.wrong.append(f"{role} ended with {player.returncode}")
            except subprocess.TimeoutExpired:
                self.wrong.append(f"{role} hangs")
                player.kill()
                player.wait()
        for errors in self._folder.glob("*.errors"):
            if text := errors.read_text(errors="replace"):
                self.wrong.append(f"{errors.name}: {text}")


def drain(url: str) -> dict[str, list[tuple[str, int]]]:
    """What is left in every view, dead letters included."""
    left: dict[str, list[tuple[str, int]]] = {}
    keeper, anybody = ConnectionFactory(url, client_id="keeper"), ConnectionFactory(url)
    with keeper.create_context() as owner, anybody.create_context() as context:
        news = context.create_topic("news")
        for view, consumer in {
            "work": context.create_consumer(context.create_queue("work")),
            "solo": context.create_consumer(context.create_queue("solo")),
            "grouped": context.create_consumer(context.create_queue("grouped")),
            "ledger": owner.create_durable_consumer(news, "ledger"),
            "crew": context.create_shared_durable_consumer(news, "crew"),
        }.items():
            left[view] = []
            while (message := consumer.receive_no_wait()) is not None:
                left[view].append((message.get_body(str), message.get_int_property("JMSXDeliveryCount")))
    return left


def policies(limit: int) -> dict[str, dict[str, Any]]:
    """What holds for all destinations: no dead letters, for those have counts of their own; and so many messages in a
    queue or subscription before its senders wait, 0 for no limit."""
    policy: dict[str, Any] = {"max_attempts": 0}
    if limit:
        policy |= {"max_messages": limit, "at_limit": "block"}
    return {name: dict(policy) for name in ("queue:work", "queue:solo", "queue:grouped", "topic:news")}


def options(repair: bool, limit: int) -> str:
    """Of the players' URL. A blocked sender gives up after a while, so that the run ends."""
    chosen = RECONNECT if repair else "?reconnect=0"
    return f"{chosen}&send_timeout=300" if limit else chosen


def play(
    seed: int, seconds: float, folder: Path, cut: bool = False, limit: int = 0
) -> tuple[list[str], dict[str, Any]]:
    """Have it all happen.

    Args:
        seed: of what happens.
        seconds: how long.
        folder: empty; journals come here.
        cut: cut connections, many times a second, and kill only now and then.
        limit: messages in a queue before its senders wait; 0 for none.

    Returns:
        what was wrong, and what was done.
    """
    chance = random.Random(seed)
    steady = _load(HERE / "steady.py")
    host = _load(HERE / "host.py").Host(None, policies(limit))
    wrong: list[str] = []
    try:
        with relay(host.port) as network:
            drain(host.url)  # makes the durable subscriptions
            stage = Stage((network.url(host.url) if cut else host.url) + options(cut, limit), folder, seed, seconds)
            watch = steady.Steady(host.url, host.pid)
            cuts = 0
            try:
                while stage.goes_on(cuts > 5 if cut else stage.killed > 1):
                    stage.wait(chance, chance.uniform(0.001, 0.2) if cut else chance.uniform(0.2, 1.5))
                    if cut and chance.random() < 0.97:
                        cuts += network.cut_one(chance)
                    else:
                        stage.kill_one(chance)
            finally:
                samples = watch.stop()
                stage.end()
            wrong, figures = account(stage, folder, host.url, cut=cuts)
        grown, line = steady.judge(samples)
        wrong += [] if stage.late else grown  # so busy a machine tells nothing
        if watch.failure is not None:
            wrong.append(f"the probe failed: {watch.failure}")
    finally:
        wrong += host.stop()
    return wrong, {**figures, "steady": line}


def crash(seed: int, seconds: float, folder: Path, limit: int = 0) -> tuple[list[str], dict[str, Any]]:
    """The same with a broker that has a data directory, and is itself killed at any moment and started again.

    Args:
        seed: of what happens.
        seconds: how long.
        folder: empty; journals and data come here.
        limit: messages in a queue before its senders wait; 0 for none.

    Returns:
        what was wrong, and what was done.
    """
    chance = random.Random(seed)
    steady = _load(HERE / "steady.py")
    host = _load(HERE / "host.py").Host(folder / "data", policies(limit))
    wrong: list[str] = []
    lives = []
    try:
        with relay(host.port) as network:
            drain(host.url)
            stage = Stage(network.url(host.url) + options(True, limit), folder, seed, seconds, ("persistent",))
            cuts = 0
            try:
                while stage.goes_on(host.crashes > 0):
                    stage.wait(chance, chance.uniform(0.001, 0.2))
                    if (what := chance.random()) < 0.1:
                        lives.append(steady.look(host.pid, folder / "data"))
                        host.crash()
                        host.start()
                        network.forward_to(host.port)
                    elif what < 0.15:
                        stage.kill_one(chance)
                    else:
                        cuts += network.cut_one(chance)
            finally:
                stage.end()
            wrong, figures = account(stage, folder, host.url, cut=cuts, crashes=host.crashes)
        grown, line = steady.judge_lives(lives)
        wrong += grown
    finally:
        wrong += host.stop()
    return wrong, {**figures, "steady": line}


def relay(port: int) -> Any:
    """A network that can be cut, in front of a broker."""
    return _load(HERE.parents[1] / "client" / "relay.py").Relay(port)


def account(stage: Stage, folder: Path, url: str, **done: int) -> tuple[list[str], dict[str, int]]:
    """What was wrong, all in all, and what was done: for the end, when nobody plays any more."""
    left_over = drain(url)
    again = drain(url)
    wrong, figures = _load(HERE / "checker.py").check(sorted(folder.glob("*.journal")), left_over)
    wrong = stage.wrong + wrong + [f"{view} was not empty after it was drained" for view in again if again[view]]
    return wrong, {"killed": stage.killed, **done, **figures}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=300)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    how = arguments.add_mutually_exclusive_group()
    how.add_argument("--cut", action="store_true", help="cut connections, many times a second")
    how.add_argument("--crash", action="store_true", help="kill the broker as well, which has a data directory")
    arguments.add_argument("--limit", type=int, default=0, help="messages in a queue before its senders wait")
    arguments.add_argument("--journals", type=Path, help="folder to keep the journals in")
    given = arguments.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.journals or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if given.crash:
            wrong, figures = crash(given.seed, given.seconds, folder, given.limit)
        else:
            wrong, figures = play(given.seed, given.seconds, folder, given.cut, given.limit)
    if line := figures.pop("steady", None):
        print(line)
    print(figures)
    print("\n".join(wrong[:100]) or "every message accounted for")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

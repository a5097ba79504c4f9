"""Plays twelve incidents against real brokers, and finds the cause of each as an operator does: in the console from the
first screen with at most two clicks, and with one command.

    python -m tests.site.console.incidents [--pictures FOLDER] [NAME …]

It prints a row for each, and ends with 1 if a cause was not found. With `--pictures` it writes what the console showed:
the first screen and the last. It takes some five minutes. A full disk needs the right to mount a file system, and a
dead follower needs PostgreSQL; without, they are not played.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tests.broker.server.test_run import COMMAND, Process
from tests.broker.store.test_full_disk import Disk, may_mount
from tests.postgres import Database, Server, binaries

from sievemq import ConnectionFactory, JMSConsumer, JMSContext, JMSException, JMSRuntimeException, Queue

from .chromium import Chromium, Page

#: Rules that make each incident one of seconds.
CONFIG = """
[attention]
blocked_seconds = 1
stuck_seconds = 3
no_consumer_seconds = 2
growing_messages = 50
full_seconds = 2

[destinations."queue:orders"]
max_messages = 50
at_limit = "block"

[destinations."queue:limited"]
max_messages = 50
at_limit = "fail"

[destinations."queue:payments"]
max_attempts = 2
"""

USERS = """
[users]
ops = "secret"
shop = { password = "old-and-new", rights = [{ may = ["send", "consume"], destination = "*" }] }
"""

#: Where the guesses come from. The operator's own address would be held up with it.
ELSEWHERE = "127.0.0.3"

#: Seconds for which a finding is waited for, by a command.
PATIENCE = 60


@dataclass
class Broker:
    """Where a broker is.

    Attributes:
        url: for clients.
        http_url: of its management port.
        user: whom the operator signs in as, if there are users.
    """

    url: str
    http_url: str
    user: str | None = None

    def client(self, client_id: str, mode: int = JMSContext.AUTO_ACKNOWLEDGE, *, prefetch: str = "") -> JMSContext:
        """A client that is connected."""
        options = f"?prefetch={prefetch}" if prefetch else ""
        return ConnectionFactory(self.url + options, client_id=client_id).create_context(mode)

    def command(self, *arguments: str) -> str:
        """What a command prints."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
        environment |= {"SIEVEMQ_HTTP_URL": self.http_url, "SIEVEMQ_URL": self.url, "SIEVEMQ_PASSWORD": "secret"}
        user = ["--user", self.user] if self.user else []
        done = subprocess.run(
            [*COMMAND, *arguments, *user], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        return done.stdout + done.stderr


@dataclass
class Incident:
    """Something that goes wrong, and how its cause is found.

    Attributes:
        name: of its pictures.
        title: for people.
        play: makes it happen, as long as its context lasts.
        first: what the first screen shows.
        clicks: elements and their texts that are pressed one after the other.
        cause: what the console shows then.
        command: that names the cause.
        said: by it.
    """

    name: str
    title: str
    play: Callable[[Stage, ExitStack], Broker]
    first: str
    clicks: list[tuple[str, str | None]]
    cause: str
    command: tuple[str, ...]
    said: str


class Stage:
    """Starts the brokers: each incident has one of its own.

    Args:
        folder: for their files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = 0

    def start(self, ends: ExitStack, users: str = "", user: str | None = None) -> Broker:
        """A broker that ends with the incident."""
        self._numbers += 1
        file = self.folder / f"broker-{self._numbers}.toml"
        file.write_text(CONFIG + users)
        process = Process("--config", str(file), "--json-logs")
        ends.callback(process.close)
        record = process.event("broker.ready")
        return Broker(record["url"], record["http_url"], user)


def forever(ends: ExitStack, act: Callable[[], object], seconds: float) -> None:
    """Do something again and again, as long as the incident lasts."""
    over = threading.Event()

    def go() -> None:
        while not over.wait(seconds):
            with contextlib.suppress(JMSException, JMSRuntimeException):
                act()

    thread = threading.Thread(target=go)
    thread.start()
    ends.callback(thread.join)
    ends.callback(over.set)


def client(ends: ExitStack, broker: Broker, name: str, mode: int = JMSContext.AUTO_ACKNOWLEDGE) -> JMSContext:
    context = broker.client(name, mode)
    ends.callback(quietly, context.close)
    return context


def quietly(close: Callable[[], object]) -> None:
    with contextlib.suppress(JMSException, JMSRuntimeException):
        close()


def until_sampled(broker: Broker) -> None:
    """Wait until charts have some samples more."""
    with urlopen(f"{broker.http_url}/api/v1/events", timeout=PATIENCE) as stream:
        for _ in range(3):
            while b"event: tick" not in stream.readline():
                pass


# -- the incidents ----------------------------------------------------------------------------------------------------


def blocked_senders(stage: Stage, ends: ExitStack) -> Broker:
    broker = stage.start(ends)
    shop = client(ends, broker, "shop-front")
    producer = shop.create_producer()

    def send() -> None:
        with contextlib.suppress(JMSException, JMSRuntimeException):
            for number in range(60):
                producer.send(Queue("orders"), f"order {number}")

    threading.Thread(target=send, daemon=True).start()
    return broker


def poison(stage: Stage, ends: ExitStack) -> Broker:
    broker = stage.start(ends)
    client(ends, broker, "till").create_producer().send(Queue("payments"), "no card")
    billing = client(ends, broker, "billing", JMSContext.SESSION_TRANSACTED)
    consumer = billing.create_consumer(Queue("payments"))
    while consumer.receive(1_000) is not None:
        billing.rollback()
    return broker


def flood(stage: Stage, ends: ExitStack) -> Broker:
    broker = stage.start(ends)
    flooder = client(ends, broker, "flooder").create_producer()
    forever(ends, lambda: flooder.send(Queue("limited"), "more"), 0.01)
    return broker


def holding(messages: int, name: str) -> Callable[[Stage, ExitStack], Broker]:
    """A consumer that takes what its buffer holds, and acknowledges none of it."""

    def play(stage: Stage, ends: ExitStack) -> Broker:
        broker = stage.start(ends)
        producer = client(ends, broker, f"{name}-source").create_producer()
        for number in range(messages):
            producer.send(Queue(name), f"{number}")
        context = client(ends, broker, f"{name}-reader", JMSContext.CLIENT_ACKNOWLEDGE)
        consumer = context.create_consumer(Queue(name))
        assert consumer.receive(10_000) is not None
        ends.push(lambda *_: bool(consumer) and False)  # an application holds its consumers
        return broker

    return play


def slow_consumer(stage: Stage, ends: ExitStack) -> Broker:
    broker = stage.start(ends)
    source = client(ends, broker, "ticker").create_producer()
    forever(ends, lambda: source.send(Queue("prices"), "1"), 0.02)
    context = client(ends, broker, "reporting")
    consumer = context.create_consumer(Queue("prices"))
    forever(ends, lambda: consumer.receive(1_000), 0.5)
    return broker


def rollbacks(stage: Stage, ends: ExitStack) -> Broker:
    broker = stage.start(ends)
    context = client(ends, broker, "importer", JMSContext.SESSION_TRANSACTED)
    producer = context.create_producer()

    def fail() -> None:
        for number in range(20):
            producer.send(Queue("imports"), f"{number}")
        context.rollback()

    forever(ends, fail, 0.01)
    return broker


def full_disk(stage: Stage, ends: ExitStack) -> Broker | None:
    folder = stage.folder / "disk"
    folder.mkdir()
    if not may_mount(folder, "tmpfs"):
        return None
    disk = Disk(folder, "fail", "tmpfs")
    ends.callback(disk.end)
    record = disk.wait_for("broker.ready")
    broker = Broker(str(record["url"]), str(record["http_url"]))
    disk.fill(1)
    archive = client(ends, broker, "archive").create_producer()
    forever(ends, lambda: archive.send(Queue("archive"), "x" * 200_000), 0.1)
    return broker


def guarded(stage: Stage, ends: ExitStack) -> Broker:
    return stage.start(ends, USERS, "ops")


def wrong_password(stage: Stage, ends: ExitStack) -> Broker:
    """An application has the password of last year."""
    broker = guarded(stage, ends)
    factory = ConnectionFactory(broker.url)

    def connect() -> None:
        factory.create_context("shop", "last-year").close()

    forever(ends, connect, 0.5)
    return broker


def sign_in_flood(stage: Stage, ends: ExitStack) -> Broker:
    """A program guesses names and passwords."""
    broker = guarded(stage, ends)
    guesses = iter(range(1_000_000))

    def guess() -> None:
        name = f"user{next(guesses)}:123456".encode()
        connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=10, source_address=(ELSEWHERE, 0))
        connection.request("GET", "/api/v1/broker", headers={"Authorization": f"Basic {b64encode(name).decode()}"})
        connection.close()

    forever(ends, guess, 0.02)
    return broker


def dead_follower(stage: Stage, ends: ExitStack) -> Broker | None:
    if binaries() is None:
        return None
    server = Server()
    ends.callback(server.close)
    server.start()
    url = Database(server).url
    options = ("--json-logs", "--store", url, "--shard", "main")
    owner, follower = Process(*options), None
    ends.callback(owner.close)
    record = owner.event("broker.ready")
    follower = Process(*options)
    ends.callback(follower.close)
    follower.event("store.follows")
    owner.event("store.has_follower")
    follower.popen.kill()
    return Broker(record["url"], record["http_url"])


def doubled_consumers(stage: Stage, ends: ExitStack) -> Broker:
    """A deploy has started the new version, and not ended the old one."""
    broker = stage.start(ends)
    consumers: list[JMSConsumer] = []

    def deploy(version: str) -> None:
        for number in range(3):
            context = client(ends, broker, f"worker-{version}-{number}")
            consumers.append(context.create_consumer(Queue("jobs")))

    deploy("v1")
    until_sampled(broker)
    note = json.dumps({"text": "worker v2 is deployed"}).encode()
    urlopen(Request(f"{broker.http_url}/api/v1/history", note, {"Content-Type": "application/json"})).close()
    deploy("v2")
    ends.callback(consumers.clear)
    return broker


ALARM = "ul.alarms a"
DOCTOR = ("doctor",)
INCIDENTS = [
    Incident("blocked", "senders blocked at a limit", blocked_senders, "waiting for room", [], "queue:orders",
             DOCTOR, "queue:orders"),
    Incident("poison", "poison message in the dead letters", poison, "new dead letters",
             [("nav.places a", "Dead letters")], "billing", ("dlq", "ls"), "billing"),
    Incident("slow", "slow consumer", slow_consumer, "grows by", [(ALARM, "queue:prices")], "reporting",
             DOCTOR, "queue:prices"),
    Incident("flood", "flood into a limit that refuses: who?", flood, "refused:", [], "flooder", DOCTOR, "flooder"),
    Incident("stuck", "stuck consumer with a backlog", holding(3_000, "invoices"), "does not acknowledge",
             [(ALARM, "queue:invoices")], "invoices-reader", DOCTOR, "queue:invoices"),
    Incident("holding", "stuck consumer, everything in its buffer", holding(5, "receipts"), "does not acknowledge",
             [(ALARM, "queue:receipts")], "receipts-reader", DOCTOR, "queue:receipts"),
    Incident("disk", "full disk", full_disk, "PERSISTENT messages are refused", [], "the disk", DOCTOR, "disk"),
    Incident("rollbacks", "storm of rollbacks", rollbacks, "rolls back", [], "importer", DOCTOR, "importer"),
    Incident("password", "wrong passwords", wrong_password, "refused sign-ins", [], "shop", DOCTOR, "shop"),
    Incident("follower", "dead follower", dead_follower, "no follower", [], "no follower", DOCTOR, "no follower"),
    Incident("guessing", "flood of sign-ins", sign_in_flood, "refused sign-ins", [("nav.places a", "Broker")],
             ELSEWHERE, ("audit", "--only", "attempts"), ELSEWHERE),
    Incident("deploy", "a deploy that doubles consumers", doubled_consumers, "worker v2 is deployed",
             [("nav.places a", "Queues"), ("td.main a", "jobs")], "worker-v2-2", ("queue", "consumers", "jobs"),
             "worker-v2-2"),
]  # fmt: skip


# -- the operator -----------------------------------------------------------------------------------------------------


def overview(page: Page, broker: Broker) -> None:
    """Open the console, as one does when the telephone rings."""
    page.leave()
    page.open(f"{broker.http_url}/")
    if broker.user is not None:
        page.until("document.querySelector('#user') !== null")
        page.fill("#user", broker.user)
        page.fill("#password", "secret")
        page.click("button")
    page.until("document.querySelector('main')?.getAttribute('aria-busy') === 'false'")


def look(page: Page, broker: Broker, incident: Incident, pictures: Path | None) -> str:
    """Find the cause in the console. What is missing; empty if it is found."""
    overview(page, broker)
    try:
        page.shows(incident.first)
        if pictures is not None:
            page.screenshot(pictures / f"{incident.name}-first.png")
        for selector, text in incident.clicks:
            page.click(selector, text)
        page.shows(incident.cause)
    except AssertionError as error:
        return str(error)
    finally:
        if pictures is not None:
            page.screenshot(pictures / f"{incident.name}.png")
    return ""


def ask(broker: Broker, incident: Incident) -> str:
    """Find it with a command. What it printed instead; empty if it is found."""
    end = time.monotonic() + PATIENCE
    while incident.said not in (said := broker.command(*incident.command)):
        if time.monotonic() > end:
            return said
    return ""


def investigate(stage: Stage, page: Page, incident: Incident, pictures: Path | None) -> bool | None:
    """Play one and find its cause; None if it cannot be played here."""
    with ExitStack() as ends:
        broker = incident.play(stage, ends)
        if broker is None:
            print(f"| {incident.title} | not played: this machine lacks what it needs | |", flush=True)
            return None
        missing = look(page, broker, incident, pictures), ask(broker, incident)
        clicks = "not found" if missing[0] else str(len(incident.clicks))
        command = "not found" if missing[1] else f"`sievemq {' '.join(incident.command)}`"
        print(f"| {incident.title} | {clicks} | {command} |", flush=True)
        for text in filter(None, missing):
            print(text, file=sys.stderr, flush=True)
        return not any(missing)


def main() -> int:
    parser = argparse.ArgumentParser(description="Play incidents, and find their causes.")
    parser.add_argument("names", nargs="*", choices=[*[incident.name for incident in INCIDENTS], []])
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    print("| incident | clicks in the console | command |\n| --- | --- | --- |")
    found = []
    with tempfile.TemporaryDirectory() as folder, Chromium() as chromium:
        stage = Stage(Path(folder))
        for incident in INCIDENTS:
            if not given.names or incident.name in given.names:
                with chromium.page() as page:
                    found.append(investigate(stage, page, incident, given.pictures))
    return int(False in found)


if __name__ == "__main__":
    sys.exit(main())

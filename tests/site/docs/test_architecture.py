"""docs/architecture.md: the files that a message passes, in the order in which each thread enters them."""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sievemq import ConnectionFactory, Message
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.net import turn

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "architecture.md"
PRODUCT = tuple(f"{ROOT / part}/" for part in ("core", "client", "broker"))
DEADLINE = 60.0

#: Files that a PERSISTENT send passes until it is acknowledged. It may only fall.
MOST_FILES = 30

#: Words that a reader needs for a delivery from a queue. It may only fall.
MOST_NOUNS = 40

#: Classes in the same files that a delivery does not need: views of others, lost connections, browsing.
BESIDE = {
    "BodyKind", "Counted", "DomainSettings", "Few", "Held", "Host", "Index", "Item", "NamespacePolicy", "Observed",
    "PolicyRules", "Source", "Stored", "Taker", "Target", "Walk",
}  # fmt: skip

#: Sections of the page, and the threads that they are about.
SECTIONS = {
    "The producer's thread": "producer",
    "The broker's thread": "sievemq-broker",
    "The consumer's thread": "consumer",
}

#: The function with which each thread's part begins.
FIRST_CALL = {"producer": "send", "sievemq-broker": "get_buffer", "consumer": "read_for_leader"}

#: Entered by the broker's thread when it has read the SEND.
SEND_HANDLER = "broker/sievemq_broker/session/handlers/messages.py"


class Tracer:
    """Notes which product files each thread enters, and when the broker has carried out the acknowledgement."""

    def __init__(self) -> None:
        self.entered: dict[str, dict[str, None]] = {}
        self.on = False
        self.acknowledged = threading.Event()
        self.leads = threading.Event()  # the producer's thread reads the socket from here on: the broker begins

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on or event != "call" or not (file := frame.f_code.co_filename).startswith(PRODUCT):
            return
        name, thread = Path(file).relative_to(ROOT).as_posix(), threading.current_thread().name
        if thread == "sievemq-broker" and self.acknowledged.is_set():
            return
        files = self.entered.get(thread)
        if frame.f_code.co_name == FIRST_CALL.get(thread) and (files is None or not self.began(thread)):
            files = self.entered[thread] = {}
            if thread == "sievemq-broker":
                self.leads.wait(DEADLINE)
        if files is None:
            return  # the end of something earlier
        files[name] = None
        if thread == "producer" and frame.f_code.co_name == "check_alive":
            self.leads.set()
        if frame.f_code.co_name == "acknowledge" and name.endswith("domain/consumer.py"):
            self.acknowledged.set()

    def began(self, thread: str) -> bool:
        """True unless what the broker has read so far was something else than the SEND."""
        return thread != "sievemq-broker" or SEND_HANDLER in self.entered[thread]


@contextmanager
def profiled(tracer: Tracer) -> Iterator[None]:
    """Threads that start in the block are traced, and this one."""
    threading.setprofile(tracer)
    try:
        yield
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed knows None since a later version


@pytest.fixture(scope="module")
def entered() -> dict[str, list[str]]:
    """What a PERSISTENT send enters, by thread; from `send` to the acknowledgement at the broker."""
    tracer = Tracer()
    with pytest.MonkeyPatch.context() as patch, profiled(tracer), EmbeddedBroker() as broker:
        for limit in ("TURN_SECONDS", "PIECE_SECONDS"):
            patch.setattr(turn, limit, DEADLINE)  # a busy machine is no reason to put anything off
        # The tick of every quarter of a second looks at memory, heartbeats and slow consumers: not the message's way.
        broker.call(lambda _: broker.server.ticks.stop())
        factory = ConnectionFactory(broker.url)
        with factory.create_connection() as sends, factory.create_connection() as receives:
            receives.start()
            session = receives.create_session()
            consumer = session.create_consumer(session.create_queue("orders"), "region = 'EU'")
            producing = sends.create_session()
            producer = producing.create_producer(producing.create_queue("orders"))
            message = producing.create_text_message("three apples")
            message.set_string_property("region", "EU")
            producer.send(message)  # the first one opens this and that
            assert consumer.receive(60_000) is not None
            received: list[Message | None] = []
            receiver = threading.Thread(target=lambda: received.append(consumer.receive(60_000)), name="consumer")
            receiver.start()
            wants = threading.Event()

            def look() -> None:
                if any(c.waiting for c in broker.server.shard.broker.namespace("default").queue("orders").consumers):
                    wants.set()

            broker.call(lambda _: broker.server.turn.watchers.append(look))
            broker.call(lambda _: None)
            assert wants.wait(DEADLINE)
            broker.call(lambda _: broker.server.turn.watchers.remove(look))
            tracer.on = True
            sender = threading.Thread(target=producer.send, args=(message,), name="producer")
            sender.start()
            assert tracer.acknowledged.wait(DEADLINE)
            sender.join(DEADLINE)
            receiver.join(DEADLINE)
            tracer.on = False
            assert received != [None]
    return {thread: list(files) for thread, files in tracer.entered.items() if thread in SECTIONS.values()}


def listed(section: str) -> list[str]:
    """The files of a section of the page, in order."""
    text = PAGE.read_text("utf-8").partition(f"### {section}\n")[2].partition("\n##")[0]
    return re.findall(r"^\d+\. `([^`]+)`", text, re.MULTILINE)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_lists_the_files_that_a_message_enters_in_order(entered: dict[str, list[str]], section: str) -> None:
    assert listed(section) == entered[SECTIONS[section]]


def test_a_message_enters_no_more_files_than_before(entered: dict[str, list[str]]) -> None:
    assert len({file for files in entered.values() for file in files}) == MOST_FILES


def test_every_place_for_a_change_exists() -> None:
    table = PAGE.read_text("utf-8").partition("## Where a change goes")[2]
    places = re.findall(r"`([a-z]+/[\w./]+)`", table)
    assert len(places) > 25
    assert [place for place in places if not (ROOT / place).exists() and "commands.py" not in place] == []


def nouns() -> dict[str, list[str]]:
    """The nouns of a delivery, by file."""
    table = PAGE.read_text("utf-8").partition("## The nouns of a delivery")[2].partition("\n## ")[0]
    found: dict[str, list[str]] = {}
    for names, file in re.findall(r"^\| (`[^|]+) \| `([^`]+)` \|", table, re.MULTILINE):
        found.setdefault(file, []).extend(re.findall(r"`(\w+)`", names))
    return found


def test_each_noun_of_a_delivery_is_defined_where_the_page_says() -> None:
    form = r"^(class {0}\b|{0}: (Final|TypeAlias)|        self\.{0}\b.* = )"
    for file, names in nouns().items():
        text = (ROOT / file).read_text("utf-8")
        assert [name for name in names if not re.search(form.format(name), text, re.MULTILINE)] == [], file


def test_no_file_of_a_delivery_has_another_noun() -> None:
    for file, names in nouns().items():
        tree = ast.parse((ROOT / file).read_bytes())
        classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        assert classes - BESIDE <= set(names), file


def test_a_delivery_needs_no_more_nouns_than_before() -> None:
    named = [name for names in nouns().values() for name in names]
    assert len(named) == len(set(named)) == MOST_NOUNS
    assert f"these {MOST_NOUNS} words" in PAGE.read_text("utf-8")

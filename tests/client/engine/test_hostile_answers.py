"""Every answer that a client reads, as a real broker gives it and with something in it changed: what is read is in
form, or the connection is lost with a JMSException that says what was wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.session.harness import AUTO, TRANSACTED, World
from tests.broker.session.harness import envelope as sent

from sievemq import JMSException, Queue
from sievemq._engine import EngineBrowser, EngineOptions
from sievemq._engine.browser import Scan
from sievemq._engine.taps import TapPage, TapState, page_of, state_of
from sievemq_core.message.envelope import ENVELOPE_FIELDS
from sievemq_core.wire.commands import Command

from .harness import FakeBroker

TAP = ("t", "queue:q")


@cache
def answers() -> Mapping[str, tuple[int, tuple[Any, ...], Any]]:
    """By name: a request, its fields, and what a broker answers."""
    client = World().client()
    session = client.session(AUTO)
    for text, properties in (("a", {"n": 1}), ("b", {}), ("c", {"s": "x"})):
        client.queue_send(session, sent(text, properties=properties, correlation_id=text))
    client.world.settle()
    found = {}

    def ask(name: str, number: int, *fields: Any) -> Any:
        result = client.ask(number, *fields)
        found[name] = (number, fields, result)
        return result

    tap = ask("open", Command.OPEN_TAP, *TAP, "copy", None, None, {"start": "earliest"})["id"]
    ask("look", Command.LOOK_TAP, *TAP, 0, 100, 100_000)
    ask("fetch", Command.FETCH_TAP, *TAP, tap, 0, 3, 100)
    ask("fetch nothing", Command.FETCH_TAP, *TAP, tap, 3, 3, 100)
    ask("acknowledge", Command.ACKNOWLEDGE_TAP, *TAP, tap, 1)
    ask("delete", Command.DELETE_TAP, *TAP)
    ask("browse", Command.BROWSE, "queue:q", None, None, None, 10)
    ask("browse on", Command.BROWSE, "queue:q", None, None, None, 1)
    ask("temporary", Command.CREATE_TEMPORARY, False)
    staging = client.session(TRANSACTED)
    client.send(staging, "x")
    stage = ask("stage", Command.STAGE, staging, "k", 0, 60_000)
    ask("publish", Command.PUBLISH, "k", 0, (stage,))
    ask("publish again", Command.PUBLISH, "k", 0, (stage,))
    ask("discard", Command.DISCARD, "k", 1)
    ask("find", Command.FIND_DESTINATIONS, "queue:*")
    return found


def read_state(result: Any) -> None:
    state = state_of(result)
    for name in TapState.__slots__:
        kind = str if name in ("id", "mode") else bool if name in ("made", "more") else int
        assert type(getattr(state, name)) is kind, name


def read_page(result: Any) -> None:
    page: TapPage = page_of(result)
    assert type(page.first) is int
    assert len(page) == len(page.times) == len(page.counts)
    assert all(type(number) is int for numbers in (page.times, page.counts) for number in numbers)
    if len(page):
        assert len(page.columns) >= ENVELOPE_FIELDS
    for column in page.columns[:ENVELOPE_FIELDS]:
        assert len(column) == len(page)


def read_browsed(result: Any) -> None:
    """As a browser does: it asks for what comes after a cursor, and makes messages."""
    broker = FakeBroker(EngineOptions(heartbeat=0))
    broker.welcome()
    browser = EngineBrowser(broker.session(), Queue("q"), None)
    broker.grant((1,))
    scan = Scan(browser)
    scan.fetch()
    broker.grant(result)
    while (message := scan.take()) is not None:
        for read in READ_OF_A_MESSAGE:
            try:
                read(message)
            except JMSException:
                pass  # what a message says may be no good; that is its reader's to hear


READ_OF_A_MESSAGE: tuple[Callable[[Any], Any], ...] = (
    lambda message: message.get_jms_message_id(),
    lambda message: message.get_jms_correlation_id(),
    lambda message: message.get_jms_correlation_id_as_bytes(),
    lambda message: message.get_jms_reply_to(),
    lambda message: message.get_jms_type(),
    lambda message: message.get_jms_timestamp(),
    lambda message: message.get_jms_expiration(),
    lambda message: message.get_jms_delivery_time(),
    lambda message: dict(message.properties),
    lambda message: list(message.get_property_names()),
    lambda message: message.get_body(object),
    repr,
)

READERS: Mapping[int, Callable[[Any], object]] = {
    Command.OPEN_TAP: read_state,
    Command.LOOK_TAP: read_state,
    Command.ACKNOWLEDGE_TAP: read_state,
    Command.FETCH_TAP: read_page,
    Command.BROWSE: read_browsed,
    Command.DELETE_TAP: bool,
    Command.CREATE_TEMPORARY: lambda result: result.encode(),
    Command.STAGE: lambda result: result.encode(),
    Command.PUBLISH: lambda result: None if result is None else result + 1,
    Command.DISCARD: lambda result: result + 1,
    Command.FIND_DESTINATIONS: lambda result: [name.encode() for name in result],
}


def paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """Where there is something, from the whole inwards."""
    yield ()
    if isinstance(value, dict):
        for key, member in value.items():
            for path in paths(member):
                yield (key, *path)
    elif isinstance(value, tuple):
        for index, member in enumerate(value):
            for path in paths(member):
                yield (index, *path)


def changed(value: Any, path: tuple[Any, ...], act: str, other: Any) -> Any:
    """The value with one of its places replaced, left out or said twice."""
    if not path:
        return other
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        if not rest and act == "drop":
            return {name: member for name, member in value.items() if name != key}
        return {**value, key: changed(value[key], rest, act, other)}
    if not rest and act == "drop":
        return value[:key] + value[key + 1 :]
    if not rest and act == "double":
        return value[:key] + value[key : key + 1] + value[key:]
    return (*value[:key], changed(value[key], rest, act, other), *value[key + 1 :])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def hear(number: int, fields: tuple[Any, ...], result: Any) -> JMSException | None:
    """Ask, be answered, and read it."""
    broker = FakeBroker(EngineOptions(heartbeat=0))
    broker.welcome()
    completion = broker.engine.request(number, *fields)
    broker.grant(result)
    assert completion.done
    if completion.error is None:
        READERS[number](completion.result())
        assert broker.engine.failure is None
        return None
    assert isinstance(completion.error, JMSException), completion.error
    assert broker.engine.failure is not None
    return completion.error


@pytest.mark.parametrize("name", list(answers()))
def test_answers_of_a_broker_are_decoded(name: str) -> None:
    assert hear(*answers()[name]) is None


def test_additional_fields_of_a_newer_broker_are_skipped() -> None:
    (number, fields, (cursor, *rows)) = answers()["browse"]
    assert hear(number, fields, (cursor, *((*row, "more") for row in rows))) is None
    number, fields, state = answers()["look"]
    assert hear(number, fields, {**state, "more of it": 5}) is None
    number, fields, fetched = answers()["fetch"]
    assert hear(number, fields, (*fetched, (1, 2, 3))) is None


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_invalid_answers_are_decoded_or_refused(data: st.DataObject) -> None:
    number, fields, result = answers()[data.draw(st.sampled_from(list(answers())))]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(paths(result))))
        act = data.draw(st.sampled_from(["replace", "replace", "drop", "double"]))
        result = changed(result, path, act, data.draw(VALUES))
    hear(number, fields, result)


@pytest.mark.parametrize(
    ("name", "path", "other", "text"),
    [
        ("open", ("made",), None, "'made'"),
        ("look", ("upto",), "x", "'upto'"),
        ("look", (), (), "how the tap stands"),
        ("acknowledge", ("id",), 5, "'id'"),
        ("fetch", (1, 0), "x", "numbers"),
        ("fetch", (3,), (), "not as many"),
        ("fetch", (3, 0, 9), "text", "properties"),
        ("fetch", (3, 0), (), "13 fields"),
        ("fetch", (), (0, (1,), (1,)), "envelopes"),
        ("delete", (), 1, "whether"),
        ("stage", (), None, "a name"),
        ("publish", (), "x", "number of messages"),
        ("discard", (), None, "number of messages"),
    ],
)
def test_errors_name_the_wrong_field(name: str, path: tuple[Any, ...], other: Any, text: str) -> None:
    number, fields, result = answers()[name]
    error = hear(number, fields, changed(result, path, "replace", other))
    assert error is not None
    assert text in str(error)

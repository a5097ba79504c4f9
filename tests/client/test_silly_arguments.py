"""Wrong arguments of taps and staged sends raise in the client; the connection goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import sievemq.aio
import sievemq.aio.staging
import sievemq.aio.taps
from sievemq import Connection, ConnectionFactory, Queue, Session, TextMessage
from sievemq.staging import discard, publish, stage
from sievemq.taps import Tap, delete_tap, find_tap, open_tap
from sievemq_broker import EmbeddedBroker

NUMBERS = [-1, 2**63, 1.5, None, True, "1"]
NAMES: list[Any] = ["", "x" * 256, "a\0b", None, 5, b"x"]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def connection(broker: EmbeddedBroker) -> Iterator[Connection]:
    with ConnectionFactory(broker.url, reconnect=0).create_connection() as connection:
        yield connection


@pytest.fixture(scope="module")
def tap(connection: Connection) -> Tap:
    return open_tap(connection, "audit", Queue("q"))[0]


@pytest.fixture
def session(connection: Connection) -> Iterator[Session]:
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        yield session
        assert connection.create_session(), "the connection has ended"


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "call",
    [
        lambda tap, number: tap.look(number),
        lambda tap, number: tap.look(0, messages=number),
        lambda tap, number: tap.look(0, size=number),
        lambda tap, number: tap.fetch(number, 5),
        lambda tap, number: tap.fetch(0, number),
        lambda tap, number: tap.fetch(0, 5, number),
        lambda tap, number: tap.acknowledge(number),
    ],
)
def test_numbers_of_a_tap(tap: Tap, call: Callable[[Tap, Any], object], number: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        call(tap, number)


@pytest.mark.usefixtures("session")
def test_no_page_is_empty_on_purpose(tap: Tap) -> None:
    with pytest.raises(ValueError, match="limit"):
        tap.fetch(0, 5, 0)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""}, {"name": 5}, {"mode": "steal"}, {"mode": None}, {"start": "middle"}, {"retain_messages": 2**70},
        {"retain_bytes": -1}, {"retain_age": timedelta(days=-1)}, {"lease": "long"}, {"reader": ""}, {"reader": 7},
    ],
    ids=str,
)  # fmt: skip
def test_terms_of_a_tap(connection: Connection, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        open_tap(connection, **{"name": "audit", "destination": Queue("q"), **wrong})


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("name", NAMES)
def test_names_of_taps(connection: Connection, name: Any) -> None:
    for call in (find_tap, delete_tap):
        with pytest.raises(ValueError, match="a tap's name"):
            call(connection, name, Queue("q"))


@pytest.mark.parametrize("key", NAMES)
def test_keys_of_publishers(connection: Connection, session: Session, key: Any) -> None:
    for call in (
        lambda: stage(session, key, 1),
        lambda: publish(connection, key, 1, []),
        lambda: discard(connection, key, 1),
    ):
        with pytest.raises(ValueError, match="a publisher's key"):
            call()


@pytest.mark.parametrize("batch", NUMBERS)
def test_batches(connection: Connection, session: Session, batch: Any) -> None:
    for call in (
        lambda: stage(session, "k", batch),
        lambda: publish(connection, "k", batch, []),
        lambda: discard(connection, "k", batch),
    ):
        with pytest.raises(ValueError, match="a batch"):
            call()


@pytest.mark.parametrize("lease", [-1, timedelta.min, "long", 2**63])
def test_leases(session: Session, lease: Any) -> None:
    with pytest.raises(ValueError, match="a lease"):
        stage(session, "k", 1, lease)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("names", ["name", [5], [None], [b"name"], ("a", ["b"])])
def test_names_of_stages(connection: Connection, names: Any) -> None:
    with pytest.raises(ValueError, match="stages are named"):
        publish(connection, "k", 1, names)


def test_a_refused_call_stages_nothing(connection: Connection, session: Session) -> None:
    session.create_producer(Queue("staged")).send(TextMessage("x"))
    with pytest.raises(ValueError, match="a batch"):
        stage(session, "k", -1)
    assert publish(connection, "k", 1, [stage(session, "k", 1)] * 2) == 1  # twice named, once sent


async def test_with_asyncio_too(broker: EmbeddedBroker) -> None:
    async with await sievemq.aio.ConnectionFactory(broker.url, reconnect=0).create_connection() as connection:
        tap, _ = await sievemq.aio.taps.open_tap(connection, "more", Queue("q"))
        with pytest.raises(ValueError, match="after"):
            await tap.look(-1)
        with pytest.raises(ValueError, match="a batch"):
            await sievemq.aio.staging.publish(connection, "k", -1, [])
        assert (await tap.look(0)).upto == 0

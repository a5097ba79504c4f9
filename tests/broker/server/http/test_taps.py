"""Taps: lag, limits, readers; making and deleting them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from sievemq import Connection, ConnectionFactory, JMSContext, Queue, Topic
from sievemq.taps import find_tap, open_tap
from sievemq_broker import EmbeddedBroker

from .conftest import Api, at, send
from .deep import longest_turn
from .test_rights import as_user

Q = "queue:q"


def tap_at(name: str, address: str = Q) -> str:
    return f"{at(address)}/taps/{quote(name, safe='')}"


@contextmanager
def connected(api: Api) -> Iterator[Connection]:
    with ConnectionFactory(f"{api.broker.url}/{quote(api.namespace, safe='')}").create_connection() as connection:
        yield connection


def test_a_reader_that_is_behind(api: Api, context: JMSContext) -> None:
    with connected(api) as connection:
        tap, _ = open_tap(connection, "audit", Queue("q"), selector="n > 0", lease=3_600_000)
        send(context, Q, *range(6))
        tap.acknowledge(2)
        row = api.get(tap_at("audit"))
        assert (row["namespace"], row["destination"], row["name"], row["mode"]) == (api.namespace, Q, "audit", "copy")
        assert (row["selector"], row["dialect"], row["owner"], row["ended"]) == ("n > 0", "jakarta", None, None)
        assert (row["first"], row["last"], row["acknowledged"], row["lag"]) == (3, 5, 2, 3)
        assert row["bytes"] > 3 * 160
        assert row["lag_ms"] >= 0
        assert row["retention"] == {"messages": 1_000_000, "bytes": 256 * 1024 * 1024, "age": 0, "lease": 3_600_000}
        assert row["lease_ends"] == row["heard"] + 3_600_000
        (mine,) = (each["id"] for each in api.get("/api/v1/connections", namespace=api.namespace)["connections"]
                   if each["id"] == row["reader"])  # fmt: skip
        assert (mine, row["connected"], row["id"]) == (row["reader"], True, tap.id)
        before = row["heard"]
    row = api.get(tap_at("audit"))
    assert (row["connected"], row["heard"], row["reader"]) == (False, before, mine)  # looking is no word from it


def test_gaps(api: Api, context: JMSContext) -> None:
    with connected(api) as connection:
        open_tap(connection, "small", Queue("q"), retain_messages=2)
    send(context, Q, *range(5))
    row = api.get(tap_at("small"))
    assert (row["first"], row["last"], row["lag"], row["lost"], row["missed"]) == (4, 5, 2, 3, 3)


def test_drains_with_an_ended_lease_or_a_closed_consumer(context: JMSContext) -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        with connected(api) as connection, ConnectionFactory(broker.url).create_context() as sender:
            tap, _ = open_tap(connection, "d", Queue("q"), "drain", lease=3_600_000)
            assert api.get(tap_at("d"))["lease_ends"] == 0  # it holds nothing
            send(sender, Q, 1, 2, 3)
            tap.look(0, messages=2)
            row = api.get(tap_at("d"))
            assert (row["lag"], row["lease_ends"] - row["heard"]) == (2, 3_600_000)
            assert api.get(at(Q))["in_flight"] == 2
            broker.clock.advance(seconds=3_601)
            row = api.get(tap_at("d"))
            assert (row["lag"], row["lost"], row["missed"]) == (0, 2, 2)
            assert api.get(at(Q))["depth"] == 3


def test_taps_come_in_pages_and_are_filtered(api: Api) -> None:
    with connected(api) as connection:
        for name in ("c", "a", "b"):
            open_tap(connection, name, Queue("q"))
        open_tap(connection, "a", Topic("t"))

    def names(**query: object) -> list[str]:
        found: list[str] = []
        cursor: dict[str, object] = {}
        while True:
            page = api.get("taps", **query, **cursor)
            found += [f"{row['destination']}/{row['name']}" for row in page["taps"]]
            if page["next"] is None:
                return found
            cursor = {"cursor": page["next"]}

    everything = ["queue:q/a", "queue:q/b", "queue:q/c", "topic:t/a"]
    assert names() == names(limit=1) == names(limit=3) == everything
    assert names(like="A") == ["queue:q/a", "topic:t/a"]
    assert names(destination="q") == everything[:3]
    assert names(destination="topic:t") == everything[3:]
    assert names(destination="queue:none") == []
    assert api.get("taps", limit=1)["total"] == 4
    assert api("GET", "taps", destination="queue:\n").status == 422


@pytest.mark.parametrize("name", ["audit", "with space", "a/b", "100%", "ümlaut"])
def test_making_changing_and_deleting(api: Api, context: JMSContext, name: str) -> None:
    send(context, Q, 1, 2)
    made = api("PUT", tap_at(name), {"start": "earliest", "retain_age": 1_000_000})
    assert made.status == 201
    assert (made.json["lag"], made.json["retention"]["age"], made.json["reader"]) == (2, 1_000_000, None)
    again = api("PUT", tap_at(name), {"retain_messages": 5})
    assert again.status == 200
    assert (again.json["id"], again.json["retention"]["messages"]) == (made.json["id"], 5)
    assert api("PUT", tap_at(name), {"mode": "drain"}).error == "ILLEGAL_STATE"
    with connected(api) as connection:
        assert find_tap(connection, name, Queue("q"))[1].upto == 2  # a client finds it
    assert api.ok("DELETE", tap_at(name), dry_run="true") == {
        "matched": 2, "touched": 0, "dry_run": True, "more": False, "skipped": 0, "stopped": None,
    }  # fmt: skip
    assert api.ok("DELETE", tap_at(name))["touched"] == 2
    assert api("GET", tap_at(name)).error == api("DELETE", tap_at(name)).error == "NOT_FOUND"
    assert api.get(at(Q))["depth"] == 2


def test_deleting_a_drain_returns_its_messages(api: Api, context: JMSContext) -> None:
    send(context, Q, 1, 2)
    with connected(api) as connection:
        open_tap(connection, "d", Queue("q"), "drain")[0].look(0)
        assert api.get(at(Q))["depth"] == 0
        assert api.ok("DELETE", tap_at("d"))["touched"] == 2
    assert api.ids(Q) == ["1", "2"]


@pytest.mark.parametrize(
    ("address", "body", "status", "error"),
    [
        (Q, {"mode": "peek"}, 400, "BAD_REQUEST"),
        (Q, {"retain_messages": 0}, 409, "ILLEGAL_STATE"),
        (Q, {"retain_bytes": 2**80}, 409, "ILLEGAL_STATE"),
        (Q, {"lease": 1}, 409, "ILLEGAL_STATE"),
        (Q, {"mode": "drain", "lease": 0}, 409, "ILLEGAL_STATE"),
        (Q, {"selector": "n =="}, 422, "INVALID_SELECTOR"),
        ("topic:t", {"mode": "drain"}, 422, "INVALID_DESTINATION"),
        ("temporary-queue:x.1", {}, 422, "INVALID_DESTINATION"),
    ],
)
def test_invalid_taps_are_refused(api: Api, address: str, body: dict[str, object], status: int, error: str) -> None:
    answer = api("PUT", tap_at("t", address), body)
    assert (answer.status, answer.error) == (status, error)
    assert api.get("taps")["taps"] == []


def test_a_large_copy_is_dropped_in_slices(api: Api, context: JMSContext) -> None:
    from .deep import fill

    count = 20_000
    api.broker.call(lambda b: fill(b, api.namespace, Q, count))
    assert api.ok("PUT", tap_at("large"), {"start": "earliest"})["lag"] == count

    def judge(broker: Any) -> None:
        tap = broker.namespace(api.namespace).taps.find("large", Q)
        while tap.look(0, 0, 0, 1)[1]:
            pass

    api.broker.call(judge)
    with longest_turn(api.broker) as turns:
        assert api.ok("DELETE", tap_at("large"))["touched"] == count
    assert turns.count > count / 500 - 2
    assert api.broker.call(lambda b: b.namespace(api.namespace).taps.missed) == 0
    assert api.get("taps")["taps"] == []


USERS = {
    "admin": "secret",
    "anna": {"password": "secret", "rights": [{"may": ["browse"], "destination": "queue:q", "namespace": "mine"}]},
    "max": {
        "password": "secret",
        "rights": [{"may": ["manage", "browse"], "destination": "queue:*", "namespace": "mine"}],
    },
    "tom": {"password": "secret", "rights": [{"may": ["view"], "destination": "queue:q", "namespace": "mine"}]},
}


def test_rights() -> None:
    with EmbeddedBroker(http=True, settings={"users": USERS}) as broker:
        admin, anna, manager, tom = (as_user(broker, name) for name in ("admin", "anna", "max", "tom"))
        admin.ok("POST", "/api/v1/namespaces", {"name": "mine"})
        refused = anna("PUT", tap_at("hers"))  # there is no such queue, and she may only look
        assert (refused.status, refused.error) == (403, "SECURITY")
        assert admin.get("destinations")["destinations"] == []
        for address in (Q, "queue:secret"):
            admin.ok("PUT", at(address))
            admin.ok("PUT", tap_at("all", address))
        assert anna.ok("PUT", tap_at("hers"))["owner"] == "anna"
        assert {row["name"]: row["yours"] for row in anna.get("taps")["taps"]} == {"all": False, "hers": True}
        assert {row["yours"] for row in manager.get("taps", destination=Q)["taps"]} == {True}
        assert anna("PUT", tap_at("drain"), {"mode": "drain"}).error == "SECURITY"
        assert [row["name"] for row in anna.get("taps")["taps"]] == ["all", "hers"]
        assert anna("GET", tap_at("all", "queue:secret")).error == "SECURITY"
        assert anna("DELETE", tap_at("all", "queue:secret")).error == "NOT_FOUND"
        assert tom.get(tap_at("hers"))["owner"] == "anna"
        for user, name in ((anna, "all"), (tom, "hers"), (tom, "all")):
            assert user("DELETE", tap_at(name), dry_run="true").error == "SECURITY"
            assert user("PUT", tap_at(name)).error == "SECURITY"
        assert anna.ok("DELETE", tap_at("hers"))["matched"] == 0
        assert manager.ok("DELETE", tap_at("all"))["matched"] == 0
        assert as_user(broker, "anna", "default")("GET", "taps").error == "NOT_FOUND"

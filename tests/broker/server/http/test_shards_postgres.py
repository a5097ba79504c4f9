"""Two owners and a spare on one database, by their management ports."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from sievemq_broker import EmbeddedBroker

from .conftest import DEADLINE, Api

pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")
from sievemq_broker.store.postgres_tool import make_tables

if TYPE_CHECKING:
    from tests.postgres import Server

SETTINGS = {"shards": "a,b", "beat_seconds": 0.05, "lease_seconds": 60.0}


def test_a_spare_names_the_owners_and_takes_a_shard_that_is_moved(postgres: Server) -> None:
    url = postgres.new_database()
    make_tables(url)
    definitions = {"namespaces": {name: {"queues": [f"of-{name}"]} for name in ("one", "two", "default")}}
    with ExitStack() as stack:

        def broker(shard: str | None = None) -> EmbeddedBroker:
            more = {} if shard is None else {"shard": shard}
            return stack.enter_context(
                EmbeddedBroker(store=url, http=True, definitions=definitions, settings={**SETTINGS, **more})
            )

        owners = {"a": broker("a"), "b": broker("b")}
        for owner in owners.values():
            owner.wait_until_serving(DEADLINE)
        spare = Api(broker())
        shards = spare.get("/api/v1/shards")
        assert shards["cluster"]
        rows = {row["name"]: row for row in shards["shards"]}
        assert {name: (row["http_url"], row["followers"]) for name, row in rows.items()} == {
            name: (owner.http_url, 1) for name, owner in owners.items()
        }
        assert sum(row["namespaces"] for row in rows.values()) == 3
        # Each owner has made the defined namespaces of its shard when it started.
        there: dict[str, str] = {}
        for name in definitions["namespaces"]:
            answer = spare("GET", f"/api/v1/namespaces/{name}/destinations")
            assert (answer.status, answer.error) == (421, "REDIRECT")
            shard = there[name] = answer.json["details"]["shard"]
            assert answer.json["details"]["url"] == owners[shard].http_url
            found = Api(owners[shard], name).get("destinations")["destinations"]
            assert [row["name"] for row in found] == [f"of-{name}"]
        assert spare("GET", "/api/v1/namespaces/none/destinations").status == 503, "it is nowhere, and nothing is here"
        answer = spare("GET", "/api/v1/broker")
        assert answer.status == 503
        assert answer.json["text"].endswith(f"a ({owners['a'].http_url}), b ({owners['b'].http_url}): ask one of them")
        listed = spare.get("/api/v1/namespaces")
        assert (listed["namespaces"], {row["name"]: row["shard"] for row in listed["elsewhere"]}) == ([], there)
        for path in ("/api/v1/consumers", "/api/v1/connections"):
            assert spare("GET", f"{path}?namespace=one").json["details"]["url"] == owners[there["one"]].http_url
            assert spare("GET", path).status == 503
        made = spare("POST", "/api/v1/namespaces", {"name": "made"})
        assert (made.status, made.json["details"]["namespace"]) == (421, "made")
        assert spare.ok("POST", "/api/v1/shards/b/actions/assign", {"name": "new"})["shard"] == "b"
        answer = spare("POST", "/api/v1/shards/a/actions/assign", {"name": "new"})
        assert (answer.status, answer.json["details"]["url"]) == (421, owners["b"].http_url)
        assert Api(owners["b"])("POST", "/api/v1/shards/a/actions/take").status == 409, "it owns one already"
        assert spare("POST", "/api/v1/shards/c/actions/take").status == 409
        asked = spare.ok("POST", "/api/v1/shards/a/actions/take")
        assert asked == {"shard": "a", "owner": owners["a"].url}
        spare.broker.wait_until_serving(DEADLINE)
        assert Api(spare.broker).get("/api/v1/broker")["role"] == "owner"
        for name, shard in there.items():
            if shard == "a":
                assert Api(spare.broker, name).get("destinations")["total"] == 1

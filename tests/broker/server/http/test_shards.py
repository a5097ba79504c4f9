"""A cluster at its management ports: who has which namespace, and who is told."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.domain.work import Task
from sievemq_broker.server import definitions as server_definitions
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.gate import expect_here
from sievemq_broker.server.placement import Where

from .cluster import SHARDS, Cluster
from .conftest import Answer, Api


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        cluster = Cluster(stack)
        cluster.tables.patterns = {"a-*": "a", "b-*": "b", "default": "a"}
        yield cluster


def api_of(cluster: Cluster, shard: str, namespace: str = "default", **headers: str) -> Api:
    return Api(cluster[shard], namespace, **headers)


def as_user(name: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:x'.encode()).decode()}"}


def leads_to(answer: Answer, broker: EmbeddedBroker) -> bool:
    """The answer is that another broker has it, and names this one."""
    return (answer.status, answer.error, answer.json["details"]["url"]) == (421, "REDIRECT", broker.http_url)


def test_what_names_a_namespace_of_another_shard_is_sent_there(cluster: Cluster) -> None:
    here, there = api_of(cluster, "a", "b-1"), api_of(cluster, "b", "b-1")
    assert here("GET", "destinations").status == 404, "it does not exist, and a look makes no row"
    assert cluster.tables.rows == {}
    assert leads_to(here("POST", "/api/v1/namespaces", {"name": "b-1"}), cluster["b"])
    assert there("POST", "/api/v1/namespaces", {"name": "b-1"}).status == 201
    assert there.ok("PUT", "destinations/queue:q", {})["address"] == "queue:q"
    answer = here("PUT", "destinations/queue:q", {})
    assert leads_to(answer, cluster["b"])
    assert answer.json["text"] == f"namespace 'b-1' is in shard b: ask at {cluster['b'].http_url}"
    assert answer.json["details"]["shard"] == "b"
    assert answer.json["details"]["namespace"] == "b-1"
    for method, path in (
        ("GET", "destinations/queue:q"),
        ("DELETE", "/api/v1/namespaces/b-1"),
        ("POST", "destinations/queue:q/messages"),
        ("POST", "destinations/queue:q/actions/purge"),
        ("GET", "/api/v1/consumers?namespace=b-1"),
        ("GET", "/api/v1/connections?namespace=b-1"),
    ):
        assert leads_to(here(method, path), cluster["b"]), path
    assert here.get("/api/v1/consumers") == there.get("/api/v1/consumers", namespace="b-1")


def test_the_default_namespace_is_in_one_shard_before_it_is_used(cluster: Cluster) -> None:
    assert leads_to(api_of(cluster, "b")("GET", "destinations"), cluster["a"])
    assert cluster.tables.rows == {"default": "a"}
    assert api_of(cluster, "a").get("destinations")["total"] == 0
    assert "default" not in cluster["b"].call(lambda broker: broker.namespaces)


def test_a_shard_without_an_owner_is_asked_for_again(cluster: Cluster) -> None:
    cluster.tables.rows["b-1"] = "b"
    cluster.tables.own("b", "another")
    answer = api_of(cluster, "a", "b-1")("GET", "destinations")
    assert (answer.status, answer.error, answer.headers["retry-after"]) == (503, "UNAVAILABLE", "1")
    assert answer.json["text"] == "namespace 'b-1' is in shard b, which no broker owns at present; try again"
    cluster.tables.own("b", "another", "sievemq://b:1")
    answer = api_of(cluster, "a", "b-1")("GET", "destinations")
    assert (answer.status, answer.json["details"]["url"]) == (421, None)
    assert "management port is not known (advertise_http)" in answer.json["text"]


def test_lists_name_the_namespaces_of_other_shards(cluster: Cluster) -> None:
    for shard in SHARDS:
        for number in range(3):
            api_of(cluster, shard).ok("POST", "/api/v1/namespaces", {"name": f"{shard}-{number}"})
    api = api_of(cluster, "a")
    answer = api.get("/api/v1/namespaces")
    assert [row["name"] for row in answer["namespaces"]] == ["a-0", "a-1", "a-2"]
    url = cluster["b"].http_url
    assert answer["elsewhere"] == [{"name": f"b-{number}", "shard": "b", "url": url} for number in range(3)]
    assert answer["total"] == 6
    names, cursor = [], None
    while True:
        page = api.get("/api/v1/namespaces", limit=2, like="*-", **({"cursor": cursor} if cursor else {}))
        names += [row["name"] for row in (*page["namespaces"], *page["elsewhere"])]
        cursor = page["next"]
        if cursor is None:
            break
    assert sorted(names) == [f"{shard}-{number}" for shard in SHARDS for number in range(3)]
    rows = {row["name"]: row for row in api.get("/api/v1/shards")["shards"]}
    assert {name: (row["here"], row["namespaces"]) for name, row in rows.items()} == {"a": (True, 3), "b": (False, 3)}
    assert (rows["b"]["url"], rows["b"]["http_url"], rows["b"]["owner"]) == (cluster["b"].url, url, "broker of b")


def test_users_learn_of_namespaces_in_which_they_have_a_right_alone() -> None:
    rights = [{"may": ["view", "manage"], "destination": "*", "namespace": "b-mine"}]
    users = {"ann": {"password": "x", "rights": rights}, "root": {"password": "x"}}
    with ExitStack() as stack:
        cluster = Cluster(stack, settings={"users": users})
        cluster.tables.rows = {"b-mine": "b", "b-other": "b"}
        cluster.tables.patterns = {"b-*": "b"}
        mine, other = (api_of(cluster, "a", name, **as_user("ann")) for name in ("b-mine", "b-other"))
        assert leads_to(mine("GET", "destinations"), cluster["b"])
        assert other("GET", "destinations").status == 404
        assert other("GET", "destinations/queue:q").status == 403
        assert other("DELETE", "/api/v1/namespaces/b-other").status == 403
        assert mine("GET", "destinations/queue:q/messages").status == 403, "they may not browse there"
        assert mine("POST", "/api/v1/namespaces", {"name": "b-other"}).status == 403
        assert other.get("/api/v1/consumers", namespace="b-other")["total"] == 0
        assert [row["name"] for row in mine.get("/api/v1/namespaces")["elsewhere"]] == ["b-mine"]
        shards = mine.get("/api/v1/shards")
        assert [(row["name"], row["namespaces"], row["owner"]) for row in shards["shards"]] == [
            ("a", 0, None),
            ("b", 1, None),
        ]
        assert shards["patterns"] == []
        assert leads_to(mine("POST", "/api/v1/shards/b/actions/assign", {"name": "b-mine"}), cluster["b"])
        for method, path, body in (
            ("POST", "/api/v1/shards/a/actions/assign", {"name": "b-other"}),
            ("POST", "/api/v1/shards/a/actions/assign", {"name": "b-*"}),
            ("DELETE", "/api/v1/shards/patterns/b-*", None),
            ("POST", "/api/v1/shards/a/actions/take", None),
        ):
            assert mine(method, path, body).status == 403, path
        root = api_of(cluster, "a", **as_user("root"))
        attempts = root.get("/api/v1/audit", only="attempts", like="assign_namespace")["rows"]
        assert {(row["namespace"], row["details"].get("pattern")) for row in attempts} == {
            ("b-other", None),
            (None, "b-*"),
        }
        assert len(root.get("/api/v1/namespaces")["elsewhere"]) == 2
        assert root.get("/api/v1/shards")["patterns"] == [{"pattern": "b-*", "shard": "b"}]


def test_a_namespace_is_assigned_by_the_owner_of_its_shard(cluster: Cluster) -> None:
    a, b = api_of(cluster, "a"), api_of(cluster, "b")
    to_a, to_b = "/api/v1/shards/a/actions/assign", "/api/v1/shards/b/actions/assign"
    assert a.ok("POST", to_b, {"name": "a-new"}) == {"name": "a-new", "shard": "b"}, "it has no shard yet"
    assert leads_to(a("POST", to_a, {"name": "a-new"}), cluster["b"])
    assert b.ok("POST", to_a, {"name": "a-new"})["shard"] == "a"
    a.ok("POST", "/api/v1/namespaces", {"name": "a-new"})
    api_of(cluster, "a", "a-new").ok("PUT", "destinations/queue:q", {})
    answer = a("POST", to_b, {"name": "a-new"})
    assert (answer.status, answer.error) == (409, "ILLEGAL_STATE")
    assert "`sievemq browse --json`" in answer.json["text"]
    api_of(cluster, "a", "a-new").ok("DELETE", "destinations/queue:q")
    assert a.ok("POST", to_b, {"name": "a-new"})["shard"] == "b"
    assert "a-new" not in cluster["a"].call(lambda broker: broker.namespaces)
    assert cluster.tables.rows["a-new"] == "b"
    assert a("POST", "/api/v1/shards/c/actions/assign", {"name": "x"}).status == 404
    assert a("POST", to_a, {"name": "a\n"}).status == 409


def test_no_namespace_is_moved_while_a_request_changes_it(cluster: Cluster) -> None:
    cluster.tables.rows["a-1"] = "a"
    api = api_of(cluster, "a")
    management = cluster["a"]._http.management  # type: ignore[union-attr]
    cluster["a"].call(lambda _: management.changed.update(["a-1"]))
    answer = api("POST", "/api/v1/shards/b/actions/assign", {"name": "a-1"})
    assert (answer.status, cluster.tables.rows["a-1"]) == (409, "a")
    assert api("PUT", "/api/v1/namespaces/a-1/destinations/queue:q", {}).status == 404
    assert cluster["a"].call(lambda _: dict(management.changed)) == {"a-1": 1}
    cluster["a"].call(lambda _: management.changed.clear())
    assert api.ok("POST", "/api/v1/shards/b/actions/assign", {"name": "a-1"})["shard"] == "b"


def test_no_namespace_is_moved_while_definitions_are_applied(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    management = cluster["a"]._http.management  # type: ignore[union-attr]
    apply, counted = server_definitions.apply, []

    def look(*arguments: Any) -> Task[list[server_definitions.Change]]:
        counted.append(dict(management.changed))
        return apply(*arguments)

    monkeypatch.setattr(server_definitions, "apply", look)
    given = {"definitions": {"namespaces": {"a-1": {"queues": ["q"]}, "a-2": {}}}}
    api_of(cluster, "a").ok("POST", "/api/v1/definitions", given)
    assert (counted, management.changed) == ([{"a-1": 1, "a-2": 1}], {})


async def test_a_namespace_that_leaves_is_asked_for_again() -> None:
    class Leaving:
        shard = "a"

        def here(self, name: str) -> bool:
            return False

        async def find(self, name: str) -> Where:
            return Where(name, "a")

    server: Any = SimpleNamespace(placement=Leaving(), is_shared=False)
    with pytest.raises(ApiError, match="is going to another shard; try again") as refused:
        await expect_here(server, "n")
    assert refused.value.status == 503


def test_patterns_choose_the_shard_of_new_namespaces(cluster: Cluster) -> None:
    api = api_of(cluster, "a")
    assert api.ok("POST", "/api/v1/shards/b/actions/assign", {"name": "team-?"})["shard"] == "b"
    assert api.get("/api/v1/shards")["patterns"][-1] == {"pattern": "team-?", "shard": "b"}
    assert leads_to(api("POST", "/api/v1/namespaces", {"name": "team-1"}), cluster["b"])
    assert api.ok("DELETE", "/api/v1/shards/patterns/team-%3F") == {"name": "team-?", "shard": None}
    assert cluster.tables.rows["team-1"] == "b", "what exists stays"
    assert len(api.get("/api/v1/shards")["patterns"]) == 3
    actions = [row["action"] for row in api.get("/api/v1/audit")["rows"]]
    assert actions == ["delete_shard_pattern", "assign_namespace"]


def test_tables_that_do_not_answer_are_said(cluster: Cluster) -> None:
    cluster.tables.rows["a-1"] = "a"
    cluster["a"].call(lambda _: setattr(cluster["a"].server.placement, "_patience", 0.01))
    cluster.places["a"].away()
    for path in ("/api/v1/namespaces/b-1/destinations", "/api/v1/shards", "/api/v1/namespaces"):
        answer = api_of(cluster, "a")("GET", path)
        assert (answer.status, answer.error) == (503, "UNAVAILABLE"), path
    cluster.places["a"].back()
    assert api_of(cluster, "a").get("/api/v1/shards")["cluster"]


def test_definitions_are_applied_by_the_owner_of_each_namespace(cluster: Cluster) -> None:
    api_of(cluster, "b").ok("POST", "/api/v1/namespaces", {"name": "b-1"})
    api_of(cluster, "b", "b-1").ok("PUT", "destinations/queue:there", {})
    wanted = {name: {"queues": ["q"]} for name in ("a-1", "b-1", "b-2", "default")}
    given = {"definitions": {"namespaces": wanted, "rules": {"queue:x": {"max_messages": 1}}}}
    planned = api_of(cluster, "a").ok("POST", "/api/v1/definitions", {**given, "dry_run": True})
    assert {change["name"] for change in planned["changes"]} == {
        "a-1",
        "a-1/queue:q",
        "default/queue:q",
        "rule/queue:x",
    }
    assert (sorted(planned["elsewhere"]), list(cluster.tables.rows)) == (["b-1", "b-2"], ["b-1"])
    applied = [api_of(cluster, shard).ok("POST", "/api/v1/definitions", given) for shard in SHARDS]
    assert [(answer["applied"], sorted(answer["elsewhere"])) for answer in applied] == [
        (4, ["b-1", "b-2"]),
        (4, ["a-1", "default"]),
    ]
    assert cluster.tables.rows == {"a-1": "a", "b-1": "b", "b-2": "b", "default": "a"}
    found = [api_of(cluster, shard).get("/api/v1/definitions")["definitions"]["namespaces"] for shard in SHARDS]
    assert [sorted(each) for each in found] == [["a-1", "default"], ["b-1", "b-2"]]
    assert found[1]["b-1"]["queues"] == ["q", "there"]


def test_a_broker_without_a_cluster_has_one_shard() -> None:
    with EmbeddedBroker(http=True) as broker:
        api = Api(broker)
        api.ok("POST", "/api/v1/namespaces", {"name": "n"})
        answer = api.get("/api/v1/shards")
        assert answer == {
            "cluster": False,
            "shards": [
                {
                    "name": "main", "here": True, "owner": None, "url": broker.url, "http_url": broker.http_url,
                    "followers": None, "namespaces": 1,
                }
            ],
            "patterns": [], "redirects": {},
        }  # fmt: skip
        for path, body in (("assign", {"name": "n"}), ("take", None)):
            refused = api("POST", f"/api/v1/shards/main/actions/{path}", body)
            assert (refused.status, refused.error) == (409, "ILLEGAL_STATE")
        assert api.get("/api/v1/namespaces")["elsewhere"] == []

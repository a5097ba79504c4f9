"""`sievemq shard`, and other commands in a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.broker.server.http.cluster import Cluster

from sievemq.cli.manage import definitions
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.server import Server

from .conftest import Sievemq


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, sievemq: Sievemq) -> Iterator[Cluster]:
    """Commands ask the owner of shard a."""
    with ExitStack() as stack:
        cluster = Cluster(stack)
        cluster.tables.patterns = {"a-*": "a", "b-*": "b", "default": "a"}
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", cluster["a"].http_url)
        yield cluster


def test_commands_work_in_a_namespace_of_another_shard(sievemq: Sievemq, cluster: Cluster) -> None:
    assert sievemq("namespace", "create", "b-1").out == "b-1 exists\n"
    assert sievemq("queue", "create", "q", "-N", "b-1").code == 0
    assert "q" in sievemq("queue", "ls", "-N", "b-1").out
    assert cluster["b"].call(lambda broker: list(broker.namespaces["b-1"].destinations)) == ["queue:q"]
    assert sievemq("consumer", "ls", "-N", "b-1").code == 0
    rows = [line.split("\t") for line in sievemq("namespace", "ls").lines]
    assert (rows[0][0], rows[0][-2:]) == ("namespace", ["shard", "owner"])
    assert rows[1] == ["b-1", "", "", "", "", "", "", "b", cluster["b"].http_url]
    assert [json.loads(line)["name"] for line in sievemq("namespace", "ls", "--json").lines] == ["b-1"]
    assert sievemq("namespace", "delete", "b-1", "--yes").code == 0


def test_shards_are_listed_with_their_owners(sievemq: Sievemq, cluster: Cluster) -> None:
    cluster.tables.own("b", "nobody")
    cluster.tables.rows["a-1"] = "a"
    a = cluster["a"]
    assert [line.split("\t") for line in sievemq("shard", "ls").lines] == [
        ["shard", "namespaces", "owner", "management port", "followers", "process"],
        ["a", "1", a.url, a.http_url, "0", "broker of a"],
        ["b", "0", "(none)", "", "0", ""],
    ]
    assert sievemq("shard", "patterns").lines == ["pattern\tshard", "a-*\ta", "b-*\tb", "default\ta"]


def test_an_empty_list_of_patterns_names_its_possible_reasons(
    sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    rights = [{"may": ["view"], "destination": "*", "namespace": "a-1"}]
    with ExitStack() as stack:
        cluster = Cluster(stack, settings={"users": {"ann": {"password": "x", "rights": rights}}})
        cluster.tables.patterns = {"a-*": "a"}
        monkeypatch.setenv("SIEVEMQ_HTTP_URL", cluster["a"].http_url)
        monkeypatch.setenv("SIEVEMQ_USER", "ann")
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "x")
        outcome = sievemq("shard", "patterns")
        assert (outcome.code, outcome.err) == (0, "no patterns, or no right to see them\n")
    with EmbeddedBroker(http=True) as broker:
        outcome = sievemq("shard", "patterns", "--http", broker.http_url)
        assert (outcome.code, outcome.err) == (0, "this broker is not part of a cluster\n")


def test_names_and_patterns_are_assigned(sievemq: Sievemq, cluster: Cluster) -> None:
    assert sievemq("shard", "assign", "new", "b").out == "new is in shard b\n"
    assert sievemq("shard", "assign", "new", "a").out == "new is in shard a\n"
    assert sievemq("shard", "assign", "team-*", "b").out == "team-* is in shard b\n"
    assert sievemq("shard", "unassign", "team-*").out == "team-* removed\n"
    missing = sievemq("shard", "unassign", "team-*")
    assert (missing.code, missing.err) == (3, "sievemq: there is no pattern 'team-*'\n")
    assert (cluster.tables.rows, list(cluster.tables.patterns)) == ({"new": "a"}, ["a-*", "b-*", "default"])
    outcome = sievemq("shard", "assign", "x", "c")
    assert (outcome.code, outcome.err) == (3, "sievemq: there is no shard 'c'; there are a, b\n")
    outcome = sievemq("shard", "assign", "x", "")
    assert (outcome.code, "is empty" in outcome.err) == (2, True)


def test_a_shard_is_moved_by_the_broker_that_shall_have_it(
    sievemq: Sievemq, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    b = cluster["b"]
    monkeypatch.setattr(Server, "ask_for", lambda _, shard: asked.append(shard))
    outcome = sievemq("shard", "move", "a", "--to", b.http_url)
    assert (outcome.code, outcome.err, asked) == (0, "", ["a"])
    assert outcome.out == f"{b.http_url} takes shard a, which has no owner\n"
    monkeypatch.setenv("SIEVEMQ_HTTP_URL", b.http_url)
    assert sievemq("shard", "move", "a", "--to", "127.0.0.1").code == 0
    outcome = sievemq("shard", "move", "a", "--to", b.http_url, "--http", "https://127.0.0.1:1")
    assert (outcome.code, "has no TLS: nothing is sent there" in outcome.err) == (1, True)
    for neither in ("", "127.0.0.1:7681"):
        outcome = sievemq("shard", "move", "a", "--to", neither)
        assert (outcome.code, "is no URL of a management port; write it as http" in outcome.err) == (2, True)
    assert asked == ["a", "a"]


def test_definitions_go_to_the_owner_of_each_namespace(sievemq: Sievemq, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "definitions.toml"
    rule = '[rules."queue:x"]\nmax_messages = 5\n'
    file.write_text(f'[namespaces.a-1]\nqueues = ["q"]\n[namespaces.b-1]\nqueues = ["q"]\n{rule}')
    planned = ["+ a-1", "+ a-1/queue:q", "+ rule/queue:x", "+ b-1", "+ b-1/queue:q"]
    assert sievemq("definitions", "diff", str(file)).lines == planned
    assert cluster.tables.rows == {}
    outcome = sievemq("definitions", "apply", str(file), "--yes")
    assert (outcome.code, outcome.lines[-1]) == (0, "5 changes made")
    assert cluster.tables.rows == {"a-1": "a", "b-1": "b"}
    assert "no difference" in sievemq("definitions", "diff", str(file)).out
    exported = sievemq("definitions", "export")
    assert exported.err == ""
    again = tmp_path / "again.toml"
    again.write_text(exported.out)
    assert "no difference" in sievemq("definitions", "diff", str(again)).out
    assert sievemq("rule", "set", "queue:x", "max_messages=6").code == 0
    assert "have different rules" in sievemq("definitions", "export").err
    cluster.tables.own("b", "nobody")
    outcome = sievemq("definitions", "apply", str(file), "--yes")
    assert (outcome.code, "no owner is known of b" in outcome.err) == (1, True)


def test_a_failure_of_one_owner_names_the_shards_that_have_the_definitions(
    sievemq: Sievemq, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "d.toml"
    file.write_text('[namespaces.a-1]\nqueues = ["q"]\n[namespaces.b-1]\nqueues = ["q"]\n')
    monkeypatch.setattr(definitions, "confirm", lambda *_: cluster["b"].stop())
    outcome = sievemq("definitions", "apply", str(file))
    assert outcome.code == 1
    assert cluster["a"].call(lambda broker: list(broker.namespaces["a-1"].destinations)) == ["queue:q"]
    assert outcome.err.splitlines()[-1] == (
        "sievemq: applied in these shards: a; failed, perhaps in part: b. Apply the file again once the cause is "
        "mended; what exists is not changed"
    )

"""The record of actions: each call that changes something is there, whatever has made it, and nothing secret."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote, urlencode

import pytest

from sievemq import ConnectionFactory, JMSSecurityRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.api import requests
from sievemq_broker.server.http.api.assemble import ENDPOINTS
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.recording import Recording
from sievemq_broker.server.http.errors import GoneError
from sievemq_broker.server.watch.audit import Audit
from sievemq_broker.server.watch.history import History
from sievemq_broker.session.rights import Identity

from .conftest import Api, at
from .test_rights import USERS, as_user

RECORD = "/api/v1/audit"
SECRET = "confidential"


@pytest.fixture(scope="module")
def watched() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        http=True, settings={"users": USERS, "test_control": True, "test_control_exposed": True}
    ) as broker:
        yield broker


@pytest.fixture
def admin(watched: EmbeddedBroker) -> Api:
    api = as_user(watched, "admin", "mine")
    api.ok("POST", "/api/v1/namespaces", {"name": "mine"})
    return api


def newest(api: Api, **query: object) -> dict[str, Any]:
    """The newest action."""
    rows: list[dict[str, Any]] = api.get(RECORD, **{"only": "actions", **query})["rows"]
    return {name: value for name, value in rows[0].items() if value is not None}


def test_a_row_says_who_did_what_to_how_many_messages(
    watched: EmbeddedBroker, admin: Api, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        admin.ok("POST", f"{at('queue:orders.x')}/messages", {"body": SECRET})
    with caplog.at_level(logging.INFO):
        as_user(watched, "max").act("queue:orders.x", "purge")
    row = newest(admin)
    assert row.pop("id") > 0
    assert row.pop("time") == pytest.approx(watched.call(lambda _: watched.server.clock.now()), abs=600_000)
    assert row == {
        "action": "purge_messages", "outcome": "done", "via": "http", "user": "max", "peer": "127.0.0.1",
        "namespace": "mine", "address": "queue:orders.x", "touched": 3, "times": 1,
    }  # fmt: skip
    (record,) = (record for record in caplog.records if record.getMessage().startswith("audit.action"))
    assert record.levelno == logging.INFO
    assert "action='purge_messages'" in record.getMessage()
    assert "user='max'" in record.getMessage()
    assert "touched=3" in record.getMessage()


def test_each_change_is_recorded(admin: Api) -> None:
    queue = at("queue:q")
    space, new = "/api/v1/namespaces", {"action": "create_namespace", "namespace": "new"}
    defined = {"definitions": {"namespaces": {"mine": {"queues": ["d"]}}}}
    by_selector = {"to": "queue:other", "chosen": "by selector"}
    steps: list[tuple[str, str, object, dict[str, Any]]] = [
        ("PUT", queue, None, {"action": "put_destination", "address": "queue:q"}),
        ("POST", f"{queue}/actions/pause", None, {"action": "pause_destination", "touched": 1}),
        ("POST", f"{queue}/actions/resume", {}, {"action": "resume_destination", "touched": 1}),
        ("POST", f"{queue}/actions/move", {"to": "other", "selector": f"a = '{SECRET}'"}, {"details": by_selector}),
        ("POST", f"{queue}/actions/delete", {"ids": ["1", "2"]}, {"details": {"chosen": "2 by id"}}),
        ("POST", f"{queue}/actions/retry", {"limit": 5}, {"action": "retry_messages", "details": {"limit": 5}}),
        ("PUT", f"{queue}/taps/t", {"mode": "copy"}, {"action": "put_tap", "details": {"name": "t", "mode": "copy"}}),
        ("DELETE", f"{queue}/taps/t", None, {"action": "delete_tap", "details": {"name": "t"}}),
        ("POST", space, {"name": "new"}, new),
        ("DELETE", f"{space}/new", None, {"action": "delete_namespace", "namespace": "new", "touched": 0}),
        ("POST", "/api/v1/definitions", defined, {"action": "apply_definitions", "touched": 1}),
        ("POST", "/api/v1/test/clock/advance", {"ms": 5}, {"action": "advance_test_clock"}),
        ("DELETE", queue, None, {"action": "delete_destination", "touched": 0}),
    ]
    for method, path, body, expected in steps:
        admin.ok(method, path, body)
        row = newest(admin)
        assert {name: row.get(name) for name in expected} == expected


def test_neither_a_password_nor_a_body_is_recorded(admin: Api) -> None:
    admin.ok("PUT", "/api/v1/users/new", {"password": SECRET, "rights": [{"may": ["send"]}]})
    row = newest(admin)
    assert (row["action"], row["details"]) == ("put_user", {"name": "new", "change": "added"})
    admin.ok("DELETE", "/api/v1/users/new")
    line = json.dumps({"kind": "text", "body": SECRET, "properties": {"a": SECRET}})
    admin.ok("POST", f"{at('queue:brought')}/import", {"lines": [line]})
    row = newest(admin)
    assert (row["action"], row["address"], row["touched"]) == ("import_messages", "queue:brought", 1)
    assert SECRET.encode() not in admin("GET", RECORD + "/export").content


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "destinations", None),
        ("POST", at("queue:q") + "/actions/purge", {"dry_run": True}),
        ("DELETE", at("queue:q") + "?dry_run=true", None),
        ("POST", at("queue:q") + "/messages", {"body": SECRET}),
        ("POST", "/api/v1/selector/check", {"selector": "a = 1"}),
        ("POST", "/api/v1/selector/explain", {"selector": "a = 1", "message": {}}),
        ("POST", "/api/v1/definitions", {"definitions": {}, "dry_run": True}),
    ],
)
def test_what_changes_nothing_is_not_recorded(admin: Api, method: str, path: str, body: object) -> None:
    admin.ok("PUT", at("queue:q"))
    before = admin.get(RECORD)["rows"]
    admin.ok(method, path, body)
    assert admin.get(RECORD)["rows"] == before


def test_mistakes_are_not_recorded(admin: Api) -> None:
    before = admin.get(RECORD)["rows"]
    assert admin("POST", at("queue:missing") + "/actions/purge").status == 404
    assert admin("POST", at("queue:missing") + "/actions/purge", {"no": 1}).status == 400
    assert admin.get(RECORD)["rows"] == before


def test_a_closed_connection_is_recorded_with_its_client(watched: EmbeddedBroker, admin: Api) -> None:
    factory = ConnectionFactory(f"{watched.url}/mine", client_id="billing")
    with factory.create_context("admin", "secret"):
        (row,) = (row for row in admin.get("/api/v1/connections")["connections"] if row["client_id"] == "billing")
        admin.ok("DELETE", f"/api/v1/connections/{quote(row['id'])}")
        found = newest(admin)
    assert found["namespace"] == "mine"
    assert found["details"]["closed_client"] == "billing"
    assert found["details"]["id"] == row["id"]


def test_refusals_are_attempts_and_those_that_repeat_are_counted(watched: EmbeddedBroker, admin: Api) -> None:
    anna = as_user(watched, "anna")
    for _ in range(5):
        assert anna("POST", at("queue:stock") + "/actions/purge").status == 403
    rows = admin.get(RECORD, only="attempts", user="anna", like="purge")["rows"]
    assert [(row["action"], row["outcome"], row["address"], row["times"]) for row in rows] == [
        ("purge_messages", "SECURITY", "queue:stock", 1)
    ]
    watched.clock.advance(seconds=601)
    watched._submit(lambda server: server.audit.look()).result()
    again, first = admin.get(RECORD, only="attempts", user="anna", like="purge")["rows"]
    assert (again["times"], again["since"], first["times"]) == (4, first["time"], 1)


def test_sign_ins_at_each_door_are_attempts(watched: EmbeddedBroker, admin: Api) -> None:
    with ConnectionFactory(f"{watched.url}/mine").create_context("max", "secret"):
        pass
    with pytest.raises(JMSSecurityRuntimeException):
        ConnectionFactory(watched.url).create_context("max", "wrong")
    form = {"user": "max", "password": "secret"}
    answer = Api(watched).raw("POST", "/session", urlencode(form).encode(), "application/x-www-form-urlencoded")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    csrf = Api(watched, Cookie=cookie).ok("GET", "/session")["csrf"]
    assert Api(watched, Cookie=cookie, **{"X-CSRF-Token": csrf})("DELETE", "/session").status == 204
    rows = admin.get(RECORD, only="attempts", user="max", like="sign")["rows"]
    assert {(row["action"], row["via"], row["outcome"]) for row in rows} >= {
        ("sign_in", "sieve", "accepted"),
        ("sign_in", "sieve", "wrong"),
        ("sign_in", "console", "accepted"),
        ("sign_out", "console", "signed_out"),
    }
    assert {row["peer"] for row in rows} == {"127.0.0.1"}


def test_a_filter_finds_rows_and_pages_follow_each_other(admin: Api) -> None:
    admin.ok("PUT", at("queue:paged"))
    for action in ("pause", "resume") * 4:
        admin.act("queue:paged", action)
    found: list[int] = []
    cursor: dict[str, object] = {}
    while True:
        page = admin.get(RECORD, like="paged", only="actions", limit=3, **cursor)
        assert {row["address"] for row in page["rows"]} == {"queue:paged"}
        found += [row["id"] for row in page["rows"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert len(found) == 9
    assert found == sorted(set(found), reverse=True)
    assert {row["action"] for row in admin.get(RECORD, like="resume_*")["rows"]} == {"resume_destination"}
    assert admin.get(RECORD, namespace="nowhere")["rows"] == []
    assert admin("GET", RECORD, cursor="what").status == 400


def test_a_user_sees_rows_of_namespaces_that_it_may_view_as_a_whole(watched: EmbeddedBroker, admin: Api) -> None:
    admin.ok("PUT", at("queue:seen"))
    assert as_user(watched, "anna").get(RECORD)["rows"] == []


def test_the_record_is_exported_as_lines(admin: Api) -> None:
    admin.ok("PUT", at("queue:exported"))
    answer = admin("GET", RECORD + "/export", like="exported")
    assert answer.headers["content-type"] == "application/x-ndjson"
    (row,) = (json.loads(line) for line in answer.content.splitlines())
    assert (row["action"], row["address"]) == ("put_destination", "queue:exported")
    assert "selector" not in row
    whole = admin("GET", RECORD + "/export").content
    assert len(whole.splitlines()) > 1
    assert SECRET.encode() not in whole


def test_the_record_survives_a_restart(tmp_path: Path) -> None:
    for count in (1, 2):
        with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
            api = Api(broker)
            api.ok("PUT", at(f"queue:q{count}"))
            loaded: list[bool] = []
            broker._submit(lambda server, seen=loaded: server.history.when_loaded(lambda: seen.append(True))).result()
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        api.ok("PUT", at("queue:q3"))
    lines = [json.loads(line) for line in (tmp_path / "history" / "actions").read_text().splitlines()]
    assert [line["address"] for line in lines] == ["queue:q1", "queue:q2", "queue:q3"]


def test_attempts_that_were_counted_are_written_down_at_the_end(tmp_path: Path) -> None:
    with EmbeddedBroker(http=True, data_dir=tmp_path, users={"anna": "secret"}) as broker:
        for _ in range(3):
            assert Api(broker, Authorization="Basic YW5uYTpndWVzcw==")("GET", RECORD).status == 401
    lines = [json.loads(line) for line in (tmp_path / "history" / "attempts").read_text().splitlines()]
    assert [(line["outcome"], line.get("times", 1)) for line in lines] == [("wrong", 1), ("wrong", 2)]


@pytest.mark.parametrize(("dry_run", "outcomes"), [(False, ["ABANDONED"]), (True, [])])
def test_a_call_whose_caller_disconnects_is_recorded_unless_it_is_a_dry_run(dry_run: bool, outcomes: list[str]) -> None:
    audit = Audit(History(), lambda: 0)
    (purge,) = (endpoint for endpoint in ENDPOINTS if endpoint.name == "purge_messages")
    scope: dict[str, Any] = {"headers": [], "state": {}, "client": ("::1", 1)}
    call = Call[Any, Any](Mock(), Identity(), scope, Mock(), Mock(), {}, None, requests.Choose(dry_run=dry_run), 200)

    async def abandoned(_: Call[Any, Any]) -> None:
        raise GoneError

    async def ask() -> None:
        with Recording(audit, purge, Identity(), scope, {"ns": "a", "address": "queue:q"}) as recording:
            await recording.answered(abandoned, call)

    with pytest.raises(GoneError):
        asyncio.run(ask())
    assert [row["outcome"] for row in audit.before()] == outcomes

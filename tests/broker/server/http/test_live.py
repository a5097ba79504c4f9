"""Rules, limits, users and settings over the API: who may change them, ETags, errors that name what is wrong."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from tests.broker.store.sharing import until

from sievemq import (
    ConnectionFactory,
    JMSRuntimeException,
    JMSSecurityException,
    Queue,
    ResourceAllocationRuntimeException,
)
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import load
from sievemq_broker.server.http.api import live
from sievemq_broker.server.server import Server
from sievemq_broker.users.passwords import hash_password

from .conftest import DEADLINE, Answer, Api

HASH = hash_password("secret")


def rule(pattern: str, *rest: str, of: str = "rules") -> str:
    return "/".join(["/api/v1", of, quote(pattern, safe=""), *rest])


def ask(api: Api, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Api(api.broker, api.namespace, **{**api.headers, **given})(method, path, body)


@pytest.fixture
def open_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True, settings={"destinations": {"orders.*": {"max_messages": 1}}}) as broker:
        yield broker


@pytest.fixture
def api(open_broker: EmbeddedBroker) -> Api:
    return Api(open_broker)


def signed(broker: EmbeddedBroker, user: str, password: str = "secret") -> Api:
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    return Api(broker, Authorization=f"Basic {secret}")


# -- rules and limits -------------------------------------------------------------------------------------------------


def test_a_rule_applies_at_once_to_what_exists(api: Api) -> None:
    api.ok("PUT", "destinations/queue:orders.eu")
    details = api.get("destinations/queue:orders.eu")
    assert (details["rule"], details["policy"]["max_messages"]) == ("queue:orders.*", 1)
    first = api("PUT", rule("orders.eu"), {"rules": {"max_messages": 2, "at_limit": "block"}})
    assert first.status == 201
    assert first.json["pattern"] == "queue:orders.eu"
    assert (first.json["origin"], first.json["settings"], first.json["kept"]) == ("run time", None, False)
    assert first.headers["etag"] == first.json["etag"]
    details = api.get("destinations/queue:orders.eu")
    assert (details["rule"], details["policy"]["at_limit"]) == ("queue:orders.eu", "block")
    assert [row["pattern"] for row in api.get("/api/v1/rules")["rules"]] == ["queue:orders.eu", "queue:orders.*"]
    changed = api("PUT", rule("orders.*"), {"rules": {"max_messages": 9}})
    assert (changed.status, changed.json["settings"]) == (200, {"max_messages": 1})
    assert api.get(rule("orders.*"))["rules"] == {"max_messages": 9}
    assert api.ok("DELETE", rule("queue:orders.eu")) == {"rules": []}
    assert api.get("destinations/queue:orders.eu")["policy"]["max_messages"] == 9


def test_what_the_settings_say_is_removed_and_comes_back(api: Api) -> None:
    (removed,) = api.ok("DELETE", rule("orders.*"))["rules"]
    assert (removed["removed"], removed["rules"], removed["settings"]) == (True, {}, {"max_messages": 1})
    assert [row["removed"] for row in api.get("/api/v1/rules")["rules"]] == [True]
    (back,) = api.ok("POST", rule("orders.*", "actions", "reset"))["rules"]
    assert (back["removed"], back["origin"], back["rules"]) == (False, "settings", {"max_messages": 1})


def test_limits_of_namespaces(api: Api) -> None:
    api.ok("POST", "/api/v1/namespaces", {"name": "team-a"})
    put = partial(ask, api, "PUT", rule("team-*", of="limits"))
    assert put({"rules": {"max_messages": 0}}).status == 201
    assert put({"rules": {"max_messages": 1, "at_limit": "fail"}}).status == 200
    team = Api(api.broker, "team-a")
    team.ok("POST", "destinations/queue:q/messages", {"body": "a"})
    refused = team("POST", "destinations/queue:q/messages", {"body": "b"})
    assert refused.error == "RESOURCE_ALLOCATION"
    assert "max_messages in the limits of team-*" in refused.json["text"]
    assert refused.json["details"]["rule"] == "team-*"
    api.ok("DELETE", rule("team-*", of="limits"))
    team.ok("POST", "destinations/queue:q/messages", {"body": "b"})


def test_a_refused_send_names_the_rule(api: Api) -> None:
    api.ok("POST", "destinations/queue:orders.eu/messages", {"body": "a"})
    refused = api("POST", "destinations/queue:orders.eu/messages", {"body": "b"})
    assert "raise max_messages in the rules of queue:orders.*" in refused.json["text"]
    assert refused.json["details"]["rule"] == "queue:orders.*"


@pytest.mark.parametrize("rules", [{"max_messages": 1, "at_limit": "fail"}, {"max_messages": 2, "at_limit": "block"}])
def test_a_sender_that_waits_tries_again_once_the_rule_changes(api: Api, rules: dict[str, Any]) -> None:
    api.ok("PUT", rule("full"), {"rules": {"max_messages": 1, "at_limit": "block"}})
    sent: Future[None] = Future()

    def send() -> None:
        try:
            producer.send(Queue("full"), "b")
        except JMSRuntimeException as error:
            sent.set_exception(error)
        else:
            sent.set_result(None)

    with ConnectionFactory(api.broker.url).create_context() as context:
        producer = context.create_producer()
        producer.send(Queue("full"), "a")
        threading.Thread(target=send, daemon=True).start()
        until(api.broker, lambda server: bool(server.shard.broker.rooms.waiting))
        api.ok("PUT", rule("full"), {"rules": rules})
        if rules["at_limit"] == "fail":
            with pytest.raises(
                ResourceAllocationRuntimeException, match="raise max_messages in the rules of queue:full"
            ):
                sent.result(DEADLINE)
        else:
            sent.result(DEADLINE)
    assert api.get("destinations/queue:full")["depth"] == rules["max_messages"]


def test_only_what_the_caller_has_read_is_changed(api: Api) -> None:
    put = partial(ask, api, "PUT", rule("a"))
    body = {"rules": {"max_attempts": 1}}
    assert put(body, If_Match='"x"').error == "PRECONDITION_FAILED"
    etag = put(body, If_None_Match="*").headers["etag"]
    exists = put(body, If_None_Match="*")
    assert (exists.status, exists.json["text"]) == (412, "it exists already")
    second = put({"rules": {"max_attempts": 2}}, If_Match=f'"x", {etag}')
    assert second.status == 200
    stale = put(body, If_Match=etag)
    assert (stale.status, stale.json["details"]["etag"]) == (412, second.headers["etag"])
    assert ask(api, "DELETE", rule("a"), If_Match=etag).status == 412
    assert ask(api, "POST", rule("a", "actions", "reset"), If_Match=etag).status == 412
    assert ask(api, "DELETE", rule("a"), If_Match="*").status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "error", "text"),
    [
        ("PUT", rule("a"), {"rules": {"max_messges": 1}}, "INVALID_RULE", "did you mean max_messages?"),
        ("PUT", rule("a"), {"rules": {"at_limit": "wait"}}, "INVALID_RULE", "must be one of fail, block"),
        ("PUT", rule("a"), {"rules": {"delay": 10**40}}, "INVALID_RULE", f"delay must be at most {2**62}"),
        ("PUT", rule("a"), {"rules": {"slow_consumer_seconds": 2**63}}, "INVALID_RULE", "must be at most"),
        ("PUT", rule("a" * 1_000), {"rules": {}}, "ILLEGAL_STATE", "may have 1000 characters, and this one has 1006"),
        ("PUT", rule("quue:a"), {"rules": {}}, "INVALID_RULE", "did you mean queue:a?"),
        ("PUT", rule("a", of="limits"), {"rules": {"max_attempts": 1}}, "INVALID_RULE", "has no rule 'max_attempts'"),
        ("PUT", rule("a"), {}, "BAD_REQUEST", "missing required field `rules`"),
        ("GET", rule("none"), None, "NOT_FOUND", "there is no rule 'queue:none'"),
        ("DELETE", rule("none", of="limits"), None, "NOT_FOUND", "there is no limit 'none'"),
        ("GET", "/api/v1/users/none", None, "NOT_FOUND", "there is no user 'none'"),
        ("PUT", "/api/v1/users/anna", {"password": HASH, "rights": []}, "ILLEGAL_STATE", "may do everything"),
        ("POST", "/api/v1/settings/actions/reload", None, "ILLEGAL_STATE", "a program has given them"),
        ("GET", "/api/v1/settings/port", None, "NOT_FOUND", "there are max_connections, max_memory_bytes"),
        ("PUT", "/api/v1/settings/max_connections", {"value": 0}, "INVALID_SETTING", "a whole number from 1 to"),
        ("PUT", "/api/v1/settings/max_memory_bytes", {"value": "1e30"}, "INVALID_SETTING", "a number of bytes"),
        ("PUT", "/api/v1/settings/max_memory_bytes", {"value": True}, "BAD_REQUEST", "value"),
    ],
)
def test_errors(api: Api, method: str, path: str, body: Any, error: str, text: str) -> None:
    answer = api(method, path, body)
    assert answer.error == error
    assert text in answer.json["text"]


def test_the_order_of_patterns_changes_at_once(api: Api) -> None:
    api.ok("PUT", "destinations/queue:orders.eu")
    api.ok("PUT", rule("*"), {"rules": {"max_attempts": 2}})
    for of in ("rules", "limits"):
        for pattern in ("*", "team"):
            api.ok("PUT", rule(pattern, of=of), {"rules": {}})
    found = api.ok("POST", "/api/v1/rules/actions/order", {"patterns": ["*", "queue:orders.*", "queue:team"]})
    assert [row["pattern"] for row in found["rules"]] == ["*", "queue:orders.*", "queue:team"]
    assert api.get("destinations/queue:orders.eu")["rule"] == "*"
    assert api.ok("POST", "/api/v1/limits/actions/order", {"patterns": ["*", "team"]})["rules"][0]["pattern"] == "*"
    (change,) = [row for row in api.get("/api/v1/settings")["changes"] if row["name"] == "limit"]
    assert (change["kind"], change["text"]) == ("order", "*, team")
    assert api("POST", "/api/v1/rules/actions/order", {"patterns": ["*"]}).error == "ILLEGAL_STATE"
    api.ok("POST", "/api/v1/rules/actions/order", {"patterns": []})
    assert api.get("destinations/queue:orders.eu")["rule"] == "queue:orders.*"
    rows = api.get("/api/v1/audit", only="actions")["rows"]
    assert [(row["action"], row["details"]["change"]) for row in rows if row["action"].startswith("order_")] == [
        ("order_rules", "the order of the settings"),
        ("order_limits", "*, team"),
        ("order_rules", "*, queue:orders.*, queue:team"),
    ]


# -- users ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    users = {
        "owner": HASH,
        "clear": {"password": "secret", "rights": [{"may": ["view"], "namespace": "*"}]},
        "manager": {"password": HASH, "rights": [{"may": ["manage"], "namespace": "*"}]},
        "anna": {"password": HASH, "rights": [{"may": ["send"], "destination": "queue:a"}]},
    }
    with EmbeddedBroker(http=True, users=users, data_dir=tmp_path / "data") as broker:
        yield broker


def test_users_are_added_changed_removed_and_reset(guarded: EmbeddedBroker) -> None:
    owner = signed(guarded, "owner")
    listed = owner.get("/api/v1/users")
    assert [(row["name"], row["everything"], row["hashed"]) for row in listed["users"]] == [
        ("anna", False, True),
        ("clear", False, False),
        ("manager", False, True),
        ("owner", True, True),
    ]
    assert listed["required"]
    made = owner(
        "PUT", "/api/v1/users/max", {"password": "other", "rights": [{"may": ["consume"], "destination": "a"}]}
    )
    assert (made.status, made.json["kept"], made.json["changed_by"]) == (201, True, "owner")
    assert made.json["rights"] == [{"may": ["consume"], "destination": "queue:a", "namespace": "default"}]
    with ConnectionFactory(guarded.url).create_connection("max", "other"):
        pass
    put = partial(owner, "PUT", "/api/v1/users/anna")
    assert put({"rights": [{"may": ["browse"]}]}).json["rights"][0]["may"] == ["browse"]
    assert put({"password": hash_password("new")}).json["rights"][0]["may"] == ["browse"]
    with ConnectionFactory(guarded.url).create_connection("anna", "new"):
        pass
    assert put({"everything": True}).json["everything"]
    assert put({"password": "new", "scram": True}).json["hashed"]
    (gone,) = owner.ok("DELETE", "/api/v1/users/anna")["users"]
    assert gone["removed"]
    assert [row["name"] for row in owner.get("/api/v1/users")["users"]] == ["clear", "manager", "max", "owner", "anna"]
    with pytest.raises(JMSSecurityException), ConnectionFactory(guarded.url).create_connection("anna", "new"):
        pass
    (back,) = owner.ok("POST", "/api/v1/users/anna/actions/reset")["users"]
    assert back["rights"][0]["may"] == ["send"]
    assert owner.ok("DELETE", "/api/v1/users/max") == {"users": [], "required": True}


def test_the_first_user_ends_what_was_anonymous(tmp_path: Path) -> None:
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        api = Api(broker)
        ended = threading.Event()
        parts = urlsplit(broker.http_url)
        with (
            ConnectionFactory(broker.url).create_connection() as anonymous,
            closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)) as reader,
        ):
            anonymous.set_exception_listener(lambda error: ended.set())
            reader.request("GET", "/api/v1/events")
            stream = reader.getresponse()
            first = api("PUT", "/api/v1/users/anna", {"password": "secret", "everything": True})
            assert (first.status, first.json["kept"]) == (201, True)
            assert ended.wait(DEADLINE)
            stream.read()  # it ends
        assert api("GET", "/api/v1/users").status == 401
        with pytest.raises(JMSSecurityException):
            ConnectionFactory(broker.url).create_connection()
        owner = signed(broker, "anna")
        assert owner.get("/api/v1/users")["required"]
        assert "nobody could change it again" in owner("DELETE", "/api/v1/users/anna").json["text"]
    with EmbeddedBroker(http=True, data_dir=tmp_path) as broker:
        with pytest.raises(JMSSecurityException):
            ConnectionFactory(broker.url).create_connection()
        with ConnectionFactory(broker.url).create_connection("anna", "secret"):
            pass


def test_the_first_user_is_refused_where_it_would_not_hold() -> None:
    body = {"password": HASH, "everything": True}
    with EmbeddedBroker(http=True, settings={"test_control": True}) as broker:
        assert "test_control is on" in Api(broker)("PUT", "/api/v1/users/anna", body).json["text"]
    open_to_all = SimpleNamespace(users=SimpleNamespace(required=False))
    call: Any = SimpleNamespace(server=SimpleNamespace(user_store=open_to_all, is_shared=True))
    assert "put the first ones there" in live.users_refused(call, {})


def test_a_user_who_is_changed_while_a_password_is_hashed_stays_changed(
    guarded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = signed(guarded, "owner")

    def slow(password: str, *, scram: bool) -> str:
        owner.ok("DELETE", "/api/v1/users/anna")
        return HASH

    monkeypatch.setattr(live, "hash_password", slow)
    late = owner("PUT", "/api/v1/users/anna", {"password": "new"})
    assert (late.status, late.json["text"]) == (409, "user 'anna' was changed meanwhile; read it again")
    assert owner.get("/api/v1/users/anna")["removed"]


def test_a_user_who_is_removed_while_the_body_arrives_changes_nothing(guarded: EmbeddedBroker) -> None:
    owner = signed(guarded, "owner")
    owner.ok("PUT", "/api/v1/users/mallory", {"password": HASH, "everything": True})
    body = json.dumps({"password": HASH, "everything": True}).encode()
    parts = urlsplit(guarded.http_url)
    before = guarded._submit(lambda server: server.authenticator.sign_ins.total("accepted")).result()
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)) as late:
        headers = {**signed(guarded, "mallory").headers, "Content-Type": "application/json"}
        late.putrequest("PUT", "/api/v1/users/other")
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            late.putheader(name, value)
        late.endheaders(body[:1])
        until(guarded, lambda server: server.authenticator.sign_ins.total("accepted") > before)
        owner.ok("DELETE", "/api/v1/users/mallory")
        late.send(body[1:])
        assert Answer(late.getresponse()).error == "AUTHENTICATION"
    assert owner("GET", "/api/v1/users/other").status == 404


def test_only_the_limit_or_user_that_the_caller_has_read_is_changed(guarded: EmbeddedBroker) -> None:
    owner = signed(guarded, "owner")
    for path, body in (
        (rule("team", of="limits"), {"rules": {"max_messages": 1}}),
        ("/api/v1/users/max", {"password": HASH, "everything": True}),
    ):
        made = ask(owner, "PUT", path, body, If_None_Match="*")
        assert made.status == 201, made.content
        etag = made.headers["etag"]
        assert owner.get(path)["etag"] == etag
        for method in ("PUT", "DELETE"):
            assert ask(owner, method, path, body if method == "PUT" else None, If_Match='"x"').status == 412
        assert ask(owner, "DELETE", path, If_Match=etag).status == 200


@pytest.mark.parametrize(
    ("method", "name", "body", "error", "text"),
    [
        ("PUT", "new", {"everything": True}, "BAD_REQUEST", "a new user needs a password"),
        ("PUT", "new", {"password": "x"}, "BAD_REQUEST", "a new user needs `rights` or `everything`"),
        ("PUT", "new", {"password": "x", "rights": [], "everything": True}, "BAD_REQUEST", "not both"),
        ("PUT", "new", {"password": "x" * 2_000, "everything": True}, "INVALID_USER", "1 to 1024 characters"),
        ("PUT", "a:b", {"password": "x", "everything": True}, "INVALID_USER", "without colon"),
        ("PUT", "anna", {"rights": [{"may": ["fly"]}]}, "INVALID_USER", "'fly' is not a valid Verb"),
        ("PUT", "clear", {"everything": True}, "ILLEGAL_STATE", "in clear in the configuration"),
        ("DELETE", "clear", None, "ILLEGAL_STATE", "in clear in the configuration"),
        ("DELETE", "owner", None, "ILLEGAL_STATE", "nobody could change it again"),
        ("PUT", "owner", {"rights": []}, "ILLEGAL_STATE", "nobody could change it again"),
    ],
)
def test_user_errors(guarded: EmbeddedBroker, method: str, name: str, body: Any, error: str, text: str) -> None:
    answer = signed(guarded, "owner")(method, f"/api/v1/users/{quote(name)}", body)
    assert answer.error == error
    assert text in answer.json["text"]


def test_rights(guarded: EmbeddedBroker) -> None:
    viewer = signed(guarded, "clear")
    for path in ("/api/v1/rules", "/api/v1/settings/max_connections"):
        assert viewer("GET", path).status == 200
    for method, path, body in (
        ("PUT", rule("a"), {"rules": {}}),
        ("DELETE", rule("a"), None),
        ("GET", "/api/v1/users", None),
        ("GET", "/api/v1/users/anna", None),
        ("PUT", "/api/v1/users/anna", {"everything": True}),
        ("GET", "/api/v1/settings", None),
        ("POST", "/api/v1/settings/actions/reload", None),
        ("PUT", "/api/v1/settings/max_connections", {"value": 1}),
        ("POST", "/api/v1/settings/max_connections/actions/reset", None),
    ):
        assert viewer(method, path, body).error == "SECURITY"
    manager = signed(guarded, "manager")
    assert manager("PUT", rule("a"), {"rules": {}}).status == 201
    everything = {"password": HASH, "rights": [{"may": ["send"]}]}
    for method, path, body in (
        ("GET", "/api/v1/users", None),
        ("PUT", "/api/v1/users/manager", {"everything": True}),
        ("DELETE", "/api/v1/users/owner", None),
        ("POST", "/api/v1/users/owner/actions/reset", {}),
        ("POST", "/api/v1/definitions", {"definitions": {"users": {"manager": everything}}}),
    ):
        refused = manager(method, path, body)
        assert refused.error == "SECURITY"
        assert "only users who may do everything can" in refused.json["text"]
    assert "users" in signed(guarded, "owner").get("/api/v1/definitions")["definitions"]
    assert "users" not in manager.get("/api/v1/definitions")["definitions"]  # hashes of those who may do more
    assert signed(guarded, "anna")("GET", "/api/v1/rules").error == "SECURITY"
    assert signed(guarded, "anna")("GET", "/api/v1/limits/x").error == "SECURITY"


# -- settings ---------------------------------------------------------------------------------------------------------


def setting(name: str, *rest: str) -> str:
    return "/".join(["/api/v1/settings", name, *rest])


def test_a_lower_limit_of_connections_keeps_the_open_ones_and_refuses_others(api: Api) -> None:
    before = api.get(setting("max_connections"))
    assert (before["value"], before["settings"], before["origin"]) == (10_000, 10_000, "settings")
    put = partial(ask, api, "PUT", setting("max_connections"))
    factory = ConnectionFactory(f"{api.broker.url}?reconnect=0")
    with factory.create_context() as first, factory.create_context() as second:
        changed = put({"value": 1}, If_Match=before["etag"])
        assert (changed.json["value"], changed.json["settings"], changed.json["kept"]) == (1, 10_000, False)
        assert changed.headers["etag"] == changed.json["etag"]
        assert put({"value": 2}, If_Match=before["etag"]).error == "PRECONDITION_FAILED"
        second.create_producer().send(Queue("q"), "a")
        assert first.create_consumer(Queue("q")).receive(int(DEADLINE * 1000)) is not None
        with pytest.raises(JMSRuntimeException, match="max_connections"):
            factory.create_context()
        (change,) = api.get("/api/v1/settings")["changes"]
        assert (change["kind"], change["name"], change["text"]) == ("setting", "max_connections", "10000 becomes 1")
        assert ask(api, "POST", setting("max_connections", "actions", "reset"), If_Match='"x"').status == 412
        assert api.ok("POST", setting("max_connections", "actions", "reset"))["value"] == 10_000
        with factory.create_context():
            pass
    rows = api.get("/api/v1/audit", only="actions")["rows"]
    assert [(row["action"], row["details"]["name"], row["details"].get("change")) for row in rows] == [
        ("reset_setting", "max_connections", None),
        ("put_setting", "max_connections", "10000 becomes 1"),
    ]


def test_a_lower_limit_of_memory_keeps_messages_and_senders_wait_until_it_rises(api: Api) -> None:
    sent: Future[None] = Future()

    def send() -> None:
        producer.send(Queue("q"), "b" * 5_000)
        sent.set_result(None)

    with ConnectionFactory(api.broker.url).create_context() as context:
        producer = context.create_producer()
        producer.send(Queue("q"), "a" * 10_000)
        assert api.ok("PUT", setting("max_memory_bytes"), {"value": "8kB"})["value"] == 8_000
        threading.Thread(target=send, daemon=True).start()
        until(api.broker, lambda server: bool(server.shard.broker.rooms.waiting))
        assert api.get("destinations/queue:q")["depth"] == 1
        assert api.ok("PUT", setting("max_memory_bytes"), {"value": "auto"})["value"] == "auto"
        sent.result(DEADLINE)
        assert api.get("destinations/queue:q")["depth"] == 2


def test_differences_and_a_reload(tmp_path: Path) -> None:
    file = tmp_path / "sievemq.toml"
    file.write_text("[destinations.q]\nmax_attempts = 1\n")
    reread = partial(load, {"port": 0, "http_port": 0}, {}, file)
    with EmbeddedBroker(settings=reread().settings) as broker:
        broker._submit(lambda server: server.live.reread_with(reread)).result()
        api = Api(broker)
        assert api.get("/api/v1/settings") == {
            "differences": [], "changes": [], "error": "", "kept": False, "reloaded": False,
            "values": [api.get(setting(name)) for name in ("max_connections", "max_memory_bytes")],
        }  # fmt: skip
        api.ok("PUT", rule("q"), {"rules": {"max_attempts": 5}})
        api.ok("PUT", rule("new"), {"rules": {"max_attempts": 7}})
        file.write_text("drain_seconds = 1\n[destinations.q]\nmax_attempts = 2\n")
        answer = api.get("/api/v1/settings")
        found = {each["name"]: (each["text"], each["applies"]) for each in answer["differences"]}
        assert found == {
            "destinations": ("queue:q: max_attempts 1 becomes 2", "reload"),
            "drain_seconds": ("5.0 becomes 1.0", "restart"),
        }
        changes = [(each["kind"], each["name"], each["text"]) for each in answer["changes"]]
        assert changes == [
            ("rule", "queue:q", "max_attempts 1 becomes 5"),
            ("rule", "queue:new", "added, max_attempts 7"),
        ]
        assert api.ok("POST", "/api/v1/settings/actions/reload")["reloaded"]
        assert api.get(rule("q"))["rules"] == {"max_attempts": 2}  # the file is the latest change
        happened = [row for row in api.get("/api/v1/history")["events"] if row["event"] == "setting.changed"]
        assert [row["about"]["name"] for row in happened] == ["destinations", "queue:new", "queue:q"]
        api.ok("DELETE", rule("q"))
        assert [each["text"] for each in api.get("/api/v1/settings")["changes"]][-1] == "removed"
        file.write_text("nonsense = 1")
        assert "nonsense" in api.get("/api/v1/settings")["error"]


def test_a_caller_whom_a_reload_changes_gets_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"owner:{HASH}\n")
    reread = partial(load, {"port": 0, "http_port": 0, "users_file": str(file)}, {})
    with EmbeddedBroker(settings=reread().settings) as broker:
        broker._submit(lambda server: server.live.reread_with(reread)).result()
        owner = signed(broker, "owner")
        assert owner.get("/api/v1/settings")["differences"] == []

        def write(server: Server) -> None:  # and the timer that watches the file does not see it before
            server.user_store.close()
            file.write_text(f"owner:{hash_password('other')}\n")

        broker._submit(write).result()
        assert owner.ok("POST", "/api/v1/settings/actions/reload")["reloaded"]
        assert owner("GET", "/api/v1/settings").error == "AUTHENTICATION"

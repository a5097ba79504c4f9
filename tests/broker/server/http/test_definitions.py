"""`/api/v1/definitions`: what callers may see and do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server import definitions

from .conftest import Api, at
from .test_rights import as_user

PATH = "/api/v1/definitions"
HASH = "$argon2id$v=19$m=19456,t=2,p=1$j2BYUhrG+ZUVZEYez6bS4g$mJfxLKpXOMYvoJNtOYG+/9uyH6q4wr08MAzMjd+7+pA"
RULES = {"queue:orders": {"max_attempts": 3}}
SETTINGS: dict[str, Any] = {
    "destinations": RULES,
    "users": {
        "admin": "secret",
        "hashed": HASH,
        "watch": {"password": "secret", "rights": [{"may": ["view"], "destination": "*", "namespace": "*"}]},
        "mine": {"password": "secret", "rights": [{"may": ["manage"], "destination": "*", "namespace": "mine"}]},
        "some": {"password": "secret", "rights": [{"may": ["manage"], "destination": "queue:a*", "namespace": "mine"}]},
    },
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    given = {"namespaces": {"mine": {"queues": ["a"]}}}
    with EmbeddedBroker(http=True, settings=SETTINGS, definitions=given) as broker:
        yield broker


def test_each_caller_gets_what_they_may_see(guarded: EmbeddedBroker) -> None:
    found = as_user(guarded, "admin").get(PATH)
    assert found["definitions"] == {
        "namespaces": {"mine": {"queues": ["a"]}},
        "rules": RULES,
        "users": {"hashed": {"password": HASH}},
    }
    assert found["clear_passwords"] == ["admin", "mine", "some", "watch"]
    found = as_user(guarded, "watch").get(PATH)
    assert found == {
        "definitions": {"namespaces": {"mine": {"queues": ["a"]}}, "rules": RULES},
        "clear_passwords": [],
    }
    assert as_user(guarded, "mine").get(PATH)["definitions"] == {"namespaces": {"mine": {"queues": ["a"]}}}
    assert as_user(guarded, "some").get(PATH)["definitions"] == {"namespaces": {}}


def test_changing_needs_the_right_to_manage(guarded: EmbeddedBroker) -> None:
    mine = as_user(guarded, "mine")
    wanted: dict[str, Any] = {"namespaces": {"mine": {"queues": ["a", "b"]}}}
    for user in ("watch", "some"):
        assert as_user(guarded, user)("POST", PATH, {"definitions": wanted, "dry_run": True}).error == "SECURITY"
    assert mine("POST", PATH, {"definitions": {"namespaces": {"other": {}}}}).error == "SECURITY"
    assert mine("POST", PATH, {"definitions": {"rules": {}}}).error == "SECURITY"
    assert mine.ok("POST", PATH, {"definitions": wanted, "dry_run": True})["applied"] == 0
    assert mine.ok("POST", PATH, {"definitions": wanted})["applied"] == 1
    assert mine.ok("POST", PATH, {"definitions": wanted})["applied"] == 0


def test_a_refusal_changes_nothing(api: Api) -> None:
    api.ok("POST", f"{at('queue:kept')}/messages", {"body": "x"})
    api.ok("POST", f"{at('queue:kept-too')}/messages", {"body": "x"})
    body = {"definitions": {"namespaces": {api.namespace: {"queues": ["new"]}}}, "prune": True}
    answer = api("POST", PATH, body)
    assert (answer.status, answer.error) == (409, "ILLEGAL_STATE")
    name = f"{api.namespace}/queue:kept"
    assert answer.json["text"] == (
        f"delete {name}: it holds 1 message; force '{name}' to do it nevertheless, and 1 other change besides; "
        "nothing was changed"
    )
    assert api("GET", at("queue:new")).status == 404
    planned = api.ok("POST", PATH, {**body, "dry_run": True})
    assert (planned["refused"], planned["applied"], len(planned["changes"])) == (2, 0, 3)
    assert api.ok("POST", PATH, {**body, "force": [name, f"{name}-too"]})["applied"] == 3


def test_errors(api: Api) -> None:
    for body, text in (
        ({"definitions": {"queue": 1}}, "definitions: 'queue' is not known here"),
        ({"definitions": {"namespaces": {"a": 1}}, "origin": "d.toml"}, "d.toml: [namespaces.a]: must be a table"),
    ):
        answer = api("POST", PATH, body)
        assert (answer.status, answer.error) == (400, "INVALID_DEFINITIONS")
        assert text in answer.json["text"]
    assert api("POST", PATH, {}).status in (400, 422)


def test_many_definitions_take_no_long_turn(api: Api) -> None:
    """2,000 queues, and 300 subscriptions with selectors that nothing has compiled before."""
    selectors = [f"region IN ('{api.namespace}', '{number}') AND amount > {number}" for number in range(300)]
    subscriptions = [{"name": f"s{number}", "topic": "t", "selector": text} for number, text in enumerate(selectors)]
    table = {"queues": [f"q{number}" for number in range(2_000)], "topics": ["t"], "subscriptions": subscriptions}
    body = {"definitions": {"namespaces": {api.namespace: table}}}
    api.broker.call(lambda broker: setattr(broker.scheduler, "overrun", 0))
    assert api.ok("POST", PATH, body)["applied"] == 2_301
    assert api.ok("POST", PATH, {**body, "prune": True})["changes"] == []
    assert api.broker.call(lambda broker: broker.scheduler.overrun) < 500
    assert api.get(PATH)["definitions"]["namespaces"][api.namespace] == {
        **table,
        "queues": sorted(table["queues"]),
        "subscriptions": sorted(subscriptions, key=lambda each: str(each["name"])),
    }


def test_rules_limits_and_users_change_at_once(guarded: EmbeddedBroker) -> None:
    admin = as_user(guarded, "admin")
    wanted = {"rules": RULES, "limits": {"x": {"max_messages": 1}}, "users": {"new": HASH}}
    assert admin.ok("POST", PATH, {"definitions": wanted, "dry_run": True})["applied"] == 0
    answer = admin.ok("POST", PATH, {"definitions": wanted})
    assert [(change["name"], change["made"]) for change in answer["changes"]] == [("limit/x", True), ("user/new", True)]
    assert [row["pattern"] for row in admin.get("/api/v1/limits")["rules"]] == ["x"]
    refused = admin("POST", PATH, {"definitions": {"users": {"admin": HASH, "max": HASH}}})
    assert (refused.status, refused.error) == (409, "ILLEGAL_STATE")
    assert "user/admin" in refused.json["text"]
    assert "in clear in the configuration" in refused.json["text"]
    assert admin("GET", "/api/v1/users/max").status == 404
    lost = admin("POST", PATH, {"definitions": {"users": {"new": {"password": HASH, "rights": []}}}, "prune": True})
    assert "user/new: no other user may do everything" in lost.json["text"]


def test_first_users_wait_for_the_start(api: Api) -> None:
    answer = api.ok("POST", PATH, {"definitions": {"rules": RULES, "users": {"first": HASH}}})
    assert [(change["name"], change["at_start"]) for change in answer["changes"]] == [
        ("rule/queue:orders", False),
        ("user/first", True),
    ]
    assert api("GET", "/api/v1/users").json["required"] is False
    api.ok("DELETE", "/api/v1/rules/queue:orders")


@pytest.mark.parametrize(("removed", "error"), [(True, "AUTHENTICATION"), (False, "ILLEGAL_STATE")])
def test_what_others_change_meanwhile_counts(monkeypatch: pytest.MonkeyPatch, removed: bool, error: str) -> None:
    """Two administrators who remove each other at the same time leave one."""
    with EmbeddedBroker(http=True, users={"admin": "secret"}) as broker:
        live, applied = broker.server.live, definitions.apply

        def meanwhile(*given: Any) -> Any:
            if removed:
                live.users.rebase({})
                broker.server.user_store.renew()
            else:
                monkeypatch.setattr(live.rules, "_most", 0)
            return (yield from applied(*given))

        monkeypatch.setattr(definitions, "apply", meanwhile)
        assert as_user(broker, "admin")("POST", PATH, {"definitions": {"rules": RULES}}).error == error
        assert not live.rules.changes

"""Definitions: reading them, comparing them with a broker, making what is missing; nothing is lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.broker.store.sharing import until

from sievemq import ConnectionFactory, DeliveryMode, JMSContext, Queue, Topic
from sievemq.taps import open_tap
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import ConfigError, Settings, load
from sievemq_broker.definitions import Definitions, definitions_of, parse_definitions
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.domain.store import AwayError
from sievemq_broker.domain.work import Budget, finish
from sievemq_broker.server import definitions as server_definitions
from sievemq_broker.server.definitions import (
    Change,
    Terms,
    apply,
    apply_at_start,
    change_settings,
    collect,
    settings_changes,
    without_others,
)
from sievemq_broker.server.live_settings import MOST_PATTERNS, LiveSettings
from sievemq_broker.server.placement import Where
from sievemq_broker.users.account import User
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_testing import BrokerFactory

from ..domain.support import message

HASH = "$argon2id$v=19$m=19456,t=2,p=1$j2BYUhrG+ZUVZEYez6bS4g$mJfxLKpXOMYvoJNtOYG+/9uyH6q4wr08MAzMjd+7+pA"
AUDIT = {"name": "audit", "topic": "prices", "selector": "region = 'EU'"}
BILLING = {"name": "all", "topic": "bills", "client_id": "billing", "no_local": True}
SHOP = {"queues": ["orders", "queue:a:b"], "topics": ["prices"], "subscriptions": [AUDIT, BILLING]}
ALL = {
    "namespaces": {"default": SHOP, "team": {"queues": ["tasks"]}},
    "rules": {"orders": {"max_attempts": 3}},
    "limits": {"team-*": {"max_messages": 10}},
    "users": {
        "anna": {"password": HASH, "rights": [{"may": ["send"], "destination": "queue:orders", "namespace": "default"}]}
    },
}


def shop(**changes: object) -> dict[str, Any]:
    return {"namespaces": {"default": {**SHOP, **changes}}}


def apply_to(broker: EmbeddedBroker, table: dict[str, Any], **terms: Any) -> list[Change]:
    definitions = parse_definitions(table)
    return broker.call(lambda b: finish(partial(apply, b, definitions, "jakarta", Terms(**terms)), 0))


def lines(changes: list[Change]) -> list[str]:
    return [f"{change.action} {change.name}" + (f": {change.refused}" if change.refused else "") for change in changes]


def collected(broker: EmbeddedBroker) -> Definitions:
    live = LiveSettings(Settings())
    return broker.call(lambda b: finish(partial(collect, b, "jakarta", live, list(b.namespaces)), 0))


def sets(definitions: Definitions) -> dict[str, tuple[set[Any], ...]]:
    """What exists in each namespace, whatever its order."""
    return {
        name: (set(each.queues), set(each.topics), set(each.subscriptions))
        for name, each in definitions.namespaces.items()
    }


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(definitions=shop()) as broker:
        yield broker


@pytest.fixture
def context(broker: EmbeddedBroker) -> Iterator[JMSContext]:
    with ConnectionFactory(broker.url).create_context() as context:
        yield context


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"namespace": {}}, "d.toml: 'namespace' is not known here; did you mean namespaces?"),
        ({"namespaces": []}, "d.toml: [namespaces]: must be a table"),
        ({"namespaces": {"a": 1}}, "d.toml: [namespaces.a]: must be a table"),
        ({"namespaces": {"": {}}}, "d.toml: [namespaces.]: the name of a namespace must have 1 to"),
        ({"namespaces": {"a": {"queue": []}}}, "d.toml: [namespaces.a]: 'queue' is not known here; did you mean"),
        ({"namespaces": {"a": {"x": 1}}}, "'x' is not known here; there are queues, topics, subscriptions"),
        ({"namespaces": {"a": {"queues": "q"}}}, "d.toml: [namespaces.a]: queues: must be a list"),
        ({"namespaces": {"a": {"queues": [1]}}}, "d.toml: [namespaces.a]: queues: a name must be text, not 1"),
        ({"namespaces": {"a": {"queues": [""]}}}, "d.toml: [namespaces.a]: queues: a destination's name must not be"),
        ({"namespaces": {"a": {"queues": ["topic:t"]}}}, "queues: 'topic:t' is no queue"),
        ({"namespaces": {"a": {"topics": ["temporary-topic:t.1"]}}}, "topics: 'temporary-topic:t.1' is no topic"),
        ({"namespaces": {"a": {"queues": ["qeue:q"]}}}, "queues: 'qeue' in 'qeue:q' is no kind of destination"),
        (shop(subscriptions=[1]), "[namespaces.default]: subscriptions: 1: must be a table"),
        (shop(subscriptions=[{"name": "a"}]), "subscriptions: 1: it needs topic"),
        (shop(subscriptions=[{"topic": "a"}]), "subscriptions: 1: it needs name"),
        (shop(subscriptions=[{**AUDIT, "name": ""}]), "the name of a subscription must have 1 to"),
        (shop(subscriptions=[{**AUDIT, "topic": "queue:q"}]), "1 (audit): topic: 'queue:q' is no topic"),
        (shop(subscriptions=[{**AUDIT, "client_id": 1}]), "1 (audit): client_id must be text, not 1"),
        (shop(subscriptions=[{**AUDIT, "selector": 1}]), "1 (audit): selector must be text, not 1"),
        (shop(subscriptions=[{**AUDIT, "dialect": "sql"}]), "1 (audit): dialect must be one of jakarta"),
        (shop(subscriptions=[{**AUDIT, "dialect": ["mqe"]}]), "1 (audit): dialect must be one of jakarta"),
        ({"rules": {"q": {"redelivery_factor": float("nan")}}}, "for 'q': redelivery_factor must be at least 1"),
        (shop(subscriptions=[{**AUDIT, "shared": 1}]), "1 (audit): shared must be true or false, not 1"),
        (shop(subscriptions=[{**AUDIT, "shared": False}]), "1 (audit): a subscription that is not shared needs"),
        (shop(subscriptions=[{**AUDIT, "no_local": True}]), "1 (audit): a shared subscription has no no_local"),
        (shop(subscriptions=[AUDIT, AUDIT]), "subscriptions: 'audit' is defined twice"),
        (shop(subscriptions=[BILLING, BILLING]), "subscriptions: 'all' of client id 'billing' is defined twice"),
        ({"rules": []}, "d.toml: [rules]: must be a table"),
        ({"rules": {"q": {"max_retries": 1}}}, "d.toml: [rules]: for 'q': there is no rule 'max_retries'; did you"),
        ({"limits": {"q": {"at_limit": "x"}}}, "d.toml: [limits]: for 'q': at_limit must be block or fail"),
        ({"users": {"anna": "secret"}}, "d.toml: [users]: the password of user 'anna' must be a hash; `sievemq user"),
        ({"users": {"anna": "$argon2id$x"}}, "d.toml: [users]: "),
    ],
)  # fmt: skip
def test_errors_name_file_table_and_key(table: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_definitions(table, "d.toml")
    assert error in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_selector_is_checked_in_the_dialect_of_the_broker() -> None:
    table = shop(subscriptions=[{**AUDIT, "selector": "region = "}])
    with pytest.raises(ConfigError, match=r"definitions \(EmbeddedBroker\) definitions: .* 1 \(audit\): selector: "):
        EmbeddedBroker(definitions=table)
    named = shop(subscriptions=[{**AUDIT, "selector": "region = 'a", "dialect": "mqe"}])
    with pytest.raises(ValueError, match="selector"):
        parse_definitions(named).compile("jakarta")


def test_tables_are_read_as_they_are_written() -> None:
    definitions = parse_definitions(ALL)
    written = parse_definitions(definitions.table())
    assert sets(written) == sets(definitions)
    assert written.settings == definitions.settings
    assert definitions.table()["namespaces"]["default"]["queues"] == ["queue:a:b", "orders"]
    assert parse_definitions({}).table() == {}


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    for content, error in (
        (None, "cannot be read: No such file"),
        (b"a =", "is not TOML"),
        (b"\xff", "cannot be read"),
    ):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigError, match=rf"^definitions \(environment SIEVEMQ_DEFINITIONS\) {file}: it {error}"):
            load({}, {"SIEVEMQ_DEFINITIONS": str(file)})
    with pytest.raises(ConfigError, match="must be the path of a TOML file"):
        load({"definitions": 7})
    assert definitions_of("") is definitions_of(None) is None


def test_rules_limits_and_users_are_settings(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    file.write_text(f'[rules.orders]\nmax_attempts = 3\n[limits.team]\nmax_bytes = 9\n[users]\nanna = "{HASH}"\n')
    loaded = load({"definitions": str(file)})
    assert loaded.settings.destinations["queue:orders"].max_attempts == 3
    assert loaded.settings.namespaces["team"].max_bytes == 9
    assert loaded.settings.secured
    assert loaded.origins["users"] == f"definitions {file}"
    with pytest.raises(ConfigError, match=r"destinations are set twice, by command line and by .*d.toml; remove one"):
        load({"definitions": str(file), "destinations": {"q": {"max_attempts": 1}}})
    with pytest.raises(ConfigError, match="users and users_file are both set"):
        load({"definitions": str(file), "users_file": str(tmp_path / "users.toml")})


# -- making -----------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_made_once(sievemq_broker_factory: BrokerFactory) -> None:
    broker = sievemq_broker_factory()
    table = {"namespaces": ALL["namespaces"]}
    made = apply_to(broker, table)
    assert lines(made) == [
        "create default/queue:orders",
        "create default/queue:a:b",
        "create default/topic:prices",
        "create default/topic:bills",
        "create default/subscription:audit",
        "create default/subscription:billing/all",
        "create team",
        "create team/queue:tasks",
    ]
    assert all(change.made for change in made)
    assert apply_to(broker, table) == []
    assert sets(collected(broker)) == sets(parse_definitions(table))


def test_made_subscriptions_collect_messages_and_can_be_resumed(broker: EmbeddedBroker, context: JMSContext) -> None:
    for region in ("EU", "US"):
        context.create_producer().set_property("region", region).send(Topic("prices"), region)
    consumer = context.create_shared_durable_consumer(Topic("prices"), "audit", "region = 'EU'")
    message = consumer.receive(60_000)
    assert message is not None
    assert message.get_body(str) == "EU"
    assert consumer.receive_no_wait() is None
    factory = ConnectionFactory(broker.url, client_id="billing")
    with factory.create_context() as billing, billing.create_durable_consumer(Topic("bills"), "all", None, True):
        pass
    consumer.close()
    assert apply_to(broker, shop()) == []


def test_what_is_not_defined_stays_unless_it_is_pruned(broker: EmbeddedBroker, context: JMSContext) -> None:
    context.create_temporary_queue()
    wanted = {"namespaces": {"default": {"queues": ["orders"]}}}
    assert apply_to(broker, wanted) == []
    assert lines(apply_to(broker, wanted, prune=True)) == [
        "delete default/subscription:audit",
        "delete default/subscription:billing/all",
        "delete default/queue:a:b",
        "delete default/topic:prices",
        "delete default/topic:bills",
    ]
    assert apply_to(broker, wanted, prune=True) == []
    broker.namespace("other")
    assert collected(broker).table() == wanted


def test_messages_are_deleted_only_where_that_is_named(broker: EmbeddedBroker, context: JMSContext) -> None:
    producer = context.create_producer()
    producer.send(Queue("orders"), "x")
    producer.set_property("region", "EU").send(Topic("prices"), "x")
    producer.set_delivery_delay(3_600_000).send(Queue("a:b"), "later")
    wanted: dict[str, Any] = {"namespaces": {"default": {"queues": ["new"]}}}
    refused = [
        "create default/queue:new",
        "delete default/subscription:audit: it holds 1 message",
        "delete default/subscription:billing/all",
        "delete default/queue:orders: it holds 1 message",
        "delete default/queue:a:b: it holds 1 message",
        "delete default/topic:prices: it holds 1 message",
        "delete default/topic:bills",
    ]
    assert lines(apply_to(broker, wanted, prune=True)) == refused
    force = ["default/queue:orders", "default/queue:a:b", "default/subscription:audit"]
    assert lines(apply_to(broker, wanted, prune=True, force=force))[-2:] == refused[-2:]
    assert sets(collected(broker)) == sets(parse_definitions(shop()))
    made = apply_to(broker, wanted, prune=True, force=[*force, "default/topic:prices"])
    assert all(change.made for change in made)
    assert collected(broker).table() == wanted


def test_destinations_with_consumers_and_taps_are_in_use(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_connection() as connection, connection.create_session() as session:
        session.create_consumer(Queue("orders"))
        open_tap(connection, "t", Queue("a:b"))
        changes = apply_to(broker, {"namespaces": {"default": {}}}, prune=True)
    assert {change.name: change.refused for change in changes if change.refused} == {
        "default/queue:orders": "it has 1 consumer",
        "default/queue:a:b": "it has a tap",
    }


def test_a_subscription_is_changed_only_without_messages(broker: EmbeddedBroker, context: JMSContext) -> None:
    def changed(**terms: Any) -> list[Change]:
        return apply_to(broker, shop(subscriptions=[{**AUDIT, "topic": "news", "selector": ""}, BILLING]), **terms)

    context.create_producer().set_property("region", "EU").send(Topic("prices"), "x")
    (_, change) = changed()
    assert (change.action, change.refused, change.can_be_forced) == ("change", "it holds 1 message", True)
    assert change.text == "topic:prices becomes topic:news, selector region = 'EU' becomes none"
    consumer = context.create_shared_durable_consumer(Topic("prices"), "audit", "region = 'EU'")
    (_, change) = changed(force=["default/subscription:audit"])
    assert (change.refused, change.can_be_forced) == ("it is in use: close its consumers and sessions first", False)
    consumer.close()
    assert all(change.made for change in changed(force=["default/subscription:audit"]))
    assert changed() == []


def test_sharing_of_a_subscription_is_changed(broker: EmbeddedBroker) -> None:
    wanted = shop(subscriptions=[AUDIT, {**BILLING, "shared": True, "no_local": False}])
    (change,) = apply_to(broker, wanted)
    assert (change.made, change.text) == (True, "shared becomes true, no_local becomes false")
    assert sets(collected(broker)) == sets(parse_definitions(wanted))


def test_what_changes_while_definitions_are_applied_is_refused(broker: EmbeddedBroker, context: JMSContext) -> None:
    definitions = parse_definitions({"namespaces": {"default": {"queues": ["source"], "topics": ["prices", "bills"]}}})

    def with_news_meanwhile(domain: Broker) -> list[Change]:
        budget = Budget(0)  # it yields before each step
        task = apply(domain, definitions, "jakarta", Terms(prune=True), 0, budget)
        try:
            for step in range(1_000):
                next(task)
                if step == 10:  # all is compared
                    space = domain.namespace("default")
                    found = space.queue("queue:source")
                    space.transfer("queue:orders", next(iter(found.backlog.walk(None).take(1))).envelope, 0)
                    space.unsubscribe(None, "audit")
                    space.delete("queue:a:b")
        except StopIteration as end:
            changes: list[Change] = end.value
            return changes
        raise AssertionError("it never ends")

    apply_to(broker, shop(queues=["orders", "queue:a:b", "source"]))
    context.create_producer().send(Queue("source"), "x")
    changes = broker.call(with_news_meanwhile)
    assert {change.name: (change.made, change.refused) for change in changes if not change.made} == {
        "default/queue:orders": (False, "it holds 1 message"),
    }


def test_a_message_that_arrives_while_definitions_are_applied_stays(broker: EmbeddedBroker) -> None:
    definitions = parse_definitions({"namespaces": {"default": {}}})

    def with_a_message(domain: Broker, at: int) -> bool:
        """Send it at this step; false if there are less."""
        space = domain.namespace("default")
        for label in list(space.destinations):
            space.delete(label)
        space.create("queue:orders")
        task = apply(domain, definitions, "jakarta", Terms(prune=True), 0, Budget(0))  # it yields before each step
        sent = False
        try:
            for step in range(1_000):
                next(task)
                if step == at:
                    space.send("queue:orders", message(), 0)
                    sent = True
        except StopIteration:
            assert not sent or space.queue("queue:orders").depth == 1
        return sent

    steps = 0
    while broker.call(with_a_message, steps):
        steps += 1
    assert steps


def test_many_messages_are_deleted(broker: EmbeddedBroker, context: JMSContext) -> None:
    producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    for _ in range(600):
        producer.send(Queue("orders"), "x")
    context.create_consumer(Queue("none")).close()
    broker.call(lambda b: None)
    changes = apply_to(broker, {"namespaces": {"default": {}}}, prune=True, force=["default/queue:orders"])
    assert "default/queue:orders" in [change.name for change in changes if change.made]


# -- at the start -----------------------------------------------------------------------------------------------------


def test_a_restored_broker_keeps_what_would_be_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        EmbeddedBroker(definitions=shop(), data_dir=tmp_path) as broker,
        ConnectionFactory(broker.url).create_context() as context,
    ):
        context.create_producer().set_property("region", "EU").send(Topic("prices"), "x")
    changed = shop(queues=["orders", "queue:a:b", "new"], subscriptions=[{**AUDIT, "selector": "x = 1"}, BILLING])
    with caplog.at_level("INFO"), EmbeddedBroker(definitions=changed, data_dir=tmp_path) as broker:
        assert sets(collected(broker)) == sets(parse_definitions(shop(queues=["new", "orders", "queue:a:b"])))
        assert broker.call(lambda b: b.namespace("default").subscriptions.durable[None, "audit"].queue.depth) == 1
        until(broker, lambda server: len(list(server.audit.before(only="actions"))) == 2)
        rows = broker.call(lambda _: list(broker.server.audit.before(only="actions")))
        assert [(row["action"], row["via"], row["touched"]) for row in rows] == [
            ("apply_definitions", "file", 1),
            ("apply_definitions", "file", 6),
        ]
    assert "definitions.refused definition='default/subscription:audit' reason='it holds 1 message'" in caplog.text
    assert "definitions.applied source='definitions' changes=1 refused=1" in caplog.text


def test_a_broker_whose_cluster_does_not_answer_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started again, and defines its namespaces then."""

    async def fail(*_: object, **__: object) -> None:
        raise RequestError("the database has not answered", ErrorCode.UNAVAILABLE)

    monkeypatch.setattr(server_definitions, "without_others", fail)
    with pytest.raises(AwayError, match="has not answered"), EmbeddedBroker(definitions=shop()):
        pass


@pytest.mark.parametrize("claims", [True, False])
async def test_the_shards_of_many_namespaces_are_asked_for_together(claims: bool) -> None:
    loop = asyncio.get_running_loop()
    waiting: list[tuple[str, asyncio.Future[Where]]] = []
    together: list[int] = []

    def answer() -> None:
        together.append(len(waiting))
        for name, asked in waiting:
            asked.set_result(Where(name, "b" if name.endswith("9") else "a"))
        waiting.clear()

    def ask(name: str) -> asyncio.Future[Where]:
        if not waiting:
            loop.call_soon(answer)
        waiting.append((name, loop.create_future()))
        return waiting[-1][1]

    placement = SimpleNamespace(shard="a", here="here".__eq__, **{"claim" if claims else "find": ask})
    names = [f"space{n}" for n in range(150)]
    wanted = parse_definitions({"namespaces": {name: {} for name in ("here", *names)}})
    ours, others = await without_others(wanted, cast("Any", placement), claims=claims)
    assert together == [64, 64, 22]
    assert others == [name for name in names if name.endswith("9")]
    assert list(ours.namespaces) == [name for name in ["here", *names] if name not in others]


def test_what_a_limit_does_not_allow_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    full = Broker(DomainSettings(max_destinations=1))
    with caplog.at_level("INFO"):
        definitions = parse_definitions({"namespaces": {"default": {"queues": ["a", "b"]}}})
        apply_at_start(full, definitions, load().settings, 0)
    assert list(full.namespace("default").destinations) == ["queue:a"]
    assert (
        "definitions.refused definition='default/queue:b' reason=\"namespace 'default' has 1 destination" in caplog.text
    )
    assert "definitions.applied source='definitions' changes=1 refused=1" in caplog.text


# -- settings ---------------------------------------------------------------------------------------------------------


def differences(live: LiveSettings, table: dict[str, Any], *, prune: bool, secured: bool = True) -> list[Change]:
    return settings_changes(parse_definitions(table), live, prune=prune, secured=secured)


def test_differences_of_settings_are_named_without_secrets() -> None:
    live = LiveSettings(load({"definitions": ALL}).settings)
    live.users.put("max", User("max", HASH), None, 0)
    assert differences(live, ALL, prune=False) == []
    assert [change.name for change in differences(live, ALL, prune=True)] == ["user/max"]
    other: dict[str, Any] = {
        "rules": {"new": {}, "orders": {"max_attempts": 4, "redelivery_delay": 1}},
        "limits": {},
        "users": {"anna": HASH[:-1] + "B", "max": HASH},
    }
    changes = differences(live, other, prune=True)
    assert [(change.action, change.name, change.text, change.at_start) for change in changes] == [
        ("create", "rule/queue:new", "", False),
        ("change", "rule/queue:orders", "max_attempts 3 becomes 4, redelivery_delay 0 becomes 1", False),
        ("delete", "limit/team-*", "", False),
        ("change", "user/anna", "password, rights", False),
    ]
    change_settings(changes, parse_definitions(other), live, "root", 1)
    assert all(change.made for change in changes)
    assert (dict(live.limits.present), live.users.present["anna"].secret) == ({}, HASH[:-1] + "B")
    assert list(live.rules.present) == ["queue:new", "queue:orders"]
    assert differences(live, other, prune=True) == []


def test_users_in_clear_and_first_users_are_not_changed_by_definitions() -> None:
    live = LiveSettings(load({"users": {"anna": "secret"}}).settings)
    (change,) = differences(live, {"users": {"anna": HASH}}, prune=False)
    assert "in clear in the configuration" in change.refused
    (first,) = differences(LiveSettings(Settings()), {"users": {"anna": HASH}}, prune=False, secured=False)
    assert first.at_start


def test_more_changes_than_are_allowed_are_refused_before_one_is_made() -> None:
    live = LiveSettings(Settings())
    changes = differences(live, {"rules": {f"q{number}": {} for number in range(MOST_PATTERNS + 2)}}, prune=False)
    assert [bool(change.refused) for change in changes] == [False] * MOST_PATTERNS + [True, True]


def test_the_order_of_rules_is_a_difference() -> None:
    rules: dict[str, Any] = {"a*": {"max_attempts": 1}, "ab": {"max_attempts": 2}}
    live = LiveSettings(load({"destinations": rules}).settings)
    live.rules.put("queue:b", DestinationPolicy(), None, 0)
    wanted = {"rules": dict(reversed(rules.items()))}
    changes = differences(live, wanted, prune=False)
    assert [(change.name, change.text, change.made) for change in changes] == [("rules", "their order", False)]
    change_settings(changes, parse_definitions(wanted), live, None, 1)
    assert changes[0].made
    assert list(live.rules.present) == ["queue:ab", "queue:a*", "queue:b"]
    assert differences(live, wanted, prune=False) == []

"""Rules, limits, users and settings that change at run time: which one applies, and what is kept of a change."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.broker.store.sharing import DEADLINE, SharingBroker, World, until

from sievemq import ConnectionFactory, JMSException, JMSSecurityException, Queue, ResourceAllocationException
from sievemq_broker import EmbeddedBroker, logs
from sievemq_broker.config import Loaded, Settings, load
from sievemq_broker.definitions import parse_definitions
from sievemq_broker.domain.journal import CHANGED, Journal
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.server import live_settings
from sievemq_broker.server import server as server_module
from sievemq_broker.server.credentials import user_store
from sievemq_broker.server.definitions import change_settings, settings_changes
from sievemq_broker.server.live_settings import Layer, LiveSettings, RefusedError, Value
from sievemq_broker.server.reloading import differences, reload_on_signal
from sievemq_broker.server.server import Phase, Server
from sievemq_broker.users.account import User
from sievemq_broker.users.passwords import hash_password

HASH = hash_password("secret")
OTHER = hash_password("other")


def layer(**rules: int) -> Layer[DestinationPolicy]:
    return LiveSettings(settings(**rules)).rules


def settings(**rules: int) -> Settings:
    return load({"destinations": {name: {"max_attempts": most} for name, most in rules.items()}}).settings


def rule(most: int) -> DestinationPolicy:
    return DestinationPolicy(max_attempts=most)


def attempts(of: Layer[DestinationPolicy]) -> dict[str, int]:
    return {name: policy.max_attempts for name, policy in of.present.items()}


def kept(journal: Journal) -> dict[Any, Any]:
    """What a store has of the changes, after all that was written."""
    rows: dict[Any, Any] = {}
    for part in journal.cut().parts:
        for (kind, key), value in part.definitions.items():
            assert kind == CHANGED
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
    return rows


def restored(of: Settings, rows: Mapping[Any, Any]) -> LiveSettings:
    live = LiveSettings(of)
    live.restore(rows)
    return live


# -- which one applies ------------------------------------------------------------------------------------------------


def test_a_changed_pattern_keeps_its_place_and_a_new_one_stands_before_what_would_hide_it() -> None:
    rules = LiveSettings(load({"destinations": {"b": {}, "a.*": {"max_attempts": 1}, "*": {}}}).settings).rules
    rules.put("queue:a.*", rule(2), None, 0)
    rules.put("topic:*", rule(3), None, 0)
    rules.put("queue:a.x", rule(4), None, 0)
    rules.put("queue:*.x", rule(5), None, 0)
    assert list(rules.present) == ["queue:b", "queue:a.x", "queue:a.*", "topic:*", "queue:*.x", "*"]
    rules.put("queue:a.*", None, None, 1)
    assert "queue:a.*" not in rules.present
    rules.reset("queue:a.*", None)
    assert attempts(rules)["queue:a.*"] == 1


def test_a_change_that_was_never_in_the_settings_leaves_nothing_when_it_is_removed() -> None:
    rules = layer()
    rules.put("queue:a", rule(2), None, 0)
    rules.put("queue:a", None, None, 1)
    assert (dict(rules.present), rules.changes) == ({}, {})
    rules.reset("queue:a", None)


def test_the_latest_change_wins() -> None:
    rules = layer(a=1, b=1)
    for name in ("queue:a", "queue:b", "queue:c"):
        rules.put(name, rule(5), "anna", 10)
    rules.rebase(settings(a=1, b=2).destinations)  # the file was changed for b
    assert attempts(rules) == {"queue:a": 5, "queue:b": 2, "queue:c": 5}
    rules.rebase(settings(a=1, b=2, c=1).destinations)
    assert attempts(rules)["queue:c"] == 1
    rules.rebase(settings(b=2).destinations)
    assert attempts(rules) == {"queue:b": 2}  # a is gone from the file


def test_an_order_lasts_until_the_settings_have_another_one() -> None:
    live, journal = LiveSettings(settings(a=1, b=1, c=1)), Journal(1)
    live.keep_in(journal)
    rules = live.rules
    rules.arrange(["queue:c", "queue:b", "queue:a"], "anna", 7)
    rules.put("*", rule(1), None, 8)
    rules.put("queue:b", None, None, 9)
    rules.put("queue:new", rule(2), None, 10)
    assert [*rules.present] == ["queue:c", "queue:a", "queue:new", "*"]
    with pytest.raises(RefusedError, match="these are not all rules that there are"):
        rules.arrange(["queue:a"], None, 11)
    rows = kept(journal)
    again = restored(settings(a=2, d=1, b=1, c=1), rows).rules
    assert [*again.present] == ["queue:c", "queue:a", "queue:d", "queue:new", "*"]
    assert again.order is not None
    assert (again.order.at, again.order.by) == (7, "anna")
    other = restored(settings(c=1, a=1, b=1), rows)
    assert [*other.rules.present] == ["queue:c", "queue:a", "queue:new", "*"]
    assert other.rules.order is None
    journal.define(CHANGED, ("order", "rule"), ())
    other.keep_in(journal)  # it has ended
    assert ("order", "rule") not in kept(journal)
    rules.arrange([], None, 12)
    assert [*rules.present] == ["queue:a", "queue:c", "queue:new", "*"]


def test_an_etag_follows_the_entry() -> None:
    rules = layer(a=1)
    first = rules.etag("queue:a")
    rules.put("queue:a", rule(2), None, 0)
    assert rules.etag("queue:a") not in ("", first)
    rules.reset("queue:a", None)
    assert rules.etag("queue:a") == first
    assert rules.etag("queue:b") == ""


def test_changes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = layer()
    monkeypatch.setattr(rules, "_most", 2)
    rules.put("queue:a", rule(1), None, 0)
    rules.put("queue:b", rule(1), None, 0)
    rules.put("queue:a", rule(2), None, 0)
    with pytest.raises(RefusedError, match="no more than 2 rules may be changed at run time"):
        rules.put("queue:c", rule(1), None, 0)


def test_many_changes_are_put_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def count(name: str, pattern: str) -> bool:
        compared.append(name)
        return fnmatchcase(name, pattern)

    monkeypatch.setattr(live_settings, "fnmatchcase", count)
    live = LiveSettings(Settings())
    names = [f"queue:a{number}" for number in range(50)]
    definitions = parse_definitions({"rules": {name: {} for name in [*names, "*"]}})
    changes = settings_changes(definitions, live, prune=False, secured=False)
    change_settings(changes, definitions, live, None, 0)
    assert list(live.rules.present) == [*names, "*"]
    assert [change.made for change in changes] == [True] * 51
    assert len(compared) == 50 * 51 / 2


def test_a_password_in_clear_never_reaches_the_store() -> None:
    users = LiveSettings(load({"users": {"anna": "secret"}}).settings).users
    with pytest.raises(RefusedError, match="`sievemq user hash` prints a hash"):
        users.put("anna", User("anna", HASH), None, 0)


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_changes_are_restored_unless_the_settings_were_changed_since(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(1)
    live = LiveSettings(settings(a=1, b=1, c=1))
    live.keep_in(journal)
    live.rules.put("queue:a", rule(5), "anna", 10)
    live.rules.put("queue:b", None, None, 11)
    live.rules.put("queue:d", rule(7), None, 12)
    live.rules.put("queue:e", rule(7), None, 12)
    live.rules.put("queue:e", None, None, 13)
    live.users.put("max", User("max", HASH), None, 14)
    live.values.put("max_connections", Value(7), None, 15)
    live.values.put("max_memory_bytes", Value(None), None, 15)
    rows = kept(journal)
    again = restored(settings(a=1, b=1, c=1), rows)
    assert attempts(again.rules) == {"queue:a": 5, "queue:c": 1, "queue:d": 7}
    assert again.rules.changes == live.rules.changes
    assert again.users.present["max"] == User("max", HASH)
    assert (again.max_connections, again.max_memory_bytes) == (7, None)
    assert restored(load({"max_connections": 9}).settings, rows).max_connections == 9
    other = restored(settings(a=2, b=1), rows)
    assert attempts(other.rules) == {"queue:a": 2, "queue:d": 7}
    assert "setting.changed_below kind='rule' name='queue:a'" in caplog.text
    next_journal = Journal(1)
    other.keep_in(next_journal)
    (part,) = next_journal.cut().parts
    assert part.definitions == {(CHANGED, ("rule", "queue:a")): None}  # it does not come back with the old file


def test_what_this_version_does_not_read_is_named_and_left(caplog: pytest.LogCaptureFixture) -> None:
    rows = {("rule", "queue:a"): (1, 0, None, "", '{"max_love": 1}'), ("rule", "queue:b"): (2, 0, None, "", "{")}
    assert dict(restored(settings(), rows).rules.present) == {}
    assert "setting.not_restored" in caplog.text
    assert "there is no rule 'max_love'" in caplog.text


def in_broker(broker: EmbeddedBroker, do: Callable[[Server], Any]) -> Any:
    return broker._submit(do).result()


def put(name: str, most: int, server: Server) -> None:
    server.live.values.put("max_connections", Value(20 + most), None, 1)
    server.live.rules.put(name, rule(most), None, 1)
    server.live.users.put("max", User("max", OTHER), None, 1)
    server.use_rules()
    server.user_store.renew()


USERS = {"anna": HASH}


def address(broker: EmbeddedBroker) -> tuple[str, int]:
    return "127.0.0.1", broker.server.port


def test_a_restart_keeps_changes(tmp_path: Path) -> None:
    given: dict[str, Any] = {"data_dir": tmp_path / "data", "users": USERS}
    with EmbeddedBroker(**given) as broker:
        broker.call(lambda b: b.namespace("default").create("queue:q"))
        in_broker(broker, partial(put, "queue:q", 3))
    with EmbeddedBroker(**given) as broker:
        assert in_broker(broker, lambda server: server.links.limit) == 23
        assert broker.call(lambda b: b.namespace("default").queue("queue:q").policy.max_attempts) == 3
        with ConnectionFactory(broker.url).create_context("max", "other") as context:
            context.create_producer().send(Queue("q"), "text")
    with (
        EmbeddedBroker(**given, settings={"destinations": {"q": {"max_attempts": 4}}}) as broker,
        ConnectionFactory(broker.url).create_context("max", "other"),
    ):
        assert broker.call(lambda b: b.namespace("default").queue("queue:q").policy.max_attempts) == 4


def test_a_takeover_keeps_changes() -> None:
    world = World()
    terms = {"beat_seconds": 0.05, "lease_seconds": 60}
    with SharingBroker(world, terms) as first, SharingBroker(world, terms) as second:
        in_broker(first, partial(put, "queue:q", 3))
        first.stop()
        second.wait_until_serving(60)
        assert in_broker(second, lambda server: attempts(server.live.rules)) == {"queue:q": 3}
        assert in_broker(second, lambda server: server.links.limit) == 23
        assert second.call(lambda b: b.namespace("default").create("queue:q").policy.max_attempts) == 3


def test_a_follower_reads_the_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_store, "LOOK_SECONDS", 3_600)
    file = tmp_path / "users"
    file.write_text(f"anna:{HASH}\n")
    world, given = World(), {"users_file": str(file)}
    terms = {"beat_seconds": 0.05, "lease_seconds": 60}
    with SharingBroker(world, terms, settings=given) as first, SharingBroker(world, terms, settings=given) as second:
        file.write_text(f"max:{HASH}\n")
        assert second._loop is not None

        async def reload() -> frozenset[str]:
            reload_on_signal(second.server)
            return second.server.authenticator.users.names()

        assert asyncio.run_coroutine_threadsafe(reload(), second._loop).result(DEADLINE) == {"max"}
        first.stop()
        second.wait_until_serving(60)
        assert in_broker(second, lambda server: server.authenticator.users.names()) == {"max"}


def test_a_changed_user_loses_its_connections(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"anna:{HASH}\n")
    with EmbeddedBroker(settings={"users_file": str(file)}) as broker:

        def change(server: Server) -> None:
            server.live.users.put("anna", User("anna", OTHER), None, 1)
            server.user_store.renew()

        with ConnectionFactory(broker.url, reconnect=0).create_context("anna", "secret"):
            in_broker(broker, change)
            until(broker, lambda server: not server.shard.services.connections)
        with pytest.raises(JMSSecurityException), ConnectionFactory(broker.url).create_connection("anna", "secret"):
            pass
        file.write_text(f"anna:{hash_password('third')}\n")  # the file is the latest change
        in_broker(broker, lambda server: server.user_store.reload())
        with ConnectionFactory(broker.url).create_connection("anna", "third"):
            pass


def test_a_changed_user_who_is_not_welcomed_yet_loses_its_connection() -> None:
    given: dict[str, Any] = {"users": USERS, "settings": {"handshake_seconds": 3_600}}
    with EmbeddedBroker(**given) as broker, closing(socket.create_connection(address(broker), DEADLINE)) as waiting:
        until(broker, lambda server: len(server.links.open) == 1)

        def change(server: Server) -> None:
            (link,) = server.links.open
            link.connection.peer.entitle(User("anna", HASH).identity)  # as after a handshake that waits
            server.live.users.put("anna", User("anna", OTHER), None, 1)
            server.user_store.renew()

        in_broker(broker, change)
        while waiting.recv(4_096):
            pass


# -- settings that are read again -------------------------------------------------------------------------------------


def loaded(**given: Any) -> Loaded:
    return load(given)


def test_differences_name_what_a_reload_applies_and_what_needs_a_restart() -> None:
    running = loaded(port=1, destinations={"a": {"max_attempts": 1}, "b": {}}, users={"anna": HASH}).settings
    found = differences(
        running,
        loaded(port=2, destinations={"a": {"max_attempts": 2}, "c": {}}, users={"anna": OTHER, "max": HASH}),
    )
    assert [(each.name, each.text, each.applied) for each in found] == [
        ("port", "1 becomes 2", False),
        ("users", "anna: password; max is new", True),
        ("destinations", "queue:a: max_attempts 1 becomes 2; queue:c is new; queue:b is gone", True),
    ]
    assert differences(running, Loaded(running, {})) == []
    (first,) = differences(Settings(), loaded(users={"anna": HASH}))
    assert first.applied
    (last,) = differences(loaded(users={"anna": HASH}).settings, loaded())
    assert not last.applied
    filed = loaded(users={"anna": HASH})
    watching = replace(filed.settings, users={}, users_file="users")
    found = {each.name: each.applied for each in differences(watching, filed)}
    assert found == {"users": False, "users_file": False}  # the file is watched until a restart
    (collector,) = differences(Settings(), loaded(otlp="http://me:secret@collector:4318"))
    assert collector.text == "none becomes http://me:***@collector:4318"
    (order,) = differences(loaded(destinations={"a": {}, "b": {}}).settings, loaded(destinations={"b": {}, "a": {}}))
    assert (order.text, order.applied) == ("their order", True)
    (space,) = differences(Settings(), loaded(definitions={"namespaces": {"default": {"queues": ["a"]}}}))
    assert not space.applied
    assert "definitions apply" in space.text


def test_a_signal_applies_what_needs_no_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    file = tmp_path / "sievemq.toml"
    file.write_text(f"[destinations.q]\nmax_attempts = 1\n[users]\nanna = '{HASH}'\n")
    reread = partial(load, {"port": 0, "http": False}, {}, file)
    with EmbeddedBroker(settings=reread().settings) as broker:
        broker.call(lambda b: b.namespace("default").create("queue:q"))
        in_broker(broker, lambda server: server.live.reread_with(reread))
        text = f"[destinations.q]\nmax_attempts = 2\n[users]\nmax = '{HASH}'\n[attention]\nno_consumer_seconds = 0\n"
        file.write_text(f"auto_create = false\nheartbeat_seconds = 30\n{text}")
        in_broker(broker, reload_on_signal)
        assert broker.call(lambda b: b.namespace("default").queue("queue:q").policy.max_attempts) == 2
        assert not broker.call(lambda b: b.settings.auto_create)
        assert in_broker(broker, lambda server: server.user_store.users.names()) == {"max"}
        applied = ["users", "attention", "destinations", "auto_create"]
        expected = f"settings.read applied={applied} needs_restart=['heartbeat_seconds']"
        assert expected in caplog.text
        assert in_broker(broker, lambda server: server.attention.thresholds.no_consumer_seconds) == 0
        file.write_text("nonsense = 1")
        in_broker(broker, reload_on_signal)
        assert "settings.not_read" in caplog.text
        file.write_text(f"peers = {'[' * 100_000}")
        in_broker(broker, reload_on_signal)
        assert "it is nested too deeply" in caplog.text
        in_broker(broker, lambda server: server.live.reread_with(None))
        in_broker(broker, reload_on_signal)
        assert caplog.text.count(" settings.") == 3


def test_a_signal_applies_limits_of_namespaces_and_the_log_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[str] = []
    monkeypatch.setattr(logs, "configure", lambda level, **_: levels.append(level))
    file = tmp_path / "sievemq.toml"
    file.write_text("")
    reread = partial(load, {"port": 0, "http": False}, {}, file)
    with EmbeddedBroker(settings=reread().settings) as broker:
        space = broker.call(lambda b: b.namespace("team-a"))
        in_broker(broker, lambda server: server.live.reread_with(reread))
        file.write_text('log_level = "debug"\n[namespaces."team-*"]\nmax_messages = 7\n')
        for _ in range(2):  # the second one finds nothing to apply
            in_broker(broker, reload_on_signal)
        until(broker, lambda _: space.policy is not None)
        assert broker.call(lambda _: space.policy and space.policy.max_messages) == 7
    assert levels == ["debug"]


def test_a_signal_applies_the_limits_of_connections_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[int] = []
    monkeypatch.setattr(server_module, "raise_file_limit", files.append)
    file = tmp_path / "sievemq.toml"
    file.write_text("max_connections = 1\n")
    reread = partial(load, {"port": 0, "http": False}, {}, file)
    with EmbeddedBroker(settings=reread().settings) as broker:
        in_broker(broker, lambda server: server.live.reread_with(reread))
        factory = ConnectionFactory(f"{broker.url}?reconnect=0")
        with factory.create_connection() as first:
            with pytest.raises(JMSException, match="max_connections"):
                factory.create_connection()
            file.write_text("max_connections = 2\nmax_memory_bytes = 4_000\n")
            in_broker(broker, reload_on_signal)
            assert files == [2]
            with factory.create_connection():
                assert in_broker(broker, lambda server: server.shard.services.settings.max_connections) == 2
                file.write_text("max_connections = 1\nmax_memory_bytes = 4_000\n")
                in_broker(broker, reload_on_signal)
                assert in_broker(broker, lambda server: len(server.links.open)) == 2  # those that are open stay
            with pytest.raises(ResourceAllocationException, match="may take 4000 bytes here"):
                session = first.create_session()
                session.create_producer(Queue("q")).send(session.create_text_message("x" * 5_000))


def test_a_signal_at_the_start_is_heard_once_clients_are_served() -> None:
    server = Server(Settings(port=0, http=False))
    seen: list[str] = []

    def reread() -> Loaded:
        seen.append("read")
        return Loaded(server.settings, {})

    server.live.reread_with(reread)
    assert server.phase is Phase.STARTING
    reload_on_signal(server)
    assert seen == []
    (begin,) = server._when_serving
    server.phase = Phase.READY
    begin()
    assert seen == ["read"]

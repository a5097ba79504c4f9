"""The users file: what it may say, how it is written, and that a running broker follows it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq import ConnectionFactory, JMSContext
from sievemq.exceptions import JMSRuntimeException, JMSSecurityRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.credentials import user_store
from sievemq_broker.session.rights import ALL_RIGHTS, Grant, Rights, Verb
from sievemq_broker.users.account import User
from sievemq_broker.users.file import MAX_NAME_CHARS, parse_users, read_file, read_users, write_users
from sievemq_broker.users.passwords import hash_password
from sievemq_core.message.destination import misspelt_kind

HASH = hash_password("rosebud")

names = st.text(min_size=1, max_size=MAX_NAME_CHARS).filter(
    lambda name: name.isprintable() and name == name.strip() and not set(name) & set(":,")
)
patterns = st.text(min_size=1, max_size=20).filter(str.isprintable)
destinations = patterns.filter(lambda pattern: misspelt_kind(pattern) is None)
grants = st.builds(Grant, st.frozensets(st.sampled_from(Verb), min_size=1), destinations, patterns)
rights = st.one_of(st.just(ALL_RIGHTS), st.builds(Rights, st.lists(grants, max_size=3)))
secrets = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(
    lambda text: not text.startswith(("$argon2", "scrypt$"))
)


@given(st.dictionaries(names, st.tuples(secrets, rights), max_size=4))
@settings(max_examples=100, deadline=None)
def test_a_written_file_reads_back(
    tmp_path_factory: pytest.TempPathFactory, wanted: dict[str, tuple[str, Rights]]
) -> None:
    file = tmp_path_factory.getbasetemp() / "users.toml"
    users = {name: User(name, secret, rights) for name, (secret, rights) in wanted.items()}
    write_users(file, users)
    assert read_users(file) == users


def test_the_sign_in_key_stays_when_users_change(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    write_users(file, {"anna": User("anna", HASH)})
    key = read_file(file)[1]
    assert key is not None
    assert len(key) >= 32
    write_users(file, {})
    assert read_file(file) == ({}, key)
    file.write_text("anna:secret\n")
    assert read_file(file)[1] is None


def test_the_file_is_private_and_replaced_atomically(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    file.write_text("")
    file.chmod(0o644)
    before = file.stat().st_ino
    write_users(file, {"anna": User("anna", HASH)})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_ino != before
    assert list(tmp_path.iterdir()) == [file]


def test_link_is_followed_and_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "real.toml", tmp_path / "users.toml"
    target.write_text("")
    link.symlink_to(target)
    write_users(link, {"anna": User("anna", HASH)})
    assert link.is_symlink()
    assert set(read_users(target)) == {"anna"}


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "users.toml"
    write_users(file, {"anna": User("anna", HASH)})

    def fail(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_users(file, {})
    assert set(read_users(file)) == {"anna"}
    assert list(tmp_path.iterdir()) == [file]


def test_lines_are_read_as_well(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"# of a container\nanna:a:b,c\n\n  ben:{HASH}\n")
    assert read_users(file) == {"anna": User("anna", "a:b,c"), "ben": User("ben", HASH)}


def test_hashes_in_one_line_of_the_environment() -> None:
    assert parse_users(f"anna:{HASH},ben:two\ncleo:{HASH}") == {
        "anna": User("anna", HASH),
        "ben": User("ben", "two"),
        "cleo": User("cleo", HASH),
    }


def test_rights() -> None:
    given = [{"may": "send"}, {"may": ["browse"], "destination": "q", "namespace": "*"}]
    anna = parse_users({"anna": {"password": "x", "rights": given}})["anna"]
    assert anna.rights == Rights([Grant(frozenset({Verb.SEND}), "*"), Grant(frozenset({Verb.BROWSE}), "queue:q", "*")])
    assert parse_users({"anna": {"password": "x", "rights": []}})["anna"].rights == Rights([])
    assert parse_users({"anna": {"password": "x"}})["anna"].rights is ALL_RIGHTS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[users\n", "is not TOML"),
        ("[other]\n", r"holds sign_in_key, \[users\] and nothing else, not 'other'"),
        ('sign_in_key = "short"\n', "sign_in_key in the users file .* has less than 32 characters"),
        ("[[users]]\n", "`users` in the users file .* must be a table"),
        ("[users]\nanna = 7\n", "user 'anna' has no password"),
        ("[users.anna]\n", "user 'anna' has no password"),
        ('[users.anna]\npassword = ""\n', "user 'anna' has no password"),
        ('[users.anna]\npassword = "x"\nright = []\n', "knows password and rights of user 'anna', not 'right'"),
        ('[users.anna]\npassword = "x"\nrights = "all"\n', "needs a list of tables as rights of user 'anna'"),
        ('[users.anna]\npassword = "x"\nrights = ["send"]\n', "needs a list of tables as rights of user 'anna'"),
        ('[users.anna]\npassword = "x"\nrights = [{may = ["fly"]}]\n', "verbs are send, consume, browse, manage, view"),
        ('[users.anna]\npassword = "x"\nrights = [{may = []}]\n', "names at least one of"),
        ('[users.anna]\npassword = "x"\nrights = [{may = 7}]\n', "cannot use a right of user 'anna'"),
        ('[users.anna]\npassword = "x"\nrights = [{may = "send", on = "q"}]\n', "not 'on'"),
        ('[users]\n"an:na" = "x"\n', "a user name has 1 to 100 printable characters"),
        ('[users]\n" anna" = "x"\n', "a user name has 1 to 100 printable characters"),
        ('[users]\nanna = "scrypt$x"\n', "scrypt hash, which this version does not read; .* `sievemq user password`"),
        ('[users]\nanna = "$argon2id$x"\n', "no argon2id hash"),
        ("anna\n", "entry 1 has no name or no password"),
        ("anna:x\nanna:y\n", "names user 'anna' twice"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "users.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=why):
        read_users(file)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sievemq user add NAME --users-file"):
        read_users(tmp_path / "none")
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read_users(tmp_path)


# -- a running broker -------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "users.toml"
    write_users(file, {"anna": User("anna", "one"), "ben": User("ben", HASH)})
    return file


@pytest.fixture
def broker(file: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"users_file": str(file)}) as broker:
        yield broker


def reload(broker: EmbeddedBroker) -> None:
    broker.call(lambda _: broker.server.user_store.reload())


def connect(broker: EmbeddedBroker, user: str, password: str) -> JMSContext:
    return ConnectionFactory(broker.url).create_context(user, password)


def test_the_record_has_that_the_file_was_read(broker: EmbeddedBroker) -> None:
    reload(broker)
    (row,) = broker._submit(lambda server: list(server.audit.since(0))).result()
    assert (row["action"], row["via"]) == ("read_users_file", "file")


def test_new_and_removed_users(broker: EmbeddedBroker, file: Path) -> None:
    with connect(broker, "anna", "one") as anna, connect(broker, "ben", "rosebud") as ben:
        write_users(file, {"ben": User("ben", HASH), "cleo": User("cleo", "three")})
        reload(broker)
        connect(broker, "cleo", "three").close()
        with pytest.raises(JMSSecurityRuntimeException):
            connect(broker, "anna", "one")
        with pytest.raises(JMSRuntimeException):
            anna.create_producer().send(anna.create_queue("q"), "x")
        ben.create_producer().send(ben.create_queue("q"), "x")  # nothing of this concerned it


def test_changed_password_ends_connections(broker: EmbeddedBroker, file: Path) -> None:
    with connect(broker, "anna", "one") as anna:
        write_users(file, {"anna": User("anna", "two")})
        reload(broker)
        with pytest.raises(JMSRuntimeException):
            anna.create_producer().send(anna.create_queue("q"), "x")
        with pytest.raises(JMSSecurityRuntimeException):
            connect(broker, "anna", "one")
        connect(broker, "anna", "two").close()


def test_changed_rights_hold_for_connections_that_are_open(broker: EmbeddedBroker, file: Path) -> None:
    with connect(broker, "anna", "one") as anna:
        orders, stock = anna.create_queue("orders"), anna.create_queue("stock")
        producer = anna.create_producer().send(orders, "1").send(stock, "1")
        kept, lost = anna.create_consumer(orders), anna.create_consumer(stock)
        temporary = anna.create_temporary_queue()
        own = anna.create_consumer(temporary)
        write_users(
            file, {"anna": User("anna", "one", Rights([Grant(frozenset({Verb.SEND, Verb.CONSUME}), "orders")]))}
        )
        reload(broker)
        with pytest.raises(JMSSecurityRuntimeException, match="'anna' must not send to queue:stock"):
            producer.send(stock, "2")
        producer.send(orders, "2").send(temporary, "3")
        assert own.receive_body(str, 60_000) == "3"
        assert [kept.receive_body(str, 60_000) for _ in range(2)] == ["1", "2"]
        held = broker.call(
            lambda b: {name: len(q.consumers) for name, q in b.namespace("default").destinations.items()}
        )
        assert held["queue:stock"] == 0
        assert held["queue:orders"] == held[f"temporary-queue:{temporary.get_queue_name()}"] == 1
        lost.close()
        write_users(file, {"anna": User("anna", "one")})
        reload(broker)
        producer.send(stock, "4")


def test_connection_ends_where_there_is_no_right_left(broker: EmbeddedBroker, file: Path) -> None:
    with connect(broker, "anna", "one") as anna:
        write_users(file, {"anna": User("anna", "one", Rights([Grant(frozenset({Verb.SEND}), "*", "elsewhere")]))})
        reload(broker)
        with pytest.raises(JMSRuntimeException):
            anna.create_producer().send(anna.create_queue("q"), "x")


def test_broken_file_changes_nothing(broker: EmbeddedBroker, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("[users.anna\n", "", None):
        if text is None:
            file.unlink()
        elif text:
            file.write_text(text)
        reload(broker)
        connect(broker, "anna", "one").close() if text != "" else None
    assert "users.not_read" in caplog.text
    assert "the users are unchanged" in caplog.text


def test_a_changed_file_is_noticed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is checked each second."""
    assert user_store.LOOK_SECONDS == 1
    monkeypatch.setattr(user_store, "LOOK_SECONDS", 0.01)
    with EmbeddedBroker(settings={"users_file": str(file)}) as broker:
        seen = threading.Event()
        use = broker.server.user_store._change
        assert use is not None
        monkeypatch.setattr(broker.server.user_store, "_change", lambda users: (use(users), seen.set()))
        write_users(file, {"cleo": User("cleo", "three")})
        assert seen.wait(60)
        connect(broker, "cleo", "three").close()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP here")
def test_sighup_reads_it_now_with_the_settings(file: Path) -> None:
    program = "from sievemq.cli import main; main()"
    config = file.with_name("sievemq.toml")
    config.write_text("[destinations.q]\nmax_attempts = 2\n")
    options = ["broker", "--port", "0", "--no-http", "--json-logs", "--users-file", str(file), "--config", str(config)]
    with subprocess.Popen([sys.executable, "-c", program, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen: set[str] = set()
        try:
            for line in process.stdout:
                if "broker.ready" in line:
                    config.write_text("[destinations.q]\nmax_attempts = 3\n")
                    process.send_signal(signal.SIGHUP)
                if "users.read" in line:
                    assert '"users": 2' in line
                    seen.add("users")
                if "settings.read" in line:
                    assert '"applied": ["destinations"], "needs_restart": []' in line
                    seen.add("settings")
                    break
            assert seen == {"users", "settings"}
        finally:
            process.terminate()
            process.stdout.read()
        assert process.wait() == 0

"""Settings: where they come from, what is refused, what is never shown."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from sievemq.cli import run
from sievemq_broker.config import ConfigError, Settings, load
from sievemq_broker.domain.policy import DestinationPolicy, PolicyRules
from sievemq_broker.store_url import without_password
from sievemq_broker.users.account import User
from sievemq_broker.users.file import parse_users


def test_defaults_are_loopback_and_the_fixed_ports() -> None:
    settings = load().settings
    assert (settings.host, settings.port, settings.http_address, settings.http_port) == (
        "127.0.0.1",
        7672,
        "127.0.0.1",
        7680,
    )
    assert settings == Settings()


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('port = 1\nhttp_port = 2\nlog_level = "debug"\n')
    loaded = load({"port": 3, "host": None}, {"SIEVEMQ_PORT": "4", "SIEVEMQ_HTTP_PORT": "5"}, file)
    assert (loaded.settings.port, loaded.settings.http_port, loaded.settings.log_level) == (3, 5, "debug")
    assert loaded.origins["port"] == "command line"
    assert loaded.origins["http_port"] == "environment SIEVEMQ_HTTP_PORT"
    assert loaded.origins["log_level"] == f"file {file}"
    assert loaded.origins["host"] == "default"


def test_environment_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("port = 9\n")
    assert load(environ={"SIEVEMQ_CONFIG": str(file)}).settings.port == 9


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("prot = 1", "prot in"),
        ("http_prot = 1", "did you mean http_port?"),
        ("port = 70000", "port (file"),
        ("port = true", "must be a whole number"),
        ("port = ", "is not TOML"),
        ('http = "maybe"', "must be true or false"),
        ('log_level = "loud"', "must be one of debug, info"),
        ('host = ""', "must be text that is not empty"),
        ("drain_seconds = -1", "must be seconds"),
        ('drain_seconds = "soon"', "must be seconds"),
        ("drain_seconds = true", "must be seconds"),
        ('port = "many"', "must be a whole number"),
        ("protocols = 7", "comma-separated names"),
        ('protocols = ["sieve", 7]', "comma-separated names"),
        ('protocols = "sieve,mqtt"', "not 'mqtt'"),
        ('protocols = "stomp"', "must have sieve"),
        ('dialect = "english"', "must be one of"),
        ('max_memory_bytes = "12 miles"', "must be a number of bytes"),
        ('users = "name"', "name:password"),
        ("[users]\nanna = 7", "name:password"),
    ],
)
def test_file_with_a_mistake_is_refused_and_named(tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        load(config=file)
    assert text in str(caught.value)
    assert str(file) in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(config=tmp_path / "none.toml")


def test_misspelt_variable_is_refused_with_a_guess() -> None:
    with pytest.raises(ConfigError, match=r"SIEVEMQ_USER is not a setting; did you mean SIEVEMQ_USERS\?"):
        load(environ={"SIEVEMQ_USER": "admin:secret"})
    clients = ("URL", "HTTP_URL", "NAMESPACE", "USER", "PASSWORD")  # the same shell may have them for `sievemq send`
    assert load(environ={f"SIEVEMQ_{name}": "x" for name in clients}).settings == load().settings
    with pytest.raises(ConfigError, match=r"SIEVEMQ_HTTP_PROT is not a setting; did you mean SIEVEMQ_HTTP_PORT\?"):
        load(environ={"SIEVEMQ_HTTP_PROT": "1"})


@pytest.mark.parametrize("variable", ["SIEVEMQ_URL", "SIEVEMQ_PASSWORD", "SIEVEMQ_SOMETHING_ELSE"])
def test_variables_of_other_tools_are_left_alone(variable: str) -> None:
    assert load(environ={variable: "x"}).settings == Settings()


def test_service_variables_of_kubernetes_are_not_settings() -> None:
    environ = {
        "SIEVEMQ_PORT": "tcp://10.0.0.7:7672",
        "SIEVEMQ_PORT_7672_TCP_PORT": "7672",
        "SIEVEMQ_SERVICE_HOST": "10.0.0.7",
    }
    assert load(environ=environ).settings.port == 7672


def test_empty_variable_means_not_set() -> None:
    assert load(environ={"SIEVEMQ_PORT": ""}).settings.port == 7672


def test_users_from_text_and_table(tmp_path: Path) -> None:
    wanted = {"anna": User("anna", "a:b"), "ben": User("ben", "two")}
    assert load(environ={"SIEVEMQ_USERS": "anna:a:b,ben:two"}).settings.users == wanted
    file = tmp_path / "broker.toml"
    file.write_text('[users]\nanna = "a:b"\nben = "two"\n')
    assert load(config=file).settings.users == wanted


def test_an_empty_users_file_still_requires_credentials(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.touch()
    settings = load({"host": "0.0.0.0"}, {"SIEVEMQ_USERS_FILE": str(file)}).settings
    assert settings.secured
    assert settings.users == {}


def test_users_and_their_file_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both set"):
        load(environ={"SIEVEMQ_USERS": "a:b", "SIEVEMQ_USERS_FILE": str(tmp_path / "users")})


def test_users_file_that_is_missing_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"users_file: there is no users file .*users; `sievemq user add"):
        load(environ={"SIEVEMQ_USERS_FILE": str(tmp_path / "users")})


def test_settings_are_not_read_from_files_of_their_own() -> None:
    with pytest.raises(ConfigError, match="SIEVEMQ_HTTP_PORT_FILE"):
        load(environ={"SIEVEMQ_HTTP_PORT_FILE": "x"})


def test_passwords_are_not_in_errors() -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"SIEVEMQ_USERS": "anna:topsecret,:hidden"})
    assert "topsecret" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert "entry 2" in str(caught.value)


def test_user_with_a_broken_hash_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'anna' begins like a hash"):
        load({"users": "anna:$argon2id$nonsense"})
    with pytest.raises(ConfigError, match=r"'anna' is a scrypt hash"):
        load({"users": "anna:scrypt$8192$8$1$x$y"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "broker.example"])
def test_open_to_other_machines_needs_users_or_a_plain_word(host: str) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        load({"host": host})
    assert load({"host": host, "insecure": True}).settings.insecure
    assert load({"host": host, "users": "a:b"}).settings.users


def test_open_http_alone_is_refused_too_but_only_if_served() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0"):
        load({"http_host": "0.0.0.0"})
    assert not load({"http_host": "0.0.0.0", "http": False}).settings.http


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_users(host: str) -> None:
    assert load({"host": host}).settings.host == host


def test_data_directory_may_be_made_but_is_no_file(tmp_path: Path) -> None:
    assert load({"data_dir": str(tmp_path / "new")}).settings.data_dir == str(tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file"):
        load({"data_dir": str(tmp_path / "file")})


def test_tls_key_without_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="tls_cert"):
        load({"tls_key": "key.pem"})


@pytest.mark.parametrize("value", [None, "", " , ", "\n"])
def test_no_users(value: object) -> None:
    assert parse_users(value) == {}


# -- rules of destinations --------------------------------------------------------------------------------------------


def test_rules_of_destinations_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        '[destinations."queue:orders.*"]\nmax_attempts = 3\nredelivery_delay = 500\nredelivery_factor = 2\n'
        '[destinations.payments]\ndelivery_mode = "NON_PERSISTENT"\n[destinations."*"]\nmax_messages = 10\n'
    )
    domain = load(config=file).settings.domain()
    assert domain.policy_for("queue:orders.eu") == DestinationPolicy(
        max_attempts=3, redelivery_delay=500, redelivery_factor=2
    )
    assert domain.policy_for("queue:payments").delivery_mode == 1
    assert domain.policy_for("topic:payments") == DestinationPolicy(max_messages=10)


def test_the_action_at_a_limit_is_validated(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[destinations.ticks]\nmax_messages = 10\nat_limit = "drop-oldest"\n')
    assert load(config=file).settings.domain().policy_for("queue:ticks").at_limit == "drop-oldest"
    file.write_text('[destinations.ticks]\nat_limit = "drop"\n')
    with pytest.raises(ConfigError, match="at_limit must be one of fail, block, drop-oldest, drop-newest"):
        load(config=file)
    file.write_text("[destinations.ticks]\nat_limit = 1\n")
    with pytest.raises(ConfigError, match="at_limit"):
        load(config=file)


def test_a_table_of_rules_has_each_rule_of_a_destination() -> None:
    assert list(PolicyRules.__annotations__) == [rule.name for rule in fields(DestinationPolicy) if rule.init]


def test_rules_of_destinations_from_the_environment() -> None:
    domain = load(environ={"SIEVEMQ_DESTINATIONS": '{"orders": {"priority": 9}}'}).settings.domain()
    assert domain.policy_for("queue:orders").priority == 9


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("nonsense", "must be JSON"),
        ("[1]", "must be a table"),
        ('{"orders": 1}', "needs a table of rules for 'orders'"),
        ('{"orders": {"max_attempt": 1}}', "for 'orders': there is no rule 'max_attempt'; did you mean max_attempts?"),
        ('{"orders": {"max_attempts": true}}', "for 'orders': the rule max_attempts must be a whole number, not True"),
        ('{"orders": {"max_attempts": "3"}}', "must be a whole number, not '3'"),
        ('{"orders": {"max_attempts": -1}}', "for 'orders': max_attempts must not be negative"),
        ('{"orders": {"priority": 10}}', "priority must be 0 to 9"),
        (
            '{"orders": {"delivery_mode": "SOMETIMES"}}',
            "the rule delivery_mode must be PERSISTENT or NON_PERSISTENT, not 'SOMETIMES'",
        ),
        ('{"orders": {"dead_letter_expired": 1}}', "dead_letter_expired must be True or False, not 1"),
        ('{"orders": {"delivery_mode": 3}}', "delivery_mode must be PERSISTENT or NON_PERSISTENT, not 3"),
        ('{"orders": {"at_limit": 1}}', "at_limit must be one of fail, block, drop-oldest, drop-newest, not 1"),
        ('{"orders": {"delay": 1.5}}', "delay must be a whole number of milliseconds, or a timedelta, not 1.5"),
        ('{"qeue:orders": {}}', "'qeue' in 'qeue:orders' is no kind of destination; did you mean queue:orders?"),
        (
            '{"urn:*": {}}',
            "there are queue, topic, temporary-queue, temporary-topic. A queue of that name is queue:urn:*",
        ),
    ],
)
def test_rules_with_a_mistake_are_refused(rules: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"SIEVEMQ_DESTINATIONS": rules})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ('{"shop": 1}', "needs a table of rules for 'shop'"),
        ('{"shop": {"max_message": 1}}', "max_message"),
        ('{"shop": {"max_messages": "3"}}', "rule max_messages for 'shop' must be a whole number, not '3'"),
        ('{"shop": {"at_limit": 3}}', "rule at_limit for 'shop' must be block or fail, not 3"),
    ],
)
def test_rules_of_namespaces_with_a_mistake_are_refused(rules: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={"SIEVEMQ_NAMESPACES": rules})
    assert text in str(caught.value)


@pytest.mark.parametrize("wrong", [{"on_full_disk": "panic"}, {"http": "perhaps"}])
def test_words_that_no_setting_has_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        load(wrong)


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"), [("1048576", 2**20), ("1MiB", 2**20), ("1.5 GiB", 3 * 2**29), ("200MB", 200_000_000), ("0", 0)]
)
def test_numbers_of_bytes(text: str, size: int) -> None:
    assert load({"max_memory_bytes": text}).settings.max_memory_bytes == size


@pytest.mark.parametrize("text", ["lots", "-1", "1XB", "", "inf", "1e400"])
def test_numbers_of_bytes_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a number of bytes"):
        load({"max_memory_bytes": text})


def test_memory_limit_is_chosen_by_the_broker_unless_given() -> None:
    assert load().settings.max_memory_bytes is None
    assert load({"max_memory_bytes": "auto"}).settings.max_memory_bytes is None


@pytest.mark.parametrize(
    "wrong",
    [{"max_body_bytes": 0}, {"max_body_bytes": "65MiB"}, {"dialect": "sql"}, {"heartbeat_seconds": 0.05}, {"prot": 1}],
)
def test_limits_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        load(wrong)


# -- a store that brokers share ---------------------------------------------------------------------------------------

STORE = "postgresql://sieve@db:5432,db2/mq?target_session_attrs=read-write"


def test_a_store_and_what_belongs_to_it() -> None:
    given = {"store": STORE, "advertise": "sievemqs://MQ-1/", "peers": "mq-1, [::1]:7673,mq-1:7672"}
    assert load({"advertise_http": "https://mq-1/mq/"}, {}).settings.advertise_http == "https://mq-1/mq"
    settings = load(given).settings
    assert (settings.store, settings.shard, settings.advertise) == (STORE, "main", "sievemqs://mq-1:7672")
    assert settings.peers == ("mq-1:7672", "[::1]:7673")
    assert (settings.beat_seconds, settings.lease_seconds, settings.store_patience) == (0.5, 5, 300)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"store": "/var/lib/mq"}, "URL of a database"),
        ({"store": STORE, "data_dir": "d"}, "data_dir and store are both set"),
        ({"peers": "a:1"}, "peers needs store"),
        ({"store": STORE, "peers": "a:x"}, "host:port"),
        ({"store": STORE, "peers": "me@a:1"}, "host:port"),
        ({"store": STORE, "peers": "[::1"}, "host:port"),
        ({"store": STORE, "advertise": "amqp://a"}, "sievemq://"),
        ({"store": STORE, "advertise": "sievemq://me:x@a"}, "host:port"),
        *(
            ({"advertise_http": url}, "must be the URL of this broker's HTTP port")
            for url in ("mq-1:7680", "http://", "http://me:x@a", "http://a:x", "http://[a", "http://a?b", "ftp://a")
        ),
        ({"store": STORE, "shard": "a b"}, "letters"),
        ({"beat_seconds": 0}, "beat_seconds"),
        ({"lease_seconds": 1.9}, "at least 4 times"),
    ],
)
def test_settings_of_a_store_that_cannot_be_used(given: dict[str, object], wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        load(given)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (STORE, STORE),
        ("postgresql://me:secret@db/mq", "postgresql://me:***@db/mq"),
        ("postgres://me:se/c@ret?x@db/mq", "postgres://me:***@db/mq"),
        ("postgresql:///mq?user=me&password=secret&sslpassword=secret", "postgresql:///mq?user=me&password=***&sslpassword=***"),
        ("postgresql:///mq?PASSWORD=secret", "postgresql:///mq?PASSWORD=***"),
        ("postgresql:///?service=mq", "postgresql:///?service=mq"),
    ],
)  # fmt: skip
def test_the_password_of_a_store_is_never_shown(url: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert load({"store": url}).settings.shown_store == shown
    assert without_password(url) == shown
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIEVEMQ_STORE", url)
        assert run(["config", "show", "--json"]) == 0
        assert f'"store": "{shown}"' in capsys.readouterr().out
        patch.setenv("SIEVEMQ_STORE", f"x{url}")
        assert run(["config", "check"]) == 2
        assert "secret" not in capsys.readouterr().err

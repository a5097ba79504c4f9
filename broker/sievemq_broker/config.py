"""Settings of a broker: one frozen object, from the command line, the environment, a TOML file and defaults.

    command line  >  SIEVEMQ_* environment  >  file (--config, SIEVEMQ_CONFIG)  >  default

Every setting has one name everywhere: ``http_port`` in the file, ``SIEVEMQ_HTTP_PORT`` in the environment,
``--http-port`` on the command line. Passwords may stand in a file of their own (``users_file``). A key of the file
that is not known is an error; so is a variable that looks like a misspelt setting (other tools share the prefix, so
not every unknown variable can be).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sievemq_broker.definitions import Definitions, definitions_of
from sievemq_broker.domain.policy import BLOCK, FAIL, DestinationPolicy, DomainSettings, NamespacePolicy
from sievemq_broker.logs import LEVELS
from sievemq_broker.protocols import PROTOCOLS
from sievemq_broker.rules import guess, parse_namespaces, parse_policies, rules_of
from sievemq_broker.store_url import is_store_url, without_password
from sievemq_broker.thresholds import Thresholds, changed_thresholds, parse_thresholds
from sievemq_broker.users.account import User, Users
from sievemq_broker.users.file import parse_users, read_users
from sievemq_core.limits import (
    FRAME_TIMEOUT_MS,
    HANDSHAKE_TIMEOUT_MS,
    HEARTBEAT_MS,
    MAX_BODY_BYTES,
    MAX_BUSY_POLL_US,
    MIN_HEARTBEAT_MS,
)
from sievemq_core.selector.dialect import DIALECTS
from sievemq_core.toml import parse_toml

__all__ = ["ConfigError", "Loaded", "Settings", "load", "parse_users"]

_PORT: Final = 7672

#: The fewest beats in a lease.
_MIN_BEATS: Final = 4


#: Settings that are of no use without another one, and why.
_NEEDS: Final = {
    "tls_key": ("tls_cert", "without a certificate there is no TLS"),
    "tls_client_ca": ("tls_cert", "without a certificate there is no TLS"),
    "tls_client_users": ("tls_client_ca", "without it clients present no certificate"),
    "otlp_traces": ("otlp", "without a collector nobody receives them"),
}


class ConfigError(Exception):
    """A setting that cannot be used; the text names it, where it was set and what to write instead."""


def _setting(default: Any, meaning: str, parse: Callable[[object], Any], *, secret: bool = False) -> Any:
    metadata = {"meaning": meaning, "parse": parse, "secret": secret}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


# -- reading one value; each takes text (environment, command line) or a TOML value ---------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be text that is not empty")
    return value


def _optional_text(value: object) -> str | None:
    return None if value in (None, "") else _text(value)


def _store(value: object) -> str | None:
    url = _optional_text(value)
    if url is not None and not is_store_url(url):
        raise ValueError("must be the URL of a database, such as postgresql://user@host/name; data_dir is a directory")
    return url


def _shard(value: object) -> str:
    name = _text(value)
    # In pg_stat_activity a connection's name has the shard's, and 63 characters at most.
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,40}", name):
        raise ValueError("must be 1 to 40 letters, digits, dots, dashes and underscores")
    return name


def _shards(value: object) -> tuple[str, ...]:
    names = tuple(map(_shard, _listed(value)))
    if len(set(names)) < len(names):
        raise ValueError("must name each shard once")
    return names


def _address(host: str) -> str:
    """``host:port`` of what may lack the port."""
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port or _PORT
    except ValueError:  # brackets, or a port that is no number
        name = None
    if not name or parts.netloc != host or "@" in host:
        raise ValueError("must be host:port, such as mq-1.example.com:7672, without a user")
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _client_url(value: object) -> str | None:
    url = _optional_text(value)
    if url is None:
        return None
    scheme, _, host = url.rstrip("/").partition("://")
    if scheme not in ("sievemq", "sievemqs"):
        raise ValueError("must be the URL of this broker for clients, such as sievemq://mq-1.example.com:7672")
    return f"{scheme}://{_address(host)}"


def _http_url(value: object) -> str | None:
    url = _optional_text(value)
    if url is None:
        return None
    try:
        parts = urlsplit(url.rstrip("/"))
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets, or a port that is no number
        usable = False
    if not usable or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("must be the URL of this broker's HTTP port, such as https://mq-1.example.com:7680")
    return parts.geturl()


def _collector(value: object) -> str | None:
    url = _optional_text(value)
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be the URL of an OpenTelemetry collector, such as http://localhost:4318")
    return url.rstrip("/")


def _peers(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_address, _names(value))))


def _names(value: object) -> tuple[str, ...]:
    return tuple(name.lower() for name in _listed(value))


def _listed(value: object) -> list[str]:
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) and name for name in value):
        raise ValueError("must be comma-separated names, or a list of names")
    return list(value)


def _whole(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if type(number) is not int or not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return parse


def _optional_port(value: object) -> int | None:
    return None if value in (None, "") else _whole(0, 65_535)(value)


def _seconds(value: object) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    try:
        number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number <= 86_400:
        raise ValueError("must be seconds from 0 to 86400")
    return number


_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in _YES or word in _NO:
        return word in _YES
    raise ValueError("must be true or false")


def _auto_flag(value: object) -> bool | None:
    return None if value is None or str(value).lower() == "auto" else _flag(value)


_UNITS = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3, "kb": 1000, "mb": 1000**2, "gb": 1000**3}


def _bytes(value: object) -> int:
    """A number of bytes: 1048576, "64MiB", "1.5 GiB", "200MB"."""
    text = str(value).strip().lower()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip()
    try:
        size = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        size = -1
    if isinstance(value, bool) or not 0 <= size < 2**63:
        raise ValueError('must be a number of bytes, such as 1048576 or "64MiB"')
    return size


def _one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        word = str(value).lower()
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return word

    return parse


def _protocols(value: object) -> tuple[str, ...]:
    names = _names(value)
    unknown = [name for name in names if name not in PROTOCOLS]
    if unknown:
        raise ValueError(f"must be of {', '.join(PROTOCOLS)}, not {unknown[0]!r:.40}")
    if "sieve" not in names:
        raise ValueError("must have sieve, the protocol of SieveMQ's own client")
    return names


def _body_bytes(value: object) -> int:
    size = _bytes(value)
    if not 1 <= size <= MAX_BODY_BYTES:
        raise ValueError(f"must be from 1 to {MAX_BODY_BYTES} bytes")
    return size


def _auto_bytes(value: object) -> int | None:
    return None if value is None or str(value).lower() == "auto" else _bytes(value)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a broker. Each is an option of ``sievemq broker`` as well, whose help is its meaning."""

    host: str = _setting("127.0.0.1", "address of the wire port", _text)
    port: int = _setting(_PORT, "wire port; 0 for a free one", _whole(0, 65_535))
    protocols: tuple[str, ...] = _setting(
        tuple(PROTOCOLS),
        f"protocols of the wire port, told apart by their first bytes: {', '.join(PROTOCOLS)}",
        _protocols,
    )
    amqp_port: int | None = _setting(None, "a further port, for AMQP alone; 0 for a free one", _optional_port)
    stomp_port: int | None = _setting(None, "a further port, for STOMP alone; 0 for a free one", _optional_port)
    http: bool = _setting(True, "serve health, metrics, API and console over HTTP", _flag)
    http_host: str | None = _setting(None, "address of the HTTP port; host if not given", _optional_text)
    http_port: int = _setting(7680, "HTTP port; 0 for a free one", _whole(0, 65_535))
    users: Mapping[str, User] = _setting({}, "name:password of each user; none: anonymous", parse_users, secret=True)
    users_file: str | None = _setting(
        None, "file with the users, read again when it changes; `sievemq user` writes it", _optional_text
    )
    http_hosts: tuple[str, ...] = _setting(
        (), "further names under which browsers may ask for the HTTP port, such as mq.example.com", _names
    )
    http_origins: tuple[str, ...] = _setting(
        (), "origins whose pages may connect by WebSocket, such as https://shop.example.com; * for any", _names
    )
    session_seconds: float = _setting(1_800, "a browser's session ends after so long without a request", _seconds)
    insecure: bool = _setting(False, "allow anonymous access from other machines", _flag)
    tls_cert: str | None = _setting(None, "PEM certificate chain; the wire port then speaks TLS", _optional_text)
    tls_key: str | None = _setting(None, "PEM file of the certificate's key, if not in tls_cert", _optional_text)
    tls_client_ca: str | None = _setting(
        None,
        "PEM file of the CA that client certificates must come from; none for no client certificates",
        _optional_text,
    )
    tls_client_users: bool = _setting(
        False, "on the wire ports a client certificate signs in the user of its common name, without a password", _flag
    )
    data_dir: str | None = _setting(
        None, "directory to keep PERSISTENT messages in; none, and no store: in memory only", _optional_text
    )
    store: str | None = _setting(
        None,
        "PostgreSQL database to keep PERSISTENT messages in, instead of data_dir: postgresql://user@host/name. "
        "A second broker with the same takes over from the first one. Passwords belong into PGPASSWORD or ~/.pgpass",
        _store,
        secret=True,
    )
    shard: str = _setting(
        "main",
        "name of this broker's messages, in the store and on Spark; with shards, the one that it looks at first",
        _shard,
    )
    shards: tuple[str, ...] = _setting(
        (), "names of all shards in the store, the same for each broker: it follows them, and takes one", _shards
    )
    advertise: str | None = _setting(
        None, "URL of this broker for clients, which the others show; that of its wire port if not given", _client_url
    )
    advertise_http: str | None = _setting(
        None,
        "URL of this broker's HTTP port for people and commands; with the host of advertise if not given",
        _http_url,
    )
    peers: tuple[str, ...] = _setting(
        (), "host:port of all brokers of the shard; connected clients learn them and try them after a loss", _peers
    )
    beat_seconds: float = _setting(0.5, "how often the owner of a shard shows that it lives", _seconds)
    lease_seconds: float = _setting(5, "another broker takes a shard whose owner was silent for so long", _seconds)
    store_patience: float = _setting(
        300, "an owner that cannot reach the store keeps its connections for so long", _seconds
    )
    on_full_disk: str = _setting(
        FAIL,
        f"PERSISTENT sends while the disk is full: {FAIL}: refused; {BLOCK}: they wait for room",
        _one_of(FAIL, BLOCK),
    )
    attention: Thresholds = _setting(  # noqa: RUF009  frozen
        Thresholds(), "when something needs an operator's attention: a table of thresholds", parse_thresholds
    )
    log_level: str = _setting("info", f"lowest level to log: {', '.join(LEVELS)}", _one_of(*LEVELS))
    json_logs: bool | None = _setting(None, "log JSON lines; auto: unless the output is a terminal", _auto_flag)
    destinations: Mapping[str, DestinationPolicy] = _setting(
        {}, "rules by pattern, such as queue:orders.*; the first that fits applies", parse_policies
    )
    namespaces: Mapping[str, NamespacePolicy] = _setting(
        {}, "limits of namespaces by pattern; the first that fits applies", parse_namespaces
    )
    definitions: Definitions | None = _setting(  # noqa: RUF009  frozen
        None,
        "TOML file with queues, topics, subscriptions, rules and users that are to exist",
        definitions_of,
        secret=True,
    )
    auto_create: bool = _setting(True, "make queues and topics when they are first named", _flag)
    dialect: str = _setting("jakarta", "selector dialect of consumers that name none", _one_of(*DIALECTS))
    max_body_bytes: int = _setting(MAX_BODY_BYTES, "largest body accepted", _body_bytes)
    max_memory_bytes: int | None = _setting(
        None, "memory of all messages at which producers wait; auto: 60 % of what there is; 0: no limit", _auto_bytes
    )
    heartbeat_seconds: float = _setting(
        HEARTBEAT_MS / 1000, "a client that is silent twice as long is gone; 0: never", _seconds
    )
    max_connections: int = _setting(10_000, "connections at a time; one more is refused", _whole(1, 1_000_000))
    handshake_seconds: float = _setting(
        HANDSHAKE_TIMEOUT_MS / 1000, "time a client may take for TLS and its first command", _seconds
    )
    frame_seconds: float = _setting(
        FRAME_TIMEOUT_MS / 1000, "time in which a frame must be complete that a client has begun; 0: any", _seconds
    )
    busy_poll: int = _setting(
        0,
        "microseconds that the broker polls for input before it blocks; 0: never",
        _whole(0, MAX_BUSY_POLL_US),
    )
    drain_seconds: float = _setting(5.0, "at the end, time that clients get to finish", _seconds)
    otlp: str | None = _setting(
        None,
        "URL of an OpenTelemetry collector that gets the broker's metrics, such as http://localhost:4318",
        _collector,
    )
    otlp_traces: bool = _setting(False, "it also gets spans of messages that carry a sampled trace", _flag)
    test_control: bool = _setting(
        False, "for tests: the API moves the clock, makes faults and shows the journal (/api/v1/test)", _flag
    )
    test_control_exposed: bool = _setting(
        False, "allow test control also with users, or where other machines reach the broker", _flag
    )

    @property
    def own_ports(self) -> dict[str, int]:
        """Ports that only one protocol has, by the protocol."""
        ports = {name: getattr(self, f"{name}_port", None) for name in PROTOCOLS}
        return {name: port for name, port in ports.items() if port is not None}

    def domain(self) -> DomainSettings:
        return DomainSettings(
            policies=tuple(self.destinations.items()),
            auto_create=self.auto_create,
            namespaces=tuple(self.namespaces.items()),
            on_full_disk=self.on_full_disk,
        )

    @property
    def candidates(self) -> tuple[str, ...]:
        """The shards of which the broker takes one, in the order in which it looks at them."""
        return tuple(sorted(self.shards or (self.shard,), key=lambda name: name != self.shard))

    @property
    def secured(self) -> bool:
        return bool(self.users) or self.users_file is not None

    @property
    def http_address(self) -> str:
        return self.http_host or self.host

    @property
    def shown_store(self) -> str | None:
        """The store, as it may be shown: without a password."""
        return None if self.store is None else without_password(self.store)


def shown(settings: Settings, name: str) -> object:
    """A setting as it may be shown: without secrets, and of tables only what was set."""
    value = getattr(settings, name)
    if name == "store":
        return settings.shown_store
    if name == "otlp":
        return None if value is None else without_password(value)
    if name == "users":
        return dict.fromkeys(value, "***")
    if name in ("destinations", "namespaces"):
        return {pattern: rules_of(policy) for pattern, policy in value.items()}
    if name == "attention":
        return changed_thresholds(value)
    if name == "definitions":
        return None if value is None else value.origin
    return value


_FIELDS = {f.name: f for f in fields(Settings)}
_ENV_PREFIX = "SIEVEMQ_"
_CONFIG_ENV = "SIEVEMQ_CONFIG"


def env_name(name: str) -> str:
    return _ENV_PREFIX + name.upper()


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and, by name, the origin of each: "default", "file …", "environment …", "command line"."""

    settings: Settings
    origins: Mapping[str, str]


def load(
    given: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | str | None = None,
    *,
    given_by: str = "command line",
) -> Loaded:
    """Gather settings from all their sources and check them.

    Args:
        given: from the command line or an embedding program, before all other sources; None where not given.
        environ: the environment.
        config: the TOML file; ``SIEVEMQ_CONFIG`` names it if this is None.
        given_by: the source of `given`, for errors.

    Raises:
        ConfigError: something is wrong, with every source named.
    """
    environ = environ or {}
    values: dict[str, Any] = {}
    origins = dict.fromkeys(_FIELDS, "default")
    config = config or environ.get(_CONFIG_ENV) or None
    if config is not None:
        for name, value in _read_file(Path(config)).items():
            values[name] = parse_setting(name, value, origin := f"file {config}")
            origins[name] = origin
    for name, (value, variable) in _read_environment(environ).items():
        values[name] = parse_setting(name, value, origin := f"environment {variable}")
        origins[name] = origin
    for name, value in (given or {}).items():
        if name not in _FIELDS:
            raise ConfigError(f"{name} ({given_by}) is not a setting{guess(name, _FIELDS)}")
        if value is not None:
            values[name] = parse_setting(name, value, given_by)
            origins[name] = given_by
    _use_definitions(values, origins)
    settings = replace(Settings(), **values)
    check(settings)
    return Loaded(settings, origins)


def _use_definitions(values: dict[str, Any], origins: dict[str, str]) -> None:
    """Take the settings that definitions have in them."""
    definitions: Definitions | None = values.get("definitions")
    if definitions is None:
        return
    try:
        definitions.compile(values.get("dialect", _FIELDS["dialect"].default))
    except ValueError as error:
        raise ConfigError(f"definitions ({origins['definitions']}) {error}") from None
    for name, part in definitions.settings.items():
        if part is None:
            continue
        if values.get(name):
            raise ConfigError(
                f"{name} are set twice, by {origins[name]} and by {definitions.origin}; remove one of them"
            )
        values[name] = part
        origins[name] = f"definitions {definitions.origin}"


def check(settings: Settings) -> None:
    """Check what concerns more than one setting.

    Raises:
        ConfigError: they cannot be used together.
    """
    if settings.data_dir is not None and Path(settings.data_dir).exists() and not Path(settings.data_dir).is_dir():
        raise ConfigError(
            f"data_dir: {settings.data_dir} is a file; name a directory, which is created if it does not exist"
        )
    _check_store(settings)
    if not 0 < settings.beat_seconds <= settings.lease_seconds / _MIN_BEATS:
        raise ConfigError(
            f"beat_seconds must be above 0, and lease_seconds at least {_MIN_BEATS} times as long: a lease ends only "
            "after several beats that did not arrive"
        )
    if 0 < settings.heartbeat_seconds < MIN_HEARTBEAT_MS / 1000:
        raise ConfigError(f"heartbeat_seconds must be 0 or at least {MIN_HEARTBEAT_MS / 1000}")
    for name, (needed, reason) in _NEEDS.items():
        if getattr(settings, name) and getattr(settings, needed) is None:
            raise ConfigError(f"{name} needs {needed}: {reason}")
    try:
        Users(settings.users)
    except ValueError as error:
        raise ConfigError(f"users: {error}") from None
    if settings.test_control:
        _check_test_control(settings)
    if settings.users_file is not None:
        if settings.users:
            raise ConfigError("users and users_file are both set; remove one of them")
        try:
            read_users(Path(settings.users_file))
        except ValueError as error:
            raise ConfigError(f"users_file: {error}") from None
    if not settings.secured and not settings.insecure:
        open_to = [
            h for h in (settings.host, settings.http_address if settings.http else "") if h and not is_loopback(h)
        ]
        if open_to:
            raise ConfigError(
                f"the broker would listen on {open_to[0]}, which other machines can reach, and accept every client. "
                "Name users (--users-file, --user name:password, [users] in the file), stay on 127.0.0.1, or "
                "set --insecure (SIEVEMQ_INSECURE=1) if that is intended"
            )


def _check_store(settings: Settings) -> None:
    """Check what concerns a store, and the shards in it."""
    if settings.store is not None and settings.data_dir is not None:
        raise ConfigError("data_dir and store are both set; remove one of them")
    if settings.store is None and settings.peers:
        raise ConfigError("peers needs store: brokers without a shared store have other messages")
    if settings.store is None and settings.shards:
        raise ConfigError("shards needs store: shards are parts of a database that brokers share")
    if settings.shards and settings.shard not in (_FIELDS["shard"].default, *settings.shards):
        raise ConfigError(f"shard must be one of shards, which are {', '.join(settings.shards)}, not {settings.shard}")


def _check_test_control(settings: Settings) -> None:
    """Who reaches test control stops the clock and cuts connections for everybody."""
    if not settings.http:
        raise ConfigError("test_control needs http: it is a part of the management API")
    if settings.store is not None:
        raise ConfigError("test_control and store are both set; a broker of a shared shard cannot have its own time")
    if settings.test_control_exposed:
        return
    # Names of http_hosts are those of a proxy in front.
    hosts = (settings.host, settings.http_address, *settings.http_hosts)
    reached = next((host for host in hosts if not is_loopback(host)), None)
    reason = "there are users" if settings.secured else f"other machines can reach {reached}" if reached else ""
    if reason:
        raise ConfigError(
            f"test_control lets every caller stop the clock and cut connections, and {reason}: this looks like a "
            "broker that others work with. Remove it, or set --test-control-exposed (SIEVEMQ_TEST_CONTROL_EXPOSED=1) "
            "if this broker is there for tests alone, as in a container"
        )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_setting(name: str, value: object, origin: str) -> Any:
    """The value of a setting.

    Args:
        value: text, or a TOML value.
        origin: where it was set, for errors.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        return _FIELDS[name].metadata["parse"](value)
    except ValueError as error:
        shown = "" if _FIELDS[name].metadata["secret"] or isinstance(value, Mapping) else f", not {value!r}"
        raise ConfigError(f"{name} ({origin}) {error}{shown}") from None


def _read_file(path: Path) -> dict[str, object]:
    try:
        content = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"the configuration file {path} is not TOML: {error}") from error
    for name in content:
        if name not in _FIELDS:
            raise ConfigError(f"{name} in {path} is not a setting{guess(name, _FIELDS)}")
    return content


# Kubernetes gives every container of a namespace with a service named "sievemq" variables of these forms.
_FOREIGN_PREFIXES = ("SIEVEMQ_SERVICE_", "SIEVEMQ_PORT_")

# What the commands of clients read, such as `sievemq send`: a broker may be started in the same shell.
_OF_CLIENTS = (
    "SIEVEMQ_URL",
    "SIEVEMQ_HTTP_URL",
    "SIEVEMQ_NAMESPACE",
    "SIEVEMQ_USER",
    "SIEVEMQ_PASSWORD",
    "SIEVEMQ_CONTEXT",
)


def _read_environment(environ: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    found: dict[str, tuple[object, str]] = {}
    known = {env_name(name): name for name in _FIELDS}
    for variable, value in environ.items():
        if not variable.startswith(_ENV_PREFIX) or variable.startswith(_FOREIGN_PREFIXES):
            continue
        if variable in _OF_CLIENTS and ":" not in (value if variable == "SIEVEMQ_USER" else ""):
            continue  # with a colon it is name:password, and SIEVEMQ_USERS was meant
        name = known.get(variable)
        if name is not None:
            if name == "port" and value.startswith("tcp://"):  # Kubernetes again
                continue
            if value:
                found[name] = (value, variable)
        elif near := guess(variable, [*known, _CONFIG_ENV]) if variable != _CONFIG_ENV else "":
            raise ConfigError(f"the environment variable {variable} is not a setting{near}")
    return found

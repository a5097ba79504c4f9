"""The URL of a broker and its options.

    sievemq://[user[:password]@]host[:port][,host[:port]…][/namespace][?option=value[&option=value…]]

``sievemqs://`` is the same over TLS. The port is 7672 if not given; IPv6 addresses need brackets; user, password,
namespace and values may be percent-encoded and must be where they hold one of ``:/?#[]@,&%``. Several hosts are tried
in order of preference, and the first that welcomes the client is taken. :class:`ClientOptions` lists the options.

>>> url = parse_url("sievemq://me:s%40cret@localhost,[::1]:7700/tests?prefetch=10")
>>> url.hosts, url.namespace, url.password, url.options.prefetch
((('localhost', 7672), ('::1', 7700)), 'tests', 's@cret', 10)
>>> url
BrokerURL('sievemq://me:***@localhost:7672,[::1]:7700/tests?prefetch=10')
>>> parse_url("sievemq://localhost?prefech=10")
Traceback (most recent call last):
sievemq.exceptions.InvalidURLException: there is no option 'prefech'; did you mean 'prefetch'?
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict, Unpack
from urllib.parse import quote, unquote

from sievemq.exceptions import InvalidURLException
from sievemq_core.durations import MILLISECOND, Milliseconds, in_units
from sievemq_core.limits import (
    HEARTBEAT_MS,
    MAX_BUSY_POLL_US,
    MAX_CREDIT,
    MAX_IDENTIFIER_CHARS,
    MIN_HEARTBEAT_MS,
)
from sievemq_core.selector.dialect import DIALECTS

DEFAULT_PORT: Final = 7672

#: Milliseconds of the longest pause between two attempts to reach a broker: at one host, and at several.
LONGEST_PAUSE: Final = 2_000
LONGEST_PAUSE_OF_SEVERAL: Final = 500

_SCHEMES: Final = {"sievemq": False, "sievemqs": True}
_DAY_MS: Final = 24 * 60 * 60 * 1000
_FOREVER: Final = "forever"


@dataclass(frozen=True, slots=True)
class _Kind:
    """The values that an option may have: words, whole numbers, texts.

    Attributes:
        wanted: these values in words, for errors and documents.
        words: text in a URL -> the value.
        numbers: besides the words.
        length: of a text at most; 0 where no other text is a value.
        unit: of a length of time, which may also be a timedelta.
    """

    wanted: str
    words: Mapping[str, Any] = field(default_factory=dict)
    numbers: range = range(0)
    length: int = 0
    unit: timedelta | None = None

    def read(self, text: str) -> Any:
        """The value of a text in a URL; the text itself where it is none."""
        if text in self.words:
            return self.words[text]
        return int(text) if self.numbers and re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else text

    def allows(self, value: object) -> bool:
        if isinstance(value, int) and not isinstance(value, bool) and value in self.numbers:
            return True
        if isinstance(value, str) and 0 < len(value) <= self.length:
            return True
        return any(type(value) is type(word) and value == word for word in self.words.values())


def _time(least: int, most: int, zero: str = "", unit: timedelta = MILLISECOND) -> _Kind:
    wanted = f"{'milli' if unit == MILLISECOND else 'micro'}seconds from {least} to {most}"
    if zero:
        wanted += f", or 0 for {zero}"
    return _Kind(wanted, {"0": 0} if zero else {}, range(least, most + 1), unit=unit)


def _choice(*choices: str) -> _Kind:
    return _Kind(f"one of {', '.join(choices)}", {choice: choice for choice in choices})


def _text(most: int) -> _Kind:
    return _Kind(f"text of 1 to {most} characters", length=most)


_PREFETCH: Final = _Kind(f"auto or 0 to {MAX_CREDIT}", {"auto": None}, range(MAX_CREDIT + 1))
_RECONNECT: Final = _Kind(
    f"milliseconds from 1 to {_DAY_MS}, 0 for never, or {_FOREVER}",
    {_FOREVER: _FOREVER},
    range(_DAY_MS + 1),
    unit=MILLISECOND,
)
_BOOLEAN: Final = _Kind("true or false", {"true": True, "false": False})


def _option(default: Any, kind: _Kind, reason: str) -> Any:
    return field(default=default, metadata={"kind": kind, "reason": reason})


class Options(TypedDict, total=False):
    """The options as keywords; :class:`ClientOptions` describes each."""

    client_id: str | None
    application: str | None
    send_confirm: Literal["auto", "always", "never"]
    selector_dialect: Literal["jakarta", "ibm-mq", "mqe", "amqp"] | None
    prefetch: int | Literal["auto"] | None
    heartbeat: Milliseconds
    connect_timeout: Milliseconds
    reconnect: Milliseconds | Literal["forever"]
    reconnect_delay: Milliseconds
    reconnect_max_delay: Milliseconds
    request_timeout: Milliseconds
    send_timeout: Milliseconds
    close_timeout: Milliseconds
    busy_poll: int | timedelta
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_server_name: str | None
    tls_verify: bool


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of a client, in the URL or as keywords of a ConnectionFactory. Times are in milliseconds, `busy_poll` in
    microseconds; as keywords also timedeltas.

    Raises:
        InvalidURLException: (a ValueError) a value that the option cannot have.
    """

    client_id: str | None = _option(
        None, _text(MAX_IDENTIFIER_CHARS), "administered client id of every connection (FAC-07); none by default"
    )
    application: str | None = _option(
        None, _text(MAX_IDENTIFIER_CHARS), "name of the application, shown to operators of the broker"
    )
    send_confirm: Literal["auto", "always", "never"] = _option(
        "auto",
        _choice("auto", "always", "never"),
        "which synchronous sends wait for the broker's confirm; auto: the PERSISTENT ones outside transactions (D-24)",
    )
    selector_dialect: str | None = _option(
        None, _choice(*DIALECTS), "selector language of consumers and browsers; the broker's by default"
    )
    prefetch: int | None = _option(
        None,
        _PREFETCH,
        "messages that a consumer holds ahead of the application; auto adapts it to the traffic (D-23)",
    )
    heartbeat: int = _option(
        HEARTBEAT_MS,
        _time(MIN_HEARTBEAT_MS, _DAY_MS, "never"),
        "interval in which the broker sends at least a heartbeat; after two silent intervals the connection is lost",
    )
    connect_timeout: int = _option(
        10_000,
        _time(1, _DAY_MS),
        "longest time for one round over the hosts: for connecting to one and for its WELCOME",
    )
    reconnect: int | Literal["forever"] = _option(
        5_000,
        _RECONNECT,
        "how long the client tries to reach a broker, at first and after a lost connection (D-32). 5 s suit a script, "
        "a test and a command; a service sets forever",
    )
    reconnect_delay: int = _option(
        50,
        _time(1, _DAY_MS),
        "pause before the second attempt to reach a broker. The first is made immediately; each further pause is twice "
        "as long. Half of each pause is random, so that many clients do not return at the same moment",
    )
    reconnect_max_delay: int | None = _option(
        None,
        _time(1, _DAY_MS),
        f"longest pause between two attempts: {LONGEST_PAUSE} by default, {LONGEST_PAUSE_OF_SEVERAL} if the URL names "
        "several hosts",
    )
    request_timeout: int = _option(
        60_000,
        _time(1, _DAY_MS, "no limit"),
        "longest time for the broker's answer to a request",
    )
    send_timeout: int = _option(
        0,
        _time(1, _DAY_MS, "no limit"),
        "longest time that a send or a commit waits for room at an operator's limit, or for the repair of a lost "
        "connection; then the client cancels it",
    )
    close_timeout: int = _option(
        5_000,
        _time(1, _DAY_MS),
        "longest time that closing or stopping waits for the broker and for calls of other threads that wait for the "
        "broker. What was not confirmed by then is given up, and reported; on a lost connection closing does not wait",
    )
    busy_poll: int = _option(
        0,
        _time(1, MAX_BUSY_POLL_US, "never", timedelta(microseconds=1)),
        "how long a caller polls for an answer before it blocks. Polling saves the time that a sleeping processor "
        "takes to wake, and keeps a processor busy meanwhile",
    )
    tls_ca: str | None = _option(
        None, _text(4096), "file with the certificates to trust; the system's by default; sievemqs only"
    )
    tls_cert: str | None = _option(None, _text(4096), "file with this client's certificate; sievemqs only")
    tls_key: str | None = _option(
        None, _text(4096), "file with its private key, if not in the same file; sievemqs only"
    )
    tls_server_name: str | None = _option(
        None, _text(255), "name that the broker's certificate must have; the host by default; sievemqs only"
    )
    tls_verify: bool = _option(
        True, _BOOLEAN, "check the broker's certificate; false only against a test broker; sievemqs only"
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            kind: _Kind = option.metadata["kind"]
            if value == "auto" and kind is _PREFETCH:
                object.__setattr__(self, option.name, value := None)
            elif kind.unit is not None and isinstance(value, timedelta):
                object.__setattr__(self, option.name, value := in_units(value, kind.unit))
            if not (value is None and option.default is None) and not kind.allows(value):
                raise _bad_value(option.name, value, "a timedelta, or " * (kind.unit is not None) + kind.wanted)

    def replace(self, **options: Unpack[Options]) -> ClientOptions:
        """These options with some replaced.

        Raises:
            InvalidURLException: an option that does not exist, or a value that it cannot have.
        """
        for name in options:
            _find(name)
        return replace(self, **options)  # type: ignore[arg-type]  # timedeltas become ints


_OPTIONS: Final = {option.name: option for option in fields(ClientOptions)}


def _find(name: str) -> Any:
    option = _OPTIONS.get(name)
    if option is None:
        near = get_close_matches(name, _OPTIONS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_OPTIONS)}"
        raise InvalidURLException(f"there is no option {name!r:.60}; {hint}")
    return option


def _bad_value(name: str, value: object, wanted: str) -> InvalidURLException:
    return InvalidURLException(f"the option {name} must be {wanted}, not {value!r:.60}")


#: What ends a host, or has a meaning in one.
_ESCAPED: Final = str.maketrans({character: quote(character, safe="") for character in "%,@?#[]"})


@dataclass(frozen=True, slots=True, repr=False)
class BrokerURL:
    """The address and the options of a broker; :func:`parse_url` creates one. Its text never shows the password.

    Raises:
        InvalidURLException: options of TLS for a connection without.

    Attributes:
        hosts: pairs of host and port, in order of preference.
        secure: TLS.
        user: None for anonymous.
        password: in clear.
        namespace: where destinations live; empty for the broker's default.
        options: what else was chosen.
    """

    hosts: tuple[tuple[str, int], ...]
    secure: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    namespace: str = ""
    options: ClientOptions = ClientOptions()

    def __post_init__(self) -> None:
        if self.secure:
            return
        for name, option in _OPTIONS.items():
            if name.startswith("tls_") and getattr(self.options, name) != option.default:
                raise InvalidURLException(f"{name} is an option of sievemqs://; sievemq:// connects without TLS")

    def __str__(self) -> str:
        text = "sievemqs://" if self.secure else "sievemq://"
        if self.user is not None:
            text += _quote(self.user) + (":***" if self.password is not None else "") + "@"
        text += ",".join(
            f"[{host.translate(_ESCAPED)}]:{port}" if ":" in host else f"{host.translate(_ESCAPED)}:{port}"
            for host, port in self.hosts
        )
        if self.namespace:
            text += "/" + _quote(self.namespace)
        chosen = [
            f"{name}={_quote(_as_text(value))}"
            for name, option in _OPTIONS.items()
            if (value := getattr(self.options, name)) != option.default
        ]
        return f"{text}?{'&'.join(chosen)}" if chosen else text

    def __repr__(self) -> str:
        return f"BrokerURL({str(self)!r})"


def parse_url(text: str, **options: Unpack[Options]) -> BrokerURL:
    """Read the URL of a broker.

    Args:
        text: as the module's docstring shows.

    Raises:
        InvalidURLException: (a ValueError) names the wrong part and the values allowed.
    """
    if not isinstance(text, str):
        raise InvalidURLException(f"a URL is text, not {type(text).__name__}")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        raise InvalidURLException(
            "the URL of a broker begins with sievemq:// or sievemqs://, such as sievemq://localhost:7672"
        )
    head, _, query = rest.partition("?")
    authority, _, path = head.partition("/")
    if "#" in rest or "@" in path or "@" in query:
        # raised before anything is parsed: an error about what seems to be a port must not show half a password
        raise InvalidURLException(
            "one of the characters / ? # @ stands where it cannot; inside user name, password, namespace and options "
            "write %2F %3F %23 %40"
        )
    user_info, at, hosts = authority.rpartition("@")
    user, colon, password = user_info.partition(":")
    return BrokerURL(
        hosts=tuple(host_of(part) for part in hosts.split(",")),
        secure=_SCHEMES[scheme.lower()],
        user=_unquote("user name", user) if at else None,
        password=_unquote("password", password) if colon else None,
        namespace=_namespace(path),
        options=_read_options(query).replace(**options),
    )


def url_of_environment() -> BrokerURL:
    """The default URL of a broker: the one in ``SIEVEMQ_URL``, or of this machine.

    Raises:
        InvalidURLException: what ``SIEVEMQ_URL`` holds is none.
    """
    text = os.environ.get("SIEVEMQ_URL")
    if not text:
        return BrokerURL((("localhost", DEFAULT_PORT),))
    try:
        return parse_url(text)
    except InvalidURLException as error:
        raise InvalidURLException(f"SIEVEMQ_URL: {error}") from None


def host_of(part: str) -> tuple[str, int]:
    """Host and port of a URL's ``host:port``.

    Raises:
        InvalidURLException: it is none.
    """
    match = re.fullmatch(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[^:\[\]]*))(?::(?P<port>[^:\[\]]*))?", part)
    if match is None:
        hint = "; write an IPv6 address in brackets, such as [::1]:7672" if part.count(":") > 1 else ""
        raise InvalidURLException(f"{part!r:.80} is not a host and port{hint}")
    host = _unquote("host", match["six"] or match["host"])
    if not host:
        raise InvalidURLException("the URL of a broker names a host, such as sievemq://localhost:7672")
    if not host.isprintable() or any(c.isspace() or c in '/\\<>"' for c in host):
        raise InvalidURLException(f"{host!r:.80} is not the name of a host")
    port = match["port"]
    if port is None:
        return host, DEFAULT_PORT
    if not re.fullmatch("[0-9]{1,5}", port, re.ASCII) or not 1 <= int(port) <= 65_535:
        raise InvalidURLException(f"the port of {host!r} must be 1 to 65535, not {port!r:.20}")
    return host, int(port)


def address_of(url: object) -> tuple[bool, tuple[str, int]]:
    """Whether a URL wants TLS, and its first host and port; nothing else in it counts.

    Raises:
        InvalidURLException: it is none.
    """
    parsed = parse_url(url) if isinstance(url, str) else None
    if parsed is None:
        raise InvalidURLException("that is not the URL of a broker")
    return parsed.secure, parsed.hosts[0]


def _namespace(path: str) -> str:
    if "/" in path.rstrip("/"):
        raise InvalidURLException(f"a namespace is one name, not {path!r:.80}; write %2F for a '/' in it")
    namespace = _unquote("namespace", path.rstrip("/"))
    if len(namespace) > MAX_IDENTIFIER_CHARS:
        raise InvalidURLException(f"a namespace may have {MAX_IDENTIFIER_CHARS} characters, not {len(namespace)}")
    return namespace


def _read_options(query: str) -> ClientOptions:
    values: dict[str, Any] = {}
    for pair in query.split("&") if query else ():
        name, equals, text = pair.partition("=")
        name = _unquote("name of an option", name)
        kind: _Kind = _find(name).metadata["kind"]
        if not equals:
            raise InvalidURLException(f"the option {name} has no value; write {name}=…, {kind.wanted}")
        if name in values:
            raise InvalidURLException(f"the option {name} is given twice")
        values[name] = kind.read(_unquote(f"option {name}", text))
    return ClientOptions(**values)


def _unquote(part: str, text: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        # never the text itself: it may be a password
        raise InvalidURLException(f"the {part} has a '%' that two hexadecimal digits do not follow; write %25 for it")
    try:
        found = unquote(text, errors="strict")
        found.encode()
    except UnicodeDecodeError:
        raise InvalidURLException(f"the {part} is not UTF-8 when its %XX are decoded") from None
    except UnicodeEncodeError:  # bytes of a command line that are no text
        raise InvalidURLException(f"the {part} has a character that is half of one; URLs are UTF-8") from None
    return found


def _quote(text: str) -> str:
    return quote(text, safe="")


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_as_rows() -> list[dict[str, str]]:
    """The options for documents: name, default, allowed values, purpose."""
    return [
        {
            "name": name,
            "default": _as_text(option.default) if option.default is not None else "auto" * (name == "prefetch"),
            "wanted": option.metadata["kind"].wanted,
            "reason": option.metadata["reason"],
        }
        for name, option in _OPTIONS.items()
    ]

"""What people and files say: URLs, addresses, configuration."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sievemq.exceptions import InvalidURLException
from sievemq.url import parse_url
from sievemq_broker.config import ConfigError, load
from sievemq_core.errors import AddressError
from sievemq_core.message.destination import parse_address

URLS = (
    "sievemq://localhost",
    "sievemqs://me:s%40cret@[::1]:7700,host2:1/tests?prefetch=10&reconnect=0&selector_dialect=mqe",
    "sievemq://localhost?send_confirm=never&heartbeat=0&client_id=%F0%9F%98%80",
)
ADDRESSES = ("queue:orders", "topic:a.b", "temporary-queue:c1.1", "orders", "topic:a*")
FILES = (
    'port = 7672\nhost = "127.0.0.1"\nmemory_limit = "64MiB"\n[destinations."queue:*"]\nmax_messages = 5\n',
    '[users]\nann = "secret"\n[namespaces."team-*"]\nmax_connections = 3\n',
    "log_level = 'info'\nheartbeat_seconds = 15\nhttp = true\n",
)
ENVIRONMENTS = ("SIEVEMQ_PORT=7\nSIEVEMQ_LOG_LEVEL=debug", 'SIEVEMQ_DESTINATIONS={"queue:*": {"max_messages": 1}}')


def seeds() -> Iterator[bytes]:
    for number, texts in enumerate((URLS, ADDRESSES, FILES, ENVIRONMENTS)):
        for text in texts:
            yield bytes([number]) + text.encode()


def run(data: bytes) -> None:
    """The first byte says what the rest is."""
    if not data:
        return
    what, text = data[0] % 4, data[1:].decode("utf-8", "surrogateescape")
    if what == 0:
        _url(text)
    elif what == 1:
        _address(text)
    elif what == 2:
        _file(data[1:])
    else:
        lines = [line.partition("=") for line in text.split("\n")]
        _configured(environ={name: value for name, _, value in lines if name != "SIEVEMQ_CONFIG"})


def _url(text: str) -> None:
    try:
        url = parse_url(text)
    except InvalidURLException as error:
        assert len(str(error)) < 2_000
        return
    assert url.hosts
    for host, port in url.hosts:
        assert host
        assert 0 < port < 65_536
    if url.password:
        assert f":{url.password}@" not in repr(url) or url.password == "***"


def _address(text: str) -> None:
    try:
        address = parse_address(text)
    except AddressError as error:
        assert len(str(error)) < 2_000
        return
    assert parse_address(str(address)) == address


@cache
def _place() -> Path:
    return Path(tempfile.mkdtemp(prefix="sievemq-fuzz-")) / "sievemq.toml"


def close() -> None:
    """Remove the file."""
    shutil.rmtree(_place().parent)
    _place.cache_clear()


def _file(content: bytes) -> None:
    _place().write_bytes(content)
    _configured(config=_place())


def _configured(**source: object) -> None:
    try:
        loaded = load(**source)  # type: ignore[arg-type]
    except ConfigError as error:
        assert str(error)
        return
    assert 0 <= loaded.settings.port < 65_536

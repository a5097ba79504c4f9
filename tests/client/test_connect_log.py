"""Errors of a client that reaches no broker: what is there instead, and what to write."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sievemq import ConnectionFactory, InvalidURLException, JMSRuntimeException, aio
from sievemq_broker import EmbeddedBroker
from sievemq_testing.faults import Faults

from .both import Api


@pytest.fixture(scope="module")
def managed() -> Iterator[EmbeddedBroker]:
    """A broker with a management port."""
    with EmbeddedBroker(http=True) as broker:
        yield broker


async def test_the_management_port_is_no_port_for_programs(api: Api, managed: EmbeddedBroker) -> None:
    assert managed.http_url is not None
    url = managed.http_url.replace("http://", "sievemq://").rstrip("/")
    with pytest.raises(JMSRuntimeException, match=r"what answers at 127\.0\.0\.1:\d+ does not speak SieveMQ"):
        await api.factory(url).create_context()


async def test_tls_to_a_port_without(api: Api, managed: EmbeddedBroker) -> None:
    url = managed.url.replace("sievemq://", "sievemqs://")
    with pytest.raises(JMSRuntimeException, match=r"no TLS is spoken there \(write sievemq://"):
        await api.factory(url, reconnect=0).create_context()


async def test_clear_text_to_a_tls_port(api: Api, certificates: Path) -> None:
    settings = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    with EmbeddedBroker(settings=settings) as broker:
        url = broker.url.replace("sievemqs://", "sievemq://")
        with pytest.raises(JMSRuntimeException, match=r"or it takes TLS, and its URL begins with sievemqs://"):
            await api.factory(url, reconnect=0).create_context()


@pytest.mark.parametrize("factory", [ConnectionFactory, aio.ConnectionFactory])
@pytest.mark.parametrize("url", [b"sievemq://localhost", 7672])
def test_a_url_is_text(factory: Any, url: object) -> None:
    with pytest.raises(InvalidURLException, match="a URL is text, not"):
        factory(url)


def test_a_lost_connection_is_logged_with_its_deadline(
    sievemq_url: str, sievemq_faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    with ConnectionFactory(sievemq_url, reconnect=59_000).create_connection() as connection:
        with caplog.at_level(logging.WARNING, "sievemq"):
            sievemq_faults.drop_connections()
            connection.create_session()  # waits until the connection is restored
        assert "trying to reconnect for up to 59000 ms (option reconnect)" in caplog.text

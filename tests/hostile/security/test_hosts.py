"""The Host header: DNS rebinding makes a browser believe that a broker on this machine is a page's own site."""

from __future__ import annotations

import pytest

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.http.hosts import Hosts, is_same_site

from .support import ask, basic, raw

FOREIGN = [
    "evil.example", "evil.example:7680", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1@evil.example",
    "evil.example#127.0.0.1", "[::1", "localhost:x", "a b", "127.1.evil.example.", "xn--bcher-kva.example",
]  # fmt: skip
OWN = ["127.0.0.1", "127.0.0.1:7680", "localhost", "LOCALHOST:1", "[::1]:7680", "sievemq", "sievemq:7680", "10.0.0.7",
       "broker.localhost"]  # fmt: skip


@pytest.mark.parametrize("host", FOREIGN)
def test_names_of_others(host: str) -> None:
    assert not Hosts([]).allow(host)


@pytest.mark.parametrize("host", OWN)
def test_names_that_other_sites_cannot_use(host: str) -> None:
    assert Hosts([]).allow(host)


def test_names_of_the_operator() -> None:
    hosts = Hosts(["mq.example.com", "Other.example"])
    assert hosts.allow("mq.example.com:443")
    assert hosts.allow("other.EXAMPLE.")
    assert not hosts.allow("evil.mq.example.com")
    assert Hosts(["*"]).allow("anything.example")


@pytest.mark.parametrize("path", ["/", "/livez", "/metrics", "/api/v1/broker", "/session"])
def test_foreign_name_is_answered_nothing(path: str) -> None:
    with EmbeddedBroker(http=True) as broker:
        for host in ("evil.example", "evil.example:7680"):
            answer = ask(broker, path, Host=host)
            assert (answer.status, answer.json["error"]) == (421, "MISDIRECTED")
            assert "http_hosts" in answer.json["text"]


def test_operator_names_reach_the_port() -> None:
    with EmbeddedBroker(http=True, settings={"http_hosts": "mq.example.com"}) as broker:
        assert ask(broker, "/api/v1/broker", Host="mq.example.com").status == 200
        assert ask(broker, "/api/v1/broker", Host="evil.example").status == 421


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/v1/broker HTTP/1.1\r\n\r\n",
        b"GET /api/v1/broker HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /api/v1/broker HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        b"GET http://evil.example/api/v1/broker HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ],
)
def test_none_two_and_folded_ones(broker: EmbeddedBroker, head: bytes) -> None:
    status = raw(broker, head).split(b" ", 2)[1]
    assert status in (b"400", b"421", b"401")


@pytest.mark.parametrize(
    ("host", "origin", "same"),
    [
        ("mq:7680", "http://mq:7680", True),
        ("mq.example", "https://mq.example", True),
        ("mq.example:443", "https://mq.example", True),
        ("MQ:7680", "http://mq:7680", True),
        ("mq:7680", "http://mq", False),
        ("mq:7680", "http://mq:7681", False),
        ("mq:7680", "null", False),
        ("mq:7680", "http://mq:x", False),
        ("mq:7680", None, True),
    ],
)
def test_origin_and_host(host: str, origin: str | None, same: bool) -> None:
    assert is_same_site(host, origin, None) is same


def test_forwarded_headers_are_not_believed(broker: EmbeddedBroker) -> None:
    answer = ask(
        broker, "/api/v1/broker", X_Forwarded_Host="evil.example", Forwarded="host=evil.example", **basic("admin")
    )
    assert answer.status == 200

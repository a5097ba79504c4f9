"""Tables that all users share, over the network: one user cannot use them up for the others."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from sievemq_broker import EmbeddedBroker

from .support import DEADLINE, basic

OpenStream = Callable[[str], http.client.HTTPResponse]


@pytest.fixture
def open_stream(broker: EmbeddedBroker) -> Iterator[OpenStream]:
    """Open the stream of events as a user."""
    with ExitStack() as stack:

        def open_as(user: str) -> http.client.HTTPResponse:
            parts = urlsplit(broker.http_url)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
            stack.callback(connection.close)
            connection.request("GET", "/api/v1/events", headers=basic(user))
            return stack.enter_context(connection.getresponse())

        yield open_as


def test_one_user_cannot_take_all_event_streams(open_stream: OpenStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.server.http.api.hub.MAX_LISTENERS", 4)
    streams = [open_stream("anna") for _ in range(4)]
    assert {stream.status for stream in streams} == {200}
    assert open_stream("anna").status == 429
    assert [open_stream("admin").status for _ in range(3)] == [200, 200, 429]
    for stream in streams[:2]:
        while stream.readline():  # the oldest of the user with the most are ended
            pass
    assert all(stream.readline() for stream in streams[2:])

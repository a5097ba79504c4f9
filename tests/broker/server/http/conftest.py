"""The API as a program sees it: requests through a real socket, messages by the real client."""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from sievemq import ConnectionFactory, JMSContext
from sievemq_broker import EmbeddedBroker

DEADLINE = 60.0


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.content = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> str:
        """The name of the error; the form is checked on the way."""
        body = self.json
        assert set(body) == {"error", "text", "details"}
        assert body["text"]
        return str(body["error"])


class Api:
    """Requests to one broker, below one namespace unless the path begins with a slash."""

    def __init__(self, broker: EmbeddedBroker, namespace: str = "default", **headers: str) -> None:
        self.broker = broker
        self.namespace = namespace
        self.headers = headers

    def __call__(self, method: str, path: str, body: Any = None, /, **query: object) -> Answer:
        return self.raw(method, path, None if body is None else json.dumps(body).encode(), **query)

    def raw(
        self, method: str, path: str, body: bytes | None, /, content_type: str = "application/json", **query: object
    ) -> Answer:
        parts = urlsplit(self.broker.http_url)
        target = path if path.startswith("/") else f"/api/v1/namespaces/{quote(self.namespace, safe='')}/{path}"
        if query:
            target += "?" + urlencode(query)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=DEADLINE)
        headers = dict(self.headers) if body is None else {"Content-Type": content_type, **self.headers}
        try:
            connection.request(method, target, body, headers)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: Any = None, /, **query: object) -> Any:
        """The answer, which is a success."""
        answer = self(method, path, body, **query)
        assert answer.status in (200, 201), answer.content
        return answer.json

    def get(self, path: str, /, **query: object) -> Any:
        return self.ok("GET", path, **query)

    def act(self, address: str, action: str, /, **body: object) -> Any:
        """An action on a destination."""
        return self.ok("POST", f"{at(address)}/actions/{action}", body)

    def ids(self, address: str, /, **query: object) -> list[str]:
        """What waits there, by the property or text `n`, page by page."""
        found: list[str] = []
        cursor: dict[str, object] = {}
        while True:
            page = self.get(f"{at(address)}/messages", **query, **cursor)
            found += [str(row["properties"]["n"]["value"]) for row in page["messages"]]
            if page["next"] is None:
                return found
            cursor = {"cursor": page["next"]}


def at(address: str) -> str:
    """The path of a destination below its namespace."""
    return f"destinations/{quote(address, safe='')}"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        yield broker


_numbers = itertools.count()


@pytest.fixture
def api(broker: EmbeddedBroker) -> Api:
    """The API in a namespace of this test's own."""
    name = f"space {next(_numbers)}/ü"
    api = Api(broker, name)
    assert api("POST", "/api/v1/namespaces", {"name": name}).status == 201
    return api


@pytest.fixture
def context(api: Api) -> Iterator[JMSContext]:
    """A client in the same namespace."""
    with ConnectionFactory(f"{api.broker.url}/{quote(api.namespace, safe='')}").create_context() as context:
        yield context


def send(context: JMSContext, address: str, *numbers: int, **settings: Any) -> None:
    """Send messages with the property `n`."""
    kind, _, name = address.partition(":")
    destination = context.create_topic(name) if kind == "topic" else context.create_queue(name)
    for number in numbers:
        producer = context.create_producer().set_property("n", number)
        for setting, value in settings.items():
            getattr(producer, f"set_{setting}")(value)
        producer.send(destination, f"text {number}")

"""What the attacks are made with: a broker with users, requests that no polite client would send, bytes on a socket."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

from sievemq_broker import EmbeddedBroker
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

DEADLINE = 60.0

PASSWORD = "rosebud"
#: Clear, so that signing in costs nothing; hashing has tests of its own.
USERS: dict[str, Any] = {
    "admin": PASSWORD,
    "anna": {
        "password": PASSWORD,
        "rights": [
            {"may": ["send", "consume", "browse"], "destination": "queue:orders.*"},
            {"may": ["consume"], "destination": "topic:prices"},
            {"may": ["view"], "destination": "queue:stock"},
        ],
    },
    "ben": {
        "password": PASSWORD,
        "rights": [{"may": ["send", "consume", "browse", "manage", "view"], "namespace": "team-b"}],
    },
    "nobody": {"password": PASSWORD, "rights": []},
}


def secured(**more: Any) -> EmbeddedBroker:
    """A broker with the users above. `more`: settings."""
    return EmbeddedBroker(http=True, settings={"users": USERS, **more})


def basic(user: str, password: str = PASSWORD) -> dict[str, str]:
    """The header of HTTP Basic."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class Answer:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()
        self.text = self.body.decode("utf-8", "replace")

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def cookie(self) -> str:
        """The cookie that was set, as it is sent back."""
        return self.headers["set-cookie"].partition(";")[0]


def ask(
    broker: EmbeddedBroker,
    path: str,
    method: str = "GET",
    body: object = None,
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> Answer:
    """One request. `headers`: with underscores for dashes; `body` that is not text or bytes is sent as JSON."""
    parts = urlsplit(broker.http_url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=DEADLINE, context=tls)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=DEADLINE)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and not isinstance(body, (str, bytes)):
        body = json.dumps(body)
        sent.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, path, body=body, headers=sent)  # type: ignore[arg-type]
        return Answer(connection.getresponse())
    finally:
        connection.close()


def sign_in(
    broker: EmbeddedBroker, user: str, password: str = PASSWORD, following: str | None = None, **headers: str
) -> Answer:
    """The sign-in form, sent."""
    fields = {"user": user, "password": password} | ({"next": following} if following is not None else {})
    return ask(
        broker, "/session", "POST", urlencode(fields), Content_Type="application/x-www-form-urlencoded", **headers
    )


def signed_in(broker: EmbeddedBroker, user: str = "admin") -> tuple[str, str]:
    """The cookie and the CSRF token of a browser that has signed in."""
    cookie = sign_in(broker, user).cookie
    return cookie, ask(broker, "/session", Cookie=cookie).json["csrf"]


def raw(broker: EmbeddedBroker, data: bytes, *, port: int | None = None) -> bytes:
    """Bytes to the management port (or another); everything it says until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port or urlsplit(broker.http_url).port or 0), DEADLINE) as sock:
        sock.sendall(data)
        sock.settimeout(DEADLINE)
        return said_at_last(sock)


def said_at_last(sock: socket.socket) -> bytes:
    """Everything a peer sends, after whose first byte nothing more is sent to it."""
    first = sock.recv(1 << 16)  # whoever ends their side before an answer gets none
    with suppress(OSError):  # it has closed already
        sock.shutdown(socket.SHUT_WR)
    return first + until_closed(sock)


def until_closed(sock: socket.socket) -> bytes:
    """Everything a peer says until it closes or cuts the connection; fails if it does not in time."""
    sock.settimeout(DEADLINE)
    said = b""
    try:
        while data := sock.recv(1 << 16):
            said += data
    except (ConnectionError, ssl.SSLError):
        pass
    return said


def hello(
    user: str | None = None, password: str | None = None, namespace: str = "", resume: str | None = None
) -> bytes:
    """The bytes of a HELLO."""
    wire = WireConnection("client")
    wire.send(Command.HELLO, PROTOCOL_VERSION, namespace, user, password, None, 0, "attack", resume, {})
    return wire.data_to_send()

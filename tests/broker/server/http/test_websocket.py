"""STOMP over WebSocket at the HTTP port, by a WebSocket client that others wrote (websockets)."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from sievemq import ConnectionFactory, Queue
from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.net.link import READ_PAUSE
from sievemq_broker.users.account import Users
from sievemq_testing import Faults, TestBroker

SOON = 20

CONNECT = "CONNECT\naccept-version:1.2,1.1,1.0\nhost:x\n\n\0"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(http=True) as broker:
        yield broker


def begin(broker: EmbeddedBroker, *protocols: str, **options: Any) -> ClientConnection:
    """A WebSocket, before CONNECT."""
    names = [Subprotocol(name) for name in protocols] or None
    url = broker.http_url.replace("http", "ws", 1) + "/stomp"
    return connect(url, subprotocols=names, proxy=None, open_timeout=SOON, close_timeout=SOON, **options)


@contextmanager
def stomp(broker: EmbeddedBroker, *protocols: str, **options: Any) -> Iterator[ClientConnection]:
    """A client that is connected."""
    with begin(broker, *protocols, **options) as client:
        client.send(CONNECT)
        assert text(client).startswith("CONNECTED\n")
        yield client


def text(client: ClientConnection) -> str:
    message = client.recv(SOON)
    assert isinstance(message, str)
    return message


def refused(broker: EmbeddedBroker, *protocols: str, **options: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as raised:
        begin(broker, *protocols, **options)
    response = raised.value.response
    return response.status_code, json.loads(response.body or b"{}")


def closed(client: ClientConnection) -> int:
    """What the last word was."""
    with pytest.raises(ConnectionClosed) as raised:
        for _ in range(1_000):
            client.recv(SOON)
    assert raised.value.rcvd is not None
    return raised.value.rcvd.code


# -- what passes ----------------------------------------------------------------------------------------------------


def test_each_frame_is_a_message_of_text_or_of_bytes(broker: EmbeddedBroker) -> None:
    with stomp(broker, "v12.stomp") as client, ConnectionFactory(broker.url).create_context() as context:
        client.send("SUBSCRIBE\nid:1\ndestination:/queue/a\nreceipt:r\nselector:n = '1'\n\n\0")
        assert text(client) == "RECEIPT\nreceipt-id:r\n\n\0\n"
        producer = context.create_producer().set_property("n", "1")
        for body in ("päper\n\n\0content-length:9", b"\xff\x00", "last"):
            producer.send(Queue("a"), body)
        first, second, third = (client.recv(SOON) for _ in range(3))
        assert isinstance(first, str)
        assert first.endswith("päper\n\n\0content-length:9\0\n")
        assert isinstance(second, bytes)
        assert second.endswith(b"\n\n\xff\x00\0\n")
        assert str(third).endswith("last\0\n")


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        (["v10.stomp", "v11.stomp", "v12.stomp"], "v12.stomp"),
        (["v10.stomp", "v11.stomp"], "v11.stomp"),
        (["other", "v10.stomp"], "v10.stomp"),
        ([], None),
    ],
)
def test_the_newest_sub_protocol_is_taken(broker: EmbeddedBroker, offered: list[str], taken: str | None) -> None:
    with stomp(broker, *offered) as client:
        assert client.subprotocol == taken


def test_what_comes_with_close_is_carried_out(broker: EmbeddedBroker) -> None:
    """It takes longer than a turn, and the socket is gone by then."""
    with stomp(broker) as client:
        protocol = client.protocol
        protocol.send_binary(b"".join(b"SEND\ndestination:/queue/a\n\n%d\0" % number for number in range(1_500)))
        protocol.send_close(1000)
        client.socket.sendall(b"".join(protocol.data_to_send()))
        assert closed(client) == 1000
        deadline = time.monotonic() + SOON
        while broker.call(lambda b: b.namespace("").queue("queue:a").depth) < 1_500 or broker.server.links.open:
            assert time.monotonic() < deadline


def test_frames_cut_into_messages_and_fragments_anywhere(broker: EmbeddedBroker) -> None:
    with begin(broker, "v12.stomp") as client:
        for character in CONNECT:
            client.send(character)
        assert text(client).startswith("CONNECTED\n")
        client.send(
            [part.encode() for part in ("SEND\ndestination:/queue/a\nrec", "eipt:r\n", "\nbo", "dy\0BEGIN\ntr")]
        )
        client.send("ansaction:t\nreceipt:s\n\n\0")
        assert [text(client), text(client)] == [f"RECEIPT\nreceipt-id:{name}\n\n\0\n" for name in "rs"]
    with ConnectionFactory(broker.url).create_context() as context:
        message = context.create_consumer(Queue("a")).receive(SOON * 1000)
        assert message is not None
        assert message.get_body(str) == "body"


def test_heart_beats_are_messages_of_their_own(broker: EmbeddedBroker) -> None:
    with EmbeddedBroker(http=True, settings={"heartbeat_seconds": 1}) as broker, begin(broker, "v12.stomp") as client:
        client.send("CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,1000\n\n\0")
        assert "heart-beat:1000,1000" in text(client)
        assert text(client) == "\n"


def test_over_tls(certificates: Path) -> None:
    files = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    with (
        EmbeddedBroker(http=True, settings=files) as broker,
        stomp(broker, "v12.stomp", ssl=context, server_hostname="localhost") as client,
    ):
        client.send("SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
        assert text(client).startswith("RECEIPT\n")


def test_a_connection_is_shown_and_counted_as_one_of_stomp(broker: EmbeddedBroker) -> None:
    with stomp(broker) as client:
        with urllib.request.urlopen(f"{broker.http_url}/api/v1/connections") as answer:
            [row] = json.load(answer)["connections"]
        assert (row["protocol"], row["peer"]) == ("stomp", "{}:{}".format(*client.local_address))
        assert row["bytes_in"] > 0
        with urllib.request.urlopen(f"{broker.http_url}/metrics") as answer:
            assert 'sievemq_clients{protocol="stomp"} 1.0' in answer.read().decode()


# -- who may come -----------------------------------------------------------------------------------------------------


def test_a_page_of_another_site_may_not_connect(broker: EmbeddedBroker) -> None:
    status, answer = refused(broker, origin=Origin("https://evil.example"))
    assert (status, answer["error"]) == (403, "CROSS_SITE")
    assert "http_origins" in answer["text"]
    with stomp(broker, origin=Origin(broker.http_url)):
        pass


def test_origins_that_the_operator_names_may_connect() -> None:
    with EmbeddedBroker(http=True, settings={"http_origins": "https://shop.example.com"}) as broker:
        with stomp(
            broker, origin=Origin("https://shop.example.com"), additional_headers={"Sec-Fetch-Site": "cross-site"}
        ):
            pass
        assert refused(broker, origin=Origin("https://evil.example"))[0] == 403


def test_a_host_by_another_name_is_not_answered(broker: EmbeddedBroker) -> None:
    answer = ask(broker, {**HANDSHAKE, "Host": "evil.example"})
    assert answer.status == 421


def test_user_and_password_may_come_in_connect() -> None:
    with EmbeddedBroker(http=True, users={"ann": "secret"}) as broker:
        for login, first in (
            ("login:ann\npasscode:secret\n", "CONNECTED\n"),
            ("login:ann\npasscode:wrong\n", "ERROR\n"),
            ("", "ERROR\n"),
        ):
            with begin(broker, "v12.stomp") as client:
                client.send(f"CONNECT\naccept-version:1.2\nhost:x\n{login}\n\0")
                assert text(client).startswith(first)


def test_a_signed_in_user_need_not_be_named_again() -> None:
    with EmbeddedBroker(http=True, users={"ann": "secret"}) as broker:
        basic = base64.b64encode(b"ann:secret").decode()
        with stomp(broker, additional_headers={"Authorization": f"Basic {basic}"}):
            pass
        wrong = base64.b64encode(b"ann:wrong").decode()
        assert refused(broker, additional_headers={"Authorization": f"Basic {wrong}"})[0] == 401
        connection = http.client.HTTPConnection("127.0.0.1", int(broker.http_url.rpartition(":")[2]))
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/session", "user=ann&password=secret&next=/", form)
        cookie = str(connection.getresponse().getheader("Set-Cookie")).partition(";")[0]
        connection.close()
        same = {"origin": Origin(broker.http_url), "additional_headers": {"Cookie": cookie}}
        with stomp(broker, **same):
            [peer] = broker.call(lambda _: list(broker.server.shard.services.connections.values()))
            assert peer.member.identity.user == "ann"


class Browser:
    """Signed in with a cookie."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._port = int(broker.http_url.rpartition(":")[2])
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer, _ = self.ask("POST", "/session", "user=ann&password=secret&next=/", form)
        cookie = str(answer.getheader("Set-Cookie")).partition(";")[0]
        self.headers = {"Cookie": cookie}
        self.options = {"origin": Origin(broker.http_url), "additional_headers": self.headers}

    def ask(
        self, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SOON)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    def sign_out(self) -> None:
        csrf = json.loads(self.ask("GET", "/session", None, self.headers)[1])["csrf"]
        assert self.ask("DELETE", "/session", None, {**self.headers, "X-CSRF-Token": csrf})[0].status == 204


@pytest.mark.parametrize("sends", [True, False])
def test_a_connection_ends_when_the_cookie_it_came_with_signs_out(sends: bool) -> None:
    """A frame behind the sign-out is not carried out; an idle connection ends at the next tick."""
    with EmbeddedBroker(http=True, users={"ann": "secret"}) as broker:
        browser = Browser(broker)
        with stomp(broker, **browser.options) as client, stomp(broker, **Browser(broker).options) as other:
            browser.sign_out()
            if sends:
                client.send("SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
            assert "sign in again" in text(client)
            assert closed(client) == 1000
            assert broker.call(lambda b: "queue:a" not in b.namespace("").destinations)
            other.send("SEND\ndestination:/queue/b\nreceipt:r\n\nx\0")
            assert text(other).startswith("RECEIPT")


def test_a_connection_before_connect_ends_with_its_cookie_as_well() -> None:
    with EmbeddedBroker(http=True, users={"ann": "secret"}) as broker:
        browser = Browser(broker)
        with begin(broker, **browser.options) as client:
            browser.sign_out()
            client.send(CONNECT)
            assert "sign in again" in text(client)
            assert closed(client) == 1000


def test_a_connection_ends_when_its_session_expires_or_its_user_goes() -> None:
    with (
        EmbeddedBroker(http=True, users={"ann": "secret"}) as broker,
        stomp(broker, **Browser(broker).options) as client,
    ):
        broker._submit(lambda server: server.use_users(Users({}, required=True))).result()
        assert text(client).startswith("ERROR")
        closed(client)
    with (
        EmbeddedBroker(http=True, users={"ann": "secret"}, settings={"session_seconds": 1}) as broker,
        stomp(broker, **Browser(broker).options) as client,
    ):
        assert "sign in again" in text(client)
        closed(client)


# -- what is refused --------------------------------------------------------------------------------------------------

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def ask(broker: EmbeddedBroker, headers: dict[str, str]) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", int(broker.http_url.rpartition(":")[2]), timeout=SOON)
    connection.request("GET", "/stomp", headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_an_ordinary_request_is_answered_with_426(broker: EmbeddedBroker) -> None:
    answer = ask(broker, {})
    assert (answer.status, answer.getheader("Upgrade")) == (426, "websocket")


@pytest.mark.parametrize("name", ["Connection", "Sec-WebSocket-Version", "Sec-WebSocket-Key"])
def test_a_handshake_without_one_of_its_headers_is_refused(broker: EmbeddedBroker, name: str) -> None:
    assert ask(broker, {key: value for key, value in HANDSHAKE.items() if key != name}).status == 400
    assert ask(broker, HANDSHAKE).status == 101


def test_other_sub_protocols_are_refused(broker: EmbeddedBroker) -> None:
    status, answer = refused(broker, "mqtt")
    assert (status, answer["error"]) == (400, "BAD_REQUEST")
    assert "v12.stomp, v11.stomp, v10.stomp" in answer["text"]


def test_a_broker_without_stomp_has_no_websockets() -> None:
    with EmbeddedBroker(http=True, settings={"protocols": "sieve"}) as broker:
        assert refused(broker)[0] == 404


def test_a_websocket_counts_among_the_connections_allowed() -> None:
    with (
        EmbeddedBroker(http=True, settings={"max_connections": 1}) as broker,
        stomp(broker),
        begin(broker, "v12.stomp") as second,
    ):
        assert "TOO_MANY_CONNECTIONS" in text(second)
        assert closed(second) == 1000


# -- how it ends ------------------------------------------------------------------------------------------------------


def test_an_error_is_the_last_frame_and_close_follows(broker: EmbeddedBroker) -> None:
    with stomp(broker, "v12.stomp") as client:
        client.send("SUBSCRIBE\nid:1\ndestination:/queue/a\nselector:a = = b\n\n\0")
        assert text(client).startswith("ERROR\n")
        assert closed(client) == 1000


def test_disconnect_is_answered_and_close_follows(broker: EmbeddedBroker) -> None:
    with stomp(broker, "v12.stomp") as client:
        client.send("DISCONNECT\nreceipt:bye\n\n\0")
        assert text(client) == "RECEIPT\nreceipt-id:bye\n\n\0\n"
        assert closed(client) == 1000


def test_close_gives_back_what_the_client_held(broker: EmbeddedBroker) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(Queue("a"), "x")
        with stomp(broker, "v12.stomp") as client:
            client.send("SUBSCRIBE\nid:1\nack:client\ndestination:/queue/a\n\n\0")
            assert text(client).startswith("MESSAGE\n")
            client.close()
        message = context.create_consumer(Queue("a")).receive(SOON * 1000)
        assert message is not None
        assert message.get_jms_redelivered()


def test_a_ping_is_answered(broker: EmbeddedBroker) -> None:
    with stomp(broker) as client:
        assert client.ping(b"x").wait(SOON)


def test_a_broker_that_stops_says_why_and_closes() -> None:
    broker = EmbeddedBroker(http=True).start()
    with stomp(broker, "v12.stomp") as client:
        broker.stop()
        assert "SHUTTING_DOWN" in text(client)
        assert closed(client) == 1000


@pytest.mark.parametrize("data", [b"\x81\x01x", b"\xf1\x80\0\0\0\0", b"\x83\x80\0\0\0\0", b"\x81\x82\0\0\0\0\xc3\x28"])
def test_a_malformed_websocket_frame_ends_the_connection_with_a_code(broker: EmbeddedBroker, data: bytes) -> None:
    """Without a mask, with a reserved bit, of an unknown kind, of text that is not UTF-8."""
    with stomp(broker) as client:
        client.socket.sendall(data)
        assert closed(client) in (1002, 1007)


# -- attacks ----------------------------------------------------------------------------------------------------------


def test_a_body_above_the_limit_is_refused_while_it_arrives() -> None:
    with EmbeddedBroker(http=True, settings={"max_body_bytes": 1000}) as broker, stomp(broker) as client:
        client.send("SEND\ndestination:/queue/a\n\n")
        with pytest.raises(ConnectionClosed):
            for _ in range(100_000):
                client.send("x" * 100)
        assert text(client).startswith("ERROR\nmessage:a body of ")


def test_a_frame_of_any_length_is_not_gathered(broker: EmbeddedBroker) -> None:
    """Its announced length is 2^62 bytes; what it carries is carried out as it comes."""
    with begin(broker) as client:
        head = b"\x81\xff" + (2**62).to_bytes(8, "big") + b"\0\0\0\0"
        client.socket.sendall(head + CONNECT.encode() + b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
        assert text(client).startswith("CONNECTED\n")
        assert text(client).startswith("RECEIPT\n")


def test_a_flood_of_empty_frames_leaves_time_for_others(broker: EmbeddedBroker) -> None:
    with stomp(broker) as client, ConnectionFactory(broker.url).create_context() as context:
        flood = Frame(Opcode.TEXT, b"").serialize(mask=True) * 50_000
        client.socket.sendall(flood)
        consumer = context.create_consumer(Queue("a"))
        for number in range(20):
            context.create_producer().send(Queue("a"), str(number))
            assert consumer.receive_body(str, timeout=SOON * 1000) == str(number)
        client.send("SEND\ndestination:/queue/b\nreceipt:r\n\nx\0")
        assert client.recv(SOON * 3) == "RECEIPT\nreceipt-id:r\n\n\0\n"


def test_a_client_that_does_not_read_holds_little(broker: EmbeddedBroker) -> None:
    import socket

    size = 4_000_000
    with ConnectionFactory(broker.url).create_context() as context:
        producer = context.create_producer()
        for _ in range(20):
            producer.send(Queue("a"), b"x" * size)
        with stomp(broker) as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send("SUBSCRIBE\nid:1\nack:client-individual\ndestination:/queue/a\n\n\0")
            consumer = context.create_consumer(Queue("b"))
            producer.send(Queue("b"), "others are served")
            assert consumer.receive_body(str, timeout=SOON * 1000)

            def unsent() -> int:
                links = broker.server.links.open
                return max(link.transport.get_write_buffer_size() for link in links)

            assert broker.call(lambda _: unsent()) <= 2 * size + READ_PAUSE
            client.socket.shutdown(socket.SHUT_RDWR)


def test_faults_of_the_test_kit_meet_a_websocket() -> None:
    with TestBroker(http=True) as broker, stomp(broker) as client:
        faults: Faults = broker.faults
        faults.drop_on("send")
        client.send("SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
        with pytest.raises(ConnectionClosed):
            client.recv(SOON)

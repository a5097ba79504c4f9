"""Test control over HTTP: the kit's verbs for tests in any language, with clients over real sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest

from sievemq import ConnectionFactory, JMSContext, Queue, TransactionRolledBackRuntimeException
from sievemq_broker import EmbeddedBroker
from sievemq_broker.config import ConfigError, load
from sievemq_broker.server.server import Server
from sievemq_testing import TestBroker
from sievemq_testing.control.desk import MAX_SNAPSHOTS, MAX_WAITING

DEADLINE = 60.0
ORDERS = Queue("orders")


class Control:
    """A client of test control in a few lines, as another language has it."""

    def __init__(self, url: str, user: str = "") -> None:
        self._address = urlsplit(url)
        self._headers = {"Authorization": f"Basic {b64encode(user.encode()).decode()}"} if user else {}

    def begin(self, method: str, path: str, body: object = None) -> http.client.HTTPConnection:
        """Send a request."""
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=DEADLINE)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), {**headers, **self._headers})
        return connection

    def raw(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        with contextlib.closing(self.begin(method, path, body)) as connection:
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        status, text = self.raw(method, f"/api/v1/test/{path}", body)
        assert status in (200, 201), text
        return json.loads(text)

    def refused(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """The status and the text of an error."""
        status, text = self.raw(method, f"/api/v1/test/{path}", body)
        assert status >= 400, text
        return status, json.loads(text)["text"]


class Stomp:
    """A STOMP client that sends frames and reads what comes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0), DEADLINE)
        self._file = self._socket.makefile("rb")
        self.send("CONNECT", {"accept-version": "1.2", "host": parts.path})
        assert self.read().startswith("CONNECTED")

    def send(self, command: str, headers: dict[str, str], body: str = "") -> None:
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        self._socket.sendall(f"{command}\n{lines}\n{body}\0".encode())

    def read(self) -> str:
        """A frame; empty once the connection has ended."""
        read, byte = bytearray(), b""
        while not read.endswith(b"\0"):
            with contextlib.suppress(ConnectionResetError):
                byte = self._file.read(1)
            if not byte:
                return ""
            if read or byte not in b"\r\n":
                read += byte
        return read.decode().rstrip("\0")

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Not a TestBroker: what `sievemq broker --test-control` has is enough."""
    with EmbeddedBroker(http=True, settings={"test_control": True}) as broker:
        yield broker


@pytest.fixture
def control(broker: EmbeddedBroker) -> Iterator[Control]:
    control = Control(broker.http_url)
    yield control
    control("POST", "clock/restore")


@pytest.fixture
def space(control: Control) -> Iterator[dict[str, Any]]:
    """A namespace of the test."""
    space = control("POST", "namespaces")
    yield space
    control("DELETE", f"namespaces/{space['name']}")


def check(control: Control, space: dict[str, Any], that: str, **given: object) -> Any:
    return control("POST", f"namespaces/{space['name']}/assertions", {"that": that, **given})


# -- who may ----------------------------------------------------------------------------------------------------------


def test_without_it_the_error_says_how_to_have_it() -> None:
    with EmbeddedBroker(http=True) as broker:
        status, text = Control(broker.http_url).refused("POST", "namespaces")
        document = json.loads(Control(broker.http_url).raw("GET", "/openapi.json")[1])
    assert status == 404
    assert "--test-control" in text
    assert not [path for path in document["paths"] if path.startswith("/api/v1/test/")]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"users": "a:b"}, "there are users"),
        ({"host": "0.0.0.0", "insecure": True}, "other machines can reach 0.0.0.0"),
        ({"http_host": "0.0.0.0", "insecure": True}, "other machines can reach 0.0.0.0"),
        ({"http_hosts": "localhost,mq.example.com"}, "other machines can reach mq.example.com"),
        ({"http": False}, "needs http"),
        ({"store": "postgresql://db/x"}, "store"),
    ],
)
def test_a_broker_that_others_may_work_with_does_not_have_it(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load({"test_control": True, **settings})


@pytest.mark.parametrize("settings", [{"users": "a:b"}, {"host": "0.0.0.0", "insecure": True}])
def test_it_can_be_forced(settings: dict[str, object]) -> None:
    assert load({"test_control": True, "test_control_exposed": True, **settings}).settings.test_control


def test_with_users_it_takes_the_rights() -> None:
    rights = [{"may": ["view", "manage", "browse"], "namespace": "mine"}]
    users = {"all": "secret", "some": {"password": "secret", "rights": rights}}
    settings = {"test_control": True, "test_control_exposed": True}
    with EmbeddedBroker(http=True, users=users, settings=settings) as broker:
        nobody, some, everybody = (Control(broker.http_url, user) for user in ("", "some:secret", "all:secret"))
        assert nobody.refused("POST", "namespaces")[0] == 401
        assert some.refused("POST", "clock/freeze")[0] == 403
        assert some.refused("POST", "namespaces", {"name": "other"})[0] == 403
        everybody("POST", "namespaces", {"name": "mine"})
        assert some("GET", "namespaces/mine/journal")["events"] == []
        assert some.refused("GET", "namespaces/default/journal")[0] == 403
        assert everybody("POST", "clock/freeze")["frozen"]
        with ConnectionFactory(broker.url).create_context("all", "secret") as context:
            context.create_producer().send(ORDERS, "a secret")
        for caller, sees in ((everybody, True), (some, False)):
            text = caller.raw("GET", "/api/v1/test/namespaces/mine/explanation")[1]
            assert ("namespace 'default' was used meanwhile" in text) is sees
            outcome = caller("POST", "namespaces/mine/assertions", {"that": "consumed", "destination": "orders"})
            assert ("namespace 'default' was used meanwhile" in outcome["explanation"]) is sees


def test_a_data_directory_is_kept(tmp_path: Path) -> None:
    """The journal knows what was recovered."""
    for number in range(2):
        settings = {"test_control": True}
        with EmbeddedBroker(http=True, data_dir=tmp_path, settings=settings) as broker:
            control = Control(broker.http_url)
            space = control("POST", "namespaces", {"name": "mine"})
            assert control("POST", "clock/advance", {"ms": 1_000})["offset_ms"] >= 1_000
            with ConnectionFactory(space["url"]).create_context() as context:
                context.create_producer().send(ORDERS, str(number))
                browser = context.create_browser(ORDERS)
                assert [message.get_body(str) for message in browser] == [str(n) for n in range(number + 1)]
            assert check(control, space, "received", destination="orders", count=1)["passed"]
            assert check(control, space, "nothing_lost")["passed"]


def test_a_test_broker_has_it_as_well() -> None:
    with TestBroker(http=True, settings={"test_control": True}) as broker:
        control = Control(broker.http_url)
        before = broker.clock.now()
        control("POST", "clock/advance", {"ms": 3_600_000})
        assert (broker.clock.now() - before).total_seconds() >= 3_600
        assert broker.clock.offset.total_seconds() >= 3_600
        broker.queue("orders").configure(max_attempts=1)
        control("POST", "clock/freeze")
        assert broker.clock.frozen


def test_a_process_has_it_and_ends_although_an_assertion_waits() -> None:
    command = [sys.executable, "-c", "from sievemq.cli import main; main()", "broker", "--test-control"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIEVEMQ_")}
    with subprocess.Popen(
        [*command, "--port", "0", "--http-port", "0"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        records = map(json.loads, process.stdout)
        control = Control(next(record["http_url"] for record in records if record["event"] == "broker.ready"))
        space = control("POST", "namespaces")
        assert control("POST", "clock/advance", {"ms": 3_600_000})["offset_ms"] >= 3_600_000
        with ConnectionFactory(space["url"]).create_context() as context:
            context.create_producer().send(ORDERS, "x")
        path = f"/api/v1/test/namespaces/{space['name']}/assertions"
        body = {"that": "received", "destination": "orders", "count": 2, "within_ms": 120_000}
        with contextlib.closing(control.begin("POST", path, body)) as waiting:
            control("POST", "namespaces")
            process.terminate()
            assert waiting.getresponse().status == 503
        assert process.wait(DEADLINE) == 0


def test_openapi_describes_it(control: Control) -> None:
    document = json.loads(control.raw("GET", "/openapi.json")[1])
    paths = [path for path in document["paths"] if path.startswith("/api/v1/test/")]
    assert "/api/v1/test/namespaces/{ns}/assertions" in paths
    text = json.dumps(document)
    assert {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]} == set(
        document["components"]["schemas"]
    )
    for path in paths:
        for operation in document["paths"][path].values():
            assert operation["summary"].endswith("."), path


# -- namespaces -------------------------------------------------------------------------------------------------------


def test_namespaces_are_made_and_dropped(control: Control) -> None:
    one, two = control("POST", "namespaces"), control("POST", "namespaces", {"name": "mine"})
    assert one["name"] != two["name"] == "mine"
    assert two["stomp_url"].endswith("/mine")
    assert "amqp.vhost=%2Fmine" in two["amqp_url"]
    with ConnectionFactory(two["url"], reconnect=0).create_context() as context:
        context.create_producer().send(ORDERS, "x")
        assert check(control, two, "received", destination="orders", count=1)["passed"]
        assert check(control, one, "received", destination="orders", count=0)["passed"]
        (left,) = control("DELETE", "namespaces/mine")["connections"]
        assert "sievemq-python" in left
    assert control.refused("DELETE", "namespaces/mine")[0] == 404
    control("DELETE", f"namespaces/{one['name']}")


def test_a_broker_on_all_addresses_is_named_as_the_caller_names_it() -> None:
    settings = {"test_control": True, "test_control_exposed": True, "insecure": True}
    with EmbeddedBroker(host="0.0.0.0", http=True, settings=settings) as broker:
        port = urlsplit(broker.http_url).port
        for name in ("127.0.0.1", "localhost"):
            opened = Control(f"http://{name}:{port}")("POST", "namespaces")
            assert urlsplit(opened["amqp_url"]).hostname == name
            assert urlsplit(opened["stomp_url"]).port == broker.port


def test_a_namespace_is_reset(control: Control, space: dict[str, Any]) -> None:
    with ConnectionFactory(space["url"]).create_context() as context:
        context.create_producer().send(ORDERS, "x")
        control("POST", f"namespaces/{space['name']}/faults", {"fault": "refuse", "on": "send"})
        control("POST", f"namespaces/{space['name']}/reset")
        assert control("GET", f"namespaces/{space['name']}/faults") == {"faults": []}
        context.create_producer().send(ORDERS, "y")
    (message,) = check(control, space, "received", destination="orders", count=1)["messages"]
    assert message["text"] == "y"


def test_a_namespace_is_restored(control: Control, space: dict[str, Any]) -> None:
    with ConnectionFactory(space["url"]).create_context() as context:
        context.create_producer().send(ORDERS, "x")
        kept = control("POST", f"namespaces/{space['name']}/snapshots")
        assert (kept["messages"], kept["destinations"]) == (1, ["queue:orders"])
        context.create_producer().send(ORDERS, "y")
        control("POST", f"namespaces/{space['name']}/snapshots/{kept['id']}/restore")
    (message,) = check(control, space, "received", destination="orders", count=1)["messages"]
    assert message["text"] == "x"
    assert control.refused("POST", f"namespaces/{space['name']}/snapshots/none/restore")[0] == 404
    for _ in range(MAX_SNAPSHOTS - 1):
        control("POST", f"namespaces/{space['name']}/snapshots")
    assert control.refused("POST", f"namespaces/{space['name']}/snapshots")[0] == 409


# -- the clock --------------------------------------------------------------------------------------------------------


def test_a_redelivery_is_tested_by_advancing_the_clock(control: Control, space: dict[str, Any]) -> None:
    rules = {"max_attempts": 2, "redelivery_delay": 60_000}
    applied = control("POST", f"namespaces/{space['name']}/policies", {"destination": "orders", "rules": rules})
    assert applied["destination"] == "queue:orders"
    assert applied["rules"]["redelivery_delay"] == 60_000
    control("POST", "clock/freeze")
    client = Stomp(space["stomp_url"])
    client.send("SEND", {"destination": "orders", "region": "EU"}, "a chair")
    client.send("SUBSCRIBE", {"destination": "orders", "id": "1", "ack": "client-individual"})
    for attempt in range(2):
        frame = client.read()
        assert frame.endswith("a chair")
        client.send("NACK", {"id": frame.split("\nack:")[1].partition("\n")[0]})
        if not attempt:
            client.send("SEND", {"destination": "sync", "receipt": "1"})
            assert client.read().startswith("RECEIPT")
            assert check(control, space, "scheduled", destination="orders", selector="region = 'EU'", count=1)["passed"]
            assert not check(control, space, "dead_letters", destination="orders")["passed"]
            assert control("POST", "clock/advance", {"ms": 60_000})["frozen"]
    outcome = check(control, space, "dead_letters", destination="orders", count=1, reason="attempts", within_ms=60_000)
    assert [message["properties"]["region"] for message in outcome["messages"]] == ["EU"]
    client.close()


def test_the_clock_stands_still_is_set_and_comes_back(control: Control) -> None:
    frozen = control("POST", "clock/freeze")
    assert frozen["frozen"]
    assert control("POST", "clock/set", {"to": 1_000})["now"] == 1_000
    assert control("GET", "clock")["now"] == 1_000
    assert not control("POST", "clock/resume")["frozen"]
    assert control("GET", "clock")["offset_ms"] < -1_000_000
    assert control("POST", "clock/restore")["offset_ms"] == 0


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_command_is_refused_as_often_as_wanted(control: Control, space: dict[str, Any]) -> None:
    path = f"namespaces/{space['name']}/faults"
    fault = control("POST", path, {"fault": "refuse", "on": "send", "times": 2, "error": "SECURITY", "text": "no"})
    client = Stomp(space["stomp_url"])
    client.send("SEND", {"destination": "orders", "receipt": "1"})
    assert "no" in client.read()
    client.close()
    assert control("GET", path)["faults"] == [
        {**fault, "used": 1, "left": 1, "text": fault["text"].replace("used=0 left=2", "used=1 left=1")}
    ]
    assert control("DELETE", f"{path}/{fault['id']}")["used"] == 1
    assert control.refused("DELETE", f"{path}/{fault['id']}")[0] == 404
    client = Stomp(space["stomp_url"])
    client.send("SEND", {"destination": "orders", "receipt": "1"})
    assert client.read().startswith("RECEIPT")
    client.close()


def test_a_connection_is_cut_before_and_after_a_command(control: Control, space: dict[str, Any]) -> None:
    path = f"namespaces/{space['name']}/faults"
    for after, left in ((False, 0), (True, 1)):
        control("POST", path, {"fault": "drop", "on": "send", "skip": 0, "after": after})
        client = Stomp(space["stomp_url"])
        client.send("SEND", {"destination": "orders", "receipt": "1"})
        assert client.read() == ""
        client.close()
        assert check(control, space, "received", destination="orders", count=left)["passed"]


def test_a_commit_is_lost(control: Control, space: dict[str, Any]) -> None:
    control("POST", f"namespaces/{space['name']}/faults", {"fault": "drop", "on": "commit"})
    with ConnectionFactory(space["url"]).create_context(JMSContext.SESSION_TRANSACTED) as context:
        context.create_producer().send(ORDERS, "x")
        with pytest.raises(TransactionRolledBackRuntimeException):
            context.commit()


def test_a_command_is_delayed_by_the_clock(control: Control, space: dict[str, Any]) -> None:
    """And what follows it on its connection; another connection goes on."""
    control("POST", "clock/freeze")
    path = f"namespaces/{space['name']}/faults"
    control("POST", path, {"fault": "delay", "on": "send", "times": 2, "delay_ms": 5_000, "destination": "queue:late"})
    slow, fast = Stomp(space["stomp_url"]), Stomp(space["stomp_url"])
    slow.send("SEND", {"destination": "late"}, "1")
    slow.send("SEND", {"destination": "orders", "receipt": "1"}, "2")
    check(control, space, "idle", within_ms=60_000)
    fast.send("SEND", {"destination": "orders", "receipt": "1"}, "3")
    assert fast.read().startswith("RECEIPT")
    assert check(control, space, "received", destination="late", count=0)["passed"]
    control("POST", "clock/advance", {"ms": 4_999})
    assert check(control, space, "received", destination="late", count=0)["passed"]
    control("POST", "clock/advance", {"ms": 1})
    assert slow.read().startswith("RECEIPT")
    found = check(control, space, "received", destination="orders", count=2)["messages"]
    assert [message["text"] for message in found] == ["3", "2"]
    assert [each["left"] for each in control("GET", path)["faults"]] == [1]
    slow.close()
    fast.close()


def test_a_delay_ends_with_its_fault_and_with_real_time(control: Control, space: dict[str, Any]) -> None:
    path = f"namespaces/{space['name']}/faults"
    fault = control("POST", path, {"fault": "delay", "on": "send", "delay_ms": 86_400_000})
    client = Stomp(space["stomp_url"])
    client.send("SEND", {"destination": "orders", "receipt": "1"})
    check(control, space, "idle", within_ms=60_000)
    control("DELETE", f"{path}/{fault['id']}")
    assert client.read().startswith("RECEIPT")
    control("POST", path, {"fault": "delay", "on": "send", "delay_ms": 1})
    client.send("SEND", {"destination": "orders", "receipt": "2"})
    assert client.read().startswith("RECEIPT")
    client.close()


def test_connections_are_paused_and_cut(control: Control, space: dict[str, Any]) -> None:
    path = f"namespaces/{space['name']}/faults"
    client = Stomp(space["stomp_url"])
    paused = control("POST", path, {"fault": "pause"})
    assert paused["used"] == 1
    client.send("SEND", {"destination": "orders", "receipt": "1"})
    control("DELETE", f"{path}/{paused['id']}")
    assert client.read().startswith("RECEIPT")
    control("POST", path, {"fault": "slow"})
    control("POST", path, {"fault": "fill", "destination": "orders"})
    assert control("DELETE", path) == {"faults": []}
    assert control("POST", path, {"fault": "close", "error": "CLOSED_BY_ADMINISTRATOR"})["used"] == 1
    assert client.read().startswith("ERROR")
    client.close()
    client = Stomp(space["stomp_url"])
    assert control("POST", path, {"fault": "cut"})["used"] == 1
    client.send("SEND", {"destination": "orders", "receipt": "1"})
    assert client.read() == ""
    client.close()
    assert control("POST", path, {"fault": "disconnect"})["used"] == 0


@pytest.mark.parametrize("to_client", [False, True])
def test_a_connection_ends_between_two_frames(control: Control, space: dict[str, Any], to_client: bool) -> None:
    client = Stomp(space["stomp_url"])
    wanted = {"fault": "cut", "skip": 1, "between": True, "to_client": to_client}
    control("POST", f"namespaces/{space['name']}/faults", wanted)
    client.send("SEND", {"destination": "orders", "receipt": "1"})
    if to_client:
        assert client.read().startswith("RECEIPT")
    assert client.read() == ""
    client.close()
    assert check(control, space, "received", destination="orders", count=1)["passed"]


def test_the_output_before_a_cut_waits_for_the_disk() -> None:
    waiting: list[bytes] = []

    def wait(link: object, data: bytes, needs: list[Any]) -> bool:
        waiting.append(data)
        return True

    def links(server: Server) -> list[Any]:
        return [link for link in server.links.open if hasattr(link, "held")]

    def hold(server: Server) -> None:
        for link in links(server):
            link.commits = Mock(hold=wait)

    def release(server: Server) -> None:
        for link in links(server):
            for data in waiting:
                link.release(data)

    with TestBroker() as broker:
        space = broker.namespace("n")
        client = Stomp(space.stomp_url)
        space.faults.cut_frame(skip=1)
        broker.on_server(hold)
        for number in "12":
            client.send("SEND", {"destination": "orders", "receipt": number})
            assert broker.wait_for(lambda _, sent=int(number): len(waiting) == sent, DEADLINE)
        assert [data.startswith(b"RECEIPT") for data in waiting] == [True, True]
        broker.on_server(release)
        assert client.read().startswith("RECEIPT")
        assert client.read() == ""
        client.close()


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"fault": "drop", "on": "send", "error": "SECURITY"}, "drop takes after, client_id"),
        ({"fault": "refuse"}, "on: the command that refuse waits for"),
        ({"fault": "refuse", "on": "sand"}, "'sand' cannot be refused"),
        ({"fault": "drop", "on": "sand"}, "no client says 'sand'"),
        ({"fault": "delay", "on": "send"}, "delay_ms"),
        ({"fault": "refuse", "on": "send", "error": "NO"}, "there is no error 'NO'"),
        ({"fault": "fill"}, "destination"),
        ({"fault": "fill", "destination": "ques:orders"}, "ques"),
    ],
)
def test_a_fault_that_cannot_be(control: Control, space: dict[str, Any], fault: object, text: str) -> None:
    status, said = control.refused("POST", f"namespaces/{space['name']}/faults", fault)
    assert status == 422
    assert text in said


def test_a_delay_has_a_bound(control: Control, space: dict[str, Any]) -> None:
    wanted = {"fault": "delay", "on": "send", "delay_ms": 10**18}
    status, said = control.refused("POST", f"namespaces/{space['name']}/faults", wanted)
    assert (status, "delay_ms" in said) == (400, True)


def test_no_connection_has_the_client_id(control: Control, space: dict[str, Any]) -> None:
    wanted = {"fault": "disconnect", "client_id": "nobody"}
    status, said = control.refused("POST", f"namespaces/{space['name']}/faults", wanted)
    assert (status, "nobody" in said) == (404, True)


# -- journal and assertions -------------------------------------------------------------------------------------------


def test_a_failed_assertion_explains_itself(control: Control, space: dict[str, Any]) -> None:
    with ConnectionFactory(space["url"]).create_context() as context:
        context.create_consumer(ORDERS, "amount > 100")
        context.create_producer().set_property("amount", 90).send(ORDERS, "small")
        outcome = check(control, space, "consumed", destination="orders", selector="amount > 100", count=1)
        assert not outcome["passed"]
        assert "1 message should have been consumed" in outcome["text"]
        assert "amount > 100 is FALSE (amount is 90 (int))" in outcome["explanation"]
        status, text = control.raw("GET", f"/api/v1/test/namespaces/{space['name']}/explanation?lines=1")
        assert status == 200
        assert "never delivered: 1" in text
        events = control("GET", f"namespaces/{space['name']}/journal?kind=accepted&destination=queue:orders")["events"]
        (accepted,) = events
        assert accepted["not_matched"] == [
            {"selector": "amount > 100", "text": "amount > 100 is FALSE (amount is 90 (int))"}
        ]
        page = control("GET", f"namespaces/{space['name']}/journal?limit=1")
        rest = control("GET", f"namespaces/{space['name']}/journal?after={page['next']}")
        assert page["events"][0]["kind"] == "connected"
        assert rest["events"][0]["number"] == page["next"] + 1
        assert rest["next"] is None


def test_an_assertion_waits(control: Control, space: dict[str, Any]) -> None:
    outcomes: list[Any] = []

    def ask() -> None:
        outcomes.append(check(control, space, "received", destination="topic:prices", within_ms=60_000))

    waiting = threading.Thread(target=ask)
    waiting.start()
    with ConnectionFactory(space["url"]).create_context() as context:
        context.create_producer().send(context.create_topic("prices"), b"\1")
        waiting.join()
    assert outcomes[0]["messages"][0]["base64"] == "AQ=="


def test_each_kind_of_assertion(control: Control, space: dict[str, Any]) -> None:
    with ConnectionFactory(space["url"]).create_context() as context:
        consumer = context.create_consumer(ORDERS)
        context.create_producer().send(ORDERS, "x")
        consumer.receive(60_000)
        assert check(control, space, "consumed", destination="orders", count=1, within_ms=60_000)["passed"]
        assert check(control, space, "empty", destination="orders", within_ms=60_000)["passed"]
        assert check(control, space, "nothing_lost", within_ms=60_000)["passed"]
        assert check(control, space, "idle", within_ms=60_000)["passed"]
        assert check(control, space, "idle")["passed"]
        assert not check(control, space, "awaited", destination="orders", count=2)["passed"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"that": "received"}, "destination"),
        ({"that": "empty", "destination": "orders", "selector": "TRUE"}, "empty takes destination"),
        ({"that": "received", "destination": "orders", "selector": "a ="}, "a ="),
        ({"that": "empty", "destination": "topic:prices"}, "topic:prices is a topic"),
        ({"that": "dead_letters", "destination": "orders", "reason": "bored"}, "bored"),
        ({"that": "received", "destination": "ques:orders"}, "ques"),
    ],
)
def test_an_assertion_that_cannot_be(control: Control, space: dict[str, Any], given: object, text: str) -> None:
    status, said = control.refused("POST", f"namespaces/{space['name']}/assertions", given)
    assert status == 422
    assert text in said


def test_an_unknown_namespace_and_rule(control: Control, space: dict[str, Any]) -> None:
    assert control.refused("GET", "namespaces/none-such/journal")[0] == 404
    wanted = {"destination": "orders", "rules": {"max_attempt": 1}}
    status, text = control.refused("POST", f"namespaces/{space['name']}/policies", wanted)
    assert (status, "max_attempts" in text) == (422, True)
    wanted["rules"] = {"self": 1}
    status, text = control.refused("POST", f"namespaces/{space['name']}/policies", wanted)
    assert (status, "there is no rule 'self'" in text) == (422, True)


def test_so_many_may_wait() -> None:
    """More are refused at once, and the end of the broker ends all."""
    with EmbeddedBroker(http=True, settings={"test_control": True}) as other:
        asking = Control(other.http_url)
        space = asking("POST", "namespaces")
        path = f"/api/v1/test/namespaces/{space['name']}/assertions"
        statuses: list[int] = []
        turned_down = threading.Event()

        def ask() -> None:
            body = {"that": "received", "destination": "orders", "within_ms": 120_000}
            status, _ = asking.raw("POST", path, body)
            statuses.append(status)
            turned_down.set()

        waiting = [threading.Thread(target=ask) for _ in range(MAX_WAITING + 1)]
        for thread in waiting:
            thread.start()
        assert turned_down.wait(DEADLINE)
        assert statuses == [429]
    for thread in waiting:
        thread.join(DEADLINE)
    assert set(statuses) == {429, 503}

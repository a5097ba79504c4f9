"""`sievemq send`, `receive`, `browse` against a real broker."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from pathlib import Path

import pytest

from sievemq import ConnectionFactory, JMSException, Message, Session
from sievemq.blocking import Session as OpenSession
from sievemq_broker import EmbeddedBroker

from .conftest import Sievemq


def test_send_and_receive_a_text(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    sent = sievemq("send", "orders", "hello ☃")
    assert sent.code == 0
    assert sent.out.startswith("ID:")
    received = sievemq("receive", "queue:orders", "--wait", "0")
    assert (received.code, received.out) == (0, "hello ☃\n")
    assert sievemq("receive", "orders", "--wait", "0").code == 3


def test_headers_and_typed_properties_arrive(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    sent = sievemq(
        "send", "orders", "x", "--json", "--type", "order", "--correlation-id", "c-1", "--reply-to", "topic:answers",
        "--priority", "7", "--ttl", "1h", "--non-persistent",
        "-p", "region=EU", "-p", "total=12", "-p", "small=5:byte", "-p", "big=12345678901", "-p", "rate=1.5",
        "-p", "half=0.5:float", "-p", "urgent=true", "-p", "code=007:string", "-p", "url=http://x:80", "-p", "empty=",
    )  # fmt: skip
    assert sent.code == 0, sent.err
    record = json.loads(sievemq("receive", "orders", "--wait", "0", "--json").out)
    assert record["message_id"] == json.loads(sent.out)["message_id"]
    assert record["properties"] == {
        "region": "EU", "total": 12, "small": 5, "big": 12345678901, "rate": 1.5, "half": 0.5, "urgent": True,
        "code": "007", "url": "http://x:80", "empty": "", "JMSXDeliveryCount": 1,
    }  # fmt: skip
    assert record["property_types"] == {
        "region": "string", "total": "int", "small": "byte", "big": "long", "rate": "double", "half": "float",
        "urgent": "boolean", "code": "string", "url": "string", "empty": "string", "JMSXDeliveryCount": "int",
    }  # fmt: skip
    assert (record["type"], record["correlation_id"], record["reply_to"]) == ("order", "c-1", "topic:answers")
    assert (record["priority"], record["delivery_mode"], record["kind"]) == (7, "NON_PERSISTENT", "text")
    assert record["expiration"] - record["timestamp"] == 3_600_000


@pytest.mark.parametrize(
    "value",
    [
        "novalue",
        "=x",
        "a=300:byte",
        "a=x:int",
        "a=maybe:boolean",
        "a=99999999999999999999",
        "a=:double",
        "a=1:shrt",
        "a=1e400",
        "a=-1e400:double",
        "a=1e39:float",
    ],
)
def test_property_that_cannot_be_is_a_usage_error(broker: EmbeddedBroker, sievemq: Sievemq, value: str) -> None:
    assert sievemq("send", "orders", "x", "-p", value).code == 2
    assert broker.call(lambda domain: len(domain.namespace("default").destinations)) == 0


def test_an_infinite_property_is_sent_if_it_is_meant(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    assert sievemq("send", "orders", "x", "-p", "a=-inf:double").code == 0
    assert json.loads(sievemq("receive", "orders", "-w", "0", "--json").out)["properties"]["a"] == "-Infinity"


def test_a_property_may_be_called_escape(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    """Some dialects do not reserve the word (D-15, D-16)."""
    assert sievemq("send", "orders", "x", "-p", "ESCAPE=1").code == 0
    assert json.loads(sievemq("receive", "orders", "--wait", "0", "--json").out)["properties"]["ESCAPE"] == 1


def test_property_name_that_no_selector_could_use_is_refused(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    outcome = sievemq("send", "orders", "x", "-p", "not allowed=1")
    assert outcome.code == 1
    assert "not allowed" in outcome.err


def test_body_from_stdin_and_from_a_file(broker: EmbeddedBroker, sievemq: Sievemq, tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"from a file")
    assert sievemq("send", "orders", "-", stdin=b"from stdin").code == 0
    assert sievemq("send", "orders", "-f", "-", stdin=b"from stdin too").code == 0
    assert sievemq("send", "orders", "-f", str(file)).code == 0
    assert sievemq("receive", "orders", "-n", "3", "-w", "0").lines == ["from stdin", "from stdin too", "from a file"]
    assert sievemq("send", "orders", "x", "-f", str(file)).code == 2
    assert sievemq("send", "orders", "-f", str(tmp_path / "none")).code == 2


def test_bytes_are_sent_as_they_are(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    refused = sievemq("send", "orders", "-", stdin=b"\xff\x00")
    assert refused.code == 2
    assert "--bytes" in refused.err
    assert sievemq("send", "orders", "-", "--bytes", stdin=b"\xff\x00").code == 0
    record = json.loads(sievemq("receive", "orders", "-w", "0", "--json").out)
    assert (record["kind"], record["body_encoding"], b64decode(record["body"])) == ("bytes", "base64", b"\xff\x00")


def test_message_without_a_body(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    assert sievemq("send", "orders").code == 0
    record = json.loads(sievemq("receive", "orders", "-w", "0", "--json").out)
    assert (record["kind"], record["body"]) == ("none", None)


def test_other_kinds_of_message_are_shown(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    with ConnectionFactory(broker.url).create_context() as context:
        queue = context.create_queue("orders")
        mapped, stream = context.create_map_message(), context.create_stream_message()
        mapped.set_int("a", 1)
        mapped.set_bytes("b", b"\x00")
        mapped.set_double("c", float("nan"))
        stream.write_string("x")
        stream.write_int(2)
        producer = context.create_producer()
        producer.send(queue, mapped)
        producer.send(queue, stream)
        producer.send(queue, context.create_object_message([1, 2]))
    first, second, third = map(json.loads, sievemq("receive", "orders", "-n", "3", "-w", "0", "--json").lines)
    assert (first["kind"], first["body"]) == ("map", {"a": 1, "b": "AA==", "c": "NaN"})
    assert (second["kind"], second["body"]) == ("stream", ["x", 2])
    assert (third["kind"], third["body"], third["body_encoding"]) == ("object", "[1, 2]", "repr")


def test_many_at_once(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    outcome = sievemq("send", "orders", "x", "--count", "2500", "--ids")
    assert outcome.code == 0
    assert len(set(outcome.lines)) == 2500
    assert len(sievemq("browse", "orders").lines) == 2500
    assert len(sievemq("receive", "orders", "-n", "0", "-w", "0").lines) == 2500


def test_many_are_summed_up(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    assert sievemq("send", "orders", "x", "--count", "2500").lines == ["2,500 messages sent to queue:orders"]
    done = sievemq("send", "orders", "x", "--count", "2500", "--json")
    assert [json.loads(line) for line in done.lines] == [{"messages": 2500, "destination": "queue:orders"}]


def test_browsing_a_missing_queue_does_not_create_it(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    sievemq("send", "invoices", "x")
    for command in (["receive", "invioces", "-w", "0"], ["browse", "invioces"]):
        done = sievemq(*command)
        assert (done.code, done.out) == (3, "")
        assert done.err.startswith("sievemq: there is no queue:invioces; did you mean queue:invoices?")
    far = sievemq("receive", "nothing-like-it", "-w", "0")
    assert "there is no queue:nothing-like-it; the first send creates it. --create" in far.err
    assert broker.call(lambda domain: list(domain.namespace("default").destinations)) == ["queue:invoices"]
    done = sievemq("receive", "invioces", "-w", "0", "--create")
    assert (done.code, done.err) == (3, "sievemq: nothing received from queue:invioces\n")
    assert broker.call(lambda domain: "queue:invioces" in domain.namespace("default").destinations)


def test_missing_messages_are_reported(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    sievemq("send", "orders", "x")
    done = sievemq("receive", "orders", "-n", "3", "-w", "10ms")
    assert (done.code, done.lines) == (3, ["x"])
    assert done.err == "sievemq: 1 message of 3 received from queue:orders within 10ms\n"
    assert sievemq("receive", "orders", "-w", "10ms").err == "sievemq: nothing received from queue:orders within 10ms\n"


def test_a_pattern_is_warned_of_in_one_line(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    done = sievemq("receive", "topic:prices.*", "-w", "10ms")
    assert done.code == 3
    warning, nothing = done.err.splitlines()
    assert warning.startswith("sievemq: topic:prices.* is a name and no pattern: consumers have no wildcards. ")
    assert nothing == "sievemq: nothing received from topic:prices.* within 10ms"


def test_an_interrupted_commit_is_in_doubt(
    broker: EmbeddedBroker, sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, calls = OpenSession.commit, []

    def interrupted(session: OpenSession) -> None:
        commit(session)
        calls.append(session)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(OpenSession, "commit", interrupted)
    done = sievemq("send", "orders", "x", "--count", "1500")
    assert (done.code, broker.call(lambda domain: domain.namespace("default").queue("orders").depth)) == (130, 1_500)
    assert done.err == "sievemq: interrupted: the last 500 messages may be sent or not\n"


@pytest.mark.parametrize("command", ["receive", "browse"])
def test_a_doubtful_selector_is_warned_of_in_one_line(broker: EmbeddedBroker, sievemq: Sievemq, command: str) -> None:
    sievemq("send", "orders", "x", "-p", "region=EU")
    done = sievemq(command, "orders", "-s", "region = EU", *(["-w", "0"] if command == "receive" else []))
    assert done.err.splitlines()[0] == (
        "sievemq: EU is a property; write text in quotes: 'EU' (in the selector 'region = EU')"
    )


def test_what_is_printed_and_cannot_be_acknowledged_is_reported(
    broker: EmbeddedBroker, sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `reconnect` in the URL the command goes on; any other error ends it."""
    sievemq("send", "orders", "x", "--count", "2")
    code = "CONNECTION_LOST"

    def fail(message: Message) -> None:
        raise JMSException("nothing was acknowledged", code)

    monkeypatch.setattr(Message, "acknowledge", fail)
    done = sievemq("receive", "orders", "-n", "2", "-w", "0")
    assert (done.code, done.lines) == (0, ["x", "x"])
    assert done.err.count("is printed, and will be redelivered: nothing was acknowledged") == 2
    code = "CLOSED"
    done = sievemq("receive", "orders", "-n", "2", "-w", "0")
    assert (done.code, done.lines) == (1, ["x"])


@pytest.mark.parametrize(
    "command", [["send", "tpoic:x", "hello"], ["receive", "tpoic:x"], ["queue", "create", "tpoic:x"]]
)
def test_an_unknown_kind_is_no_name_of_a_queue(broker: EmbeddedBroker, sievemq: Sievemq, command: list[str]) -> None:
    done = sievemq(*command)
    assert done.code == 2
    assert done.err == (
        "sievemq: 'tpoic' in 'tpoic:x' is no kind of destination; did you mean topic:x? "
        "A queue of that name is queue:tpoic:x\n"
    )
    assert broker.call(lambda domain: len(domain.namespace("default").destinations)) == 0
    assert sievemq("send", "queue:tpoic:x", "hello").code == 0


def test_selector_chooses(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    for region in ("EU", "US", "EU"):
        sievemq("send", "orders", region, "-p", f"region={region}")
    assert sievemq("browse", "orders", "-s", "region = 'EU'").lines == ["EU", "EU"]
    assert sievemq("browse", "orders", "-n", "2").lines == ["EU", "US"]
    assert sievemq("receive", "orders", "-s", "region = 'US'", "-w", "0").lines == ["US"]
    assert sievemq("receive", "orders", "-s", "region = 'US'", "-w", "0").code == 3


@pytest.mark.parametrize("command", ["browse", "receive"])
def test_bad_selector_is_refused_with_a_caret(broker: EmbeddedBroker, sievemq: Sievemq, command: str) -> None:
    outcome = sievemq(command, "orders", "-s", "region == 'EU'")
    assert outcome.code == 4
    assert "region == 'EU'\n" in outcome.err
    assert "^^" in outcome.err


def test_ack_none_returns_all_messages(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    sievemq("send", "orders", "x", "--count", "2")
    assert sievemq("receive", "orders", "--ack", "none", "-n", "2", "-w", "0").lines == ["x", "x"]
    records = [json.loads(line) for line in sievemq("receive", "orders", "-n", "2", "-w", "0", "--json").lines]
    assert [record["redelivered"] for record in records] == [True, True]


def test_browse_leaves_everything_and_an_empty_queue_is_no_error(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    sievemq("send", "orders", "x")
    for _ in range(2):
        assert sievemq("browse", "orders").lines == ["x"]
    assert sievemq("receive", "orders", "-w", "0").lines == ["x"]
    empty = sievemq("browse", "orders")
    assert (empty.code, empty.out, empty.err) == (0, "", "")
    assert sievemq("browse", "topic:prices").code == 2


def test_verbose_shows_headers_and_properties(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    sievemq("send", "orders", "the body", "-p", "region=EU", "--type", "order")
    lines = sievemq("browse", "orders", "-v").lines
    assert "JMSType: order" in lines
    assert "region = 'EU'" in lines
    assert lines[-2:] == ["the body", ""]


def test_delayed_message_comes_later(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    assert sievemq("send", "orders", "x", "--delay", "1m").code == 0
    assert sievemq("receive", "orders", "-w", "0").code == 3
    broker.clock.advance(seconds=61)
    assert sievemq("receive", "orders", "-w", "0").code == 0


def test_topic_is_received_from_the_moment_of_the_command(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    def publish() -> None:
        with ConnectionFactory(broker.url).create_context() as context:
            topic = context.create_topic("prices")
            while not stop.is_set():  # until the command has subscribed
                context.create_producer().send(topic, "12.5")

    stop = threading.Event()
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        assert sievemq("receive", "topic:prices", "-w", "10s").lines == ["12.5"]
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("duration", ["5y", "-1", "1,5s", "", "s"])
def test_an_invalid_duration_is_a_usage_error(broker: EmbeddedBroker, sievemq: Sievemq, duration: str) -> None:
    assert sievemq("send", "orders", "x", f"--ttl={duration}").code == 2


@pytest.mark.parametrize("name", ["", "queue:", " x", "a\nb"])
def test_an_invalid_destination_is_a_usage_error(broker: EmbeddedBroker, sievemq: Sievemq, name: str) -> None:
    assert sievemq("send", name, "x").code == 2


def test_a_type_before_its_value_is_a_usage_error(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    outcome = sievemq("send", "orders", "x", "-p", "amount:short=2")
    assert outcome.code == 2
    assert "amount=2:short" in outcome.err


def test_tls_on_one_side_only_is_explained(sievemq: Sievemq, certificates: Path) -> None:
    files = {"tls_cert": str(certificates / "server.pem"), "tls_key": str(certificates / "server.key")}
    with EmbeddedBroker(settings=files) as broker:
        port = broker.url.rpartition(":")[2]
        clear = sievemq("send", "orders", "x", "--url", f"sievemq://127.0.0.1:{port}")
        assert (clear.code, "begins with sievemqs://" in clear.err) == (1, True)
        unknown = sievemq("send", "orders", "x", "--url", f"sievemqs://127.0.0.1:{port}")
        assert (unknown.code, "?tls_ca=FILE" in unknown.err) == (1, True)
    with EmbeddedBroker() as broker:
        port = broker.url.rpartition(":")[2]
        tls = sievemq("send", "orders", "x", "--url", f"sievemqs://127.0.0.1:{port}")
        assert (tls.code, "no TLS is spoken there (write sievemq:// " in tls.err) == (1, True)


def test_no_broker_is_1_and_a_wrong_url_is_2(sievemq: Sievemq) -> None:
    with EmbeddedBroker() as broker:
        url = broker.url
    outcome = sievemq("send", "orders", "x", "--url", url)
    assert outcome.code == 1
    assert "refused" in outcome.err.lower()
    assert "--url or SIEVEMQ_URL" in outcome.err
    assert sievemq("send", "orders", "x", "--url", "http://localhost").code == 2


def test_credentials(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(users={"anna": "rosebud"}) as broker:
        monkeypatch.setenv("SIEVEMQ_URL", broker.url)
        outcome = sievemq("send", "orders", "x")
        assert outcome.code == 4
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "rosebud")
        assert sievemq("send", "orders", "x", "--user", "anna").code == 0
        monkeypatch.setenv("SIEVEMQ_PASSWORD", "wrong")
        refused = sievemq("send", "orders", "x", "--user", "anna")
        assert refused.code == 4
        assert "wrong" not in refused.err.replace("is wrong", "")
        address = broker.url.removeprefix("sievemq://")
        assert sievemq("receive", "orders", "-w", "0", "--url", f"sievemq://anna:rosebud@{address}").code == 0


def test_a_failed_batch_is_rolled_back(broker: EmbeddedBroker, sievemq: Sievemq) -> None:
    from sievemq_broker.domain.policy import DestinationPolicy

    def limit(b: object) -> None:
        b.namespace("default").queue("orders").policy = DestinationPolicy(max_messages=1_500)  # type: ignore[attr-defined]

    broker.call(limit)
    outcome = sievemq("send", "orders", "x", "--count", "2000")
    assert outcome.code == 1
    assert outcome.lines == ["1,000 messages sent to queue:orders"]
    with ConnectionFactory(broker.url).create_connection() as connection, connection.create_session() as session:
        browser = session.create_browser(session.create_queue("orders"))
        assert sum(1 for _ in browser.get_enumeration()) == 1_000
        assert session.get_acknowledge_mode() == Session.AUTO_ACKNOWLEDGE


def test_browsing_makes_no_queue(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    for made_on_first_use in (True, False):
        with EmbeddedBroker(settings={"auto_create": made_on_first_use}) as broker:
            monkeypatch.setenv("SIEVEMQ_URL", broker.url)
            done = sievemq("browse", "nosuch")
            assert (done.code, done.out) == (3, "")
            assert "queue:nosuch" in done.err
            assert broker.call(lambda b: list(b.namespace("default").destinations)) == []


@pytest.mark.parametrize("form", [[], ["--json"], ["-v"]])
def test_any_text_is_printed_whole(broker: EmbeddedBroker, sievemq: Sievemq, form: list[str]) -> None:
    """Half a surrogate pair is written as an escape, which JSON reads back; colours of its own are no noise."""
    text = "half \ud83d, \x1b[31mred\x1b[0m"
    with ConnectionFactory(broker.url).create_context() as context:
        context.create_producer().send(context.create_queue("orders"), text)
    done = sievemq("receive", "orders", *form)
    assert (done.code, done.err) == (0, "")
    if form == ["--json"]:
        assert json.loads(done.out)["body"] == text
    else:
        assert "half \\ud83d, \x1b[31mred\x1b[0m\n" in done.out


def test_send_reports_that_it_is_blocked(sievemq: Sievemq, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {"full": {"max_messages": 1, "at_limit": "block"}}
    with EmbeddedBroker(settings={"destinations": rules}) as broker:
        monkeypatch.setenv("SIEVEMQ_URL", f"{broker.url}?send_timeout=1")
        assert sievemq("send", "full", "a").code == 0
        outcome = sievemq("send", "full", "b")
        assert outcome.code == 1
        assert "waiting for room: queue:full is full; it may hold 1 message" in outcome.err
        assert "rolled back" in outcome.err
        assert sievemq("receive", "full", "-w", "0", "-n", "2").lines == ["a"]

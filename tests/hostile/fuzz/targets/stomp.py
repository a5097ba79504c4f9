"""Any bytes from a STOMP client: one connection at most ends, with ERROR, and what the broker says is in form."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.fuzz.targets import pieces, together
from tests.hostile.fuzz.test_session import NOW, Rim

from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.stomp import StompConnection
from sievemq_broker.protocols.stomp.frames import split

#: What a frame of the broker begins with.
COMMANDS = (b"CONNECTED\n", b"MESSAGE\n", b"RECEIPT\n", b"ERROR\n")
CONNECT = b"CONNECT\naccept-version:1.2,1.1\nhost:x\nheart-beat:1000,1000\n\n\0"

CONVERSATIONS = (
    (
        b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\nselector:n > 1 OR c = 'x'\nreceipt:s\n\n\0",
        b"SEND\ndestination:/queue/a\nn;type=int:5\ncontent-length:3\n\na\0b\0",
        b"SEND\ndestination:/queue/a\nc:x\npriority:9\npersistent:true\nexpires:1800000000000\n\ntext\0\n",
        b"ACK\nid:1-1\nreceipt:a\n\n\0", b"NACK\nid:1-2\nrequeue:false\n\n\0",
        b"UNSUBSCRIBE\nid:1\n\n\0", b"DISCONNECT\nreceipt:bye\n\n\0",
    ),
    (
        b"BEGIN\ntransaction:t\n\n\0", b"SEND\ndestination:/topic/t\ntransaction:t\ntype:j\n\nx\0",
        b"ACK\nid:2-1\ntransaction:t\n\n\0", b"COMMIT\ntransaction:t\nreceipt:c\n\n\0",
        b"BEGIN\ntransaction:u\n\n\0", b"ABORT\ntransaction:u\n\n\0",
    ),
    (
        b"SEND\ndestination:/queue/q\nreply-to:/temp-queue/r\nAMQ_SCHEDULED_DELAY:10\n\n\0",
        b"SUBSCRIBE\nid:2\ndestination:/temp-queue/r\nprefetch-count:1\n\n\0",
        b"SUBSCRIBE\nid:3\ndestination:/queue/q\nbrowser:true\n\n\0",
        b"SUBSCRIBE\nid:4\ndestination:/topic/t\ndurable-subscription-name:d\nno-local:true\n\n\0",
        b"SEND\ndestination:/queue/q\ntransformation:jms-map-json\n\n{\"n\": [1], \"s\": \"x\"}\0", b"\n\r\n\n",
    ),
)  # fmt: skip


def seeds() -> Iterator[bytes]:
    for version in (b"1.0", b"1.1", b"1.2"):
        connect = CONNECT.replace(b"1.2,1.1", version).replace(b"host:x", b"host:x\nclient-id:me")
        for conversation in CONVERSATIONS:
            yield together((connect, *conversation))
    yield together([CONNECT, b"".join(part for conversation in CONVERSATIONS for part in conversation)])
    yield together(bytes([byte]) for byte in CONNECT)
    yield together([b"STOMP\nhost:/a\nlogin:me@b\npasscode:p\nsievemq-types:infer\n\n\0", CONVERSATIONS[0][1]])
    for number in ("²", "٣", "9" * 5_000, "-1", "1e3"):
        text = number.encode()
        yield together([CONNECT, CONVERSATIONS[0][0], CONVERSATIONS[0][1], b"ACK\nid:1-" + text + b"\n\n\0"])
        for header in (b"content-length", b"priority", b"expires", b"AMQ_SCHEDULED_DELAY", b"n;type=long"):
            yield together([CONNECT, b"SEND\ndestination:/queue/a\n" + header + b":" + text + b"\n\nx\0"])
        yield together([CONNECT.replace(b"1000,1000", text + b"," + text)])


def run(data: bytes) -> None:
    """Each piece is what one read of the broker brings."""
    rim, broker = Rim(), Broker()
    bad, good = StompConnection(broker, rim), StompConnection(broker, rim)
    _feed(good, CONNECT, broker)
    said = b""
    for piece in pieces(data)[:200]:
        said += _feed(bad, piece, broker)
        bad.tick(NOW + 1)
    assert rim.faults == []
    for frame in split(said):  # what the broker says is always in form
        assert frame == b"\n" or (frame.startswith(COMMANDS) and frame.endswith(b"\0\n")), frame
    broker.due(NOW + 10_000)
    _work(broker)
    bad.lost(NOW)
    said = _feed(good, b"SEND\ndestination:/queue/z\nreceipt:r\n\nx\0", broker)
    assert said == b"RECEIPT\nreceipt-id:r\n\n\0\n", said
    assert rim.faults == []
    assert rim.connections == {good.peer.member.id: good.peer}


def _feed(connection: StompConnection, data: bytes, broker: Broker) -> bytes:
    """What the connection says to this."""
    connection.receive_data(data, NOW)
    said = b""
    for _ in range(10_000):
        if connection.closing and not connection.outbox.unread:
            return said
        if connection.behind:
            connection.catch_up(NOW)
        if connection.has_data:
            said += connection.data_to_send()
        elif not connection.behind:
            _work(broker)
            if not (connection.has_data or connection.behind):
                return said
    raise AssertionError("it never comes to rest")


def _work(broker: Broker) -> None:
    for _ in range(1_000):
        if not broker.work(NOW + 10_000):
            return
    raise AssertionError("the broker's work never ends")

"""Payloads to a broker's end behind a handshake: refused, fatal or carried out, but never a fault of the broker."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.fuzz.targets import pieces, together
from tests.hostile.fuzz.targets.vectors import frames, vectors
from tests.hostile.fuzz.test_session import NOW, OPENING, Rim, hello

from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import WireConnection, pack_frames


def seeds() -> Iterator[bytes]:
    opening = [pack(command) for command in OPENING]
    yield together(opening)
    for vector in vectors("client"):
        if vector["state"] == "open":
            payload = bytes.fromhex(vector["hex"])[4:]
            yield together([payload])
            yield together([*opening, payload])
    yield together(frame[4:] for frame in frames("client"))
    deep: object = None
    for _ in range(500):
        deep = (deep,)
    poison = (None, 0, 4, 1, 0, 0, None, None, None, None, None, 0, None)
    for bomb in (
        (Command.SEND, 1, 1, "q", (*poison, deep)),
        (Command.CLOCK_SEEN, deep),
        (Command.BROWSE, 9, "q", None, None, deep, 5),
        (Command.PUBLISH, 9, "k", 1, deep),
        (Command.OPEN_TAP, 9, "t", "q", "copy", None, None, {"start": deep}),
        (Command.PING, 9, deep),
    ):
        yield together([*opening, pack(bomb), pack((Command.BROWSE, 10, "q", None, None, None, 5))])


def run(data: bytes) -> None:
    """Each piece is the payload of a frame."""
    rim, broker = Rim(), Broker()
    good, good_client = SieveConnection(broker, rim), WireConnection("client")
    hello(good, good_client)
    bad, bad_client = SieveConnection(broker, rim), WireConnection("client")
    hello(bad, bad_client)
    for payload in pieces(data)[:50]:
        if payload:
            bad.receive_data(b"".join(pack_frames([payload])), NOW)
        assert rim.faults == []
        for heard in bad_client.receive_data(bad.data_to_send()):  # what the broker says is always legal and in form
            assert heard[0] == 0 or heard[0] >= 64
    broker.due(NOW + 10_000)
    for _ in range(1_000):
        if not broker.work(NOW + 10_000):
            break
    else:
        raise AssertionError("the broker's work never ends")
    bad.lost(NOW)
    assert rim.faults == []
    good.receive_data(b"".join(pack_frames([pack((Command.PING, 1))])), NOW)
    assert good_client.receive_data(good.data_to_send()) == [(Command.OK, 1, NOW)]
    assert rim.connections == {good.peer.member.id: good.peer}

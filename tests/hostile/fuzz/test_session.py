"""Well-formed commands in any order with any ids: refused, fatal or carried out, but never a fault of the broker."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.session.harness import open_consumer

from sievemq_broker.domain.broker import Broker
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.session import Identity, Peer, Services, SessionSettings
from sievemq_core.message.envelope import pack_properties
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command as Number
from sievemq_core.wire.connection import WireConnection, pack_frames

NOW = 1_700_000_000_000


class Rim(Services[Peer]):
    """Remembers every fault."""

    def __init__(self) -> None:
        super().__init__(SessionSettings(staged_bytes=5_000, max_sessions=4, max_consumers=4, outbox_high=2_000))
        self.faults: list[str] = []
        self._ids = 0

    def connection_id(self) -> str:
        self._ids += 1
        return f"c{self._ids}"

    def authenticate(self, peer: Peer, user: str | None, password: str | None, later: object) -> Identity:
        return Identity(user)

    def now(self) -> int:
        return NOW

    def report(self, peer: Peer, doing: str, error: BaseException) -> None:
        self.faults.append(f"{doing}: {error!r}")


small = st.integers(0, 4)
session_ids = st.sampled_from([1, 1, 1, 2, 3, 0, 2**40])
consumer_ids = st.sampled_from([1, 1, 1, 2, 3, 0, 2**32, 2**40])
numbers = st.one_of(small, small, st.integers(0, 2**64 - 1))
addresses = st.sampled_from(
    ["queue:q", "queue:q", "queue:q", "q", "topic:t", "topic:t", "temporary-queue:c2.1", "temporary-topic:c2.2",
     "temporary-queue:c1.1", "", " ", "queue:", "a\ud800"]
)  # fmt: skip
selectors = st.sampled_from(
    [None, None, "", "a = 1", "a > 'x'", "a =", "b LIKE 'x%' ESCAPE '\\'", "\ud800", "a" * 70_000]
)
dialects = st.sampled_from([None, "jakarta", "mqe", "none"])
names = st.sampled_from([None, None, "s", "s2", "", "x" * 300])
handed = st.one_of(
    st.just(()), st.lists(st.tuples(st.sampled_from([1, 1, 2, 9]), small), max_size=3).map(
        lambda pairs: tuple(n for pair in pairs for n in pair)
    ), st.lists(numbers, max_size=3).map(tuple),
)  # fmt: skip
anything = st.one_of(st.none(), numbers, st.text(max_size=3), st.integers(-5, 5), st.just((1, 2)), st.just({"a": 1}))
packed_properties = st.one_of(
    st.none(),
    st.sampled_from([{"a": 1}, {"a": "x", "b": "xy"}]).map(lambda p: pack_properties(p)[0]),
    st.binary(max_size=5),
)
times = st.sampled_from([0, 0, 0, NOW - 1, NOW + 1000, -5, 2**63])
envelopes = st.tuples(
    st.sampled_from([None, "ID:1"]), times, st.integers(0, 9), st.sampled_from([1, 2]), times, times,
    st.sampled_from([None, "c", b"c"]), st.sampled_from([None, "queue:r", "::"]), st.none(), packed_properties,
    st.sampled_from([None, None, "i", "zz"]), st.integers(0, 7), st.sampled_from([None, b"body", b"x" * 3000]),
)  # fmt: skip
booleans = st.booleans()


def command(number: int, *fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(number), *fields)


request = st.integers(0, 50)
COMMANDS = [
    command(Number.HEARTBEAT),
    command(Number.SET_CLIENT_ID, request, st.sampled_from(["me", "you", ""])),
    command(Number.PING, request),
    command(Number.OPEN_SESSION, request, session_ids, st.integers(0, 5)),
    command(Number.CLOSE_SESSION, request, session_ids, handed),
    command(
        Number.OPEN_CONSUMER, request, session_ids, consumer_ids, addresses, selectors, dialects, booleans, names,
        booleans, booleans, numbers,
    ),
    command(Number.CLOSE_CONSUMER, request, consumer_ids, small),
    command(Number.DECLARE, request, addresses),
    command(Number.CREATE_TEMPORARY, request, booleans),
    command(Number.DELETE_TEMPORARY, request, addresses),
    command(Number.UNSUBSCRIBE, request, names.map(lambda name: name or "")),
    command(Number.BROWSE, request, addresses, selectors, dialects, anything, numbers),
    command(Number.SEND, session_ids, st.integers(1, 6), addresses, envelopes),
    command(Number.ACKNOWLEDGE, consumer_ids, small, numbers),
    command(Number.ACKNOWLEDGE_ALL, request, session_ids, handed),
    command(Number.ACKNOWLEDGE_SEVERAL, handed),
    command(Number.CREDIT, consumer_ids, numbers),
    command(Number.WANT, request, consumer_ids),
    command(Number.RELEASE, consumer_ids, st.lists(numbers, max_size=3).map(tuple)),
    command(Number.RECOVER, request, session_ids, handed),
    command(Number.COMMIT, request, session_ids, handed),
    command(Number.ROLLBACK, request, session_ids, handed),
    command(Number.CLOCK_SEEN, anything),
    command(
        Number.OPEN_TAP, request, names.map(str), addresses, st.sampled_from(["copy", "drain", "drain", ""]), selectors,
        dialects, st.dictionaries(st.sampled_from(["start", "lease", "retain_messages", "x"]), st.one_of(
            st.sampled_from(["earliest", 1, 1000]), anything), max_size=2),
    ),
    command(Number.LOOK_TAP, request, names.map(str), addresses, numbers, numbers, numbers),
    command(Number.FETCH_TAP, request, names.map(str), addresses, st.sampled_from(["c2.1", "c2.2", ""]), numbers,
            numbers, numbers),
    command(Number.ACKNOWLEDGE_TAP, request, names.map(str), addresses, st.sampled_from(["c2.1", "c2.2", ""]), numbers),
    command(Number.DELETE_TAP, request, names.map(str), addresses),
    command(Number.STAGE, request, session_ids, names.map(str), small, st.sampled_from([0, 1000, 2**40])),
    command(Number.PUBLISH, request, names.map(str), small, st.one_of(anything, st.just(("c2.1",)))),
    command(Number.DISCARD, request, names.map(str), small),
    command(Number.FIND_DESTINATIONS, request, st.one_of(addresses, st.sampled_from(["queue:*", "queue:[", "x:y"]))),
    command(Number.GOODBYE, request, handed),
]  # fmt: skip
#: Who begins like this gets further than by chance alone.
OPENING = [
    (Number.OPEN_SESSION, 1, 1, 1),
    open_consumer(1, 1, credit=3, request=2),
    (Number.OPEN_SESSION, 3, 2, 0),
    open_consumer(2, 2, "topic:t", 3, request=4, subscription="s", shared=True),
    (Number.OPEN_TAP, 5, "s", "queue:q", "drain", None, None, {}),
]


def hello(connection: SieveConnection, client: WireConnection) -> None:
    client.send(Number.HELLO, 1, "", None, None, None, 0, "fuzz", None, {})
    connection.receive_data(client.data_to_send(), NOW)
    client.receive_data(connection.data_to_send())


@given(st.lists(st.one_of(COMMANDS), min_size=1, max_size=25), booleans, booleans)
@settings(max_examples=500)
def test_any_commands(said: list[tuple[Any, ...]], opening: bool, numbered: bool) -> None:
    rim, broker = Rim(), Broker()
    good, good_client = SieveConnection(broker, rim), WireConnection("client")
    hello(good, good_client)
    bad, bad_client = SieveConnection(broker, rim), WireConnection("client")
    hello(bad, bad_client)
    sequences: dict[int, int] = {}
    for each in [*OPENING, *said] if opening else said:
        one = each
        if numbered and one[0] == Number.SEND:
            sequences[one[1]] = sequences.get(one[1], 0) + 1
            one = (*one[:2], sequences[one[1]], *one[3:])
        bad.receive_data(b"".join(pack_frames([pack(one)])), NOW)
        assert rim.faults == []
        for heard in bad_client.receive_data(bad.data_to_send()):  # what the broker says is always legal and in form
            assert heard[0] >= 64
    broker.due(NOW + 10_000)
    while broker.work(NOW + 10_000):
        pass
    bad.lost(NOW)
    assert rim.faults == []
    good.receive_data(b"".join(pack_frames([pack((Number.PING, 1))])), NOW)
    assert good_client.receive_data(good.data_to_send()) == [(Number.OK, 1, NOW)]
    assert rim.connections == {good.peer.member.id: good.peer}

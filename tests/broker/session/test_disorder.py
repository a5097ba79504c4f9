"""Commands that come twice, in another order or not at all, as from a client with a fault: nobody else notices, and
every message is somewhere, once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DomainSettings
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import pack_frames

from ..domain.test_observer import Notes
from .harness import AUTO, TRANSACTED, Client, Consumer, World, envelope, open_consumer

#: What a client in order says: it sends, consumes, gives back, commits and closes.
SCRIPT: list[tuple[Any, ...]] = [
    (Command.OPEN_SESSION, 1, 1, AUTO),
    (Command.OPEN_SESSION, 2, 2, TRANSACTED),
    open_consumer(1, 1, credit=3, request=3),
    (Command.SEND, 1, 1, "queue:q", envelope("a")),
    (Command.SEND, 1, 2, "queue:q", envelope("b")),
    (Command.SEND, 1, 3, "queue:q", envelope("c")),
    (Command.ACKNOWLEDGE, 1, 1, 2),
    (Command.SEND, 2, 1, "queue:q", envelope("t1")),
    (Command.SEND, 2, 2, "queue:q", envelope("t2")),
    (Command.RELEASE, 1, (3,)),
    (Command.WANT, 4, 1),
    (Command.COMMIT, 5, 2, ()),
    (Command.CREDIT, 1, 5),
    open_consumer(2, 2, credit=3, request=6),
    (Command.SEND, 2, 3, "queue:q", envelope("t3")),
    (Command.ACKNOWLEDGE, 1, 4, 0),
    (Command.ROLLBACK, 7, 2, ()),
    (Command.RECOVER, 8, 1, (1, 5)),
    (Command.PING, 9),
    (Command.CLOSE_CONSUMER, 10, 1, 5),
    (Command.CLOSE_SESSION, 11, 2, ()),
    (Command.GOODBYE, 12, ()),
]

changes = st.lists(
    st.tuples(st.sampled_from(["again", "again", "swap", "drop"]), *[st.integers(0, len(SCRIPT) - 1)] * 2), max_size=5
)


def changed(script: list[tuple[Any, ...]], how: list[tuple[str, int, int]]) -> list[tuple[Any, ...]]:
    """The script with commands said once more, exchanged, or left out."""
    said = list(script)
    for what, first, second in how:
        at, other = first % len(said), second % len(said)
        if what == "again":
            said.insert(other, said[at])
        elif what == "swap":
            said[at], said[other] = said[other], said[at]
        elif len(said) > 1:
            del said[at]
    return said


@given(changes, st.booleans())
@example([], True)
@settings(max_examples=150, deadline=None)
def test_in_any_order_every_message_exists_once(how: list[tuple[str, int, int]], one_by_one: bool) -> None:
    notes = Notes()
    world = World(broker=Broker(DomainSettings(), observer=notes))
    other = world.client()
    odd = world.client()
    for number in (1, 2):
        odd.consumers[number] = Consumer(odd, number, number)
        odd.consumers[number].answers_recall = False
    frames = [b"".join(pack_frames([pack(command)])) for command in changed(SCRIPT, how)]
    for data in frames if one_by_one else [b"".join(frames)]:
        odd.raw(data)
    if odd.fatal is not None:
        assert odd.fatal[2] != ErrorCode.INTERNAL
    odd.drop()
    assert not world.services.reports
    assert list(world.services.connections) == [other.broker.peer.member.id]

    events = Counter(what for what, label, _ in notes.events if label == "queue:q")
    if not how:
        assert odd.fatal is None
        assert events["accepted"] == 5  # t3 was rolled back
        assert events["acknowledged"] > 0
    names = Counter(texts_of(other))
    queue = world.broker.namespace("").find("queue:q")
    depth = 0 if queue is None else world.broker.namespace("").queue("queue:q").depth
    assert depth == sum(names.values()) == events["accepted"] - events["acknowledged"]
    assert set(names.values()) <= {1}, "said twice, there twice"

    other.send(other.session(), "x", to="queue:mine")
    consumer = other.consumer(other.session(), "queue:mine")
    assert consumer.all() == ["x"]


def texts_of(client: Client) -> list[str]:
    """What waits on the queue that all is about."""
    return [text for _, text in client.browse("queue:q")]


@given(changes)
@settings(max_examples=100, deadline=None)
def test_a_resumed_connection_may_repeat_all_its_sends(how: list[tuple[str, int, int]]) -> None:
    """Those that were carried out are passed over, in whatever pieces they come twice."""
    world = World()
    client = world.client(keep=5_000)
    session = client.session()
    client.send(session, *"abcde")
    client.drop()
    new = Client(world)
    new.hello(resume=client.broker.peer.member.id, keep=5_000)
    new.ask(Command.OPEN_SESSION, session, AUTO, 0)
    for again in (first % 5 + 1 for _, first, _ in how):
        new.say(Command.SEND, session, again, "queue:q", envelope("abcde"[again - 1]))
    new.say(Command.SEND, session, 6, "queue:q", envelope("f"))
    assert new.fatal is None
    assert [text for _, text in new.browse()] == list("abcdef")

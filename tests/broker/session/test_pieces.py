"""A connection that has had its time goes on later, and nobody can tell, but by when it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sievemq_broker.matching import index
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import AUTO, TRANSACTED, Client, World, envelope, failing
from .test_resume import KEEP, reopen
from .test_rows import SEVERAL, STEPS, Play, texts


def often(pattern: list[bool]) -> Callable[[], bool]:
    """Says so again and again."""
    asked = 0

    def spent() -> bool:
        nonlocal asked
        asked += 1
        return pattern[asked % len(pattern)]

    return spent


def played(
    steps: list[tuple[Any, ...]], hello: dict[str, Any], spent: Callable[[], bool] | None, *, turn: int = 0
) -> list[object]:
    """What everybody sees after each step. Confirms say how far: it may be in one word or in several.

    Args:
        steps: of a :class:`Play`.
        hello: options of its clients.
        spent: as of the services.
        turn: units of pending work in each turn of the loop; 0: there is none before a step is over.
    """
    one, seen = Play(hello), []
    if turn:
        one.world.works, one.world.broker.scheduler.turn = True, turn
    if spent is not None:
        one.world.services.spent = spent
    for step in steps:
        one.act(step)
        while one.world.broker.work(one.world.now):  # what came back by itself is matched as pending work
            one.world.settle()
        one.world.settle()
        *others, heard, published, reports = one.seen()
        seen.append([*others, [confirmed(each) for each in heard], published, reports])  # type: ignore[attr-defined]
    return seen


def confirmed(heard: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    last = {command[1]: command for command in heard if command[0] == Command.CONFIRM}
    return [command for command in heard if command[0] != Command.CONFIRM or last[command[1]] == command]


@settings(max_examples=80)
@given(steps=STEPS, pattern=st.lists(st.booleans(), min_size=1, max_size=6), several=st.booleans())
def test_at_once_and_in_pieces_everybody_sees_the_same(
    steps: list[tuple[Any, ...]], pattern: list[bool], several: bool
) -> None:
    hello = SEVERAL if several else {}
    assert played(steps, hello, often(pattern)) == played(steps, hello, None)


@pytest.mark.needs_python("replaces a limit of the index")
@settings(max_examples=80)
@example(
    steps=[
        ("open", 0, False, "queue:q", None, False, 0), ("send", False, [("queue:q", {}, 2)]),
        ("open", 0, False, "queue:q", "n > 0", False, 2), ("send", False, [("queue:q", {}, 2)]), ("release", 1, 0),
    ],
    pattern=[False],
    several=False,
)  # fmt: skip
@given(steps=STEPS, pattern=st.lists(st.booleans(), min_size=1, max_size=6), several=st.booleans())
def test_selectors_evaluated_in_slices_change_no_result(
    steps: list[tuple[Any, ...]], pattern: list[bool], several: bool
) -> None:
    """Order of each subscriber, transactions, lost connections, redelivery: as if each message were matched at once.

    All consumers of a queue have one selector, and there are no WANTs: which of several consumers gets a message
    depends on when it is matched with their selectors.
    """
    hello = SEVERAL if several else {}
    selectors: dict[str, str] = {}
    for step in steps:
        if step[0] == "open" and step[4] is not None:
            selectors.setdefault(step[3], step[4])
    steps = [
        (*step[:4], selectors.get(step[3]), *step[5:]) if step[0] == "open" and step[3].startswith("queue:") else step
        for step in steps
        if step[0] != "want"
    ]
    expected = played(steps, hello, None)
    with in_pieces():
        assert played(steps, hello, often(pattern), turn=1) == expected
        assert played(steps, hello, lambda: True, turn=1) == expected


@pytest.mark.needs_python("replaces a limit of the index")
def test_a_want_gets_what_another_holds_where_selectors_are_evaluated_in_slices() -> None:
    steps: list[tuple[Any, ...]] = [
        ("open", 0, False, "queue:q", None, False, 5), ("open", 0, False, "queue:q", "n = 0", False, 0),
        ("send", False, [("queue:q", {}, 3)]), ("open", 1, False, "queue:q", None, False, 0), ("want", 2, 0),
    ]  # fmt: skip
    expected = played(steps, {}, None)
    assert "m1" in str(expected[-1][0][2])  # type: ignore[index]
    with in_pieces():
        assert played(steps, {}, lambda: True, turn=1) == expected


@contextmanager
def in_pieces() -> Iterator[None]:
    """Each selector is costly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "AT_ONCE", -1)
        patch.setattr(index.SelectorIndex, "_weigh", lambda self: setattr(self, "costly", True))
        yield


def late(world: World, *said: Callable[[Client, int], object]) -> tuple[Client, int]:
    """A client that has said several things at once, of which the first has been carried out."""
    client = world.client()
    session = client.session()
    for say in said:
        say(client, session)
    world.services.spent = lambda: True
    client.broker.receive_data(client.wire.data_to_send(), world.now)
    assert client.broker.behind
    return client, session


def sends(*names: str) -> Callable[[Client, int], None]:
    return lambda client, session: [client.queue_send(session, envelope(name)) for name in names].clear()


def test_completed_commands_are_confirmed_before_the_rest_runs(world: World) -> None:
    client, session = late(world, sends("a", "b", "c"))
    queue = world.broker.namespace("").queue("queue:q")
    assert queue.depth < 3
    first = queue.depth
    client.heard += client.wire.receive_data(client.broker.data_to_send())
    assert client.take(Command.CONFIRM) == [(Command.CONFIRM, session, first)]
    world.settle()
    assert client.take(Command.CONFIRM)[-1] == (Command.CONFIRM, session, 3)
    assert not client.broker.behind
    assert queue.depth == 3


def test_other_clients_are_served_between_slices(world: World) -> None:
    other = world.client()
    session = other.session()
    client, _ = late(world, sends("a", "b", "c"))
    other.queue_send(session, envelope("x"))
    other.exchange()
    queue = world.broker.namespace("").queue("queue:q")
    inside = [bytes(entry.envelope.fields[12]).decode() for entry in queue.main.waits(-1, 9)]
    assert inside[-1] == "x"
    assert inside[0] == "a"
    world.settle()
    inside = [bytes(entry.envelope.fields[12]).decode() for entry in queue.main.waits(-1, 9)]
    assert [text for text in inside if text != "x"] == ["a", "b", "c"]
    assert not client.broker.behind


def test_the_unread_rest_of_a_lost_late_link_is_dropped(world: World) -> None:
    client, _ = late(world, sends("a", "b", "c"))
    queue = world.broker.namespace("").queue("queue:q")
    before = queue.depth
    client.drop()
    assert not client.broker.behind
    client.broker.catch_up(world.now)
    assert queue.depth == before < 3


@pytest.mark.parametrize("half_dead", [True, False])
def test_a_resumed_client_repeats_the_rest_and_nothing_is_doubled(world: World, half_dead: bool) -> None:
    client = world.client(keep=KEEP)
    session = client.session()
    sends("a", "b", "c")(client, session)
    world.services.spent = lambda: True
    client.broker.receive_data(client.wire.data_to_send(), world.now)
    assert client.broker.behind
    done = world.broker.namespace("").queue("queue:q").depth
    client.reading = client.transport_open = half_dead
    if not half_dead:
        client.broker.lost(world.now)
    new = Client(world)
    new._ids = client._ids
    new.wire.send(Command.HELLO, 1, "", None, None, None, 0, "harness", client.broker.peer.member.id, {"keep": KEEP})
    new.exchange()  # before the old one has its turn
    assert new.take(Command.WELCOME)[0][7]["resumed"]["sessions"] == ((session, done, 0),)
    assert not client.broker.behind
    reopen(new, session, done)
    new.sends, new._sequences[session] = client.sends, 3
    new.go_on(session, done + 1)
    world.settle()
    assert new.browse() == [(1, "a"), (1, "b"), (1, "c")]


def test_a_broken_command_behind_others_ends_the_connection_behind_them(world: World) -> None:
    client, session = late(
        world,
        sends("a", "b"),
        lambda client, session: client.queue(Command.SEND, session, 77, "queue:q", envelope("far ahead")),
        sends("c"),
    )
    world.settle()
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND
    assert [text for _, text in world.client().browse()] == ["a", "b"]
    assert client.take(Command.CONFIRM)[-1] == (Command.CONFIRM, session, 2)
    assert not client.broker.behind


def test_a_fault_of_the_broker_while_it_catches_up_ends_this_connection_alone(world: World) -> None:
    client, _ = late(world, sends("a", "b", "c", "d", "e"))
    with failing(world.broker.namespace("").queue("queue:q")):
        world.settle()
    assert not client.transport_open
    assert not client.broker.behind
    assert [type(error) for _, error in world.services.reports] == [ZeroDivisionError]
    world.services.reports.clear()
    other = world.client()
    other.send(other.session(), "x")
    assert (1, "x") in other.browse()


def test_an_administrator_closes_it_and_the_rest_is_not_carried_out(world: World) -> None:
    client, _ = late(world, sends("a", "b", "c"))
    queue = world.broker.namespace("").queue("queue:q")
    before = queue.depth
    client.broker.close(ErrorCode.CLOSED_BY_ADMINISTRATOR, "enough", world.now)
    assert not client.broker.behind
    world.settle()
    assert queue.depth == before


def test_goodbye_follows_all_earlier_commands(world: World) -> None:
    client, _ = late(
        world, sends("a", "b", "c"), lambda client, session: client.queue(Command.GOODBYE, 99, client.handed(session))
    )
    world.settle()
    assert client.answer_to(99) is not None
    assert [text for _, text in world.client().browse()] == ["a", "b", "c"]


def test_a_commit_behind_its_sends_takes_all_of_them(world: World, client: Client) -> None:
    session = client.session(TRANSACTED)
    sends(*texts(*range(10)))(client, session)
    client.queue(Command.COMMIT, 99, session, ())
    world.services.spent = lambda: True
    world.settle()
    assert client.answer_to(99) is not None
    assert [text for _, text in world.client().browse()] == texts(*range(10))


def test_queued_commands_count_as_memory(world: World, client: Client) -> None:
    session = client.session()
    for _ in range(10):
        client.queue_send(session, envelope(body=b"x" * 10_000))
    world.services.spent = lambda: True
    data = client.wire.data_to_send()
    assert client.broker.unpublished == 0
    client.broker.receive_data(data, world.now)
    assert 0.6 * len(data) < client.broker.unpublished < len(data)
    world.settle()
    assert client.broker.unpublished == 0


@pytest.mark.parametrize(("subscribers", "longest"), [(10, 160), (300, 5), (400, 4)])
def test_a_row_to_many_subscribers_is_short(world: World, subscribers: int, longest: int) -> None:
    """The time is not checked while a batch is delivered."""
    reader = world.client(**SEVERAL)
    sessions = reader.session(AUTO)
    consumers = [reader.consumer(sessions, "topic:t", credit=1_000) for _ in range(subscribers)]
    client = world.client()
    session = client.session()
    for name in texts(*range(30)):
        client.queue_send(session, envelope(name), "topic:t")
    world.settle()
    assert all(consumer.all() == texts(*range(30)) for consumer in consumers)
    assert max(reader.rows) == min(longest, 30)

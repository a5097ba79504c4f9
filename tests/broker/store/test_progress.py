"""How far connections have come is in the store with the very messages that they sent: whenever connections are lost,
come back, and the broker is killed, what is resent is carried out once.

A turn's end is a call here, and so is a cut of the journal; between two cuts may be several turns, as there are while
the disk is busy.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.session.harness import AUTO, TRANSACTED, Client, World, envelope

from sievemq_broker.domain import Broker
from sievemq_broker.domain.journal import CONNECTION
from sievemq_broker.domain.publishing import AT_ONCE
from sievemq_broker.domain.restore import restore
from sievemq_broker.server.durability.progress import Progress
from sievemq_broker.session import Peer
from sievemq_core.wire.commands import Command

from .support import NOW, DictStore

KEEP = 600_000


class Life:
    """A broker over a store that keeps what is cut, until it is killed; one client that comes back whenever it is lost.

    The client is as suspicious as it may be: it takes for done only what it was told after a cut, and says all else
    again.
    """

    def __init__(self) -> None:
        self.store = DictStore()
        self.fed: dict[Peer, None] = {}
        self.lost: str | None = None
        self.resumed: Any = None
        self.begin()

    def begin(self) -> None:
        """The broker starts, with what was kept."""
        broker = Broker()
        restore(broker, self.store, NOW)
        self.world = World(broker=broker)
        assert broker.journal is not None
        self.journal = broker.journal
        self.progress = Progress(self.journal, self.world.services)
        self.world.services.note_progress = self.note  # type: ignore[method-assign]
        self.progress.restore(self.store, self.world.services.real + KEEP, broker)

    def connect(self, keep: int = KEEP) -> Client:
        """A client, or the one that was lost; to be remembered for so many ms once it is."""
        client = Client(self.world)
        client.hello(resume=self.lost, keep=keep)
        (welcome,) = client.take(Command.WELCOME)
        self.resumed = welcome[7]["resumed"]
        self.lost = client.broker.peer.member.id
        self.feed(client)
        return client

    def note(self, client: Peer) -> None:
        """A verb of its is complete: the rim notes it."""
        self.fed[client] = None

    def feed(self, client: Client) -> None:
        """It said something: the rim notes it."""
        self.fed[client.broker.peer] = None

    def cut(self) -> None:
        """What has come about is on disk, and may be told."""
        if self.journal.has_changes:
            self.progress.note(list(self.fed))
            if write := self.journal.cut():
                self.store.write(write, NOW)
                self.journal.written()
        self.fed.clear()

    def kill(self) -> None:
        """All that was not cut is gone."""
        self.fed.clear()
        self.begin()

    def texts(self) -> list[str]:
        """What is in the queue."""
        return [text for _, text in self.world.client().browse()]


def say(client: Client, session: int, numbers: range) -> None:
    """Say sends, with the sequences that they have."""
    for number in numbers:
        client.wire.send(Command.SEND, session, number, "queue:q", envelope(f"m{number}"))
    client.world.settle()


def lost_after_a_send() -> Life:
    """One send is on disk; another came, and then the connection was lost, before the next cut."""
    life = Life()
    client = life.connect()
    client.ask(Command.OPEN_SESSION, 1, AUTO)
    say(client, 1, range(1, 2))
    life.cut()
    say(client, 1, range(2, 3))
    life.feed(client)
    client.drop()
    return life


def test_commands_received_just_before_a_loss_are_counted() -> None:
    life = lost_after_a_send()
    life.cut()
    life.kill()
    again = life.connect()
    assert life.resumed["sessions"] == ((1, 2, 0),)
    again.ask(Command.OPEN_SESSION, 1, AUTO, 1)
    say(again, 1, range(2, 3))
    assert life.texts() == ["m1", "m2"]


def test_a_commit_just_before_the_loss_is_known_to_have_been_carried_out() -> None:
    life = Life()
    client = life.connect()
    client.ask(Command.OPEN_SESSION, 1, TRANSACTED)
    say(client, 1, range(1, 3))
    commit = client.request(Command.COMMIT, 1, ())
    life.feed(client)
    client.drop()
    life.cut()
    life.kill()
    life.connect()
    assert life.resumed["sessions"] == ((1, 2, commit),)
    assert life.texts() == ["m1", "m2"]


def test_a_resumed_connection_without_commands_keeps_its_progress() -> None:
    """The old link and the new one were fed before the cut; the record is the new one's."""
    life = lost_after_a_send()
    life.connect()
    life.cut()
    life.kill()
    life.connect()
    assert life.resumed["sessions"] == ((1, 2, 0),)


def test_a_client_that_says_goodbye_is_forgotten() -> None:
    life = Life()
    client = life.connect()
    client.ask(Command.OPEN_SESSION, 1, AUTO)
    say(client, 1, range(1, 2))
    life.cut()
    assert list(life.store.definitions(CONNECTION)) == [(life.lost,)]
    client.ask(Command.GOODBYE, ())
    life.feed(client)
    other = life.world.client()
    other.send(other.session(), "another")
    life.cut()
    assert not life.store.definitions(CONNECTION)


def test_a_resumed_client_that_gives_up_its_memory_is_forgotten() -> None:
    life = lost_after_a_send()
    life.cut()
    assert list(life.store.definitions(CONNECTION)) == [(life.lost,)]
    client = life.connect(keep=0)
    client.ask(Command.OPEN_SESSION, 1, AUTO, 2)
    say(client, 1, range(3, 4))
    life.cut()
    assert not life.store.definitions(CONNECTION)


STEPS = st.lists(
    st.sampled_from(["send", "send", "drop", "back", "open", "cut", "cut", "kill"]), min_size=30, max_size=60
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_after_any_events_each_send_exists_once(steps: list[str]) -> None:
    life = Life()
    client: Client | None = life.connect()
    opened = False
    sent = confirmed = 0
    for step in [*steps, "cut"]:
        if step == "cut":
            life.cut()
            confirmed = sent if opened else confirmed  # with an open session the CONFIRM for all of it goes out now
        elif step == "kill":
            life.kill()
            client, opened = None, False
        elif client is None:
            if step in ("back", "send", "open"):
                client = life.connect()
        elif step == "drop":
            client.drop()
            client, opened = None, False
        elif not opened:
            client.ask(Command.OPEN_SESSION, 1, AUTO, confirmed)
            say(client, 1, range(confirmed + 1, sent + 1))
            life.feed(client)
            opened = True
        elif step == "send":
            sent += 1
            say(client, 1, range(sent, sent + 1))
            life.feed(client)
    if not opened:
        client = client or life.connect()
        client.ask(Command.OPEN_SESSION, 1, AUTO, confirmed)
        say(client, 1, range(confirmed + 1, sent + 1))
    assert life.texts() == [f"m{number}" for number in range(1, sent + 1)]


def in_the_middle_of_a_large_commit() -> tuple[Life, Client, list[str]]:
    """One transaction is on disk; a large one has begun to be published, and others were written meanwhile."""
    life = Life()
    client = life.connect()
    client.ask(Command.OPEN_SESSION, 1, TRANSACTED)
    say(client, 1, range(1, 2))
    client.wire.send(Command.COMMIT, 50, 1, ())
    client.world.settle()
    life.feed(client)
    life.cut()
    say(client, 1, range(2, AT_ONCE + 3))
    client.wire.send(Command.COMMIT, 51, 1, ())
    client.world.settle()
    life.world.broker.work(NOW, 100)
    life.feed(client)
    life.cut()
    assert client.answer_to(51) is None
    return life, client, [f"m{number}" for number in range(1, AT_ONCE + 3)]


def test_a_large_commit_is_carried_out_anew_after_a_crash_in_its_middle() -> None:
    life, *_ = in_the_middle_of_a_large_commit()
    life.kill()
    life.connect()
    assert [settled for _, _, settled in life.resumed["sessions"]] == [50]  # not 51: nothing of it is there
    assert life.texts() == ["m1"]


def test_a_large_commit_is_known_as_carried_out_from_the_write_that_has_it() -> None:
    life, client, names = in_the_middle_of_a_large_commit()
    while client.answer_to(51) is None:
        life.world.broker.work(NOW, 100)
        client.world.settle()
        life.feed(client)
        life.cut()
    life.kill()
    life.connect()
    assert [settled for _, _, settled in life.resumed["sessions"]] == [51]
    assert life.texts() == names


def test_a_large_commit_whose_client_is_lost_is_known_as_carried_out_with_its_write() -> None:
    life, client, names = in_the_middle_of_a_large_commit()
    life.feed(client)
    client.drop()
    while life.world.broker.work(NOW, 100):
        life.cut()
    life.cut()
    life.kill()
    life.connect()
    assert [settled for _, _, settled in life.resumed["sessions"]] == [51]
    assert life.texts() == names

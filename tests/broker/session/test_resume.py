"""A connection that was lost and comes back: its WELCOME, its redeliveries, and what happens only once (D-32)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.policy import DestinationPolicy, DomainSettings
from sievemq_broker.session import SessionSettings
from sievemq_broker.session import lost as remembering
from sievemq_core.errors import ErrorCode
from sievemq_core.wire.commands import Command

from .harness import AUTO, CLIENT, TRANSACTED, Client, Consumer, World, envelope, open_consumer

KEEP = 5_000


def back(world: World, lost: Client, **hello: Any) -> tuple[Client, Any]:
    """The client comes back: its new end, and what WELCOME says under `resumed`."""
    new = Client(world)
    new._ids = lost._ids
    new.hello(resume=lost.broker.peer.member.id, keep=KEEP, **hello)
    welcome = new.take(Command.WELCOME)
    assert welcome, new.fatal
    return new, welcome[0][7]["resumed"]


def reopen(client: Client, session: int, sent: int, mode: int = AUTO) -> None:
    """Open a session again, as a client does that comes back."""
    client.ask(Command.OPEN_SESSION, session, mode, sent)
    client._sequences[session] = sent


def consume_again(client: Client, consumer: Consumer, *, credit: int = 10, tag: int = 100) -> Consumer:
    """Open a consumer again."""
    again = client.consumers[consumer.id] = Consumer(client, consumer.session, consumer.id)
    client.ask(open_consumer(consumer.session, consumer.id, credit=credit, tag=tag))
    return again


@pytest.fixture(params=["half dead", "dead"])
def loss(request: pytest.FixtureRequest) -> Any:
    """How the broker learns of the loss: from the new connection, or before."""

    def lose(client: Client) -> None:
        if request.param == "dead":
            client.drop()
        else:
            client.reading = False

    return lose


# -- sends ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(world: World) -> Client:
    """A client that may come back."""
    return world.client(keep=KEEP)


def test_resumption_reports_accepted_sends(world: World, client: Client, loss: Any) -> None:
    first, second = client.session(), client.session()
    client.send(first, "a", "b")
    loss(client)
    new, resumed = back(world, client)
    assert resumed == {"sessions": ((first, 2, 0), (second, 0, 0)), "refused": (), "temporaries": True}
    assert new.broker.peer.member.id == client.broker.peer.member.id


def test_repeated_commands_run_once(world: World, client: Client, loss: Any) -> None:
    session = client.session()
    client.send(session, "a", "b")
    loss(client)
    new, _ = back(world, client)
    reopen(new, session, sent=0)  # it has not even looked at what it was told
    new.send(session, "a", "b", "c")
    assert new.browse() == [(1, "a"), (1, "b"), (1, "c")]
    assert [c[2] for c in new.take(Command.CONFIRM)][-1] == 3


def test_blocked_sends_are_not_reported_as_accepted(world: World, client: Client) -> None:
    session = client.session()
    client.send(session, "a")
    world.services.flow("memory")
    client.send(session, "b", "c")
    client.drop()
    assert world.broker.rooms.bytes == 0
    new, resumed = back(world, client)
    assert resumed["sessions"] == ((session, 1, 0),)
    reopen(new, session, sent=1)
    assert new.take(Command.CONFIRM) == [(Command.CONFIRM, session, 1)]
    world.services.flow(None)
    new.sends, new._sequences[session] = client.sends, 3
    new.go_on(session, 2)
    world.settle()
    assert new.browse() == [(1, "a"), (1, "b"), (1, "c")]


def test_a_repeated_number_on_an_intact_connection_is_an_error(client: Client) -> None:
    session = client.session()
    client.send(session, "a")
    client.say(Command.SEND, session, 1, "queue:q", envelope("a"))
    assert client.fatal is not None
    assert client.fatal[2] == ErrorCode.UNEXPECTED_COMMAND


def test_a_gap_is_a_mistake_on_a_resumed_connection_too(world: World, client: Client) -> None:
    session = client.session()
    client.drop()
    new, _ = back(world, client)
    reopen(new, session, sent=0)
    new.say(Command.SEND, session, 2, "queue:q", envelope("b"))
    assert new.fatal is not None


def test_a_lost_refusal_is_repeated() -> None:
    world = World(broker=Broker(DomainSettings(policies=(("queue:q", DestinationPolicy(max_messages=1)),))))
    client = world.client(keep=KEEP)
    session = client.session()
    client.send(session, "a", "b", "c")
    client.drop()
    _, resumed = back(world, client)
    assert resumed["sessions"] == ((session, 3, 0),)
    assert [refusal[:3] for refusal in resumed["refused"]] == [
        (session, 2, ErrorCode.RESOURCE_ALLOCATION),
        (session, 3, ErrorCode.RESOURCE_ALLOCATION),
    ]


def test_lost_twice_before_it_has_opened_its_session_again(world: World, client: Client, loss: Any) -> None:
    session = client.session()
    client.send(session, "a")
    loss(client)
    between, _ = back(world, client)
    loss(between)
    _, resumed = back(world, between)
    assert resumed["sessions"] == ((session, 1, 0),)


# -- commits ----------------------------------------------------------------------------------------------------------


def test_resumption_reports_a_commit_whose_answer_was_lost(world: World, client: Client, loss: Any) -> None:
    session = client.session(TRANSACTED)
    client.send(session, "a")
    request = client.request(Command.COMMIT, session, ())
    loss(client)
    new, resumed = back(world, client)
    assert resumed["sessions"] == ((session, 1, request),)
    assert new.browse() == [(1, "a")]


def test_a_transaction_that_was_open_is_rolled_back(world: World, client: Client, loss: Any) -> None:
    session = client.session(TRANSACTED)
    client.send(session, "a")
    loss(client)
    new, resumed = back(world, client)
    assert resumed["sessions"] == ((session, 1, 0),)
    reopen(new, session, sent=1, mode=TRANSACTED)
    new.send(session, "b")
    new.commit(session)
    assert new.browse() == [(1, "b")]


def test_resumption_reports_an_acknowledgement_whose_answer_was_lost(world: World, client: Client, loss: Any) -> None:
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a")
    assert consumer.all() == ["a"]
    request = client.request(Command.ACKNOWLEDGE_ALL, consumer.session, (consumer.id, 1))
    loss(client)
    new, resumed = back(world, client)
    assert resumed["sessions"] == ((consumer.session, 1, request),)
    assert new.browse() == []


def test_a_commit_stays_known_over_a_second_loss(world: World, client: Client, loss: Any) -> None:
    session = client.session(TRANSACTED)
    request = client.request(Command.COMMIT, session, ())
    loss(client)
    between, _ = back(world, client)
    reopen(between, session, sent=0, mode=TRANSACTED)
    loss(between)
    _, resumed = back(world, between)
    assert resumed["sessions"] == ((session, 0, request),)


# -- deliveries -------------------------------------------------------------------------------------------------------


def test_d_32_unseen_messages_return_unmarked(world: World, client: Client, loss: Any) -> None:
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a", "b", "c")
    assert consumer.receive() == ["a"]
    loss(client)
    new, _ = back(world, client, handed=(consumer.id, 1))
    reopen(new, consumer.session, sent=3)
    assert consume_again(new, consumer).all() == ["a#2", "b", "c"]


def test_d_32_of_a_consumer_that_is_not_named_all_may_have_been_seen(world: World, client: Client, loss: Any) -> None:
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a", "b")
    loss(client)
    new, _ = back(world, client, handed=(consumer.id + 1, 0))
    reopen(new, consumer.session, sent=2)
    assert consume_again(new, consumer).all() == ["a#2", "b#2"]


def test_d_32_messages_given_to_another_consumer_stay_marked_there(world: World) -> None:
    client, other = world.client(keep=KEEP), world.client()
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a", "b", "c")
    client.drop()
    sibling = other.consumer(other.session(CLIENT), credit=1)
    assert sibling.all() == ["a#2"]
    new, _ = back(world, client, handed=(consumer.id, 0))
    reopen(new, consumer.session, sent=3)
    assert consume_again(new, consumer).all() == ["b", "c"]
    other.drop()
    new.world.settle()
    assert new.consumers[consumer.id].all() == ["a#3"]


def test_d_32_unmarked_also_where_a_redelivery_delay_was_running() -> None:
    policy = DestinationPolicy(redelivery_delay=60_000)
    world = World(broker=Broker(DomainSettings(policies=(("queue:q", policy),))))
    client = world.client(keep=KEEP)
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a", "b")
    assert consumer.receive() == ["a"]
    client.drop()
    new, _ = back(world, client, handed=(consumer.id, 1))
    reopen(new, consumer.session, sent=2)
    again = consume_again(new, consumer)
    assert again.all() == ["b"]
    world.later(60_000)
    assert again.all() == ["a#2"]


def test_a_redelivery_delay_that_a_return_has_cancelled_does_not_end_a_later_one() -> None:
    policy = DestinationPolicy(redelivery_delay=60_000)
    world = World(broker=Broker(DomainSettings(policies=(("queue:q", policy),))))
    client = world.client(keep=KEEP)
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a")
    client.drop()
    new, _ = back(world, client, handed=(consumer.id, 0))
    reopen(new, consumer.session, sent=1)
    again = consume_again(new, consumer)
    world.later(30_000)
    assert again.receive() == ["a"]
    new.recover(again.session)
    again.credit()
    world.later(30_001)
    assert again.all() == []
    world.later(30_000)
    assert again.all() == ["a#2"]


def test_d_32_a_message_that_was_only_buffered_can_be_lost_any_number_of_times(world: World, client: Client) -> None:
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a")
    for _ in range(20):  # the default policy makes a dead letter of what was handed out six times
        client.reading = False
        lost = client
        client, _ = back(world, lost, handed=(consumer.id, 0))
        reopen(client, consumer.session, sent=1)
        consumer = consume_again(client, consumer, tag=0)
    assert consumer.all() == ["a"]


def test_d_32_acknowledgements_that_were_lost_count(world: World, client: Client, loss: Any) -> None:
    consumer = client.consumer(client.session())
    client.send(consumer.session, "a", "b", "c")
    assert consumer.receive(2) == ["a", "b"]
    loss(client)
    new, _ = back(world, client, handed=(consumer.id, 2), done=(consumer.id, 1))
    reopen(new, consumer.session, sent=3)
    assert consume_again(new, consumer).all() == ["b#2", "c"]
    queue = world.broker.namespace("default").queue("queue:q")
    assert queue.acknowledged == 1


def test_reconnecting_acknowledges_nothing_in_a_transaction(world: World, client: Client) -> None:
    consumer = client.consumer(client.session(TRANSACTED))
    other = client.session()
    client.send(other, "a")
    assert consumer.all() == ["a"]
    client.reading = False
    new, _ = back(world, client, handed=(consumer.id, 1), done=(consumer.id, 1))
    assert new.browse() == [(2, "a")]


def test_delivery_tags_continue_and_old_ones_are_void(world: World, client: Client, loss: Any) -> None:
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a", "b")
    assert consumer.all() == ["a", "b"]
    loss(client)
    new, _ = back(world, client, handed=(consumer.id, 2))
    reopen(new, consumer.session, sent=2)
    again = consume_again(new, consumer, tag=100)
    new.say(Command.ACKNOWLEDGE, consumer.id, 2, 0)
    new.say(Command.RELEASE, consumer.id, (1, 2))
    assert [d.tag for d in again.deliveries] == [101, 102]
    assert again.all() == ["a#2", "b#2"]
    again.acknowledge()
    assert new.browse() == []
    queue = world.broker.namespace("default").queue("queue:q")
    assert (queue.delivered, queue.acknowledged) == (4, 2)


@pytest.mark.parametrize("tag", [2**62 + 1, 2**64 - 1])
def test_a_tag_that_leaves_no_room_is_refused(world: World, tag: int) -> None:
    client = world.client()
    session = client.session()
    code, _, _ = client.refused(open_consumer(session, 9, tag=tag))
    assert code == ErrorCode.ILLEGAL_STATE


def test_commands_for_closed_objects_are_skipped(world: World, client: Client, loss: Any) -> None:
    consumer = client.consumer(client.session(CLIENT))
    client.send(consumer.session, "a")
    loss(client)
    new, _ = back(world, client, ids=(consumer.session, consumer.id))
    new.say(Command.ACKNOWLEDGE, consumer.id, 1, 5)
    new.say(Command.RELEASE, consumer.id, (1,))
    new.say(Command.SEND, consumer.session, 2, "queue:q", envelope("b"))
    assert new.fatal is None
    assert new.browse() == [(2, "a")]


# -- temporary destinations, client ids -------------------------------------------------------------------------------


def test_tmp_05_temporary_destinations_survive_a_resumption(world: World, loss: Any) -> None:
    client, other = world.client(keep=KEEP), world.client()
    address = client.ask(Command.CREATE_TEMPORARY, False)
    loss(client)
    other.send(other.session(), "reply", to=address)
    new, _ = back(world, client)
    assert new.browse(address) == [(1, "reply")]
    assert new.consumer(new.session(), address).all() == ["reply"]
    further = new.ask(Command.CREATE_TEMPORARY, False)
    assert further != address


def test_tmp_06_temporary_destinations_of_a_lost_client_are_deleted_after_its_deadline(world: World) -> None:
    client, other = world.client(keep=KEEP), world.client()
    address = client.ask(Command.CREATE_TEMPORARY, False)
    client.drop()
    world.services.lost.expire(world.broker, world.now + KEEP - 1)
    assert other.ask(Command.DECLARE, address) is None
    world.services.lost.expire(world.broker, world.now + KEEP)
    world.broker.work(world.now)
    assert other.refused(Command.DECLARE, address)[0] == ErrorCode.INVALID_DESTINATION
    _, resumed = back(world, client)
    assert resumed is False


def test_tmp_06_temporary_destinations_of_a_client_without_resumption_are_deleted_at_once(world: World) -> None:
    client, other = world.client(), world.client()
    address = client.ask(Command.CREATE_TEMPORARY, False)
    client.drop()
    assert other.refused(Command.DECLARE, address)[0] == ErrorCode.INVALID_DESTINATION
    assert len(world.services.lost) == 0


@pytest.mark.parametrize("code", [ErrorCode.CLOSED_BY_ADMINISTRATOR, ErrorCode.MALFORMED_FRAME])
def test_closed_connections_are_not_remembered(world: World, client: Client, code: ErrorCode) -> None:
    client.broker.close(code, "the end", world.now)
    world.settle()
    assert len(world.services.lost) == 0


def test_goodbye_leaves_nothing_to_remember(world: World, client: Client) -> None:
    client.ask(Command.GOODBYE, ())
    assert len(world.services.lost) == 0


def test_con_11_the_client_id_is_free_while_the_connection_is_lost(world: World) -> None:
    client = world.client(keep=KEEP, client_id="me")
    client.drop()
    other = world.client(client_id="me")
    new = Client(world)
    new.hello(resume=client.broker.peer.member.id, client_id="me", keep=KEEP)
    assert new.fatal is not None
    assert new.fatal[2] == ErrorCode.INVALID_CLIENT_ID
    assert other.ask(Command.PING)


# -- another incarnation ----------------------------------------------------------------------------------------------


def test_a_broker_that_has_forgotten_everything_lets_it_keep_its_id() -> None:
    world = World(SessionSettings(incarnation="new"))
    client = Client(world)
    client.hello(resume="old-7", keep=KEEP)
    assert client.take(Command.WELCOME)[0][7]["resumed"] is False
    assert client.broker.peer.member.id == "old-7"
    address = "temporary-queue:old-7.3"
    assert client.ask(Command.CREATE_TEMPORARY, False, address) == address
    assert client.ask(Command.CREATE_TEMPORARY, False) == f"temporary-queue:old-7.{client._request}"
    reopen(client, 5, sent=40)
    client.send(5, "a", to=address)
    assert client.browse(address) == [(1, "a")]
    assert world.services.reports == []


@pytest.mark.parametrize("asked", ["new-7", "old 7", "old.7", "x" * 65, ""])
def test_a_malformed_id_is_not_kept(asked: str) -> None:
    world = World(SessionSettings(incarnation="new"))
    client = Client(world)
    client.hello(resume=asked)
    assert client.broker.peer.member.id == "c1"


@pytest.mark.parametrize(
    ("topic", "address"),
    [
        (True, "temporary-queue:old-7.3"),
        (False, "temporary-queue:old-8.3"),
        (False, "temporary-queue:old-7.x"),
        (False, "temporary-queue:old-7." + "9" * 19),
        (False, "queue:old-7.3"),
    ],
)
def test_only_the_owner_can_recreate_a_temporary_destination(topic: bool, address: str) -> None:
    world = World(SessionSettings(incarnation="new"))
    client = Client(world)
    client.hello(resume="old-7")
    client.take(Command.WELCOME)
    assert client.refused(Command.CREATE_TEMPORARY, topic, address)[0] == ErrorCode.INVALID_DESTINATION


def test_stored_progress_resumes_like_remembered_progress() -> None:
    world = World(SessionSettings(incarnation="one"))
    client = world.client(keep=KEEP)
    session = client.session()
    client.send(session, "a", "b")
    record = json.loads(json.dumps(client.broker.peer.member.remembers().to_mapping()))

    after = World(SessionSettings(incarnation="two"))
    after.services.lost.restore([record], after.now + KEEP, after.broker)
    _, resumed = back(after, client)
    assert resumed["sessions"] == ((session, 2, 0),)
    assert resumed["temporaries"] is False


# -- limits and nonsense ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [-1, "long", 2**40, None, True, [1]])
def test_a_lost_connection_is_kept_no_longer_than_the_limit(world: World, asked: Any) -> None:
    client = world.client(keep=asked)
    assert client.broker.peer.member.keep in (0, world.services.settings.keep_ms)


def test_the_one_lost_first_is_forgotten_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MAX_LOST", 2)
    clients = [world.client(keep=KEEP) for _ in range(3)]
    address = clients[0].ask(Command.CREATE_TEMPORARY, False)
    for client in clients:
        client.drop()
    assert len(world.services.lost) == 2
    world.broker.work(world.now)
    assert world.broker.namespace("default").find(address) is None
    assert back(world, clients[0])[1] is False
    assert back(world, clients[1])[1] is not False


@pytest.fixture
def guarded(world: World) -> World:
    world.services.users = {"anna": "a", "mallory": "m"}
    return world


ANNA: dict[str, Any] = {"user": "anna", "password": "a", "keep": KEEP}
MALLORY: dict[str, Any] = {"user": "mallory", "password": "m", "keep": KEEP}


def test_another_user_cannot_make_the_broker_forget_a_lost_connection(
    guarded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "MAX_LOST", 4)
    anna = guarded.client(**ANNA)
    session = anna.session()
    address = anna.ask(Command.CREATE_TEMPORARY, False)
    anna.send(session, "once")
    anna.drop()
    for _ in range(10):
        guarded.client(**MALLORY).drop()
    assert len(guarded.services.lost) == 4
    assert guarded.broker.namespace("default").find(address) is not None
    new, resumed = back(guarded, anna, user="anna", password="a")
    assert resumed["sessions"] == ((session, 1, 0),)
    reopen(new, session, 1)
    new.say(*anna.sends[session][0])  # the repeated send is not carried out twice
    assert new.browse() == [(1, "once")]


def test_another_user_cannot_keep_messages_marked(guarded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MAX_RETURNED", 5)
    anna = guarded.client(**ANNA)
    held = anna.consumer(anna.session(), "queue:anna")
    anna.send(held.session, "a", "b", to="queue:anna")
    anna.drop()
    for number in range(4):
        mallory = guarded.client(**MALLORY)
        other = mallory.consumer(mallory.session(), f"queue:m{number}")
        mallory.send(other.session, "x", "y", "z", to=f"queue:m{number}")
        mallory.drop()
    new, _ = back(guarded, anna, user="anna", password="a", handed=(held.id, 0))
    assert new.browse("queue:anna") == [(1, "a"), (1, "b")]


def test_marks_are_taken_back_for_a_bounded_number_of_messages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MAX_RETURNED", 3)
    first, second = world.client(keep=KEEP), world.client(keep=KEEP)
    one, two = first.consumer(first.session(), "queue:one"), second.consumer(second.session(), "queue:two")
    first.send(one.session, "a", "b", to="queue:one")
    second.send(two.session, "c", "d", to="queue:two")
    first.drop()
    second.drop()
    for lost, consumer, queue, count in ((first, one, "queue:one", 2), (second, two, "queue:two", 1)):
        new, _ = back(world, lost, handed=(consumer.id, 0))
        assert {n for n, _ in new.browse(queue)} == {count}


@pytest.mark.parametrize(
    "said",
    [
        {"handed": 5},
        {"handed": (1,)},
        {"handed": ("a", "b")},
        {"done": (1, 2, 3)},
        {"ids": (1,)},
        {"ids": "ab"},
        {"failed": 5},
        {"failed": (1, 0)},
        {"failed": (1, 0, "a")},
        {"failed": (1, 9, 5)},
        {"failed": (-1, -1, 2**60)},
    ],
)
def test_nonsense_in_the_options_does_no_harm(world: World, client: Client, said: dict[str, Any]) -> None:
    consumer = client.consumer(client.session())
    client.send(consumer.session, "a")
    client.reading = False
    new, _ = back(world, client, **said)
    assert new.browse() == [(2, "a")]


def test_no_other_client_resumes_the_connection(world: World) -> None:
    client = world.client(keep=KEEP, user="ann", namespace="n")
    client.drop()
    for more in ({"user": "bob", "namespace": "n"}, {"user": "ann"}):
        other = Client(world)
        other.hello(resume=client.broker.peer.member.id, **more)
        assert other.take(Command.WELCOME)[0][7]["resumed"] is False
        assert other.broker.peer.member.id != client.broker.peer.member.id
    new, resumed = back(world, client, user="ann", namespace="n")
    assert resumed is not False
    assert new.broker.peer.member.id == client.broker.peer.member.id

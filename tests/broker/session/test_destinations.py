"""DECLARE, temporary destinations, UNSUBSCRIBE, BROWSE, subscriptions as the session layer passes them on."""

from __future__ import annotations

import pytest

from sievemq_broker.domain.work import Budget
from sievemq_broker.session import SessionSettings
from sievemq_broker.session.handlers.destinations import _find
from sievemq_broker.session.rights import Grant, Identity, Rights, Verb
from sievemq_broker.session.table import CHECKS
from sievemq_broker.session.verbs import Declare
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.message.envelope import Envelope
from sievemq_core.wire.commands import Command

from .harness import Client, World, open_consumer


def test_declare_creates_missing_destinations(world: World, client: Client) -> None:
    client.ask(Command.DECLARE, "queue:new")
    assert "queue:new" in world.broker.namespace("").destinations


@pytest.mark.parametrize(
    "address", ["", "queue:", "topic: x", "temporary-topic:nobody.7", "queue:" + "x" * 513, "a\x00"]
)
def test_declare_refuses_invalid_destinations(world: World, address: str) -> None:
    assert world.client().refused(Command.DECLARE, address)[0] == ErrorCode.INVALID_DESTINATION


def test_declare_without_the_right_to_send_is_refused(world: World) -> None:
    connection = world.client().broker.peer
    connection.member.identity = Identity("ann", Rights([Grant(frozenset({Verb.SEND}), "queue:mine")]))
    declare = CHECKS[Command.DECLARE]
    with pytest.raises(RequestError, match="user 'ann' must not send to queue:other") as refused:
        declare(connection, Declare(request=1, destination="queue:other"))
    assert refused.value.code is ErrorCode.SECURITY
    declare(connection, Declare(request=2, destination="queue:mine"))


# -- by pattern --------------------------------------------------------------------------------------------------------


def test_destinations_are_found_by_pattern(client: Client) -> None:
    for name in ("queue:a.1", "queue:a.2", "queue:b", "topic:a.1", "queue:a.[x]", "queue:DLQ.a.1"):
        client.ask(Command.DECLARE, name)
    client.ask(Command.CREATE_TEMPORARY, False)

    def found(pattern: str) -> list[str]:
        return sorted(client.ask(Command.FIND_DESTINATIONS, pattern))

    assert found("queue:a.?") == ["queue:a.1", "queue:a.2"]
    assert found("a.*") == ["queue:a.1", "queue:a.2", "queue:a.[x]"]
    assert found("topic:*") == ["topic:a.1"]
    assert found("queue:a.[12]") == ["queue:a.1", "queue:a.2"]
    assert found("queue:[") == found("queue:A.*") == []
    assert len(found("queue:*")) == 5
    for wrong in ("x:y\0", "temporary-queue:*", "temporary-topic:*"):
        assert client.refused(Command.FIND_DESTINATIONS, wrong)[0] == ErrorCode.INVALID_DESTINATION


def test_a_user_finds_what_it_may_browse_or_consume(world: World, client: Client) -> None:
    for name in ("queue:browse", "queue:consume", "queue:send", "queue:other"):
        client.ask(Command.DECLARE, name)
    ann = world.client()
    grants = [Grant(frozenset({verb}), f"queue:{verb.value}") for verb in (Verb.BROWSE, Verb.CONSUME, Verb.SEND)]
    ann.broker.peer.member.identity = Identity("ann", Rights(grants))
    assert sorted(ann.ask(Command.FIND_DESTINATIONS, "queue:*")) == ["queue:browse", "queue:consume"]


def test_a_search_of_many_destinations_takes_several_turns(world: World, client: Client) -> None:
    for number in range(3_000):
        world.broker.namespace("").declare(f"queue:{number}")
    world.works = True
    ask = client.request(Command.FIND_DESTINATIONS, "queue:1*")
    ping = client.request(Command.PING)
    world.settle()
    assert world.broker.scheduler.turn < 3_000 // 4
    assert len(client.answer_to(ask)[2]) == 1_111
    assert client.answer_to(ping) is not None
    assert world.broker.scheduler.overrun < 10


def test_a_long_pattern_and_long_names_take_more_of_a_turn(world: World, client: Client) -> None:
    for number in range(100):
        world.broker.namespace("").declare(f"queue:{'a' * 500}{number}")
    search = _find(client.broker.peer, f"queue:*{'a' * 250}b", world.now, Budget())
    assert sum(1 for _ in search) > 0


def test_a_pattern_that_fits_too_many_is_refused(world: World, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sievemq_broker.session.handlers.destinations._MOST_FOUND", 2)
    for name in "abc":
        client.ask(Command.DECLARE, f"queue:{name}")
    code, text, details = client.refused(Command.FIND_DESTINATIONS, "queue:*")
    assert (code, details["limit"]) == (ErrorCode.RESOURCE_ALLOCATION, "found")
    assert "queue:* fits more than 2 destinations" in text
    assert len(client.ask(Command.FIND_DESTINATIONS, "queue:[ab]")) == 2


# -- temporary destinations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [False, True])
def test_tmp_01_temporary_destinations_are_unique_and_named_after_their_connection(world: World, topic: bool) -> None:
    one, two = world.client(), world.client()
    made = {client.ask(Command.CREATE_TEMPORARY, topic) for client in (one, one, two)}
    assert len(made) == 3
    prefix = "temporary-topic" if topic else "temporary-queue"
    assert {address.rpartition(".")[0] for address in made} == {f"{prefix}:c1", f"{prefix}:c2"}


def test_tmp_02_03_04_rights_to_consume_and_to_send(world: World) -> None:
    owner, other = world.client(), world.client()
    address = owner.ask(Command.CREATE_TEMPORARY, False)
    code, _, _ = other.refused(open_consumer(other.session(), 50, address))
    assert code == ErrorCode.INVALID_DESTINATION
    owner.session()
    consumer = owner.consumer(owner.session(), address)  # any session of the connection
    other.send(other.session(), "reply", to=address)
    assert consumer.all() == ["reply"]


def test_tmp_10_no_durable_subscription_to_a_temporary_topic(world: World) -> None:
    client = world.client(client_id="me")
    address = client.ask(Command.CREATE_TEMPORARY, True)
    durable = open_consumer(client.session(), 50, address, subscription="s", durable=True)
    assert client.refused(durable)[0] == ErrorCode.INVALID_DESTINATION


def test_too_many_temporary_destinations() -> None:
    client = World(SessionSettings(max_temporaries=2)).client()
    first = client.ask(Command.CREATE_TEMPORARY, False)
    client.ask(Command.CREATE_TEMPORARY, True)
    assert client.refused(Command.CREATE_TEMPORARY, False)[0] == ErrorCode.RESOURCE_ALLOCATION
    client.ask(Command.DELETE_TEMPORARY, first)
    client.ask(Command.CREATE_TEMPORARY, False)


# -- subscriptions ----------------------------------------------------------------------------------------------------


def test_sub_12_a_durable_subscription_collects_while_its_connection_is_away(world: World) -> None:
    client = world.client(client_id="me")
    client.consumer(client.session(), "topic:t", subscription="s", durable=True)
    client.ask(Command.GOODBYE, ())
    other = world.client()
    other.send(other.session(), "a", to="topic:t")
    back = world.client(client_id="me")
    assert back.consumer(back.session(), "topic:t", subscription="s", durable=True).all() == ["a"]


def test_ses_27_unsubscribe(world: World) -> None:
    """SUB-24, SUB-25, SUB-26, SUB-27."""
    client, stranger = world.client(client_id="me"), world.client(client_id="other")
    session = client.session(2)
    consumer = client.consumer(session, "topic:t", subscription="s", durable=True)
    client.send(session, "a", to="topic:t")
    assert consumer.all() == ["a"]
    assert stranger.refused(Command.UNSUBSCRIBE, "s")[0] == ErrorCode.INVALID_DESTINATION
    assert client.refused(Command.UNSUBSCRIBE, "s")[0] == ErrorCode.SUBSCRIPTION_IN_USE
    consumer.close()
    assert client.refused(Command.UNSUBSCRIBE, "s")[0] == ErrorCode.SUBSCRIPTION_IN_USE
    client.ask(Command.ACKNOWLEDGE_ALL, session, client.handed(session))
    client.ask(Command.UNSUBSCRIBE, "s")
    assert client.refused(Command.UNSUBSCRIBE, "s")[0] == ErrorCode.INVALID_DESTINATION


# -- browsing ---------------------------------------------------------------------------------------------------------


def test_brw_03_04_browsing_shows_delivery_order_and_changes_nothing(client: Client) -> None:
    session = client.session()
    for text, priority in (("b", 4), ("a", 9), ("c", 4), ("d", 4), ("e", 0)):
        client.send(session, text, priority=priority)
    expected = [(1, text) for text in "abcde"]
    assert client.browse() == client.browse() == expected
    assert client.consumer(session).all() == list("abcde")


def test_brw_05_with_a_selector(client: Client) -> None:
    session = client.session()
    for n in range(20):
        client.send(session, str(n), properties={"n": n})
    assert client.browse(selector="n BETWEEN 5 AND 9") == [(1, str(n)) for n in range(5, 10)]


@pytest.mark.parametrize(
    ("destination", "selector", "dialect", "cursor", "code"),
    [
        ("topic:t", None, None, None, ErrorCode.INVALID_DESTINATION),  # BRW-12
        ("", None, None, None, ErrorCode.INVALID_DESTINATION),
        ("queue:q", "a >", None, None, ErrorCode.INVALID_SELECTOR),
        ("queue:q", None, "x", None, ErrorCode.INVALID_SELECTOR),
        ("queue:q", None, None, "cursor", ErrorCode.ILLEGAL_STATE),
        ("queue:q", None, None, -3, ErrorCode.ILLEGAL_STATE),
        ("queue:q", None, None, True, ErrorCode.ILLEGAL_STATE),
        ("queue:q", None, None, {"a": (1,)}, ErrorCode.ILLEGAL_STATE),
    ],
)
def test_browsing_refuses_invalid_destinations(
    client: Client, destination: str, selector: str | None, dialect: str | None, cursor: object, code: ErrorCode
) -> None:
    assert client.refused(Command.BROWSE, destination, selector, dialect, cursor, 10)[0] == code


def test_a_limit_of_0_only_verifies(client: Client) -> None:
    assert client.ask(Command.BROWSE, "queue:q", None, None, None, 0) == (None,)
    client.send(client.session(), "a")
    assert client.ask(Command.BROWSE, "queue:q", None, None, None, 0) == (0,)  # a cursor: the queue is there
    assert client.refused(Command.BROWSE, "topic:t", None, None, None, 0)[0] == ErrorCode.INVALID_DESTINATION


def test_browsing_a_queue_that_is_not_there_names_similar_ones_that_the_user_may_browse(world: World) -> None:
    for name in ("orders", "order", "orders.eu", "ordres.us", "prices", "secret-ordrs"):
        world.broker.namespace("").create(f"queue:{name}")
    world.broker.namespace("").create("topic:ordrs")
    client = world.client()
    asked = (Command.BROWSE, "queue:ordrs", None, None, None, 0)
    assert client.ask(*asked) == (None, "queue:orders", "queue:order")
    client.broker.peer.member.identity = Identity("ann", Rights([Grant(frozenset({Verb.BROWSE}), "queue:orders")]))
    assert client.ask(*asked) == (None, "queue:orders")
    assert client.ask(*asked[:-1], 10) == (None,)  # a page holds messages only
    assert "queue:ordrs" not in world.broker.namespace("").destinations


def test_a_page_is_limited_by_the_broker_too() -> None:
    client = World(SessionSettings(page_messages=2)).client()
    client.send(client.session(), "a", "b", "c")
    cursor, *page = client.ask(Command.BROWSE, "queue:q", None, None, None, 1_000_000)
    assert len(page) == 2
    assert cursor is not None
    assert len(client.browse()) == 3


def test_pages_of_large_messages_end_early(client: Client) -> None:
    session = client.session()
    for _ in range(5):
        client.send(session, "x", body=b"y" * 400_000)
    _, *page = client.ask(Command.BROWSE, "queue:q", None, None, None, 100)
    assert len(page) == 3
    assert len(client.browse()) == 5


def test_browsing_waits_for_a_client_that_does_not_read(world: World, client: Client) -> None:
    session = client.session()
    for _ in range(4):
        client.send(session, "x", body=b"y" * 1_000_000)
    client.reading = False
    client.heard.clear()
    browse = ("queue:q", None, None, None, 100)
    for _ in range(100):
        client.queue(Command.BROWSE, 7, *browse)
    world.settle()
    assert client.broker.wire.pending_bytes < 70 * 1024 * 1024
    client.reading = True
    world.settle()
    assert {c[0] for c in client.heard} == {Command.OK, Command.ERROR}
    client.heard.clear()
    client.ask(Command.BROWSE, *browse)


def test_a_queue_is_browsed_in_parts(client: Client) -> None:
    client.send(client.session(), *(f"m{n}" for n in range(40)))
    browse = (Command.BROWSE, "queue:q", None, None, None)
    assert client.ask(*browse, 0, 0, 1)[1:] == (40,)
    assert len(client.ask(*browse, 0)) == 1
    parts = [client.ask(*browse, 100, part, 2)[1:] for part in range(2)]
    rows = sorted((place, Envelope(fields).fields[12].decode()) for page in parts for _, fields, place in page)
    assert [text for _, text in rows] == [f"m{n}" for n in range(40)]
    assert all(parts)
    assert client.ask(Command.BROWSE, "queue:none", None, None, None, 0, 0, 1) == (None,)
    code, text, _ = client.refused(*browse, 100, 2, 2)
    assert (code, text) == (ErrorCode.ILLEGAL_STATE, "there is no part 2 of 2: parts count from 0")

"""Which host is tried when, and which error counts (D-44)."""

from __future__ import annotations

import pytest

from sievemq import (
    InvalidClientIDException,
    InvalidURLException,
    JMSException,
    JMSSecurityException,
    Queue,
    TextMessage,
)
from sievemq._engine import EngineProducer, Host, Race
from sievemq_broker.protocols.sieve import SieveConnection

from .harness import World

HOSTS: list[Host] = [(0, ("a", 1)), (1, ("b", 2)), (2, ("c", 3))]
REFUSED = JMSException("Connection refused", "CONNECTION_FAILED", OSError("refused"))
BAD = JMSException("TLS: bad", "TLS", OSError("bad"))
NO_NAME = InvalidURLException("'a..b' is not the name of a host")
WRONG = JMSSecurityException("user name or password is wrong", "AUTHENTICATION")


def begun(race: Race, now: int) -> list[int]:
    found = []
    while (host := race.next(now)) is not None:
        found.append(host[0])
    return found


@pytest.mark.parametrize("patience", [None, 5_000, 100_000])
def test_a_silent_host_costs_a_fraction_of_the_time(patience: int | None) -> None:
    race = Race(HOSTS, 1_000, 6_000, patience)
    now, times = 1_000, {}
    while not race.is_over(now):
        for number in begun(race, now):
            times[number] = now - 1_000
        assert 0 < race.wait(now) <= 5_000
        now += race.wait(now)
    assert now == 6_000
    assert list(times) == [0, 1, 2]
    assert 0 < times[1] <= 5_000 // 4
    assert times[1] < times[2] <= 5_000 // 2


def test_a_lead_is_short_where_the_time_is_long() -> None:
    race = Race(HOSTS, 0, 86_400_000)
    assert begun(race, 0) == [0]
    assert race.wait(0) == 2_000


def test_leads_are_fractions_of_the_patience_where_a_round_may_take_longer() -> None:
    race = Race(HOSTS[:2], 0, 10_000, 400)
    assert begun(race, 0) == [0]
    assert race.wait(0) == 100
    assert begun(race, 100) == [1]
    assert not race.is_over(400)


def test_a_host_that_fails_is_followed_at_once() -> None:
    race = Race(HOSTS, 0, 10_000)
    assert begun(race, 0) == [0]
    race.failed(0, REFUSED)
    assert begun(race, 1) == [1]
    assert begun(race, 1) == []
    race.failed(1, REFUSED)
    assert begun(race, 2) == [2]
    assert not race.is_over(2)
    race.failed(2, REFUSED)
    assert race.is_over(2)


def test_an_overtaken_host_that_fails_does_not_hurry_the_others() -> None:
    race = Race(HOSTS, 0, 10_000)
    assert begun(race, 0) == [0]
    assert begun(race, 2_000) == [1]
    race.failed(0, REFUSED)
    assert begun(race, 2_001) == []


def error_of(*errors: JMSException | None) -> JMSException:
    race = Race(HOSTS[: len(errors)], 0, 100)
    for number, error in enumerate(errors):
        assert race.next(99) is not None or error is None or number
        if error is not None:
            race.failed(number, error)
    return race.error()


@pytest.mark.parametrize(
    ("errors", "kind", "code", "text"),
    [
        ((REFUSED,), JMSException, "CONNECTION_FAILED", "no broker could be reached: a:1: Connection refused"),
        ((None,), JMSException, "CONNECTION_FAILED", "no broker could be reached: a:1: no answer in time"),
        ((REFUSED, None), JMSException, "CONNECTION_FAILED", "a:1: Connection refused; b:2: no answer in time"),
        ((BAD,), JMSException, "TLS", "a:1: TLS: bad"),
        ((BAD, BAD), JMSException, "TLS", "b:2: TLS: bad"),
        ((BAD, REFUSED), JMSException, "CONNECTION_FAILED", "a:1: TLS: bad; b:2: Connection refused"),
        ((NO_NAME, NO_NAME), InvalidURLException, None, "a..b"),
        ((NO_NAME, BAD), JMSException, "TLS", "a..b"),
        ((NO_NAME, REFUSED), JMSException, "CONNECTION_FAILED", "a..b"),
        ((WRONG,), JMSSecurityException, "AUTHENTICATION", "password"),
        ((REFUSED, WRONG), JMSSecurityException, "AUTHENTICATION", "password"),
        ((InvalidClientIDException("in use", "INVALID_CLIENT_ID"), WRONG), InvalidClientIDException, None, "in use"),
    ],
)
def test_the_error_names_each_host_and_a_brokers_answer_counts_most(
    errors: tuple[JMSException | None, ...], kind: type[Exception], code: str | None, text: str
) -> None:
    error = error_of(*errors)
    assert type(error) is kind
    assert text in str(error)
    if code is not None:
        assert error.get_error_code() == code


@pytest.mark.parametrize(
    ("errors", "hopeless", "refused"),
    [
        ((BAD, REFUSED), False, False),
        ((BAD, BAD), True, False),
        ((NO_NAME, BAD), True, False),
        ((WRONG, REFUSED), False, False),
        ((WRONG, BAD), True, True),
        ((WRONG, WRONG), True, True),
    ],
)
def test_one_host_that_may_welcome_the_client_later_keeps_hope(
    errors: tuple[JMSException, ...], hopeless: bool, refused: bool
) -> None:
    race = Race(HOSTS[: len(errors)], 0, 100)
    for number, error in enumerate(errors):
        race.next(0)
        race.failed(number, error)
    assert race.is_hopeless is hopeless
    assert race.refusal is (WRONG if refused else None)


@pytest.mark.parametrize("lost_again", [False, True])
def test_a_hello_that_arrives_late_does_not_end_its_successor(lost_again: bool) -> None:
    """Two addresses of one broker: the client was welcomed at the second, then its HELLO to the first arrives. Acting
    on what that says of consumers would acknowledge messages that no application has seen."""
    world = World()
    memory = world.connect(reconnect=60_000)
    session, sending = world.session(memory), world.session(memory)
    consumer = world.consumer(session)
    EngineProducer(sending, Queue("q")).send(TextMessage("one"), Queue("q"))
    world.settle()
    assert world.receive(consumer) is not None
    memory.drop(world.clock.now)
    late = memory.engine.hello()
    memory.reopen()
    world.settle()
    EngineProducer(sending, Queue("q")).send(TextMessage("two"), Queue("q"))
    world.settle()
    if lost_again:
        memory.drop(world.clock.now)
    broker = SieveConnection(world.broker, world.services, address="memory")
    broker.receive_data(late.data_to_send(), world.clock.now)
    late.receive_data(broker.data_to_send())
    assert "has reconnected on another connection since" in str(late.error)
    broker.lost(world.clock.now)
    if lost_again:
        memory.reopen()
        world.settle()
    assert memory.engine.outages == 1 + lost_again
    message = world.receive(consumer)
    assert message.get_text() == "two"
    assert not message.get_jms_redelivered()


# -- redirects --------------------------------------------------------------------------------------------------------


def redirect(url: object) -> JMSException:
    return JMSException("it is elsewhere", "REDIRECT", details={"url": url})


def test_a_host_that_a_redirect_names_is_tried_at_once_in_its_place() -> None:
    race = Race(HOSTS, 0, 100_000)
    assert race.next(0) == (0, ("a", 1))
    race.failed(0, redirect("sievemq://owner:5/x?prefetch=1"))
    assert race.wait(1) == 0
    assert race.next(1) == (0, ("owner", 5))
    assert race.next(1) is None, "the others keep their distance"
    race.failed(0, WRONG)
    assert race.next(2) == (1, ("b", 2))
    for number in (1, 2):
        race.next(50_000)
        race.failed(number, REFUSED)
    assert race.error() is WRONG


def test_a_silent_owner_does_not_keep_the_client_from_the_next_one() -> None:
    """The machine of the owner is lost, and another broker takes over meanwhile."""
    race = Race(HOSTS[:1], 0, 10_000)
    assert race.next(0) == (0, ("a", 1))
    race.failed(0, redirect("sievemq://lost:5"))
    assert race.next(10) == (0, ("lost", 5))
    assert race.wait(10) == 2_000
    assert race.next(2_009) is None
    assert race.next(2_010) == (1, ("a", 1))
    race.failed(1, redirect("sievemq://lost:5"))
    assert race.next(2_020) == (1, ("lost", 5))
    assert race.next(4_020) == (2, ("a", 1))
    race.failed(2, redirect("sievemq://next:6"))
    assert race.next(4_030) == (2, ("next", 6))
    assert not race.is_over(4_030)
    assert race.wait(4_030) == 2_000


def test_an_owner_that_refuses_the_connection_ends_the_round() -> None:
    """A pause follows: the brokers learn of it within the lease."""
    race = Race(HOSTS[:1], 0, 10_000)
    race.next(0)
    race.failed(0, redirect("sievemq://dead:5"))
    assert race.next(0) == (0, ("dead", 5))
    race.failed(0, REFUSED)
    assert race.is_over(0)
    assert race.next(5_000) is None
    assert str(race.error()) == "no broker could be reached: dead:5: Connection refused"


def test_redirects_in_a_row_are_counted_for_each_host() -> None:
    race = Race(HOSTS[:2], 0, 100_000)
    race.next(0)
    for number in range(4):
        race.failed(0, redirect(f"sievemq://h{number}:1"))
        assert race.next(0) == (0, (f"h{number}", 1))
    race.failed(0, redirect("sievemq://h4:1"))
    assert race.next(0) == (1, ("b", 2))
    race.failed(1, redirect("sievemq://owner:1"))
    assert race.next(0) == (1, ("owner", 1))
    race.failed(1, REFUSED)
    assert "h3:1: 5 redirects in a row, the last one to sievemq://h4:1" in str(race.error())
    assert not race.is_hopeless

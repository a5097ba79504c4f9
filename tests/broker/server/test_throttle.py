"""Wrong passwords cost time, for whoever guesses; nobody else, and never more than a bounded memory."""

from __future__ import annotations

import pytest

from sievemq_broker.server.credentials.throttle import (
    CAPACITY,
    FORGET,
    FREE_PER_ADDRESS,
    FREE_PER_USER,
    MAX_DELAY,
    Throttle,
    network,
)

HERE, THERE = "192.0.2.1", "198.51.100.7"


def fail(throttle: Throttle, address: str, user: str, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        throttle.charge(address, user, now)


def test_first_mistakes_are_free_then_the_delay_doubles_up_to_a_bound() -> None:
    throttle = Throttle()
    fail(throttle, HERE, "anna", FREE_PER_USER)
    assert throttle.wait(HERE, "anna", 0.0) == 0
    delays = []
    now = 0.0
    for _ in range(12):
        throttle.charge(HERE, "anna", now)
        delays.append(throttle.wait(HERE, "anna", now))
        now += delays[-1]
        assert throttle.wait(HERE, "anna", now) == 0
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, MAX_DELAY, MAX_DELAY, MAX_DELAY]


def test_guesses_of_one_user_from_many_addresses_are_delayed() -> None:
    throttle = Throttle()
    for number in range(FREE_PER_USER + 1):
        throttle.charge(f"203.0.113.{number}", "anna", 0.0)
    assert throttle.wait("203.0.113.99", "anna", 0.0) > 0
    assert throttle.wait("203.0.113.99", "ben", 0.0) == 0


def test_many_users_are_guessed_at_from_one_address() -> None:
    throttle = Throttle()
    for number in range(FREE_PER_ADDRESS + 1):
        throttle.charge(HERE, f"user{number}", 0.0)
    assert throttle.wait(HERE, "somebody-else", 0.0) > 0
    assert throttle.wait(THERE, "somebody-else", 0.0) == 0


def test_a_known_address_of_a_user_cannot_be_locked_out_by_others() -> None:
    throttle = Throttle()
    throttle.know(HERE, "anna")
    for number in range(50):
        throttle.charge(f"203.0.113.{number}", "anna", 0.0)
    assert throttle.wait(THERE, "anna", 0.0) > 0
    assert throttle.wait(HERE, "anna", 0.0) == 0
    fail(throttle, HERE, "anna", FREE_PER_USER + 1)  # but its own mistakes count there as well
    assert throttle.wait(HERE, "anna", 0.0) > 0


def test_right_password_gives_back_only_its_own_charge() -> None:
    """Or else an attacker with an account would sign in between guesses and begin anew each time."""
    throttle = Throttle()
    fail(throttle, HERE, "anna", FREE_PER_USER)
    for _ in range(FREE_PER_ADDRESS - FREE_PER_USER):
        throttle.charge(HERE, "mallory", 0.0)
        throttle.refund(HERE, "mallory")
        throttle.charge(HERE, "anna", 0.0)
    throttle.charge(HERE, "anna", 0.0)
    assert throttle.wait(HERE, "ben", 0.0) > 0


def test_attempts_at_once_are_counted_before_any_of_them_is_checked() -> None:
    throttle = Throttle()
    allowed = 0
    for _ in range(1_000):
        if not throttle.wait(HERE, "anna", 0.0):
            throttle.charge(HERE, "anna", 0.0)
            allowed += 1
    assert allowed == FREE_PER_USER + 1


def test_a_while_without_mistakes_forgets_them() -> None:
    throttle = Throttle()
    fail(throttle, HERE, "anna", FREE_PER_USER + 5)
    throttle.charge(HERE, "anna", FORGET + 1)
    assert throttle.wait(HERE, "anna", FORGET + 1) == 0


def test_memory_is_bounded() -> None:
    throttle = Throttle(capacity=100)
    for number in range(1_000):
        throttle.charge(f"10.0.{number // 250}.{number % 250}", f"user{number}", float(number))
        throttle.know(f"10.1.{number // 250}.{number % 250}", "anna")
        throttle.charge(f"10.1.{number // 250}.{number % 250}", "anna", float(number))
    assert len(throttle) == 400
    assert CAPACITY == 10_000


def test_another_user_cannot_make_an_address_unknown() -> None:
    throttle = Throttle(capacity=100)
    throttle.know(HERE, "anna")
    for number in range(1_000):
        throttle.know(f"10.1.{number // 250}.{number % 250}", "mallory")
    fail(throttle, THERE, "anna", FREE_PER_USER + 1)
    assert throttle.wait(THERE, "anna", 0.0) > 0
    assert throttle.wait(HERE, "anna", 0.0) == 0


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("pipe", "pipe"),
    ],
)
def test_addresses_are_grouped_by_network(address: str, same: str) -> None:
    assert network(address) == same

"""The demo's flights and their referee: NULLs, types and three-valued logic, on the real table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from sievemq_testing.demo.flights import COLUMNS, SELECTORS, Flight, fingerprint, read_flights
from sievemq_testing.demo.referee import Referee

LIMIT = 2_000


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    return list(read_flights(LIMIT))


@pytest.fixture(scope="module")
def referee(flights: list[Flight]) -> Iterator[Referee]:
    referee = Referee(flights)
    yield referee
    referee.close()


def test_a_flight_becomes_a_message(flights: list[Flight]) -> None:
    first = flights[0]
    assert first.tail_number == "N14228"
    assert first.properties["carrier"] == "UA"
    assert first.properties["dep_delay"] == 2
    assert first.properties["air_time"] == 227.0
    assert first.body.startswith("2013,1,1,517,515,2,")


def test_every_property_has_its_one_type(flights: list[Flight]) -> None:
    for flight in flights:
        for name, value in flight.properties.items():
            assert type(value) is COLUMNS[name]


def test_a_cancelled_flight_has_no_delay_property(flights: list[Flight]) -> None:
    cancelled = [flight for flight in flights if ",NA," in flight.body and "dep_delay" not in flight.properties]
    assert cancelled
    assert all("arr_delay" not in flight.properties and "air_time" not in flight.properties for flight in cancelled)


def test_a_flight_without_tail_number_has_no_correlation_id(flights: list[Flight]) -> None:
    assert any(flight.tail_number is None for flight in flights)
    assert all(flight.tail_number != "NA" for flight in flights)


def test_the_fingerprint_sees_every_part(flights: list[Flight]) -> None:
    flight = flights[0]
    seen = {flight.fingerprint}
    seen.add(fingerprint("flight", "N1", flight.properties, flight.body))
    seen.add(fingerprint(None, flight.tail_number, flight.properties, flight.body))
    seen.add(fingerprint("flight", flight.tail_number, flight.properties, flight.body + " "))
    for name in COLUMNS:
        seen.add(fingerprint("flight", flight.tail_number, {**flight.properties, name: None}, flight.body))
    # An int that became a double on its way is seen, too.
    seen.add(fingerprint("flight", flight.tail_number, {**flight.properties, "dep_delay": 2.0}, flight.body))
    assert len(seen) == 5 + len(COLUMNS)


def test_the_referee_distinguishes_null_from_false(referee: Referee, flights: list[Flight]) -> None:
    late = sum(flight.properties.get("arr_delay", 0) > 0 for flight in flights)  # type: ignore[operator]
    assert referee.verdict("NOT (arr_delay <= 0)").messages == late
    without = sum("dep_delay" not in flight.properties for flight in flights)
    assert referee.verdict("dep_delay IS NULL").messages == without


def test_the_referee_divides_as_java_does(referee: Referee, flights: list[Flight]) -> None:
    floating = sum(
        float(flight.properties["air_time"]) / int(flight.properties["distance"]) > 0.2
        for flight in flights
        if "air_time" in flight.properties
    )
    assert floating > 0
    assert referee.verdict("air_time / distance > 0.2").messages == floating
    whole = sum(int(flight.properties["distance"]) // 1000 == 2 for flight in flights)
    assert referee.verdict("distance / 1000 = 2").messages == whole


def test_the_referee_is_case_sensitive(referee: Referee) -> None:
    assert referee.verdict("dest LIKE 'S%'").messages > 0
    assert referee.verdict("dest LIKE 's%'").messages == 0


def test_turns_on_a_queue_share_out_every_message_once(referee: Referee) -> None:
    turns = [referee.verdict(selector, SELECTORS[:turn]) for turn, selector in enumerate(SELECTORS)]
    turns.append(referee.verdict(None, SELECTORS))
    everything = referee.verdict(None)
    assert everything.messages == LIMIT
    assert sum(turn.messages for turn in turns) == LIMIT
    assert sum(turn.checksum for turn in turns) == everything.checksum


def test_a_wrong_column_is_an_error_and_not_an_empty_answer(referee: Referee) -> None:
    with pytest.raises(sqlite3.OperationalError):
        referee.verdict("no_such_column = 1")

"""Intervals by the numbers in them."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sievemq_broker.matching.ranges import COARSEST, FINEST, Ranges

NUMBERS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-5, 5).map(float),
    st.sampled_from([inf, -inf, 0.0, -0.0, 1e-300, 5e-324, 2.0**52, 2.0**53, -(2.0**52), 2.0**52 - 0.5, 1e300]),
)
INTERVALS = st.tuples(NUMBERS, NUMBERS).map(sorted).filter(lambda pair: pair != [-inf, inf])


@given(st.lists(INTERVALS, max_size=8), st.lists(st.one_of(NUMBERS, st.integers(-(2**63), 2**63 - 1)), max_size=5))
def test_every_interval_with_the_value_is_found_once(intervals: list[list[float]], values: list[float]) -> None:
    ranges: Ranges[Any] = Ranges()
    for number, (low, high) in enumerate(intervals):
        ranges.add(low, high, number, None)
    for value in [*values, *(bound for pair in intervals for bound in pair)]:
        found = [target for bucket in ranges.hit(value) for target in bucket]
        assert len(found) == len(set(found))
        assert {number for number, (low, high) in enumerate(intervals) if low <= value <= high} <= set(found)
    for number, (low, high) in enumerate(intervals):
        assert ranges.fullest(low, high) >= 1
        ranges.remove(low, high, number)
    assert not ranges


def test_removing_an_interval_twice_leaves_the_others() -> None:
    ranges: Ranges[Any] = Ranges()
    intervals = [(-inf, 5.0), (5.0, inf), (1.0, 2.0)]
    for number, (low, high) in enumerate(intervals):
        ranges.add(low, high, number, None)
        ranges.add(low, high, number + 10, None)
    for low, high in intervals * 2:
        for number in range(len(intervals)):
            ranges.remove(low, high, number)
    assert sorted(target for value in (1.5, 7.0) for bucket in ranges.hit(value) for target in bucket) == [10, 11, 12]
    for number, (low, high) in enumerate(intervals):
        ranges.remove(low, high, number + 10)
        ranges.remove(low, high, number + 10)
    assert not ranges


def test_a_value_costs_a_bounded_number_of_lookups_at_any_number_of_widths() -> None:
    ranges: Ranges[Any] = Ranges()
    for exponent in range(-300, 300):
        ranges.add(0.0, 10.0**exponent, exponent, None)
    assert len(ranges._cells) <= COARSEST - FINEST + 1


def test_not_a_number_is_in_no_interval() -> None:
    ranges: Ranges[Any] = Ranges()
    ranges.add(-1.0, 1.0, "bounded", None)
    assert list(ranges.hit(float("nan"))) == []

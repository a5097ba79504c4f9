"""ValueIndex: what is filed under a value is found, whatever comes, goes and comes again; and how much it holds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_broker.matching.lookup import PIECE, ValueIndex


class Item:
    """Waits, or not; has a value, or none."""

    def __init__(self, value: str | None) -> None:
        self.value = value
        self.waits = True


def make() -> ValueIndex[Item]:
    return ValueIndex(lambda item: item.value, lambda item: item.waits)


def compact(index: ValueIndex[Item]) -> int:
    return sum(index.compaction())


def test_entries_without_a_value_are_not_indexed() -> None:
    index = make()
    assert not index.add(Item(None))
    assert len(index) == index.distinct == 0


def test_entries_that_share_a_value_are_all_found_in_the_order_in_which_they_were_filed() -> None:
    index = make()
    items = [Item("x") for _ in range(3)]
    assert all(index.add(item) for item in items)
    assert index.find(["x"]) == items
    assert index.find(["x", "y"], 3) == items
    assert index.find(["x", "y"], 2) is None
    assert len(index) == 3
    assert index.distinct == 1


def test_several_values_are_found_together_and_count_together() -> None:
    index = make()
    items = [Item(value) for value in ("x", "y", "y")]
    for item in items:
        index.add(item)
    assert index.find(["y", "none"], 1) is None
    assert set(index.find(["x", "y"], 3) or ()) == set(items)
    assert index.find(["x", "y"], 2) is None
    assert index.find(["x", "none"], 1) == items[:1]
    assert index.find(["none"], 0) == []


def test_a_value_that_was_read_already_is_filed_by_first_unless_another_is_there() -> None:
    index = make()
    one, two = Item("x"), Item("x")
    assert index.first("x", one) is one
    assert index.first("x", two) is one
    index.again("x", two)
    assert index.first("x", two) is not two
    assert index.find(["x"]) == [one, two]
    assert len(index) == 2


def test_an_entry_indexed_twice_is_found_once() -> None:
    index = make()
    one, two = Item("x"), Item("x")
    for item in (one, one, two, one):
        index.add(item)
    assert index.find(["x"]) == [one, two]
    compact(index)
    assert len(index) == 2


def test_compaction_drops_entries_that_do_not_wait_and_counts_examined_ones() -> None:
    index = make()
    items = [Item(f"v{number // 2}") for number in range(2 * PIECE)]
    for item in items:
        index.add(item)
    for item in items[::2]:
        item.waits = False
    assert compact(index) == len(items)
    assert len(index) == index.distinct == PIECE
    for item in items:
        item.waits = False
    compact(index)
    assert len(index) == index.distinct == 0


def test_entries_cleared_between_two_slices_do_not_return() -> None:
    index = make()
    for number in range(PIECE + 1):
        index.add(Item(f"v{number}"))
    pieces = index.compaction()
    next(pieces)
    index.clear()
    assert list(pieces) == [0]
    assert len(index) == 0
    assert index.add(Item("v0"))
    assert len(index) == 1


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["file", "go", "compact"]), st.integers(0, 7)), max_size=40))
def test_lookups_agree_with_a_plain_list(steps: list[tuple[str, int]]) -> None:
    index = make()
    items = [Item(f"v{number % 3}") for number in range(8)]
    filed: list[Item] = []
    for what, number in steps:
        item = items[number]
        if what == "file":
            item.waits = True
            index.add(item)
            filed.append(item)
        elif what == "go":
            item.waits = False
        else:
            compact(index)
            filed = [kept for kept in dict.fromkeys(filed) if kept.waits]
            assert len(index) == len(filed)
        for value in ("v0", "v1", "v2"):
            assert set(index.find([value]) or ()) == {kept for kept in filed if kept.value == value}
        assert index.distinct == len({kept.value for kept in filed})
        assert len(set(filed)) <= len(index) <= len(filed)

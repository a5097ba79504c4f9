"""Which entry of a shared table goes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq_broker.domain.shares import Shares

users = st.sampled_from([None, "anna", "ben", "eve"])


@given(st.integers(1, 6), st.lists(st.tuples(users, st.integers(0, 8)), max_size=40))
def test_a_user_below_the_common_share_loses_nothing(room: int, puts: list[tuple[str | None, int]]) -> None:
    shares: Shares[int] = Shares()
    model: list[tuple[str | None, int]] = []
    for user, key in puts:
        shares.add(user, key)
        model = [entry for entry in model if entry != (user, key)] + [(user, key)]
        if shares.total > room:
            counts = {of: sum(each == of for each, _ in model) for of, _ in model}
            gone = shares.first_to_go()
            assert counts[gone[0]] == max(counts.values())
            assert gone == next(entry for entry in model if entry[0] == gone[0])
            shares.discard(*gone)
            model.remove(gone)
        assert shares.total == len(model)


def test_weights_count() -> None:
    shares: Shares[str] = Shares()
    shares.add("anna", "a", 5)
    shares.add("ben", "b")
    shares.add("ben", "c")
    assert shares.first_to_go() == ("anna", "a")
    shares.add("anna", "a")  # put again, with another weight
    assert (shares.total, shares.of("anna"), shares.first_to_go()) == (3, 1, ("ben", "b"))


def test_discarding_an_absent_entry_is_harmless() -> None:
    shares: Shares[str] = Shares()
    shares.add("anna", "a")
    shares.discard("anna", "b")
    shares.discard("ben", "a")
    shares.discard("anna", "a")
    assert (shares.total, shares.of("anna")) == (0, 0)
    with pytest.raises(ValueError, match="empty"):
        shares.first_to_go()

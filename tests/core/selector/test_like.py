"""LIKE against a regular expression on small texts, and bounded work on large ones."""

from __future__ import annotations

import re
import sys
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sievemq_core.limits import MAX_LIKE_SEARCHES, MAX_PROPERTY_CHARS
from sievemq_core.selector import like
from sievemq_core.selector.like import PatternError, parse_pattern


def by_regex(pattern: str, escape: str | None, text: str) -> bool:
    out, at = "", 0
    while at < len(pattern):
        c = pattern[at]
        if c == escape:
            at += 1
            out += re.escape(pattern[at])
        else:
            out += ".*" if c == "%" else "." if c == "_" else re.escape(c)
        at += 1
    return re.fullmatch(out, text, re.DOTALL) is not None


@settings(max_examples=500)
@given(st.text("ab%_!", max_size=9), st.sampled_from([None, "!", "%", "_", "a"]), st.text("ab%_\n", max_size=10))
def test_like_agrees_with_a_regular_expression(pattern: str, escape: str | None, text: str) -> None:
    if escape is not None and re.fullmatch("(?s:[^!]|!.)*!".replace("!", re.escape(escape)), pattern):
        with pytest.raises(PatternError):
            parse_pattern(pattern, escape)
        return
    parsed = parse_pattern(pattern, escape)
    assert parsed.matches(text) is by_regex(pattern, escape, text)
    if parsed.exact is not None:
        assert parsed.matches(text) is (text == parsed.exact)
    if parsed.matches(text):
        assert text.startswith(parsed.prefix)
        assert len(text) >= parsed.minimum


@settings(max_examples=300)
@given(st.text("aaab%_c", max_size=9), st.text("aaaabc\0\1\2é", min_size=20, max_size=120))
def test_every_way_to_search_agrees(pattern: str, text: str) -> None:
    """By bit sets at once, and through padded text."""
    with patch.multiple(like, _TRIES=0, _PRODUCT=0, _SHORT=0, _LINEAR=50):
        assert parse_pattern(pattern).matches(text) is by_regex(pattern, None, text)


@given(
    st.text("ab\0\1\2é😀", max_size=40), st.sampled_from(["a", "\0", "\1", "\2", "é", "😀", "ab", "aab", "\1\2", "\0a"])
)
def test_places_are_where_the_piece_stands(text: str, piece: str) -> None:
    expected = sum(1 << at for at in range(len(text)) if text.startswith(piece, at))
    assert like._Places(text)._places(piece) == expected


@given(st.text("aab", max_size=60))
def test_pieces_make_up_the_run_and_never_overlap_themselves(run: str) -> None:
    pieces = like._pieces(run)
    assert "".join(pieces) == run
    for piece in pieces:
        assert len(piece) <= like._PIECE
        assert not any(piece.startswith(piece[-size:]) for size in range(1, len(piece)))


HOSTILE = {
    "many segments": ("%a" * 5_000 + "%b", "a" * 100_000),
    "the classic": ("%a%a%a%a%a%b", "a" * 10_000),
    "segments with gaps": ("%a_a" * 2_000 + "%b%", "a" * 50_000),
    "one long segment with gaps": ("%" + "a_" * 15_000 + "b%", "a" * 100_000),
    "two long runs": ("%" + "a" * 20_000 + "_" + "a" * 20_000 + "b%", "a" * 200_000),
    "only gaps": ("%" + "_" * 60_000, "a" * 59_999),
    "an almost repeated needle": ("%" + "ab" * 10_000 + "_c%", "ab" * 100_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_patterns_finish(name: str) -> None:
    """With backtracking, or with work that grows as the product of the lengths, these would not end today."""
    pattern, text = HOSTILE[name]
    assert parse_pattern(pattern).matches(text) is False


def test_hostile_patterns_that_match() -> None:
    assert parse_pattern("%" + "a_" * 15_000 + "b%").matches("a" * 100_000 + "b")
    assert parse_pattern("%a%a%a%a%a%b").matches("a" * 10_000 + "b")


@pytest.mark.parametrize(
    ("pattern", "exact", "prefix", "minimum"),
    [
        ("", "", "", 0), ("abc", "abc", "abc", 3), ("a%", None, "a", 1), ("%a", None, "", 1), ("_a", None, "", 2),
        ("ab_%c", None, "ab", 4), ("%", None, "", 0), ("%%", None, "", 0), ("_", None, "", 1),
    ],
)  # fmt: skip
def test_properties_of_patterns(pattern: str, exact: str | None, prefix: str, minimum: int) -> None:
    parsed = parse_pattern(pattern)
    assert (parsed.exact, parsed.prefix, parsed.minimum) == (exact, prefix, minimum)


@pytest.mark.parametrize(
    ("pattern", "searches"),
    [
        ("abc", 0), ("a%", 0), ("%a", 0), ("a_b%", 0), ("%", 0), ("%_%", 1), ("%a%", 1), ("%a%b%c%", 1), ("a%b%c", 1),
        ("%a_b%", 5), ("%first_name%", 5), ("%a_a%a_a%", 3), ("%" + "ab" * 16 + "_%", 4), ("%" + "_" * 500 + "%", 1),
    ],
)  # fmt: skip
def test_how_often_a_pattern_searches_a_text(pattern: str, searches: int) -> None:
    assert parse_pattern(pattern).searches == searches


class Counted(str):
    """A text that counts the characters that a match goes over, at most, as CPython does it."""

    __slots__ = ()
    steps = 0

    def find(self, needle: str, start: int = 0, end: int = sys.maxsize) -> int:  # type: ignore[override]
        found = super().find(needle, start, end)
        size, over = len(needle), min(end, len(self)) - start
        linear = over >= like._LINEAR or size < like._SHORT or (size >= like._LONG and over >= max(2_500, 4 * size))
        over = over if found < 0 else found + size - start
        Counted.steps += over if linear else max(over, over * size // 10)  # it compares several at a time
        return found

    def startswith(self, *arguments: Any) -> bool:
        Counted.steps += 1
        return super().startswith(*arguments)

    def replace(self, *arguments: Any) -> Counted:  # type: ignore[override]
        Counted.steps += len(self)
        return Counted(super().replace(*arguments))

    def __add__(self, other: str) -> Counted:
        return Counted(super().__add__(other))


def periodic(size: int, length: int) -> tuple[str, str]:
    """The needle that str.find takes longest for, and its text."""
    return "a" * (size // 2) + "b" + "a" * (size - size // 2 - 1), "a" * length


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_worst_pattern_takes_the_searches_that_it_is_charged_for(data: st.DataObject) -> None:
    """The worst that a search over shapes finds: each of them goes over the text a bounded number of times."""
    length = data.draw(st.sampled_from([300, 2_400, 2_499, 9_999, MAX_PROPERTY_CHARS]), "length of the text")
    size = data.draw(st.sampled_from([1, 5, 6, 30, 99, 100, 240, 999, 2_000]), "length of the needle")
    needle, text = periodic(size, length)
    if data.draw(st.booleans(), "beside _"):
        at = data.draw(st.integers(0, size))
        needle = needle[:at] + "_" + needle[at:]
        text = (text[: length // 2] + needle.replace("_", "?").replace("b", "a") * length)[:length]
    alphabet = data.draw(st.sampled_from(["", "c", "cde"]), "other characters")
    needle += alphabet
    text = (text[:size] + alphabet).join([""] * 3) + text
    times = data.draw(st.sampled_from([1, 2, 20]), "how often")
    pattern = parse_pattern("%" + "%".join([needle] * times) + data.draw(st.sampled_from(["%", "x%", "%x"])))
    if pattern.searches > MAX_LIKE_SEARCHES:
        return
    Counted.steps = 0
    pattern.matches(Counted(text))
    per_segment = 40 * len(pattern.segments)
    assert Counted.steps <= 4 * pattern.searches * (MAX_PROPERTY_CHARS + len(text)) + per_segment * len(needle)

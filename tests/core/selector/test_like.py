"""LIKE against a regular expression on small texts, and bounded work on large ones."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
@given(
    st.text("aaab%_c", max_size=9),
    st.text("aaaabc\1\2\0é", min_size=20, max_size=120),
    st.sampled_from([0, 4, 10**6]),
    st.sampled_from([1, 256]),
)
def test_every_way_to_search_agrees(pattern: str, text: str, frequent: int, dense: int) -> None:
    """By the rarest character (0), by bit sets (10**6), or by what the text suggests."""
    with (
        patch.object(like, "_TRIES", 0),  # go there at once
        patch.object(like, "_FREQUENT", frequent),
        patch.object(like, "_DENSE", dense),
    ):
        assert parse_pattern(pattern).matches(text) is by_regex(pattern, None, text)


@given(st.text("ab\0\1\2é😀", max_size=40), st.sampled_from(["a", "\0", "\1", "\2", "é", "😀", "ab", "aab", "\1\2"]))
def test_occurrences_are_where_they_are(text: str, run: str) -> None:
    expected = sum(1 << at for at in range(len(text)) if text.startswith(run, at))
    assert like._occurrences(text, run, {}) == expected
    with patch.object(like, "_DENSE", 10**9):
        assert like._occurrences(text, run, {}) == expected


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
def test_what_a_pattern_says_about_itself(pattern: str, exact: str | None, prefix: str, minimum: int) -> None:
    parsed = parse_pattern(pattern)
    assert (parsed.exact, parsed.prefix, parsed.minimum) == (exact, prefix, minimum)


class Counted(str):
    """A text that counts how often it is searched and compared, which is what a match does."""

    __slots__ = ()
    steps = 0

    def find(self, *arguments: Any) -> int:
        Counted.steps += 1
        return super().find(*arguments)

    def startswith(self, *arguments: Any) -> bool:
        Counted.steps += 1
        return super().startswith(*arguments)


N = 2_000
WORST = {
    "the same again and again": ("%a" * 256, "a" * N),
    "never the last": ("%a" * 200 + "b", "a" * N),
    "any characters between": ("%a_b" * 100, ("a" * 40 + "axb") * (N // 43)),
    "any characters, never found": ("%a_a_b" * 80, "a" * N),
    "long runs that overlap": (("%" + "a" * 33 + "_b") * 60, "a" * N),
    "other letters": ("%\u00e9_\u00e8" * 100, ("\u00e9" * 40 + "\u00e9x\u00e8") * (N // 43)),
    "a row": ("%_a" * 120, "ba" * (N // 2)),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_patterns_take_steps_in_proportion_to_the_text_not_to_its_product_with_the_pattern(name: str) -> None:
    pattern, text = WORST[name]
    compiled = parse_pattern(pattern)
    counts = []
    for times in (1, 2):
        Counted.steps = 0
        compiled.matches(Counted(text * times))
        counts.append(Counted.steps)
    per_segment = 40 * len(compiled.segments)  # tries before the whole text is searched, of each
    assert counts[0] <= per_segment + 3 * len(text)
    assert counts[1] <= per_segment + 6 * len(text)

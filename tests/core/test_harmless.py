"""Text of somebody else, made fit for a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievemq_core.harmless import harmless


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("grüße 🐘", "grüße 🐘"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("photo\u202egpj.exe", r"photo\u202egpj.exe"),
        ("one\ntwo\u2028three", r"one\ntwo\u2028three"),
        ("half \ud83d", r"half \ud83d"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text())
def test_nothing_that_is_left_commands_a_terminal(text: str) -> None:
    assert harmless(text).isprintable()
    assert harmless(text, "\n").replace("\n", "").isprintable()

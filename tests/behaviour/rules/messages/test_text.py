"""Section 23, TextMessage (TXT)."""

from __future__ import annotations

from enum import StrEnum

import pytest

from sievemq import MessageFormatException, MessageNotWriteableException, TextMessage


def test_txt_01_set_text():
    message = TextMessage()
    message.set_text("x")
    message.set_text(None)
    assert message.get_text() is None
    for value in (b"x", 7, ["x"]):
        with pytest.raises(MessageFormatException, match="holds a str"):
            message.set_text(value)
        with pytest.raises(MessageFormatException):
            TextMessage(value)


def test_txt_01_a_received_text_is_read_only(deliver):
    here = deliver(TextMessage("x"))
    with pytest.raises(MessageNotWriteableException):
        here.set_text("y")
    here.clear_body()
    assert here.get_text() is None
    here.set_text("y")
    assert here.get_text() == "y"


def test_txt_02_none_and_empty_differ_and_both_survive(deliver):
    assert TextMessage().get_text() is None
    assert deliver(TextMessage()).get_text() is None
    assert deliver(TextMessage("")).get_text() == ""


@pytest.mark.parametrize("text", ["größe", "数量", "😀", "\0", "\ud83d", "\ud83d\ude00", "a\r\n\t\x1b", "x" * 100_000])
def test_txt_03_any_text_is_carried_unchanged(text, deliver):
    assert deliver(TextMessage(text)).get_text() == text


def test_text_of_an_enumeration_is_text(deliver):
    class Region(StrEnum):
        EU = "EU"

    assert type(TextMessage(Region.EU).get_text()) is str
    assert deliver(TextMessage(Region.EU)).get_text() == "EU"

"""Names of destinations."""

from __future__ import annotations

import pytest

from sievemq_core.errors import AddressError
from sievemq_core.message.destination import parse_address


@pytest.mark.parametrize(
    "char",
    ["\x00", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u200b", "\ufeff", "\u2028", "\u2029", "\ud83d"],
)
def test_control_and_format_characters_are_refused(char: str) -> None:
    with pytest.raises(AddressError, match="control or format character") as refused:
        parse_address(f"queue:mal.{char}gpj.exe")
    assert refused.value.text.isprintable()


@pytest.mark.parametrize(
    "name", ["Börse", "الطلبات", "注文", "می\u200cخواهم", "👩\u200d🚀", "a\u00a0b", "\ue000", "a b:c/d"]
)
def test_names_of_every_script_are_allowed(name: str) -> None:
    assert parse_address(f"queue:{name}").name == name

"""Values on the command line: what stands behind a property's last colon."""

from __future__ import annotations

import pytest
import typer

from sievemq.cli.values import parse_property


@pytest.mark.parametrize(
    "value",
    ["12:30", "10:30am", "host:7672", "http://x:80/a", "see:below", "fe80::1", "00:1a:cd", "a:b", ":x", "1:", "1:a1"],
)
def test_a_text_with_colons_stays_a_text(value: str) -> None:
    assert parse_property(f"at={value}") == ("at", value)


@pytest.mark.parametrize(
    "value", ["1:shrt", "1:Short", "-1.5:flot", "true:bool", "1:noon", "abc:str", "abc:String", "7 pm:INTEGER"]
)
def test_an_unknown_type_is_refused_with_the_valid_ones(value: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        parse_property(f"x={value}")
    text = str(refused.value)
    assert f"'{value.rpartition(':')[2]}' of property 'x' is not a type" in text
    assert "boolean, byte, short, int, long, float, double, string" in text
    _, _, advised = text.rpartition("write ")
    assert parse_property(advised) == ("x", value)

"""Reading a property or an entry that is not set: the error says so, what was meant, and what there is."""

from __future__ import annotations

import pytest

from sievemq import MapMessage, Message, NullValueError, NumberFormatError, TextMessage

ORDER = {"amount": 12, "region": "EU"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("amuont", r"'amuont' is not set; did you mean 'amount'\? There are 'amount', 'region' \(null cannot be read"),
        ("REGION", r"'REGION' is not set; did you mean 'region'\?"),
        ("weight", r"'weight' is not set; there are 'amount', 'region'"),
    ],
)
def test_a_name_that_is_not_set(name: str, said: str) -> None:
    message = TextMessage("x", properties=ORDER)
    with pytest.raises(NumberFormatError, match="property " + said):
        message.get_int_property(name)
    with pytest.raises(NullValueError, match="property " + said):
        message.get_double_property(name)
    with pytest.raises(NumberFormatError, match="entry " + said):
        MapMessage(ORDER).get_long(name)
    with pytest.raises(NullValueError, match="entry " + said):
        MapMessage(ORDER).get_float(name)


def test_the_error_is_short_for_no_properties_and_for_many() -> None:
    with pytest.raises(NumberFormatError, match="is not set; there are none"):
        Message().get_int_property("a")
    with pytest.raises(NumberFormatError) as raised:
        MapMessage({f"entry{number:05}" * 20: number for number in range(5_000)}).get_int("a" * 10_000)
    assert len(str(raised.value)) < 2_000


def test_a_null_that_is_set_is_a_null() -> None:
    message = Message()
    message.set_string_property("a", None)
    with pytest.raises(NumberFormatError, match=r"^property 'a': null cannot be read as an int$"):
        message.get_int_property("a")

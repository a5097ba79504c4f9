"""The cache of names that passed the check: bounded, and never a way around the check."""

from __future__ import annotations

import pytest
from tests.client.messages.envelope import fields_of

from sievemq import Message
from sievemq.messages import properties


def test_a_name_is_checked_once():
    Message().set_int_property("checked_once", 1)
    assert "checked_once" in properties.KNOWN_NAMES


def test_names_made_from_data_do_not_grow_the_cache_without_bound(monkeypatch):
    monkeypatch.setattr(properties, "_MAX_KNOWN_NAMES", len(properties.KNOWN_NAMES) + 5)
    message = Message()
    for number in range(50):
        message.set_int_property(f"made_from_data_{number}", number)
    assert len(message.properties) == 50
    assert len(properties.KNOWN_NAMES) <= properties._MAX_KNOWN_NAMES


@pytest.mark.parametrize("name", ["1a", "NULL", "JMSFoo", ""])
def test_a_bad_name_is_refused_every_time(name):
    for _ in range(2):
        with pytest.raises(ValueError):
            Message().set_string_property(name, "x")
    assert name not in properties.KNOWN_NAMES


def test_on_receive_names_never_enter_the_cache():
    for _ in range(2):
        message = Message(properties={"JMSXState": 1})
        assert fields_of(message)[9] is None
    assert "JMSXState" not in properties.KNOWN_NAMES

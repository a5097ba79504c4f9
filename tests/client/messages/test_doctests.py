"""Examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "sievemq",
    "sievemq.delivery_mode",
    "sievemq.destinations",
    "sievemq.exceptions",
    "sievemq.messages.base",
    "sievemq.messages.bytes",
    "sievemq.object_codec",
    "sievemq.messages.map",
    "sievemq.messages.object",
    "sievemq.messages.stream",
    "sievemq.messages.text",
    "sievemq.selector",
    "sievemq.session_mode",
    "sievemq.url",
    "sievemq_core.durations",
    "sievemq_core.message.conversion",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0

"""Fixtures of the engine's tests."""

from __future__ import annotations

import pytest

from .harness import FakeBroker, World


@pytest.fixture
def broker() -> FakeBroker:
    """A broker's end that has welcomed the engine; the connection is started."""
    broker = FakeBroker()
    broker.welcome()
    broker.engine.start()
    return broker


@pytest.fixture
def world() -> World:
    """The real broker in memory."""
    return World()

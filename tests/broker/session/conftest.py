"""Fixtures for tests of the session layer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .harness import World


@pytest.fixture
def world() -> Iterator[World]:
    """A broker with nobody connected. Afterwards it must not have found a fault of its own."""
    world = World()
    yield world
    assert world.services.reports == []

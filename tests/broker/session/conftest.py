"""Fixtures for tests of the session layer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .harness import Client, World


@pytest.fixture
def world() -> Iterator[World]:
    """A broker with nobody connected. Afterwards it must not have found a fault of its own."""
    world = World()
    yield world
    assert world.services.reports == []


@pytest.fixture
def client(world: World) -> Client:
    """The first client."""
    return world.client()


@pytest.fixture
def other(client: Client) -> Client:
    """A second one."""
    return client.world.client()

"""What the tests of the domain share."""

from __future__ import annotations

import pytest

from .support import World


@pytest.fixture
def world() -> World:
    """A broker with a clock that stands still, and nobody connected."""
    return World()

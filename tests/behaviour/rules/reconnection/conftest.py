"""Every rule here is about a connection through a network that fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.both import Api
from tests.client.relay import Relay


@pytest.fixture
def relay(api: Api) -> Iterator[Relay]:
    """A network between this test's clients and its broker."""
    with Relay(api.broker.port) as relay:
        yield relay

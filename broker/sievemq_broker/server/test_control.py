"""Where the test kit plugs into the broker: its server and its part of the management API, for ``--test-control``.

The kit stands above the broker, so the broker finds it as an entry point, and only where a setting asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

from sievemq_broker.clock import AdjustableClock
from sievemq_broker.config import Settings
from sievemq_broker.server.server import Server

#: Below the API's prefix: the paths of test control.
PATH: Final = "/test/"

_GROUP: Final = "sievemq.test_control"


class Kit(Protocol):
    """What the entry point of the group ``sievemq.test_control`` leads to."""

    def make_server(self, settings: Settings, clock: AdjustableClock, on_failure: Callable[[], None]) -> Server:
        """A server that can be watched and disturbed; the arguments are those of :class:`Server`."""

    def endpoints(self) -> Sequence[Any]:
        """The endpoints (`http/api/declare.py`) that the management API has more, below :data:`PATH`."""


def load() -> Kit:
    """The installed test kit.

    Raises:
        ImportError: there is none, or it needs something that is not installed.
    """
    from importlib.metadata import entry_points  # few brokers need it

    for point in entry_points(group=_GROUP):
        return cast("Kit", point.load())
    raise ImportError("test_control needs the test kit, which this installation lacks: install SieveMQ as a whole")

"""A store that an earlier version has left is opened, and says what it said then.

``format-N`` holds what the first version with format N wrote for ``fill`` of test_salvage; it is never made anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sievemq_broker.domain import Broker
from sievemq_broker.domain.restore import restore
from sievemq_broker.store import SqliteStore
from sievemq_broker.store.database import FORMAT

from .support import NOW, picture

HERE = Path(__file__).parent


@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_every_format_can_be_read(tmp_path: Path, number: int) -> None:
    shutil.copytree(HERE / f"format-{number}", tmp_path / "data")
    store = SqliteStore(tmp_path / "data", reserve=0)
    broker = Broker()
    assert restore(broker, store, NOW) == 6
    assert store.incarnation == "broker"
    store.close()
    assert picture(broker) == {
        "namespace ns": ["queue:q", "topic:t"],
        "subscription ns id s": ("topic:t", None, False, False),
        "waiting ns queue:q": [("m01", 1, 0), ("m10", 0, 0), ("m11", 0, 0), ("m20", 0, 0), ("m21", 0, 0)],
        "scheduled ns queue:q": [],
        "waiting ns id s": [("published", 0, 0)],
        "scheduled ns id s": [],
    }

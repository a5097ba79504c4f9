"""A cluster without a database: brokers of one process, in memory, that share the tables of namespaces."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Any

from tests.broker.store.placing import DictPlaces, Tables

from sievemq_broker import EmbeddedBroker
from sievemq_broker.server.placement import Placement
from sievemq_broker.server.server import Server

SHARDS = "a", "b"


class Cluster:
    """Brokers of one process that share the tables of namespaces; `own` and `other` have a shard each.

    Attributes:
        tables: which they share.
        places: how each reaches them.
    """

    def __init__(self, stack: ExitStack, **options: Any) -> None:
        self.tables = Tables()
        self.places: dict[str, DictPlaces] = {}
        self._brokers: dict[str, EmbeddedBroker] = {}
        for shard in SHARDS:
            broker = self._brokers[shard] = stack.enter_context(EmbeddedBroker(http=True, **options))
            self.places[shard] = DictPlaces(self.tables)
            self.tables.own(shard, f"token of {shard}", broker.url, broker.http_url)
            broker._submit(partial(self._join, shard)).result()

    def _join(self, shard: str, server: Server) -> None:
        placement = Placement(asyncio.get_running_loop(), self.places[shard], SHARDS, server.shard)
        server.shard.placement = placement
        placement.own(shard, f"token of {shard}", ())

    def __getitem__(self, shard: str) -> EmbeddedBroker:
        return self._brokers[shard]

"""What leaves the management port waits for the disk, like the output of a link.

So neither answers nor events tell of what a crash could still undo.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.server import Server

#: Seconds that an answer waits for a disk that does not answer. Then a change is refused if nothing can be written, and
#: waits on otherwise; all else is sent: an operator must be able to look at a broker whose disk has failed.
LOOK_SECONDS: Final = 2.0


class Gate:
    """The gate of one broker."""

    __slots__ = ("_server",)

    def __init__(self, server: Server) -> None:
        self._server = server

    async def passed(self, changes: bool) -> None:
        """Return when output may leave: everything that has happened so far is on disk. At once in memory.

        Args:
            changes: the output confirms a change.

        Raises:
            ApiError: 503, the change cannot be written for now, or the disk has failed and the broker ends.
        """
        commits = self._server.shard.commits
        if commits is None:
            return
        if not changes and self._server.trouble is not None:
            return
        synced = commits.synced()
        while not synced.done() and not (await asyncio.wait({synced}, timeout=LOOK_SECONDS))[0]:
            if not changes:
                return
            if commits.stuck is not None:
                text = f"it is done, and will be on disk once that can be written: {commits.stuck}"
                raise ApiError(503, "UNAVAILABLE", text)
        if changes and synced.cancelled():
            raise ApiError(503, "UNAVAILABLE", "the data directory cannot be written; the broker ends")

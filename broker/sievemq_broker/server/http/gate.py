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


class _Output:
    """An answer or an event, for :meth:`Commits.hold`."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = asyncio.get_running_loop().create_future()

    def release(self, data: bytes) -> None:
        if not self.left.done():
            self.left.set_result(None)


class DiskGate:
    """The gate of one broker."""

    __slots__ = ("_server",)

    def __init__(self, server: Server) -> None:
        self._server = server

    async def passed(self, changes: bool, whole: bool = False) -> None:
        """Return when output may leave: everything that is complete so far is on disk. At once in memory.

        Args:
            changes: the output confirms a change.
            whole: it may also tell of verbs that are not complete, and waits for them.

        Raises:
            ApiError: 503, the change cannot be written for now, or the disk has failed and the broker ends.
        """
        server = self._server
        commits, journal = server.shard.commits, server.shard.broker.journal
        if commits is None or journal is None or (server.trouble is not None and not changes):
            return
        output = _Output()
        if not commits.hold(output, b"", [*journal.unwritten, *(journal.shares if whole else ())]):
            return
        server.turn.worked()
        while not (await asyncio.wait({output.left}, timeout=LOOK_SECONDS))[0]:
            if not changes:
                return
            if server.failure is not None:
                raise ApiError(503, "UNAVAILABLE", "the data directory cannot be written; the broker ends")
            if commits.stuck is not None:
                text = f"it is done, and will be on disk once that can be written: {commits.stuck}"
                raise ApiError(503, "UNAVAILABLE", text)

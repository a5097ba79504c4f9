"""What leaves the management port waits for the disk and for the lease, like the output of a link.

So neither answers nor events tell of what a crash could still undo, or of what another broker does by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from sievemq_broker.server.http.access import HEALTH
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.pace import resumed
from sievemq_broker.server.server import Server

if TYPE_CHECKING:  # in memory there is no database
    from sievemq_broker.server.placement import Where
    from sievemq_broker.store.lease import Owner

#: Answered by a broker that serves no clients, too: they show that, and no messages.
_ALWAYS: Final = HEALTH | {"/metrics", "/api/v1/attention"}

#: Answered by a broker of a cluster that owns no shard: from the database, or once it is known where the namespace is
#: (:func:`expect_here`). Of the lists those of one namespace.
_OF_CLUSTER: Final = "/api/v1/shards", "/api/v1/namespaces"
_LISTS: Final = frozenset({"/api/v1/connections", "/api/v1/consumers"})

#: Seconds that an answer waits for a disk that does not answer. Then a change is refused if nothing can be written, and
#: waits on otherwise; all else is sent: an operator must be able to look at a broker whose disk has failed.
LOOK_SECONDS: Final = 2.0


def unavailable(server: Server) -> ApiError | None:
    """The error that this broker does not serve its shard: another one does, or may. None if it does.

    421 with the owner's URL, if there is one owner to ask, and 503 otherwise."""
    if not server.is_shared or server.lease_holds:
        return None
    role, owners = server.role, {name: keeper.owner for name, keeper in server.keepers.items()}
    if len(owners) == 1:
        ((shard, owner),) = owners.items()
        details: dict[str, object] = {"role": role, "shard": shard, "owner": owner and owner.url}
        if owner is not None:
            return misdirected(f"this broker follows the one at {owner.url}", owner, details)
    else:
        shards = [
            {"shard": name, "owner": owner and owner.url, "url": (owner and owner.http_url) or None}
            for name, owner in owners.items()
        ]
        details = {"role": role, "shards": shards}
    if len(owners) > 1:
        known = [f"{name} ({owner.http_url})" if owner and owner.http_url else name for name, owner in owners.items()]
        text = f"this broker follows the owners of {', '.join(known)}: ask one of them"
    elif role == "follower":
        text = "this broker follows, and no other one serves now; it will take over if that lasts"
    else:
        text = server.trouble or "this broker takes over: it restores its messages"
    return ApiError(503, role.upper(), text, details, {"Retry-After": "1"})


def misdirected(text: str, owner: Owner, details: Mapping[str, object]) -> ApiError:
    """421: another broker has to be asked.

    Args:
        text: why.
        owner: that broker.
        details: for programs; its URL is added.
    """
    where = f": ask at {owner.http_url}" if owner.http_url else ", whose management port is not known (advertise_http)"
    return ApiError(421, "REDIRECT", text + where, {**details, "url": owner.http_url or None})


async def expect_here(server: Server, namespace: str) -> None:
    """Return if a namespace is in this broker's shard, or nowhere yet.

    Args:
        namespace: its name. The caller has a right in it, so may learn where it is.

    Raises:
        ApiError: 421, it is in the shard of another broker; 503, that has no owner now.
        RequestError: UNAVAILABLE, the database does not answer.
    """
    placement = server.placement
    if placement is None:
        return
    if not placement.here(namespace):
        # The default namespace is there before it is used: then it needs a shard.
        where = await (placement.claim if namespace == "default" else placement.find)(namespace)
        if where.is_claimed and where.shard != placement.shard:
            raise elsewhere(where)
        if where.is_claimed and not placement.here(namespace):
            raise ApiError(503, "UNAVAILABLE", f"namespace {namespace!r:.300} is going to another shard; try again")
    if (error := unavailable(server)) is not None:
        raise error


def elsewhere(where: Where) -> ApiError:
    """421, or 503 without an owner: a namespace is in the shard of another broker."""
    text = f"namespace {where.name!r:.300} is in shard {where.shard}"
    details = {"namespace": where.name[:300], "shard": where.shard}
    if where.owner is None:
        text = f"{text}, which no broker owns at present; try again"
        return ApiError(503, "UNAVAILABLE", text, {**details, "url": None}, {"Retry-After": "1"})
    return misdirected(text, where.owner, details)


def admit(server: Server, path: str) -> None:
    """Let a request in: any of a broker that serves its shard, else one about the broker itself, or about its cluster.

    Raises:
        ApiError: 421 or 503.
    """
    follows = server.is_shared and server.shard.keeper is None
    is_spare = follows and server.placement is not None
    if path in _ALWAYS or (is_spare and (path in _LISTS or path.startswith(_OF_CLUSTER))):
        return
    if follows and path.startswith("/api/v1/shards/") and path.endswith("/actions/take"):  # also of the only shard
        return
    if (error := unavailable(server)) is not None:
        raise error


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

    async def passed(self, changes: bool, whole: bool = False, more: bool = False) -> None:
        """Return when output may leave: everything that is complete so far is on disk, and no other broker may own the
        store. At once in memory.

        Args:
            changes: the output confirms a change.
            whole: it may also tell of verbs that are not complete, and waits for them.
            more: it is a part of an answer that has begun, which waits for the lease.

        Raises:
            ApiError: 503, the change cannot be written for now, the disk has failed and the broker ends, or another
                broker may own the store.
        """
        server = self._server
        commits, journal = server.shard.commits, server.shard.broker.journal
        if commits is None or journal is None or (server.trouble is not None and not changes and server.lease_holds):
            return
        output, needs = _Output(), [*journal.unwritten, *(journal.shares if whole else ())]
        while commits.hold(output, b"", needs):  # again after others had their turns: the lease may have ended
            server.turn.worked()
            while not (await asyncio.wait({output.left}, timeout=LOOK_SECONDS))[0]:
                if (error := unavailable(server)) is not None:
                    if more:
                        continue
                    raise error
                if not changes:
                    return
                if server.failure is not None:
                    raise ApiError(503, "UNAVAILABLE", "the data directory cannot be written; the broker ends")
                if commits.stuck is not None:
                    text = f"it is done, and will be on disk once that can be written: {commits.stuck}"
                    raise ApiError(503, "UNAVAILABLE", text)
            await resumed.get()()
            output = _Output()

"""Whether the owner's process lives: once it has ended, the kernel of its machine refuses connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from sievemq_broker.config import is_loopback
from sievemq_broker.server.durability.worker import Worker
from sievemq_broker.store.lease import Lease, Owner, Sight

#: A probe takes so small a part of the lease at most.
PROBES: Final = 8


def accepts(address: str, seconds: float) -> bool | None:
    """True if an address accepts connections, False if it refuses them, None if nothing is heard. In a thread.

    Args:
        seconds: that it may take. A machine that is cut off says nothing.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except ConnectionRefusedError:
        return False
    except (OSError, ValueError):
        return None
    return True


class Probe:
    """Tries the address of the owner, in a thread: a name that resolves slowly holds up no look.

    Args:
        loop: its thread calls all methods, and `died`.
        lease: of this process.
        own: what this process writes about itself.
        died: called when the owner is suspected, and its address refuses connections that it has accepted before; or
            when that address is this process's by now.
        worker: carries out probes; one of its own if not given.
        accept: whether an address accepts connections, as :func:`accepts`, which is used if none is given.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lease: Lease,
        own: Owner,
        died: Callable[[], None],
        worker: Worker | None = None,
        accept: Callable[[str], bool | None] | None = None,
    ) -> None:
        self._loop = loop
        self._lease = lease
        self._own = own
        self._died = died
        self._worker = worker
        self._accepts = accept or partial(accepts, seconds=lease.terms.lease / PROBES)
        self._is_under_way = False
        #: The last owner whose address was tried, its token; when; and whether a connection was accepted.
        self._tried, self._tried_at, self._was_reached = "", 0.0, False

    def look(self, sight: Sight, asked: float) -> None:
        """Try whether the owner's address can be reached; then, once the owner is suspected, whether it still can.

        One that never was, behind a firewall or on another interface, refuses connections however well its owner is.

        Args:
            sight: the last look at the lease.
            asked: when it was begun.
        """
        owner = sight.owner
        if owner is None or not owner.address or sight.released:
            return
        if _has_place_of(self._own, owner):
            if self._lease.suspects:
                self._died()
            return
        if sight.token != self._tried:
            self._tried, self._was_reached = sight.token, False
        elif not self._was_reached and asked < self._tried_at + self._lease.terms.lease:
            return
        if (not self._was_reached or self._lease.suspects) and not self._is_under_way:
            self._tried_at, self._is_under_way = asked, True
            if self._worker is None:
                self._worker = Worker(self._loop, "sievemq-probe")
            self._worker.put(partial(self._try, owner.address, sight.token))

    def end(self) -> None:
        """Try no more."""
        if self._worker is not None:
            self._worker.end()

    def _try(self, address: str, token: str) -> None:
        """In the worker's thread."""
        self._loop.call_soon_threadsafe(self._answered, self._accepts(address), token)

    def _answered(self, accepted: bool | None, token: str) -> None:
        """The address of the owner with this token was tried."""
        self._is_under_way = False
        if token != self._tried:
            return
        if accepted:
            self._was_reached = True
        elif accepted is False and self._was_reached:
            self._died()


def _has_place_of(own: Owner, owner: Owner) -> bool:
    """This process was started in the place of an owner, which has ended: it has bound the same port of its machine."""
    host, machines = own.address.rpartition(":")[0], [each.name.rpartition(":")[0] for each in (own, owner)]
    return own.address == owner.address and machines[0] == machines[1] and not is_loopback(host.strip("[]"))

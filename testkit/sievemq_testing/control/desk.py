"""What test control keeps between two requests, and how a route calls a verb that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from itertools import count
from typing import Final, ParamSpec, Self, TypeVar, cast

from sievemq import JMSException
from sievemq_broker.server.http.errors import ApiError, not_found
from sievemq_broker.server.server import Phase, Server
from sievemq_testing.broker import TestBroker, TestNamespace
from sievemq_testing.faults import Paused, Rule, Slow
from sievemq_testing.snapshot import Snapshot
from sievemq_testing.watched import WatchedServer

P = ParamSpec("P")
R = TypeVar("R")

#: Requests that may wait at a time, each in a thread.
MAX_WAITING: Final = 64

#: Snapshots that are kept of a namespace.
MAX_SNAPSHOTS: Final = 100

#: A fault that lasts until it is ended.
Lasting = Rule | Paused | Slow


class Desk:
    """Test control of one server. Only the broker's thread touches it.

    Args:
        broker: whose verbs it calls.
    """

    def __init__(self, broker: TestBroker) -> None:
        self.broker = broker
        self._namespaces: dict[str, TestNamespace] = {}
        self._faults: dict[str, dict[str, tuple[str, Lasting]]] = {}
        self._snapshots: dict[str, dict[str, Snapshot]] = {}
        self._numbers = count(1)
        self._threads = ThreadPoolExecutor(MAX_WAITING, "sievemq-test-control")
        self._waiting = 0

    @classmethod
    def of(cls, server: Server) -> Self:
        """The desk of a server; made at the first request."""
        assert isinstance(server, WatchedServer)
        if server.desk is None:
            server.keep(cls(cast("TestBroker", server.verbs)))
        return cast("Self", server.desk)

    def close(self) -> None:
        """The server ends; the verbs that wait have ended with an error."""
        self._threads.shutdown(wait=False)

    async def ask(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a verb of the kit in a thread: it waits for the loop that this runs on.

        Raises:
            ApiError: what the verb did not accept; or too many wait already.
            AssertionError: an assertion failed.
        """
        if self._waiting >= MAX_WAITING:
            raise ApiError(429, "TOO_MANY_REQUESTS", f"{MAX_WAITING} requests to test control wait already")

        def call() -> R:
            try:
                return verb(*args, **kwargs)
            except CancelledError:
                raise RuntimeError("the broker was stopped meanwhile") from None

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except LookupError as error:
            raise not_found(str(error.args[0])) from error
        except JMSException as error:
            raise ApiError(422, error.get_error_code() or "INVALID_VALUE", str(error)) from error
        except ValueError as error:
            raise ApiError(422, "INVALID_VALUE", str(error)) from error
        except RuntimeError as error:
            if self.broker.server.phase is not Phase.READY:
                raise ApiError(503, "SHUTTING_DOWN", "the broker was stopped meanwhile") from None
            raise ApiError(409, "ILLEGAL_STATE", str(error)) from error
        finally:
            self._waiting -= 1

    # -- namespaces ---------------------------------------------------------------------------------------------------

    def open(self, name: str | None) -> TestNamespace:
        """A namespace that clients may connect to; one with a new name if none is given."""
        if name is None:
            there = self.broker.server.shard.broker.namespaces
            name = next(fresh for fresh in (f"test-{n}" for n in self._numbers) if fresh not in there)
        found = self._namespaces.get(name)
        if found is None:
            found = self._namespaces[name] = self.broker.namespace(name)
            self.broker.server.shard.broker.namespace(name)  # it exists before its first client
        return found

    def namespace(self, name: str) -> TestNamespace:
        """A namespace that was opened, or that clients use.

        Raises:
            ApiError: 404, there is none.
        """
        there = self.broker.server.shard.broker.namespaces
        if name not in self._namespaces and name not in there and name != "default":
            text = f"there is no namespace {name!r:.300}; POST /api/v1/test/namespaces opens it"
            raise not_found(text, namespace=name[:300])
        return self.open(name)

    def forget(self, name: str) -> None:
        """The namespace was dropped."""
        self._namespaces.pop(name, None)
        self._faults.pop(name, None)
        self._snapshots.pop(name, None)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def add_snapshot(self, namespace: str, snapshot: Snapshot) -> str:
        """Keep a snapshot until its namespace is dropped; returns its id.

        Raises:
            ApiError: 409, there are too many.
        """
        kept = self._snapshots.setdefault(namespace, {})
        if len(kept) >= MAX_SNAPSHOTS:
            text = f"{MAX_SNAPSHOTS} snapshots of namespace {namespace!r:.300} are kept, and no more; drop it"
            raise ApiError(409, "ILLEGAL_STATE", text)
        name = str(next(self._numbers))
        kept[name] = snapshot
        return name

    def snapshot(self, namespace: str, name: str) -> Snapshot:
        """A snapshot of a namespace.

        Raises:
            ApiError: 404, there is none.
        """
        found = self._snapshots.get(namespace, {}).get(name)
        if found is None:
            text = f"there is no snapshot {name!r:.100} of namespace {namespace!r:.300}"
            raise not_found(text, snapshot=name[:100])
        return found

    # -- faults -------------------------------------------------------------------------------------------------------

    def add_fault(self, namespace: str, kind: str, fault: Lasting) -> str:
        """Keep a fault that lasts; returns its id."""
        name = str(next(self._numbers))
        self._faults.setdefault(namespace, {})[name] = kind, fault
        return name

    def faults(self, namespace: str) -> dict[str, tuple[str, Lasting]]:
        """The faults of a namespace that were requested and not ended, with their kinds, by id."""
        return self._faults.get(namespace, {})

    def take_fault(self, namespace: str, name: str) -> tuple[str, Lasting]:
        """A fault to be ended, with its kind.

        Raises:
            ApiError: 404, there is none.
        """
        found = self._faults.get(namespace, {}).pop(name, None)
        if found is None:
            raise not_found(f"there is no fault {name!r:.100} in namespace {namespace!r:.300}", fault=name[:100])
        return found

    def clear_faults(self, namespace: str) -> None:
        """All were ended."""
        self._faults.pop(namespace, None)

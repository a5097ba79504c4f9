"""A shard: a group of namespaces with everything that belongs to them alone. A link is given the shard that it is of.

    open ─► restored from its store, in a thread ─► serve ─► connections ─► close

A connection belongs to one namespace from its handshake on, so nothing that JMS promises crosses a shard. A process
serves one. What several would share is the server's: ports, links, turns of the loop, users, HTTP, the memory limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.config import Settings
from sievemq_broker.domain.broker import Broker
from sievemq_broker.server.credentials.authenticator import Authenticator
from sievemq_broker.server.net.services import ServerServices, new_incarnation
from sievemq_broker.server.watch.counts import Ended
from sievemq_broker.server.watch.namespace_limits import NamespaceLimits
from sievemq_broker.server.watch.selector_times import SelectorTimes
from sievemq_broker.server.watch.slow_consumers import SlowConsumers
from sievemq_broker.session.lost import LostConnections
from sievemq_broker.session.settings import SessionSettings

if TYPE_CHECKING:  # in memory there is no database
    from sievemq_broker.server.durability.commits import Commits
    from sievemq_broker.server.durability.durable import Opened
    from sievemq_broker.server.durability.progress import Progress

log = logs.get("server")


class Shard:
    """One domain broker, its store and its clients.

    Args:
        clock: the broker's time.
        broker: the domain to serve; an empty one if not given.
        lost: lost connections that may be resumed, those of an earlier run included.

    Attributes:
        broker: the domain. Only the loop's thread may touch it.
        lost: as above.
        ended: counts of what was deleted.
        incarnation: its name, the same as long as its store exists.
        opened: the store; None if there is none.
        commits: writes to the store; None if there is none.
        services: what its connections share; there once it serves.
        namespace_limits, selector_times, slow_consumers: what is watched; there once it serves.
    """

    services: ServerServices
    namespace_limits: NamespaceLimits
    selector_times: SelectorTimes
    slow_consumers: SlowConsumers

    def __init__(
        self, settings: Settings, clock: Clock, broker: Broker | None = None, lost: LostConnections | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.broker = broker or Broker(settings.domain())
        self.broker.scheduler.report_to(partial(log.fault, "task.failed"))
        self.lost = LostConnections() if lost is None else lost
        self.ended = Ended()
        self.incarnation = new_incarnation()
        self.opened: Opened | None = None
        self.commits: Commits | None = None
        self._progress: Progress | None = None
        self._is_wanted = True

    async def open(self, failed: Callable[[Exception], None], stands: Callable[[str | None], None]) -> None:
        """Open the store, if the settings name one, and restore the broker from it in a thread: the loop goes on.

        Args:
            failed: called when the store cannot be used any more.
            stands: called with the reason when nothing can be written, and with None when that is over.

        Raises:
            AbandonedError: :meth:`give_up` was called.
            StoreError: the store cannot be used.
        """
        where = self._settings.data_dir
        if where is None:
            return
        from sievemq_broker.server.durability.commits import Commits  # in memory there is no database
        from sievemq_broker.server.durability.durable import open_and_restore

        loop = asyncio.get_running_loop()
        opened = self.opened = await loop.run_in_executor(
            None, open_and_restore, where, self.broker, self.incarnation, self._clock.now(), lambda: self._is_wanted
        )
        assert self.broker.journal is not None
        self.incarnation = opened.store.incarnation
        self.commits = Commits(
            loop,
            self._clock,
            self.broker.journal,
            opened.store,
            self.broker.refuse_persistent,
            self.broker.guard_persistent,
            failed,
            stands,
        )
        self.broker.measure_room(lambda: opened.store.room)
        self.commits.check_room(log_it=False)

    def give_up(self) -> None:
        """Have :meth:`open` end soon, in any thread. Without effect once it has ended."""
        self._is_wanted = False

    def serve(self, settings: SessionSettings, authenticator: Authenticator, spent: Callable[[], bool]) -> None:
        """Make what connections need. Connections of the last run can be resumed, so that repeated commands are carried
        out once.

        Args:
            spent: True once a client has had its time in this turn of the loop.
        """
        opened, clock = self.opened, self._clock
        run = "" if opened is None else f"-{opened.store.epoch}"  # no id is assigned twice, although the name stays
        services = self.services = ServerServices(settings, clock, authenticator, spent, self.broker, self.lost, run)
        if opened is not None and self.commits is not None:
            from sievemq_broker.server.durability.progress import Progress

            assert self.broker.journal is not None
            progress = Progress(self.broker.journal, services)
            progress.restore(opened.store, clock.now() - clock.offset + settings.keep_ms, self.broker)
            self.commits.start(progress)
            services.note_with(self.commits.note)
        self.broker.notify_deleted(self.ended.add)
        self.namespace_limits = NamespaceLimits(self.broker)
        self.selector_times = SelectorTimes(self.broker)
        self.slow_consumers = SlowConsumers(services.connections, self.broker.scheduler, clock)

    def look(self) -> None:
        """At each tick: check limits, and which lost connections were not resumed in time."""
        self.namespace_limits.look()
        self.slow_consumers.look()
        self.selector_times.look()
        self.lost.expire(self.broker, self._clock.now() - self.services.clock_offset)
        if self.commits is not None:
            self.commits.sweep()

    def clock_jumped(self, by: int) -> None:
        self.broker.clock_jumped(by)
        self.lost.clock_jumped(by)
        self.slow_consumers.clock_jumped(by)

    async def close(self) -> bool:
        """Write the rest, and close the store.

        Returns:
            False if something that was accepted, and not confirmed, is not on disk.
        """
        if self.opened is None or self.commits is None:
            return True
        await asyncio.sleep(0)  # connections that were cut return their messages in the next turn
        written = await self.commits.close()
        self.opened = None
        return written

"""A shard: a group of namespaces with everything that belongs to them alone. A link is given the shard that it is of.

    own ─► open: restored from its store, in a thread ─► serve ─► begin ─► connections ─► close

A connection belongs to one namespace from its handshake on, so nothing that JMS promises crosses a shard. A process
serves one. What several would share is the server's: ports, links, turns of the loop, users, HTTP, the memory limit.

A shard whose store several brokers share has a lease (store/lease.py). Which one this is, of those that the process
follows (durability/candidates.py), is known once the process owns it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sievemq_broker import logs
from sievemq_broker.clock import Clock
from sievemq_broker.config import Settings
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.journal import CHANGED
from sievemq_broker.domain.store import AbandonedError, AwayError, HistoryStore, Store, StoreError
from sievemq_broker.domain.work import Job
from sievemq_broker.server.credentials.authenticator import Authenticator
from sievemq_broker.server.live_settings import LiveSettings
from sievemq_broker.server.net.services import ServerServices, new_incarnation
from sievemq_broker.server.watch.counts import Ended
from sievemq_broker.server.watch.namespace_limits import NamespaceLimits
from sievemq_broker.server.watch.selector_times import SelectorTimes
from sievemq_broker.server.watch.slow_consumers import SlowConsumers
from sievemq_broker.session.lost import LostConnections
from sievemq_broker.session.settings import SessionSettings
from sievemq_core.counted import counted

if TYPE_CHECKING:  # in memory there is no database
    from sievemq_broker.server.durability.commits import Commits
    from sievemq_broker.server.durability.durable import Opened, Source
    from sievemq_broker.server.durability.following import Following
    from sievemq_broker.server.durability.keeper import Keeper
    from sievemq_broker.server.placement import Placement
    from sievemq_broker.store.places import Places

#: Seconds by which the clocks of two owners may differ: each by a second from that of the database.
AHEAD_SECONDS = 2.0

#: Seconds that the end waits for the lease to be released.
RELEASE_SECONDS = 5.0

log = logs.get("server")


class Shard:
    """One domain broker, its store and its clients.

    Args:
        clock: the broker's time.
        broker: the domain to serve; an empty one if not given.
        lost: lost connections that may be resumed, those of an earlier run included.

    Attributes:
        name: in the store that brokers share.
        broker: the domain. Only the loop's thread may touch it.
        lost: as above.
        live: rules, limits and users, which change at run time.
        ended: counts of what was deleted.
        incarnation: its name, the same as long as its store exists.
        opened: the store; None if there is none.
        commits: writes to the store; None if there is none.
        keeper: keeps the lease; None if there is none, and before :meth:`own`.
        failure: why it must not be served any more.
        placement: where namespaces are; None if all are here.
        redirects: counts clients and requests that were sent to another broker, by protocol.
        services: what its connections share; there once it serves.
        namespace_limits, selector_times, slow_consumers: what is watched; there once it serves.
    """

    services: ServerServices
    namespace_limits: NamespaceLimits
    selector_times: SelectorTimes
    slow_consumers: SlowConsumers

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        broker: Broker | None = None,
        lost: LostConnections | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.live = LiveSettings(settings)
        self.broker = broker or Broker(settings.domain())
        if broker is not None:
            self.use_rules()  # of an earlier run it may have others, which were changed then
        self.broker.scheduler.report_to(partial(log.fault, "task.failed"))
        self.lost = LostConnections() if lost is None else lost
        self.ended = Ended()
        self.incarnation = new_incarnation()
        self.opened: Opened | None = None
        self.commits: Commits | None = None
        self.keeper: Keeper | None = None
        self.name = settings.shard
        self.failure: Exception | None = None
        self.placement: Placement | None = None
        self.redirects: Counter[str] = Counter()
        self._source: Source | None = None
        if settings.data_dir is not None:
            from sievemq_broker.server.durability.durable import Directory  # in memory there is no database

            self._source = Directory(settings.data_dir)
        #: What was built while another process owned it.
        self._following: Following | None = None
        self._is_wanted, self._serves = True, False
        self._first_write = 0
        self._carries = True
        self._failed: Callable[[Exception], None] = lambda error: None
        self._stands: Callable[[str | None], None] = lambda reason: None
        self._silenced: Callable[[str | None], None] = lambda reason: None
        self._asked: Callable[[], None] = lambda: None

    def report_to(
        self,
        failed: Callable[[Exception], None],
        stands: Callable[[str | None], None],
        silenced: Callable[[str | None], None],
        asked: Callable[[], None],
    ) -> None:
        """Who hears what becomes of the store.

        Args:
            failed: called when the shard is served and must not be served any more.
            stands: called with the reason when nothing can be written, and with None when that is over.
            silenced: called with the reason when nothing may be read or sent, and with None when that is over.
            asked: called, maybe again and again, once a follower asks for the shard and it is served.
        """
        self._failed, self._stands, self._silenced, self._asked = failed, stands, silenced, asked

    def own(self, name: str, source: Source, keeper: Keeper, following: Following | None) -> None:
        """This process owns the shard. :meth:`open` comes next.

        Args:
            name: of the shard.
            source: where its messages are stored.
            keeper: keeps the lease.
            following: has built messages.
        """
        self.name, self._source, self.keeper, self._following = name, source, keeper, following

    async def open(self) -> None:
        """Open the store, if there is one, and restore the broker from it in a thread: the loop goes on.

        Raises:
            AbandonedError: :meth:`give_up` was called.
            StoreError: the store cannot be used.
        """
        source = self._source
        if source is None:
            return
        from sievemq_broker.server.durability.commits import RETRY_SECONDS, Commits
        from sievemq_broker.server.durability.durable import open_and_restore

        loop, keeper, broker = asyncio.get_running_loop(), self.keeper, self.broker
        token = "" if keeper is None else keeper.lease.token
        try:
            following, self._following = self._following, None
            follower = None if following is None else await following.end()
            if self.failure is not None:
                raise self.failure
            now = self._clock.now()
            opened = self.opened = await loop.run_in_executor(
                None,
                open_and_restore,
                *(source, token, broker, self.incarnation, now, self._wanted, follower),
                self._restore_settings,
            )
        except StoreError as error:
            if self.failure is not None:
                raise self.failure from None
            if keeper is not None and not isinstance(error, AbandonedError | AwayError):
                keeper.fail()  # others take it after the lease, and follow the other shards until then
            raise
        # The former owner's clock may have been ahead: time does not go back. One that was set is not waited for.
        ahead = (opened.store.time - self._clock.now()) / 1_000
        if 0 < ahead <= AHEAD_SECONDS:
            await asyncio.sleep(ahead)
        self._first_write = opened.store.next_write
        assert self.broker.journal is not None
        self.live.keep_in(self.broker.journal)
        self.incarnation = opened.store.incarnation
        self.commits = Commits(
            loop,
            self._clock,
            self.broker.journal,
            opened.store,
            self.broker.refuse_persistent,
            self.broker.guard_persistent,
            self._fail,
            self._stands,
            speaks=None if keeper is None else keeper.speaks,
            patience=RETRY_SECONDS if keeper is None else self._settings.store_patience,
        )
        self.broker.measure_room(lambda: opened.store.room)
        self.commits.check_room(log_it=False)
        if self.placement is not None:
            await self.placement.own(self.name, token, tuple(self.broker.namespaces))

    def history(self) -> HistoryStore | None:
        """Where what happens to it is stored; None if it is in memory."""
        return None if self._source is None else self._source.history()

    def _restore_settings(self, store: Store) -> None:
        """Use the rules that were changed at run time, before anything is restored by them."""
        self.live.restore(store.definitions(CHANGED))
        if self.live.rules.changes or self.live.limits.changes:
            self.use_rules()

    def use_rules(self) -> Job[int]:
        """The rules or limits have changed. Returns the task that gives them to what exists."""
        rules, limits = self.live.rules.present, self.live.limits.present
        return self.broker.use_rules(tuple(rules.items()), tuple(limits.items()))

    def give_up(self) -> None:
        """Have :meth:`open` end soon, in any thread. Without effect once it has ended."""
        self._is_wanted = False

    def _wanted(self) -> bool:
        return self._is_wanted

    # -- namespaces in several shards -------------------------------------------------------------------------------

    def join(
        self, loop: asyncio.AbstractEventLoop, places: Places, shards: Sequence[str], ports: Collection[int]
    ) -> None:
        """Be one of several shards of a database.

        Args:
            places: where namespaces are.
            shards: all of them.
            ports: of this broker for clients.
        """
        from sievemq_broker.server.placement import Placement

        patience = self._settings.handshake_seconds / 2
        self.placement = Placement(loop, places, shards, self, patience=patience, ports=ports, redirects=self.redirects)

    def use_of(self, namespace: str) -> str | None:
        """What a namespace is used for, for people; None if it is empty and nobody is connected to it."""
        space = self.broker.namespaces.get(namespace)
        if space is None:
            return None
        connections = self.services.connections.values() if self._serves else ()
        found = (
            (sum(connection.namespace is space for connection in connections), "connection", ""),
            (self.lost.number_in(namespace), "connection that may come back", "connections that may come back"),
            (len(space.destinations), "destination", ""),
            (len(space.stages), "staged batch", "staged batches"),
            (len(space.stages.published), "publisher of batches", "publishers of batches"),
        )
        return ", ".join([counted(number, one, many=many) for number, one, many in found if number]) or None

    def drop(self, namespace: str, then: Callable[[], None]) -> None:
        """Delete an empty namespace, if it is there, and call back when that is stored."""
        self.broker.delete_namespace(namespace)
        if self.commits is None:
            then()
        else:
            self.commits.synced().add_done_callback(lambda synced: None if synced.cancelled() else then())

    # -- what the keeper reports ------------------------------------------------------------------------------------

    def silence(self, reason: str | None) -> None:
        """Nothing may be read or sent for now; with None, again."""
        if not self._serves:
            return
        self._silenced(reason)
        if reason is None and self.commits is not None:
            self.commits.opened()

    def asked(self) -> None:
        """A follower asks for it."""
        if self._serves:
            self._asked()

    def gone(self, error: StoreError) -> None:
        """Another broker owns it, or may own it."""
        if self.commits is not None:
            self.commits.end(error)
        self._fail(error)

    @property
    def writes(self) -> int:
        """So many this process has stored."""
        return 0 if self.opened is None else self.opened.store.next_write - self._first_write

    def hangs(self, seconds: float) -> bool:
        """True if the store has not answered a write for so long."""
        return self.commits is not None and self.commits.hangs(seconds)

    def _fail(self, error: Exception) -> None:
        """It must not be served any more."""
        if self.failure is not None:
            return
        self.failure = error
        self._is_wanted = False
        if self.keeper is not None:
            self.keeper.fail()
        if self._serves:
            self._failed(error)

    # -- serving ----------------------------------------------------------------------------------------------------

    def serve(self, settings: SessionSettings, authenticator: Authenticator, spent: Callable[[], bool]) -> None:
        """Make what connections need. Connections of the last run can be resumed, so that repeated commands are carried
        out once.

        Args:
            spent: True once a client has had its time in this turn of the loop.
        """
        opened, clock = self.opened, self._clock
        run = ""
        if opened is not None:  # no id is assigned twice, although the name stays
            run = f"-{opened.store.epoch}"
            if self.keeper is not None:  # a database that lost the last takeover repeats its number
                run += f"-{self.keeper.lease.token[:6]}"
        services = self.services = ServerServices(
            settings, clock, authenticator, spent, self.broker, self.lost, run, self.placement
        )
        if opened is not None and self.commits is not None:
            from sievemq_broker.server.durability.progress import Progress

            assert self.broker.journal is not None
            progress = Progress(self.broker.journal, services)
            progress.restore(opened.store, clock.now() - clock.offset + settings.keep_ms, self.broker)
            self._drop_temporaries()
            self.commits.start(progress)
            services.note_with(self.commits.note)
        self.broker.notify_deleted(self.ended.add)
        self.namespace_limits = NamespaceLimits(self.broker)
        self.selector_times = SelectorTimes(self.broker)
        self.slow_consumers = SlowConsumers(services.connections, self.broker.scheduler, clock)

    def _drop_temporaries(self) -> None:
        """Delete temporary destinations that were handed over and whose connections are not remembered."""
        for space in self.broker.namespaces.values():
            for owner in space.temporaries.owners:
                if owner not in self.lost:
                    self.broker.scheduler.start(
                        owner, partial(space.temporaries.delete_all, owner), self._clock.now(), later=True
                    )

    def begin(self) -> None:
        """Clients can be served from now on.

        Raises:
            StoreError: it must not be served any more.
        """
        self._serves = True
        if self.failure is not None:
            raise self.failure
        if self.keeper is not None:
            self.keeper.restored()

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
        self.services.tallies.clock_jumped(by)

    def carry_nothing(self) -> None:
        """Let what only memory holds end with this process, as if it crashed."""
        self._carries = False

    async def close(self) -> bool:
        """Write the rest, close the store, and release it for other brokers.

        Returns:
            False if something that was accepted, and not confirmed, is not on disk.
        """
        written = True
        if self.opened is not None and self.commits is not None:
            await asyncio.sleep(0)  # connections that were cut return their messages in the next turn
            # One that could not serve writes that it has what was handed over to it, and hands it over likewise.
            if self._carries and self.keeper is not None and (self.keeper.speaks() or not self._serves):
                self._carry()
            written = await self.commits.close()
            self.opened = None
        if self.placement is not None:
            self.placement.close()
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            await asyncio.wait([keeper.close()], timeout=RELEASE_SECONDS)
        return written

    def _carry(self) -> None:
        """Have what only memory holds stored with the last write."""
        from sievemq_broker.domain.handover import carry

        self.broker.finish(self._clock.now())
        carried = carry(self.broker, self.lost.__contains__)
        if any(carried):
            log.info("store.carried", messages=carried.stored, lost=carried.left)

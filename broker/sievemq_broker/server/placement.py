"""Where the namespaces of a cluster are: brokers that share a database, each of which owns one of its shards or none.

    handshake ─► here? ─► yes: go on
                  └─► no: claim, in a thread ─► the row says this shard: go on
                                             └─► another one: its owner's address

The table of namespaces is the truth (store/places.py). A name of this broker's own shard is known here, so its clients
wait for no query. A client that names a host alone waits for one: a namespace may have that name. What is elsewhere is
asked again each time: its owner may have changed, and its shard.

The shard of a namespace changes only while nobody uses it, by the owner of its present shard:

    refuse if it has anything ─► it is here no more: handshakes wait ─► drop it, and store that ─► change the row

All methods are called in the loop's thread. Verbs that need the database return futures, which fail with a RequestError
that says why. A call whose answer was lost is repeated.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from fnmatch import translate
from functools import lru_cache, partial
from itertools import islice
from re import compile as compile_pattern
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from zlib import crc32

from sievemq_broker import logs
from sievemq_broker.domain.store import AwayError, StoreError
from sievemq_broker.protocols import PROTOCOLS
from sievemq_broker.server.durability.worker import Worker
from sievemq_broker.store.lease import Owner, ShardSight
from sievemq_broker.store.places import Places
from sievemq_core.errors import ErrorCode, RequestError

_R = TypeVar("_R")

#: Seconds after which a database that did not answer is asked again.
RETRY_SECONDS: Final = 0.5

#: Rows of each shard, on average: those of deleted namespaces stay. A broker has all of its own in memory.
MAX_NAMES: Final = 100_000

#: Names that are asked for at once: the clients that wait for them go on in one turn of the loop.
_MOST: Final = 64

log = logs.get("placement")


class Where(NamedTuple):
    """Where a namespace is.

    Attributes:
        name: of the namespace.
        shard: that has it, or would have it.
        owner: of the shard; None if it is this broker, or there is none now.
        is_claimed: it has a row. Without, the patterns may change before it has one.
    """

    name: str
    shard: str
    owner: Owner | None = None
    is_claimed: bool = True


class Listing(NamedTuple):
    """The whole cluster.

    Attributes:
        shards: of the database, by name.
        namespaces: by name, and the shard of each.
        patterns: for new namespaces, in their order, and the shard of each.
    """

    shards: list[ShardSight]
    namespaces: dict[str, str]
    patterns: list[tuple[str, str]]


class Tenants(Protocol):
    """The namespaces of the shard that this broker owns."""

    def use_of(self, namespace: str) -> str | None:
        """What a namespace is used for, for people; None if it is empty and nobody is connected to it."""

    def drop(self, namespace: str, then: Callable[[], None]) -> None:
        """Delete an empty namespace, if it is there.

        Args:
            then: called when that is stored.
        """


class _Ask:
    """A name whose shard is asked for.

    Attributes:
        names: the first that has a row is meant; the last one is claimed if there is none, unless it is empty.
        claims: False if nothing is claimed.
    """

    __slots__ = ("_timer", "claims", "future", "names")

    def __init__(self, names: tuple[str, ...], claims: bool, future: asyncio.Future[Where]) -> None:
        self.names = names
        self.claims = claims
        self.future = future
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, timer: asyncio.TimerHandle) -> None:
        """The answer takes a while, until this timer at most."""
        self._timer = timer

    def answer(self, answer: Where | Exception) -> None:
        if self._timer is not None:
            self._timer.cancel()
        _settle(self.future, answer)


class Placement:
    """Where namespaces are, as one broker knows it.

    Args:
        loop: all methods are called in its thread.
        places: the tables.
        shards: all of the cluster, by name.
        tenants: the namespaces of its own shard.
        worker: carries out calls; one of its own if not given.
        patience: seconds for which an answer is waited for.
        ports: of this broker for clients; others are those of HTTP.
        redirects: counts the clients that are sent to another broker, by protocol or :data:`WEB`.

    Attributes:
        shards: as above.
        shard: the one that this broker owns; "" before.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        places: Places,
        shards: Sequence[str],
        tenants: Tenants,
        worker: Worker | None = None,
        patience: float = 5.0,
        ports: Collection[int] = (),
        redirects: Counter[str] | None = None,
    ) -> None:
        self._loop = loop
        self._places = places
        self.shards = tuple(shards)
        self._tenants = tenants
        self._worker = worker or Worker(loop, "sievemq-placement")
        self._patience = patience
        self._ports = ports
        self._redirects: Counter[str] = Counter() if redirects is None else redirects
        self.shard = ""
        self._token = ""
        self._here: set[str] = set()
        #: Namespaces whose row is being changed: what is asked about them waits.
        self._moving: set[str] = set()
        #: What waits, in order: each one is taken out alone, however many there are.
        self._asks: dict[_Ask, None] = {}
        #: A call for some of them is under way.
        self._asking = False
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False

    # -- for clients --------------------------------------------------------------------------------------------------

    def here(self, name: str) -> bool:
        """This broker has the namespace, and it stays at least until the loop's next turn."""
        return name in self._here

    def enter(
        self, name: str, instead: str, protocol: str, port: int, then: Callable[[str | RequestError], None]
    ) -> str | None:
        """Find the namespace of a client that has signed in.

        Args:
            name, instead: as of :meth:`claim`.
            protocol: of the client.
            port: of this broker, by which it has come; 0 if that is not known.
            then: called with the name of the namespace, if that takes a while and it is here; with REDIRECT or
                UNAVAILABLE, if it is not; with "" if there is none.

        Returns:
            The name, if it is known to be here.
        """
        first = instead or name
        if first in self._here:
            return first

        def found(asked: asyncio.Future[Where]) -> None:
            error = asked.exception()
            if error is not None:
                assert isinstance(error, RequestError)
                then("" if error.code is ErrorCode.NOT_FOUND else error)
                return
            where = asked.result()
            if where.name in self._here:
                then(where.name)
            elif where.shard == self.shard:  # its shard is being changed since
                self.claim(name, instead).add_done_callback(found)
            else:
                door = WEB if port and port not in self._ports else protocol
                refusal = elsewhere(where, door)
                if refusal.code is ErrorCode.REDIRECT:
                    self._redirects[door] += 1
                then(refusal)

        self.claim(name, instead).add_done_callback(found)
        return None

    def claim(self, name: str, instead: str = "") -> asyncio.Future[Where]:
        """Where a namespace is. One that has no row gets it now.

        Args:
            name: of the namespace; empty if only the other one will do.
            instead: is meant if there is a namespace of this name. It is not made.

        Returns:
            Fails with NOT_FOUND if `name` is empty and there is no other one, with RESOURCE_ALLOCATION if there are too
            many names, with UNAVAILABLE if the database does not answer in time.
        """
        return self._ask((instead, name) if instead else (name,), claims=True)

    def find(self, name: str) -> asyncio.Future[Where]:
        """Where a namespace is, or would be: it gets no row."""
        return self._ask((name,), claims=False)

    def _ask(self, names: tuple[str, ...], claims: bool) -> asyncio.Future[Where]:
        ask = _Ask(names, claims, self._loop.create_future())
        if names[0] in self._here:
            ask.answer(Where(names[0], self.shard))
            return ask.future
        ask.wait(self._loop.call_later(self._patience, self._give_up, ask))
        self._asks[ask] = None
        if self._moving.isdisjoint(names):  # otherwise the end of the move goes on
            self._go_on()
        return ask.future

    def _give_up(self, ask: _Ask) -> None:
        self._asks.pop(ask, None)
        ask.answer(_unavailable(f"the database has not answered where namespace {ask.names[-1]!r} is; try again"))

    def _go_on(self) -> None:
        """Ask the database for everything that waits, unless that is being done."""
        if self._asking or self._closed or self._retry is not None:
            return
        asks = list(islice((ask for ask in self._asks if self._moving.isdisjoint(ask.names)), _MOST))
        if not asks:
            return
        self._asking = True
        wanted = [(ask.names, ask.claims) for ask in asks]
        work = partial(look, self._places, wanted, self.shards, self.shard)
        self._carry_out(work, partial(self._answered, asks))

    def _answered(self, asks: list[_Ask], answer: list[Where | None] | Exception) -> None:
        self._asking = False
        if isinstance(answer, AwayError):
            self._retry = self._loop.call_later(RETRY_SECONDS, self._again)
            return
        if isinstance(answer, Exception):  # it names the database: for the operator, not for clients
            log.error("placement.failed", shard=self.shard, reason=str(answer))
        for ask, where in zip(asks, answer if isinstance(answer, list) else [None] * len(asks), strict=True):
            if ask.future.done() or not self._moving.isdisjoint(ask.names):
                continue  # the latter is asked again when that is over
            if isinstance(answer, Exception):
                ask.answer(_unavailable(f"it cannot be found out where namespace {ask.names[-1]!r} is; {_LOGGED}"))
            elif where is None:
                ask.answer(RequestError(f"there is no namespace {ask.names[0]!r}", ErrorCode.NOT_FOUND))
            elif ask.claims and not where.is_claimed:
                ask.answer(RequestError(_TOO_MANY, ErrorCode.RESOURCE_ALLOCATION, {"limit": "namespaces"}))
            else:
                if where.is_claimed and where.shard == self.shard:
                    self._here.add(where.name)
                ask.answer(where)
        for ask in asks:
            if ask.future.done():
                self._asks.pop(ask, None)
        self._go_on()

    def _again(self) -> None:
        self._retry = None
        self._go_on()

    # -- for the server -----------------------------------------------------------------------------------------------

    def own(self, shard: str, token: str, names: Collection[str]) -> asyncio.Future[None]:
        """This broker owns a shard from now on.

        Args:
            token: of its lease.
            names: of the namespaces that the shard was restored with. Those without a row get it now: they are from
                before the cluster.

        Returns:
            Done when this broker knows which namespaces are here.
        """
        done: asyncio.Future[None] = self._loop.create_future()

        def known(found: dict[str, str] | Exception) -> None:
            if isinstance(found, Exception):
                _settle(done, found)
                return
            self.shard, self._token = shard, token
            self._here = {name for name, place in found.items() if place == shard}
            for name in names:
                if name not in self._here:
                    self._disown(name, found[name])
            _settle(done, None)

        self._carry_out(partial(adopt, self._places, shard, names), known)
        return done

    def _disown(self, name: str, shard: str) -> None:
        """The shard has a namespace that is in another shard."""
        use = self._tenants.use_of(name)
        if use is None:
            self._tenants.drop(name, lambda: None)
        else:
            log.error(
                "namespace.elsewhere",
                namespace=name,
                shard=shard,
                use=use,
                note=f"its clients are sent to shard {shard}. Export what shard {self.shard} has, and import it there",
            )

    def close(self) -> asyncio.Future[None]:
        """Close the connection to the database. What is asked fails."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        asks, self._asks = self._asks, {}
        for ask in asks:
            ask.answer(_unavailable("the broker is shutting down"))
        self._worker.put(self._places.close)
        return self._worker.end()

    # -- for operators ------------------------------------------------------------------------------------------------

    def listed(self) -> asyncio.Future[Listing]:
        """The shards with their owners, all namespaces, and the patterns."""
        places = self._places
        return self._call(lambda: Listing(places.shards(), places.all_names(), places.patterns()))

    def assign(self, name: str, shard: str | None) -> asyncio.Future[Where]:
        """Have a namespace in a shard; or new namespaces, if the name has ``*`` or ``?`` in it.

        Args:
            shard: the one; None to remove a pattern.

        Returns:
            Fails with ILLEGAL_STATE if the namespace is in use, with REDIRECT if another broker owns its present shard,
            with NOT_FOUND if the shard is not one of the cluster, or the pattern to remove is not there.
        """
        done: asyncio.Future[Where] = self._loop.create_future()
        is_pattern = "*" in name or "?" in name
        if shard is None and not is_pattern:
            _settle(done, _illegal(f"namespace {name!r} has a shard as long as the cluster lives; name another one"))
        elif shard is not None and shard not in self.shards:
            _settle(done, RequestError(f"there is no shard {shard!r}; there are {', '.join(self.shards)}", _NOT_FOUND))
        elif is_pattern:
            change = partial(set_pattern, self._places, name, shard)
            self._call(change, done, Where(name, shard or "", is_claimed=False))
        else:
            assert shard is not None
            if name in self._here:
                self._move(name, shard, done)
            else:
                work = partial(look_up, self._places, name, shard, self.shards, self.shard)
                self._carry_out(work, partial(self._assigned, name, shard, done))
        return done

    def _assigned(self, name: str, shard: str, done: asyncio.Future[Where], where: Where | Exception) -> None:
        """A namespace that was not here is somewhere now."""
        if isinstance(where, Exception):
            _settle(done, _refusal(where))
        elif where.shard != self.shard:
            _settle(done, where if where.shard == shard else elsewhere(where))
        elif name in self._moving:
            _settle(done, _illegal(f"the shard of namespace {name!r} is being changed"))
        else:
            self._here.add(name)
            self._move(name, shard, done)

    def _move(self, name: str, to: str, done: asyncio.Future[Where]) -> None:
        """Change the row of a namespace that is here."""
        if to == self.shard:
            _settle(done, Where(name, to))
            return
        use = self._tenants.use_of(name)
        if use is not None:
            _settle(done, _illegal(_IN_USE.format(name=name, use=use), namespace=name))
            return
        self._here.discard(name)
        self._moving.add(name)
        timer = self._loop.call_later(
            self._patience, _settle, done, _unavailable(f"the database has not answered; look where {name!r} is")
        )

        def attempt() -> None:
            self._carry_out(partial(self._places.move, name, self.shard, self._token, to), moved)

        def moved(now: str | Exception) -> None:
            if isinstance(now, AwayError) and not self._closed:
                self._loop.call_later(RETRY_SECONDS, attempt)
                return
            timer.cancel()
            self._moving.discard(name)
            if isinstance(now, Exception):
                self._here.add(name)  # nothing was changed, unless this broker is about to end
                _settle(done, _refusal(now))
            else:
                if now == self.shard:
                    self._here.add(name)
                log.info("namespace.moved", namespace=name, shard=now, before=self.shard)
                _settle(done, Where(name, now))
            self._go_on()

        self._tenants.drop(name, attempt)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _call(
        self, call: Callable[[], _R], done: asyncio.Future[Any] | None = None, instead: object = None
    ) -> asyncio.Future[Any]:
        """Make a call once. The future gets its answer, or another one instead."""
        future = done or self._loop.create_future()

        def answered(answer: Any) -> None:
            failed = isinstance(answer, Exception)
            _settle(future, _refusal(answer) if failed else answer if instead is None else instead)

        self._carry_out(call, answered)
        return future

    def _carry_out(self, call: Callable[[], _R], then: Callable[[Any], None]) -> None:
        """Have the thread make a call, and go on with its answer, or with the error."""
        loop = self._loop

        def work() -> None:
            answer: object
            try:
                answer = call()
            except Exception as error:
                answer = error
            loop.call_soon_threadsafe(then, answer)

        if self._closed:
            loop.call_soon(then, StoreError("the broker is shutting down"))
        else:
            self._worker.put(work)


# -- in the thread ----------------------------------------------------------------------------------------------------


def choose(name: str, patterns: Sequence[tuple[str, str]], shards: Sequence[str]) -> str:
    """The shard of a new namespace: that of the first pattern that fits, else one that depends on the name alone."""
    for pattern, shard in patterns:
        if shard in shards and fits(pattern, name):
            return shard
    return sorted(shards)[crc32(name.encode("utf-8", "surrogatepass")) % len(shards)]


def fits(pattern: str, name: str) -> bool:
    """``*`` stands for any text, ``?`` for one character; nothing else is special."""
    return _matcher(pattern)(name) is not None


@lru_cache(256)
def _matcher(pattern: str) -> Callable[[str], object]:
    return compile_pattern(translate(pattern.replace("[", "[[]"))).match


def look(
    places: Places, wanted: Sequence[tuple[tuple[str, ...], bool]], shards: Sequence[str], own: str
) -> list[Where | None]:
    """Where namespaces are.

    Args:
        wanted: of each one the names, of which the first is meant that has a row; and whether the last one is claimed
            if there is none, unless it is empty.
        shards: all of them.
        own: the caller's; its owner is not looked up.

    Returns:
        None where there is none, and the last name is empty.
    """
    found = places.find(sorted({name for names, _ in wanted for name in names}))
    new = sorted({names[-1] for names, _ in wanted if names[-1] and found.keys().isdisjoint(names)})
    would: dict[str, str] = {}
    if new:
        patterns, stored = places.patterns(), places.stored(new, shards)
        would = {name: stored.get(name) or choose(name, patterns, shards) for name in new}
        claimed = {names[-1] for names, claims in wanted if claims}
        claims = {name: shard for name, shard in would.items() if name in claimed}
        if claims and places.count() < MAX_NAMES * len(shards):
            found |= places.claim(claims)
    owners: dict[str, Owner | None] = {}
    if any(shard != own for shard in (*found.values(), *would.values())):
        owners = {sight.shard: sight.owner for sight in places.shards() if sight.shard != own}
    answers: list[Where | None] = []
    for names, _ in wanted:
        name = next((name for name in names if name in found), names[-1])
        shard = found.get(name) or would.get(name)
        answers.append(None if shard is None else Where(name, shard, owners.get(shard), name in found))
    return answers


def look_up(places: Places, name: str, shard: str, shards: Sequence[str], own: str) -> Where:
    """Where a namespace is; in this shard if it is nowhere yet."""
    found = places.claim({name: places.stored([name], shards).get(name, shard)})[name]
    owner = None
    if found != own:
        owner = next((sight.owner for sight in places.shards() if sight.shard == found), None)
    return Where(name, found, owner)


def set_pattern(places: Places, pattern: str, shard: str | None) -> None:
    """Have a pattern choose a shard; None removes it, and fails with NOT_FOUND if it is not there."""
    if shard is None and pattern not in dict(places.patterns()):
        raise RequestError(f"there is no pattern {pattern!r}", _NOT_FOUND)
    places.set_pattern(pattern, shard)


def adopt(places: Places, shard: str, names: Collection[str]) -> dict[str, str]:
    """The namespaces of a shard, and those others that it was restored with: the shard that each has by now."""
    found = dict.fromkeys(places.names(shard), shard)
    missing = {name: shard for name in names if name not in found}
    return found | (places.claim(missing) if missing else {})


# -- errors -----------------------------------------------------------------------------------------------------------

_NOT_FOUND: Final = ErrorCode.NOT_FOUND
_TOO_MANY: Final = (
    "the cluster knows as many names of namespaces as it may, those of deleted ones included; use one of them, or "
    "delete rows of unused names from the table sievemq.namespace while no broker runs"
)
_LOGGED: Final = "the broker's log has the reason"
_IN_USE: Final = (
    "namespace {name!r} is used: {use}. Its shard can be changed while it is empty. Otherwise end its clients, write "
    "the messages of each queue to a file (`sievemq browse --json`), delete the namespace, assign its name, and read "
    "the files in again (`sievemq import`)"
)


#: In place of a protocol: STOMP over WebSocket.
WEB: Final = "web"


def elsewhere(where: Where, protocol: str = "sieve") -> RequestError:
    """The error for a request to a broker that does not have the namespace.

    Args:
        protocol: of the client, or :data:`WEB`.
    """
    named = f"namespace {where.name!r} is in shard {where.shard!r}"
    if where.owner is None:
        return _unavailable(f"{named}, which no broker owns at present; try again", shard=where.shard)
    url = url_of(where.owner, protocol)
    details = {"url": url, "shard": where.shard, "namespace": where.name}
    return RequestError(f"{named}, at {url}", ErrorCode.REDIRECT, details)


def url_of(owner: Owner, protocol: str) -> str:
    """The URL of an owner for clients of a protocol. It has the host of the one that the owner advertises, and the port
    of that, unless the protocol has one for itself."""
    if protocol == WEB:
        return f"ws{owner.http_url.removeprefix('http')}/stomp" if owner.http_url else owner.url
    scheme, _, address = owner.url.partition("://")
    own = json.loads(owner.ports).get(protocol) if owner.ports else None
    if own is not None:
        address = f"{address.rpartition(':')[0]}:{own}"
    return f"{PROTOCOLS[protocol].scheme}{'s' * scheme.endswith('s')}://{address}"


def _illegal(text: str, **details: object) -> RequestError:
    return RequestError(text, ErrorCode.ILLEGAL_STATE, details)


def _unavailable(text: str, **details: object) -> RequestError:
    return RequestError(text, ErrorCode.UNAVAILABLE, details)


def _refusal(error: Exception) -> Exception:
    """An error of the database as one of a request."""
    return _unavailable(str(error)) if isinstance(error, StoreError) else error


def _settle(future: asyncio.Future[Any], result: object) -> None:
    """Complete a future, unless nobody waits for it any more."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)

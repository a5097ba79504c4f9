"""What charts show: figures over time, and what has happened meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.hub import Listener
from sievemq_broker.server.http.api.pages import Order, decode_cursor, encode_cursor, name_matcher, page_of
from sievemq_broker.server.http.api.ranges import LONGER, STEP_SECONDS, Name, Ring, Track
from sievemq_broker.server.http.api.series import Sampler
from sievemq_broker.server.http.tasks import run
from sievemq_broker.server.watch.counts import figures_of
from sievemq_broker.server.watch.happenings import MARKED
from sievemq_broker.session.rights import EVERYTHING, Verb

routes = Routes("Charts")

#: Units of reading a row, some ten microseconds.
_READ: Final = 3

_LEVELS: Final = {longer.name: level for level, longer in enumerate(LONGER)}

_Row: TypeAlias = dict[str, Any]


@routes.add(
    "GET",
    "/namespaces/{ns}/destinations/{address}/series",
    Verb.VIEW,
    answers.Series,
    query=requests.Samples,
)
async def get_series(call: Call[requests.Samples, Any]) -> answers.Series:
    """Depth and rates over time, for charts: of the last five minutes, hour, day or week.

    In memory: after a restart they begin anew."""
    destination = call.destination()
    sampler, range_ = call.management.sampler, call.query.range
    track = sampler.tracks.get(destination)
    if track is not None:
        return _series(call.query, *_samples(sampler, track, range_))
    times, _ = _samples(sampler, sampler.total, range_)
    _, held = await run(call.server, partial(figures_of, destination))
    still = Ring(len(times))
    for _ in times:
        still.add(held.ready, held.in_flight, 0.0, 0.0)
    return _series(call.query, times, still)


@routes.add("GET", "/series", Verb.VIEW, answers.Series, query=requests.Samples)
async def get_total_series(call: Call[requests.Samples, Any]) -> answers.Series:
    """The same for all destinations together. An hour, a day and a week survive a restart where messages do."""
    sampler = call.management.sampler
    return _series(call.query, *_samples(sampler, sampler.total, call.query.range))


@routes.add("GET", "/history", None, answers.Happenings, query=requests.ListHistory)
async def list_history(call: Call[requests.ListHistory, Any]) -> answers.Happenings:
    """What has happened, newest first: starts, pauses, created and deleted destinations, dead letters, blocked senders,
    full disks, what needed attention, and marks.

    The newest 5,000 events are kept, over a restart too where messages are. Of one kind 20 are kept in a minute, and
    one that says how many `more` there were. What connections, consumers and temporary destinations did is in `/events`
    alone."""
    query = call.query
    if query.sort != "-time":
        order: Order[_Row] = Order(query.sort, {"event": _event}, {"time": _time}, _id, int)
        place = decode_cursor(query.cursor, order.kind)
        items = call.server.happenings.before(None)
        found = await page_of(call.server, items, order.place, place, query.limit, _fitting(call), cost=lambda _: _READ)
        return answers.Happenings(events=[_shown(row) for row in found[0]], next=found[2])
    after = decode_cursor(query.cursor, int)
    rows = await run(call.server, partial(_happened, call, after))
    limit = call.query.limit
    more = encode_cursor(rows[limit - 1]["id"]) if len(rows) > limit else None
    return answers.Happenings(events=[_shown(row) for row in rows[:limit]], next=more)


@routes.add("POST", "/history", None, answers.Happening, body=requests.Remember, status=(201,))
async def add_mark(call: Call[Any, requests.Remember]) -> answers.Happening:
    """Keep a mark, which charts show: a deployment, a change elsewhere."""
    mark = call.body
    call.identity.require(Verb.MANAGE, mark.namespace or EVERYTHING, EVERYTHING)
    return _shown(call.server.happenings.mark(mark.text, call.identity.user, mark.namespace))


def _samples(sampler: Sampler, track: Track, range_: Name) -> tuple[list[int], Ring]:
    if range_ in _LEVELS:
        return sampler.samples(track, _LEVELS[range_])
    return list(sampler.times), track


def _series(query: requests.Samples, times: list[int], ring: Ring) -> answers.Series:
    """A ring that began later than the times has no samples for those before."""
    longer = LONGER[_LEVELS[query.range]] if query.range in _LEVELS else None
    since = query.since
    if longer is not None and times:
        since = max(since, times[-1] - longer.step * longer.samples * 1_000)
    count = min(len(ring.depth), sum(time > since for time in times))
    samples = ring.latest(count)
    return answers.Series(
        times=times[len(times) - count :],
        depth=[depth for depth, _, _, _ in samples],
        in_flight=[in_flight for _, in_flight, _, _ in samples],
        in_rate=[round(rate, 2) for _, _, rate, _ in samples],
        out_rate=[round(rate, 2) for _, _, _, rate in samples],
        step_seconds=STEP_SECONDS if longer is None else longer.step,
    )


def _fitting(call: Call[requests.ListHistory, Any]) -> Callable[[_Row], bool]:
    query = call.query
    listener = Listener(call.identity, query.namespace)
    named = name_matcher(query.like)

    def fits(row: _Row) -> bool:
        return (
            row["time"] > query.since
            and (query.address is None or row.get("address") in (None, query.address))
            and (query.like is None or named(row["event"]) or named(row.get("address") or ""))
            and (query.only is None or row["event"] in MARKED)
            and listener.receives((row["event"], row))
        )

    return fits


def _event(row: _Row) -> str:
    return str(row["event"])


def _time(row: _Row) -> float:
    return float(row["time"])


def _id(row: _Row) -> int:
    return int(row["id"])


def _happened(call: Call[requests.ListHistory, Any], after: int | None, now: int, budget: Budget) -> Task[list[_Row]]:
    query, found = call.query, list[_Row]()
    fits = _fitting(call)
    for row in call.server.happenings.before(after):
        if budget.spent:
            yield
        budget.spend(_READ)
        if row["time"] <= query.since:
            break
        if fits(row):
            found.append(row)
            if len(found) > query.limit:
                break
    return found


def _shown(row: _Row) -> answers.Happening:
    about = dict(row)
    return answers.Happening(id=about.pop("id"), time=about.pop("time"), event=about.pop("event"), about=about)

"""Taps of a namespace: how far their readers are behind, what they may hold, making and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from sievemq_broker.domain.tap import CopyTap, DrainTap
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.messages import selector_of
from sievemq_broker.server.http.api.pages import Order, by_age, decode_cursor, name_matcher, page_of
from sievemq_broker.server.http.errors import not_found
from sievemq_broker.server.http.tasks import each, run
from sievemq_broker.session.handlers.taps import allow, allow_open, maker_of
from sievemq_broker.session.rights import Verb
from sievemq_core.errors import RequestError
from sievemq_core.message.destination import parse_address

routes = Routes("Taps")

_PATH = "/namespaces/{ns}/destinations/{address}/taps/{name}"

_OPTIONS = ("start", "retain_messages", "retain_bytes", "retain_age", "lease")


@routes.add("GET", "/namespaces/{ns}/taps", None, answers.Taps, query=requests.ListTaps)
async def list_taps(call: Call[requests.ListTaps, Any]) -> answers.Taps:
    """Taps, with how far their readers are behind."""
    query, space = call.query, call.namespace()
    fits = name_matcher(query.like)
    on = None if query.destination is None else str(parse_address(query.destination))

    def keep(tap: CopyTap | DrainTap) -> bool:
        label = tap.destination.label
        names = (tap.name, label.partition(":")[2])
        return on in (None, label) and any(map(fits, names)) and call.identity.may(Verb.VIEW, space.name, label)

    order: Order[CopyTap | DrainTap] = Order(
        query.sort, _TEXTS, _FIGURES, lambda tap: (tap.destination.label, tap.name), tuple[str, str]
    )
    chosen, total, more = await page_of(
        call.server,
        list(space.taps),
        order.place,
        decode_cursor(query.cursor, order.kind),
        query.limit,
        keep,
    )
    shown = await each(call.server, chosen, partial(_show, call))
    return answers.Taps(taps=shown, total=total, next=more)


_TEXTS: Final[Mapping[str, Callable[[CopyTap | DrainTap], str]]] = {
    "destination": lambda tap: tap.destination.label,
    "name": lambda tap: tap.name,
}
_FIGURES: Final[Mapping[str, Callable[[CopyTap | DrainTap], float]]] = {
    "lag": lambda tap: tap.lag,
    "lag_ms": lambda tap: by_age(tap.log.oldest or 0),
    "missed": lambda tap: tap.missed,
    "bytes": lambda tap: tap.held_bytes,
}


@routes.add("GET", _PATH, Verb.VIEW, answers.Tap)
async def get_tap(call: Call[Any, Any]) -> answers.Tap:
    """One tap. Looking at it is no word from its reader."""
    return _show(call, _the_tap(call))


@routes.add("PUT", _PATH, None, answers.Tap, body=requests.MakeTap, body_optional=True, status=(201, 200))
async def put_tap(call: Call[Any, requests.MakeTap]) -> answers.Tap:
    """Make a tap, or give one that is there new terms (200); with another mode or selector that is refused.

    A copy takes the right to browse, a drain that to consume; for another user's, that to manage as well. The
    destination is made if it is not there and the caller may send to it, consume from it or manage it.
    """
    space, body, name, identity = call.namespace(), call.body, call.path["name"], call.identity
    address = str(call.address())
    allow_open(identity, space, name, address, body.mode)
    condition = selector_of(call, body.selector, body.dialect)
    options = {key: value for key in _OPTIONS if (value := getattr(body, key)) is not msgspec.UNSET}
    made = space.taps.made
    maker = maker_of(call.server.shard.services.settings, call.now)
    tap = space.taps.open(maker, name, address, body.mode, condition, options, call.now, identity.user)
    call.server.turn.worked()
    if space.taps.made == made:
        call.existed()
    return _show(call, tap)


@routes.add("DELETE", _PATH, None, answers.Touched, query=requests.DryRun)
async def delete_tap(call: Call[requests.DryRun, Any]) -> answers.Touched:
    """End a tap; counts are those of the messages it holds. Messages that a drain holds return to its queue as
    redelivered.

    It needs the same rights as reading the tap: see `put_tap`."""
    tap, dry_run = _the_tap(call), call.query.dry_run
    allow(call.identity, tap)
    held = tap.lag
    if not dry_run:
        await run(call.server, tap.empty)
        if tap.open:
            call.namespace().taps.drop(tap, call.now)
        call.server.turn.worked()
    return answers.Touched.of(held, dry_run)


def _the_tap(call: Call[Any, Any]) -> CopyTap | DrainTap:
    space, address, name = call.namespace(), str(call.address()), call.path["name"]
    found = space.taps.get(name, address)
    if found is None or not call.identity.may(Verb.VIEW, space.name, address):
        raise not_found(f"there is no tap {name[:200]!r} on {address}", tap=name[:300], address=address)
    return found


def _show(call: Call[Any, Any], tap: CopyTap | DrainTap) -> answers.Tap:
    log, terms, condition, oldest = tap.log, tap.terms, tap.condition, tap.log.oldest
    leased = terms.lease and (tap.mode == "copy" or tap.lag)
    return answers.Tap(
        namespace=tap.destination.place.namespace,
        destination=tap.destination.label,
        name=tap.name,
        id=tap.id,
        mode=tap.mode,
        selector=None if condition is None else condition.text,
        dialect=None if condition is None else str(condition.dialect),
        owner=tap.owner,
        first=log.first,
        last=log.last,
        acknowledged=tap.acknowledged,
        lag=tap.lag,
        lag_ms=0 if oldest is None else max(0, call.now - oldest),
        bytes=tap.held_bytes,
        lost=tap.lost,
        missed=tap.missed,
        retention=answers.Retention(messages=terms.messages, bytes=terms.bytes, age=terms.age, lease=terms.lease),
        heard=tap.heard,
        lease_ends=tap.heard + terms.lease if leased else 0,
        reader=tap.reader,
        connected=tap.reader in call.server.shard.services.connections,
        ended=tap.ended,
        yours=_is_yours(call, tap),
    )


def _is_yours(call: Call[Any, Any], tap: CopyTap | DrainTap) -> bool:
    try:
        allow(call.identity, tap)
    except RequestError:
        return False
    return True

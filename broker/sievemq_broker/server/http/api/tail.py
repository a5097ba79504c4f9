"""Messages of a queue or topic as they arrive, without taking them: a tap of the listener's own, read repeatedly."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sievemq_broker.domain.entry import READY
from sievemq_broker.domain.tap import Tap
from sievemq_broker.domain.tap_log import Tapped
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.events import HEARTBEAT_SECONDS, disconnected, pack_event
from sievemq_broker.server.http.api.messages import selector_of
from sievemq_broker.server.http.api.shown import Seen, show_messages
from sievemq_broker.server.http.tasks import run
from sievemq_broker.session.handlers.taps import allow_open, maker_of
from sievemq_broker.session.rights import Verb
from sievemq_core.message.envelope import Envelope

routes = Routes("Messages")

#: Seconds between two looks at the tap; messages and bytes that each shows.
_INTERVAL: Final = 0.25
_AT_ONCE: Final = 100
_BYTES: Final = 1024 * 1024

#: It keeps little, is not stored, and ends by itself should its listener end without a word.
_TERMS: Final = {
    "retain_messages": 1_000, "retain_bytes": 8 * _BYTES, "lease": 60_000, "existing": True, "stored": False,
}  # fmt: skip


@routes.add(
    "GET", "/namespaces/{ns}/destinations/{address}/tail", Verb.BROWSE, None, query=requests.Follow,
    media="text/event-stream",
)  # fmt: skip
async def follow_destination(call: Call[requests.Follow, Any]) -> None:
    """Server-sent events: `message` for each that arrives from now on, also those that consumers take at once.

    It begins with `heartbeat`, which names its `seconds`, and is repeated after so much silence. `missed` has the
    number of `messages` that came too fast to be shown. `ended` is the last event: the destination, or the tap with
    which the broker does this, was deleted.
    """
    space, address, query = call.namespace(), str(call.address()), call.query
    name, condition = f"tail {secrets.token_hex(4)}", selector_of(call, query.selector, query.dialect)
    allow_open(call.identity, space, name, address, "copy")
    head = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
    if call.scope["method"] == "HEAD":
        await call.send({"type": "http.response.start", "status": 200, "headers": head})
        await call.send({"type": "http.response.body", "body": b""})
        return
    with call.management.tails.one(call.identity.user):
        maker = maker_of(call.server.shard.services.settings, call.now)
        tap = space.taps.open(maker, name, address, "copy", condition, dict(_TERMS), call.now, call.identity.user)
        gone = asyncio.create_task(disconnected(call))
        try:
            await call.send({"type": "http.response.start", "status": 200, "headers": head})
            await _tell(call, tap, gone)
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
            if tap.open:
                space.taps.drop(tap, call.now)


async def _tell(call: Call[requests.Follow, Any], tap: Tap, gone: asyncio.Task[None]) -> None:
    heartbeat = pack_event("heartbeat", {"seconds": HEARTBEAT_SECONDS})
    said, after, missed, silent = heartbeat, tap.log.last, tap.missed, 0.0
    while not gone.done() and not call.management.stopping:
        if said:
            await call.send({"type": "http.response.body", "body": said, "more_body": True})
            silent = 0.0
        if not tap.open:
            await call.send({"type": "http.response.body", "body": pack_event("ended", {})})
            return
        await asyncio.wait((gone,), timeout=_INTERVAL)
        silent += _INTERVAL
        said = heartbeat if silent >= HEARTBEAT_SECONDS else b""
        upto, _ = tap.look(after, _AT_ONCE, _BYTES, call.now)
        if tap.missed > missed:
            said += pack_event("missed", {"messages": tap.missed - missed})
            missed = tap.missed
        if upto > after:
            found = tap.fetch(tap.id, after, upto, _AT_ONCE, _BYTES, call.now)
            rows = await run(call.server, partial(_shown, found, upto, call.query.preview))
            said += b"".join(pack_event("message", row) for row in rows)
            after = upto
            if tap.open:
                tap.acknowledge(tap.id, after, call.now)
    await call.send({"type": "http.response.body", "body": b""})


def _shown(found: Iterable[Tapped], last: int, preview: int, now: int, budget: Budget) -> Task[list[answers.Message]]:
    items = list(found)
    first = last - len(items) + 1
    messages = [
        Seen(number, READY, item.delivery - 1, 0, 0, Envelope.from_packed(item.packed))
        for number, item in enumerate(items, first)
    ]
    return (yield from show_messages(messages, preview, budget))

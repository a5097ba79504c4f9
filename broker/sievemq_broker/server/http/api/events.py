"""The stream of events, and the document that describes all this."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers

from sievemq_broker.server.http.api import requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.hub import MAX_LISTENERS, Listener, Told
from sievemq_broker.server.http.encoding import encode
from sievemq_broker.server.http.errors import ApiError

routes = Routes("Events")

#: Seconds after which an open stream carries a heartbeat, if it has carried nothing else.
HEARTBEAT_SECONDS = 2.0


@routes.add("GET", "/events", None, None, query=requests.Watch, media="text/event-stream")
async def listen(call: Call[requests.Watch, Any]) -> None:
    """Server-sent events: `tick` with totals about once a second, and what changed in between.

    `connection.opened` and `.closed`, `consumer.opened` and `.closed`, `destination.created`, `.deleted`, `.paused` and
    `.resumed`, `subscription.created` and `.deleted` (those with a name), `tap.created` and `.deleted`, `dead_lettered`
    with how many, `flow.blocked` and `.unblocked`, `disk.full` and `.has_room`, `attention.began` and `.ended` (see
    `/attention`), `action` with a row of the record of actions. Each says its `time`, and has an `id`.

    Events are those after the first tick. The stream begins with a `heartbeat`, and carries one whenever it has carried
    nothing else for as many `seconds` as that event names. A listener that receives nothing for several times as long
    has lost the broker.

    A client that names its last `id`, with `since` or the header `Last-Event-ID` (which goes before), first gets what
    has happened after it. The latest 500 events are kept, until a minute after the last listener has gone. What cannot
    be sent any more is announced by `missed`: how many `events` (null if unknown, or only for users who may view
    everything may), and the `reason`: `forgotten`, `restarted` (the broker was), or `slow`, for a slow reader.
    The stream ends when the broker does.
    """
    hub = call.management.hub
    identity = call.identity
    if not hub.has_room(identity.user):
        text = f"{MAX_LISTENERS} event streams are open, as many as are allowed; close one of yours"
        raise ApiError(429, "TOO_MANY_REQUESTS", text, {"limit": MAX_LISTENERS}, {"Retry-After": "5"})
    listener = Listener(identity, call.query.namespace)
    head = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
    if call.scope["method"] == "HEAD":
        await call.send({"type": "http.response.start", "status": 200, "headers": head})
        await call.send({"type": "http.response.body", "body": b""})
        return
    hub.add(listener, Headers(scope=call.scope).get("last-event-id") or call.query.since)
    gone = asyncio.create_task(disconnected(call))
    gone.add_done_callback(lambda _: listener.end())
    heartbeat = pack_event("heartbeat", {"seconds": HEARTBEAT_SECONDS})
    try:
        await hub.ready()
        await call.send({"type": "http.response.start", "status": 200, "headers": head})
        await call.send({"type": "http.response.body", "body": b"retry: 2000\n\n" + heartbeat, "more_body": True})
        while not listener.ended:
            events = await listener.next(HEARTBEAT_SECONDS)
            said = b"".join(map(_packed, events)) or heartbeat
            await call.send({"type": "http.response.body", "body": said, "more_body": True})
        await call.send({"type": "http.response.body", "body": b""})
    finally:
        hub.discard(listener)
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone


async def disconnected(call: Call[Any, Any]) -> None:
    """Return when the client has disconnected."""
    while (await call.receive())["type"] != "http.disconnect":
        pass


def _packed(told: Told) -> bytes:
    event_id, (name, about) = told
    return pack_event(name, about, event_id)


def pack_event(name: str, about: object, event_id: str | None = None) -> bytes:
    """A server-sent event."""
    head = b"" if event_id is None else b"id: " + event_id.encode() + b"\n"
    return head + b"event: " + name.encode() + b"\ndata: " + encode(about) + b"\n\n"

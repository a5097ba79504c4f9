"""The stream of events, and the document that describes all this."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from sievemq_broker.server.http.api import requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.errors import ApiError
from sievemq_broker.server.http.api.hub import MAX_LISTENERS, Listener
from sievemq_broker.server.http.api.rights import caller

__all__ = ["routes"]

routes = Routes("Events")

#: Seconds without an event after which a comment says that the stream still stands.
HEARTBEAT_SECONDS = 15.0


@routes.add("GET", "/events", None, None, query=requests.Watch, media="text/event-stream")
async def listen(call: Call[requests.Watch, Any]) -> None:
    """Server-sent events: `tick` with totals about once a second, and what changed in between.

    `connection.opened` and `.closed`, `consumer.opened` and `.closed`, `destination.created`, `.deleted`, `.paused` and
    `.resumed`, `dead_lettered` with how many, `flow.blocked` and `.unblocked`. Who reads too slowly is told with
    `missed` how many events were left out. The stream ends when the broker does; nothing is repeated after a new start.
    """
    hub = call.api.hub
    if len(hub.listeners) >= MAX_LISTENERS:
        text = f"{MAX_LISTENERS} listeners are there, as many as may be"
        raise ApiError(429, "TOO_MANY_REQUESTS", text, {"limit": MAX_LISTENERS}, {"Retry-After": "5"})
    listener = Listener(caller(call.scope), call.query.namespace)
    head = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
    await call.send({"type": "http.response.start", "status": 200, "headers": head})
    if call.scope["method"] == "HEAD":
        await call.send({"type": "http.response.body", "body": b""})
        return
    hub.add(listener)
    gone = asyncio.create_task(_disconnected(call, listener))
    try:
        await call.send({"type": "http.response.body", "body": b"retry: 2000\n\n", "more_body": True})
        while not listener.ended:
            events = await listener.next(HEARTBEAT_SECONDS)
            said = b"".join(map(_packed, events)) or b": still there\n\n"
            await call.send({"type": "http.response.body", "body": said, "more_body": True})
        await call.send({"type": "http.response.body", "body": b""})
    finally:
        hub.discard(listener)
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone


async def _disconnected(call: Call[Any, Any], listener: Listener) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass
    listener.end()


def _packed(event: tuple[str, dict[str, Any]]) -> bytes:
    name, about = event
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(about) + b"\n\n"

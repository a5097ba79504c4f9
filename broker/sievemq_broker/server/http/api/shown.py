"""Messages as they are shown: headers, typed properties, the body by its type."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from sievemq_broker.domain.entry import DELAYED, HELD, Entry
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Budget, Make, Task
from sievemq_broker.server.http.api import answers
from sievemq_broker.server.http.api.partly import Outline, beginning
from sievemq_broker.server.http.api.values import show_value
from sievemq_broker.server.http.encoding import encode
from sievemq_broker.server.http.tasks import ROW, each
from sievemq_broker.server.server import Server
from sievemq_core.errors import FormatError, SieveError
from sievemq_core.message.body import decode_map, decode_stream, decode_text
from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    CORRELATION_ID,
    DELIVERY_MODE,
    DELIVERY_TIME,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    BodyKind,
    Envelope,
    EnvelopeFields,
)
from sievemq_core.message.values import to_time
from sievemq_core.selector.names import MODES

P = TypeVar("P")

_STATES: Final = {HELD: "in_flight", DELAYED: "scheduled"}

#: Bytes of a hex preview.
_HEX_BYTES: Final = 512

#: Values of a MAP or STREAM that are shown: some milliseconds of work, and a megabyte of JSON.
MAX_SHOWN: Final = 10_000

#: Bytes of a packed body that is decoded for a preview, and values that are shown of it.
_PREVIEWED: Final = 65_536
_SOME: Final = 16

#: Values in the outline of an object, and levels.
_MAX_VALUES, _MAX_DEPTH = 2_000, 32


@dataclass(frozen=True, slots=True)
class Seen:
    """A snapshot of a message: the message may have left the queue when it is shown."""

    sequence: int
    state: int
    count: int
    attempts: int
    due: int
    envelope: Envelope

    @classmethod
    def of(cls, entry: Entry) -> Self:
        due = entry.due if entry.state == DELAYED else 0
        return cls(entry.sequence, entry.state, entry.count, entry.attempts, due, entry.envelope)


def show_page(
    find: Make[tuple[list[Entry], P]], preview: int, now: int, budget: Budget
) -> Task[tuple[list[answers.Message], P]]:
    """Show what a verb of the domain finds, each with so many characters of its body, and return what that returns
    beside it."""
    entries, place = yield from find(now, budget)
    rows = yield from show_messages([Seen.of(entry) for entry in entries], preview, budget)
    return rows, place


def locate(queue: Queue, name: int | str, now: int, budget: Budget) -> Task[Seen | None]:
    """Find a message among all of a queue, by its number or JMSMessageID; None if it is not there any more."""
    found = yield from queue.locate([name], True, now, budget)
    return Seen.of(found[0]) if found else None


def show_messages(messages: Iterable[Seen], preview: int, budget: Budget) -> Task[list[answers.Message]]:
    """Messages, each with so many characters of its body."""
    rows: list[answers.Message] = []
    for seen in messages:
        if budget.spent:
            yield
        shown = _preview(seen.envelope.fields, preview) if preview else None
        rows.append(answers.Message(**_headers(seen), preview=shown))
        budget.spend((2 if preview else 1) * ROW + len(rows[-1].properties))
        seen.envelope.compact()
    return rows


async def show_details(server: Server, seen: Seen, destination: str, body_limit: int) -> answers.MessageDetails:
    """A message with its body, or the first `body_limit` bytes of it."""
    fields = seen.envelope.fields
    headers = _headers(seen)
    seen.envelope.compact()
    body = await _show_body(server, fields[BODY_KIND], fields[BODY], body_limit)
    return answers.MessageDetails(**headers, destination=destination, body=body)


def _headers(seen: Seen) -> dict[str, Any]:
    envelope = seen.envelope
    fields = envelope.fields
    unreadable = None
    properties: dict[str, answers.Value] = {}
    try:
        properties = {name: show_value(value) for name, value in envelope.properties.items()}
    except SieveError as error:
        unreadable = error.text
    correlation_id = fields[CORRELATION_ID]
    as_bytes = isinstance(correlation_id, bytes)
    return {
        "id": str(seen.sequence),
        "state": _STATES.get(seen.state, "ready"),
        "message_id": fields[MESSAGE_ID],
        "timestamp": to_time(fields[TIMESTAMP]),
        "priority": fields[PRIORITY],
        "delivery_mode": MODES.get(fields[DELIVERY_MODE], str(fields[DELIVERY_MODE])),
        "expiration": to_time(fields[EXPIRATION]),
        "delivery_time": to_time(fields[DELIVERY_TIME] or fields[TIMESTAMP]),
        "due": seen.due,
        "correlation_id": None if as_bytes else correlation_id,
        "correlation_id_bytes": b64encode(correlation_id).decode() if as_bytes else None,
        "reply_to": fields[REPLY_TO],
        "type": fields[TYPE],
        "redelivered": seen.count > 0,
        "delivery_count": seen.count + (seen.state == HELD),
        "attempts": seen.attempts,
        "size": len(envelope.packed),
        "body_type": _kind(fields[BODY_KIND]),
        "body_size": len(fields[BODY] or b""),
        "properties": properties,
        "unreadable": unreadable,
    }


def _kind(number: int) -> str:
    try:
        return BodyKind(number).name
    except ValueError:
        return "UNKNOWN"


def _preview(fields: EnvelopeFields, characters: int) -> str:
    """The beginning of a body, as text in one line; empty if it cannot be decoded."""
    kind, body = fields[BODY_KIND], fields[BODY] or b""
    try:
        text = _begin(kind, body, characters)
    except FormatError:
        return ""
    text = " ".join(text.split())
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _begin(kind: int, body: bytes, characters: int) -> str:
    size = 4 * characters
    if kind == BodyKind.TEXT:
        return _text(body[:size], cut=len(body) > size) + "…" * (len(body) > size)
    if kind == BodyKind.BYTES or len(body) > _PREVIEWED:
        return body[:characters].hex(" ")
    if kind == BodyKind.MAP and body:
        return ", ".join(f"{name} = {show_value(value).value}" for name, value in _some(body, named=True).items())
    if kind == BodyKind.STREAM and body:
        return ", ".join(str(show_value(value).value) for value in _some(body, named=False))
    return encode(Outline(_SOME, 4).of(body)).decode() if kind == BodyKind.OBJECT and body else ""


def _some(body: bytes, *, named: bool) -> Any:
    begin, _ = beginning(body, _SOME, named=named)
    return decode_map(begin) if named else decode_stream(begin)


async def _show_body(server: Server, kind: int, body: bytes | None, limit: int) -> answers.Body:
    """A body by its type.

    Args:
        server: whose scheduler decodes it.
        kind: BodyKind.
        body: as in the envelope.
        limit: bytes of it that are shown; a MAP, STREAM or OBJECT of more is shown as bytes. Of the others MAX_SHOWN
            values are shown.
    """
    content = body or b""
    cut = len(content) > limit
    found: dict[str, Any] = {}
    try:
        if kind == BodyKind.TEXT and body is not None:
            found["text"] = _text(content[:limit], cut=cut)
        elif not cut and body is not None:
            if kind == BodyKind.MAP:
                begin, cut = beginning(content, MAX_SHOWN, named=True)
                values = decode_map(begin)
                found["map"] = dict(zip(values, await each(server, values.values(), show_value, 1), strict=True))
            elif kind == BodyKind.STREAM:
                begin, cut = beginning(content, MAX_SHOWN, named=False)
                found["stream"] = await each(server, decode_stream(begin), show_value, 1)
            elif kind == BodyKind.OBJECT:
                found["object"] = Outline(_MAX_VALUES, _MAX_DEPTH).of(content)
    except FormatError as error:
        found = {"unreadable": error.text}
    if body is not None and not found.keys() & {"text", "map", "stream"}:
        found["base64"] = b64encode(content[:limit]).decode()
        found["hex"] = _hex(content[: min(limit, _HEX_BYTES)])
    return answers.Body(type=_kind(kind), size=len(content), truncated=cut, **found)  # type: ignore[arg-type]


def _text(content: bytes, *, cut: bool) -> str:
    if cut:
        end = len(content)  # not in the middle of a character
        while end and len(content) - end < 4 and content[end - 1] & 0xC0 == 0x80:
            end -= 1
        if end and content[end - 1] >= 0xC0:
            try:
                return decode_text(content)
            except FormatError:
                content = content[: end - 1]
    return decode_text(content)


def _hex(content: bytes) -> str:
    """Lines of sixteen bytes: place, bytes, what is printable."""
    lines = []
    for start in range(0, len(content), 16):
        piece = content[start : start + 16]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
        lines.append(f"{start:08x}  {piece.hex(' '):<47}  {text}")
    return "\n".join(lines)

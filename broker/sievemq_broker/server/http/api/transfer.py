"""Messages out of a queue as lines of JSON, and into a destination from such lines; a body as it is."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from sievemq_broker.domain import management
from sievemq_broker.domain.broker_properties import without_broker_properties
from sievemq_broker.domain.entry import HELD
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.matching.condition import Condition, is_true, units
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.actions import touched
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.messages import (
    MESSAGES,
    SEND_BYTES,
    count_refusal,
    find_message,
    number_or_name,
    refuse_while_blocked,
    selector_of,
)
from sievemq_broker.server.http.api.operation import has_at_most
from sievemq_broker.server.http.api.shown import Seen
from sievemq_broker.server.http.api.values import unusable
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.tasks import ROW, run
from sievemq_broker.session.checks import check_message, with_readable_properties
from sievemq_broker.session.rights import Verb
from sievemq_broker.session.tally import reason_of
from sievemq_core.errors import FormatError, RequestError
from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    DELIVERY_TIME,
    EXPIRATION,
    PRIORITY,
    BodyKind,
    Envelope,
    EnvelopeFields,
    with_well_formed_text,
)
from sievemq_core.message.record import Recorded, read_record, record_of

routes = Routes("Messages")

_PLACE: Final = "/namespaces/{ns}/destinations/{address}"

#: Messages of an export that are found at a time.
_PAGE: Final = 200

#: Units of keeping what a message is now.
_SEEN: Final = 2

#: Bytes that are written at a time. As base64 they end without padding.
_PIECE: Final = 393_216

#: Bytes of a body that is written as what it means: some milliseconds. Each byte of a map may be a value. A larger one
#: is written packed, in pieces.
_PLAIN: Final = {BodyKind.MAP: 16_384, BodyKind.STREAM: 16_384}
_PLAIN_BYTES: Final = 524_288

#: Values of a line that is imported, counted as its commas and brackets outside of strings: some milliseconds.
_VALUES: Final = 4_000


@routes.add(
    "POST", _PLACE + "/export", Verb.BROWSE, None, body=requests.Which, body_optional=True,
    media="application/x-ndjson", records=False,
)  # fmt: skip
async def export_messages(call: Call[Any, requests.Which]) -> None:
    """Waiting messages as lines of JSON, in order of delivery, without taking them: all, or those that are chosen.

    With `ids` also messages in flight and scheduled ones. `import_messages` and `sievemq import` read the lines. A body
    of more than 512 KiB, or a map or stream of more than 16 KiB, is `packed`.
    """
    wanted = call.body
    queue = call.queue(wanted.subscription, wanted.client_id)
    condition = selector_of(call, wanted.selector, wanted.dialect)
    place: dict[str, Any] = {"namespace": queue.place.namespace, "destination": queue.place.destination}
    if wanted.subscription is not None:
        place |= {"subscription": wanted.subscription, "client_id": wanted.client_id}
    with call.management.exports.one(call.identity.user):
        await _begin(call, "application/x-ndjson", f"{queue.place.destination}.ndjson")
        async for page in _pages(call, queue, condition):
            await _write(call, page, place)
        await call.send({"type": "http.response.body", "body": b""})


@routes.add(
    "GET", MESSAGES + "/{id}/body", Verb.BROWSE, None, query=requests.OfSubscription, media="application/octet-stream"
)
async def download_body(call: Call[requests.OfSubscription, Any]) -> None:
    """The body of a message as it is: of a TEXT its UTF-8; of a MAP, STREAM or OBJECT as the protocol packs it."""
    _, seen = await find_message(call, call.query)
    fields = seen.envelope.fields
    body, kind = fields[BODY] or b"", fields[BODY_KIND]
    with call.management.exports.one(call.identity.user):
        await _begin(call, "application/octet-stream", f"{seen.sequence}.{'txt' if kind == BodyKind.TEXT else 'bin'}")
        for start in range(0, len(body), _PIECE):
            await call.send(_more(body[start : start + _PIECE]))
        await call.send({"type": "http.response.body", "body": b""})


@routes.add("POST", _PLACE + "/import", Verb.SEND, answers.Touched, body=requests.Import, body_limit=SEND_BYTES)
async def import_messages(call: Call[Any, requests.Import]) -> answers.Touched:
    """Send messages from lines of an export to this destination, in order, with new message ids and timestamps.

    All lines are checked before the first message is sent. Expired messages are skipped. `stopped` says why a message
    was refused, and its details in which `line`, counted from 1; those before it are sent.
    """
    refuse_while_blocked(call, messages=0 if call.body.dry_run else len(call.body.lines))
    address, limit = str(call.address()), call.server.shard.services.settings.body_bytes
    records = await run(call.server, partial(_read, call.body.lines, limit))
    now = call.now
    numbers = [number for number, (fields, _) in enumerate(records, 1) if not 0 < fields[EXPIRATION] <= now]
    envelopes = [_envelope(records[number - 1].fields, call.management.message_id(), now) for number in numbers]
    expired = len(records) - len(envelopes)
    if call.body.dry_run:
        return touched(management.Handled(matched=len(envelopes), skipped=expired), True)
    outcome = await run(call.server, partial(management.bring, call.namespace, address, envelopes, expired))
    call.server.turn.worked()
    answer = touched(outcome, False)
    if outcome.stopped is None or answer.stopped is None:
        return answer
    count_refusal(call, reason_of(outcome.stopped))
    line = {"line": numbers[outcome.touched]}
    return replace(answer, stopped=replace(answer.stopped, details=answer.stopped.details | line))


def _envelope(fields: EnvelopeFields, message_id: str, now: int) -> Envelope:
    due = max(now, fields[DELIVERY_TIME])
    return Envelope((message_id, now, *fields[PRIORITY:DELIVERY_TIME], due, *fields[DELIVERY_TIME + 1 :]))


async def _begin(call: Call[Any, Any], media: str, name: str) -> None:
    safe = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name)
    head = [(b"content-type", media.encode()), (b"content-disposition", f'attachment; filename="{safe}"'.encode())]
    await call.send({"type": "http.response.start", "status": 200, "headers": head})


def _more(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _pages(
    call: Call[Any, requests.Which], queue: Queue, condition: Condition | None
) -> AsyncIterator[list[Seen]]:
    wanted = call.body
    left = wanted.limit
    if wanted.ids is not None:
        ids = [number_or_name(name) for name in wanted.ids]
        found = await run(call.server, partial(_located, queue, ids, condition))
        yield found[:left]
        return
    after: int | None = -1
    while after is not None and left != 0:
        most = _PAGE if left is None else min(_PAGE, left)
        page, after = await run(call.server, partial(_waiting, queue, condition, after, most))
        left = None if left is None else left - len(page)
        yield page


def _waiting(
    queue: Queue, condition: Condition | None, after: int, most: int, now: int, budget: Budget
) -> Task[tuple[list[Seen], int | None]]:
    entries, following = yield from management.waiting(queue, condition, after, most, now, budget)
    return [Seen.of(entry) for entry in entries], following


def _located(
    queue: Queue, ids: list[int | str], condition: Condition | None, now: int, budget: Budget
) -> Task[list[Seen]]:
    found = []
    for entry in (yield from queue.locate(ids, True, now, budget)):
        if budget.spent:
            yield
        seen = Seen.of(entry)
        budget.spend(_SEEN)
        if condition is None:
            found.append(seen)
            continue
        budget.spend(units(condition, seen.envelope))
        with suppress(Exception):  # reported when it arrived (D-14)
            if is_true(condition, seen.envelope):
                found.append(seen)
    return found


async def _write(call: Call[Any, Any], page: list[Seen], place: dict[str, Any]) -> None:
    at = 0
    while at < len(page):
        if _is_large(page[at]):
            await _write_large(call, page[at], place)
            at += 1
        else:
            lines, at = await run(call.server, partial(_lines, page, at, place))
            await call.send(_more(lines))


def _is_large(seen: Seen) -> bool:
    fields = seen.envelope.fields
    return len(fields[BODY] or b"") > _PLAIN.get(fields[BODY_KIND], _PLAIN_BYTES)


def _lines(page: list[Seen], at: int, place: dict[str, Any], now: int, budget: Budget) -> Task[tuple[bytes, int]]:
    """Some lines, and which message follows."""
    lines: list[bytes] = []
    size = 0
    while at < len(page) and size < _PIECE and not _is_large(page[at]):
        if budget.spent:
            yield
        lines.append(_line(page[at], place, page[at].envelope.fields) + b"\n")
        budget.spend(ROW + (len(lines[-1]) >> 9))
        size += len(lines[-1])
        page[at].envelope.compact()
        at += 1
    return b"".join(lines), at


def _line(seen: Seen, place: dict[str, Any], fields: tuple[Any, ...]) -> bytes:
    deliveries = seen.count + (seen.state == HELD)
    record = {**record_of(fields, None, lambda: seen.envelope.properties), **place, "deliveries": deliveries}
    # Half a surrogate pair becomes JSON's escape of it.
    return json.dumps(record, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")


async def _write_large(call: Call[Any, Any], seen: Seen, place: dict[str, Any]) -> None:
    fields = seen.envelope.fields
    body = fields[BODY]
    head = _line(seen, place, (*fields[:BODY], None, *fields[BODY + 1 :]))
    await call.send(_more(head[:-1] + b', "packed": "'))
    for start in range(0, len(body), _PIECE):
        piece = await run(call.server, partial(_encoded, body[start : start + _PIECE]))
        await call.send(_more(piece))
    await call.send(_more(b'"}\n'))


def _encoded(piece: bytes, now: int, budget: Budget) -> Task[bytes]:
    yield from ()
    budget.spend(len(piece) >> 10)
    return b64encode(piece)


def _read(lines: list[str], limit: int, now: int, budget: Budget) -> Task[list[Recorded]]:
    """The messages of lines.

    Args:
        limit: bytes that a body may have.

    Raises:
        ApiError: 422 or 413, one of them is none.
        RequestError: one of them is a message that no client may send.
        In both cases its number is in the text.
    """
    records: list[Recorded] = []
    for number, line in enumerate(lines, 1):
        if budget.spent:
            yield
        marks = sum(map(line.count, ",[{"))
        budget.spend(ROW + min(marks, _VALUES) + (len(line) >> 9))
        where = f"lines[{number}]"
        if marks > _VALUES:  # unless they are text
            data = line.encode("utf-8", "surrogatepass")
            if not (yield from has_at_most(data, _VALUES, now, budget)):
                text = f"{where}: a line may have some {_VALUES} values here; `sievemq import` sends larger messages"
                raise ApiError(413, "REQUEST_TOO_LARGE", text, {"limit": _VALUES})
        try:
            record = read_record(line)
            fields = without_broker_properties(with_well_formed_text(record.fields))
            check_message(fields, limit)
            records.append(record._replace(fields=with_readable_properties(fields)))
        except FormatError as error:
            raise unusable(f"{where}: {error.text}", where) from None
        except RequestError as error:
            raise RequestError(f"{where}: {error.text}", error.code, error.details) from None
    return records

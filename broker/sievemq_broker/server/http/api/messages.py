"""Messages of a queue: browsing, looking at one, sending."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec

from sievemq_broker.domain import management
from sievemq_broker.domain.namespace import Destination
from sievemq_broker.domain.publishing import Sends
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.compose import compose
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.pages import PLACE_UNITS, decode_cursor, encode_cursor, name_matcher
from sievemq_broker.server.http.api.shown import Seen, locate, show_details, show_messages, show_page
from sievemq_broker.server.http.errors import ApiError, not_found
from sievemq_broker.server.http.tasks import run
from sievemq_broker.session.checks import check_body
from sievemq_broker.session.rights import Verb
from sievemq_broker.session.tally import Refusal, reason_of
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import BODY, DELIVERY_TIME, EXPIRATION, TIMESTAMP
from sievemq_core.selector import CompiledSelector, compile_selector

routes = Routes("Messages")

MESSAGES = "/namespaces/{ns}/destinations/{address}/messages"

#: Bytes of the JSON of a message to be sent: decoding more would keep others waiting. Larger ones are a client's.
SEND_BYTES = 4 * 1024 * 1024

_NUMBER = re.compile(r"[0-9]{1,18}")


def selector_of(call: Call[Any, Any], text: str | None, dialect: str | None) -> CompiledSelector | None:
    """A selector, verified.

    Raises:
        SelectorError: with the position.
    """
    return compile_selector(text, dialect or call.server.settings.dialect)


def number_or_name(text: str) -> int | str:
    """Parse the id of a message: its number in the queue, or its JMSMessageID."""
    return int(text) if _NUMBER.fullmatch(text) else text


def refuse_while_blocked(call: Call[Any, Any], messages: int = 0) -> None:
    """Producers are held back: so is this caller.

    Args:
        messages: to the destination of the path, which are counted as refused.

    Raises:
        ApiError: 503.
    """
    blocked = call.server.shard.services.blocked
    if blocked is not None:
        if messages:
            count_refusal(call, "max_memory_bytes", messages)
        text = f"producers are held back: {blocked}"
        raise ApiError(503, "RESOURCE_ALLOCATION", text, {"blocked": blocked}, {"Retry-After": "1"})


def count_refusal(call: Call[Any, Any], reason: str, messages: int = 1) -> None:
    """Messages to the destination of the path are refused."""
    client = call.identity.user or "management port"
    refusal = Refusal(call.namespace().name, str(call.address()), reason, client)
    call.server.shard.services.tallies.refuse(refusal, call.now, messages=messages)


@routes.add("GET", MESSAGES, Verb.BROWSE, answers.Messages, query=requests.Browse)
async def browse_messages(call: Call[requests.Browse, Any]) -> answers.Messages:
    """Messages in the order in which they would be delivered, without taking them.

    A page that is not the last is full, however few of a million match the selector, or holds a mebibyte of properties.
    """
    query = call.query
    queue = call.queue(query.subscription, query.client_id)
    condition = selector_of(call, query.selector, query.dialect)
    more: str | None
    if query.state == "ready":
        after = decode_cursor(query.cursor, int)
        page = partial(management.waiting, queue, condition, -1 if after is None else after, query.limit)
        rows, following = await run(call.server, partial(show_page, page, query.preview))
        more = None if following is None else encode_cursor(following)
    else:
        verb = management.scheduled if query.state == "scheduled" else management.held
        place = decode_cursor(query.cursor, tuple[int, int])
        find = partial(verb, queue, condition, place, query.limit)
        rows, last = await run(call.server, partial(show_page, find, query.preview))
        more = None if last is None else encode_cursor(last)
    return answers.Messages(messages=rows, next=more)


@routes.add(
    "GET",
    "/namespaces/{ns}/destinations/{address}/scheduled",
    Verb.BROWSE,
    answers.Messages,
    query=requests.ListScheduled,
)
async def list_scheduled(call: Call[requests.ListScheduled, Any]) -> answers.Messages:
    """Messages that wait for their delivery time or the end of a redelivery delay."""
    query = call.query
    condition = selector_of(call, query.selector, query.dialect)
    place = decode_cursor(query.cursor, tuple[int, int])
    queue = call.queue(query.subscription, query.client_id)
    find = partial(management.scheduled, queue, condition, place, query.limit, sort=query.sort)
    rows, last = await run(call.server, partial(show_page, find, query.preview))
    more = None if last is None else encode_cursor(last)
    return answers.Messages(messages=rows, next=more)


@routes.add("GET", "/namespaces/{ns}/scheduled", None, answers.ScheduledMessages, query=requests.ListAllScheduled)
async def list_all_scheduled(call: Call[requests.ListAllScheduled, Any]) -> answers.ScheduledMessages:
    """Scheduled messages of all queues whose messages the caller may see, those of topics' subscriptions left out."""
    destinations = list(call.namespace().destinations.values())
    place = decode_cursor(call.query.cursor, tuple[int, str, int])
    return await run(call.server, partial(_all_scheduled, call, destinations, place))


def _all_scheduled(
    call: Call[requests.ListAllScheduled, Any],
    destinations: list[Destination],
    place: management.Place | None,
    now: int,
    budget: Budget,
) -> Task[answers.ScheduledMessages]:
    query, identity, space = call.query, call.identity, call.path["ns"]
    fits = name_matcher(query.like)
    queues: list[Queue] = []
    for found in destinations:
        if budget.spent:
            yield
        budget.spend(PLACE_UNITS)
        if (
            isinstance(found, Queue)
            and found.scheduled
            and fits(found.label.partition(":")[2])
            and identity.may(Verb.BROWSE, space, found.label)
        ):
            queues.append(found)
    total = sum(len(queue.scheduled) for queue in queues)
    page, last = yield from management.scheduled_in(queues, place, query.limit, now, budget, query.sort)
    rows = yield from show_messages([Seen.of(entry) for _, entry in page], query.preview, budget)
    may = {queue.label: identity.verbs(space, queue.label) for queue, _ in page}
    messages = [
        answers.ScheduledMessage(destination=queue.label, may=may[queue.label], **msgspec.structs.asdict(row))
        for (queue, _), row in zip(page, rows, strict=True)
    ]
    more = None if last is None else encode_cursor(last)
    return answers.ScheduledMessages(messages=messages, total=total, next=more)


@routes.add("GET", MESSAGES + "/{id}", Verb.BROWSE, answers.MessageDetails, query=requests.Whole)
async def get_message(call: Call[requests.Whole, Any]) -> answers.MessageDetails:
    """One message whole: headers, typed properties, body by its type.

    It is looked for among waiting and scheduled messages and those in flight, by `id` or by JMSMessageID.
    """
    queue, seen = await find_message(call, call.query)
    return await show_details(call.server, seen, queue.label, call.query.body_limit)


async def find_message(call: Call[Any, Any], query: requests.OfSubscription) -> tuple[Queue, Seen]:
    """The message of the path, and its queue.

    Raises:
        ApiError: 404, it is not there any more.
    """
    queue = call.queue(query.subscription, query.client_id)
    name = call.path["id"]
    seen = await run(call.server, partial(locate, queue, number_or_name(name)))
    if seen is None:
        raise not_found(f"{queue.label} has no message {name[:200]!r} any more", id=name[:1_000])
    return queue, seen


@routes.add(
    "POST", MESSAGES, Verb.SEND, answers.Sent, body=requests.Send, status=(201,), body_limit=SEND_BYTES, records=False
)  # fmt: skip
async def send_message(call: Call[Any, requests.Send]) -> answers.Sent:
    """Send a message, as a producer would.

    The destination is made if it is not there and the broker makes destinations on first use.
    """
    refuse_while_blocked(call, messages=1)
    space, address = call.namespace(), call.address()
    now = call.now
    message_id = call.management.message_id()
    envelope = await compose(call.server, call.body, message_id, now)
    check_body(envelope.fields[BODY], call.server.shard.services.settings.body_bytes)
    sends = Sends([(str(address), envelope)])
    now = await run(call.server, partial(space.examine, sends))
    space = call.namespace()  # it may be another one by now
    [(_, envelope)] = sends
    try:
        space.check_room(address, envelope)
        space.transfer(address, envelope, now)  # this sender cannot be made to wait
    except SieveError as error:
        count_refusal(call, reason_of(error))
        raise
    call.server.turn.worked()
    fields = envelope.fields
    return answers.Sent(
        message_id=message_id,
        address=str(address),
        timestamp=fields[TIMESTAMP],
        expiration=fields[EXPIRATION],
        delivery_time=fields[DELIVERY_TIME] or fields[TIMESTAMP],
    )

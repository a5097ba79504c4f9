"""Actions on messages of a queue: move, copy, delete, purge, retry, cancel; and on a destination: pause, resume.

Long work continues in slices until it is done or its limit is reached. Messages in flight are never changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sievemq_broker.domain import management
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.messages import number_or_name, refuse_while_blocked, selector_of
from sievemq_broker.server.http.errors import ApiError, answer_to, bad_request
from sievemq_broker.server.http.tasks import run
from sievemq_broker.session.rights import Verb
from sievemq_core.message.destination import misspelt_kind, parse_address

routes = Routes("Actions")

_ACTIONS = "/namespaces/{ns}/destinations/{address}/actions"


#: Actions at work at the same time; each takes its slices of every turn.
MAX_AT_WORK = 8


@routes.add("POST", _ACTIONS + "/move", Verb.MANAGE, answers.Touched, body=requests.Relocate)
async def move_messages(call: Call[Any, requests.Relocate]) -> answers.Touched:
    """Move waiting messages to another queue of the namespace, in order; each leaves when it has arrived."""
    target = _target(call)
    return await _act(call, partial(management.move, call.namespace(), target))


@routes.add("POST", _ACTIONS + "/copy", Verb.MANAGE, answers.Touched, body=requests.Relocate)
async def copy_messages(call: Call[Any, requests.Relocate]) -> answers.Touched:
    """Send copies of waiting messages to another destination of the namespace; they stay where they are."""
    target = _target(call)
    refuse_while_blocked(call)
    return await _act(call, partial(management.copy, call.namespace(), target))


@routes.add("POST", _ACTIONS + "/delete", Verb.MANAGE, answers.Touched, body=requests.Choose)
async def delete_messages(call: Call[Any, requests.Choose]) -> answers.Touched:
    """Remove waiting messages, chosen by a selector, by ids or both; `purge` removes all."""
    if call.body.selector is None and call.body.ids is None:
        raise bad_request("delete wants a selector or ids; purge removes everything", field="selector")
    return await _act(call, management.remove)


@routes.add("POST", _ACTIONS + "/purge", Verb.MANAGE, answers.Touched, body=requests.Choose, body_optional=True)
async def purge_messages(call: Call[Any, requests.Choose]) -> answers.Touched:
    """Remove waiting and scheduled messages: all, or those that are chosen."""
    return await _act(call, management.purge)


@routes.add("POST", _ACTIONS + "/retry", Verb.MANAGE, answers.Touched, body=requests.Choose, body_optional=True)
async def retry_messages(call: Call[Any, requests.Choose]) -> answers.Touched:
    """Send dead letters back to their original destinations, with attempts counted from zero.

    Letters without an original destination, or whose subscription no longer exists, are skipped. The caller needs the
    right to send to the original destinations."""

    def allow(origin: str) -> None:
        call.identity.require(Verb.SEND, call.path["ns"], str(parse_address(origin)))

    return await _act(call, partial(management.retry, call.namespace(), allow))


@routes.add("POST", _ACTIONS + "/cancel", Verb.MANAGE, answers.Touched, body=requests.Choose, body_optional=True)
async def cancel_messages(call: Call[Any, requests.Choose]) -> answers.Touched:
    """Remove scheduled messages: all, or those that are chosen."""
    return await _act(call, management.cancel)


@routes.add("POST", _ACTIONS + "/pause", Verb.MANAGE, answers.Touched, body=requests.Change, body_optional=True)
async def pause_destination(call: Call[Any, requests.Change]) -> answers.Touched:
    """Stop deliveries. What consumers have they keep; sending continues.

    With a data directory the destination stays paused over a restart of the broker.
    """
    destination = call.destination()
    changes = not destination.paused
    if changes and not call.body.dry_run:
        call.namespace().pause(destination)
    return _changed(changes, call.body.dry_run)


@routes.add("POST", _ACTIONS + "/resume", Verb.MANAGE, answers.Touched, body=requests.Change, body_optional=True)
async def resume_destination(call: Call[Any, requests.Change]) -> answers.Touched:
    """Deliver again."""
    destination = call.destination()
    changes = destination.paused
    if changes and not call.body.dry_run:
        call.namespace().unpause(destination, call.now)
        call.server.turn.worked()
    return _changed(changes, call.body.dry_run)


def _changed(changes: bool, dry_run: bool) -> answers.Touched:
    return answers.Touched.of(int(changes), dry_run)


def _target(call: Call[Any, requests.Relocate]) -> str:
    """Return the target; the caller must have the right to send there.

    Raises:
        ApiError: 422, what stands before its colon is no kind: a bare name may be anything, but a queue that is called
            ``tpoic:prices`` is hardly meant unless it is there, or its kind is given.
    """
    text = call.body.to
    address = parse_address(text)
    target = str(address)
    call.identity.require(Verb.SEND, call.path["ns"], target)
    misspelt = misspelt_kind(text)
    if misspelt is not None and call.namespace().find(address) is None:
        raise ApiError(422, "INVALID_DESTINATION", misspelt, {"field": "to", "address": text})
    return target


async def _act(
    call: Call[Any, Any], verb: Callable[[Queue, management.Choice, int, Budget], Task[management.Handled]]
) -> answers.Touched:
    body: requests.Choose = call.body
    queue = call.queue(body.subscription, body.client_id)
    choice = management.Choice(
        condition=selector_of(call, body.selector, body.dialect),
        ids=None if body.ids is None else frozenset(map(number_or_name, body.ids)),
        limit=body.limit,
        dry_run=body.dry_run,
    )
    if not call.management.begin_action(MAX_AT_WORK):
        text = f"{MAX_AT_WORK} actions are at work, as many as may be; wait for one to end"
        raise ApiError(429, "TOO_MANY_REQUESTS", text, {"limit": MAX_AT_WORK}, {"Retry-After": "1"})
    try:
        outcome = await run(call.server, partial(verb, queue, choice))
    finally:
        call.management.end_action()
    return touched(outcome, body.dry_run)


def touched(outcome: management.Handled, dry_run: bool) -> answers.Touched:
    """What an action has done."""
    stopped = None
    if outcome.stopped is not None:
        error = answer_to(outcome.stopped)
        stopped = answers.Error(error=error.error, text=error.text, details=error.details)
    return answers.Touched(
        matched=outcome.matched,
        touched=outcome.touched,
        dry_run=dry_run,
        more=outcome.more,
        skipped=outcome.skipped,
        stopped=stopped,
    )

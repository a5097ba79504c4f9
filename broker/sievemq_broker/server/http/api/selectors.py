"""The selector workbench: checking a selector, and why it does or does not match a message."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import UNSET

from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.compose import compose_fields
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.messages import number_or_name, selector_of
from sievemq_broker.server.http.api.shown import locate
from sievemq_broker.server.http.errors import bad_request, not_found
from sievemq_broker.server.http.tasks import run
from sievemq_broker.session.rights import Verb
from sievemq_core.message.destination import parse_address
from sievemq_core.selector import CompiledSelector
from sievemq_core.selector.describe import describe_facts, describe_plan
from sievemq_core.selector.explain import Explanation

routes = Routes("Selectors")


@routes.add("POST", "/selector/check", None, answers.CheckedSelector, body=requests.Check, records=False)
async def check_selector(call: Call[Any, requests.Check]) -> answers.CheckedSelector:
    """Check a selector: its canonical text, advice, where other providers differ; or 422 with the place of the mistake.

    `details` of the error: position, length, expected, hint.
    """
    found = selector_of(call, call.body.selector, call.body.dialect)
    dialect = call.body.dialect or call.server.settings.dialect
    if found is None:
        return answers.CheckedSelector(
            selector=call.body.selector, dialect=dialect, canonical="", names=[], index=[], plan=[], advice=[],
            portability=[],
        )  # fmt: skip
    # a large one takes some milliseconds, and other clients must not wait for them
    return await asyncio.to_thread(_checked, found, call.body.selector, dialect)


@routes.add("POST", "/selector/explain", None, answers.ExplainedSelector, body=requests.Explain, records=False)
async def explain_selector(call: Call[Any, requests.Explain]) -> answers.ExplainedSelector:
    """Why a message does or does not match: one that is given as `message`, or one in a queue, named by `namespace`,
    `destination` and `id`."""
    body = call.body
    found = selector_of(call, body.selector, body.dialect)
    stored = (body.namespace, body.destination, body.id)
    if body.message is not UNSET:
        if any(part is not UNSET for part in stored):
            raise bad_request("give a message, or name one with namespace, destination and id; not both")
        properties, headers = compose_fields(body.message)
    elif isinstance(body.namespace, str) and isinstance(body.destination, str) and isinstance(body.id, str):
        call.identity.require(Verb.BROWSE, body.namespace, str(parse_address(body.destination)))
        there = replace(call, path={"ns": body.namespace, "address": body.destination})
        queue = there.queue(body.subscription, body.client_id)
        seen = await run(call.server, partial(locate, queue, number_or_name(body.id)))
        if seen is None:
            raise not_found(f"{queue.label} has no message {body.id[:200]!r} any more", id=body.id[:1_000])
        properties, headers = dict(seen.envelope.properties), seen.envelope.fields
        seen.envelope.compact()
    else:
        raise bad_request("give a message, or name one with namespace, destination and id")
    tree, shown = await asyncio.to_thread(_explained, found, properties, headers)
    return answers.ExplainedSelector(
        selector=body.selector,
        dialect=body.dialect or call.server.settings.dialect,
        canonical="" if found is None else found.canonical,
        matches=tree["truth"] == "TRUE",
        truth=tree["truth"],
        explanation=tree,
        text=shown,
    )


def _explained(
    found: CompiledSelector | None, properties: dict[str, Any], headers: tuple[Any, ...]
) -> tuple[dict[str, Any], str]:
    explanation = Explanation.of_nothing() if found is None else found.explain(properties, headers)
    return explanation.as_dict(), str(explanation)


def _checked(found: CompiledSelector, text: str, dialect: str) -> answers.CheckedSelector:
    return answers.CheckedSelector(
        selector=text,
        dialect=dialect,
        canonical=found.canonical,
        names=sorted(found.facts.names),
        index=describe_facts(found.facts, found.alternatives),
        plan=describe_plan(found.plan),
        advice=[
            answers.Advice(
                code=warning.code,
                message=warning.message,
                position=warning.span[0],
                length=warning.span[1] - warning.span[0],
            )
            for warning in found.warnings
        ],
        portability=[
            answers.PortabilityNote(
                providers=list(note.providers),
                code=note.code,
                message=note.message,
                rewrite=note.rewrite,
                position=note.span[0],
                length=note.span[1] - note.span[0],
            )
            for note in found.portability()
        ],
    )

"""Definitions: what exists as one table, and making the broker have what another one says."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import msgspec

from sievemq_broker.definitions import Definitions, parse_definitions
from sievemq_broker.server import definitions as server_definitions
from sievemq_broker.server.definitions import Change, Terms
from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.api.live import require_everything, use, users_refused
from sievemq_broker.server.http.encoding import encode
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.tasks import each, run
from sievemq_broker.session.rights import EVERYTHING, Verb
from sievemq_broker.users.passwords import is_hash
from sievemq_core.counted import counted

routes = Routes("Definitions")

#: Bytes of the JSON of definitions, and names and values in it: tens of thousands of queues and subscriptions, and less
#: than ten milliseconds of decoding.
BODY_BYTES, MAX_VALUES = 4 * 1024 * 1024, 200_000


@routes.add("GET", "/definitions", None, answers.Definitions)
async def get_definitions(call: Call[Any, Any]) -> answers.Definitions:
    """Queues, topics, durable subscriptions, rules, limits and users, as one table.

    It has namespaces of which the caller may view everything; rules and limits if that is so of all namespaces; users,
    with the hashes of their passwords, if the caller may do everything."""
    server, identity = call.server, call.identity
    broker = server.shard.broker
    placement = server.placement
    spaces = [
        name
        for name in {"default", *broker.namespaces}
        if identity.may(Verb.VIEW, name, EVERYTHING) and (placement is None or placement.here(name))
    ]
    dialect = server.settings.dialect
    found = await run(server, partial(server_definitions.collect, broker, dialect, server.live, spaces))
    tables = await asyncio.to_thread(found.table)
    clear = sorted(name for name, user in (found.users or {}).items() if not is_hash(user.secret))
    hashed = {name: table for name, table in tables.pop("users", {}).items() if name not in clear}
    if not identity.may(Verb.VIEW, EVERYTHING, EVERYTHING):
        tables = {"namespaces": tables.get("namespaces", {})}
    if not identity.rights.unlimited:
        hashed, clear = {}, []
    if hashed:
        tables["users"] = hashed
    return answers.Definitions(definitions=tables, clear_passwords=clear)


@routes.add(
    "POST",
    "/definitions",
    None,
    answers.Applied,
    body=requests.Apply,
    body_limit=BODY_BYTES,
    value_limit=MAX_VALUES,
)
async def apply_definitions(call: Call[Any, requests.Apply]) -> answers.Applied:
    """Make what is missing, and change what differs; a dry run only compares.

    Namespaces in shards of other brokers are left out: each owner applies its own. What is not defined is left alone,
    unless `prune` is given. What would delete messages is refused, unless `force` names it; if anything is refused,
    nothing is done. The first users of a broker are made when it starts with them."""
    definitions = await _parsed(call)
    _check_rights(call, definitions)
    with call.management.changing(definitions.namespaces):
        return await _applied(call, definitions)


async def _applied(call: Call[Any, requests.Apply], definitions: Definitions) -> answers.Applied:
    given, server = call.body, call.server
    claims = not given.dry_run
    definitions, others = await server_definitions.without_others(definitions, server.placement, claims=claims)
    terms = Terms(given.prune, frozenset(given.force))

    def compared() -> list[Change]:
        secured = server.user_store.users.required
        found = server_definitions.settings_changes(definitions, server.live, prune=given.prune, secured=secured)
        if definitions.users is not None and secured:
            before = {} if given.prune else server.live.users.present
            server_definitions.refuse_users(found, users_refused(call, {**before, **definitions.users}))
        return found

    of_settings = compared()
    refused = [change for change in of_settings if change.refused]
    if refused and not given.dry_run:
        raise _refused(refused, 0)
    do = server_definitions.compare if given.dry_run else server_definitions.apply
    changes = await run(server, partial(do, server.shard.broker, definitions, server.settings.dialect, terms))
    server.turn.worked()
    made, refused_here = ([change for change in changes if getattr(change, name)] for name in ("made", "refused"))
    if refused_here and not given.dry_run:
        raise _refused(refused_here, len(made))
    if of_settings and not given.dry_run:
        call.check_caller()
        of_settings = compared()  # others may have changed them
        if refused := [change for change in of_settings if change.refused]:
            raise _refused(refused, len(made))
        server_definitions.change_settings(of_settings, definitions, server.live, call.identity.user, call.now)
        kinds = {change.kind for change in of_settings if change.made}
        await use(call, [layer for layer in server.live.layers if layer.kind in kinds])
    changes += of_settings
    return answers.Applied(
        changes=await each(server, changes, _shown),
        applied=sum(change.made for change in changes),
        refused=len(refused) + len(refused_here),
        at_start=sum(change.at_start for change in changes),
        elsewhere=others,
        dry_run=given.dry_run,
    )


async def _parsed(call: Call[Any, requests.Apply]) -> Definitions:
    try:
        definitions = await asyncio.to_thread(parse_definitions, call.body.definitions, call.body.origin)
        dialect = call.server.settings.dialect
        await run(call.server, partial(server_definitions.check_selectors, definitions, dialect))
    except ValueError as error:
        raise ApiError(400, "INVALID_DEFINITIONS", str(error)) from None
    return definitions


def _check_rights(call: Call[Any, Any], definitions: Definitions) -> None:
    for name in definitions.namespaces:
        call.identity.require(Verb.MANAGE, name, EVERYTHING)
    if definitions.users is not None:
        require_everything(call)
    if any(part is not None for part in definitions.settings.values()):
        call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)


def _refused(refused: list[Change], made: int) -> ApiError:
    first = refused[0]
    others = f", and {counted(len(refused) - 1, 'other change')} besides" if refused[1:] else ""
    force = f"; force {first.name!r:.300} to do it nevertheless" if first.can_be_forced else ""
    done = f"{counted(made, 'change')} made before that" if made else "nothing was changed"
    return ApiError(
        409,
        "ILLEGAL_STATE",
        f"{first.action} {first.name[:300]}: {first.refused}{force}{others}; {done}",
        {"name": first.name[:300], "refused": len(refused), "applied": made},
    )


def _shown(change: Change) -> answers.DefinitionChange:
    """A change, as JSON already: all of them together would be encoded in one piece."""
    shown = answers.DefinitionChange(
        action=change.action,
        kind=change.kind,
        namespace=change.namespace,
        name=change.name,
        text=change.text,
        at_start=change.at_start,
        refused=change.refused,
        can_be_forced=change.can_be_forced,
        made=change.made,
    )
    return cast("answers.DefinitionChange", msgspec.Raw(encode(shown)))

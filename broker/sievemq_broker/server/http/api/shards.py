"""Shards of a cluster: their owners, and which namespaces they have."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.server.http.gate import expect_here
from sievemq_broker.session.checks import check_identifier
from sievemq_broker.session.rights import EVERYTHING, Rights, Verb

if TYPE_CHECKING:  # few brokers are part of a cluster
    from sievemq_broker.server.placement import Placement

routes = Routes("Shards")


@routes.add("GET", "/shards", None, answers.Shards)
async def list_shards(call: Call[Any, Any]) -> answers.Shards:
    """The shards with their owners, and the patterns that choose the shard of a new namespace.

    Every broker of a cluster answers, also one that owns no shard. A broker without a cluster has one shard."""
    server, identity = call.server, call.identity
    placement, everything = server.placement, identity.may(Verb.VIEW, EVERYTHING, EVERYTHING)
    redirects = dict(server.shard.redirects) if everything else {}
    if placement is None:
        return answers.Shards(cluster=False, shards=[_only_shard(call)], patterns=[], redirects=redirects)
    listing = await placement.listed()
    # In a thread: there may be many, and a broker that owns no shard has no turns.
    counts = await asyncio.to_thread(_counted, listing.namespaces, identity.rights)
    sights = {sight.shard: sight for sight in listing.shards}
    rows = []
    for name in placement.shards:
        sight = sights.get(name)
        owner = None if sight is None else sight.owner
        rows.append(
            answers.Shard(
                name=name,
                here=name == placement.shard,
                owner=owner.name if owner is not None and everything else None,
                url=None if owner is None else owner.url,
                http_url=None if owner is None else owner.http_url or None,
                followers=sight.followers if sight is not None and everything else None,
                namespaces=counts[name],
            )
        )
    patterns = [
        answers.Pattern(pattern=pattern, shard=shard) for pattern, shard in (listing.patterns if everything else ())
    ]
    return answers.Shards(cluster=True, shards=rows, patterns=patterns, redirects=redirects)


def _only_shard(call: Call[Any, Any]) -> answers.Shard:
    server, rights = call.server, call.identity.rights
    return answers.Shard(
        name=server.shard.name,
        here=True,
        owner=None,
        url=server.settings.advertise or server.url,
        http_url=server.settings.advertise_http or call.management.url,
        followers=None,
        namespaces=sum(map(rights.enters, server.shard.broker.namespaces)),
    )


def _counted(namespaces: dict[str, str], rights: Rights) -> Counter[str]:
    """How many namespaces of each shard a user may enter."""
    return Counter(shard for name, shard in namespaces.items() if rights.enters(name))


@routes.add("POST", "/shards/{shard}/actions/assign", None, answers.Assigned, body=requests.Assign)
async def assign_namespace(call: Call[Any, requests.Assign]) -> answers.Assigned:
    """Have a namespace in a shard, or new namespaces whose name fits a pattern.

    The namespace does not exist yet, or is empty and has no clients. The owner of its present shard does it; other
    brokers answer 421 with its URL."""
    name, shard = call.body.name, call.path["shard"]
    placement = _placement(call)
    is_pattern = "*" in name or "?" in name
    call.about["pattern" if is_pattern else "namespace"] = name
    call.identity.require(Verb.MANAGE, EVERYTHING if is_pattern else name, EVERYTHING)
    if not is_pattern:
        check_identifier("the name of a namespace", name)
        if (await placement.find(name)).is_claimed:
            await expect_here(call.server, name)
        if call.management.changed[name]:
            raise ApiError(409, "ILLEGAL_STATE", f"a request is changing namespace {name!r:.300}; try again")
    found = await placement.assign(name, shard)
    return answers.Assigned(name=name, shard=found.shard)


@routes.add("DELETE", "/shards/patterns/{pattern}", None, answers.Assigned)
async def delete_shard_pattern(call: Call[Any, Any]) -> answers.Assigned:
    """Let a pattern choose the shard of new namespaces no longer. Those that exist stay where they are."""
    pattern = call.path["pattern"]
    placement = _placement(call)
    call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)
    await placement.assign(pattern, None)
    return answers.Assigned(name=pattern, shard=None)


@routes.add("POST", "/shards/{shard}/actions/take", None, answers.Asked, body=requests.Nothing, body_optional=True)
async def take_shard(call: Call[Any, Any]) -> answers.Asked:
    """Have the owner of a shard hand it over to this broker, which owns none and follows it.

    It does so once it has read the messages; then the owner ends, and is started again as a follower."""
    shard, server = call.path["shard"], call.server
    call.identity.require(Verb.MANAGE, EVERYTHING, EVERYTHING)
    try:
        server.ask_for(shard)
    except ValueError as error:
        raise ApiError(409, "ILLEGAL_STATE", str(error), {"shard": shard[:300]}) from None
    keeper = server.keepers.get(shard)
    owner = None if keeper is None else keeper.owner
    return answers.Asked(shard=shard, owner=None if owner is None else owner.url)


def _placement(call: Call[Any, Any]) -> Placement:
    placement = call.server.placement
    if placement is None:
        text = "this broker is not part of a cluster: the setting `shards` names the shards of one"
        raise ApiError(409, "ILLEGAL_STATE", text)
    return placement

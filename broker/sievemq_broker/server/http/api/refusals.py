"""What the broker has refused to clients."""

from __future__ import annotations

from typing import Any

from sievemq_broker.server.http.api import answers
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.session.rights import EVERYTHING, Verb

routes = Routes("Refusals")


@routes.add("GET", "/refusals", None, answers.Refusals)
async def list_refusals(call: Call[Any, Any]) -> answers.Refusals:
    """What was refused lately, to which clients, and which clients have rolled back transactions.

    Covers the namespaces that the caller may view as a whole.
    """
    tallies = call.server.shard.services.tallies

    def may_see(namespace: str) -> bool:
        return call.identity.may(Verb.VIEW, namespace, "*")

    return answers.Refusals(
        refused=[
            answers.Refused(
                namespace=of.namespace,
                address=of.destination or None,
                reason=of.reason,
                client=of.client,
                connection=happened.connection or None,
                opens=of.opens,
                count=happened.count,
                first=happened.first,
                last=happened.last,
            )
            for of, happened in tallies.refusals.latest()
            if may_see(of.namespace)
        ],
        rolled_back=[
            answers.RolledBack(
                namespace=of.namespace,
                client=of.client,
                connection=happened.connection,
                count=happened.count,
                first=happened.first,
                last=happened.last,
            )
            for of, happened in tallies.rollbacks.latest()
            if may_see(of.namespace)
        ],
    )


@routes.add("GET", "/sign-ins", None, answers.SignIns)
async def list_sign_ins(call: Call[Any, Any]) -> answers.SignIns:
    """How many sign-ins were accepted or failed, by protocol and port, and whose failed lately.

    Needs the right to view everything.
    """
    call.identity.require(Verb.VIEW, EVERYTHING, EVERYTHING)
    sign_ins = call.server.authenticator.sign_ins
    return answers.SignIns(
        counts=[
            answers.SignInCount(protocol=protocol, port=port, outcome=outcome, count=number)
            for (protocol, port, outcome), number in sorted(sign_ins.counts.items())
        ],
        failures=[
            answers.FailedSignIn(
                protocol=of.door.protocol,
                port=of.door.port,
                address=of.door.address,
                user=of.user,
                count=happened.count,
                first=happened.first,
                last=happened.last,
            )
            for of, happened in sign_ins.failures.latest()
        ],
    )

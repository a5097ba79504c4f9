"""What needs an operator's attention."""

from __future__ import annotations

from typing import Any

from sievemq_broker.server.http.api import answers
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.watch.findings import Finding
from sievemq_broker.session.rights import Identity, Verb

routes = Routes("Attention")


@routes.add("GET", "/attention", None, answers.Attention)
async def get_attention(call: Call[Any, Any]) -> answers.Attention:
    """What needs an operator's attention, as far as the caller may view it; the most important first.

    What concerns the broker as a whole is for users who may view everything."""
    attention, identity = call.server.attention, call.identity
    findings = [finding for finding in attention.listed.values() if may_view(identity, finding)]
    totals: dict[str, int] = {}
    if identity.may(Verb.VIEW, "*", "*"):
        totals = {rule.name: number for rule, number in attention.totals.items() if number}
    else:
        for finding in findings:
            totals[finding.rule.name] = totals.get(finding.rule.name, 0) + 1
    return answers.Attention(findings=[_show(finding) for finding in findings], totals=totals)


def may_view(identity: Identity, finding: Finding) -> bool:
    """True if a user may view what a finding is about."""
    about = finding.about
    return identity.may(Verb.VIEW, about["namespace"] or "*", about["address"] or "*")


def _show(finding: Finding) -> answers.Finding:
    rule = finding.rule
    return answers.Finding(
        rule=rule.name,
        severity=rule.severity,  # type: ignore[arg-type]
        since=finding.since,
        amount=finding.amount,
        text=finding.text,
        advice=rule.advice,
        **finding.about,
    )

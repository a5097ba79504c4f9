"""What needs an operator's attention."""

from __future__ import annotations

from collections import Counter
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

    What concerns the broker as a whole is for users who may view everything. A broker that follows answers, too."""
    server, identity = call.server, call.identity
    findings = [finding for finding in server.findings.values() if may_view(identity, finding)]
    totals = Counter(finding.rule.name for finding in findings)
    if server.started_at and identity.may(Verb.VIEW, "*", "*"):
        totals = Counter({rule.name: number for rule, number in server.attention.totals.items() if number})
    return answers.Attention(now=call.now, findings=[_show(finding) for finding in findings], totals=totals)


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

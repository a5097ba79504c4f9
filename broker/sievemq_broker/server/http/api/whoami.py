"""The calling user and their rights: for programs that offer only what will not be refused, such as the console."""

from __future__ import annotations

from typing import Any

from sievemq_broker.server.http.api import answers, requests
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.session.rights import EVERYTHING
from sievemq_core.message.destination import parse_address

routes = Routes("Session")


@routes.add("GET", "/session", None, answers.Session, query=requests.Whose)
async def get_session(call: Call[requests.Whose, Any]) -> answers.Session:
    """The calling user and their rights.

    With `destination`, `may` lists the rights on it, whether it exists or not; without, those on all destinations."""
    identity, query = call.identity, call.query
    destination = EVERYTHING if query.destination is None else str(parse_address(query.destination))
    return answers.Session(
        user=identity.user,
        unlimited=identity.rights.unlimited,
        rights=[
            answers.Right(may=sorted(grant.may), destination=grant.destination, namespace=grant.namespace)
            for grant in identity.rights.grants
            if query.namespace is None or grant.covers_namespace(query.namespace)
        ],
        may=call.identity.verbs(EVERYTHING if query.namespace is None else query.namespace, destination),
    )

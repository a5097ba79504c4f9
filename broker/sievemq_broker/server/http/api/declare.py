"""Declares each endpoint once: `operation` checks requests by it, and the OpenAPI document is generated from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any, Final

import msgspec

from sievemq_broker.server.http.api.call import Call
from sievemq_broker.session.rights import Verb

Handler = Callable[["Call[Any, Any]"], Awaitable[Any]]

#: Of the JSON of a request, counted as its commas and brackets outside of strings: some milliseconds of decoding.
MAX_JSON_VALUES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path.

    Attributes:
        method: GET, POST, PUT or DELETE.
        path: template below PREFIX, such as ``/namespaces/{ns}``.
        handler: does it.
        verb: what the caller must be allowed to do with what the path names; None where the handler itself leaves out
            what the caller may not see.
        query: the parameters it takes; None for none.
        body: the JSON it takes; None for none.
        answer: type of its JSON; None for what is no JSON.
        status: of success; several where the handler chooses.
        tag: the noun it belongs to.
        body_optional: an absent body is an empty object.
        body_limit: bytes that a body may have.
        value_limit: names and values that its JSON may have.
        media: content type of the answer.
        records: a call that changes something is recorded. False for what changes nothing, though it is no GET; and for
            messages that are sent, as by any producer.
    """

    method: str
    path: str
    handler: Handler
    verb: Verb | None
    query: type[msgspec.Struct] | None
    body: type[msgspec.Struct] | None
    answer: Any
    status: tuple[int, ...]
    tag: str
    body_optional: bool = False
    body_limit: int = 1024 * 1024
    value_limit: int = MAX_JSON_VALUES
    media: str = "application/json"
    records: bool = True

    @property
    def name(self) -> str:
        """Its name in the OpenAPI document."""
        return self.handler.__name__

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in braces in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def summary(self) -> str:
        """First paragraph of the handler's docstring."""
        return (getdoc(self.handler) or "").partition("\n\n")[0].replace("\n", " ")

    @property
    def description(self) -> str:
        """The rest of it."""
        return (getdoc(self.handler) or "").partition("\n\n")[2].replace("\n", " ")


class Routes:
    """Collects the endpoints of one noun.

    Args:
        tag: the noun.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.endpoints: list[Endpoint] = []

    def add(
        self,
        method: str,
        path: str,
        verb: Verb | None,
        answer: Any,
        *,
        query: type[msgspec.Struct] | None = None,
        body: type[msgspec.Struct] | None = None,
        status: tuple[int, ...] = (200,),
        **more: Any,
    ) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            self.endpoints.append(Endpoint(method, path, handler, verb, query, body, answer, status, self.tag, **more))
            return handler

        return declare

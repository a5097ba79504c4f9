"""The OpenAPI 3.1 document, made from the endpoints' declarations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from sievemq_broker.server.http.api import PREFIX
from sievemq_broker.server.http.api.answers import Error
from sievemq_broker.server.http.api.declare import Endpoint
from sievemq_core.version import VERSION

_PARAMETERS = {
    "ns": "Name of a namespace.",
    "address": "Address of a destination, such as `queue:orders`; a bare name is a queue.",
    "id": "As in the list.",
    "client_id": "Client id of a subscription; `-` for none.",
    "name": "Name of a subscription, tap or user.",
    "shard": "Name of a shard.",
    "pattern": "Pattern of a rule, such as `queue:orders.*`, or of namespaces, such as `team-*`.",
}

_ERRORS = {
    400: "It cannot be understood: an unknown or ill-formed parameter or field.",
    401: "Credentials are needed.",
    403: "The caller has no right to do this.",
    404: "What the path names is not there.",
    405: "Not with this method.",
    408: "The body did not arrive in time.",
    409: "Not in the state in which things are.",
    412: "It is not what If-Match names: it was changed meanwhile.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    421: "Another broker has it; `url` in the details is where to ask.",
    422: "Well-formed, but with a value that is not valid, such as a selector.",
    429: "Too many such requests at work; try again.",
    500: "A fault of the broker.",
    503: "Not now: producers are held back, or the broker is ending.",
}


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The document as plain data."""
    endpoints = tuple(endpoints)
    kinds = [kind for endpoint in endpoints for kind in (endpoint.query, endpoint.body, endpoint.answer) if kind]
    kinds = list(dict.fromkeys([Error, *kinds]))
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(PREFIX + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, of, components)
    used = _used(paths, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SieveMQ management API",
            "version": VERSION,
            "summary": "Look into a SieveMQ broker and repair what went wrong.",
            "description": "Names in paths are percent-encoded, slashes too. Times are ms since 1970-01-01 UTC by the "
            "broker's clock. Lists say with `next` where they go on and are never cut silently.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name} for name in dict.fromkeys(endpoint.tag for endpoint in endpoints)],
        "security": [{}, {"basic": []}],
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if name in used},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(endpoint: Endpoint, of: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "responses": {},
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PARAMETERS[name],
            "schema": {"type": "string", "minLength": 1, "maxLength": 1_000},
        }
        for name in endpoint.parameters
    ]
    if endpoint.query is not None:
        schema = components[of[endpoint.query]["$ref"].rpartition("/")[2]]
        for name, about in schema["properties"].items():
            parameters.append(_query_parameter(name, dict(about), name in schema.get("required", ())))
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": {"application/json": {"schema": of[endpoint.body]}},
        }
    for status in endpoint.status:
        content = {"schema": {"type": "string"}} if endpoint.answer is None else {"schema": of[endpoint.answer]}
        if endpoint.answer is dict:
            content = {"schema": {"type": "object"}}
        operation["responses"][str(status)] = {
            "description": {200: "Done.", 201: "Made."}[status],
            "content": {endpoint.media: content},
        }
    for status, text in _ERRORS.items():
        if status in _unusual(endpoint):
            continue
        operation["responses"][str(status)] = {
            "description": text,
            "content": {"application/json": {"schema": of[Error]}},
        }
    return operation


def _unusual(endpoint: Endpoint) -> set[int]:
    never: set[int] = {405, 500}
    if endpoint.body is None:
        never |= {415}
    if endpoint.tag != "Settings" or endpoint.method == "GET":
        never |= {412}
    if not endpoint.parameters and endpoint.body is None:
        never |= {404}
    return never


def _query_parameter(name: str, about: dict[str, Any], required: bool) -> dict[str, Any]:
    variants = [variant for variant in about.pop("anyOf", ()) if variant.get("type") != "null"]
    if len(variants) == 1:
        about |= variants[0]
    about.pop("default", None) if about.get("default") is None else None
    if isinstance(about.get("enum"), list):
        about["enum"] = [value for value in about["enum"] if value is not None]
    parameter: dict[str, Any] = {"name": name, "in": "query", "required": required}
    description = about.pop("description", None)
    if description:
        parameter["description"] = description
    return parameter | {"schema": about}


def _used(paths: dict[str, Any], components: dict[str, Any]) -> set[str]:
    """The schemas that the document refers to: those of parameters were taken apart."""
    used: set[str] = set()
    waiting: list[Any] = [paths]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            name = str(item.get("$ref", "")).rpartition("/")[2]
            if name and name not in used:
                used.add(name)
                waiting.append(components[name])
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return used

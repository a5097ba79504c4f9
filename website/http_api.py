"""The page of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sievemq_broker.server.http.api.assemble import endpoints
from sievemq_broker.server.http.api.openapi import document
from website.markup import cell, row

PAGE = "reference/http-api.md"
DOCUMENT = "reference/openapi.json"


def pages() -> dict[str, str]:
    """The page and the OpenAPI document beside it."""
    api = document(endpoints(with_test_control=True))
    return {PAGE: "\n".join(_page(api)), DOCUMENT: json.dumps(api, indent=1)}


def _page(api: dict[str, Any]) -> Iterator[str]:
    yield f"# HTTP API\n\n{api['info']['description']}\n"
    yield (
        "From the broker's [OpenAPI document](openapi.json), which each broker serves at `/api/v1/openapi.json`. "
        "[Operating](../docs/operating.md#management-api) has examples. Paths below `/api/v1/test` are those of "
        "[test control](../docs/testing-any-language.md).\n"
    )
    operations = [
        (path, method, operation) for path, methods in api["paths"].items() for method, operation in methods.items()
    ]
    for tag in (each["name"] for each in api["tags"]):
        yield f"## {tag[0].upper()}{tag[1:]}\n"
        for path, method, operation in operations:
            if tag in operation["tags"]:
                yield from _operation(path, method, operation)
    yield "## Objects\n"
    for name, schema in sorted(api["components"]["schemas"].items()):
        yield from _schema(name, schema)


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {operation['summary'].rstrip('.')}\n\n```http\n{method.upper()} {path}\n```\n"
    if operation.get("description"):
        yield f"{operation['description']}\n"
    rows = [
        (f"`{each['name']}`", each["in"], _type(each["schema"]), each.get("description", ""))
        for each in operation.get("parameters", ())
    ]
    if body := operation.get("requestBody"):
        need = "" if body["required"] else "may be absent"
        rows.append(("body", "body", _type(body["content"]["application/json"]["schema"]), need))
    if rows:
        yield "| parameter | in | type | meaning |\n| --- | --- | --- | --- |"
        yield from (row(*map(cell, each)) for each in rows)
        yield ""
    answers = [(status, each) for status, each in operation["responses"].items() if status.startswith("2")]
    refused = [status for status in operation["responses"] if not status.startswith("2")]
    for status, each in answers:
        kinds = ", ".join(f"{_type(it['schema'])} as `{media}`" for media, it in each["content"].items())
        yield f"{status}: {kinds}. Errors: {', '.join(refused)}.\n"


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {_short(name)} {{ #{_anchor(name)} }}\n"
    if schema.get("description"):
        yield f"{schema['description']}\n"
    if schema.get("properties"):
        yield "| field | type | meaning |\n| --- | --- | --- |"
        for field, about in schema["properties"].items():
            star = "" if field in schema.get("required", ()) else " (optional)"
            yield row(f"`{field}`{star}", cell(_type(about)), cell(about.get("description", "")))
        yield ""
    elif "enum" in schema:
        yield f"One of {', '.join(f'`{value}`' for value in schema['enum'])}.\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{_short(name)}](#{_anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    kind = schema.get("type", "any value")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _short(name: str) -> str:
    """The name of a schema without the module that tells it from another of the same name."""
    return name.rpartition(".")[2]


def _anchor(name: str) -> str:
    return f"schema-{name.lower().replace('.', '-')}"

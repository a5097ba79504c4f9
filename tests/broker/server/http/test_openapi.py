"""The OpenAPI document, and every endpoint held to it with made-up requests."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sievemq_broker import EmbeddedBroker

from .conftest import Api, at


def test_document(api: Api) -> None:
    document = api.get("/openapi.json")
    assert document["openapi"].startswith("3.1")
    operations = [(path, operation) for path, methods in document["paths"].items() for operation in methods.values()]
    assert len({operation["operationId"] for _, operation in operations}) == len(operations)
    for path, operation in operations:
        assert operation["summary"].endswith("."), path
        declared = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "path"}
        assert declared == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path
    assert "/api/v1/namespaces/{ns}/destinations/{address}/messages/{id}" in document["paths"]


def test_every_schema_that_is_referred_to_is_there(api: Api) -> None:
    text = json.dumps(api.get("/openapi.json"))
    schemas = json.loads(text)["components"]["schemas"]
    references = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references == set(schemas)
    assert all(map(str.isidentifier, schemas))  # two types of one name would have that of their modules in front


# -- made-up requests -------------------------------------------------------------------------------------------------

ADMIN = {"Authorization": "Basic " + b64encode(b"admin:a").decode()}
ADDRESSES = ("queue:orders", "topic:prices", "queue:DLQ.orders", "orders", "queue:none")


@pytest.fixture(scope="module")
def busy() -> Iterator[EmbeddedBroker]:
    """A broker with something in it: found by some of the requests, deleted by others.

    It has a user: a made-up request could add the first one, after which all requests without one are refused.
    """
    with EmbeddedBroker(http=True, settings={"max_memory_bytes": "64MiB", "users": {"admin": "a"}}) as broker:
        yield broker


@pytest.fixture(scope="module")
def schema(busy: EmbeddedBroker) -> Any:
    """The document as the tool reads it."""
    import schemathesis

    return schemathesis.openapi.from_url(f"{busy.http_url}/openapi.json", headers=ADMIN)


def fill(api: Api) -> None:
    api("POST", "/api/v1/namespaces", {"name": "default"})
    for address in ADDRESSES[:3]:
        api("PUT", at(address))
        for body in ("text", {"a": 1}, [1.5, None]):
            api("POST", f"{at(address)}/messages", {"body": body, "properties": {"n": 1, "region": "EU"}})
        api("POST", f"{at(address)}/messages", {"body": "later", "delivery_delay": 10_000_000})


def operations() -> list[str]:
    from sievemq_broker.server.http.api.assemble import ROUTES

    return [f"{e.method} {e.path}" for routes in ROUTES for e in routes.endpoints if e.answer is not None]


@pytest.mark.slow  # more than five seconds in all
@pytest.mark.filterwarnings("ignore")  # what the tool's dependencies deprecate is not ours
@pytest.mark.parametrize("operation", operations())
def test_made_up_requests(busy: EmbeddedBroker, schema: Any, operation: str) -> None:
    """No 5xx; statuses, content types and bodies are those that the document declares; what it allows is accepted."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        negative_data_rejection,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        content_type_conformance,
        negative_data_rejection,
        response_schema_conformance,
        status_code_conformance,
    ]
    method, path = operation.split(" ")
    api = Api(busy, **ADMIN)
    fill(api)
    declared = schema[f"/api/v1{path}"][method]
    known = {
        "ns": st.sampled_from(["default", "default", "a/b", "no such"]),
        "address": st.sampled_from(ADDRESSES),
        "id": st.sampled_from(["1", "2", "3", "4", "999", "ID:x-1:1"]),
    }

    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schemathesis_strategy(declared), choice=st.fixed_dictionaries(known), real=st.booleans())
    def check(case: Any, choice: dict[str, str], real: bool) -> None:
        if real:
            for name in case.path_parameters or ():
                if name in choice:
                    case.path_parameters[name] = choice[name]
        answer = case.call(headers=ADMIN)
        if answer.status_code == 413:  # so much was made up that nobody looked at it: rejected in its own way
            assert answer.json()["error"] == "REQUEST_TOO_LARGE"
            return
        case.validate_response(answer, checks=checks)

    check()
    assert api("GET", "/api/v1/broker").status == 200


def schemathesis_strategy(operation: Any) -> Any:
    """Requests as the document allows them, and requests as it does not."""
    from schemathesis import GenerationMode

    return st.one_of(
        operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
    )

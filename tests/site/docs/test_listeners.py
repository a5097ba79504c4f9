"""docs/listeners.md: its programs do what it says."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Any

import pytest

from sievemq_broker import EmbeddedBroker

from .programs import ROOT, output_of, programs_of

TEXT = (ROOT / "docs" / "listeners.md").read_text(encoding="utf-8")
PROGRAMS = programs_of(TEXT)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_all_programs_are_run() -> None:
    assert len(PROGRAMS) == 2
    assert TEXT.count("```python") == len(PROGRAMS) + 1


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=["first", "transaction"])
def test_programs_print_the_shown_output(broker: EmbeddedBroker, program: str, printed: str) -> None:
    assert output_of(program, broker.url) == printed


async def test_a_web_application_listens_while_it_serves(broker: EmbeddedBroker) -> None:
    (program,) = re.findall(r"^```python\n(import asyncio\nfrom collections.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    module: Any = types.ModuleType("web")
    exec(program.replace("sievemq://localhost", broker.url), module.__dict__)
    async with module.web.router.lifespan_context(module.web):
        assert await get(module.web, "/visit", b"name=Zoe") == (200, b"Zoe was here\n")
        assert await get(module.web, "/readyz") == (200, b"ok\n")
    assert not module.listeners.healthy


async def get(web: Any, path: str, query: bytes = b"") -> tuple[int, bytes]:
    """What an ASGI application answers to a GET."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": [], "app": web}
    await web(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

"""Selectors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from sievemq_broker.server.http.api.answers.common import Answer

__all__ = ["Advice", "CheckedSelector", "ExplainedSelector", "PortabilityNote"]


class Advice(Answer, kw_only=True):
    """What is legal and hardly meant."""

    code: str
    message: str
    position: int
    length: int


class PortabilityNote(Answer, kw_only=True):
    """Where other providers refuse a selector or answer differently."""

    providers: list[str]
    code: str
    message: str
    rewrite: str | None
    position: int
    length: int


class CheckedSelector(Answer, kw_only=True):
    """A selector that is valid."""

    selector: str
    dialect: str
    canonical: str
    names: Annotated[list[str], Meta(description="The properties and headers in it.")]
    index: Annotated[list[str], Meta(description="What an index can answer of it.")]
    plan: list[str]
    advice: list[Advice]
    portability: list[PortabilityNote]


class ExplainedSelector(Answer, kw_only=True):
    """Why a message does or does not match."""

    selector: str
    dialect: str
    canonical: str
    matches: bool
    truth: Literal["TRUE", "FALSE", "UNKNOWN"]
    explanation: dict[str, Any]
    text: Annotated[str, Meta(description="The same as a table, for people.")]

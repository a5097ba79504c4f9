"""What test control answers. Times are ms since 1970 by the broker's clock."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sievemq_broker.server.http.api.answers import Answer


class OpenedNamespace(Answer, kw_only=True):
    """A namespace of a test, and the URLs that lead to it; null for what the broker does not speak."""

    name: str
    url: Annotated[str | None, Meta(description="For SieveMQ's own client.")]
    amqp_url: Annotated[
        str | None, Meta(description="Its `amqp.vhost` is the namespace; other clients name it as the open's hostname.")
    ]
    stomp_url: Annotated[str | None, Meta(description="Its path is the `host` header of CONNECT.")]


class DroppedNamespace(Answer, kw_only=True):
    """A namespace that is gone."""

    name: str
    connections: Annotated[list[str], Meta(description="Connections that were still open, and were cut.")]


class KeptSnapshot(Answer, kw_only=True):
    """A snapshot of a namespace; it is kept until the namespace is dropped."""

    id: str
    at: int
    destinations: list[str]
    messages: int


class ClockState(Answer, kw_only=True):
    """The broker's clock."""

    now: int
    offset_ms: Annotated[int, Meta(description="By how much it is ahead of the machine's.")]
    frozen: bool
    seen: Annotated[bool, Meta(description="Every client that can be told has seen the new time.")]


class AppliedPolicy(Answer, kw_only=True):
    """The rules that apply to a destination from now on."""

    destination: str
    rules: dict[str, Any]


class FaultState(Answer, kw_only=True):
    """A fault. One that has happened already has no id."""

    id: str | None
    fault: str
    text: str
    used: Annotated[int, Meta(description="Commands or connections that it has met.")]
    left: Annotated[int | None, Meta(description="Commands that it will still meet; null if they are not counted.")]


class FaultStates(Answer, kw_only=True):
    """The faults that were requested and not ended."""

    faults: list[FaultState]


class WhyNot(Answer, kw_only=True):
    """Why a selector did not match a message."""

    selector: str
    text: str


class JournalEvent(Answer, kw_only=True):
    """One thing that happened."""

    number: int
    at: int
    kind: str
    destination: str
    topic: Annotated[str, Meta(description="If `destination` is one of its subscriptions; empty otherwise.")]
    message_id: str
    message: Annotated[str | None, Meta(description="The message in one line.")]
    by: Annotated[str, Meta(description="Id of the connection; empty if it was the broker itself.")]
    detail: str
    not_matched: list[WhyNot]


class JournalPage(Answer, kw_only=True):
    """Events, oldest first."""

    events: list[JournalEvent]
    dropped: Annotated[int, Meta(description="Events that the journal has no room for any more.")]
    next: Annotated[int | None, Meta(description="`after` of the next page; null at the end.")]


class SeenMessage(Answer, kw_only=True):
    """A message."""

    message_id: str | None
    type: str | None
    correlation_id: str | None
    priority: int
    properties: dict[str, Any]
    text: Annotated[str | None, Meta(description="The body, if it is text.")]
    base64: Annotated[str | None, Meta(description="The body, if it is none, in base64.")]


class Outcome(Answer, kw_only=True):
    """The outcome of an assertion."""

    passed: bool
    text: Annotated[str, Meta(description="Why it failed; empty if it passed.")]
    explanation: Annotated[str, Meta(description="The end of the journal, with reasons; empty if it passed.")]
    messages: Annotated[list[SeenMessage], Meta(description="The messages that it was about, if it passed.")]

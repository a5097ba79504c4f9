"""Bodies and parameters of test control, as types. Lengths of time are milliseconds."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sievemq_core.limits import MAX_SELECTOR_CHARS

#: The longest wait of an assertion.
MAX_WITHIN_MS = 300_000

_YEARS_MS = 100 * 366 * 86_400_000

Name = Annotated[str, Meta(min_length=1, max_length=600)]
Count = Annotated[int, Meta(ge=0)]
Within = Annotated[int, Meta(ge=0, le=MAX_WITHIN_MS, description="Time in ms to wait for it at most, in real time.")]
Destination = Annotated[
    str, Meta(min_length=1, max_length=600, description="Such as `queue:orders`; a bare name is a queue.")
]
Selector = Annotated[str, Meta(max_length=MAX_SELECTOR_CHARS, description="Only messages that this matches.")]


class _Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of all: unknown fields are errors.

    Attributes:
        hint: what the error of an unknown field adds.
    """

    hint: ClassVar[str] = ""


class OpenNamespace(_Request, kw_only=True):
    """The namespace to open."""

    name: Annotated[str, Meta(min_length=1, max_length=200, description="A new name if not given.")] | None = None


class Advance(_Request, kw_only=True):
    """How far to move the clock."""

    ms: Annotated[int, Meta(ge=0, le=_YEARS_MS)]


class SetClock(_Request, kw_only=True):
    """The time to show."""

    to: Annotated[int, Meta(ge=0, le=_YEARS_MS, description="Milliseconds since 1970.")]


class SetPolicy(_Request, kw_only=True):
    """Rules of a destination, as in the setting `destinations`."""

    destination: Destination
    rules: Annotated[
        dict[str, Any],
        Meta(description='Such as {"max_attempts": 3, "redelivery_delay": 5000}; times in ms.'),
    ]


FaultKind = Literal["refuse", "drop", "delay", "cut", "disconnect", "close", "pause", "slow", "fill"]


class Fault(_Request, kw_only=True):
    """A fault. Those of a command (`refuse`, `drop`, `delay`) wait for it; the others happen now."""

    fault: Annotated[
        FaultKind,
        Meta(
            description="`refuse`: answers the command with an error. `drop`: cuts the connection before the command, "
            "or after it. `delay`: holds the command and what follows on its connection. `cut`: ends connections in "
            "the middle of the next frame. `disconnect`: cuts connections now. `close`: ends them with an error. "
            "`pause`: nothing passes. `slow`: nothing is delivered. `fill`: the limit of a queue is reached."
        ),
    ]
    on: (
        Annotated[str, Meta(description="The command: `send`, `acknowledge`, `commit`, `open_consumer`, …")] | UnsetType
    ) = UNSET
    times: Annotated[int, Meta(ge=1, description="How many commands; 1 if not given.")] | UnsetType = UNSET
    skip: Annotated[int, Meta(ge=0, description="Commands that pass first; of `cut` frames.")] | UnsetType = UNSET
    probability: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    after: Annotated[bool, Meta(description="`drop`: the command is carried out, its answer is lost.")] | UnsetType = (
        UNSET
    )
    error: Annotated[str, Meta(description="`refuse`, `close`: name of the error.")] | UnsetType = UNSET
    text: Annotated[str, Meta(max_length=500, description="`refuse`: text of the error.")] | UnsetType = UNSET
    delay_ms: Annotated[int, Meta(ge=0, le=_YEARS_MS, description="`delay`: by the broker's clock.")] | UnsetType = (
        UNSET
    )
    destination: (
        Annotated[str, Meta(min_length=1, max_length=600, description="Only commands that name it; `*` fits any text.")]
        | UnsetType
    ) = UNSET
    client_id: Annotated[str, Meta(description="Only the connection with this client id.")] | UnsetType = UNSET
    to_client: (
        Annotated[bool, Meta(description="`cut`: what the broker sends; else what the client sends.")] | UnsetType
    ) = UNSET
    between: (
        Annotated[bool, Meta(description="`cut`: behind the frames of `skip`; else in the middle of the next one.")]
        | UnsetType
    ) = UNSET


class ReadJournal(_Request, kw_only=True):
    """Parameters of the journal."""

    kind: Annotated[str, Meta(max_length=100, description="Only events of this kind.")] | None = None
    destination: Annotated[str, Meta(max_length=600, description="Only events there.")] | None = None
    after: Annotated[int, Meta(ge=0, description="Only events with a larger number.")] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000


class Explain(_Request, kw_only=True):
    """Parameters of the explanation."""

    lines: Annotated[int, Meta(ge=1, le=20_000, description="Events to show.")] = 40


class Assertion(_Request, kw_only=True):
    """What should be so."""

    that: Annotated[
        Literal["received", "consumed", "scheduled", "dead_letters", "empty", "awaited", "nothing_lost", "idle"],
        Meta(
            description="`received`: messages arrived, with any outcome. `consumed`: they were acknowledged. "
            "`scheduled`: they wait for their delivery time, or for the end of their redelivery delay. "
            "`dead_letters`: they are dead letters. `empty`: no message is left. `awaited`: consumers wait. "
            "`nothing_lost`: each message of the namespace has an outcome. `idle`: nothing happens without a client or "
            "the clock."
        ),
    ]
    destination: Destination | UnsetType = UNSET
    selector: Selector | UnsetType = UNSET
    count: Annotated[int, Meta(ge=0, description="Exactly; at least one if not given.")] | UnsetType = UNSET
    reason: Annotated[str, Meta(description="`dead_letters`: attempts, expired or rejected.")] | UnsetType = UNSET
    allow_expired: Annotated[bool, Meta(description="`nothing_lost`: messages may expire.")] | UnsetType = UNSET
    within_ms: Within = 0

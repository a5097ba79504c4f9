"""Types of answers.

Times are ms since 1970-01-01 UTC by the broker's clock; 0 where there is none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sievemq_broker.session.rights import Verb

__all__ = [
    "Advice",
    "Answer",
    "BlockedPlace",
    "Body",
    "BrokerInfo",
    "CheckedSelector",
    "Connection",
    "Connections",
    "Consumer",
    "Consumers",
    "Counters",
    "DeadLetterGroup",
    "DeadLetterQueue",
    "DeadLetters",
    "Destination",
    "DestinationDetails",
    "Destinations",
    "Error",
    "ExplainedSelector",
    "Holdings",
    "Memory",
    "Message",
    "MessageDetails",
    "Messages",
    "Namespace",
    "Namespaces",
    "PortabilityNote",
    "Rates",
    "Retention",
    "Right",
    "Sent",
    "Series",
    "Session",
    "Subscription",
    "Subscriptions",
    "Tap",
    "Taps",
    "Touched",
    "Value",
]


class Answer(msgspec.Struct, kw_only=True):
    """Base of all: every field is always there."""


May = Annotated[list[Verb], Meta(description="What the caller may do with it.")]


class Error(Answer, kw_only=True):
    """An error."""

    error: Annotated[str, Meta(description="Its name, such as INVALID_SELECTOR.")]
    text: Annotated[str, Meta(description="What is wrong, where, and what to do.")]
    details: dict[str, Any]


class Rates(Answer, kw_only=True):
    """Messages per second, lately."""

    in_rate: float
    out_rate: float


class Counters(Answer, kw_only=True):
    """What has happened since the destination was made."""

    enqueued: int
    delivered: int
    acknowledged: int
    redelivered: int
    expired: int
    dead_lettered: int
    removed: int
    published: Annotated[int, Meta(description="Messages sent to a topic; 0 for queues.")]


# -- messages ----------------------------------------------------------------------------------------------------------


class Value(Answer, kw_only=True):
    """A typed value. A long beyond 2^53, an infinity and NaN are text; bytes are base64."""

    type: Literal["boolean", "byte", "short", "int", "long", "float", "double", "string", "char", "bytes"]
    value: bool | int | float | str | None


class Message(Answer, kw_only=True):
    """A message without its body."""

    id: Annotated[str, Meta(description="Names it in its queue.")]
    state: Literal["ready", "in_flight", "scheduled"]
    message_id: str | None
    timestamp: int
    priority: int
    delivery_mode: str
    expiration: int
    delivery_time: int
    due: Annotated[int, Meta(description="When a scheduled one is delivered, or delivered again; 0 for others.")]
    correlation_id: str | None
    correlation_id_bytes: Annotated[str | None, Meta(description="Base64, where the id is bytes.")]
    reply_to: str | None
    type: str | None
    redelivered: bool
    delivery_count: int
    size: Annotated[int, Meta(description="Bytes of the packed message.")]
    body_type: Literal["NONE", "TEXT", "BYTES", "MAP", "STREAM", "OBJECT", "UNKNOWN"]
    body_size: int
    properties: dict[str, Value]
    unreadable: Annotated[str | None, Meta(description="Why its properties cannot be shown.")]


class Messages(Answer, kw_only=True):
    """A page of messages."""

    messages: list[Message]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null at the end.")]


class Body(Answer, kw_only=True):
    """A body by its type; members of other types are null."""

    type: Literal["NONE", "TEXT", "BYTES", "MAP", "STREAM", "OBJECT", "UNKNOWN"]
    size: int
    truncated: Annotated[bool, Meta(description="Only its beginning is shown: `body_limit` bytes, 10000 values.")]
    text: str | None = None
    map: dict[str, Value] | None = None
    stream: list[Value] | None = None
    base64: str | None = None
    hex: Annotated[str | None, Meta(description="The first bytes, sixteen a line.")] = None
    object: Annotated[Any, Meta(description="An outline of an object; nothing is ever unpickled.")] = None
    unreadable: Annotated[str | None, Meta(description="Why it cannot be decoded.")] = None


class MessageDetails(Message, kw_only=True):
    """A message with its body."""

    destination: str
    body: Body


class Sent(Answer, kw_only=True):
    """The outcome of a message that was sent here."""

    message_id: str
    address: str
    timestamp: int
    expiration: int
    delivery_time: int


# -- actions -----------------------------------------------------------------------------------------------------------


class Touched(Answer, kw_only=True):
    """How many something was done to."""

    matched: Annotated[int, Meta(description="Chosen by selector, ids and limit.")]
    touched: Annotated[int, Meta(description="Handled; 0 in a dry run.")]
    dry_run: bool
    more: Annotated[bool, Meta(description="Others that would have been chosen are left.")]
    skipped: Annotated[int, Meta(description="Matched and could not be handled; they stay.")] = 0
    stopped: Annotated[
        Error | None, Meta(description="Why it ended early; what was handled before stays handled.")
    ] = None  # fmt: skip

    @classmethod
    def of(cls, matched: int, dry_run: bool) -> Touched:
        """All that was chosen was handled, or in a dry run nothing."""
        return cls(matched=matched, touched=0 if dry_run else matched, dry_run=dry_run, more=False)


# -- destinations ------------------------------------------------------------------------------------------------------


class Destination(Answer, kw_only=True):
    """A queue or topic. For a topic, messages are those of all its subscriptions together."""

    namespace: str
    address: str
    kind: Literal["queue", "topic", "temporary-queue", "temporary-topic"]
    name: str
    depth: int
    in_flight: int
    scheduled: int
    bytes: int
    consumers: int
    subscriptions: int
    paused: bool
    at_limit: Annotated[bool, Meta(description="A limit leaves no room for a message; of a topic: in a subscription.")]
    blocked_senders: Annotated[int, Meta(description="Sessions whose next message waits for room here.")]
    dead_letter_queue: Annotated[bool, Meta(description="Others' dead letters end here.")]
    in_rate: float
    out_rate: float
    counters: Counters
    may: May


class Destinations(Answer, kw_only=True):
    """A page of destinations."""

    destinations: list[Destination]
    total: Annotated[int, Meta(description="How many there are on all pages.")]
    next: str | None


class DestinationDetails(Destination, kw_only=True):
    """A destination with its rules."""

    oldest_ms: Annotated[
        int,
        Meta(description="How long what has waited longest has waited, since it was sent or due; 0 if nothing does."),
    ]
    policy: Annotated[dict[str, Any], Meta(description="The rules that the administrator set for it.")]
    dead_letters: Annotated[str | None, Meta(description="Where its dead letters go.")]
    owner: Annotated[str | None, Meta(description="The connection of a temporary destination.")]
    selectors: Annotated[int, Meta(description="Distinct selectors in use on it.")]
    evaluations: Annotated[int, Meta(description="Selectors that were asked about arriving messages.")]
    matches: Annotated[int, Meta(description="Those that said yes.")]


# -- the broker --------------------------------------------------------------------------------------------------------


class Holdings(Answer, kw_only=True):
    """Messages held, by what they wait for."""

    ready: int
    in_flight: int
    scheduled: int
    bytes: int


class Memory(Answer, kw_only=True):
    """What messages take, estimated, and where producers are made to wait (0: nowhere)."""

    bytes: int
    limit: int


class BlockedPlace(Answer, kw_only=True):
    """A limit at which senders wait."""

    namespace: str
    address: Annotated[str | None, Meta(description="The queue or topic; null for a limit of more than one.")]
    text: Annotated[str, Meta(description="Which limit that is.")]
    senders: Annotated[int, Meta(description="Sessions that wait there.")]
    since: Annotated[int, Meta(description="Since when the first of them does.")]
    connections: Annotated[list[str], Meta(description="Ids of their connections, the first ten.")]


class BrokerInfo(Answer, kw_only=True):
    """The broker and its totals."""

    version: str
    incarnation: str
    phase: str
    url: str
    http_url: str | None
    durable: bool
    now: int
    uptime_seconds: float
    clock_offset_ms: int
    blocked: Annotated[str | None, Meta(description="Why producers are blocked; null while they are not.")]
    blocked_connections: Annotated[int, Meta(description="Connections with sends that a limit blocks.")]
    blocked_since: Annotated[int | None, Meta(description="When the first of them was blocked; null if none is.")]
    blocked_at: Annotated[list[BlockedPlace], Meta(description="The limits that block them, at most twenty.")]
    memory: Annotated[Memory | None, Meta(description="null for users without the right to view everything.")]
    namespaces: int
    destinations: int
    connections: int
    consumers: int
    messages: Holdings
    totals: Counters
    rates: Rates
    user: Annotated[str | None, Meta(description="The calling user; null without users.")]


# -- namespaces --------------------------------------------------------------------------------------------------------


class Namespace(Answer, kw_only=True):
    """A namespace."""

    name: str
    destinations: int
    connections: int
    depth: int
    in_flight: int
    scheduled: int


class Namespaces(Answer, kw_only=True):
    """A page of namespaces."""

    namespaces: list[Namespace]
    total: int
    next: str | None


# -- connections -------------------------------------------------------------------------------------------------------


class Connection(Answer, kw_only=True):
    """A connection of a client."""

    id: str
    peer: str
    namespace: str
    user: str | None
    client_id: str | None
    protocol: Annotated[str, Meta(description="What the client speaks: `sieve` is that of SieveMQ's own client.")]
    agent: Annotated[str, Meta(description="What the client says it is.")]
    sessions: int
    consumers: int
    unacknowledged: int
    congested: Annotated[bool, Meta(description="It reads too slowly; nothing is delivered to it for now.")]
    blocked_since: Annotated[int | None, Meta(description="Since when it waits to send; null if it does not.")]
    blocked_by: Annotated[str | None, Meta(description="At which limit that is.")]
    blocked_at: Annotated[str | None, Meta(description="The queue or topic of that limit; null if it has more.")]
    staged_bytes: Annotated[int, Meta(description="Held by its open transactions.")]
    temporary_destinations: int
    bytes_in: int
    bytes_out: int
    may: Annotated[list[Verb], Meta(description="What the caller may do with its namespace as a whole.")]


class Connections(Answer, kw_only=True):
    """A page of connections, oldest first."""

    connections: list[Connection]
    total: int
    next: str | None


# -- consumers ---------------------------------------------------------------------------------------------------------


class Consumer(Answer, kw_only=True):
    """A consumer. `id` names it in the path that closes it."""

    id: str
    connection: str
    consumer: int
    namespace: str
    address: str
    subscription: str | None
    client_id: str | None
    user: str | None
    peer: str
    selector: str | None
    dialect: str | None
    credit: int
    in_flight: int
    delivered: int
    acknowledged: int
    waiting: Annotated[bool, Meta(description="It waits for a message and has none.")]
    congested: Annotated[
        bool, Meta(description="Its connection reads too slowly, or it holds messages and does nothing.")
    ]
    matched: Annotated[int, Meta(description="Messages that its selector matched.")]
    examined: Annotated[int, Meta(description="Messages that came by since this selector is in use here.")]
    match_ratio: Annotated[float | None, Meta(description="matched / examined; null before the first message.")]


class Consumers(Answer, kw_only=True):
    """A page of consumers."""

    consumers: list[Consumer]
    total: int
    next: str | None


# -- subscriptions -----------------------------------------------------------------------------------------------------


class Subscription(Answer, kw_only=True):
    """A subscription to a topic."""

    namespace: str
    topic: str
    name: str | None
    client_id: str | None
    durable: bool
    shared: bool
    no_local: bool
    active: Annotated[bool, Meta(description="It has a consumer.")]
    selector: str | None
    dialect: str | None
    depth: int
    in_flight: int
    scheduled: int
    bytes: int
    consumers: int
    paused: bool
    counters: Counters
    may: May


class Subscriptions(Answer, kw_only=True):
    """A page of subscriptions."""

    subscriptions: list[Subscription]
    total: int
    next: str | None


# -- dead letters ------------------------------------------------------------------------------------------------------


class DeadLetterGroup(Answer, kw_only=True):
    """Dead letters of one origin that died of one reason."""

    origin: str | None
    subscription: str | None
    reason: str | None
    messages: int
    first_failure: int
    last_failure: int

    def add(self, first_failure: object, last_failure: object) -> None:
        """Count a message, which may carry when it failed first and last."""
        self.messages += 1
        if isinstance(first_failure, int) and isinstance(last_failure, int):
            self.first_failure = min(self.first_failure or int(first_failure), int(first_failure))
            self.last_failure = max(self.last_failure, int(last_failure))


class DeadLetterQueue(Answer, kw_only=True):
    """A dead-letter queue."""

    address: str
    depth: int
    examined: Annotated[int, Meta(description="Messages that were looked at for the groups.")]
    groups: list[DeadLetterGroup]
    may: May


class DeadLetters(Answer, kw_only=True):
    """A page of dead-letter queues that hold something."""

    queues: list[DeadLetterQueue]
    total: int
    next: str | None


# -- taps --------------------------------------------------------------------------------------------------------------


class Retention(Answer, kw_only=True):
    """What a tap may hold, and how long."""

    messages: int
    bytes: int
    age: Annotated[int, Meta(description="ms that a copy is kept; 0: no limit.")]
    lease: Annotated[
        int,
        Meta(
            description="ms without a word from its reader, after which a drain gives back what it holds and a copy "
            "ends; 0: never."
        ),
    ]


class Tap(Answer, kw_only=True):
    """A tap: a named cursor on a destination, read in ranges until they are acknowledged."""

    namespace: str
    destination: str
    name: str
    id: Annotated[str, Meta(description="No other tap ever has it.")]
    mode: Literal["copy", "outcomes", "drain"]
    selector: str | None
    dialect: str | None
    owner: Annotated[str | None, Meta(description="The user that created it.")]
    first: Annotated[int, Meta(description="Sequence of the oldest message it holds.")]
    last: Annotated[int, Meta(description="Sequence of the latest there ever was.")]
    acknowledged: Annotated[int, Meta(description="The reader is done up to this sequence.")]
    lag: Annotated[int, Meta(description="Messages it holds that the reader is not done with.")]
    lag_ms: Annotated[int, Meta(description="How long the oldest of them has been there.")]
    bytes: int
    lost: Annotated[int, Meta(description="Up to this sequence messages went before the reader was done; 0: none.")]
    missed: Annotated[int, Meta(description="How many messages that was.")]
    retention: Retention
    heard: Annotated[int, Meta(description="When its reader was last heard of.")]
    lease_ends: Annotated[int, Meta(description="When its lease is over, unless it is heard of; 0: never.")]
    reader: Annotated[str | None, Meta(description="The connection that read last; null before the first.")]
    connected: Annotated[bool, Meta(description="That connection is still there.")]
    ended: Annotated[str | None, Meta(description="Why it takes nothing more; null while it does.")]
    yours: Annotated[bool, Meta(description="The caller may read, change and delete it.")]


class Taps(Answer, kw_only=True):
    """A page of taps."""

    taps: list[Tap]
    total: int
    next: str | None


# -- selectors ---------------------------------------------------------------------------------------------------------


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


# -- series ------------------------------------------------------------------------------------------------------------


class Series(Answer, kw_only=True):
    """Samples at equal steps, oldest first; all lists are as long as `times`."""

    times: list[int]
    depth: list[int]
    in_flight: list[int]
    in_rate: list[float]
    out_rate: list[float]
    step_seconds: float


# -- the caller --------------------------------------------------------------------------------------------------------


class Right(Answer, kw_only=True):
    """Verbs on destinations that a pattern fits, in namespaces that a pattern fits."""

    may: list[Verb]
    destination: str
    namespace: str


class Session(Answer, kw_only=True):
    """The calling user, and what they may do."""

    user: Annotated[str | None, Meta(description="null without users.")]
    unlimited: Annotated[bool, Meta(description="They may do everything.")]
    rights: Annotated[list[Right], Meta(description="All their rights, or those in the namespace asked about.")]
    may: Annotated[list[Verb], Meta(description="What they may do with the destination asked about, or with all.")]

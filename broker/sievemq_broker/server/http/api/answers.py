"""Types of answers.

Times are ms since 1970-01-01 UTC by the broker's clock; 0 where there is none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sievemq_broker.session.rights import Verb


class Answer(msgspec.Struct, kw_only=True):
    """Base of all: every field is always there."""


Marks = Annotated[list[str], Meta(description="Names of the rules by which it needs attention.")]

May = Annotated[list[Verb], Meta(description="Rights of the caller on it.")]


class Error(Answer, kw_only=True):
    """An error."""

    error: Annotated[str, Meta(description="Name of the error, such as INVALID_SELECTOR.")]
    text: Annotated[str, Meta(description="The mistake, its place, and how to correct it.")]
    details: dict[str, Any]


class Rates(Answer, kw_only=True):
    """Messages per second, lately."""

    in_rate: float
    out_rate: float


class Counters(Answer, kw_only=True):
    """Counters since the destination was created."""

    enqueued: int
    delivered: int
    acknowledged: int
    redelivered: int
    expired: int
    dead_lettered: int
    removed: int
    refused: Annotated[int, Meta(description="Messages that a limit of the destination refused.")]
    published: Annotated[int, Meta(description="Messages sent to a topic; 0 for queues.")]


# -- messages ----------------------------------------------------------------------------------------------------------


class Value(Answer, kw_only=True):
    """A typed value. A long beyond 2^53, an infinity and NaN are text; bytes are base64."""

    type: Literal["boolean", "byte", "short", "int", "long", "float", "double", "string", "char", "bytes"]
    value: bool | int | float | str | None


class Message(Answer, kw_only=True):
    """A message without its body."""

    id: Annotated[str, Meta(description="Identifies the message in its queue.")]
    state: Literal["ready", "in_flight", "scheduled"]
    message_id: str | None
    timestamp: int
    priority: int
    delivery_mode: str
    expiration: int
    delivery_time: int
    due: Annotated[
        int,
        Meta(
            description="Delivery time of a scheduled message, its next attempt, or the end of its wait for a lost "
            "client; 0 for others."
        ),
    ]
    correlation_id: str | None
    correlation_id_bytes: Annotated[str | None, Meta(description="Base64, if the id is bytes.")]
    reply_to: str | None
    type: str | None
    redelivered: bool
    delivery_count: int
    attempts: Annotated[int, Meta(description="Failed attempts, of which max_attempts are allowed.")]
    size: Annotated[int, Meta(description="Size of the packed message in bytes.")]
    body_type: Literal["NONE", "TEXT", "BYTES", "MAP", "STREAM", "OBJECT", "UNKNOWN"]
    body_size: int
    properties: dict[str, Value]
    unreadable: Annotated[str | None, Meta(description="Reason why its properties cannot be decoded.")]
    preview: Annotated[
        str | None, Meta(description="First characters of its body as text; null without the parameter `preview`.")
    ] = None


class Messages(Answer, kw_only=True):
    """A page of messages."""

    messages: list[Message]
    next: Annotated[str | None, Meta(description="Cursor of the next page; null at the end.")]


class ScheduledMessage(Message, kw_only=True):
    """A scheduled message of one of several queues."""

    destination: str
    may: list[Verb]


class ScheduledMessages(Answer, kw_only=True):
    """A page of scheduled messages of all queues."""

    messages: list[ScheduledMessage]
    total: int
    next: Annotated[str | None, Meta(description="Cursor of the next page; null at the end.")]


class Body(Answer, kw_only=True):
    """A body by its type; members of other types are null."""

    type: Literal["NONE", "TEXT", "BYTES", "MAP", "STREAM", "OBJECT", "UNKNOWN"]
    size: int
    truncated: Annotated[bool, Meta(description="The body is truncated to `body_limit` bytes or 10000 values.")]
    text: str | None = None
    map: dict[str, Value] | None = None
    stream: list[Value] | None = None
    base64: str | None = None
    hex: Annotated[str | None, Meta(description="The first bytes, sixteen per line.")] = None
    object: Annotated[Any, Meta(description="An outline of an object; nothing is ever unpickled.")] = None
    unreadable: Annotated[str | None, Meta(description="Reason why it cannot be decoded.")] = None


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
    """Numbers of messages that an action affected."""

    matched: Annotated[int, Meta(description="Messages chosen by selector, ids and limit.")]
    touched: Annotated[int, Meta(description="Messages that were changed; 0 in a dry run.")]
    dry_run: bool
    more: Annotated[bool, Meta(description="Whether further messages match, beyond the limit.")]
    skipped: Annotated[int, Meta(description="Messages that match but could not be changed; they stay.")] = 0
    stopped: Annotated[
        Error | None, Meta(description="Reason why the action ended early; earlier changes stay.")
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
    at_limit: Annotated[
        bool, Meta(description="At a limit, without room for a message; for a topic: one of its subscriptions.")
    ]
    blocked_senders: Annotated[int, Meta(description="Sessions whose next message waits for room here.")]
    fill: Annotated[
        float | None,
        Meta(description="The share of its limit that is in use, the largest of several; null without a limit."),
    ]
    oldest_ms: Annotated[
        int,
        Meta(description="Age of the longest waiting message since it was sent or became due; 0 if none waits."),
    ]
    oldest_in_flight_ms: Annotated[
        int, Meta(description="How long a consumer has held the oldest message in flight; 0 if none is in flight.")
    ]
    dead_letter_queue: Annotated[bool, Meta(description="Is a dead-letter queue.")]
    attention: Marks
    in_rate: float
    out_rate: float
    counters: Counters
    recent: Annotated[
        list[int], Meta(description="Depth in the last seconds, oldest first; as many as were requested.")
    ]
    may: May


class Totals(Answer, kw_only=True):
    """The rows of all pages together."""

    depth: int = 0
    in_flight: int = 0
    scheduled: int = 0
    bytes: int = 0
    consumers: int = 0

    def add(self, depth: int, in_flight: int, scheduled: int, size: int, consumers: int) -> None:
        """Count a row."""
        self.depth += depth
        self.in_flight += in_flight
        self.scheduled += scheduled
        self.bytes += size
        self.consumers += consumers


class Destinations(Answer, kw_only=True):
    """A page of destinations."""

    destinations: list[Destination]
    total: Annotated[int, Meta(description="Number of rows on all pages.")]
    totals: Totals
    next: str | None


class DestinationDetails(Destination, kw_only=True):
    """A destination with its rules."""

    policy: Annotated[dict[str, Any], Meta(description="Its rules, defaults included.")]
    rule: Annotated[str, Meta(description="Pattern that has these rules; empty if none fits.")]
    dead_letters: Annotated[str | None, Meta(description="Its dead-letter queue.")]
    owner: Annotated[str | None, Meta(description="Connection that owns a temporary destination.")]
    selectors: Annotated[int, Meta(description="Distinct selectors in use on it.")]
    evaluations: Annotated[int, Meta(description="Evaluations of selectors for arriving messages.")]
    matches: Annotated[int, Meta(description="Evaluations that matched.")]


# -- the broker --------------------------------------------------------------------------------------------------------


class Holdings(Answer, kw_only=True):
    """Messages held, by what they wait for."""

    ready: int
    in_flight: int
    scheduled: int
    bytes: int


class Memory(Answer, kw_only=True):
    """Estimated memory of messages, and the limit at which producers wait (0: none)."""

    bytes: int
    limit: int


class Storage(Answer, kw_only=True):
    """The data directory."""

    bytes: Annotated[int, Meta(description="Size of the stored messages and their log.")]
    free_bytes: Annotated[int, Meta(description="Free bytes on the disk.")]
    total_bytes: Annotated[int, Meta(description="Bytes of the disk; 0 if that is not known, as for a database.")]
    reserve_bytes: Annotated[int, Meta(description="Bytes that are kept there for when the disk is full.")]
    refused: Annotated[int, Meta(description="Messages and transactions for which there was no room.")]
    room_bytes: Annotated[int, Meta(description="The largest PERSISTENT message or transaction that is accepted now.")]
    full: Annotated[
        str | None, Meta(description="Why PERSISTENT messages are refused or wait; null while they are accepted.")
    ]
    stuck: Annotated[
        str | None, Meta(description="Why nothing can be written, confirmed or delivered; null while it can.")
    ]


class Process(Answer, kw_only=True):
    """What the process takes; 0 for what its system does not tell."""

    memory_bytes: Annotated[int, Meta(description="Resident memory.")]
    memory_limit: Annotated[int, Meta(description="Memory that it may have: of its container, or the machine's.")]
    files: Annotated[int, Meta(description="Open file descriptors; each connection takes one.")]
    files_limit: Annotated[int, Meta(description="How many it may have.")]
    cpu_seconds: float


class Transactions(Answer, kw_only=True):
    """Transactions with at least one message since the broker has started."""

    open: Annotated[int, Meta(description="Sessions with sends that wait for their commit.")]
    committed: int
    rolled_back: Annotated[int, Meta(description="Rolled back by the client, or because its session has ended.")]
    refused: Annotated[int, Meta(description="Rolled back since the broker has refused the commit.")]


class BlockedPlace(Answer, kw_only=True):
    """A limit at which senders wait."""

    namespace: str
    address: Annotated[str | None, Meta(description="The queue or topic; null for a limit of several destinations.")]
    text: Annotated[str, Meta(description="The limit.")]
    senders: Annotated[int, Meta(description="Number of waiting sessions.")]
    since: Annotated[int, Meta(description="Time since which the first session waits.")]
    connections: Annotated[list[str], Meta(description="Ids of their connections, at most ten.")]


class BrokerInfo(Answer, kw_only=True):
    """The broker and its totals."""

    version: str
    incarnation: str
    phase: str
    role: Annotated[str, Meta(description="`owner`: it serves its messages, others that share its store do not.")]
    shard: Annotated[str | None, Meta(description="That it owns of a shared store; null in memory and on a disk.")]
    url: str
    http_url: str | None
    durable: bool
    now: int
    uptime_seconds: float
    clock_offset_ms: int
    blocked: Annotated[str | None, Meta(description="Why producers are blocked; null while they are not.")]
    blocked_connections: Annotated[int, Meta(description="Number of connections with blocked sends.")]
    blocked_since: Annotated[
        int | None, Meta(description="Time at which the first of them was blocked; null if none is.")
    ]
    blocked_at: Annotated[list[BlockedPlace], Meta(description="The limits that block them, at most twenty.")]
    memory: Annotated[Memory | None, Meta(description="null for users without the right to view everything.")]
    storage: Annotated[Storage | None, Meta(description="null without a data directory, and for users as `memory` is.")]
    process: Annotated[Process | None, Meta(description="null as `memory` is.")]
    namespaces: int
    destinations: int
    connections: int
    connections_limit: int
    consumers: int
    slow_consumers: Annotated[
        int | None, Meta(description="Consumers that acknowledge nothing while messages wait; null as `memory` is.")
    ]
    messages: Holdings
    totals: Counters
    rates: Rates
    refused: Annotated[
        int | None,
        Meta(description="Messages and other requests that were refused, see `/refusals`; null as `memory` is."),
    ]
    transactions: Annotated[Transactions | None, Meta(description="null as `memory` is.")]
    user: Annotated[str | None, Meta(description="The calling user; null without users.")]


# -- refusals ----------------------------------------------------------------------------------------------------------


class Refused(Answer, kw_only=True):
    """What was refused to a client for one reason."""

    namespace: str
    address: Annotated[str | None, Meta(description="The destination; null where there is none.")]
    reason: Annotated[
        str, Meta(description="Name of the limit, such as `max_messages`, or of the error, such as `security`.")
    ]
    client: Annotated[str, Meta(description="Client id; or the user, or the host, of a client that has none.")]
    connection: Annotated[str | None, Meta(description="Its latest connection; null for the management port.")]
    opens: Annotated[bool, Meta(description="Consumers, browsers and others were not opened; false: messages.")]
    count: Annotated[int, Meta(description="Messages of refused sends and commits, or other refused requests.")]
    first: int
    last: int


class RolledBack(Answer, kw_only=True):
    """Transactions that a client has rolled back, or whose commit was refused."""

    namespace: str
    client: Annotated[str, Meta(description="As of what was refused.")]
    connection: str
    count: int
    first: int
    last: int


class SignInCount(Answer, kw_only=True):
    """How many sign-ins had an outcome since the broker has started."""

    protocol: Annotated[str, Meta(description="As of a connection; `http`: a request with a password; `console`.")]
    port: int
    outcome: Annotated[
        str,
        Meta(
            description="accepted; wrong; throttled: not checked, since there were too many wrong ones; no_right: "
            "accepted, but without a right in the namespace."
        ),
    ]
    count: int


class FailedSignIn(Answer, kw_only=True):
    """Failed sign-ins of a client."""

    protocol: str
    port: int
    address: str
    user: Annotated[str | None, Meta(description="The name; null if there is no such user.")]
    count: int
    first: int
    last: int


class SignIns(Answer, kw_only=True):
    """Sign-ins, and the latest 200 clients whose sign-ins have failed."""

    counts: list[SignInCount]
    failures: list[FailedSignIn]


class Refusals(Answer, kw_only=True):
    """The latest 200 of both, the latest first."""

    refused: list[Refused]
    rolled_back: list[RolledBack]


# -- attention ---------------------------------------------------------------------------------------------------------


class Finding(Answer, kw_only=True):
    """Something that needs an operator's attention."""

    rule: Annotated[str, Meta(description="Name of the rule that found it.")]
    severity: Literal["critical", "warning", "notice"]
    since: Annotated[int, Meta(description="When it began, or was found first.")]
    amount: Annotated[int, Meta(description="How much: messages, senders, attempts or per cent, as the text says.")]
    text: Annotated[str, Meta(description="What is wrong.")]
    advice: Annotated[str, Meta(description="What to do.")]
    namespace: Annotated[str | None, Meta(description="null for the broker as a whole.")]
    address: Annotated[str | None, Meta(description="The queue or topic.")]
    subscription: Annotated[str | None, Meta(description="Label of the subscription to that topic.")]
    connection: str | None
    client_id: str | None
    consumer: Annotated[str | None, Meta(description="Id of the consumer, which that connection has.")]


class Attention(Answer, kw_only=True):
    """What needs attention, the most important first."""

    now: Annotated[int, Meta(description="The broker's time.")]
    findings: Annotated[list[Finding], Meta(description="Of each rule 100 at most.")]
    totals: Annotated[dict[str, int], Meta(description="How many each rule has found; those without one are left out.")]


# -- namespaces --------------------------------------------------------------------------------------------------------


class Namespace(Answer, kw_only=True):
    """A namespace."""

    name: str
    destinations: int
    connections: int
    depth: int
    in_flight: int
    scheduled: int
    bytes: int
    fill: Annotated[
        float | None,
        Meta(description="The share of its limit that is in use; null without one, or without the right to view it."),
    ]


class Elsewhere(Answer, kw_only=True):
    """A namespace in the shard of another broker."""

    name: str
    shard: str
    url: Annotated[
        str | None,
        Meta(description="URL of its owner's management port; null if that is not known, or there is none."),
    ]


class Namespaces(Answer, kw_only=True):
    """A page of namespaces."""

    namespaces: list[Namespace]
    elsewhere: Annotated[list[Elsewhere], Meta(description="Those of this page in shards of other brokers.")]
    total: int
    next: str | None


# -- shards ------------------------------------------------------------------------------------------------------------


class Shard(Answer, kw_only=True):
    """A shard: namespaces that one broker serves."""

    name: str
    here: Annotated[bool, Meta(description="This broker owns it.")]
    owner: Annotated[
        str | None, Meta(description="Host and process; null without an owner, or the right to view everything.")
    ]
    url: Annotated[str | None, Meta(description="URL of the owner for clients; null without one.")]
    http_url: Annotated[str | None, Meta(description="URL of its management port; null if that is not known.")]
    followers: Annotated[
        int | None, Meta(description="Brokers that would take it over; null if that is not known, or as `owner` is.")
    ]
    namespaces: Annotated[int, Meta(description="Number of its namespaces in which the caller has a right.")]


class Pattern(Answer, kw_only=True):
    """The shard of new namespaces that fit a pattern."""

    pattern: str
    shard: str


class Shards(Answer, kw_only=True):
    """The shards of a cluster."""

    cluster: Annotated[bool, Meta(description="Several brokers share the namespaces (setting `shards`).")]
    shards: list[Shard]
    patterns: Annotated[
        list[Pattern],
        Meta(description="In order: the first that fits applies to a new name. Empty without the right to view all."),
    ]
    redirects: Annotated[
        dict[str, int],
        Meta(
            description="Clients and requests that this broker has sent to the one with their namespace, by protocol; "
            "`web` is STOMP over WebSocket. Empty without the right to view all."
        ),
    ]


class Assigned(Answer, kw_only=True):
    """What was assigned."""

    name: str
    shard: str | None


class Asked(Answer, kw_only=True):
    """A shard that this broker has asked for."""

    shard: str
    owner: Annotated[str | None, Meta(description="URL of the owner that hands it over; null if there is none.")]


# -- connections -------------------------------------------------------------------------------------------------------


class Connection(Answer, kw_only=True):
    """A connection of a client."""

    id: str
    peer: str
    namespace: str
    user: str | None
    client_id: str | None
    protocol: Annotated[str, Meta(description="Protocol of the client; `sieve` is that of SieveMQ's own client.")]
    agent: Annotated[str, Meta(description="Name and version that the client reported.")]
    sessions: int
    consumers: int
    unacknowledged: int
    congested: Annotated[bool, Meta(description="The client reads too slowly; deliveries to it are paused.")]
    port: Annotated[int, Meta(description="Port of the broker that it has come by; 0 if that is not known.")]
    blocked_since: Annotated[
        int | None, Meta(description="Time since which its sends are blocked; null if they are not.")
    ]
    blocked_by: Annotated[str | None, Meta(description="The limit that blocks them.")]
    blocked_at: Annotated[
        str | None, Meta(description="Queue or topic of that limit; null for a limit of several destinations.")
    ]
    staged_bytes: Annotated[int, Meta(description="Messages in its open transactions.")]
    committed: Annotated[int, Meta(description="Transactions with at least one message.")]
    rolled_back: Annotated[int, Meta(description="Such transactions that were rolled back.")]
    refused: Annotated[int, Meta(description="Messages of refused sends and commits, and other refused requests.")]
    temporary_destinations: int
    bytes_in: int
    bytes_out: int
    attention: Marks
    may: Annotated[list[Verb], Meta(description="Rights of the caller on the whole namespace.")]


class ClientSession(Answer, kw_only=True):
    """A session of a connection."""

    id: int
    mode: Literal["TRANSACTED", "AUTO_ACKNOWLEDGE", "CLIENT_ACKNOWLEDGE", "DUPS_OK_ACKNOWLEDGE"]
    consumers: int
    sent: Annotated[int, Meta(description="Messages that its client has sent.")]
    staged: Annotated[int, Meta(description="Messages in its open transaction.")]
    blocked_since: Annotated[int | None, Meta(description="Time since which its next send is blocked.")]
    blocked_by: Annotated[str | None, Meta(description="The limit that blocks it.")]


class ConnectionDetails(Connection, kw_only=True):
    """A connection with its sessions, the first hundred of them."""

    open_sessions: list[ClientSession]


class ConnectionTotals(Answer, kw_only=True):
    """The rows of all pages together."""

    sessions: int = 0
    consumers: int = 0
    unacknowledged: int = 0
    staged_bytes: int = 0

    def add(self, sessions: int, consumers: int, unacknowledged: int, staged_bytes: int) -> None:
        """Count a row."""
        self.sessions += sessions
        self.consumers += consumers
        self.unacknowledged += unacknowledged
        self.staged_bytes += staged_bytes


class Connections(Answer, kw_only=True):
    """A page of connections."""

    connections: list[Connection]
    total: int
    totals: ConnectionTotals
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
    waiting: Annotated[bool, Meta(description="Waits for a message with an empty buffer.")]
    congested: Annotated[bool, Meta(description="Its connection reads too slowly.")]
    slow_since: Annotated[
        int | None,
        Meta(description="Time since which it can take no more, and acknowledges none while more wait; null if not."),
    ]
    oldest_ms: Annotated[int, Meta(description="How long it has held its oldest message; 0 if it holds none.")]
    idle_ms: Annotated[int, Meta(description="How long it has acknowledged none of those it holds; 0 likewise.")]
    matched: Annotated[int, Meta(description="Messages that the selector matched.")]
    examined: Annotated[int, Meta(description="Messages that arrived since this selector is in use here.")]
    match_ratio: Annotated[float | None, Meta(description="matched / examined; null before the first message.")]
    attention: Marks
    may: May


class ConsumerTotals(Answer, kw_only=True):
    """The rows of all pages together."""

    in_flight: int = 0
    delivered: int = 0
    acknowledged: int = 0

    def add(self, in_flight: int, delivered: int, acknowledged: int) -> None:
        """Count a row."""
        self.in_flight += in_flight
        self.delivered += delivered
        self.acknowledged += acknowledged


class Consumers(Answer, kw_only=True):
    """A page of consumers."""

    consumers: list[Consumer]
    total: int
    totals: ConsumerTotals
    next: str | None


# -- subscriptions -----------------------------------------------------------------------------------------------------


class Subscription(Answer, kw_only=True):
    """A subscription to a topic. `fill` and ages are as of a queue."""

    namespace: str
    topic: str
    name: str | None
    client_id: str | None
    durable: bool
    shared: bool
    no_local: bool
    active: Annotated[bool, Meta(description="Has a consumer.")]
    selector: str | None
    dialect: str | None
    depth: int
    in_flight: int
    scheduled: int
    bytes: int
    fill: float | None
    oldest_ms: int
    oldest_in_flight_ms: int
    consumers: int
    paused: bool
    attention: Marks
    counters: Counters
    may: May


class Subscriptions(Answer, kw_only=True):
    """A page of subscriptions."""

    subscriptions: list[Subscription]
    total: int
    totals: Totals
    next: str | None


# -- definitions -------------------------------------------------------------------------------------------------------


class Definitions(Answer, kw_only=True):
    """What exists, as one table."""

    definitions: Annotated[
        dict[str, Any],
        Meta(description="Tables `namespaces`, `rules`, `limits` and `users`, as far as the caller may see them."),
    ]
    clear_passwords: Annotated[
        list[str], Meta(description="Users that are left out because their password is not stored as a hash.")
    ]


class DefinitionChange(Answer, kw_only=True):
    """A difference between definitions and the broker."""

    action: Annotated[str, Meta(description="create, change or delete.")]
    kind: Annotated[str, Meta(description="namespace, queue, topic or subscription; rule, limit or user.")]
    namespace: str | None
    name: Annotated[str, Meta(description="Name of the change in `force`.")]
    text: Annotated[str, Meta(description="What differs.")]
    at_start: Annotated[bool, Meta(description="Made when a broker starts with these definitions, and not before.")]
    refused: Annotated[str, Meta(description="Why it is not made; empty if it is.")]
    can_be_forced: bool
    made: bool


class Applied(Answer, kw_only=True):
    """What applying definitions did, or would do."""

    changes: list[DefinitionChange]
    applied: Annotated[int, Meta(description="Changes that were made; 0 in a dry run.")]
    refused: Annotated[int, Meta(description="Changes that would be refused; only in a dry run.")]
    at_start: Annotated[int, Meta(description="Changes that are made when a broker starts with these definitions.")]
    elsewhere: Annotated[list[str], Meta(description="Defined namespaces in shards of other brokers: left out.")]
    dry_run: bool


# -- the record of actions ---------------------------------------------------------------------------------------------


class Recorded(Answer, kw_only=True):
    """What was done, or attempted."""

    id: Annotated[int, Meta(description="Ascends, over restarts too.")]
    time: Annotated[int, Meta(description="ms since 1970, by the broker's clock.")]
    action: Annotated[str, Meta(description="Name of the call of this API, or sign_in.")]
    outcome: Annotated[
        str, Meta(description="done; or why it ended early, or was refused: an error's name, wrong, throttled.")
    ]
    via: Annotated[str, Meta(description="console, cli or http; a protocol; or signal, file.")]
    user: str | None = None
    peer: Annotated[str | None, Meta(description="Address of the caller.")] = None
    namespace: str | None = None
    address: str | None = None
    touched: Annotated[int | None, Meta(description="Messages, or other things, that it changed.")] = None
    details: Annotated[dict[str, Any] | None, Meta(description="What else was named, but no selector.")] = None
    times: Annotated[int, Meta(description="Attempts of this kind that the row counts.")] = 1
    since: Annotated[int | None, Meta(description="ms since 1970: where several are counted, the first.")] = None


class Record(Answer, kw_only=True):
    """A page of the record, newest first."""

    rows: list[Recorded]
    next: str | None


# -- dead letters ------------------------------------------------------------------------------------------------------


class FailedBy(Answer, kw_only=True):
    """The client that had a message when it failed."""

    client_id: str | None
    user: str | None
    address: Annotated[str | None, Meta(description="Of the client's end of the connection.")]
    consumer: Annotated[str | None, Meta(description="Id of the consumer, as in the list of consumers.")]


class DeadLetterGroup(Answer, kw_only=True):
    """Dead letters of one origin that died of one reason."""

    origin: str | None
    subscription: str | None
    reason: str | None
    messages: int
    first_failure: int
    last_failure: int
    failed_by: Annotated[
        FailedBy | None, Meta(description="Of the latest failure: the client; null if none is known.")
    ] = None
    error: Annotated[str | None, Meta(description="Of the latest failure: the reason that is known.")] = None

    def add(self, first: object, last: object, failed_by: FailedBy | None, error: str | None) -> None:
        """Count a message, which may carry when it failed first and last; by which client, and why."""
        self.messages += 1
        if not isinstance(first, int) or not isinstance(last, int):
            return
        self.first_failure = min(self.first_failure or int(first), int(first))
        if last >= self.last_failure:
            self.last_failure, self.failed_by, self.error = int(last), failed_by, error


class DeadLetterQueue(Answer, kw_only=True):
    """A dead-letter queue."""

    address: str
    depth: int
    examined: Annotated[int, Meta(description="Messages that were read for the groups.")]
    groups: list[DeadLetterGroup]
    may: May


class DeadLetters(Answer, kw_only=True):
    """A page of dead-letter queues that hold something."""

    queues: list[DeadLetterQueue]
    total: int
    next: str | None


# -- taps --------------------------------------------------------------------------------------------------------------


class Retention(Answer, kw_only=True):
    """Limits of a tap."""

    messages: int
    bytes: int
    age: Annotated[int, Meta(description="Time in ms to keep a copied message; 0: no limit.")]
    lease: Annotated[
        int,
        Meta(description="Silence of the reader in ms until a drain returns its messages and a copy ends; 0: never."),
    ]


class Tap(Answer, kw_only=True):
    """A tap: a named cursor on a destination, read in ranges until they are acknowledged."""

    namespace: str
    destination: str
    name: str
    id: Annotated[str, Meta(description="Unique among all taps, also deleted ones.")]
    mode: Literal["copy", "outcomes", "drain"]
    selector: str | None
    dialect: str | None
    owner: Annotated[str | None, Meta(description="The user that created it.")]
    first: Annotated[int, Meta(description="Sequence of the oldest message that it holds.")]
    last: Annotated[int, Meta(description="Sequence of the latest message so far.")]
    acknowledged: Annotated[int, Meta(description="The reader has acknowledged up to this sequence.")]
    lag: Annotated[int, Meta(description="Messages that the reader has not acknowledged.")]
    lag_ms: Annotated[int, Meta(description="Age of the oldest of them in ms.")]
    bytes: int
    lost: Annotated[
        int,
        Meta(description="Messages up to this sequence were dropped before the reader had acknowledged them; 0: none."),
    ]
    missed: Annotated[int, Meta(description="Number of dropped messages.")]
    retention: Retention
    heard: Annotated[int, Meta(description="Time of the last request of its reader.")]
    lease_ends: Annotated[int, Meta(description="End of the lease, unless the reader renews it; 0: never.")]
    reader: Annotated[str | None, Meta(description="Connection of the last reader; null before the first.")]
    connected: Annotated[bool, Meta(description="Whether that connection is still open.")]
    ended: Annotated[str | None, Meta(description="Reason why it takes no more messages; null while it does.")]
    yours: Annotated[bool, Meta(description="Whether the caller may read, change and delete it.")]


class Taps(Answer, kw_only=True):
    """A page of taps."""

    taps: list[Tap]
    total: int
    next: str | None


# -- selectors ---------------------------------------------------------------------------------------------------------


class Advice(Answer, kw_only=True):
    """A warning for a legal but probably unintended part of a selector."""

    code: str
    message: str
    position: int
    length: int


class PortabilityNote(Answer, kw_only=True):
    """A place where other providers refuse a selector or answer differently."""

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
    names: Annotated[list[str], Meta(description="Properties and headers that it names.")]
    index: Annotated[list[str], Meta(description="The part that an index can answer.")]
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
    text: Annotated[str, Meta(description="The same as a table of text.")]


# -- series ------------------------------------------------------------------------------------------------------------


class Series(Answer, kw_only=True):
    """Samples at equal steps, oldest first; all lists are as long as `times`. Steps without the broker are missing.

    Of a step longer than a second, depth and in_flight are the highest, rates the average."""

    times: list[int]
    depth: list[int]
    in_flight: list[int]
    in_rate: list[float]
    out_rate: list[float]
    step_seconds: float


class Happening(Answer, kw_only=True):
    """Something that has happened."""

    id: Annotated[int, Meta(description="Ascends, over restarts too.")]
    time: Annotated[int, Meta(description="ms since 1970, by the broker's clock.")]
    event: Annotated[str, Meta(description="As in `/events`; or broker.started, broker.stopped, clock.jumped, mark.")]
    about: Annotated[dict[str, Any], Meta(description="What it says, such as namespace, address, text.")]


class Happenings(Answer, kw_only=True):
    """A page of what has happened, newest first."""

    events: list[Happening]
    next: str | None


# -- what changes at run time -----------------------------------------------------------------------------------------


class Live(Answer, kw_only=True):
    """An entry of the settings that changes at run time."""

    origin: Annotated[
        Literal["settings", "run time"],
        Meta(description="Whether it is what the settings say, or was changed at run time."),
    ]
    changed_at: Annotated[int, Meta(description="When it was changed at run time.")]
    changed_by: Annotated[str | None, Meta(description="The user who did it.")]
    removed: Annotated[bool, Meta(description="The settings have it, and it was removed at run time.")]
    kept: Annotated[bool, Meta(description="A change survives a restart: there is a data directory or a store.")]
    etag: Annotated[str, Meta(description="For If-Match; empty if it was removed.")]


class Rule(Live, kw_only=True):
    """Rules of the destinations, or limits of the namespaces, that a pattern fits."""

    pattern: str
    rules: Annotated[dict[str, Any], Meta(description="Those that differ from their defaults.")]
    settings: Annotated[dict[str, Any] | None, Meta(description="What the settings say; null if they do not have it.")]


class Rules(Answer, kw_only=True):
    """All patterns, in order: the first that fits applies. Those that were removed come last."""

    rules: list[Rule]


class Right(Answer, kw_only=True):
    """Verbs on destinations that a pattern fits, in namespaces that a pattern fits."""

    may: list[Verb]
    destination: str
    namespace: str


class User(Live, kw_only=True):
    """A user, without the password."""

    name: str
    hashed: Annotated[bool, Meta(description="The password is stored as a hash.")]
    everything: Annotated[bool, Meta(description="The user may do everything.")]
    rights: list[Right]


class Users(Answer, kw_only=True):
    """All users, by name. Those that were removed come last."""

    users: list[User]
    required: Annotated[bool, Meta(description="Clients need a user: there are some.")]


class SettingDifference(Answer, kw_only=True):
    """A setting that its sources say otherwise than the broker has it."""

    name: str
    text: Annotated[str, Meta(description="What differs, without secrets.")]
    origin: Annotated[str, Meta(description="Where the new value stands.")]
    applies: Annotated[Literal["reload", "restart"], Meta(description="What it takes to have it applied.")]


class SettingChange(Answer, kw_only=True):
    """An entry that was changed at run time, and stays so after a restart or a reload if it is kept."""

    kind: Annotated[
        str, Meta(description="rule, limit, user, setting; order: that of the rules or limits that `name` says.")
    ]
    name: str
    text: Annotated[str, Meta(description="What differs from the settings.")]
    changed_at: int
    changed_by: str | None


class Setting(Live, kw_only=True):
    """A setting of one value that changes at run time."""

    name: str
    value: Annotated[int | str, Meta(description="That applies now.")]
    settings: Annotated[int | str, Meta(description="What the settings say.")]


class SettingDifferences(Answer, kw_only=True):
    """How the settings of a running broker differ from those that it would start with."""

    differences: list[SettingDifference]
    changes: list[SettingChange]
    values: Annotated[list[Setting], Meta(description="Settings of one value that `PUT /settings/{name}` changes.")]
    error: Annotated[str, Meta(description="Why the settings cannot be read again; empty if they can.")]
    kept: Annotated[bool, Meta(description="Changes at run time survive a restart.")]
    reloaded: Annotated[bool, Meta(description="What needs no restart was applied.")]


# -- the caller --------------------------------------------------------------------------------------------------------


class Session(Answer, kw_only=True):
    """The calling user and their rights."""

    user: Annotated[str | None, Meta(description="null without users.")]
    unlimited: Annotated[bool, Meta(description="The user may do everything.")]
    rights: Annotated[list[Right], Meta(description="The user's rights; with `namespace`, only rights there.")]
    may: Annotated[list[Verb], Meta(description="Allowed actions on `destination`, or on all destinations.")]

"""Parameters and bodies of requests, as types. Other parameters are refused."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sievemq_broker.server.http.api.ranges import Name
from sievemq_core.limits import MAX_IDENTIFIER_CHARS, MAX_SELECTOR_CHARS

#: Rows of a page by default, and at most.
ROWS, MAX_ROWS = 100, 1_000

Limit = Annotated[int, Meta(ge=1, le=MAX_ROWS, description="Rows per page.")]
Cursor = Annotated[str, Meta(max_length=2_048, description="`next` of the previous page; omit it for the first page.")]
#: Characters of a selector among the parameters: what a line of a request can carry.
MAX_QUERY_SELECTOR = 4_096

QuerySelector = Annotated[str, Meta(max_length=MAX_QUERY_SELECTOR, description="Only messages that this matches.")]
SelectorText = Annotated[str, Meta(max_length=MAX_SELECTOR_CHARS, description="Only messages that this matches.")]
Dialect = Annotated[
    Literal["jakarta", "ibm-mq", "mqe", "amqp"],
    Meta(description="Selector dialect; the broker's by default."),
]
SubscriptionName = Annotated[str, Meta(description="If the address is a topic: name of the subscription.")]
ClientId = Annotated[str, Meta(description="Client id of that subscription, if it has one.")]


class _Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of all: unknown fields are errors.

    Attributes:
        hint: what the error of an unknown field adds.
    """

    hint: ClassVar[str] = ""


class Nothing(_Request, kw_only=True):
    """No fields."""


class Declare(_Request, kw_only=True):
    """No fields: the rules of a destination are those of a pattern."""

    hint: ClassVar[str] = ": its rules are those of the first pattern that fits it; PUT /rules/{pattern} changes them"


class DryRun(_Request, kw_only=True):
    """Parameters of what deletes."""

    dry_run: Annotated[bool, Meta(description="Only count the messages.")] = False


class Page(_Request, kw_only=True):
    """Parameters of a list."""

    cursor: Cursor | None = None
    limit: Limit = ROWS


class List(Page, kw_only=True):
    """Parameters of a list of things with names."""

    like: (
        Annotated[str, Meta(max_length=600, description="Only names that contain this text; `*` matches any text.")]
        | None
    ) = None


Like = Annotated[
    str,
    Meta(max_length=600, description="Only rows with this text in a name, an id or an address; `*` matches any text."),
]


class Find(List, kw_only=True):
    """Parameters of the list of destinations."""

    like: (
        Annotated[
            str,
            Meta(
                max_length=600,
                description="Only names that contain this text; `*` matches any text. With a kind in front, as in "
                "`queue:orders`, it is compared with addresses.",
            ),
        ]
        | None
    ) = None
    kind: (
        Annotated[Literal["queue", "topic", "temporary-queue", "temporary-topic"], Meta(description="Only this kind.")]
        | None
    ) = None
    only: (
        Annotated[
            Literal["waiting", "unconsumed", "in_flight", "scheduled", "paused", "at_limit", "blocked"],
            Meta(
                description="Only with messages that wait; that wait without a consumer; in flight; scheduled. Only "
                "those that are paused; at a limit; where senders wait."
            ),
        ]
        | None
    ) = None
    sort: Annotated[
        Literal[
            "address",
            "depth",
            "-depth",
            "oldest",
            "-oldest",
            "in_flight",
            "-in_flight",
            "oldest_in_flight",
            "-oldest_in_flight",
            "scheduled",
            "-scheduled",
            "bytes",
            "-bytes",
            "consumers",
            "-consumers",
            "subscriptions",
            "-subscriptions",
            "in_rate",
            "-in_rate",
            "out_rate",
            "-out_rate",
            "published",
            "-published",
            "dead_lettered",
            "-dead_lettered",
        ],
        Meta(description="Sort by address, or by a figure or age: descending (-) or ascending."),
    ] = "address"
    recent: Annotated[
        int, Meta(ge=0, le=60, description="Samples of depth, a second apart, that each row has in `recent`.")
    ] = 0


class ListConnections(Page, kw_only=True):
    """Parameters of the list of connections."""

    like: Like | None = None
    namespace: Annotated[str, Meta(max_length=600, description="Only connections in this namespace.")] | None = None
    id: Annotated[str, Meta(max_length=300, description="Only the connection with this id.")] | None = None
    client_id: Annotated[str, Meta(description="Only connections with this client id.")] | None = None
    only: (
        Annotated[
            Literal["blocked", "holding", "congested"],
            Meta(description="Only those whose sends are blocked; that hold messages; that read too slowly."),
        ]
        | None
    ) = None
    sort: Annotated[
        Literal[
            "opened",
            "-opened",
            "client_id",
            "user",
            "peer",
            "protocol",
            "blocked",
            "-blocked",
            "sessions",
            "-sessions",
            "consumers",
            "-consumers",
            "unacknowledged",
            "-unacknowledged",
            "staged_bytes",
            "-staged_bytes",
            "bytes_in",
            "-bytes_in",
            "bytes_out",
            "-bytes_out",
        ],
        Meta(
            description="Sort by order of arrival, by a text, or by a figure: descending (-) or ascending; `-blocked`: "
            "those first whose sends are blocked longest."
        ),
    ] = "opened"


class FindConsumers(Page, kw_only=True):
    """Parameters of the consumers of one destination."""

    like: Like | None = None
    only: (
        Annotated[
            Literal["slow", "holding", "waiting"],
            Meta(
                description="Only those that hold messages without acknowledging any while more wait; that hold "
                "messages; that wait for one."
            ),
        ]
        | None
    ) = None
    sort: Annotated[
        Literal[
            "opened",
            "-opened",
            "client_id",
            "peer",
            "address",
            "in_flight",
            "-in_flight",
            "oldest",
            "-oldest",
            "delivered",
            "-delivered",
            "acknowledged",
            "-acknowledged",
            "credit",
            "-credit",
        ],
        Meta(
            description="Sort by order of arrival, by a text, or by a figure: descending (-) or ascending; `-oldest`: "
            "those first that have held a message longest."
        ),
    ] = "opened"


class ListConsumers(FindConsumers, kw_only=True):
    """Parameters of the list of consumers."""

    namespace: Annotated[str, Meta(max_length=600, description="Only consumers in this namespace.")] | None = None
    connection: Annotated[str, Meta(max_length=300, description="Only consumers of this connection.")] | None = None
    client_id: Annotated[str, Meta(description="Only consumers of connections with this client id.")] | None = None
    destination: Annotated[str, Meta(max_length=600, description="Only consumers of this destination.")] | None = None


class _RecordRows(_Request, kw_only=True):
    """Which rows of the record of actions."""

    namespace: Annotated[str, Meta(max_length=600, description="Only rows about this namespace.")] | None = None
    user: Annotated[str, Meta(max_length=600, description="Only rows of this user.")] | None = None
    like: (
        Annotated[
            str,
            Meta(
                max_length=600,
                description="Only rows whose action or address contains this text; `*` matches any text.",
            ),
        ]
        | None
    ) = None
    only: (
        Annotated[
            Literal["actions", "attempts"],
            Meta(description="Only what was done, or only sign-ins and what was refused."),
        ]
        | None
    ) = None


class ListRecord(_RecordRows, kw_only=True):
    """Parameters of the record of actions."""

    sort: Annotated[
        Literal["-time", "time", "action", "user", "touched", "-touched"],
        Meta(description="Sort by time, action or user, or by how much was changed: descending (-) or ascending."),
    ] = "-time"
    cursor: Cursor | None = None
    limit: Limit = ROWS


class ExportRecord(_RecordRows, kw_only=True):
    """Parameters of the record of actions as lines."""


class ListSubscriptions(List, kw_only=True):
    """Parameters of the list of subscriptions."""

    like: Like | None = None
    topic: Annotated[str, Meta(max_length=600, description="Only subscriptions to this topic.")] | None = None
    client_id: Annotated[str, Meta(description="Only subscriptions of this client id.")] | None = None
    durable: Annotated[bool, Meta(description="Only durable ones, or only the others.")] | None = None
    only: (
        Annotated[
            Literal["offline", "waiting", "in_flight"],
            Meta(description="Only those without a consumer; with messages that wait; with messages in flight."),
        ]
        | None
    ) = None
    sort: Annotated[
        Literal[
            "topic",
            "name",
            "client_id",
            "depth",
            "-depth",
            "oldest",
            "-oldest",
            "in_flight",
            "-in_flight",
            "bytes",
            "-bytes",
            "consumers",
            "-consumers",
        ],
        Meta(description="Sort by topic, client id or name, or by a figure or age: descending (-) or ascending."),
    ] = "topic"


class ListTaps(List, kw_only=True):
    """Parameters of the list of taps."""

    destination: Annotated[str, Meta(max_length=600, description="Only taps on this destination.")] | None = None
    sort: Annotated[
        Literal["destination", "name", "lag", "-lag", "lag_ms", "-lag_ms", "missed", "-missed", "bytes", "-bytes"],
        Meta(description="Sort by a text, or by a figure: descending (-) or ascending."),
    ] = "destination"


class ListDeadLetters(List, kw_only=True):
    """Parameters of the list of dead-letter queues."""

    sort: Annotated[Literal["address", "depth", "-depth"], Meta(description="Sort by address, or by messages.")] = (
        "address"
    )

    examine: Annotated[int, Meta(ge=1, le=1_000_000, description="Messages to read of each queue.")] = 10_000


Preview = Annotated[int, Meta(ge=0, le=1_000, description="Characters of the body to show with each message; 0: none.")]


class Scheduled(Page, kw_only=True):
    """Parameters of lists of messages."""

    selector: QuerySelector | None = None
    dialect: Dialect | None = None
    subscription: SubscriptionName | None = None
    client_id: ClientId | None = None
    preview: Preview = 0


class ListScheduled(Scheduled, kw_only=True):
    """Parameters of the list of scheduled messages."""

    sort: Annotated[
        Literal["due", "-due", "size", "-size"], Meta(description="Sort by the time they are due at, or by size.")
    ] = "due"


class ListAllScheduled(List, kw_only=True):
    """Parameters of the list of the scheduled messages of all queues."""

    sort: Annotated[
        Literal["due", "-due", "size", "-size", "destination"],
        Meta(description="Sort by the time they are due at, by size, or by queue."),
    ] = "due"
    preview: Preview = 0


class Browse(Scheduled, kw_only=True):
    """Parameters of browsing."""

    state: Annotated[
        Literal["ready", "in_flight", "scheduled"], Meta(description="Waiting messages, messages in flight, or "
                                                         "scheduled messages.")
    ] = "ready"  # fmt: skip


class Follow(_Request, kw_only=True):
    """Parameters of following a destination."""

    selector: QuerySelector | None = None
    dialect: Dialect | None = None
    preview: Preview = 0


class OfSubscription(_Request, kw_only=True):
    """Parameters of what is read of a queue, or of a subscription."""

    subscription: SubscriptionName | None = None
    client_id: ClientId | None = None


class Whole(OfSubscription, kw_only=True):
    """Parameters of looking at one message."""

    body_limit: Annotated[
        int,
        Meta(ge=0, le=4_194_304, description="A larger body is truncated to this many bytes, and marked as truncated."),
    ] = 262_144


class Watch(_Request, kw_only=True):
    """Parameters of the event stream."""

    namespace: Annotated[str, Meta(description="Only events of this namespace.")] | None = None
    since: (
        Annotated[
            str,
            Meta(max_length=100, description="Id of the last received event; the stream begins with later ones."),
        ]
        | None
    ) = None


class Whose(_Request, kw_only=True):
    """Parameters of the question what one may do."""

    namespace: (
        Annotated[str, Meta(max_length=600, description="Only rights in this namespace; all by default.")] | None
    ) = None
    destination: Annotated[str, Meta(max_length=600, description="Destination to which `may` applies.")] | None = None


class Samples(_Request, kw_only=True):
    """Parameters of a series."""

    since: Annotated[
        int, Meta(ge=0, le=2**53, description="Only samples after this time, ms since 1970.")
    ] = 0  # fmt: skip
    range: Annotated[
        Name, Meta(description="How far back: five minutes, an hour, a day, a week.")
    ] = "5m"  # fmt: skip


class ListHistory(Page, kw_only=True):
    """Parameters of what has happened."""

    like: (
        Annotated[str, Meta(max_length=600, description="Only events whose name or address contains this text.")] | None
    ) = None
    sort: Annotated[Literal["-time", "time", "event"], Meta(description="Sort by time, or by the event's name.")] = (
        "-time"
    )
    namespace: (
        Annotated[str, Meta(max_length=600, description="Only events of this namespace, and of none.")] | None
    ) = None
    address: (
        Annotated[str, Meta(max_length=600, description="Only events of this destination, and of none.")] | None
    ) = None
    since: Annotated[
        int, Meta(ge=0, le=2**53, description="Only events after this time, ms since 1970.")
    ] = 0  # fmt: skip
    only: (
        Annotated[
            Literal["marks"],
            Meta(description="Only what a chart marks: starts, pauses, changes of rules and clock, and marks."),
        ]
        | None
    ) = None


# -- bodies -----------------------------------------------------------------------------------------------------------


class Space(_Request, kw_only=True):
    """A namespace to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_IDENTIFIER_CHARS)]


class Assign(_Request, kw_only=True):
    """A namespace, or a pattern, that a shard is to have."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_IDENTIFIER_CHARS,
            description="A namespace that is empty or does not exist; or a pattern with `*` or `?` for new ones.",
        ),
    ]


class Remember(_Request, kw_only=True):
    """Something to remember, such as a deployment."""

    text: Annotated[str, Meta(min_length=1, max_length=200, description="What has happened.")]
    namespace: Annotated[str, Meta(max_length=600, description="Where it matters; everywhere by default.")] | None = (
        None
    )


class Apply(_Request, kw_only=True):
    """Definitions that the broker is to have."""

    definitions: Annotated[
        dict[str, Any],
        Meta(description="Tables `namespaces`, `rules`, `limits` and `users`, as in a file of definitions."),
    ]
    origin: Annotated[str, Meta(max_length=1_000, description="Where they come from, for errors.")] = "definitions"
    dry_run: Annotated[bool, Meta(description="Only compare.")] = False
    prune: Annotated[
        bool, Meta(description="Delete what is not defined, in namespaces that are.")
    ] = False  # fmt: skip
    force: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=2_000)]],
        Meta(max_length=1_000, description="Names of changes that are made although they delete messages."),
    ] = []


class PutRule(_Request, kw_only=True):
    """The rules of a pattern. Rules that are not named have their defaults."""

    rules: Annotated[dict[str, Any], Meta(description="As in the configuration, such as `max_attempts`.")]


class PutSetting(_Request, kw_only=True):
    """The value of a setting."""

    value: Annotated[int | str, Meta(description="As in the configuration, such as 5000, `64MiB` or `auto`.")]


class ListPatterns(_Request, kw_only=True):
    """Parameters of lists of rules and limits."""

    sort: Annotated[
        Literal["order", "pattern", "changed", "-changed"],
        Meta(description="Sort by pattern, or by the latest change; `order` is that in which they apply."),
    ] = "order"


class ListNamespaces(List, kw_only=True):
    """Parameters of the list of namespaces."""

    sort: Annotated[
        Literal[
            "name",
            "depth",
            "-depth",
            "in_flight",
            "-in_flight",
            "scheduled",
            "-scheduled",
            "bytes",
            "-bytes",
            "destinations",
            "-destinations",
            "connections",
            "-connections",
        ],
        Meta(description="Sort by name, or by a figure: descending (-) or ascending."),
    ] = "name"


class NewOrder(_Request, kw_only=True):
    """All patterns, in the order wanted."""

    patterns: Annotated[list[str], Meta(max_length=10_000)]


class PutUser(_Request, kw_only=True):
    """A user. Of one that exists, what is not given stays."""

    password: (
        Annotated[
            str,
            Meta(min_length=1, max_length=2_000, description="In clear, or as a hash that `sievemq user hash` prints."),
        ]
        | None
    ) = None
    scram: Annotated[bool, Meta(description="Store SCRAM-SHA-256 keys of a password in clear.")] = False
    rights: (
        Annotated[
            list[dict[str, Any]],
            Meta(description="Tables of `may`, `destination` and `namespace`, as in the configuration."),
        ]
        | None
    ) = None
    everything: Annotated[bool, Meta(description="The user may do everything; instead of `rights`.")] = False


class MakeTap(_Request, kw_only=True):
    """A tap to be made, or its new terms. What is not said has the broker's default."""

    mode: Annotated[
        Literal["copy", "outcomes", "drain"],
        Meta(
            description="copy: copies arriving messages; outcomes: records the outcomes of messages; "
            "drain: consumes a queue."
        ),
    ] = "copy"
    selector: SelectorText | None = None
    dialect: Dialect | None = None
    start: Annotated[
        Literal["earliest", "latest"],
        Meta(description="Whether a copy of a queue begins with waiting or with later messages."),
    ] = "latest"
    retain_messages: Annotated[int, Meta(description="Maximum number of messages to hold.")] | UnsetType = UNSET
    retain_bytes: Annotated[int, Meta(description="Maximum number of bytes to hold.")] | UnsetType = UNSET
    retain_age: Annotated[int, Meta(description="Time in ms to keep a copied message; 0: no limit.")] | UnsetType = (
        UNSET
    )
    lease: (
        Annotated[int, Meta(description="Silence of the reader in ms that ends the lease; 0: no limit.")] | UnsetType
    ) = UNSET


class Which(_Request, kw_only=True):
    """Which messages of a queue."""

    selector: SelectorText | None = None
    dialect: Dialect | None = None
    ids: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=32_768)]],
            Meta(min_length=1, max_length=10_000, description="Only these messages, by `id` or JMSMessageID."),
        ]
        | None
    ) = None
    limit: (
        Annotated[int, Meta(ge=1, le=2**53, description="Maximum number of messages; `more` is true if others follow.")]
        | None
    ) = None
    subscription: SubscriptionName | None = None
    client_id: ClientId | None = None


class Choose(Which, kw_only=True):
    """Which messages something is done to."""

    dry_run: Annotated[bool, Meta(description="Only count.")] = False


class Import(_Request, kw_only=True):
    """Messages that were exported."""

    lines: Annotated[
        list[str], Meta(min_length=1, max_length=1_000, description="Messages, each as a line of an export.")
    ]
    dry_run: Annotated[bool, Meta(description="Only check the lines.")] = False


class Relocate(Choose, kw_only=True):
    """Which messages go where."""

    to: Annotated[str, Meta(min_length=1, max_length=600, description="Address in the same namespace.")]


class Change(_Request, kw_only=True):
    """A change of a destination as a whole."""

    dry_run: Annotated[bool, Meta(description="Only count the changes.")] = False


Mode = Literal["PERSISTENT", "NON_PERSISTENT"]
Typed = Annotated[
    Any,
    Meta(
        description='A plain JSON value (text, number, boolean, null), or `{"type": …, "value": …}` with type '
        "boolean, byte, short, int, long, float, double, string, or in bodies char or bytes (base64)."
    ),
]


class Send(_Request, kw_only=True):
    """A message to be sent. What a producer may set may be set."""

    body: Annotated[
        Any, Meta(description="Text; an object (MAP) or array (STREAM) of typed values; base64 with `body_type` BYTES.")
    ] = None
    body_type: (
        Annotated[
            Literal["NONE", "TEXT", "BYTES", "MAP", "STREAM"],
            Meta(description="Kind of message; by default it follows from `body`."),
        ]
        | None
    ) = None
    properties: Annotated[dict[str, Typed], Meta(max_length=1_000)] = {}
    type: Annotated[str, Meta(max_length=32_768, description="JMSType")] | None = None
    correlation_id: Annotated[str, Meta(max_length=32_768, description="JMSCorrelationID")] | None = None
    reply_to: Annotated[str, Meta(max_length=600, description="JMSReplyTo: an address")] | None = None
    priority: Annotated[int, Meta(ge=0, le=9, description="JMSPriority")] = 4
    delivery_mode: Annotated[Mode, Meta(description="JMSDeliveryMode")] = "PERSISTENT"
    time_to_live: Annotated[int, Meta(ge=0, le=2**52, description="Milliseconds; 0: never expires.")] = 0
    delivery_delay: Annotated[int, Meta(ge=0, le=2**52, description="Milliseconds; 0: immediately.")] = 0


class Check(_Request, kw_only=True):
    """A selector to be checked."""

    selector: Annotated[str, Meta(max_length=MAX_SELECTOR_CHARS)]
    dialect: Dialect | None = None


class TryOn(_Request, kw_only=True):
    """A message that exists only for a selector to be tried on."""

    properties: Annotated[dict[str, Typed], Meta(max_length=1_000)] = {}
    message_id: str | None = None
    type: str | None = None
    correlation_id: str | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] = 4
    delivery_mode: Mode = "PERSISTENT"
    timestamp: Annotated[int, Meta(ge=0, le=2**53)] = 0


class Explain(_Request, kw_only=True):
    """A selector and a message: one that is given, or one that is in a queue."""

    selector: Annotated[str, Meta(max_length=MAX_SELECTOR_CHARS)]
    dialect: Dialect | None = None
    message: TryOn | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    id: Annotated[str, Meta(min_length=1, max_length=32_768)] | UnsetType = UNSET
    subscription: SubscriptionName | None = None
    client_id: ClientId | None = None

"""Every command of the protocol, as data: its number, sender, fields and meaning.

A command on the wire is a msgpack array ``[number, field, …]``. In Python it is the same tuple, by position, so nothing
is allocated per command beside what the decoder made. The broker names the fields of all commands but the most frequent
ones before it carries them out (``sievemq_broker/session/verbs.py``). Rules for growing:

- a field is only ever added at the end, optional, and an older receiver ignores it;
- a number is never reused; an unknown number is an error.

``docs/protocol.md`` shows this table; a test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

PROTOCOL_VERSION: Final = 1

Sender: TypeAlias = Literal["client", "broker", "both"]


class Command:
    """The numbers of the commands."""

    HEARTBEAT: Final = 0
    # -- client to broker: the connection
    HELLO: Final = 1
    SET_CLIENT_ID: Final = 2
    GOODBYE: Final = 3
    PING: Final = 4
    # -- client to broker: sessions, consumers, destinations
    OPEN_SESSION: Final = 8
    CLOSE_SESSION: Final = 9
    OPEN_CONSUMER: Final = 10
    CLOSE_CONSUMER: Final = 11
    DECLARE: Final = 12
    CREATE_TEMPORARY: Final = 13
    DELETE_TEMPORARY: Final = 14
    UNSUBSCRIBE: Final = 15
    BROWSE: Final = 16
    # -- client to broker: messages
    SEND: Final = 24
    ACKNOWLEDGE: Final = 25
    ACKNOWLEDGE_ALL: Final = 26
    CREDIT: Final = 27
    WANT: Final = 28
    RELEASE: Final = 29
    RECOVER: Final = 30
    COMMIT: Final = 31
    ROLLBACK: Final = 32
    CLOCK_SEEN: Final = 33
    ACKNOWLEDGE_SEVERAL: Final = 34
    WITHDRAW: Final = 35
    SETTLE: Final = 36
    # -- client to broker: taps
    OPEN_TAP: Final = 40
    LOOK_TAP: Final = 41
    FETCH_TAP: Final = 42
    ACKNOWLEDGE_TAP: Final = 43
    DELETE_TAP: Final = 44
    # -- client to broker: sends that become visible together
    STAGE: Final = 48
    PUBLISH: Final = 49
    DISCARD: Final = 50
    # -- client to broker: destinations by pattern
    FIND_DESTINATIONS: Final = 51
    # -- broker to client
    WELCOME: Final = 64
    OK: Final = 65
    ERROR: Final = 66
    DELIVER: Final = 80
    CONFIRM: Final = 81
    SEND_FAILED: Final = 82
    RECALL: Final = 83
    CONSUMER_CLOSED: Final = 84
    FLOW: Final = 85
    CLOCK: Final = 86
    SHUTDOWN: Final = 87
    DELIVER_SEVERAL: Final = 88


@dataclass(frozen=True, slots=True)
class Field:
    """One position of a command.

    Kinds: ``uint`` not negative; ``bool``; ``str``; ``bytes``; ``ids`` an array of uint; ``map`` with text keys;
    ``envelope``; ``envelopes`` an array of them, not empty; ``any``. A trailing ``?`` allows nil. An optional field may
    be left out at the end of a command; it then has its default.
    """

    name: str
    kind: str
    meaning: str
    optional: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command: all there is to know about its form."""

    number: int
    name: str
    sender: Sender
    meaning: str
    fields: tuple[Field, ...] = ()


def _f(name: str, kind: str, meaning: str) -> Field:
    return Field(name, kind, meaning)


def _optional(name: str, kind: str, default: Any, meaning: str) -> Field:
    return Field(name, kind, meaning, True, default)


_REQUEST = _f("request", "uint", "number chosen by the client; the OK or ERROR that answers repeats it")
_SESSION = _f("session", "uint", "id chosen by the client when it opened the session")
_CONSUMER = _f(
    "consumer", "uint", "id of 32 bits chosen by the client when it opened the consumer; unique in the connection"
)
_HANDED = _f(
    "handed",
    "ids",
    "pairs consumer, tag: the last message of each consumer that the application has seen; what lies behind it was "
    "only buffered and goes back unmarked",
)
_TAP = _f("tap", "str", "its name; unique on its destination")
_TAP_DESTINATION = _f("destination", "str", "address of the queue or topic that it is on")
_TAP_ID = _f("id", "str", "as OPEN_TAP answered; another tap of the same name has another one")
_MADE_BY = _optional(
    "made_by",
    "uint",
    0,
    "number of a request of this connection: delete only what that request made and no other one has used since, "
    "otherwise answer OK and delete nothing. 0: delete in any case",
)
_FAILURE = _optional(
    "failure",
    "map?",
    None,
    "what the client states of why its application has failed the messages; see section 7. nil: nothing",
)
_KEY = _f("key", "str", "name of the publisher, such as a query: 1 to 255 characters")
_BATCH = _f("batch", "uint", "of this key; numbers ascend")

COMMANDS: Final[dict[int, CommandSpec]] = {
    spec.number: spec
    for spec in (
        CommandSpec(Command.HEARTBEAT, "HEARTBEAT", "both", "still alive; sent when nothing else was for an interval"),
        CommandSpec(
            Command.HELLO,
            "HELLO",
            "client",
            "first command of a connection; answered by WELCOME, or by a fatal ERROR",
            (
                _f("version", "uint", "protocol version the client speaks"),
                _f("namespace", "str", "where its destinations live; made at first use; empty for 'default'"),
                _f("user", "str?", "user name; nil for anonymous"),
                _f("password", "str?", "password in clear: use TLS outside the loopback"),
                _f("client_id", "str?", "JMS client id; nil to set none"),
                _f("heartbeat", "uint", "milliseconds after which the client expects a frame; 0 for never"),
                _f("agent", "str", "client library, its version, the application: for operators of the broker"),
                _f("resume", "str?", "connection id of a lost connection whose place this one takes"),
                _f("options", "map", "further wishes by name; unknown ones are ignored"),
            ),
        ),
        CommandSpec(
            Command.SET_CLIENT_ID,
            "SET_CLIENT_ID",
            "client",
            "claims a client id (CON-05); refused if a live connection holds it",
            (_REQUEST, _f("client_id", "str", "the id")),
        ),
        CommandSpec(
            Command.GOODBYE,
            "GOODBYE",
            "client",
            "closes all sessions, deletes temporary destinations, then answers and ends the connection (CLO-02)",
            (_REQUEST, _HANDED),
        ),
        CommandSpec(
            Command.PING,
            "PING",
            "client",
            "answered once everything before it has been carried out, by the broker's time: milliseconds since 1970 "
            "without the clock_offset of WELCOME and CLOCK",
            (_REQUEST,),
        ),
        CommandSpec(
            Command.OPEN_SESSION,
            "OPEN_SESSION",
            "client",
            "opens a session",
            (
                _REQUEST,
                _SESSION,
                _f("mode", "uint", "0 transacted, 1 AUTO, 2 CLIENT, 3 DUPS_OK acknowledge"),
                _optional("sent", "uint", 0, "opened again: sends of it that are settled or known to the broker"),
            ),
        ),
        CommandSpec(
            Command.CLOSE_SESSION,
            "CLOSE_SESSION",
            "client",
            "closes a session: an open transaction is rolled back, unacknowledged messages go back",
            (_REQUEST, _SESSION, _HANDED),
        ),
        CommandSpec(
            Command.OPEN_CONSUMER,
            "OPEN_CONSUMER",
            "client",
            "opens a consumer; the selector is verified first and nothing is left behind if it is refused",
            (
                _REQUEST,
                _SESSION,
                _CONSUMER,
                _f("destination", "str", "address of a queue or topic"),
                _f("selector", "str?", "condition; nil or empty for none"),
                _f("dialect", "str?", "selector dialect; nil for the broker's default"),
                _f("no_local", "bool", "topics: not what this connection publishes (SES-21)"),
                _f("subscription", "str?", "subscription name for a durable or shared consumer"),
                _f("durable", "bool", "the subscription outlives its consumers"),
                _f("shared", "bool", "several consumers may share the subscription"),
                _f("credit", "uint", "messages that the broker may send now"),
                _optional("tag", "uint", 0, "opened again: its tags begin behind this one"),
                _optional(
                    "bytes",
                    "uint",
                    0,
                    "with each grant of credit, and with each WANT, no more than so many bytes of messages and one "
                    "message; 0 for no limit",
                ),
            ),
        ),
        CommandSpec(
            Command.CLOSE_CONSUMER,
            "CLOSE_CONSUMER",
            "client",
            "closes a consumer; messages handed to the application stay with the session (MCO-09), others go back. "
            "Answered, unless request is 0",
            (_REQUEST, _CONSUMER, _f("handed", "uint", "tag of the last message the application has seen; 0 for none")),
        ),
        CommandSpec(
            Command.DECLARE,
            "DECLARE",
            "client",
            "checks that the client may send to a destination, and creates it if it does not exist",
            (_REQUEST, _f("destination", "str", "address")),
        ),
        CommandSpec(
            Command.CREATE_TEMPORARY,
            "CREATE_TEMPORARY",
            "client",
            "makes a temporary destination; the answer is its address",
            (
                _REQUEST,
                _f("topic", "bool", "a temporary topic; otherwise a temporary queue"),
                _optional("destination", "str?", None, "made again: the address that it had"),
            ),
        ),
        CommandSpec(
            Command.DELETE_TEMPORARY,
            "DELETE_TEMPORARY",
            "client",
            "deletes a temporary destination of this connection; refused while it has consumers (TMP-07)",
            (_REQUEST, _f("destination", "str", "address")),
        ),
        CommandSpec(
            Command.UNSUBSCRIBE,
            "UNSUBSCRIBE",
            "client",
            "deletes a durable subscription of this client id (SES-27)",
            (_REQUEST, _f("subscription", "str", "its name"), _MADE_BY),
        ),
        CommandSpec(
            Command.BROWSE,
            "BROWSE",
            "client",
            "reads a page of a queue without changing it; answer: [cursor | nil at the end, [count, envelope] …]",
            (
                _REQUEST,
                _f("destination", "str", "address of a queue"),
                _f("selector", "str?", "condition; nil or empty for none"),
                _f("dialect", "str?", "selector dialect; nil for the broker's default"),
                _f("cursor", "any", "what the last page answered; nil for the first page"),
                _f(
                    "limit",
                    "uint",
                    "messages a page may hold; 0 only verifies queue and selector; if the queue is not there yet the "
                    "cursor is nil, and behind it stand the addresses of queues with similar names",
                ),
                _optional("part", "uint", 0, "which of the parts, from 0"),
                _optional(
                    "parts",
                    "uint",
                    0,
                    "above 0: only messages of that part. A message belongs to one of so many parts for as long as it "
                    "waits; behind its envelope stands its place in the order of delivery. With a limit of 0 the "
                    "number of messages that wait stands behind the cursor",
                ),
            ),
        ),
        CommandSpec(
            Command.SEND,
            "SEND",
            "client",
            "sends a message; in a transacted session it waits for COMMIT. Settled by CONFIRM or SEND_FAILED",
            (
                _SESSION,
                _f("sequence", "uint", "1, 2, 3, … in the session"),
                _f("destination", "str", "address"),
                _f("envelope", "envelope", "the message"),
            ),
        ),
        CommandSpec(
            Command.ACKNOWLEDGE,
            "ACKNOWLEDGE",
            "client",
            "acknowledges everything delivered to one consumer up to a tag, and grants credit; not answered",
            (
                _CONSUMER,
                _f("tag", "uint", "up to this message; 0 for none"),
                _f("credit", "uint", "further messages that may be sent to it"),
            ),
        ),
        CommandSpec(
            Command.ACKNOWLEDGE_ALL,
            "ACKNOWLEDGE_ALL",
            "client",
            "acknowledges what all consumers of a session were handed (ACK-05), closed ones included",
            (_REQUEST, _SESSION, _HANDED),
        ),
        CommandSpec(
            Command.CREDIT,
            "CREDIT",
            "client",
            "grants credit; not answered",
            (
                _CONSUMER,
                _f("credit", "uint", "further messages that may be sent to it"),
                _optional("instead", "bool", False, "in place of the credit that is left, not on top of it"),
            ),
        ),
        CommandSpec(
            Command.WANT,
            "WANT",
            "client",
            "a caller waits at this consumer and its buffer is empty: take back what idle consumers have buffered. "
            "Answered, unless request is 0, when everything that could be delivered now has been sent",
            (_REQUEST, _CONSUMER),
        ),
        CommandSpec(
            Command.RELEASE,
            "RELEASE",
            "client",
            "returns buffered messages that no application has seen; they go back unmarked, to their old place",
            (
                _CONSUMER,
                _f("tags", "ids", "their tags; empty answers a RECALL that found nothing"),
                _optional(
                    "unasked",
                    "bool",
                    False,
                    "no RECALL asked for them: the client takes them for expired, and the broker decides",
                ),
            ),
        ),
        CommandSpec(
            Command.RECOVER,
            "RECOVER",
            "client",
            "redelivers the unacknowledged messages of the session, marked (ACK-08). The credit of its "
            "consumers falls to zero; the client grants it again after the answer",
            (_REQUEST, _SESSION, _HANDED, _FAILURE),
        ),
        CommandSpec(
            Command.COMMIT,
            "COMMIT",
            "client",
            "publishes the session's sends and acknowledges its deliveries, all or nothing (TXN-10)",
            (_REQUEST, _SESSION, _HANDED, _FAILURE),
        ),
        CommandSpec(
            Command.ROLLBACK,
            "ROLLBACK",
            "client",
            "discards the session's sends and redelivers its deliveries, marked. Credit as for RECOVER",
            (_REQUEST, _SESSION, _HANDED, _FAILURE),
        ),
        CommandSpec(
            Command.CLOCK_SEEN,
            "CLOCK_SEEN",
            "client",
            "from here on the client's times include this offset (test clocks only)",
            (_f("offset", "any", "milliseconds, as the CLOCK said"),),
        ),
        CommandSpec(
            Command.ACKNOWLEDGE_SEVERAL,
            "ACKNOWLEDGE_SEVERAL",
            "client",
            "as an ACKNOWLEDGE without credit for each of several consumers; only to a broker whose features name it",
            (_f("acknowledged", "ids", "pairs consumer, tag"),),
        ),
        CommandSpec(
            Command.WITHDRAW,
            "WITHDRAW",
            "client",
            "takes back a send, or a COMMIT, that waits for room; with request 0 it takes the place of the send",
            (
                _REQUEST,
                _SESSION,
                _f("sequence", "uint", "of the send; 0 for the session's COMMIT"),
            ),
        ),
        CommandSpec(
            Command.SETTLE,
            "SETTLE",
            "client",
            "settles single messages of a consumer, in any order, outside of a transaction; not answered. A tag that "
            "is settled already is passed over",
            (
                _CONSUMER,
                _f("tags", "ids", "of the messages"),
                _f(
                    "outcome",
                    "uint",
                    "0: acknowledged; 1: the attempt failed, and the message is redelivered, marked, or becomes a "
                    "dead letter after too many attempts; 2: a dead letter immediately; 3: the client does not say "
                    "what its application had: as 1, but an attempt of the oldest message alone",
                ),
                _f("credit", "uint", "further messages that may be sent to the consumer"),
            ),
        ),
        CommandSpec(
            Command.OPEN_TAP,
            "OPEN_TAP",
            "client",
            "makes a tap, a named cursor on a destination, or finds it again and gives it new terms. Answer: a map "
            "with id, made, mode, first, last, acknowledged, lost, missed, bytes",
            (
                _REQUEST,
                _TAP,
                _TAP_DESTINATION,
                _f(
                    "mode",
                    "str",
                    "copy: what arrives is kept for it as well; outcomes: what becomes of messages; drain: it takes "
                    "what waits in a queue",
                ),
                _f("selector", "str?", "condition; nil or empty for none"),
                _f("dialect", "str?", "selector dialect; nil for the broker's default"),
                _f("options", "map", "wishes by name, such as start, existing and reader; section 12"),
            ),
        ),
        CommandSpec(
            Command.LOOK_TAP,
            "LOOK_TAP",
            "client",
            "how far may a reader read that has read up to a sequence? A drain takes from its queue what is needed for "
            "that. Answer: as for OPEN_TAP, and upto, the sequence, and more: others are available, send it again",
            (
                _REQUEST,
                _TAP,
                _TAP_DESTINATION,
                _f("after", "uint", "the reader has read up to this sequence"),
                _f("messages", "uint", "it wants at most; 0 for all"),
                _f("bytes", "uint", "it wants at most, counted with 160 for each message; 0 for all"),
            ),
        ),
        CommandSpec(
            Command.FETCH_TAP,
            "FETCH_TAP",
            "client",
            "reads messages of a tap, any number of times until they are acknowledged. Answer: [first, times, counts, "
            "envelopes]; first is the sequence of the first one",
            (
                _REQUEST,
                _TAP,
                _TAP_DESTINATION,
                _TAP_ID,
                _f("after", "uint", "begin behind this sequence"),
                _f("upto", "uint", "end with this one"),
                _f("limit", "uint", "messages of the answer at most; it may have fewer"),
            ),
        ),
        CommandSpec(
            Command.ACKNOWLEDGE_TAP,
            "ACKNOWLEDGE_TAP",
            "client",
            "the reader is done with everything up to a sequence. Answer: as for OPEN_TAP",
            (_REQUEST, _TAP, _TAP_DESTINATION, _TAP_ID, _f("upto", "uint", "the sequence")),
        ),
        CommandSpec(
            Command.DELETE_TAP,
            "DELETE_TAP",
            "client",
            "ends a tap; what a drain has not acknowledged goes back, marked. Answer: true if there was one",
            (_REQUEST, _TAP, _TAP_DESTINATION, _MADE_BY),
        ),
        CommandSpec(
            Command.STAGE,
            "STAGE",
            "client",
            "takes what a transacted session has sent since its last commit out of the session and keeps it until it "
            "is published. Answer: the name of what is staged",
            (
                _REQUEST,
                _SESSION,
                _KEY,
                _BATCH,
                _f("lease", "uint", "milliseconds after which it is forgotten, 1000 to 86400000"),
            ),
        ),
        CommandSpec(
            Command.PUBLISH,
            "PUBLISH",
            "client",
            "sends the staged messages, of any connection, all or nothing; other stages of the batch are "
            "discarded. Answer: how many messages; nil if this batch or a later one of the key was published before",
            (
                _REQUEST,
                _KEY,
                _BATCH,
                _f("stages", "any", "array of names that STAGE answered, in the order of sending"),
            ),
        ),
        CommandSpec(
            Command.DISCARD,
            "DISCARD",
            "client",
            "forgets what was staged for a batch and not published. Answer: how many messages",
            (_REQUEST, _KEY, _BATCH, _optional("stage", "str?", None, "this one alone; nil for all of the batch")),
        ),
        CommandSpec(
            Command.FIND_DESTINATIONS,
            "FIND_DESTINATIONS",
            "client",
            "finds the queues or topics that fit a pattern, as far as the user may browse or consume them. Answer: "
            "array of addresses, in no order; more than 10000 are refused",
            (_REQUEST, _f("pattern", "str", "an address with * for any characters, ? for one, [abc] for one of these")),
        ),
        CommandSpec(
            Command.WELCOME,
            "WELCOME",
            "broker",
            "answers HELLO",
            (
                _f("version", "uint", "protocol version both will speak"),
                _f("broker", "str", "name and version of the broker"),
                _f("incarnation", "str", "changes with every start of a broker that kept nothing"),
                _f(
                    "connection",
                    "str",
                    "id of the connection, its old one if it is resumed: prefix of message ids, owner of temporary "
                    "destinations",
                ),
                _f("heartbeat", "uint", "milliseconds after which the broker expects a frame; 0 for never"),
                _f(
                    "limits",
                    "map",
                    "frame_bytes, body_bytes, properties_bytes; window_messages, window_bytes; of a connection "
                    "sessions, temporaries, staged_bytes; of a session consumers; of a namespace subscriptions; of the "
                    "broker connections",
                ),
                _f(
                    "features",
                    "map",
                    "durable, dialect, time, clock_offset, frozen_at, moved_at, resumed, acknowledge_several, shard, "
                    "peers",
                ),
            ),
        ),
        CommandSpec(
            Command.OK,
            "OK",
            "broker",
            "a request was carried out",
            (_REQUEST, _f("result", "any", "what the request asks for; nil otherwise")),
        ),
        CommandSpec(
            Command.ERROR,
            "ERROR",
            "broker",
            "a request was refused, or (request 0) the connection ends",
            (
                _REQUEST,
                _f("code", "uint", "sievemq_core.errors.ErrorCode"),
                _f("text", "str", "for people: what was wrong, where, what to do"),
                _f("details", "map", "for programs, by code"),
            ),
        ),
        CommandSpec(
            Command.DELIVER,
            "DELIVER",
            "broker",
            "a message for a consumer, within its credit",
            (
                _CONSUMER,
                _f("tag", "uint", "1, 2, 3, … of the consumer"),
                _f("count", "uint", "delivery count: 1 the first time, more is a redelivery (JSX-12)"),
                _f("envelope", "envelope", "the message"),
            ),
        ),
        CommandSpec(
            Command.CONFIRM,
            "CONFIRM",
            "broker",
            "every send of the session up to this one is settled, except those that SEND_FAILED named before",
            (_SESSION, _f("sequence", "uint", "of the last one")),
        ),
        CommandSpec(
            Command.SEND_FAILED,
            "SEND_FAILED",
            "broker",
            "one send was refused; confirms of earlier ones come first",
            (
                _SESSION,
                _f("sequence", "uint", "of the send"),
                _f("code", "uint", "sievemq_core.errors.ErrorCode"),
                _f("text", "str", "for people"),
            ),
        ),
        CommandSpec(
            Command.RECALL,
            "RECALL",
            "broker",
            "another consumer waits for these messages: RELEASE the ones still in the buffer",
            (_CONSUMER, _f("tags", "ids", "their tags")),
        ),
        CommandSpec(
            Command.CONSUMER_CLOSED,
            "CONSUMER_CLOSED",
            "broker",
            "the consumer is gone: its destination was deleted, or an administrator closed it",
            (_CONSUMER, _f("code", "uint", "sievemq_core.errors.ErrorCode"), _f("text", "str", "for people")),
        ),
        CommandSpec(
            Command.FLOW,
            "FLOW",
            "broker",
            "a limit blocks sends, or no longer does",
            (
                _f("blocked", "bool", "true: blocked"),
                _f("text", "str", "which limit"),
                _optional("session", "uint", 0, "whose sends wait; 0: the limit is the broker's own"),
                _optional(
                    "sequence",
                    "uint",
                    0,
                    "blocked: of the first send that waits, which the broker keeps; those behind it are passed over. "
                    "Going on: of the send to go on from, all that was passed over to be said again. 0: a COMMIT waits",
                ),
                _optional("destination", "str?", None, "where that was sent to, if it waits for a single one"),
            ),
        ),
        CommandSpec(
            Command.CLOCK,
            "CLOCK",
            "broker",
            "the broker's clock was moved: add this offset to times (test clocks only); answer with CLOCK_SEEN",
            (
                _f("offset", "any", "milliseconds, may be negative"),
                _optional("frozen_at", "any", None, "the time at which it stands still; nil if it runs"),
            ),
        ),
        CommandSpec(
            Command.SHUTDOWN,
            "SHUTDOWN",
            "broker",
            "the broker ends soon: finish and close",
            (_f("grace", "uint", "milliseconds until it does"), _f("text", "str", "for people")),
        ),
        CommandSpec(
            Command.DELIVER_SEVERAL,
            "DELIVER_SEVERAL",
            "broker",
            "as a DELIVER, with a count of 1, for each of several messages; only to a client whose HELLO asks for it",
            (
                _CONSUMER,
                _f("tag", "uint", "of the first; those behind it have the following ones"),
                _f("envelopes", "envelopes", "the messages"),
            ),
        ),
    )
}

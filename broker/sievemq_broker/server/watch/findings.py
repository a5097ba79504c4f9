"""What may need an operator's attention: the rules with their texts, and what they find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sievemq_broker.domain.consumer import Consumer
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Topic
from sievemq_broker.session.peer import Peer
from sievemq_core.counted import counted

#: Severities: work stands still or is lost; it will, or one client's does; an operator has chosen it.
CRITICAL, WARNING, NOTICE = "critical", "warning", "notice"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One kind of finding.

    Attributes:
        name: in the API, metrics and logs.
        severity: CRITICAL, WARNING or NOTICE.
        text: of a finding; `{amount}` and `{detail}` are filled in.
        advice: what to do.
        noun: what the amount counts; empty for a plain number.
    """

    name: str
    severity: str
    text: str
    advice: str
    noun: str = "message"


STORE_STUCK: Final = Rule(
    "store_stuck",
    CRITICAL,
    "nothing is confirmed or delivered: {detail}",
    "Make room on the disk, or repair what the store is on. The broker goes on by itself.",
)
NOT_READY: Final = Rule(
    "not_ready",
    CRITICAL,
    "the broker is {detail}; new connections are refused",
    "Wait until it has ended. Its log has the reason.",
)
PRODUCERS_BLOCKED: Final = Rule(
    "producers_blocked",
    CRITICAL,
    "all producers wait: {detail}",
    "Start consumers, purge or move messages, or raise max_memory_bytes.",
)
DISK_FULL: Final = Rule(
    "disk_full",
    CRITICAL,
    "PERSISTENT messages are refused or wait: {detail}",
    "Make room on the disk, consume messages or purge a queue.",
)
NO_OWNER: Final = Rule(
    "no_owner",
    CRITICAL,
    "no broker serves the shard {detail}, and this one does not take it",
    "Start a broker of the shard. What keeps this one from it is in its log.",
)
SENDERS_BLOCKED: Final = Rule(
    "senders_blocked",
    WARNING,
    "waiting for room: {amount}; {detail}",
    "Start consumers, purge or move messages, or raise the limit.",
    "sender",
)
SENDS_REFUSED: Final = Rule(
    "sends_refused",
    WARNING,
    "refused: {amount}; {detail}",
    "Make room, raise the limit that is named, or grant the right (security); or correct the client.",
)
OPENS_REFUSED: Final = Rule(
    "opens_refused",
    WARNING,
    "refused: {amount}; {detail}",
    "Grant the right (security), raise the limit that is named, or correct the client.",
    "open request",
)
CONSUMER_STUCK: Final = Rule(
    "consumer_stuck",
    WARNING,
    "a consumer does not acknowledge; it holds {amount}",
    "See what its application is doing. Closing the consumer gives its messages to others.",
)
NO_CONSUMER: Final = Rule(
    "no_consumer",
    WARNING,
    "no consumer is open; waiting: {amount}",
    "Start the application that consumes here, or purge the queue.",
)
CLIENT_SLOW: Final = Rule(
    "client_slow",
    WARNING,
    "a client reads too slowly; it holds {amount}",
    "See whether its machine or network is overloaded, or lower its prefetch.",
)
GROWING: Final = Rule(
    "growing",
    WARNING,
    "grows by {amount} a minute: {detail}",
    "Start more consumers, or find out what makes them slow.",
)
QUEUE_FULL: Final = Rule(
    "queue_full",
    WARNING,
    "at its limit: {detail}",
    "Start consumers, purge or move messages, or raise the limit.",
)
DEAD_LETTERS: Final = Rule(
    "dead_letters",
    WARNING,
    "new dead letters: {detail}",
    "Browse its dead-letter queue for the reasons, repair the consumer, then retry them.",
)
DEAD_LETTERS_REFUSED: Final = Rule(
    "dead_letters_refused",
    WARNING,
    "its dead-letter queue is full, or does not exist; failed messages are delivered again: {amount}",
    "Retry, move or purge dead letters. Without auto_create, create the queue if it does not exist.",
)
ROLLBACKS: Final = Rule(
    "rollbacks",
    WARNING,
    "{detail} rolls back {amount} a minute",
    "Its log has the reason. Until that is repaired, its messages are delivered or made again and again.",
    "transaction",
)
WRONG_PASSWORDS: Final = Rule(
    "wrong_passwords",
    WARNING,
    "refused sign-ins: {amount}; the latest {detail}",
    "Correct the client's password, or block the address.",
    "",
)
MEMORY_HIGH: Final = Rule(
    "memory_high",
    WARNING,
    "{amount} % of the memory for messages is in use; at 100 % producers wait",
    "Start consumers, purge or move messages, or raise max_memory_bytes.",
    "",
)
CONNECTIONS_HIGH: Final = Rule(
    "connections_high",
    WARNING,
    "{amount} % of the connections are in use; at 100 % new ones are refused",
    "Find clients that open too many, or raise max_connections.",
    "",
)
DISK_LOW: Final = Rule(
    "disk_low",
    WARNING,
    "{amount} % of the disk with the data directory is in use",
    "Make room on the disk, before PERSISTENT messages are refused.",
    "",
)
PROCESS_MEMORY: Final = Rule(
    "process_memory",
    WARNING,
    "the process takes {amount} % of the memory of its container or machine",
    "Give it more memory, or lower max_memory_bytes, before the system ends it.",
    "",
)
FILES_HIGH: Final = Rule(
    "files_high",
    WARNING,
    "{amount} % of the file descriptors are in use; each connection takes one",
    "Raise the limit of open files (ulimit -n), or lower max_connections.",
    "",
)
FOLLOWER_BEHIND: Final = Rule(
    "follower_behind",
    WARNING,
    "a takeover would take long: {detail}",
    "Give this follower as much memory as the owner has, and see whether its database answers quickly.",
)
SHARD: Final = Rule(
    "shard",
    WARNING,
    "{detail}",
    "See the page on high availability.",
)
PAUSED: Final = Rule(
    "paused",
    NOTICE,
    "deliveries are paused; waiting: {amount}",
    "Resume it once the reason is gone.",
)
NEARLY_FULL: Final = Rule(
    "nearly_full",
    NOTICE,
    "{amount} % of its limit is in use",
    "Start consumers before it is full.",
    "",
)

#: All rules, the most important first.
RANKED: Final = (
    STORE_STUCK,
    NOT_READY,
    PRODUCERS_BLOCKED,
    DISK_FULL,
    NO_OWNER,
    SENDERS_BLOCKED,
    SENDS_REFUSED,
    OPENS_REFUSED,
    CONSUMER_STUCK,
    NO_CONSUMER,
    CLIENT_SLOW,
    GROWING,
    QUEUE_FULL,
    DEAD_LETTERS,
    DEAD_LETTERS_REFUSED,
    ROLLBACKS,
    WRONG_PASSWORDS,
    DISK_LOW,
    MEMORY_HIGH,
    PROCESS_MEMORY,
    FILES_HIGH,
    CONNECTIONS_HIGH,
    FOLLOWER_BEHIND,
    SHARD,
    PAUSED,
    NEARLY_FULL,
)

#: Rules of what a restart does not end.
LASTING: Final = frozenset((DISK_FULL, NO_CONSUMER, QUEUE_FULL, DISK_LOW, PAUSED, NEARLY_FULL))


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """Something that needs attention.

    Attributes:
        rule: that it is of.
        since: when it began, ms since 1970.
        amount: how much.
        detail: what the rule's text has beside that.
        at: the queue, that of a subscription included, or the topic; None where it is no single one.
        connection: whose; None where it is no single one.
        consumer: which; None where it is none.
        space: name of the namespace; None for the whole broker.
    """

    rule: Rule
    since: int
    amount: int = 0
    detail: str = ""
    at: Queue | Topic | None = None
    connection: Peer | None = None
    consumer: Consumer | None = None
    space: str | None = None

    @property
    def about(self) -> dict[str, str | None]:
        """The objects that it is about, by name."""
        place, connection, consumer = None if self.at is None else self.at.place, self.connection, self.consumer
        client = None if connection is None else connection.member
        return {
            "namespace": self.space if place is None else place.namespace,
            "address": None if place is None else place.destination,
            "subscription": None if place is None or place.topic is None else place.label,
            "connection": None if client is None else client.id,
            "client_id": None if client is None else client.client_id,
            "consumer": None if client is None or consumer is None else f"{client.id}.{consumer.id}",
        }

    @property
    def name(self) -> tuple[str, ...]:
        """The same for this object in another process."""
        place = None if self.at is None else self.at.place
        return (self.rule.name,) if place is None else (self.rule.name, place.namespace, place.label)

    @property
    def text(self) -> str:
        """What is wrong."""
        rule = self.rule
        amount = counted(self.amount, rule.noun, form=",") if rule.noun else f"{self.amount:,}"
        return rule.text.format(amount=amount, detail=self.detail)

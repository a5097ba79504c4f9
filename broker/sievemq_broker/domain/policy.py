"""Settings of destinations, namespaces and the domain, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypedDict, get_args, get_origin, get_type_hints

FAIL = "fail"
"""A send that would pass a limit is refused with RESOURCE_ALLOCATION."""
BLOCK = "block"
"""It is not accepted before there is room; its sender waits."""
DROP_OLDEST = "drop-oldest"
"""It is accepted, and the oldest waiting messages of the lowest priority are dropped to make room."""
DROP_NEWEST = "drop-newest"
"""It is confirmed and dropped."""

WARN, CLOSE = "warn", "close"
"""What happens to a slow consumer: it is counted, shown and logged, or its connection is closed as well."""

TEXT, INFER = "text", "infer"
"""Properties of STOMP clients whose headers name no type: text, or the number or boolean that the text shows."""


#: Of a rule that is a whole number. With the present time added to it, it can still be stored and sent.
_MOST: Final = 2**62

_WHOLE: Final = (
    "max_attempts", "redelivery_delay", "redelivery_delay_max", "max_messages", "max_bytes", "slow_consumer_seconds",
)  # fmt: skip


def _check_whole(name: str, value: object) -> None:
    """Counts of messages, bytes and milliseconds must be integers; compiled code takes nothing else."""
    if type(value) is not int:
        raise ValueError(f"{name} must be a whole number, it is {value!r}")
    if value < 0:
        raise ValueError(f"{name} must not be negative, it is {value}")
    if value > _MOST:
        raise ValueError(f"{name} must be at most {_MOST}")


class PolicyRules(TypedDict, total=False):
    """The rules of a :class:`DestinationPolicy` as a table; a length of time may be a timedelta there. Checks
    and errors are derived from these types."""

    max_attempts: int
    redelivery_delay: int | timedelta
    redelivery_factor: float
    redelivery_delay_max: int | timedelta
    dead_letter_expired: bool
    max_messages: int
    max_bytes: int
    at_limit: Literal["fail", "block", "drop-oldest", "drop-newest"]
    slow_consumer: Literal["warn", "close"]
    slow_consumer_seconds: int | timedelta
    stomp_types: Literal["text", "infer"]
    delivery_mode: int | Literal["PERSISTENT", "NON_PERSISTENT"] | None
    priority: int | None
    time_to_live: int | timedelta | None
    delay: int | timedelta | None


#: How a rule may be written, by its name.
WRITTEN: Mapping[str, Any] = get_type_hints(PolicyRules)
#: The values of a rule that is one of some words.
CHOICES: Mapping[str, tuple[str, ...]] = {
    name: get_args(kind) for name, kind in WRITTEN.items() if get_origin(kind) is Literal
}


def one_of(words: Sequence[str]) -> str:
    """The words as an error lists them."""
    return " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"


def delay_after(attempts: int, delay: int, factor: float, delay_max: int) -> int:
    """Ms that a message waits after its `attempts`-th failed delivery, by a rule of a delay that grows."""
    if not delay:
        return 0
    try:
        grown = delay * factor ** (attempts - 1)
    except OverflowError:
        return delay_max
    return int(min(grown, delay_max))


@dataclass(frozen=True, slots=True)
class DestinationPolicy:
    """Rules for the destinations that a pattern names. The defaults change nothing and cost nothing.

    Attributes:
        max_attempts: deliveries of one message before it is dead-lettered (D-22); 0 for no limit.
        redelivery_delay: ms that a message which came back marked waits (D-33).
        redelivery_factor: by which the delay grows with each further attempt.
        redelivery_delay_max: ms, upper bound of the grown delay.
        dead_letter_expired: expired messages are dead-lettered too, instead of only counted.
        max_messages: messages that may wait; more are refused with RESOURCE_ALLOCATION. 0 for no limit. What is in
            flight does not count: credit bounds that.
        max_bytes: the same for the packed bytes of waiting messages.
        at_limit: what happens to a send that passes one of the two, FAIL, BLOCK, DROP_OLDEST or DROP_NEWEST. A message
            larger than max_bytes is refused always. What is moved here, dead letters included, is never dropped and
            waits for nobody: FAIL.
        slow_consumer: WARN or CLOSE, what is done about a consumer that holds messages and does nothing.
        slow_consumer_seconds: after which it counts as slow, 0 for never.
        stomp_types: TEXT, or INFER: properties of STOMP clients that are numbers or booleans as text become such.
        delivery_mode: overrides the sender's (D-21): 1 NON_PERSISTENT, 2 PERSISTENT.
        priority: overrides the sender's, 0 … 9.
        time_to_live: overrides the sender's, in ms; 0 for "never expires".
        delay: overrides the sender's delivery delay, in ms.
        pattern: that has these rules, for people; empty for none.
    """

    max_attempts: int = 6
    redelivery_delay: int = 0
    redelivery_factor: float = 1.0
    redelivery_delay_max: int = 3_600_000
    dead_letter_expired: bool = False
    max_messages: int = 0
    max_bytes: int = 0
    at_limit: str = FAIL
    slow_consumer: str = WARN
    slow_consumer_seconds: int = 60
    stomp_types: str = TEXT
    delivery_mode: int | None = None
    priority: int | None = None
    time_to_live: int | None = None
    delay: int | None = None
    overrides: bool = field(init=False, default=False, repr=False)
    limited: bool = field(init=False, default=False, repr=False)
    special: bool = field(init=False, default=False, repr=False)
    pattern: str = field(init=False, default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in _WHOLE:
            _check_whole(name, getattr(self, name))
        for name in ("time_to_live", "delay"):
            _check_whole(name, getattr(self, name) or 0)
        if type(self.dead_letter_expired) is not bool:
            raise ValueError(f"dead_letter_expired must be True or False, it is {self.dead_letter_expired!r}")
        if not self.redelivery_factor >= 1:  # nor NaN
            raise ValueError(f"redelivery_factor must be at least 1, it is {self.redelivery_factor}")
        for name, words in CHOICES.items():
            if getattr(self, name) not in words:
                raise ValueError(f"{name} must be {one_of(words)}, it is {getattr(self, name)!r}")
        if self.delivery_mode is not None and (type(self.delivery_mode) is not int or self.delivery_mode not in (1, 2)):
            raise ValueError(f"delivery_mode must be 1 or 2, it is {self.delivery_mode}")
        if self.priority is not None and (type(self.priority) is not int or not 0 <= self.priority <= 9):
            raise ValueError(f"priority must be 0 to 9, it is {self.priority}")
        # Computed once: sends read them.
        overrides = not (self.delivery_mode is self.priority is self.time_to_live is self.delay is None)
        limited = self.max_messages > 0 or self.max_bytes > 0
        object.__setattr__(self, "overrides", overrides)
        object.__setattr__(self, "limited", limited)
        object.__setattr__(self, "special", overrides or limited)

    @property
    def where(self) -> str:
        """Where the rules can be changed, as errors name it."""
        return f"the rules of {self.pattern}" if self.pattern else "its rules"

    @property
    def holds_back(self) -> bool:
        """At a limit senders wait or are refused. Where messages are dropped instead, it may be reached on purpose."""
        return self.limited and self.at_limit in (BLOCK, FAIL)

    def redelivery_delay_after(self, attempts: int) -> int:
        """Ms that a message waits after its `attempts`-th failed delivery."""
        return delay_after(attempts, self.redelivery_delay, self.redelivery_factor, self.redelivery_delay_max)


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """Rules for the namespaces that a pattern names.

    Attributes:
        max_bytes: that all its messages may take, with what the broker needs for each; 0 for no limit.
        max_messages: that may wait or be scheduled in all its queues and subscriptions; 0 for no limit.
        at_limit: BLOCK or FAIL, what happens to sends meanwhile.
        pattern: that has these limits, for people.
    """

    max_bytes: int = 0
    max_messages: int = 0
    at_limit: str = BLOCK
    pattern: str = field(init=False, default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_messages"):
            _check_whole(name, getattr(self, name))
        if self.at_limit not in (BLOCK, FAIL):
            raise ValueError(f"at_limit must be {BLOCK} or {FAIL}, it is {self.at_limit!r}")

    @property
    def where(self) -> str:
        """Where the limits can be changed, as errors name it."""
        return f"the limits of {self.pattern}" if self.pattern else "its limits"


def share_used(policy: DestinationPolicy | NamespacePolicy, messages: int, size: int) -> float:
    """The share of a limit that so many messages with so many bytes use; of two limits the larger one. 0 without."""
    share = messages / policy.max_messages if policy.max_messages else 0.0
    return max(share, size / policy.max_bytes) if policy.max_bytes else share


@dataclass(frozen=True, slots=True)
class DomainSettings:
    """Settings of the domain.

    Attributes:
        policies: pairs of a pattern over the destination's text (``queue:orders.*``) and its policy; the first that
            fits is taken.
        default_policy: for destinations that no pattern fits.
        auto_create: make a queue or topic when it is first named.
        max_destinations: destinations of one namespace, temporary ones included.
        max_namespaces: namespaces of the broker.
        max_subscriptions: durable or shared subscriptions of one namespace; others end with their consumer.
        namespaces: as `policies`, over the names of namespaces.
        on_full_disk: FAIL or BLOCK, what happens to PERSISTENT sends while the disk is full.
    """

    policies: tuple[tuple[str, DestinationPolicy], ...] = ()
    default_policy: DestinationPolicy = field(default_factory=DestinationPolicy)
    auto_create: bool = True
    max_destinations: int = 100_000
    max_namespaces: int = 10_000
    max_subscriptions: int = 100_000
    namespaces: tuple[tuple[str, NamespacePolicy], ...] = ()
    on_full_disk: str = FAIL

    def policy_for_namespace(self, name: str) -> NamespacePolicy | None:
        """The rules of the namespace with this name; None if there are none."""
        return next((policy for pattern, policy in self.namespaces if fnmatchcase(name, pattern)), None)

    def policy_for(self, address: str) -> DestinationPolicy:
        """The policy of the destination with this address in text."""
        for pattern, policy in self.policies:
            if fnmatchcase(address, pattern):
                return policy
        return self.default_policy

"""What an application writes beside its listeners: how often to retry, and where a parameter's value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sievemq_core.durations import Milliseconds, milliseconds

_MAX_ATTEMPTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a message is delivered again after its listener raised, and when. The broker keeps the delay and counts
    the attempts, so both outlive the consumer. Without a rule, that of the destination holds.

    Args:
        attempts: after so many failed attempts the message becomes a dead letter; 1 for no retry.
        delay: time until the second attempt: a timedelta, or an int of milliseconds.
        backoff: by which the delay grows with each further attempt; 1 for a delay that stays the same.
        max_delay: bound of the grown delay.

    Raises:
        ValueError: a number out of its range.

    >>> Retry(attempts=5, backoff=2).delays()
    [datetime.timedelta(seconds=1), datetime.timedelta(seconds=2), datetime.timedelta(seconds=4), \
datetime.timedelta(seconds=8)]
    """

    attempts: int = 6
    delay: Milliseconds = timedelta(seconds=1)
    backoff: float = 2
    max_delay: Milliseconds = timedelta(hours=1)

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or not 1 <= self.attempts <= _MAX_ATTEMPTS:
            raise ValueError(f"attempts is a number from 1 to {_MAX_ATTEMPTS}, not {self.attempts!r:.60}")
        if isinstance(self.backoff, bool) or not isinstance(self.backoff, (int, float)) or not 1 <= self.backoff <= 1e6:
            raise ValueError(f"backoff is a number from 1 to 1000000, not {self.backoff!r:.60}")
        for name in ("delay", "max_delay"):
            if milliseconds(name, getattr(self, name)) > 2**31 - 1:
                raise ValueError(f"{name} is at most 24 days, not {getattr(self, name)!r:.60}")

    def delays(self) -> list[timedelta]:
        """The delay before each further attempt, of the first 20 at most."""
        delay, most = milliseconds("delay", self.delay), milliseconds("max_delay", self.max_delay)
        return [
            timedelta(milliseconds=int(min(delay * self.backoff**number, most)))
            for number in range(min(self.attempts - 1, 20))
        ]


@dataclass(frozen=True, slots=True)
class Property:
    """Marks a parameter whose value is a property of the message: ``region: Annotated[str, Property()]``.

    Args:
        name: of the property; that of the parameter if empty.
    """

    name: str = ""


@dataclass(frozen=True, slots=True)
class Header:
    """Marks a parameter whose value is a header of the message, None if it has none:
    ``to: Annotated[str | None, Header("JMSCorrelationID")]``.

    Args:
        name: of the header, as Jakarta Messaging spells it.
    """

    name: str

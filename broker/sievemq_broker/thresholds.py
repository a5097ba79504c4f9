"""When something needs an operator's attention: the table `attention` of the settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from sievemq_broker.rules import guess, table_of


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the rules in server/watch/findings.py. One that is 0 turns its rule off.

    Attributes:
        blocked_seconds: for which a sender waits for room.
        full_seconds: for which a queue is at its limit.
        no_consumer_seconds: for which messages wait and no consumer is open.
        stuck_seconds: for which a consumer holds messages and settles none.
        slow_client_seconds: for which a client reads too slowly.
        growing_messages: by which a queue grows in a minute, beside open consumers.
        dead_letters: new ones of a queue.
        refused_sends: at one destination, or elsewhere in a namespace, for one reason.
        rollbacks: transactions that one client rolls back in a minute.
        wrong_passwords: refused sign-ins.
        disk_percent: of the disk with the data directory in use.
        limit_percent: of the memory, the connections, the files, or the limit of a queue, in use.
        quiet_seconds: after which dead letters, refusals, rollbacks and sign-ins are over: no further one has come.
    """

    blocked_seconds: int = 2
    full_seconds: int = 10
    no_consumer_seconds: int = 60
    stuck_seconds: int = 300
    slow_client_seconds: int = 10
    growing_messages: int = 1_000
    dead_letters: int = 1
    refused_sends: int = 1
    rollbacks: int = 10
    wrong_passwords: int = 5
    disk_percent: int = 90
    limit_percent: int = 80
    quiet_seconds: int = 300


_NAMES = [field.name for field in fields(Thresholds)]


def parse_thresholds(value: object) -> Thresholds:
    """Thresholds from a table, or the same as JSON text.

    Raises:
        ValueError: it names the threshold and what is wrong.
    """
    if isinstance(value, Thresholds):
        return value
    table = table_of(value, "thresholds")
    for name, number in table.items():
        if name not in _NAMES:
            hint = guess(name, _NAMES) or f"; there are {', '.join(_NAMES)}"
            raise ValueError(f"has no threshold {name!r:.60}{hint}")
        if type(number) is not int or number < 0:
            raise ValueError(f"threshold {name} must be a whole number that is not negative, not {number!r:.60}")
    return Thresholds(**table)


def changed_thresholds(thresholds: Thresholds) -> dict[str, Any]:
    """The thresholds that differ from their defaults, as the table that makes them."""
    default = Thresholds()
    return {name: value for name in _NAMES if (value := getattr(thresholds, name)) != getattr(default, name)}

"""What has to be true of a run: every message is in each copy, once, as it was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

#: Messages that a fault names.
SHOWN = 10


def body_of(number: int) -> str:
    """The text of a message; nothing but its number decides it."""
    return f"{number} {sha256(str(number).encode()).hexdigest() * 3}"


@dataclass(frozen=True, slots=True)
class Row:
    """A message in the queue or in a copy.

    Attributes:
        number: that its producer gave it.
        body: its text.
        id: of the message, where a copy keeps it.
    """

    number: int
    body: str
    id: str | None = None


def check(confirmed: Collection[int], queue: Sequence[Row], copies: Mapping[str, Sequence[Row]]) -> list[str]:
    """Compare the copies with what was sent. Returns what is wrong.

    Args:
        confirmed: numbers of the messages whose send has returned.
        queue: what is in the queue that nothing consumes. A message whose send failed may be there or not.
        copies: what was made of it, by name.
    """
    wrong = _twice("the queue", queue)
    wrong += _listed("confirmed, but not in the queue", set(confirmed) - {row.number for row in queue})
    wrong += _listed("the queue: not what was sent", (row.number for row in queue if row.body != body_of(row.number)))
    sent = {row.number: row for row in queue}
    for name, copy in copies.items():
        wrong += _twice(name, copy)
        wrong += _listed(f"{name}: missing", sent.keys() - {row.number for row in copy})
        wrong += _listed(f"{name}: never sent", {row.number for row in copy} - sent.keys())
        wrong += _listed(f"{name}: another message", (row.number for row in copy if not _same(row, sent)))
    return wrong


def _same(row: Row, sent: Mapping[int, Row]) -> bool:
    there = sent.get(row.number)
    return there is None or (there.body == row.body and row.id in (None, there.id))


def _twice(name: str, rows: Sequence[Row]) -> list[str]:
    return _listed(
        f"{name}: more than once", (n for n, times in Counter(row.number for row in rows).items() if times > 1)
    )


def _listed(what: str, numbers: Iterable[int]) -> list[str]:
    found = sorted(numbers)
    more = ", …" if len(found) > SHOWN else ""
    return [f"{what}: {len(found)} ({', '.join(map(str, found[:SHOWN]))}{more})"] if found else []


def check_places(machines: Mapping[str, int], wanted: Collection[str], code: Collection[str], root: str) -> list[str]:
    """Check where tasks ran. Returns what is wrong.

    Args:
        machines: messages by the machine that a task with them ran on.
        wanted: the machines that have to be among them.
        code: files that sievemq_spark was imported from.
        root: the folder of a worker; code that comes from anywhere else was not sent there.
    """
    wrong = [f"no task ran on {machine}" for machine in sorted(set(wanted) - machines.keys())]
    return wrong + [f"a task used {path}" for path in sorted(code) if not path.startswith(f"{root}/")]

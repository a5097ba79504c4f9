"""Reads the journals of all players and says what the broker or a client did wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Which views a message sent to a destination reaches.
VIEWS = {"work": ("work",), "solo": ("solo",), "grouped": ("grouped",), "news": ("ledger", "crew")}
#: Those with one consumer at a time, where nothing is recalled: what is not marked comes in the order of sending.
ALONE = ("solo", "ledger")


def check(
    journals: Iterable[Path], drained: Mapping[str, Iterable[tuple[str, int]]]
) -> tuple[list[str], dict[str, int]]:
    """Account for every message.

    Args:
        journals: one per process.
        drained: view -> (key, delivery count) of what was left at the end, dead letters included.

    Returns:
        what is wrong, a line each; and how much was looked at.
    """
    sent: set[str] = set()
    confirmed: set[str] = set()
    staged: dict[str, list[str]] = defaultdict(list)
    asked: set[str] = set()
    committed: set[str] = set()
    rolled_back: set[str] = set()
    withdrawn: set[str] = set()
    failed = 0
    wrong: list[str] = []
    seen: dict[tuple[str, str], list[tuple[int, str, int]]] = defaultdict(list)
    done: dict[tuple[str, str], int] = {}
    died: Counter[str] = Counter()
    for path in journals:
        verb = ""
        words: list[str] = []
        for line in path.read_text().splitlines():
            time, verb, *words = line.split(" ")
            now = int(time)
            if verb == "S":
                sent.update(words)
            elif verb == "C":
                confirmed.update(words)
            elif verb == "T":
                staged[words[0]] += words[1:]
            elif verb == "TC":
                asked.add(words[0])
            elif verb == "TK":
                committed.add(words[0])
            elif verb == "D":
                view, consumer, key, count = words
                seen[view, key].append((now, consumer, int(count)))
            elif verb == "A":
                for key in words[1:]:
                    done[words[0], key] = now
            elif verb == "TR":
                rolled_back.add(words[0])
            elif verb == "F" and words[1] in ("CONNECTION_LOST", "TIMEOUT"):  # ended in an outage: it may be there
                failed += 1
            elif verb == "F" and words[1] == "SEND_TIMEOUT":
                withdrawn.add(words[0])
            elif verb in ("BAD", "F"):
                wrong.append(f"{path.name}: {line}")
        if verb == "W":
            died[words[0]] += 1
    end = 1 << 62  # after everything else
    for view, left in drained.items():
        for key, count in left:
            seen[view, key].append((end, "drain", count))

    certain = committed | {
        tx for tx in asked - rolled_back if any((view, key) in seen for key in staged[tx] for view in _views(key))
    }
    taken_along = _taken_along(died, seen, confirmed.union(*(staged[tx] for tx in certain)))
    for place in taken_along:
        seen[place] = []
    known = sent.union(*staged.values())
    wrong += [f"{key} in {view} was never sent" for view, key in seen if key not in known]
    wrong += [f"{key} came to {view}, whose send was withdrawn" for view, key in seen if key in withdrawn]
    for key in confirmed:
        wrong += [f"lost: {key} was confirmed and never came to {v}" for v in _views(key) if (v, key) not in seen]
    for tx, keys in staged.items():
        there = [(view, key) in seen for key in keys for view in _views(key)]
        if tx in committed and not all(there):
            missing = [f"{key} in {view}" for key in keys for view in _views(key) if (view, key) not in seen]
            few = ", ".join(missing[:3])
            wrong.append(f"lost: {there.count(False)} of {len(there)} of committed transaction {tx}: {few}")
        elif (tx not in asked or tx in rolled_back) and any(there):
            wrong.append(f"{there.count(True)} of {len(there)} of transaction {tx} came, which was not committed")
        elif any(there) and not all(there):
            wrong.append(f"{there.count(True)} of {len(there)} of transaction {tx}, neither all nor nothing")
    for (view, key), deliveries in seen.items():
        deliveries.sort()
        if sum(count == 1 for _, _, count in deliveries) > 1:
            wrong.append(f"doubled: {key} in {view} came unmarked more than once: {deliveries}")
        elif len({count for _, _, count in deliveries}) < len(deliveries):
            wrong.append(f"doubled: {key} in {view} came twice with one count: {deliveries}")
        if (view, key) in done and _came_again(deliveries, done[view, key], end):
            wrong.append(f"doubled: {key} in {view} came again after it was acknowledged: {deliveries}")
    wrong += _out_of_order(seen)
    figures = {"sent": len(known), "confirmed": len(confirmed), "transactions": len(committed)}
    figures |= {"rolled back": len(rolled_back), "failed": failed, "withdrawn": len(withdrawn)}
    figures["deliveries"] = sum(map(len, seen.values()))
    figures["redelivered"] = sum(count > 1 for deliveries in seen.values() for _, _, count in deliveries)
    figures["taken along"] = len(taken_along)
    figures["left"] = sum(len(list(left)) for left in drained.values())
    return wrong, figures


def _taken_along(
    died: Mapping[str, int], seen: Mapping[tuple[str, str], object], expected: Iterable[str]
) -> list[tuple[str, str]]:
    """What applications that were killed had from ``receive`` and had not noted yet, by view and key.

    A session that acknowledges by itself does so while ``receive`` returns (ACK-01): it promises nothing to an
    application that dies before its next step. That is one message at most for each that died there.

    Args:
        died: view -> how many of its consumers died there.
        seen: what was handed out to anybody, by view and key.
        expected: keys of all messages that had to come.
    """
    places = sorted((view, key) for key in expected for view in _views(key) if (view, key) not in seen)
    return [place for view, count in died.items() for place in [p for p in places if p[0] == view][:count]]


def _came_again(deliveries: list[tuple[int, str, int]], done: int, end: int) -> bool:
    """True if the broker delivered a message after it was acknowledged.

    A consumer whose connection is lost may be handed what it had buffered until it notices the loss, while somebody
    else has got the message again and is done with it: that was delivered before, as its lower count shows.
    """
    acknowledged = max((count for at, _, count in deliveries if at <= done), default=0)
    return any(at > done and (count > acknowledged or at == end) for at, _, count in deliveries)


def _views(key: str) -> tuple[str, ...]:
    return VIEWS[key.partition("/")[0]]


def _out_of_order(seen: Mapping[tuple[str, str], list[tuple[int, str, int]]]) -> list[str]:
    """Unmarked messages of one stream and priority in views that are read by one consumer at a time."""
    wrong = []
    last: dict[tuple[str, str, str], int] = {}
    unmarked = sorted(
        (at, int(key.split("/")[2]), view, key)
        for (view, key), deliveries in seen.items()
        if view in ALONE
        for at, consumer, count in deliveries
        if count == 1 and consumer != "drain"
    )
    for _, number, view, key in unmarked:
        _, stream, _, priority, _, _ = key.split("/")
        if number < last.get((view, stream, priority), -1):
            wrong.append(f"out of order: {key} in {view} after number {last[view, stream, priority]}")
        last[view, stream, priority] = number
    return wrong

"""How far a stream has come: for each source the tap and the sequence in it.

    {"main/queue:orders": {"tap": "k3v9x2-7.1", "seq": 8123}}

The key is the shard's name and the destination, with the namespace between them unless it is the default one. Where
both have a tap of the same id, that is the same source: a shard was renamed. An id is never reused. ``lost`` is there
once messages were lost that the query went on without (``failOnDataLoss=false``): how many, added up. ``after`` is
there in the first offset that names a source whose tap was read before: the sequence behind which the query begins.

The places of sources that a run does not read stay in its offsets, so that a later run goes on with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

JSON: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in one source.

    Attributes:
        tap: id of the tap; empty before it is known.
        seq: everything up to this sequence lies before.
        lost: messages that were lost on the way here.
        after: where the query began, if it is not the tap's beginning and no earlier offset says so.
    """

    tap: str = ""
    seq: int = 0
    lost: int = 0
    after: int = 0

    def upto(self, seq: int, before: Place | None) -> Place:
        """The place after more was read.

        Args:
            before: the place in the offset before; None if that does not name the source.
        """
        known = before is not None and before.tap == self.tap and seq > before.seq
        return replace(self, seq=seq, after=0 if known else self.after)


def places(offset: JSON) -> dict[str, Place]:
    return {
        key: Place(each["tap"], each["seq"], each.get("lost", 0), each.get("after", 0)) for key, each in offset.items()
    }


def place_in(found: Mapping[str, Place], key: str, tap: str) -> Place | None:
    """The place of a source in an offset: that of its tap, whatever its key was, or else that of its key."""
    return next((place for place in found.values() if place.tap == tap), found.get(key))


def moved(found: dict[str, Place], now: Mapping[str, Place]) -> dict[str, Place]:
    """An offset with the places of some sources, and without those that the same taps had under other keys."""
    taps = {place.tap for place in now.values()}
    return {key: place for key, place in found.items() if key in now or place.tap not in taps} | dict(now)


def shown(found: dict[str, Place]) -> JSON:
    """The place as an offset. Spark compares offsets as text, so equal places must have equal text."""
    return {
        key: {"tap": place.tap, "seq": place.seq}
        | {name: value for name, value in (("lost", place.lost), ("after", place.after)) if value}
        for key, place in sorted(found.items())
    }


def lag(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """The lag of a query in messages, by source: the latest message of its taps, less the last one read.

    Spark has no metrics for sources in Python (``sources[].metrics``), but shows both offsets.

    Args:
        progress: ``query.lastProgress``, or of a listener ``event.progress.json`` as loaded; None before the first.

    >>> place = '{{"main/queue:orders": {{"tap": "k3v9x2-7.1", "seq": {}}}}}'
    >>> lag({"sources": [{"endOffset": place.format(8123), "latestOffset": place.format(8200)}]})
    {'main/queue:orders': 77}
    """
    found: dict[str, int] = {}
    for source in (progress or {}).get("sources", ()):
        ends = [source.get(name) for name in ("endOffset", "latestOffset")]
        read = [json.loads(end) if isinstance(end, str) else end for end in ends]
        if all(_is_ours(end) for end in read):
            reached, latest = map(places, read)
            for key, place in latest.items():
                before = reached.get(key, Place())
                found[key] = max(0, place.seq - (before.seq if before.tap == place.tap else 0))
    return found


def _is_ours(offset: Any) -> bool:
    return isinstance(offset, Mapping) and all(
        isinstance(place, Mapping) and {"tap", "seq"} <= place.keys() for place in offset.values()
    )

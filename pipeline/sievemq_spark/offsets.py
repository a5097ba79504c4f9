"""How far a stream has come: for each source the tap and the sequence in it.

    {"queue:orders": {"tap": "k3v9x2-7.1", "seq": 8123}}

The key is the destination; with several brokers those from the second on are ``queue:orders#2``: hosts may move, and
the tap's id, which no other tap ever has, tells whether it is still the same one. ``lost`` is there once messages were
lost that the query went on without (``failOnDataLoss=false``): how many, added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["JSON", "Place", "places", "shown"]

JSON: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in one source.

    Attributes:
        tap: id of the tap; empty before it is known.
        seq: everything up to this sequence lies before.
        lost: messages that were lost on the way here.
    """

    tap: str = ""
    seq: int = 0
    lost: int = 0


def places(offset: JSON) -> dict[str, Place]:
    """The places that an offset names."""
    return {key: Place(each["tap"], each["seq"], each.get("lost", 0)) for key, each in offset.items()}


def shown(found: dict[str, Place]) -> JSON:
    """As an offset. Spark compares offsets as text, so equal places must be written equally."""
    return {
        key: {"tap": place.tap, "seq": place.seq} | ({"lost": place.lost} if place.lost else {})
        for key, place in sorted(found.items())
    }

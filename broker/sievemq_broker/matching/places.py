"""The places where selectors on one name are filed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sievemq_broker.matching.clue import Clue, Kind
from sievemq_broker.matching.condition import HEADERS
from sievemq_broker.matching.ranges import Ranges
from sievemq_core.selector.to_python import Matcher

Bucket = dict[Any, Matcher | None]
"""target -> function; None if it matches whenever it is found here."""

_NUMBERS = (int, float)


class More:
    """Places that are not found by a hash of the value."""

    __slots__ = ("absent", "prefixes", "present", "ranges")

    def __init__(self) -> None:
        self.absent: Bucket = {}
        self.present: Bucket = {}
        self.prefixes: dict[int, dict[str, Bucket]] = {}  # length -> prefix -> bucket
        self.ranges: Ranges[Bucket] = Ranges()

    def __bool__(self) -> bool:
        return bool(self.absent or self.present or self.prefixes or self.ranges)

    def hit(self, value: Any) -> Iterator[Bucket]:
        """The buckets of targets that may match a value, given as in the message, of any type."""
        if value is None or value.__class__ is bytes:  # a correlation id set as bytes is NULL to a selector
            if self.absent:
                yield self.absent
            return
        if self.present:
            yield self.present
        if isinstance(value, str):
            for length, buckets in self.prefixes.items():
                bucket = buckets.get(value[:length])
                if bucket is not None:
                    yield bucket
        elif self.ranges and isinstance(value, _NUMBERS) and value.__class__ is not bool:
            yield from self.ranges.hit(value)


class Places:
    """Buckets for one name.

    Attributes:
        name: theirs.
        position: where the envelope has the header field; None for a property.
        keys: by the value's key (``bucket_key``); in place of a bucket a target, where there is only one and no
            function to ask, as with most of many subscribers: it is found sooner, in less memory.
        more: by anything else; None until it is needed.
        most: the number of selectors that one value finds here, at most. A bucket that shrinks does not lower it.
    """

    __slots__ = ("_others", "_widest", "keys", "more", "name", "position")

    def __init__(self, name: str) -> None:
        self.name = name
        self.position: int | None = HEADERS.get(name)
        self.keys: dict[Any, Any] = {}
        self.more: More | None = None
        self._widest = 0
        self._others = 0

    @property
    def most(self) -> int:
        return self._widest + self._others

    def __bool__(self) -> bool:
        return bool(self.keys or self.more)

    def add(self, clue: Clue, target: Any, function: Matcher | None) -> None:
        """File a selector."""
        if clue.kind is Kind.KEYS:
            for key in clue.data:
                filed = self.keys.get(key)
                if filed is None:
                    filed = self.keys[key] = target if function is None else {target: function}
                elif filed.__class__ is dict:
                    filed[target] = function
                else:
                    filed = self.keys[key] = {filed: None, target: function}
                self._widest = max(self._widest, len(filed) if filed.__class__ is dict else 1)
            return
        self._others += _buckets(clue)
        more = self.more
        if more is None:
            more = self.more = More()
        match clue.kind:
            case Kind.PREFIXES:
                for text in clue.data:
                    more.prefixes.setdefault(len(text), {}).setdefault(text, {})[target] = function
            case Kind.ABSENT:
                more.absent[target] = function
            case Kind.PRESENT:
                more.present[target] = function
            case _:
                low, high = clue.data
                more.ranges.add(low, high, target, function)

    def remove(self, clue: Clue, target: Any) -> None:
        """Remove an entry of :meth:`add`; entries of the same bucket by another clue may be removed already."""
        if clue.kind is Kind.KEYS:
            for key in clue.data:
                filed = self.keys.get(key)
                if filed.__class__ is dict:
                    filed.pop(target, None)
                    if not filed:
                        del self.keys[key]
                elif filed == target:
                    del self.keys[key]
            return
        self._others -= _buckets(clue)
        more = self.more
        if more is None:
            return
        match clue.kind:
            case Kind.PREFIXES:
                for text in clue.data:
                    buckets = more.prefixes.get(len(text), {})
                    bucket = buckets.get(text, {})
                    bucket.pop(target, None)
                    if buckets and not bucket:
                        buckets.pop(text, None)
                        if not buckets:
                            del more.prefixes[len(text)]
            case Kind.ABSENT:
                more.absent.pop(target, None)
            case Kind.PRESENT:
                more.present.pop(target, None)
            case _:
                low, high = clue.data
                more.ranges.remove(low, high, target)
        if not more:
            self.more = None

    def fullest(self, clue: Clue) -> int:
        """The number of selectors in the fullest bucket of a clue."""
        if clue.kind is Kind.KEYS:
            filed = (self.keys[key] for key in clue.data if key in self.keys)
            return max((len(each) if each.__class__ is dict else 1 for each in filed), default=0)
        more = self.more
        if more is None:
            return 0
        match clue.kind:
            case Kind.PREFIXES:
                return max(len(more.prefixes.get(len(text), {}).get(text, ())) for text in clue.data)
            case Kind.ABSENT:
                return len(more.absent)
            case Kind.PRESENT:
                return len(more.present)
        return more.ranges.fullest(*clue.data)


def _buckets(clue: Clue) -> int:
    """The number of buckets outside of the keys that hold a selector with this clue."""
    return len(clue.data) if clue.kind is Kind.PREFIXES else 1

"""LIKE patterns, matched by segments between the ``%`` and never by a backtracking regular expression.

The first and the last segment are anchored; those between are searched from left to right, and the leftmost place is
always a right one, because everything may follow a ``%``. So hostile patterns such as ``%a%a%a%b`` cost one pass.

A character is a Unicode code point: ``_`` stands for one emoji, where a Java provider needs two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

__all__ = ["LikePattern", "PatternError", "parse_pattern"]

#: Plain text is searched in pieces of this size where it may overlap itself: one step then costs little.
_PIECE = 32

#: How many places a segment with ``_`` is tried one by one before the whole text is searched by bit sets.
_TRIES = 32

#: Rows of ``_`` between two ``%`` that count as one wildcard each.
_ROWS = 8

#: A character is frequent if more than one of so many is it.
_FREQUENT = 18

#: How many characters there are to an occurrence, at least, for occurrences to be searched for one by one.
_DENSE = 256


class PatternError(ValueError):
    """A pattern whose escape character escapes nothing; `position` is its offset in the pattern."""

    def __init__(self, position: int) -> None:
        super().__init__("the escape character is the last of the pattern")
        self.position = position


@dataclass(frozen=True, slots=True)
class Segment:
    """What stands between two ``%``: runs of plain text at fixed offsets, everything else is ``_``."""

    length: int
    runs: tuple[tuple[int, str], ...]
    #: The text, if there is no ``_`` in it.
    plain: str | None = field(init=False)

    def __post_init__(self) -> None:
        first = self.runs[0][1] if self.runs else ""
        object.__setattr__(self, "plain", first if len(first) == self.length else None)

    @property
    def rows(self) -> int:
        """Rows of ``_``."""
        if self.plain is not None:
            return 0
        if not self.runs:
            return 1
        first, (last, run) = self.runs[0][0], self.runs[-1]
        return len(self.runs) - 1 + (first > 0) + (last + len(run) < self.length)

    def fits(self, text: str, at: int) -> bool:
        """True if the segment stands at that place; the caller sees to it that there is room."""
        for offset, run in self.runs:  # noqa: SIM110  # all() with a generator takes three times as long
            if not text.startswith(run, at + offset):
                return False
        return True

    def find(self, text: str, start: int, end: int, seen: dict[str, int]) -> int:
        """The leftmost place of the segment inside ``text[start:end]``, or -1.

        Args:
            text: the whole text.
            start: first place to look at.
            end: behind the last character of the segment at most.
            seen: where pieces occur in this text, as far as known; shared by the segments of a pattern.
        """
        if not self.runs:
            return start if start + self.length <= end else -1
        offset, lead = max(self.runs, key=lambda run: len(run[1]))  # the longest run is the rarest
        last = end - self.length
        at = start
        for _ in range(_TRIES):
            at = text.find(lead, at + offset, last + offset + len(lead)) - offset
            if at < start:
                return -1
            if self.fits(text, at):
                return at
            at += 1
        return self._find_all(text, at, last, seen)

    def _find_all(self, text: str, start: int, last: int, seen: dict[str, int]) -> int:
        """The same where many places look right for long. Those of the rarest character are tried one by one, by an
        expression that repeats nothing; if even that one is frequent there are few others, and sets of places held as
        the bits of an int take no product of text and pattern length."""
        if last < start:
            return -1
        number, offset = min((text.count(c, start), at) for c, at in self._characters())
        if number * _FREQUENT < last - start:
            return self._find_by(text, start, last, offset)
        places = (1 << (last + 1)) - (1 << start)
        for offset, run in self.runs:
            for cut in range(0, len(run), _PIECE):
                piece = run[cut : cut + _PIECE]
                places &= _occurrences(text, piece, seen) >> (offset + cut)
                if not places:
                    return -1
        return (places & -places).bit_length() - 1

    def _characters(self) -> Iterator[tuple[str, int]]:
        """Each character of the runs, with one place of it."""
        places = {c: offset + at for offset, run in self.runs for at, c in enumerate(run)}
        return iter(places.items())

    def _find_by(self, text: str, start: int, last: int, offset: int) -> int:
        """The leftmost place, by way of the character that stands at an offset."""
        parts: list[str] = []
        end = 0
        for begin, run in self.runs:
            parts += f".{{{begin - end}}}", re.escape(run)
            end = begin + len(run)
        fits = re.compile("".join(parts), re.DOTALL).match
        character = _text_at(self.runs, offset)
        at = text.find(character, start + offset, last + offset + 1)
        while at >= 0:
            if fits(text, at - offset):
                return at - offset
            at = text.find(character, at + 1, last + offset + 1)
        return -1


def _text_at(runs: tuple[tuple[int, str], ...], offset: int) -> str:
    """The character that a segment has at an offset."""
    return next(run[offset - begin] for begin, run in runs if begin <= offset < begin + len(run))


_PERCENTS = re.compile("%%+")  # %% is %
_RUNS = re.compile("[^_]+")


def _segment(text: str) -> Segment:
    """A segment in which nothing is escaped."""
    return Segment(len(text), tuple((match.start(), match[0]) for match in _RUNS.finditer(text)))


def _occurrences(text: str, run: str, seen: dict[str, int]) -> int:
    """Bit n is set if `run` stands at n. A search per occurrence while they are few, otherwise from the bits of its two
    halves, down to single characters, for which Python's own loops do the work."""
    bits = seen.get(run)
    if bits is None:
        if len(run) == 1:
            bits = _bits_of(text, run)
        elif text.count(run) * _DENSE * len(run) < len(text):  # those that overlap are not counted
            places = bytearray(len(text))
            at = text.find(run)
            while at >= 0:
                places[at] = 1
                at = text.find(run, at + 1)
            bits = int(bytes(places[::-1]).translate(_ONES) or b"0", 2)
        else:
            half = 1 << (len(run) - 1).bit_length() - 1
            bits = _occurrences(text, run[:half], seen)
            bits &= _occurrences(text, run[half:], seen) >> half
        seen[run] = bits
    return bits


def _bits_of(text: str, character: str) -> int:
    """Bit n is set if the character stands at n: it becomes the byte 1, every other character another one."""
    if character != "\1":
        text = text.replace("\1", "\0" if character != "\0" else "\2").replace(character, "\1")
    return int(text.encode("ascii", "replace")[::-1].translate(_ONES) or b"0", 2)


#: Digits for int(): the byte 1 is "1", every other one "0".
_ONES = b"0" + b"1" + b"0" * 254


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern ready to match.

    Attributes:
        segments: at least one; between two of them stands a ``%``.
        minimum: characters that a match has at least.
        wildcards: how many ``%`` and ``_`` count: ``%%`` is one, and so is a row of ``_``. Where a text is searched for
            what stands between two ``%``, each row beyond the first few counts for eight there, and so does long text
            beside it for several: they are looked at again at every place that may be right.
    """

    segments: tuple[Segment, ...]
    minimum: int = field(init=False)
    wildcards: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "minimum", sum(segment.length for segment in self.segments))
        object.__setattr__(self, "wildcards", self._weight())

    def _weight(self) -> int:
        searched = [part for part in self.segments[1:-1] if part.plain is None]
        pieces = sum(len(run) // _PIECE for part in searched for _, run in part.runs)
        again = sum(7 * max(0, part.rows - _ROWS) for part in searched)
        return len(self.segments) - 1 + sum(segment.rows for segment in self.segments) + pieces + again

    @property
    def prefix(self) -> str:
        """Text that every match begins with; may be empty."""
        first = self.segments[0]
        return first.runs[0][1] if first.runs and first.runs[0][0] == 0 else ""

    @property
    def matches_all(self) -> bool:
        """True for ``%`` alone."""
        return self.minimum == 0 and len(self.segments) > 1

    @property
    def exact(self) -> str | None:
        """The only text that matches, if there is only one."""
        return self.segments[0].plain if len(self.segments) == 1 else None

    def matches(self, text: str) -> bool:
        """True if the pattern covers the whole text."""
        segments = self.segments
        size = len(text)
        if size < self.minimum:
            return False
        first = segments[0]
        if len(segments) == 1:
            return size == first.length and first.fits(text, 0)
        last = segments[-1]
        end = size - last.length
        if not first.fits(text, 0) or not last.fits(text, end):
            return False
        at = first.length
        seen: dict[str, int] = {}
        for segment in segments[1:-1]:
            plain = segment.plain
            found = text.find(plain, at, end) if plain is not None else segment.find(text, at, end, seen)
            if found < 0:
                return False
            at = found + segment.length
        return True


@lru_cache(256)
def parse_pattern(pattern: str, escape: str | None = None) -> LikePattern:
    """Read a pattern: ``%`` is any text, ``_`` any one character, the escape character takes that meaning away.

    The escape character in front of any other character is skipped; that character stands for itself.

    Raises:
        PatternError: the pattern ends with the escape character.
    """
    if escape is None or escape not in pattern:
        return LikePattern(tuple(map(_segment, _PERCENTS.sub("%", pattern).split("%"))))
    segments: list[Segment] = []
    runs: list[tuple[int, str]] = []
    run: list[str] = []
    length = 0

    def end_run() -> None:
        if run:
            runs.append((length - len(run), "".join(run)))
            run.clear()

    at, size = 0, len(pattern)
    while at < size:
        c = pattern[at]
        if c == escape:
            at += 1
            if at == size:
                raise PatternError(at - 1)
            run.append(pattern[at])
            length += 1
        elif c == "%":
            end_run()
            if length or not segments:  # %% is %
                segments.append(Segment(length, tuple(runs)))
            runs, length = [], 0
        elif c == "_":
            end_run()
            length += 1
        else:
            run.append(c)
            length += 1
        at += 1
    end_run()
    segments.append(Segment(length, tuple(runs)))
    return LikePattern(tuple(segments))

"""LIKE patterns, matched by segments between the ``%`` and never by a backtracking regular expression.

The first and the last segment are anchored; those between are searched from left to right, and the leftmost place is
always a right one, because everything may follow a ``%``. So hostile patterns such as ``%a%a%a%b`` cost one pass, and
no pass costs the product of text and pattern length: :attr:`LikePattern.searches` is how many passes there may be.

A character is a Unicode code point: ``_`` stands for one emoji, where a Java provider needs two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from sievemq_core.limits import MAX_LIKE_SEARCHES

#: str.find may compare as many characters as the two lengths multiplied. Below this product that takes no longer than
#: one linear pass over the longest text.
_PRODUCT = 250_000

#: From this length of the searched range on CPython's str.find is linear: for needles of _LONG characters from
#: _LINEAR_LONG on, if it is four times the needle's, and for others from _LINEAR on. A shorter text is padded.
_LONG, _LINEAR_LONG, _LINEAR = 100, 2_500, 30_000

#: Needles below this length never cost more than a few comparisons a character.
_SHORT = 6

#: How many places a segment with ``_`` is tried one by one before the whole text is searched by bit sets.
_TRIES = 8

#: Characters of a piece of such a segment: these are searched for together.
_PIECE = 16

#: Passes over the text that the bit set of a piece takes; and joined sets that take one.
_MAKING, _JOINED = 2, 32


class PatternError(ValueError):
    """A pattern whose escape character escapes nothing; `position` is its offset in the pattern."""

    def __init__(self, position: int) -> None:
        super().__init__("the escape character is the last of the pattern")
        self.position = position


@dataclass(frozen=True, slots=True)
class Segment:
    """The part between two ``%``: runs of plain text at fixed offsets, everything else is ``_``."""

    length: int
    runs: tuple[tuple[int, str], ...]
    #: The text, if there is no ``_`` in it.
    plain: str | None = field(init=False)

    def __post_init__(self) -> None:
        first = self.runs[0][1] if self.runs else ""
        object.__setattr__(self, "plain", first if len(first) == self.length else None)

    @property
    def rows(self) -> int:
        if self.plain is not None:
            return 0
        if not self.runs:
            return 1
        first, (last, run) = self.runs[0][0], self.runs[-1]
        return len(self.runs) - 1 + (first > 0) + (last + len(run) < self.length)

    def fits(self, text: str, at: int) -> bool:
        """True if the segment matches at that position; the caller ensures that there is room."""
        for offset, run in self.runs:  # noqa: SIM110  # all() with a generator takes three times as long
            if not text.startswith(run, at + offset):
                return False
        return True


class _Places:
    """Searches through one text, for the segments of one pattern."""

    __slots__ = ("_bits", "_padded", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._padded: str | None = None
        self._bits: dict[str, int] = {}

    def plain(self, needle: str, start: int, end: int) -> int:
        """``text.find(needle, start, end)``, in time that is linear in the text."""
        size = len(needle)
        linear = max(_LINEAR_LONG, min(4 * size, _LINEAR)) if size >= _LONG else _LINEAR
        if size < _SHORT or end - start >= linear or size * (end - start) < _PRODUCT:
            return self._text.find(needle, start, end)
        padded = self._padded
        if padded is None:
            padded = self._padded = self._text + "\0" * _LINEAR
        at = padded.find(needle, start, start + linear)
        return at if at + size <= end else -1  # no place before the leftmost, which is behind the end

    def segment(self, segment: Segment, start: int, end: int) -> int:
        """The leftmost place of a segment inside ``text[start:end]``, or -1."""
        if not segment.runs:
            return start if start + segment.length <= end else -1
        offset, lead = max(segment.runs, key=lambda run: len(run[1]))  # the longest run is the rarest
        last = end - segment.length
        at = start
        for _ in range(_TRIES):
            at = self.plain(lead, at + offset, last + offset + len(lead)) - offset
            if at < start:
                return -1
            if segment.fits(self._text, at):
                return at
            at += 1
        return self._by_sets(segment, at, last)

    def _by_sets(self, segment: Segment, start: int, last: int) -> int:
        """The same where many places look right: sets of places held as the bits of an int, for which Python's own
        loops do the work."""
        if last < start:
            return -1
        places = (1 << (last + 1)) - (1 << start)
        for offset, run in segment.runs:
            at = offset
            for piece in _pieces(run):
                places &= self._places(piece) >> at
                if not places:
                    return -1
                at += len(piece)
        return (places & -places).bit_length() - 1

    def _places(self, piece: str) -> int:
        """Bit n is set if the piece occurs at n: it is replaced there by the marker, which occurs nowhere else."""
        bits = self._bits.get(piece)
        if bits is None:
            marker, filler = [character for character in _MARKERS if character not in piece][:2]
            marked = self._text.replace(marker, filler).replace(piece, marker + filler * (len(piece) - 1))
            digits = bytearray(b"0" * 256)
            digits[ord(marker)] = _ONE
            bits = int(marked.encode("ascii", "replace")[::-1].translate(digits) or b"0", 2)
            self._bits[piece] = bits
        return bits


#: Two of them are not in a piece. Encoding makes none of them of any other character.
_MARKERS = "".join(map(chr, range(_PIECE + 2)))
_ONE = ord("1")


@lru_cache(1_024)
def _pieces(run: str) -> tuple[str, ...]:
    """The run in pieces none of which ends as it begins: so one never overlaps itself, and :meth:`str.replace` finds
    each place of it."""
    found: list[str] = []
    at = 0
    while at < len(run):
        rest = run[at : at + _PIECE]
        size = 1
        borders = [0] * len(rest)
        same = 0
        for place in range(1, len(rest)):
            while same and rest[place] != rest[same]:
                same = borders[same - 1]
            same += rest[place] == rest[same]
            borders[place] = same
            if not same:
                size = place + 1
        found.append(rest[:size])
        at += size
    return tuple(found)


_PERCENTS = re.compile("%%+")  # %% is %
_RUNS = re.compile("[^_]+")


def _segment(text: str) -> Segment:
    return Segment(len(text), tuple((match.start(), match[0]) for match in _RUNS.finditer(text)))


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern ready to match.

    Attributes:
        segments: at least one; between two of them stands a ``%``.
        minimum: characters that a match has at least.
        wildcards: how many ``%`` and ``_`` count: ``%%`` is one, and so is a row of ``_``.
        searches: passes over a text that a match takes at most. None where everything is anchored; one for what stands
            between two ``%``; where that has ``_`` in it, more for the different text beside it and its length.
    """

    segments: tuple[Segment, ...]
    minimum: int = field(init=False)
    wildcards: int = field(init=False, repr=False, compare=False)
    searches: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "minimum", sum(segment.length for segment in self.segments))
        wildcards = len(self.segments) - 1 + sum(segment.rows for segment in self.segments)
        object.__setattr__(self, "wildcards", wildcards)
        object.__setattr__(self, "searches", self._passes())

    def _passes(self) -> int:
        between = [segment for segment in self.segments[1:-1] if segment.length]
        runs = [run for segment in between if segment.plain is None for _, run in segment.runs]
        length = sum(map(len, runs))
        if length > _JOINED * MAX_LIKE_SEARCHES:
            return length // _JOINED  # too many: it is refused, and the pieces do not matter
        pieces = {piece for run in runs for piece in _pieces(run)}
        return bool(between) + _MAKING * len(pieces) + length // _JOINED

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
        if len(segments) == 2:
            return True
        at = first.length
        search = _Places(text)
        for segment in segments[1:-1]:
            plain = segment.plain
            found = search.plain(plain, at, end) if plain is not None else search.segment(segment, at, end)
            if found < 0:
                return False
            at = found + segment.length
        return True


@lru_cache(256)
def parse_pattern(pattern: str, escape: str | None = None) -> LikePattern:
    """Parse a pattern: ``%`` matches any text, ``_`` any one character; after the escape character they are literal.

    An escape character before any other character is skipped; that character matches itself.

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

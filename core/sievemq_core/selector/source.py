"""A selector's text as seen by error messages: spans, the error with its caret, warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sievemq_core.errors import ErrorCode, SieveError

Span = tuple[int, int]
"""A part of the selector: index of the first character, and of the one after the last, counted from 0."""

#: Characters of a selector shown around a mistake; the rest is cut with "…", so that an error fits a log line.
WINDOW = 100


#: Characters of a selector that an error sends back.
_ECHOED = 65_536


def render(selector: str, position: int, length: int) -> str:
    """Two lines: the part of the selector around `position`, and carets under the mistake.

    Args:
        position: 0-based offset of the first wrong character; may be the end of the text.
        length: how many characters are wrong; at least one caret is drawn.
    """
    position = max(0, min(position, len(selector)))
    start = max(selector.rfind("\n", 0, position), selector.rfind("\r", 0, position)) + 1
    ends = [at for at in (selector.find("\n", position), selector.find("\r", position)) if at >= 0]
    end = min(ends, default=len(selector))
    lead = trail = ""
    if end - start > WINDOW:
        left = max(start, min(position - WINDOW // 3, end - WINDOW))
        right = min(end, left + WINDOW)
        lead, trail = "…" if left > start else "", "…" if right < end else ""
        start, end = left, right
    line = "".join(c if c.isprintable() else " " for c in selector[start:end])
    carets = max(1, min(length, end - position))
    return f"  {lead}{line}{trail}\n  {' ' * (len(lead) + position - start)}{'^' * carets}"


class SelectorError(SieveError):
    """A selector that is not valid. ``str()`` shows the mistake with a caret under it.

    Attributes:
        message: what is wrong, in one sentence.
        selector: the whole text.
        position: 0-based offset of the mistake.
        length: how many characters it covers; 0 at the end of the text.
        expected: what could have stood there, or None.
        hint: what to write instead, or None.
    """

    code = ErrorCode.INVALID_SELECTOR

    def __init__(
        self,
        message: str,
        selector: str,
        position: int,
        length: int = 1,
        *,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        text = message
        if expected is not None:
            text += f"; expected {expected}"
        if hint is not None:
            text += f" ({hint})"
        super().__init__(
            f"{text}\n{render(selector, position, length)}",
            details={
                "position": position,
                "length": length,
                "selector": selector[:_ECHOED],
                "expected": expected,
                "hint": hint,
                "message": message,
            },
        )
        self.message = message
        self.selector = selector
        self.position = position
        self.length = length
        self.expected = expected
        self.hint = hint

    @classmethod
    def from_details(cls, text: str, details: Mapping[str, object]) -> Self:
        """The error as it was on the other side of the wire.

        Args:
            text: the text that crossed; used when `details` lacks the message.
            details: what :attr:`details` held; anything missing or of a wrong type is replaced by a harmless default.
        """

        def number(key: str) -> int:
            value = details.get(key)
            return value if type(value) is int and value >= 0 else 0

        def words(key: str) -> str | None:
            value = details.get(key)
            return value if isinstance(value, str) else None

        message = words("message")
        if message is None:
            message = text.partition("\n")[0]
            return cls(message, words("selector") or "", number("position"), number("length"))
        return cls(
            message,
            words("selector") or "",
            number("position"),
            number("length"),
            expected=words("expected"),
            hint=words("hint"),
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (str(self), self.details)


def _rebuild(text: str, details: dict[str, object]) -> SelectorError:
    return SelectorError.from_details(text, details)


@dataclass(frozen=True, slots=True)
class SelectorWarning:
    """A warning: legal, but probably not intended. Never a reason to refuse a selector.

    Attributes:
        code: stable name of the finding, such as ``never-matches``.
        message: the finding in one sentence.
        span: what part of the selector it is about.
    """

    code: str
    message: str
    span: Span

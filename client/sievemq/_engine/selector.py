"""Verification of a selector before it is sent: the first passes alone; the broker compiles it anyway (SEL-01).

One that differs from another only in its constants costs a microsecond or two (core/selector/shape.py).
"""

from __future__ import annotations

from functools import lru_cache

from sievemq.advice import DoubtfulSelectorWarning, warn
from sievemq.exceptions import from_core
from sievemq_core.errors import SieveError
from sievemq_core.selector import compile_selector, verify_selector
from sievemq_core.selector.cache import MAX_CHARS
from sievemq_core.selector.dialect import dialect_named

__all__ = ["verified", "warn_of_selector"]


def verified(selector: str | None, dialect: str) -> str | None:
    """The selector to send; None for none (SES-22, D-12). Warns of a doubtful one.

    Args:
        selector: what the application gave.
        dialect: its language.

    Raises:
        InvalidSelectorException: with the place of the mistake (SEL-02).
        TypeError: no text.
    """
    if selector is None:
        return None
    if not isinstance(selector, str):
        raise TypeError(f"a selector is a str or None, not {type(selector).__name__}")
    try:
        if not _is_condition(selector, dialect):
            return None
    except SieveError as error:
        raise from_core(error) from error
    warn_of_selector(selector, dialect)
    return selector


def warn_of_selector(selector: str, dialect: str) -> None:
    """Warn, at the application's line, of a valid selector that is doubtful: it cannot match, or lacks quotes."""
    for text in _doubts(selector, dialect):
        warn(f"{text} (in the selector {selector!r:.200})", DoubtfulSelectorWarning)


@lru_cache(maxsize=256)
def _doubts(selector: str, dialect: str) -> tuple[str, ...]:
    """The warnings of a selector; none of a very long one, which takes too long."""
    compiled = compile_selector(selector, dialect) if len(selector) <= MAX_CHARS else None
    return () if compiled is None else tuple(warning.message for warning in compiled.warnings)


@lru_cache(maxsize=256)  # an application uses the same few again and again
def _is_condition(selector: str, dialect: str) -> bool:
    return verify_selector(selector, dialect_named(dialect))

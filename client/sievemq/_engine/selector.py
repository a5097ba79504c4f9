"""Verification of a selector before it is sent: the first passes alone; the broker compiles it anyway (SEL-01).

One that differs from another only in its constants costs a microsecond or two (core/selector/shape.py).
"""

from __future__ import annotations

from functools import lru_cache

from sievemq.advice import DoubtfulSelectorWarning, warn
from sievemq.exceptions import from_core
from sievemq_core.errors import SieveError
from sievemq_core.selector import verify_selector
from sievemq_core.selector.dialect import dialect_named


def verified(selector: str | None, dialect: str) -> str | None:
    """The selector to send; None for none (SES-22, D-12). Warns of a doubtful one.

    Raises:
        InvalidSelectorException: with the place of the mistake (SEL-02).
        TypeError: no text.
    """
    if selector is None:
        return None
    if not isinstance(selector, str):
        raise TypeError(f"a selector is a str or None, not {type(selector).__name__}")
    try:
        doubts = _doubts(selector, dialect)
    except SieveError as error:
        raise from_core(error) from error
    if doubts is None:
        return None
    for text in doubts:
        warn(f"{text} (in the selector {selector!r:.200})", DoubtfulSelectorWarning)
    return selector


@lru_cache(maxsize=256)  # an application uses the same few again and again
def _doubts(selector: str, dialect: str) -> tuple[str, ...] | None:
    """Why a valid selector is doubtful: it cannot match, or lacks quotes. None if it is blank."""
    warnings = verify_selector(selector, dialect_named(dialect))
    return None if warnings is None else tuple([warning.message for warning in warnings])

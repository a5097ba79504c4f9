"""Verification of a selector before it is sent: the first passes alone; the broker compiles it anyway (SEL-01)."""

from __future__ import annotations

from functools import lru_cache

from sievemq.exceptions import from_core
from sievemq_core.errors import SieveError
from sievemq_core.selector.checker import check
from sievemq_core.selector.dialect import dialect_named
from sievemq_core.selector.lexer import WHITE_SPACE
from sievemq_core.selector.parser import parse
from sievemq_core.selector.source import SelectorError

__all__ = ["verified"]


def verified(selector: str | None, dialect: str) -> str | None:
    """The selector to send; None for none (SES-22, D-12).

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
        return selector if _is_condition(selector, dialect) else None
    except SieveError as error:
        raise from_core(error) from error


@lru_cache(maxsize=256)  # an application uses the same few again and again
def _is_condition(selector: str, dialect: str) -> bool:
    if not selector.strip(WHITE_SPACE):
        return False
    language = dialect_named(dialect)
    try:
        check(parse(selector, language), selector, language)
    except RecursionError:  # only if the caller's own stack is nearly full
        raise SelectorError("the selector is nested too deeply to be verified here", selector, 0, 0) from None
    return True

"""A selector ready for use, and the pipeline that makes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sievemq_core.message.values import PropertyValue
from sievemq_core.selector.advice import advise
from sievemq_core.selector.ast import Node
from sievemq_core.selector.cache import SelectorCache
from sievemq_core.selector.checker import check
from sievemq_core.selector.dialect import JAKARTA, Dialect, dialect_named
from sievemq_core.selector.evaluate import Truth, evaluate
from sievemq_core.selector.explain import Explanation, explain
from sievemq_core.selector.facts import Facts, alternatives, derive
from sievemq_core.selector.lexer import WHITE_SPACE
from sievemq_core.selector.names import Headers
from sievemq_core.selector.parser import parse
from sievemq_core.selector.plan import Test, make_plan
from sievemq_core.selector.portability import PortabilityNote, portability
from sievemq_core.selector.printer import canonical
from sievemq_core.selector.source import SelectorError, SelectorWarning
from sievemq_core.selector.to_python import Matcher, make_function, make_source

__all__ = ["CompiledSelector", "cache", "compile_selector"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CompiledSelector:
    """A valid selector in all its forms.

    Attributes:
        text: as it was given.
        canonical: equal for two selectors only if they have the same meaning; a key for grouping. In a dialect other
            than jakarta its name stands in front.
        dialect: whose rules apply.
        ast: the checked tree.
        plan: when the selector is TRUE, without UNKNOWN (plan.py).
        facts: necessary conditions for an index (facts.py).
        function: ``function(properties, headers) -> bool``, True only if the selector is TRUE. Cannot raise (D-14).
    """

    text: str
    canonical: str
    dialect: Dialect
    ast: Node = field(repr=False)
    plan: Test = field(repr=False)
    facts: Facts = field(repr=False)
    function: Matcher = field(repr=False)
    _warnings: list[SelectorWarning] | None = field(default=None, init=False, repr=False)

    @property
    def warnings(self) -> tuple[SelectorWarning, ...]:
        """What is legal and hardly meant; worked out when first asked for."""
        found = self._warnings
        if found is None:
            found = list(advise(self.ast, self.plan, self.facts, self.dialect))
            object.__setattr__(self, "_warnings", found)
        return tuple(found)

    @property
    def alternatives(self) -> tuple[tuple[Facts, ...], ...]:
        """For every OR that must be TRUE, the facts of its branches (facts.py); worked out anew at each call."""
        return alternatives(self.plan)

    @property
    def source(self) -> str:
        """The Python text of :attr:`function`."""
        return make_source(self.plan)

    def evaluate(self, properties: Mapping[str, PropertyValue], headers: Headers) -> Truth:
        """True, False, or None for UNKNOWN, by the reference interpreter; for explanations and tests, not for speed.

        Args:
            properties: the message's properties.
            headers: its headers by position, as in message/envelope.py.
        """
        return evaluate(self.ast, self.dialect, properties, headers)

    def explain(self, properties: Mapping[str, PropertyValue], headers: Headers) -> Explanation:
        """Why the message does or does not match: the truth value of every condition and the values behind it.

        Args:
            properties: the message's properties.
            headers: its headers by position, as in message/envelope.py.
        """
        return explain(self.ast, self.dialect, properties, headers)

    def portability(self) -> tuple[PortabilityNote, ...]:
        """Where another provider would refuse the selector or answer differently; from left to right."""
        return portability(self.ast, self.text, self.dialect)

    def __str__(self) -> str:
        return self.text


def compile_selector(text: str | None, dialect: str | Dialect = "jakarta") -> CompiledSelector | None:
    """Check a selector and make it ready for use.

    Args:
        text: the selector; None, empty or blank is no selector (D-12).
        dialect: ``jakarta``, ``ibm-mq`` or ``mqe``.

    Returns:
        The compiled selector, from a cache if the text was seen before; None if there is none.

    Raises:
        SelectorError: the selector is not valid; the error shows where and says what to write instead.
        ValueError: there is no such dialect.
        TypeError: `text` is no string.
    """
    if text is None:
        return None
    return cache.get(text, JAKARTA if dialect == "jakarta" else dialect_named(dialect))


def _compile(text: str, dialect: Dialect) -> CompiledSelector | None:
    if not isinstance(text, str):
        raise TypeError(f"a selector is a str or None, not {type(text).__name__}")
    if not text.strip(WHITE_SPACE):
        return None
    try:
        return _pipeline(text, dialect)
    except RecursionError:  # the limit on depth keeps clear of it unless the caller's own stack is nearly full
        raise SelectorError("the selector is nested too deeply to be compiled here", text, 0, len(text)) from None


def _pipeline(text: str, dialect: Dialect) -> CompiledSelector:
    names: set[str] = set()
    tree = parse(text, dialect, names)
    check(tree, text, dialect)
    plan = make_plan(tree, dialect)
    facts = derive(plan, names)
    key = canonical(tree)
    return CompiledSelector(
        text=text,
        canonical=key if dialect is JAKARTA else f"{dialect}: {key}",
        dialect=dialect,
        ast=tree,
        plan=plan,
        facts=facts,
        function=make_function(plan),
    )


#: Every compiled selector of this process.
cache: SelectorCache[Dialect, CompiledSelector | None] = SelectorCache(_compile)

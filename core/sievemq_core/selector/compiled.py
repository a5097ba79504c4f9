"""A selector ready for use, and the pipeline that makes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sievemq_core.message.values import PropertyValue
from sievemq_core.selector.advice import advise
from sievemq_core.selector.ast import Node
from sievemq_core.selector.cache import MAX_CHARS, SelectorCache
from sievemq_core.selector.checker import check
from sievemq_core.selector.dialect import JAKARTA, Dialect, dialect_named
from sievemq_core.selector.evaluate import Truth, evaluate
from sievemq_core.selector.facts import Facts, FactsTemplate, alternatives, derive
from sievemq_core.selector.lexer import WHITE_SPACE
from sievemq_core.selector.names import FieldType, Headers
from sievemq_core.selector.parser import parse
from sievemq_core.selector.plan import Constant, Field, OneOf, Relation, Test, effort_of, make_plan
from sievemq_core.selector.printer import canonical, print_literal
from sievemq_core.selector.shape import Outline, Parameter, Shapes, outline, parameters
from sievemq_core.selector.source import SelectorError, SelectorWarning
from sievemq_core.selector.to_python import Matcher, make_factory, make_function, make_source

if TYPE_CHECKING:
    from sievemq_core.selector.explain import Explanation
    from sievemq_core.selector.portability import PortabilityNote


class CompiledSelector:
    """A valid selector in all its forms. Forms that matching does not need are made on first use.

    Attributes:
        text: as it was given.
        dialect: whose rules apply.
        effort: what evaluating it takes at most (plan.effort_of).
        facts: necessary conditions for an index (facts.py).
        function: ``function(properties, headers) -> bool``, True only if the selector is TRUE. Cannot raise (D-14).
    """

    __slots__ = (
        "__weakref__", "_ast", "_canonical", "_lookup", "_plan", "_shape", "_warnings", "dialect", "effort", "facts",
        "function", "text",
    )  # fmt: skip

    def __init__(
        self,
        text: str,
        dialect: Dialect,
        facts: Facts,
        function: Matcher,
        effort: tuple[int, int],
        shape: _Shape | None = None,
        canonical: str | None = None,
        ast: Node | None = None,
        plan: Test | None = None,
    ) -> None:
        self.text = text
        self._canonical = canonical
        self.dialect = dialect
        self.facts = facts
        self.function = function
        self.effort = effort
        self._shape = shape
        self._ast = ast
        self._plan = plan
        self._lookup: bool | None = None
        self._warnings: tuple[SelectorWarning, ...] | None = None

    @property
    def canonical(self) -> str:
        """Equal for two selectors only if they have the same meaning; a key for grouping. In a dialect other than
        jakarta the key begins with the dialect's name."""
        key = self._canonical
        if key is None:
            key = canonical(self.ast)
            self._canonical = key = key if self.dialect is JAKARTA else f"{self.dialect}: {key}"
        return key

    @property
    def ast(self) -> Node:
        tree = self._ast
        if tree is None:
            tree = parse(self.text, self.dialect)
            if len(self.text) <= MAX_CHARS:  # a long one would take more memory than all the rest
                self._ast = tree
        return tree

    @property
    def plan(self) -> Test:
        """The condition under which the selector is TRUE, without UNKNOWN (plan.py)."""
        plan = self._plan
        if plan is None:
            plan = make_plan(self.ast, self.dialect)
            if len(self.text) <= MAX_CHARS:
                self._plan = plan
        return plan

    @property
    def warnings(self) -> tuple[SelectorWarning, ...]:
        """Warnings for legal but probably unintended parts; computed at first use."""
        shape = self._shape
        if shape is not None and shape.unremarkable:
            return ()
        found = self._warnings
        if found is None:
            found = self._warnings = advise(self.ast, self.plan, self.facts, self.dialect)
            if shape is not None and not found:
                shape.without_warnings()
        return found

    @property
    def alternatives(self) -> tuple[tuple[Facts, ...], ...]:
        """For every OR that must be TRUE, the facts of its branches (facts.py); computed again at each call."""
        if self._shape is not None and not self._shape.has_alternatives:
            return ()
        return alternatives(self.plan)

    @property
    def is_lookup(self) -> bool:
        """True if the selector only requires that one name has one of some texts. If a message's value is among the
        keys of :attr:`facts`, the function need not be called. Only texts qualify: they are equal as keys exactly if
        they are equal to a selector."""
        if self._shape is not None:
            return self._shape.is_lookup
        if self._lookup is None:
            self._lookup = _looks_up(self.plan)
        return self._lookup

    def keep(self, tree: Node, plan: Test) -> None:
        """Keep the parse result; of a long text keep only the parts that were parsed."""
        if len(self.text) <= MAX_CHARS:
            self._ast, self._plan = tree, plan
        else:
            self._lookup = _looks_up(plan)

    @property
    def source(self) -> str:
        return make_source(self.plan)

    def evaluate(self, properties: Mapping[str, PropertyValue], headers: Headers) -> Truth:
        """True, False, or None for UNKNOWN, by the reference interpreter; for explanations and tests, not for speed.

        Args:
            headers: its headers by position, as in message/envelope.py.
        """
        return evaluate(self.ast, self.dialect, properties, headers)

    def explain(self, properties: Mapping[str, PropertyValue], headers: Headers) -> Explanation:
        """Explain why the message does or does not match: the truth value of each condition and the values behind it.

        Args:
            headers: its headers by position, as in message/envelope.py.
        """
        from sievemq_core.selector.explain import explain  # for people, not for a broker's messages

        return explain(self.ast, self.dialect, properties, headers)

    def portability(self) -> tuple[PortabilityNote, ...]:
        """Report where another provider would refuse the selector or answer differently; from left to right."""
        from sievemq_core.selector.portability import portability  # as above

        return portability(self.ast, self.text, self.dialect)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"CompiledSelector({self.text!r}, dialect={self.dialect.name!r})"


def compile_selector(text: str | None, dialect: str | Dialect = "jakarta") -> CompiledSelector | None:
    """Check a selector and make it ready for use.

    Args:
        text: the selector; None, empty or blank is no selector (D-12).
        dialect: ``jakarta``, ``ibm-mq``, ``mqe`` or ``amqp``.

    Returns:
        The compiled selector, from a cache if the text was seen before; None if there is none.

    Raises:
        SelectorError: the selector is not valid; the error shows where, and what to write instead.
        ValueError: there is no such dialect.
        TypeError: `text` is no string.
    """
    if text is None:
        return None
    chosen = JAKARTA if dialect == "jakarta" else dialect_named(dialect)
    if isinstance(text, str) and len(text) > MAX_CHARS:
        return cache.share(text, chosen)
    return cache.get(text, chosen)


def verify_selector(text: str, dialect: Dialect) -> tuple[SelectorWarning, ...] | None:
    """Check a selector without keeping its code. One that differs from earlier ones only in its constants takes a
    fraction of the time.

    Returns:
        Its warnings; none of a text that is too long to be remembered, for which they take too long. None for one that
        is blank: there is no condition (D-12).

    Raises:
        SelectorError: it is not valid.
    """
    taken = outline(text) if dialect is JAKARTA else None
    if (
        taken is not None
        and (shape := _shapes.find(taken)) is not None
        and shape.unremarkable
        and shape.holds_for(taken[2])
    ):
        return ()
    if not text.strip(WHITE_SPACE):
        return None
    if len(text) > MAX_CHARS:
        try:
            check(parse(text, dialect), text, dialect)
        except RecursionError:
            raise _too_deep_here(text) from None
        return ()
    selector = cache.get(text, dialect)
    return None if selector is None else selector.warnings


def _compile(text: str, dialect: Dialect) -> CompiledSelector | None:
    if not isinstance(text, str):
        raise TypeError(f"a selector is a str or None, not {type(text).__name__}")
    taken = outline(text) if dialect is JAKARTA else None
    if (
        taken is not None
        and (shape := _shapes.find(taken)) is not None
        and (bound := shape.bind(text, taken)) is not None
    ):
        return bound
    if not text.strip(WHITE_SPACE):
        return None
    try:
        return _pipeline(text, dialect, taken)
    except RecursionError:
        raise _too_deep_here(text) from None


def _too_deep_here(text: str) -> SelectorError:
    """The limit on depth keeps clear of a RecursionError unless the caller's own stack is nearly full."""
    return SelectorError("the selector is nested too deeply to be compiled here", text, 0, len(text))


def _pipeline(text: str, dialect: Dialect, taken: Outline | None) -> CompiledSelector:
    names: set[str] = set()
    tree = parse(text, dialect, names)
    check(tree, text, dialect)
    plan = make_plan(tree, dialect)
    facts = derive(plan, names)
    if taken is not None and _shapes.is_known(taken) and (open_to := parameters(tree, text, taken)):
        shape = _Shape(tree, plan, facts, open_to)
        selector = shape.bind(text, taken)
        if selector is not None:
            selector.keep(tree, plan)
            _shapes.learn(taken, open_to, shape)
            return selector
    selector = CompiledSelector(text, dialect, facts, make_function(plan), effort_of(plan))
    selector.keep(tree, plan)
    return selector


def _looks_up(plan: Test) -> bool:
    """See :attr:`CompiledSelector.is_lookup`. The delivery mode is a number in the envelope."""
    match plan:
        case (
            OneOf(field=field, negated=False, holds=True)
            | Relation(op="=", left=Field() as field, right=Constant(value=str()), holds=True)
        ):
            return field.type in (FieldType.PROPERTY, FieldType.TEXT)
        case _:
            return False


_PLACES = re.compile("\0([0-9]+)\0")


class _Shape:
    """The shared part of selectors that differ only in the values of their constants (shape.py).

    Attributes:
        unremarkable: one of them was found to have no warnings, so none has.
        has_alternatives: there is an OR that an index could use.
        is_lookup: see :attr:`CompiledSelector.is_lookup`; all are, or none.
    """

    __slots__ = (
        "_arguments", "_canonical", "_effort", "_factory", "_facts", "_lists", "_ordered", "has_alternatives",
        "is_lookup", "unremarkable",
    )  # fmt: skip

    def __init__(self, tree: Node, plan: Test, facts: Facts, open_to: tuple[Parameter, ...]) -> None:
        self.unremarkable = False
        self.is_lookup = _looks_up(plan)
        self.has_alternatives = bool(alternatives(plan))
        self._effort = effort_of(plan)
        self._facts = FactsTemplate(facts, open_to)
        self._factory = make_factory(
            plan, {(place.name, op): f"p{number}" for number, place in enumerate(open_to) for op in place.ops}
        )
        #: the constant that each argument is; a list's is replaced
        self._arguments = [place.indexes[0] for place in open_to]
        self._lists = [(number, place.indexes) for number, place in enumerate(open_to) if len(place.indexes) > 1]
        self._ordered = [(place.above, place.indexes[0]) for place in open_to if place.above is not None]
        text = canonical(tree, {place.spans[0]: f"\0{number}\0" for number, place in enumerate(open_to)})
        #: the canonical text in pieces: what does not change, and in turn with it the constants to put in between
        pieces = _PLACES.split(text)
        self._canonical = pieces[::2], [open_to[int(number)].indexes for number in pieces[1::2]]

    def without_warnings(self) -> None:
        self.unremarkable = True

    def holds_for(self, values: list[str | int | float]) -> bool:
        """False if these values keep a selector from being like the others."""
        for low, high in self._ordered:
            if values[low] >= values[high]:  # type: ignore[operator]  # numbers
                return False
        for _, indexes in self._lists:  # noqa: SIM110  (on the path of each consumer: no generator)
            if len({values[index] for index in indexes}) < len(indexes):
                return False
        return True

    def bind(self, text: str, taken: Outline) -> CompiledSelector | None:
        """The selector with these constants; None if their values keep it from being like the others."""
        _, raws, values = taken
        if not self.holds_for(values):
            return None
        arguments: list[Any] = [values[index] for index in self._arguments]
        for number, indexes in self._lists:
            arguments[number] = frozenset([values[index] for index in indexes])
        pieces, constants = self._canonical
        key = pieces[0]
        for piece, indexes in zip(pieces[1:], constants, strict=True):
            if len(indexes) == 1:
                value = values[indexes[0]]
                # a string and a whole number are written as they are printed
                key += print_literal(value) if type(value) is float else raws[indexes[0]]
            else:
                key += ", ".join(sorted([raws[index] for index in indexes]))
            key += piece
        facts = self._facts.fill(values)
        return CompiledSelector(text, JAKARTA, facts, self._factory(*arguments), self._effort, self, key)


class _Cache(SelectorCache[Dialect, CompiledSelector | None]):
    """The selectors by text, and their shapes."""

    __slots__ = ()

    def clear(self) -> None:
        super().clear()
        _shapes.clear()


_shapes: Shapes[_Shape] = Shapes()

#: Every compiled selector of this process.
cache = _Cache(_compile)

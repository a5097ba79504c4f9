"""Selector: a condition on headers and properties, checked when it is made (§3.8)."""

from __future__ import annotations

from typing import NoReturn

from sievemq.exceptions import from_core
from sievemq.messages import Message, adopt
from sievemq.messages.foreign import ReadableMessage
from sievemq_core.selector import CompiledSelector, SelectorError, SelectorWarning, compile_selector
from sievemq_core.selector.explain import Explanation
from sievemq_core.selector.portability import PortabilityNote


class Selector:
    """A message selector, the same language that consumers, browsers, archives and analytics use.

    Args:
        text: the condition; None, empty or blank matches every message (SEL-03, D-12).
        dialect: ``jakarta``, the language as ``ibm-mq`` (D-15) or ``mqe`` (D-16) describe it, or ``amqp``: the SQL
            filters of AMQP Filter Expressions.

    Raises:
        InvalidSelectorException: the text has a mistake; the exception shows where, with a suggestion.
        ValueError: there is no such dialect.

    >>> from sievemq import Message
    >>> selector = Selector("region = 'EU' AND amount BETWEEN 10 AND 20")
    >>> selector.matches(Message(properties={"region": "EU", "amount": 12}))
    True
    >>> print(selector.evaluate(Message(properties={"region": "EU"})))
    None
    >>> Selector("region = 'EU' ANDD amount > 10")
    Traceback (most recent call last):
    sievemq.exceptions.InvalidSelectorException: ...
    """

    __slots__ = ("_compiled", "_dialect", "_text")

    _compiled: CompiledSelector | None
    _dialect: str
    _text: str

    def __init__(self, text: str | None, dialect: str = "jakarta") -> None:
        try:
            # the dialect is checked even where there is no selector
            compiled = compile_selector(text, dialect) if text else compile_selector(" ", dialect)
        except SelectorError as error:
            raise from_core(error) from error
        object.__setattr__(self, "_compiled", compiled)
        object.__setattr__(self, "_dialect", str(dialect))
        object.__setattr__(self, "_text", text or "")

    @property
    def text(self) -> str:
        """The text that was passed in."""
        return self._text

    @property
    def dialect(self) -> str:
        """The name of the dialect."""
        return self._dialect

    @property
    def canonical(self) -> str:
        """The text with the accidents of writing taken out; equal texts mean the same. Empty if there is no condition.

        >>> Selector("( a=1 )").canonical == Selector("a = 1").canonical
        True
        """
        return "" if self._compiled is None else self._compiled.canonical

    @property
    def warnings(self) -> tuple[SelectorWarning, ...]:
        """Warnings about legal but suspicious conditions, such as one that no message can meet."""
        return () if self._compiled is None else self._compiled.warnings

    def matches(self, message: Message | ReadableMessage) -> bool:
        """True if the selector is TRUE for the message (SEL-08); False if it is FALSE or UNKNOWN.

        Args:
            message: received, or made here: then headers that a send would set have their defaults. Another library's
                message counts as well (MSG-21).

        Raises:
            MessageFormatException: it is no message.
        """
        compiled = self._compiled
        ours = adopt(message)
        return compiled is None or compiled.function(ours._property_values(), ours._fields)

    def evaluate(self, message: Message | ReadableMessage) -> bool | None:
        """True, False, or None for UNKNOWN: a NULL decided, neither way (§3.8.1.2).

        Args:
            message: as for :meth:`matches`.
        """
        compiled = self._compiled
        ours = adopt(message)
        return True if compiled is None else compiled.evaluate(ours._property_values(), ours._fields)

    def explain(self, message: Message | ReadableMessage) -> Explanation:
        """Explain why the message does or does not match: each condition with its value and the reason, and which of
        them decided.

        Args:
            message: as for :meth:`matches`.

        Returns:
            A tree; ``str()`` is a table for people, ``as_dict()`` plain data.

        Raises:
            MessageFormatException: it is no message.

        >>> from sievemq import Message
        >>> print(Selector("region = 'EU' AND weight > 5").explain(Message(properties={"region": "EU"})))
        UNKNOWN region = 'EU' AND weight > 5  a part is UNKNOWN and none is FALSE
        TRUE      region = 'EU'               region is 'EU'
        UNKNOWN   weight > 5                  weight is absent  <- decides
        """
        compiled = self._compiled
        ours = adopt(message)
        if compiled is None:
            return Explanation.of_nothing()
        return compiled.explain(ours._property_values(), ours._fields)

    def portability(self) -> tuple[PortabilityNote, ...]:
        """Report where ActiveMQ Classic, Artemis, RabbitMQ, IBM MQ or Qpid Broker-J would refuse this selector or
        answer differently, the reasons, and a portable form; from left to right.

        >>> for note in Selector("NOT size <> 5").portability():
        ...     print(note.providers[0], note.rewrite)
        ActiveMQ Classic NOT (size <> 5)
        IBM MQ None
        ActiveMQ Classic (size < 5 OR size > 5)
        """
        return () if self._compiled is None else self._compiled.portability()

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        dialect = "" if self._dialect == "jakarta" else f", dialect={self._dialect!r}"
        return f"Selector({self._text!r}{dialect})"

    def __eq__(self, other: object) -> bool:
        """True for the same text in the same dialect; compare :attr:`canonical` for the same meaning."""
        if not isinstance(other, Selector):
            return NotImplemented
        return (self._text, self._dialect) == (other._text, other._dialect)

    def __hash__(self) -> int:
        return hash((self._text, self._dialect))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a selector is a value and cannot be changed: {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return Selector, (self._text, self._dialect)

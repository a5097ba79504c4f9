"""Rules of destinations, and limits of namespaces, as the settings and definitions spell them: tables by pattern."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Final, TypeVar, get_args

from sievemq_broker.domain.policy import (
    BLOCK,
    CHOICES,
    FAIL,
    WRITTEN,
    DestinationPolicy,
    NamespacePolicy,
    one_of,
)
from sievemq_core.durations import MILLISECOND, in_units
from sievemq_core.message.destination import Kind, misspelt_kind
from sievemq_core.selector.names import MODE_NUMBERS

P = TypeVar("P", DestinationPolicy, NamespacePolicy)

_POLICY = {f.name: f for f in fields(DestinationPolicy) if f.init}
_NAMESPACE_RULES = {f.name: f for f in fields(NamespacePolicy) if f.init}
#: Rules that are lengths of time, and what their numbers count.
_RULE_UNITS = {
    name: timedelta(seconds=1) if name.endswith("_seconds") else MILLISECOND
    for name, kind in WRITTEN.items()
    if timedelta in get_args(kind)
}
#: The values of a rule that is neither a whole number, nor a length of time, nor one of some words.
_RULE_VALUES: Mapping[str, str] = {
    "dead_letter_expired": "True or False",
    "redelivery_factor": "a number of at least 1",
    "delivery_mode": "PERSISTENT or NON_PERSISTENT",
    "priority": "a whole number from 0 to 9",
}
#: What other brokers call a rule.
_ELSEWHERE = {
    "max_retries": "max_attempts",
    "retries": "max_attempts",
    "max_redeliveries": "max_attempts",
    "maximum_redeliveries": "max_attempts",
    "max_deliveries": "max_attempts",
    "max_delivery_attempts": "max_attempts",
    "retry_delay": "redelivery_delay",
    "backoff": "redelivery_factor",
    "ttl": "time_to_live",
    "max_length": "max_messages",
    "max_size": "max_bytes",
}


def parse_policies(value: object) -> dict[str, DestinationPolicy]:
    """Rules of destinations (D-21, D-22).

    Args:
        value: pattern -> table of :class:`DestinationPolicy`'s attributes; or the same as JSON text. A pattern without
            ``queue:`` or the like is one of queues; ``*`` matches any text.

    Raises:
        ValueError: it names the pattern and what is wrong.
    """
    return {
        name: _named(_policy(str(pattern), table), name)
        for pattern, table in table_of(value, "patterns").items()
        for name in (pattern_of(str(pattern)),)
    }


def parse_namespaces(value: object) -> dict[str, NamespacePolicy]:
    """Rules of namespaces.

    Args:
        value: pattern over names -> table of :class:`NamespacePolicy`'s attributes; or the same as JSON text.

    Raises:
        ValueError: it names the pattern and what is wrong.
    """
    found: dict[str, NamespacePolicy] = {}
    for pattern, table in table_of(value, "patterns").items():
        if not isinstance(table, Mapping):
            raise ValueError(f"needs a table of rules for {pattern!r}")  # noqa: TRY004
        for name, rule in table.items():
            if name not in _NAMESPACE_RULES:
                raise ValueError(f"has no rule {name!r} for {pattern!r}{guess(name, _NAMESPACE_RULES)}")
            if not _fits(rule, _NAMESPACE_RULES[name].default):
                wanted = f"{BLOCK} or {FAIL}" if name == "at_limit" else _wanted(name)
                raise ValueError(f"rule {name} for {pattern!r} must be {wanted}, not {rule!r:.60}")
        try:
            found[str(pattern)] = _named(NamespacePolicy(**table), str(pattern))
        except ValueError as error:
            raise ValueError(f"for {pattern!r}: {error}") from None
    return found


def table_of(value: object, entries: str) -> Mapping[Any, Any]:
    """A setting that is a table.

    Args:
        value: the table; or the same as JSON text.
        entries: what it has, for the error.

    Raises:
        ValueError: it is no table.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"must be JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a table of {entries}")  # noqa: TRY004  an error about the file
    return value


def _named(policy: P, pattern: str) -> P:
    """The policy, which from now on knows the pattern that has it."""
    if policy.pattern != pattern:
        policy = replace(policy) if policy.pattern else policy
        object.__setattr__(policy, "pattern", pattern)
    return policy


def pattern_of(pattern: str) -> str:
    """A pattern over addresses, with the kind that a bare name means.

    Raises:
        ValueError: its kind is misspelt.
    """
    misspelt = misspelt_kind(pattern)
    if misspelt is not None:
        raise ValueError(f"has rules for {pattern!r}: {misspelt}")
    kinds = tuple(f"{kind.value}:" for kind in Kind)
    return pattern if pattern == "*" or pattern.startswith(kinds) else f"queue:{pattern}"


def _policy(pattern: str, table: object) -> DestinationPolicy:
    if isinstance(table, DestinationPolicy):
        return table
    if not isinstance(table, Mapping):
        raise ValueError(f"needs a table of rules for {pattern!r}")  # noqa: TRY004
    try:
        return DestinationPolicy(**policy_rules(table))
    except ValueError as error:
        raise ValueError(f"for {pattern!r}: {error}") from None


def policy_rules(table: Mapping[str, object]) -> dict[str, Any]:
    """Rules as :class:`DestinationPolicy` has them.

    Args:
        table: rules by name; lengths of time may be timedeltas, the delivery mode a text.

    Raises:
        ValueError: there is no such rule, or it cannot have the value.
    """
    rules: dict[str, Any] = dict(table)
    for name, value in rules.items():
        if name not in _POLICY:
            near = _ELSEWHERE.get(name)
            hint = f"; did you mean {near}?" if near else guess(name, _POLICY)
            raise ValueError(f"there is no rule {name!r:.60}{hint or '; there are ' + ', '.join(_POLICY)}")
        if value is None and _POLICY[name].default is None:
            continue
        number = MODE_NUMBERS.get(value.upper()) if isinstance(value, str) else value
        if name == "delivery_mode" and isinstance(number, int) and number is not True and number in (1, 2):
            rules[name] = int(number)
        elif name in _RULE_UNITS and isinstance(value, timedelta):
            rules[name] = in_units(value, _RULE_UNITS[name])
        elif name == "delivery_mode" or not _fits(value, _POLICY[name].default):
            raise ValueError(f"the rule {name} must be {_wanted(name)}, not {value!r:.60}")
    return rules


def _fits(value: object, default: object) -> bool:
    if type(default) is float:
        return type(value) in (int, float)
    return type(value) is (int if default is None else type(default))


def _wanted(name: str) -> str:
    if name in CHOICES:
        return one_of(CHOICES[name])
    if name in _RULE_UNITS:
        unit = "seconds" if name.endswith("seconds") else "milliseconds"
        return f"a whole number of {unit}, or a timedelta"
    return _RULE_VALUES.get(name, "a whole number")


def guess(name: str, known: Mapping[str, object] | list[str]) -> str:
    """``; did you mean NAME?`` with the nearest of the known names; nothing if none is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.85)
    return f"; did you mean {close[0]}?" if close else ""


_DEFAULTS: Final = (DestinationPolicy(), NamespacePolicy())


def rules_of(policy: DestinationPolicy | NamespacePolicy) -> dict[str, Any]:
    """A policy as the table that makes it: only the rules that differ from their defaults."""
    default = next(default for default in _DEFAULTS if type(default) is type(policy))
    return {
        name: value
        for name in (field.name for field in fields(policy) if field.init)
        if (value := getattr(policy, name)) != getattr(default, name)
    }

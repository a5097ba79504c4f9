"""Plans and facts in words, to show how a selector is evaluated."""

from __future__ import annotations

from math import inf

from sievemq_core.selector import plan
from sievemq_core.selector.facts import Facts, Key
from sievemq_core.selector.like import LikePattern
from sievemq_core.selector.printer import print_literal


def describe_plan(test: plan.Test, depth: int = 0) -> list[str]:
    """The plan as indented lines: what must hold for the selector to be TRUE."""
    lead = "  " * depth
    if isinstance(test, plan.All | plan.Any):
        lines = [f"{lead}{'all of' if isinstance(test, plan.All) else 'any of'}"]
        for part in test.tests:
            lines += describe_plan(part, depth + 1)
        return lines
    return [lead + _test(test)]


def _test(test: plan.Test) -> str:
    match test:
        case plan.Always():
            return "always" if test.value else "never"
        case plan.Relation():
            text = f"{_value(test.left)} {test.op} {_value(test.right)}{' of the same type' if test.strict else ''}"
            return text if test.holds else f"{text} is FALSE"
        case plan.OneOf():
            values = ", ".join(map(print_literal, sorted(test.values)))
            text = f"{test.field.name} {'NOT ' if test.negated else ''}IN ({values})"
            return text if test.holds else f"{text} is FALSE"
        case plan.EqualsOne():
            text = f"{test.field.name} is one of {', '.join(map(print_literal, test.constants))}"
            return text if test.holds else f"{text} is FALSE"
        case plan.Matches():
            text = f"{test.field.name} {'NOT ' if test.negated else ''}LIKE {_pattern(test.pattern)}"
            return text if test.holds else f"{text} is FALSE"
        case plan.Missing():
            return f"{_value(test.value)} is {'' if test.holds else 'not '}NULL"
        case plan.Truth():
            return f"{test.field.name} is {'TRUE' if test.holds else 'FALSE'}"
        case plan.Comparable():
            return f"{_value(test.left)} and {_value(test.right)} are comparable"
        case plan.IsNumber():
            return f"{_value(test.value)} is a number"
    raise AssertionError(test)  # All and Any were handled above


def _value(value: plan.Value) -> str:
    match value:
        case plan.Constant():
            return "NULL" if value.value is None else print_literal(value.value)
        case plan.Field():
            return value.name
        case plan.Compute():
            operands = [_value(operand) for operand in value.operands]
            return f"({f' {value.op} '.join(operands)})" if len(operands) > 1 else f"({value.op} {operands[0]})"


def _pattern(pattern: LikePattern) -> str:
    """The pattern with its wildcards; where a character is escaped in the text it is itself here."""
    parts: list[str] = []
    for segment in pattern.segments:
        characters = ["_"] * segment.length
        for offset, run in segment.runs:
            characters[offset : offset + len(run)] = run
        parts.append("".join(characters))
    return print_literal("%".join(parts))


def describe_facts(facts: Facts, alternatives: tuple[tuple[Facts, ...], ...] = ()) -> list[str]:
    """Describe the necessary conditions for a match, from which an index is built; empty if there are none."""
    if facts.never:
        return ["no message can match"]
    lines = _facts(facts)
    for branches in alternatives:
        known = [_facts(branch) for branch in branches]
        if all(known):
            lines.append(" or ".join(sorted({" and ".join(lines) for lines in known})))
    return list(dict.fromkeys(lines))


def _facts(facts: Facts) -> list[str]:
    lines = []
    told = set()
    for name, keys in facts.equalities:
        told.add(name)
        # 1 and 1.0 are one bucket
        shown = sorted({key: _key(key) for key in sorted(keys, key=lambda key: isinstance(key, float))}.values())
        lines.append(f"{name} = {shown[0]}" if len(shown) == 1 else f"{name} is one of {', '.join(shown)}")
    for name, texts in facts.prefixes:
        if name not in told:
            told.add(name)
            lines.append(f"{name} begins with {' or '.join(map(print_literal, sorted(texts)))}")
    for name, bounds in facts.ranges:
        if name not in told:
            told.add(name)
            low = "" if bounds.low == -inf else f"{bounds.low:.15g} <= "
            high = "" if bounds.high == inf else f" <= {bounds.high:.15g}"
            lines.append(f"{low}{name}{high}")
    lines += [f"{name} is NULL" for name in sorted(facts.absent - told)]
    lines += [f"{name} is not NULL" for name in sorted(facts.present - told)]
    return lines


def _key(key: Key) -> str:
    if isinstance(key, tuple):
        return str(key[1]).upper()
    return "NULL" if key is None else print_literal(key)

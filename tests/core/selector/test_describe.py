"""Plans and facts in words."""

from __future__ import annotations

import pytest

from sievemq_core.selector import compile_selector
from sievemq_core.selector.describe import describe_facts, describe_plan

#: (dialect, selector) -> its plan, what its index knows
WORDS: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("jakarta", "a = 1"): (["a = 1"], ["a = 1"]),
    ("jakarta", "NOT a = 'x'"): (["a = 'x' is FALSE"], ["a is not NULL"]),
    ("jakarta", "a = TRUE"): (["a = TRUE"], ["a = TRUE"]),
    ("jakarta", "NOT a"): (["a is FALSE"], ["a = FALSE"]),
    ("jakarta", "a IN ('x', 'y')"): (["a IN ('x', 'y')"], ["a is one of 'x', 'y'"]),
    ("jakarta", "NOT a NOT IN ('x')"): (["a NOT IN ('x') is FALSE"], ["a is not NULL"]),
    ("jakarta", "a LIKE 'x!%_y%' ESCAPE '!'"): (["a LIKE 'x%_y%'"], ["a begins with 'x%'"]),
    ("jakarta", "NOT a LIKE 'x%'"): (["a LIKE 'x%' is FALSE"], ["a is not NULL"]),
    ("jakarta", "a BETWEEN 1 AND 2.5"): (["all of", "  a >= 1", "  a <= 2.5"], ["1 <= a <= 2.5"]),
    ("jakarta", "a < 3 AND b IS NULL"): (["all of", "  a < 3", "  b is NULL"], ["a <= 3", "b is NULL"]),
    ("jakarta", "a * -b >= c"): (["(a * (- b)) >= c"], ["a is not NULL", "b is not NULL", "c is not NULL"]),
    ("jakarta", "TRUE"): (["always"], []),
    ("jakarta", "a = 1 AND a = 2"): (["all of", "  a = 1", "  a = 2"], ["no message can match"]),
    ("jakarta", "a = 1 / 0"): (["never"], ["no message can match"]),
    ("jakarta", "a > 1 OR b = 2"): (["any of", "  a > 1", "  b = 2"], ["1 <= a or b = 2"]),
    ("jakarta", "a > 1 OR b <> c OR 1 = 2"): (
        ["any of", "  a > 1", "  b <> c"],
        ["1 <= a or b is not NULL and c is not NULL"],
    ),
    ("jakarta", "JMSDeliveryMode = 'PERSISTENT'"): (
        ["JMSDeliveryMode IN ('PERSISTENT')"],
        ["JMSDeliveryMode = 'PERSISTENT'"],
    ),
    ("ibm-mq", "a + 1 > 2 OR b > 1"): (
        ["all of", "  (a + 1) and 2 are comparable", "  a is a number", "  b and 1 are comparable", "  any of",
         "    (a + 1) > 2", "    b > 1"],
        ["a is not NULL", "1 <= b or a is not NULL"],
    ),
    ("mqe", "a = 5"): (["a = 5 of the same type"], ["a = 5"]),
}  # fmt: skip


@pytest.mark.parametrize(("dialect", "text"), WORDS)
def test_words(dialect: str, text: str) -> None:
    selector = compile_selector(text, dialect)
    assert selector is not None
    plan, index = WORDS[dialect, text]
    assert describe_plan(selector.plan) == plan
    assert sorted(describe_facts(selector.facts, selector.alternatives)) == sorted(index)

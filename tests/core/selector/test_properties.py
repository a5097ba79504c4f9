"""Random selectors over random messages: every way to evaluate agrees, and nothing but SelectorError escapes."""

from __future__ import annotations

import ast as python_ast
import random
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sievemq_core.message.values import Byte, Float, Long, Short
from sievemq_core.selector import SelectorError, compile_selector, message_key
from sievemq_core.selector.ast import (
    And,
    Arithmetic,
    Between,
    Compare,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    Unary,
    walk,
)
from sievemq_core.selector.compiled import CompiledSelector
from sievemq_core.selector.dialect import DIALECTS
from sievemq_core.selector.evaluate import evaluate
from sievemq_core.selector.parser import parse
from sievemq_core.selector.printer import print_literal, print_selector

# -- messages -----------------------------------------------------------------------------------------------------

EDGES = [
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    127,
    128,
    2**24,
    2**24 + 1,
    2**31 - 1,
    -(2**31),
    2**31,
    2**53,
    2**53 + 1,
    2**62 + 2**38 + 1,
]
EDGES += [2**63 - 1, -(2**63), -(2**53) - 1]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    0.1,
    0.5,
    2.5,
    5.0,
    -7.0,
    2.0**24,
    2.0**53,
    2.0**63,
    1e308,
    5e-324,
    float("inf"),
    -float("inf"),
]
FLOATS += [float("nan")]
STRINGS = ["", "a", "b", "ab", "abc", "aab", "5", "TRUE", "%", "_", "a_b", "a%b", "it's", "é"]

integers = st.one_of(st.sampled_from(EDGES), st.integers(-10, 10))
floats = st.one_of(st.sampled_from(FLOATS), st.integers(-20, 20).map(lambda n: n / 4))
values = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    integers.map(Long),
    st.integers(-128, 127).map(Byte),
    st.integers(-5, 5).map(Short),
    floats,
    floats.map(Float),
    st.sampled_from(STRINGS),
)
PROPERTIES = ["a", "b", "c"]
#: The same three as they are called where names may have any characters.
QUOTED = {"a": "trace-id", "b": "b.c", "c": 'say "c"'}
messages = st.tuples(
    st.dictionaries(st.sampled_from(PROPERTIES), values),
    st.tuples(
        st.sampled_from([None, "ID:1", "a"]),  # message id
        st.sampled_from([0, 5, 2**53 + 1]),  # timestamp
        st.integers(0, 9),  # priority
        st.sampled_from([1, 2]),  # delivery mode
        st.just(0),
        st.just(0),
        st.sampled_from([None, "a", "ab", b"a"]),  # correlation id
        st.none(),
        st.sampled_from([None, "a", "abc"]),  # type
    ),
)

# -- selectors ----------------------------------------------------------------------------------------------------

HEADERS = ["JMSMessageID", "JMSTimestamp", "JMSPriority", "JMSDeliveryMode", "JMSCorrelationID", "JMSType"]
names = st.one_of(st.sampled_from(PROPERTIES), st.sampled_from(PROPERTIES + HEADERS)).map(Identifier)


def literal(value: Any) -> Node:
    """A literal as the parser would make it: a negative one is a sign in front of a positive one."""
    if type(value) is Long and not -(2**31) <= value < 2**31:
        value = int(value)  # a long by its size
    if type(value) in (int, Long) and value < 0:
        if value in (-(2**31), -(2**63)):
            return Literal(value)
        return Unary("-", literal(type(value)(-value)))
    if isinstance(value, float) and (value < 0 or str(value) == "-0.0"):
        return Unary("-", literal(type(value)(-value)))
    return Literal(value)


finite = floats.filter(lambda x: x == x and abs(x) != float("inf"))
numbers = st.one_of(
    integers, integers.map(Long), finite, finite.map(Float).filter(lambda x: x == 0 or 1e-40 < abs(x) < 1e38)
).map(literal)
strings = st.sampled_from([*STRINGS, "PERSISTENT", "NON_PERSISTENT", "ID:" + "0" * 48]).map(Literal)
booleans = st.booleans().map(Literal)

arithmetic = st.recursive(
    st.one_of(names, numbers),
    lambda inner: st.one_of(
        st.builds(Unary, st.sampled_from("+-"), inner.filter(lambda n: not isinstance(n, Literal))),
        st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner),
    ),
    max_leaves=4,
)
scalars = st.one_of(names, names, arithmetic, strings, booleans)
comparisons = st.one_of(
    st.builds(Compare, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), arithmetic, arithmetic),
    st.builds(Compare, st.sampled_from(["=", "<>"]), scalars, scalars),
    st.builds(Compare, st.sampled_from(["=", "<>"]), names, st.one_of(numbers, strings, booleans)),
)
patterns = st.text("ab%_!", max_size=6)
predicates = st.one_of(
    comparisons,
    comparisons,
    st.builds(Between, arithmetic, arithmetic, arithmetic, st.booleans()),
    st.builds(In, names, st.lists(strings, min_size=1, max_size=4).map(tuple), st.booleans()),
    st.builds(Like, names, patterns.map(Literal), st.sampled_from([None, Literal("!"), Literal("%")]), st.booleans()),
    st.builds(IsNull, names, st.booleans()),
    names,
    booleans,
)


def chain(kind: Any) -> Any:
    """N-ary, flattened as the parser does."""

    def build(operands: list[Node]) -> Node:
        flat: list[Node] = []
        for operand in operands:
            flat += operand.operands if isinstance(operand, kind) else [operand]
        return kind(tuple(flat))

    return build


conditions = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, min_size=2, max_size=4).map(chain(And)),
        st.lists(inner, min_size=2, max_size=4).map(chain(Or)),
    ),
    max_leaves=8,
)


def compiled(tree: Node, dialect: str) -> CompiledSelector:
    """The tree by way of its text; mistyped ones are another test's business."""
    try:
        selector = compile_selector(print_selector(tree), dialect)
    except SelectorError:
        assume(False)
    assert selector is not None
    return selector


@settings(max_examples=400)
@given(conditions, st.lists(messages, min_size=1, max_size=6), st.sampled_from(["jakarta", "jakarta", "ibm-mq"]))
def test_the_function_agrees_with_the_interpreter(tree: Node, batch: list[Any], dialect: str) -> None:
    selector = compiled(tree, dialect)
    for properties, headers in batch:
        expected = selector.evaluate(properties, headers)
        assert selector.function(properties, headers) is (expected is True), (selector.source, expected)


@settings(max_examples=150)
@given(
    st.lists(
        st.one_of(
            st.builds(Compare, st.just("="), names, st.one_of(numbers, strings, booleans, names)),
            st.builds(IsNull, names, st.just(False)),
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(messages, min_size=1, max_size=6),
)
def test_the_small_dialect_agrees_too(operands: list[Node], batch: list[Any]) -> None:
    tree = operands[0] if len(operands) == 1 else And(tuple(operands))
    selector = compiled(tree, "mqe")
    for properties, headers in batch:
        assert selector.function(properties, headers) is (selector.evaluate(properties, headers) is True)


def renamed(node: Any) -> Any:
    """The tree with other names for its properties."""
    if isinstance(node, Identifier):
        return Identifier(QUOTED.get(node.name, node.name))
    if isinstance(node, tuple):
        return tuple(map(renamed, node))
    if isinstance(node, Literal) or not is_dataclass(node):
        return node
    return replace(node, **{part.name: renamed(getattr(node, part.name)) for part in fields(node)})  # type: ignore[type-var]


@settings(max_examples=200)
@given(conditions, st.lists(messages, min_size=1, max_size=6))
def test_names_in_double_quotes_mean_what_others_mean(tree: Node, batch: list[Any]) -> None:
    """Both evaluators, the printed and the canonical text, and the names of which an index is built."""
    plain, quoted = compiled(tree, "jakarta"), compiled(renamed(tree), "amqp")
    again = compile_selector(quoted.canonical.removeprefix("amqp: "), "amqp")
    assert again is not None
    assert again.canonical == quoted.canonical
    assert quoted.facts.names == {QUOTED.get(name, name) for name in plain.facts.names}
    for properties, headers in batch:
        expected = plain.evaluate(properties, headers)
        other = {QUOTED[name]: value for name, value in properties.items()}
        assert quoted.evaluate(other, headers) is expected
        for selector in (quoted, again):
            assert selector.function(other, headers) is (expected is True)


@settings(max_examples=300)
@given(conditions)
def test_printing_and_parsing_give_the_same_tree(tree: Node) -> None:
    """For mistyped trees as well: the parser knows shapes only."""
    text = print_selector(tree)
    try:
        again = parse(text, DIALECTS["jakarta"])
    except SelectorError as error:  # a comparison as an operand cannot be reached by this generator
        raise AssertionError(text) from error
    assert again == tree
    assert print_selector(again) == text


@settings(max_examples=200)
@given(conditions, st.lists(messages, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_canonical_text_is_stable_and_means_the_same(tree: Node, batch: list[Any], chance: random.Random) -> None:
    selector = compiled(tree, "jakarta")
    again = compile_selector(selector.canonical)
    mixed = compile_selector(print_selector(shuffled(tree, chance)))
    assert again is not None
    assert mixed is not None
    assert again.canonical == selector.canonical == mixed.canonical
    for properties, headers in batch:
        truth = selector.evaluate(properties, headers)
        assert again.evaluate(properties, headers) is truth
        assert mixed.evaluate(properties, headers) is truth


def shuffled(node: Node, chance: random.Random) -> Node:
    """The same condition with the terms of AND and OR in another order and some of them twice."""
    match node:
        case And() | Or():
            operands = [shuffled(operand, chance) for operand in node.operands]
            operands += chance.sample(operands, chance.randint(0, 1))
            chance.shuffle(operands)
            return type(node)(tuple(operands))
        case Not():
            return Not(shuffled(node.operand, chance))
    return node


BESIDE = [5, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, 0, 1, 2.5, 0.1, -0.0, 16777217.0]
constants = st.one_of(
    st.sampled_from(BESIDE), st.integers(-5, 5), st.integers(-(10**17), 10**17), st.sampled_from(["a", "5", "it's"])
)


@settings(max_examples=300)
@given(
    st.sampled_from([*PROPERTIES, "JMSPriority", "JMSType", "JMSTimestamp"]),
    st.lists(constants, min_size=17, max_size=24),
    st.lists(messages, min_size=1, max_size=6),
    st.sampled_from(["jakarta", "ibm-mq"]),
    st.booleans(),
)
def test_a_long_chain_of_equalities_is_what_its_terms_are(
    name: str, chain: list[Any], batch: list[Any], dialect: str, negated: bool
) -> None:
    """D-01, D-04, D-05, D-15: interpreter and function of the one condition beside an OR of comparisons."""
    chain = [each for each in chain if each != 2**63 - 1]  # 18 digits are taken whole
    if len(chain) < 17:
        return
    text = " OR ".join(f"{name} = {print_literal(each)}" for each in chain)
    whole: Node = Or(tuple(Compare("=", Identifier(name), Literal(each)) for each in chain))
    if negated:
        text, whole = f"NOT ({text})", Not(whole)
    selector = compile_selector(text, dialect)
    assert selector is not None
    listed = next(part for part in walk(selector.ast) if isinstance(part, In))
    assert len(listed.items) == len(chain)
    for properties, headers in batch:
        expected = evaluate(whole, selector.dialect, properties, headers)
        assert selector.evaluate(properties, headers) is expected
        assert selector.function(properties, headers) is (expected is True)
        if expected is True and selector.facts.equalities:
            assert message_key(name, properties, headers) in selector.facts.equalities[0][1]
    again = compile_selector(selector.canonical.removeprefix(f"{dialect}: "), dialect)
    assert again is not None
    assert again.canonical == selector.canonical


@settings(max_examples=300)
@given(conditions, st.lists(messages, min_size=1, max_size=6), st.sampled_from(["jakarta", "ibm-mq"]))
def test_facts_are_necessary(tree: Node, batch: list[Any], dialect: str) -> None:
    """A message that matches satisfies every fact: an index finds too many candidates, never too few."""
    selector = compiled(tree, dialect)
    facts = selector.facts
    for properties, headers in batch:
        if not selector.function(properties, headers):
            assert not facts.always
            continue
        assert not facts.never
        keys = {name: message_key(name, properties, headers) for name in facts.names}
        for name, wanted in facts.equalities:
            assert keys[name] in wanted
        for name, bounds in facts.ranges:
            assert bounds.low <= keys[name] <= bounds.high
        for name, prefixes in facts.prefixes:
            assert keys[name].startswith(tuple(prefixes))
        assert all(keys[name] is not None for name in facts.present)
        assert all(keys[name] is None for name in facts.absent)


def negation(value: bool | None) -> bool | None:
    return None if value is None else not value


@settings(max_examples=200)
@given(st.data())
def test_the_plan_of_a_formula_follows_kleene(data: st.DataObject) -> None:
    """AND, OR, NOT over boolean properties against the definition by order: FALSE < UNKNOWN < TRUE."""
    order = {False: 0, None: 1, True: 2}

    def grow(depth: int) -> tuple[str, bool | None]:
        kind = data.draw(st.sampled_from(["leaf", "NOT", "AND", "OR"] if depth else ["leaf"]))
        if kind == "leaf":
            return data.draw(st.sampled_from([("t", True), ("f", False), ("u", None)]))
        if kind == "NOT":
            text, value = grow(depth - 1)
            return f"NOT ({text})", negation(value)
        parts = [grow(depth - 1) for _ in range(data.draw(st.integers(2, 3)))]
        pick = min if kind == "AND" else max
        return f" {kind} ".join(f"({text})" for text, _ in parts), pick((v for _, v in parts), key=order.__getitem__)

    text, expected = grow(4)
    selector = compile_selector(text)
    assert selector is not None
    assert selector.evaluate({"t": True, "f": False}, ()) is expected
    assert selector.function({"t": True, "f": False}, ()) is (expected is True)


def check_assignments(source: str) -> None:
    """Every local name is assigned wherever it is read, whichever way the evaluation goes."""
    function = python_ast.parse(source).body[0]
    assert isinstance(function, python_ast.FunctionDef)
    certain = {"properties", "headers"}

    def visit(node: python_ast.AST, known: set[str]) -> set[str]:
        """What is assigned after `node`, given what is before."""
        if isinstance(node, python_ast.BoolOp):
            after = known = visit(node.values[0], known)
            for value in node.values[1:]:
                known = visit(value, known)
            return after
        if isinstance(node, python_ast.IfExp):
            known = visit(node.test, known)
            return visit(node.body, known) & visit(node.orelse, known)
        if isinstance(node, python_ast.Name) and re.fullmatch(r"[vr]\d+|c", node.id):
            if isinstance(node.ctx, python_ast.Load):
                assert node.id in known, (node.id, source)
            else:
                known = known | {node.id}
        fields = (
            [node.value, node.target] if isinstance(node, python_ast.NamedExpr) else python_ast.iter_child_nodes(node)
        )
        for child in fields:
            known = visit(child, known)
        return known

    for statement in function.body:
        if isinstance(statement, python_ast.Assign):
            certain = visit(statement.targets[0], visit(statement.value, certain))
        else:
            visit(statement, certain)


def check_fetches(source: str) -> None:
    """No field is fetched at two places (JMSCorrelationID's fetch names its position once as well)."""
    fetches = re.findall(r"properties\.get\('(\w+)'\)|headers\[(\d+)\]", source)
    assert len(fetches) == len(set(fetches)), source


@settings(max_examples=300)
@given(conditions, st.sampled_from(["jakarta", "ibm-mq"]))
def test_generated_code_cannot_miss_a_variable(tree: Node, dialect: str) -> None:
    """D-14: by analysis of the code and not by luck with messages. Few names, so that they repeat."""
    source = compiled(tree, dialect).source
    check_assignments(source)
    check_fetches(source)


# -- text -----------------------------------------------------------------------------------------------------------

WORDS = """
a b JMSType JMSPriority JMSRedelivered x$ NULL TRUE FALSE NOT AND OR BETWEEN LIKE IN IS ESCAPE not and or ( ) , = <> <
<= > >= + - * / != == && || -- /* 'a' 'a%' '' ' " 5 0x1F 017 08 5L 1.5 .5 7. 1e3 1f 1e 0b1 1_0 9223372036854775808 é ; ?
. %
""".split()  # noqa: SIM905  # a list would take a hundred lines


@settings(max_examples=400)
@given(
    st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(["", " ", " ", "\n"]), st.sampled_from([*DIALECTS])
)
def test_random_tokens_raise_selector_errors_only(words: list[str], glue: str, dialect: str) -> None:
    check_text(glue.join(words), dialect)


@settings(max_examples=300)
@given(st.text(max_size=60), st.sampled_from([*DIALECTS]))
@example("\x00", "jakarta")
@example("'\ud800'= a", "jakarta")
@example("a\u0130 = 1", "jakarta")
def test_random_text_raises_selector_errors_only(text: str, dialect: str) -> None:
    check_text(text, dialect)


def check_text(text: str, dialect: str) -> None:
    try:
        selector = compile_selector(text, dialect)
    except SelectorError as error:
        check_error(error, text)
        return
    if selector is not None:
        selector.function({}, ("ID:1", 0, 4, 2, 0, 0, None, None, None))


def check_error(error: SelectorError, text: str) -> None:
    assert 0 <= error.position <= len(text)
    assert 0 <= error.length <= len(text) - error.position
    assert "^" in str(error)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_cut_selectors_raise_selector_errors_only(dialect: str) -> None:
    """Every prefix of a selector that uses everything."""
    text = (
        "NOT (a <> 0x1FL OR b NOT BETWEEN -1.5E3f AND +c / 2) AND d NOT LIKE 'a!%' ESCAPE '!'"
        " AND e IN ('x'''', 'y') OR f IS NOT NULL"
    )
    for end in range(len(text) + 1):
        check_text(text[:end], dialect)

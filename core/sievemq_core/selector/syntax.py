"""Python syntax nodes in the few shapes that compiled selectors need. Nodes are
never changed, so that one may stand in several places.

Every node carries a position, which Python's compiler demands; setting it here is several times cheaper than walking
the finished tree with ``ast.fix_missing_locations``.
"""

from __future__ import annotations

import ast
from typing import Any

__all__ = [
    "assign",
    "binary",
    "both",
    "call",
    "compare",
    "constant",
    "either",
    "factory",
    "function",
    "if_else",
    "is_none",
    "item",
    "load",
    "method",
    "named",
    "negated",
    "type_is",
    "within",
]

_AT: Any = {"lineno": 2, "col_offset": 4}  # the one line below "def"


# The nodes that are made most, with their position in the class: half the time of handing it to each. ``ast.unparse``
# knows nodes by the name of their class.
class Name(ast.Name):
    lineno, col_offset = 2, 4


class Constant(ast.Constant):
    lineno, col_offset = 2, 4


class NamedExpr(ast.NamedExpr):
    lineno, col_offset = 2, 4


class Compare(ast.Compare):
    lineno, col_offset = 2, 4


class Call(ast.Call):
    lineno, col_offset = 2, 4


class Attribute(ast.Attribute):
    lineno, col_offset = 2, 4


class BoolOp(ast.BoolOp):
    lineno, col_offset = 2, 4


_LOAD, _STORE = ast.Load(), ast.Store()
#: Nodes that say nothing but a name of the generated code. There are few such names, and nobody changes a node.
_LOADS: dict[str, ast.expr] = {}
_AND, _OR, _NOT = ast.And(), ast.Or(), ast.Not()
_IS, _IS_NOT = ast.Is(), ast.IsNot()


def load(name: str) -> ast.expr:
    """``name``"""
    node = _LOADS.get(name)
    if node is None:
        node = _LOADS[name] = Name(name, _LOAD)
    return node


def constant(value: Any) -> ast.expr:
    """A value as it is: user text never becomes anything else."""
    return Constant(value)


def named(name: str, value: ast.expr) -> ast.expr:
    """``(name := value)``"""
    return NamedExpr(Name(name, _STORE), value)


def assign(name: str, value: ast.expr) -> ast.stmt:
    """``name = value``"""
    return ast.Assign([Name(name, _STORE)], value, **_AT)


def compare(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> ast.expr:
    """``left operator right``"""
    return Compare(left, [operator], [right])


def within(low: int, subject: ast.expr, high: int) -> ast.expr:
    """``low <= subject <= high``"""
    return Compare(constant(low), [ast.LtE(), ast.LtE()], [subject, constant(high)])


def binary(left: ast.expr, operator: ast.operator, right: ast.expr) -> ast.expr:
    """``left operator right``"""
    return ast.BinOp(left, operator, right, **_AT)


def call(target: ast.expr, *arguments: ast.expr) -> ast.expr:
    """``target(arguments)``"""
    return Call(target, list(arguments), [])


def method(subject: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
    """``subject.name(arguments)``"""
    return call(Attribute(subject, name, _LOAD), *arguments)


def item(subject: ast.expr, index: int) -> ast.expr:
    """``subject[index]``"""
    return ast.Subscript(subject, constant(index), _LOAD, **_AT)


def both(*parts: ast.expr) -> ast.expr:
    """``part and part …``"""
    return BoolOp(_AND, list(parts))


def either(*parts: ast.expr) -> ast.expr:
    """``part or part …``"""
    return BoolOp(_OR, list(parts))


def negated(part: ast.expr) -> ast.expr:
    """``not part``"""
    return ast.UnaryOp(_NOT, part, **_AT)


def if_else(test: ast.expr, then: ast.expr, otherwise: ast.expr) -> ast.expr:
    """``then if test else otherwise``"""
    return ast.IfExp(test, then, otherwise, **_AT)


def type_is(subject: ast.expr, kind: str) -> ast.expr:
    """``type(subject) is kind``"""
    return compare(call(load("type"), subject), _IS, load(kind))


def is_none(subject: ast.expr, yes: bool = True) -> ast.expr:
    """``subject is None``, or ``is not None``"""
    return compare(subject, _IS if yes else _IS_NOT, constant(None))


def function(name: str, parameters: list[str], body: list[ast.stmt], result: ast.expr) -> ast.Module:
    """A module with one function that returns `result`."""
    arguments = ast.arguments([], [ast.arg(parameter, **_AT) for parameter in parameters], None, [], [], None, [])
    # by keyword, because the positional form of FunctionDef differs between Python versions
    definition = ast.FunctionDef(
        name=name,
        args=arguments,
        body=[*body, ast.Return(result, **_AT)],
        decorator_list=[],
        lineno=1,
        col_offset=0,
    )
    if "type_params" in definition._fields:  # Python 3.12
        definition.type_params = []  # type: ignore[attr-defined,unused-ignore]
    return ast.Module([definition], [])


def factory(name: str, parameters: list[str], inner: ast.Module) -> ast.Module:
    """A module with one function that makes the function of `inner`, which may use the parameters."""
    definition = inner.body[0]
    assert isinstance(definition, ast.FunctionDef)
    return function(name, parameters, [definition], load(definition.name))

"""Python syntax nodes in the few shapes that compiled selectors need. Nodes are never changed, so that one may stand in
several places. Each has a position, which Python's compiler demands; to set it here is several times cheaper than to
walk the finished tree with ``ast.fix_missing_locations``.
"""

from __future__ import annotations

import ast
from typing import Any

#: All of a function is on the one line below "def".
_AT: Any = {"lineno": 2, "col_offset": 4}
_LOAD, _STORE = ast.Load(), ast.Store()
_AND, _OR, _NOT = ast.And(), ast.Or(), ast.Not()
_IS, _IS_NOT, _NOT_ABOVE = ast.Is(), ast.IsNot(), ast.LtE()
_NONE, _TRUE, _FALSE = ast.Constant(None, **_AT), ast.Constant(True, **_AT), ast.Constant(False, **_AT)


def load(name: str) -> ast.expr:
    return ast.Name(name, _LOAD, **_AT)


def constant(value: Any) -> ast.expr:
    """A value as it is: user text never becomes anything else."""
    return ast.Constant(value, **_AT)


def named(name: str, value: ast.expr) -> ast.expr:
    """``(name := value)``"""
    return ast.NamedExpr(ast.Name(name, _STORE, **_AT), value, **_AT)


def assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, _STORE, **_AT)], value, **_AT)


def compare(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> ast.expr:
    return ast.Compare(left, [operator], [right], **_AT)


def within(low: int, subject: ast.expr, high: int) -> ast.expr:
    """``low <= subject <= high``"""
    return ast.Compare(constant(low), [_NOT_ABOVE, _NOT_ABOVE], [subject, constant(high)], **_AT)


def binary(left: ast.expr, operator: ast.operator, right: ast.expr) -> ast.expr:
    return ast.BinOp(left, operator, right, **_AT)


def call(target: ast.expr, *arguments: ast.expr) -> ast.expr:
    return ast.Call(target, list(arguments), [], **_AT)


def method(subject: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
    """``subject.name(arguments)``"""
    return ast.Call(ast.Attribute(subject, name, _LOAD, **_AT), list(arguments), [], **_AT)


def item(subject: ast.expr, index: int) -> ast.expr:
    """``subject[index]``"""
    return ast.Subscript(subject, ast.Constant(index, **_AT), _LOAD, **_AT)


def both(*parts: ast.expr) -> ast.expr:
    """``part and part …``"""
    return ast.BoolOp(_AND, list(parts), **_AT)


def either(*parts: ast.expr) -> ast.expr:
    """``part or part …``"""
    return ast.BoolOp(_OR, list(parts), **_AT)


def negated(part: ast.expr) -> ast.expr:
    """``not part``"""
    return ast.UnaryOp(_NOT, part, **_AT)


def truth(test: ast.expr) -> ast.expr:
    """``True if test else False``"""
    return ast.IfExp(test, _TRUE, _FALSE, **_AT)


def if_else(test: ast.expr, then: ast.expr, otherwise: ast.expr) -> ast.expr:
    """``then if test else otherwise``"""
    return ast.IfExp(test, then, otherwise, **_AT)


def type_is(subject: ast.expr, kind: str) -> ast.expr:
    """``type(subject) is kind``"""
    return ast.Compare(call(load("type"), subject), [_IS], [load(kind)], **_AT)


def is_none(subject: ast.expr, yes: bool = True) -> ast.expr:
    """``subject is None``, or ``is not None``"""
    return ast.Compare(subject, [_IS if yes else _IS_NOT], [_NONE], **_AT)


def function(name: str, parameters: list[str], body: list[ast.stmt], result: ast.expr) -> ast.Module:
    """A module with one function that returns `result`."""
    arguments = ast.arguments([], [ast.arg(parameter, **_AT) for parameter in parameters], None, [], [], None, [])
    # by keyword, because the positional form of FunctionDef differs between Python versions
    newer: dict[str, Any] = {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}  # Python 3.12
    lines = [*body, ast.Return(result, **_AT)]
    return ast.Module(
        [ast.FunctionDef(name=name, args=arguments, body=lines, decorator_list=[], lineno=1, col_offset=0, **newer)], []
    )


def factory(name: str, parameters: list[str], inner: ast.Module) -> ast.Module:
    """A module with one function that makes the function of `inner`, which may use the parameters."""
    definition = inner.body[0]
    assert isinstance(definition, ast.FunctionDef)
    return function(name, parameters, [definition], load(definition.name))

"""Python syntax nodes in the few shapes that compiled selectors need. Nodes are never changed, so that one may stand in
several places.

Every node carries a position, which Python's compiler demands; setting it here is several times cheaper than walking
the finished tree with ``ast.fix_missing_locations``.
"""

from __future__ import annotations

import ast
from typing import Any

_LINE, _COLUMN = 2, 4  # the one line below "def"


# Nodes with their position in the class and their own __init__ take half the time of ast's. ``ast.unparse`` recognises
# nodes by the name of their class.
class Name(ast.Name):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, name: str, context: ast.expr_context) -> None:
        self.id, self.ctx = name, context


class Constant(ast.Constant):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, value: Any) -> None:
        self.value = value


class NamedExpr(ast.NamedExpr):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, target: ast.Name, value: ast.expr) -> None:
        self.target, self.value = target, value


class Compare(ast.Compare):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr]) -> None:
        self.left, self.ops, self.comparators = left, operators, others


class Call(ast.Call):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, target: ast.expr, arguments: list[ast.expr]) -> None:
        self.func, self.args, self.keywords = target, arguments, []


class Attribute(ast.Attribute):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, subject: ast.expr, name: str) -> None:
        self.value, self.attr, self.ctx = subject, name, _LOAD


class Subscript(ast.Subscript):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, subject: ast.expr, index: ast.expr) -> None:
        self.value, self.slice, self.ctx = subject, index, _LOAD


class BoolOp(ast.BoolOp):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, operator: ast.boolop, parts: list[ast.expr]) -> None:
        self.op, self.values = operator, parts


class UnaryOp(ast.UnaryOp):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, operator: ast.unaryop, operand: ast.expr) -> None:
        self.op, self.operand = operator, operand


class BinOp(ast.BinOp):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, left: ast.expr, operator: ast.operator, right: ast.expr) -> None:
        self.left, self.op, self.right = left, operator, right


class IfExp(ast.IfExp):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> None:
        self.test, self.body, self.orelse = test, then, otherwise


class Assign(ast.Assign):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, target: ast.expr, value: ast.expr) -> None:
        self.targets, self.value = [target], value


class Return(ast.Return):
    lineno, col_offset = _LINE, _COLUMN

    def __init__(self, value: ast.expr) -> None:
        self.value = value


_LOAD, _STORE = ast.Load(), ast.Store()
#: Nodes that are only a name of the generated code. There are few such names, and no node is changed.
_LOADS: dict[str, ast.expr] = {}
_AND, _OR, _NOT = ast.And(), ast.Or(), ast.Not()
_IS, _IS_NOT, _NOT_ABOVE = ast.Is(), ast.IsNot(), ast.LtE()
_NONE, _TRUE, _FALSE = Constant(None), Constant(True), Constant(False)
#: The parameters of the functions that are made.
_PARAMETERS: dict[tuple[str, ...], ast.arguments] = {}


def load(name: str) -> ast.expr:
    """``name``"""
    node = _LOADS.get(name)
    if node is None:
        node = _LOADS[name] = Name(name, _LOAD)
    return node


def constant(value: Any) -> ast.expr:
    """A value as it is: user text never becomes anything else."""
    if value is None:
        return _NONE
    return Constant(value)


def named(name: str, value: ast.expr) -> ast.expr:
    """``(name := value)``"""
    return NamedExpr(Name(name, _STORE), value)


def assign(name: str, value: ast.expr) -> ast.stmt:
    """``name = value``"""
    return Assign(Name(name, _STORE), value)


def compare(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> ast.expr:
    """``left operator right``"""
    return Compare(left, [operator], [right])


def within(low: int, subject: ast.expr, high: int) -> ast.expr:
    """``low <= subject <= high``"""
    return Compare(constant(low), [_NOT_ABOVE, _NOT_ABOVE], [subject, constant(high)])


def binary(left: ast.expr, operator: ast.operator, right: ast.expr) -> ast.expr:
    """``left operator right``"""
    return BinOp(left, operator, right)


def call(target: ast.expr, *arguments: ast.expr) -> ast.expr:
    """``target(arguments)``"""
    return Call(target, list(arguments))


def method(subject: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
    """``subject.name(arguments)``"""
    return Call(Attribute(subject, name), list(arguments))


def item(subject: ast.expr, index: int) -> ast.expr:
    """``subject[index]``"""
    return Subscript(subject, Constant(index))


def both(*parts: ast.expr) -> ast.expr:
    """``part and part …``"""
    return BoolOp(_AND, list(parts))


def either(*parts: ast.expr) -> ast.expr:
    """``part or part …``"""
    return BoolOp(_OR, list(parts))


def negated(part: ast.expr) -> ast.expr:
    """``not part``"""
    return UnaryOp(_NOT, part)


def truth(test: ast.expr) -> ast.expr:
    """``True if test else False``"""
    return IfExp(test, _TRUE, _FALSE)


def if_else(test: ast.expr, then: ast.expr, otherwise: ast.expr) -> ast.expr:
    """``then if test else otherwise``"""
    return IfExp(test, then, otherwise)


def type_is(subject: ast.expr, kind: str) -> ast.expr:
    """``type(subject) is kind``"""
    return Compare(Call(load("type"), [subject]), [_IS], [load(kind)])


def is_none(subject: ast.expr, yes: bool = True) -> ast.expr:
    """``subject is None``, or ``is not None``"""
    return Compare(subject, [_IS if yes else _IS_NOT], [_NONE])


def _parameters(names: list[str]) -> ast.arguments:
    key = tuple(names)
    known = _PARAMETERS.get(key)
    if known is None:  # two of selectors, and p0, p1 … of as many shapes as there are numbers of constants
        listed = [ast.arg(name, lineno=_LINE, col_offset=_COLUMN) for name in names]
        known = _PARAMETERS[key] = ast.arguments([], listed, None, [], [], None, [])
    return known


def function(name: str, parameters: list[str], body: list[ast.stmt], result: ast.expr) -> ast.Module:
    """A module with one function that returns `result`."""
    arguments = _parameters(parameters)
    # by keyword, because the positional form of FunctionDef differs between Python versions
    newer: dict[str, Any] = {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}  # Python 3.12
    definition = ast.FunctionDef(
        name=name,
        args=arguments,
        body=[*body, Return(result)],
        decorator_list=[],
        lineno=1,
        col_offset=0,
        **newer,
    )
    return ast.Module([definition], [])


def factory(name: str, parameters: list[str], inner: ast.Module) -> ast.Module:
    """A module with one function that makes the function of `inner`, which may use the parameters."""
    definition = inner.body[0]
    assert isinstance(definition, ast.FunctionDef)
    return function(name, parameters, [definition], load(definition.name))

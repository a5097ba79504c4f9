"""Everything public has a docstring that a reader can work with, in both APIs and in what they share."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

import sievemq
import sievemq.aio

APIS = {"blocking": sievemq, "aio": sievemq.aio}
#: Parameters that name and type of the method explain: set_int_property(name, value).
PLAIN = [["name", "value"], ["name", "value", "offset", "length"]]


def classes(api: Any) -> Iterator[tuple[str, type[Any]]]:
    for name in api.__all__:
        if inspect.isclass(getattr(api, name)):
            yield name, getattr(api, name)


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Public functions and properties of a class and of its bases that are ours."""
    for base in kind.__mro__:
        if base.__module__.startswith("sievemq"):
            for name, value in vars(base).items():
                function = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
                if not name.startswith("_") and inspect.isfunction(function):
                    yield name, function


@pytest.mark.parametrize("api", APIS)
def test_every_class_and_method_has_a_docstring(api: str) -> None:
    missing = []
    for name, kind in classes(APIS[api]):
        if not (vars(kind).get("__doc__") or "").strip():
            missing.append(name)
        missing += [f"{name}.{member}" for member, value in members(kind) if not (value.__doc__ or "").strip()]
    assert missing == []


@pytest.mark.parametrize("api", APIS)
def test_several_parameters_are_explained(api: str) -> None:
    """By name, or by a reference to the method that explains them."""
    unexplained = []
    for name, kind in classes(APIS[api]):
        for member, function in members(kind):
            text = inspect.getdoc(function) or ""
            names = [
                p.name
                for p in list(inspect.signature(function).parameters.values())[1:]
                if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            ]
            if len(names) >= 2 and names not in PLAIN and ":meth:" not in text:
                unexplained += [f"{name}.{member}: {parameter}" for parameter in names if parameter not in text]
    assert unexplained == []


@pytest.mark.parametrize("api", APIS)
def test_times_name_their_unit(api: str) -> None:
    silent = []
    for name, kind in classes(APIS[api]):
        for member, function in members(kind):
            text = inspect.getdoc(function) or ""
            timed = {"timeout", "time_to_live", "delivery_delay"} & set(inspect.signature(function).parameters)
            if timed and not any(unit in text for unit in ("ms", "milliseconds", "Milliseconds", ":meth:")):
                silent.append(f"{name}.{member}")
    assert silent == []


#: What the API map does not know: SieveMQ's own.
OURS = {
    ("Selector", "text"),
    ("Selector", "dialect"),
    ("Selector", "canonical"),
    ("Selector", "warnings"),
    ("Selector", "portability"),
    ("ConnectionMetaData", "broker"),
    ("Destination", "name"),
    ("Message", "get_json"),
    ("Destination", "address"),
    ("Connection", "blocked"),
    ("ProducerDefaults", "set_send_timeout"),
    ("ProducerDefaults", "get_send_timeout"),
    ("ProducerState", "set_send_timeout"),
    ("ProducerState", "get_send_timeout"),
    ("Listeners", "healthy"),
    ("Listeners", "run"),
    ("Listeners", "start"),
    ("Listeners", "stop"),
    ("Registry", "listener"),
    ("Retry", "delays"),
}
SOURCE = re.compile(r"§ ?\d|\b[A-Z]{3}-\d\d|\bD-\d\d|\b[Ss]ections? \d\d?|:(meth|func|class):`|\bPY-\d\d")


@pytest.mark.parametrize("api", APIS)
def test_docstrings_cite_the_rules(api: str) -> None:
    """The id of the rule, the § of the specification, or the method that says so for this one too."""
    silent = []
    for _, kind in classes(APIS[api]):
        for member, function in members(kind):
            owner = function.__qualname__.partition(".")[0]
            if (owner, member) not in OURS and SOURCE.search(inspect.getdoc(function) or "") is None:
                silent.append(function.__qualname__)
    assert silent == []


@pytest.mark.parametrize("api", APIS)
def test_docstrings_name_the_errors(api: str) -> None:
    """What a method raises itself stands in its docstring, by its class or a base of it."""
    silent = []
    for _, kind in classes(APIS[api]):
        for member, function in members(kind):
            text = inspect.getdoc(function) or ""
            for name in raised(function):
                error = inspect.unwrap(function).__globals__.get(name) or getattr(builtins, name)
                known = {base.__name__ for base in error.__mro__ if base not in (Exception, BaseException, object)}
                if not any(each in text for each in known) and ":meth:" not in text and "rrors as" not in text:
                    silent.append(f"{function.__qualname__}: {name}")
            assert member
    assert silent == []


def raised(function: Any) -> set[str]:
    """Names of the exceptions that a function's own lines raise."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = (node.exc.func for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call))
    names = {node.id for node in calls if isinstance(node, ast.Name)}
    return {name for name in names if name[0].isupper()}

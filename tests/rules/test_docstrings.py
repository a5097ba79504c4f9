"""Everything public has a docstring that a reader can work with, in both APIs and in what they share."""

from __future__ import annotations

import inspect
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
def test_every_class_and_method_has_one(api: str) -> None:
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
def test_times_say_their_unit(api: str) -> None:
    silent = []
    for name, kind in classes(APIS[api]):
        for member, function in members(kind):
            text = inspect.getdoc(function) or ""
            timed = {"timeout", "time_to_live", "delivery_delay"} & set(inspect.signature(function).parameters)
            if timed and not any(unit in text for unit in ("ms", "milliseconds", "Milliseconds", ":meth:")):
                silent.append(f"{name}.{member}")
    assert silent == []

"""The keyword of a selector, which applications of other libraries write differently."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

__all__ = ["names_selector"]

C = TypeVar("C", bound=type)


def names_selector(cls: C) -> C:
    """Let the methods of a class that take `message_selector` name it where `selector` is given.

    Python's own TypeError suggests the right keyword from version 3.13 on.
    """
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and "message_selector" in inspect.signature(method).parameters:
            setattr(cls, name, _naming(method))
    return cls


def _naming(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if "selector" in keywords:
            raise TypeError(f"{method.__name__}() has no argument 'selector': it is called message_selector")
        return method(*arguments, **keywords)

    return call

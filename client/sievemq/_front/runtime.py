"""The simplified API fails with the runtime exceptions (PY-21)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from sievemq.exceptions import JMSException, runtime_twin

P = ParamSpec("P")
R = TypeVar("R")


def translated(method: Callable[P, R]) -> Callable[P, R]:
    """The method, raising the runtime twin of each exception."""

    @wraps(method)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return method(*arguments, **keywords)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    return call

"""The simplified API fails with the runtime exceptions (PY-21), its coroutine functions too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sievemq.exceptions import JMSException, runtime_twin

P = ParamSpec("P")
R = TypeVar("R")


def translated_coroutine(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """The coroutine function, raising the runtime twin of each exception."""

    @wraps(method)
    async def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return await method(*arguments, **keywords)
        except JMSException as error:
            raise runtime_twin(error) from error.__cause__

    return call

"""Options that belong together, as one parameter of the commands that have them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let parameters of a command be NamedTuples whose fields are options or arguments.

    Typer makes a command's options from its signature. It is shown one with the fields in the place of each tuple; the
    command is called with the tuples.

    Args:
        command: as Typer takes it, but for these parameters; no two of its options may have one name.

    Returns:
        What Typer takes.
    """
    groups: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not hasattr(kind, "_field_defaults"):
            shown.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = kind
        shown += [
            inspect.Parameter(
                name,
                parameter.KEYWORD_ONLY,
                default=kind._field_defaults.get(name, parameter.empty),
                annotation=annotation,
            )
            for name, annotation in get_type_hints(kind, include_extras=True).items()
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field: given.pop(field) for field in kind._fields})
        command(**given)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run

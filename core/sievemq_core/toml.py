"""Settings, definitions and contexts as tables: TOML that is read, whoever wrote it."""

from __future__ import annotations

from typing import Any


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a text.

    Raises:
        tomllib.TOMLDecodeError: it is no TOML, or nested too deeply.
    """
    import tomllib  # most programs read none

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("it is nested too deeply") from None

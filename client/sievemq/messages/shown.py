"""Values in a repr, cut to what a test failure can show."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["short", "short_mapping"]


def short(value: object, limit: int = 60) -> str:
    """A value in a repr: never longer than about `limit` characters, and never the work of more than that."""
    if isinstance(value, (str, bytes)) and len(value) > limit:
        return f"{value[:limit]!r}… ({len(value)} {'characters' if isinstance(value, str) else 'bytes'})"
    text = repr(value)
    return text if len(text) <= limit * 2 else f"{text[:limit]}…"


def short_mapping(values: Mapping[str, object], limit: int = 12) -> str:
    """The first entries of a mapping in a repr."""
    shown = [f"{short(name)}: {short(value)}" for name, value in list(values.items())[:limit]]
    if len(values) > limit:
        shown.append(f"… {len(values) - limit} more")
    return "{" + ", ".join(shown) + "}"

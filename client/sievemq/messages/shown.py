"""Values in a repr, cut to what a test failure can show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches


def short(value: object, limit: int = 60) -> str:
    """A value in a repr: never longer than about `limit` characters, and never the work of more than that."""
    if isinstance(value, (str, bytes)) and len(value) > limit:
        return f"{value[:limit]!r}… ({len(value)} {'characters' if isinstance(value, str) else 'bytes'})"
    text = repr(value)
    return text if len(text) <= limit * 2 else f"{text[:limit]}…"


def short_mapping(values: Mapping[str, object], limit: int = 12) -> str:
    shown = [f"{short(name)}: {short(value)}" for name, value in list(values.items())[:limit]]
    if len(values) > limit:
        shown.append(f"… {len(values) - limit} more")
    return "{" + ", ".join(shown) + "}"


def not_set(name: object, names: Collection[str], limit: int = 12) -> str:
    """The hint of an error about a name that is not set: similar names, and the names that are set.

    >>> not_set("Regoin", ["amount", "region"])
    "is not set; did you mean 'region'? There are 'amount', 'region'"
    """
    if not names:
        return "is not set; there are none"
    folded = {each.casefold(): each for each in sorted(names)[:1_000]}
    near = get_close_matches(name.casefold(), folded, 1) if isinstance(name, str) and len(name) < 100 else []
    there = ", ".join(short(each) for each in sorted(names)[:limit]) + ", …" * (len(names) > limit)
    return f"is not set; {f'did you mean {short(folded[near[0]])}? There' if near else 'there'} are {there}"

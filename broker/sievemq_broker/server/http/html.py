"""HTML that cannot be injected: text is escaped unless it was made by :func:`element`."""

from __future__ import annotations

from html import escape
from typing import TypeAlias

__all__ = ["Html", "element", "page"]


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | float | None"

_VOID = frozenset({"meta", "link", "input", "br"})


def element(tag: str, *children: Child, **attributes: str | int | bool | None) -> Html:
    """One element.

    Args:
        tag: its name, from code, never from data.
        children: text (escaped) and elements; None is left out.
        attributes: by name; a trailing underscore is dropped (`class_`), others become hyphens. None and False are
            left out, True has no value.
    """
    parts = [f"<{tag}"]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        parts.append(f" {name}" if value is True else f' {name}="{escape(str(value), quote=True)}"')
    parts.append(">")
    if tag not in _VOID:
        parts.extend(
            child if isinstance(child, Html) else escape(str(child)) for child in children if child is not None
        )
        parts.append(f"</{tag}>")
    return Html("".join(parts))


def page(title: str, *body: Html, refresh_seconds: int = 0) -> str:
    """A whole document with the console's style sheet."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="refresh", content=refresh_seconds) if refresh_seconds else None,
        element("title", title),
        element("link", rel="stylesheet", href="/console.css"),
    )
    return "<!DOCTYPE html>" + element("html", head, element("body", *body), lang="en")

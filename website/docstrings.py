"""A griffe extension: SieveMQ's docstrings as Markdown."""

from __future__ import annotations

from typing import Any

import griffe

from website.markup import markdown


class Docstrings(griffe.Extension):
    """Rewrites each docstring as it is loaded."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for each class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_module(self, *, mod: Any, **_: Any) -> None:
        """Called for each module and package."""
        self.on_object(obj=mod)

"""Markup of docstrings and of help texts as Markdown."""

from __future__ import annotations

import re

_ROLE = re.compile(r"(?::py)?:(?:class|meth|func|attr|mod|exc|data|obj):`~?([^`]+)`")
_EXAMPLE = re.compile(r"(?:^|(?<=\n\n))( *)>>> (?:.|\n(?!\n))*")


def markdown(text: str) -> str:
    """A docstring: roles of reStructuredText become code, interactive examples fenced blocks."""
    return _EXAMPLE.sub(lambda match: f"{match[1]}```pycon\n{match[0]}\n{match[1]}```", roles(text))


def roles(text: str) -> str:
    """``:class:`Queue``` becomes `` `Queue` ``."""
    return _ROLE.sub(r"`\1`", text)


def literal(text: str) -> str:
    """Plain text: what looks like markup in it is none, except code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def cell(text: str) -> str:
    """Markdown that can stand in a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def plain_cell(text: str) -> str:
    """Plain text that can stand in a table."""
    return cell(literal(text))


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"

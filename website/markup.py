"""Markup of docstrings and of help texts as Markdown."""

from __future__ import annotations

import re

_ROLE = re.compile(r"(?::py)?:(?:class|meth|func|attr|mod|exc|data|obj):`~?([^`]+)`")
_EXAMPLE = re.compile(r"(?:^|(?<=\n\n))( *)>>> (?:.|\n(?!\n))*")
_LITERAL = re.compile(r"^( *)(.*?)::$", re.MULTILINE)
#: Arguments that share their words, in a section of a docstring: its entries are indented.
_ARGUMENTS = re.compile(r"^( *)(?:Args|Attributes):\n(?:\1 +\S.*\n?|\n(?=\1 ))+", re.MULTILINE)
_TOGETHER = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +\S.*)*)", re.MULTILINE)


def markdown(text: str) -> str:
    """A docstring: roles and literal blocks of reStructuredText become Markdown, interactive examples fenced blocks,
    and arguments that are described together one entry each."""
    text = _LITERAL.sub(lambda match: match[1] + match[2] + ":" * bool(match[2]), roles(text))
    text = _ARGUMENTS.sub(lambda match: _TOGETHER.sub(_apart, match[0]), text)
    return _EXAMPLE.sub(lambda match: f"{match[1]}```pycon\n{match[0]}\n{match[1]}```", text)


def _apart(match: re.Match[str]) -> str:
    indent, names, words = match.groups()
    return "\n".join(f"{indent}{name}: {words}" for name in names.split(", "))


def roles(text: str) -> str:
    """``:class:`Queue``` becomes `` `Queue` ``."""
    return _ROLE.sub(r"`\1`", text)


def literal(text: str) -> str:
    """Plain text: what looks like markup in it is none, except code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def tables(text: str) -> str:
    """Markdown whose tables have plain bars in code: the site's Markdown does not end a cell there, as a forge does."""
    rows = re.compile(r"^\|.*\|$", re.MULTILINE)
    return rows.sub(lambda line: re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), line[0]), text)


def cell(text: str) -> str:
    """Markdown that can stand in a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def plain_cell(text: str) -> str:
    """Plain text that can stand in a table."""
    return cell(literal(text))


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"

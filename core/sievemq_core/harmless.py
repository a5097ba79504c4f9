"""Foreign text, made safe to show in a terminal, a log or an error."""

from __future__ import annotations


def harmless(text: str, keep: str = "") -> str:
    """Text without characters that could command a terminal or change the order in which it is read: those are written
    as in a Python literal.

    Args:
        text: chosen by another party: a sender, a client, a broker.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)

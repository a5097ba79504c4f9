"""A number with its noun: "1 message", "3,000 messages"."""

from __future__ import annotations


def counted(number: int, noun: str, *, many: str = "", form: str = "") -> str:
    """``1 message``, ``0 messages``, ``2 messages``.

    Args:
        many: its plural, if that is not one with an s.
        form: of the number, as :func:`format` takes it; ``,`` puts commas between thousands.
    """
    return f"{number:{form}} {noun if number == 1 else many or noun + 's'}"

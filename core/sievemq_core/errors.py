"""Errors, in one vocabulary shared by both ends.

    SieveError
    ├── ProtocolError           the peer broke the wire format: the connection ends
    ├── RequestError            one request is refused: the connection continues
    ├── SelectorError           (sievemq_core.selector.source) a selector is not valid
    ├── FormatError             a value or conversion that JMS does not allow
    │   ├── NumberFormatError   text that is not a number of the wanted type (also a ValueError)
    │   └── NullValueError      null where a value is needed (also a TypeError)
    └── AddressError            text that names no destination

An error crosses the wire as ``(code, text, details)``. A ProtocolError ends the connection, and so does whatever has a
code that is ``fatal``; the code decides which JMS exception the client raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

#: Characters of an error's text. An error that quotes what it refuses must not be as large as that.
MAX_ERROR_CHARS: Final = 2_000


def shown(value: object) -> str:
    """A value as an error quotes it: short, whatever a peer sent."""
    if isinstance(value, (str, bytes, tuple, list, dict)) and len(value) > 40:
        return f"{type(value).__name__} of length {len(value)}"
    try:
        text = ascii(value)
    except RecursionError:
        return f"a {type(value).__name__} nested too deep to be shown"
    return text if len(text) <= 60 else f"{text[:57]}…"


def cut_text(text: str) -> str:
    """The text of an error, of MAX_ERROR_CHARS at most."""
    return text if len(text) <= MAX_ERROR_CHARS else f"{text[: MAX_ERROR_CHARS - 1]}…"


def cut_details(details: Mapping[str, object] | None) -> dict[str, object]:
    """The details of an error. Texts in them are cut but for a selector, in which the mistake has a position."""
    return {
        key: cut_text(value) if isinstance(value, str) and key != "selector" else value
        for key, value in (details or {}).items()
    }


class ErrorCode(IntEnum):
    """Codes of the wire protocol. Numbers are never reused; an unknown one is read as ``INTERNAL``."""

    # 1-19: one request is refused
    INTERNAL = 1
    ILLEGAL_STATE = 2
    INVALID_CLIENT_ID = 3
    INVALID_DESTINATION = 4
    INVALID_SELECTOR = 5
    SECURITY = 6
    RESOURCE_ALLOCATION = 7
    TRANSACTION_ROLLED_BACK = 8
    MESSAGE_FORMAT = 9
    NOT_FOUND = 10
    SUBSCRIPTION_IN_USE = 11
    MESSAGE_TOO_LARGE = 12
    # 32-63: the connection ends after it
    MALFORMED_FRAME = 32
    FRAME_TOO_LARGE = 33
    UNSUPPORTED_VERSION = 34
    UNKNOWN_COMMAND = 35
    UNEXPECTED_COMMAND = 36
    HEARTBEAT_MISSED = 37
    SHUTTING_DOWN = 38
    TOO_MANY_CONNECTIONS = 39
    CLOSED_BY_ADMINISTRATOR = 40
    AUTHENTICATION = 41
    REDIRECT = 42
    UNAVAILABLE = 43

    @property
    def fatal(self) -> bool:
        return self >= 32

    @property
    def repairable(self) -> bool:
        """True if a connection that ended with this code may be opened again: its commands were correct, and no
        operator closed it."""
        return self in _REPAIRABLE


_REPAIRABLE: Final = frozenset(
    {
        ErrorCode.HEARTBEAT_MISSED,
        ErrorCode.SHUTTING_DOWN,
        ErrorCode.TOO_MANY_CONNECTIONS,
        ErrorCode.UNAVAILABLE,
    }
)


class SieveError(Exception):
    """Root of everything that SieveMQ's core raises on purpose."""

    code: ErrorCode = ErrorCode.INTERNAL

    def __init__(self, text: str, code: ErrorCode | None = None, details: Mapping[str, object] | None = None) -> None:
        text = cut_text(text)
        super().__init__(text)
        self.text = text
        self.details = cut_details(details)
        if code is not None:
            self.code = code


class ProtocolError(SieveError):
    """The peer sent bytes that break the protocol; after it the connection is of no use."""

    code = ErrorCode.MALFORMED_FRAME


class RequestError(SieveError):
    """A request that cannot be carried out; the connection and everything accepted before stay as they were."""


class FormatError(SieveError):
    """A value of a type, or a conversion, that JMS does not allow (§3.5.4, §3.11.3)."""

    code = ErrorCode.MESSAGE_FORMAT


class NumberFormatError(FormatError, ValueError):
    """Text (or null) that cannot be read as a number of the wanted type; Java's NumberFormatException (PY-17)."""


class NullValueError(FormatError, TypeError):
    """Null where a value is needed; Java's NullPointerException (PY-18)."""


class AddressError(SieveError):
    """Text that names no destination, or a name that is not allowed."""

    code = ErrorCode.INVALID_DESTINATION

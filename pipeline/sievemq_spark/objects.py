"""The body of an ObjectMessage without its classes, which are in the application's process only."""

from __future__ import annotations

import uuid
from typing import Any

import msgpack

from sievemq_core.errors import FormatError


def decode_plain(body: bytes) -> Any:
    """The plain data of an object: a registered type is the list or map of its fields.

    Raises:
        FormatError: it cannot be decoded.
    """

    def extension(code: int, payload: bytes) -> Any:
        value = decode_plain(payload)
        match code:
            case 4:
                return int(value)
            case 10:
                return str(uuid.UUID(bytes=value))
            case 11 | 12:  # [name, content] of a registered type, [letter, value] of a wrapper
                return value[1]
            case _:
                return value

    try:
        found = msgpack.unpackb(body, unicode_errors="surrogatepass", strict_map_key=False, ext_hook=extension)
    except (ValueError, TypeError, LookupError, RecursionError, msgpack.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise FormatError(f"the body of an ObjectMessage cannot be decoded: {reason}") from error
    return found

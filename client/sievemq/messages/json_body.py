"""Bodies of JSON: nested dicts and lists as the text of a TextMessage, which any other client can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from sievemq.exceptions import MessageFormatException

#: The property with the media type, and its value. Selectors see it: ``content_type = 'application/json'``.
CONTENT_TYPE: Final = "content_type"
JSON_TYPE: Final = "application/json"


class Json:
    """A value to be sent as JSON: wherever a body, or the text of a TextMessage, is taken. The message has the property
    ``content_type = 'application/json'``; :meth:`Message.get_json` reads it.

    Args:
        value: what the standard library's `json` can encode; encoded now.
        default: as of :func:`json.dumps`: called with each value that JSON does not have, such as a Decimal or a
            datetime, and returns one that it has.

    Raises:
        MessageFormatException: it cannot be encoded; NaN and infinities are not JSON.

    >>> from decimal import Decimal
    >>> Json({"price": Decimal("9.90")}, default=str)
    Json('{"price":"9.90"}')
    >>> Json({"items": [1, 2], "name": "Zoë"})
    Json('{"items":[1,2],"name":"Zoë"}')
    """

    __slots__ = ("text",)

    def __init__(self, value: Any, *, default: Callable[[Any], Any] | None = None) -> None:
        try:
            self.text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default)
        except (TypeError, ValueError, RecursionError) as error:
            hint = ""
            if default is None and isinstance(error, TypeError):
                hint = "; Json(value, default=…) converts such values: default=str to text"
            raise MessageFormatException(f"the value cannot be encoded as JSON: {error}{hint}", None, error) from error

    def __repr__(self) -> str:
        return f"Json({self.text!r:.200})"


def read_json(body: object, kind: str) -> Any:
    """The value of a body that is JSON.

    Args:
        body: a text, or bytes in UTF-8.

    Raises:
        MessageFormatException: it is neither, or no JSON.
    """
    if not isinstance(body, (str, bytes)):
        raise MessageFormatException(f"JSON is read from a text or from bytes, which this {kind} does not have")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MessageFormatException(f"the body of this {kind} is not JSON: {error}", None, error) from error

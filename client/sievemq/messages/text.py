"""TextMessage: a body of text (§3.11.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from sievemq.exceptions import MessageFormatException, MessageNotWriteableException
from sievemq.messages.base import NEW_FIELDS, PENDING, Message, check_type
from sievemq.messages.json_body import CONTENT_TYPE, JSON_TYPE, Json
from sievemq.messages.modes import BODY_READ_ONLY
from sievemq.messages.shown import short
from sievemq_core.errors import FormatError
from sievemq_core.message.body import decode_text, encode_text
from sievemq_core.message.envelope import BodyKind
from sievemq_core.message.values import PropertyValue

T = TypeVar("T")


class TextMessage(Message):
    """A message whose body is text.

    Args:
        text: any text, or None for no body; ``""`` is a body (TXT-02). Or a :class:`Json`.
        properties: set one by one as ``set_object_property`` does.

    >>> TextMessage("hi", properties={"region": "EU"})
    TextMessage('hi', properties={'region': 'EU'})
    """

    __slots__ = ()
    _body_kind: ClassVar[int] = int(BodyKind.TEXT)

    def __init__(
        self, text: str | Json | None = None, *, properties: Mapping[str, PropertyValue] | None = None
    ) -> None:
        # Message.__init__, written out: one call less for every message of an application that sends many.
        self._fields = NEW_FIELDS
        self._properties = {}
        self._modes = self._count = 0
        self._destination = self._acknowledge = None
        self._redelivered = False
        if text is None or type(text) is str:
            self._body = text
        elif isinstance(text, Json):
            self._body = text.text
            self.set_string_property(CONTENT_TYPE, JSON_TYPE)
        else:
            self.set_text(text)
        if properties is not None:
            self._set_properties(properties)

    def get_text(self) -> str | None:
        """The text; None if there is no body (TXT-02).

        Raises:
            MessageFormatException: the body that arrived is not UTF-8.
        """
        body = self._body
        if body is PENDING:
            body = self._fields[12]
            if body is not None:
                try:
                    body = decode_text(body)
                except FormatError as error:
                    raise MessageFormatException(str(error), error.code.name) from error
            self._body = body
        return body  # type: ignore[no-any-return]

    def set_text(self, text: str | None) -> None:
        """Set the text, or None for no body.

        Raises:
            MessageFormatException: not a str (TXT-01).
            MessageNotWriteableException: the message was received; call ``clear_body()`` first (MOD-07).
        """
        if self._modes & BODY_READ_ONLY:
            raise MessageNotWriteableException(
                "the body of a received message is read-only; clear_body() makes it writable"
            )
        if text is not None and type(text) is not str:
            if not isinstance(text, str):
                raise MessageFormatException(f"a TextMessage holds a str, not {type(text).__name__}")
            text = str.__str__(text)
        self._body = text

    def get_body(self, body_type: type[T]) -> T | None:
        """The text as ``str`` or ``object``; see :meth:`Message.get_body`."""
        text = self.get_text()
        if not self.is_body_assignable_to(body_type):
            raise MessageFormatException(f"the body of a TextMessage is a str and not {body_type.__name__}")
        return text  # type: ignore[return-value]

    def is_body_assignable_to(self, body_type: type) -> bool:
        """True for ``str`` and its bases, and without a body for every type (MSG-12)."""
        check_type(body_type)
        return self.get_text() is None or issubclass(str, body_type)

    def _encode_body(self) -> bytes | None:
        body = self._body
        if body is None:
            return None
        if body is PENDING:
            return self._fields[12]  # type: ignore[no-any-return]
        try:
            return body.encode()  # type: ignore[no-any-return]
        except UnicodeEncodeError:
            return encode_text(body)  # lone surrogates

    def _body_repr(self) -> str:
        if self._body is PENDING:
            body = self._fields[12]
            if body is not None:  # a slice is enough, and any bytes can be shown
                return short(body[:400].decode("utf-8", "replace"))
            return ""
        return "" if self._body is None else short(self._body)

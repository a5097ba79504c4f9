"""ObjectMessage: a body of plain data or of registered types (§3.11.1, D-19)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from sievemq.exceptions import MessageFormatException, MessageNotWriteableException
from sievemq.messages.base import MAX_REPR_BYTES, PENDING, Message, check_type
from sievemq.messages.modes import BODY_READ_ONLY
from sievemq.messages.shown import short
from sievemq.object_codec import PlainData, decode_object, encode_object
from sievemq_core.errors import FormatError
from sievemq_core.message.envelope import BodyKind
from sievemq_core.message.values import PropertyValue

T = TypeVar("T")


class ObjectMessage(Message):
    """A message whose body is an object: plain data, or of a type given to :func:`sievemq.register_type`.

    Plain data is None, bool, int, float, str, bytes, complex, list, dict, tuple, set, frozenset, datetime and its kin,
    Decimal, UUID and the wrappers Byte … Char, nested as you like. Nothing is ever pickled or unpickled.

    Args:
        obj: a snapshot is taken immediately (OBJ-01).
        properties: set one by one as ``set_object_property`` does.

    Raises:
        MessageFormatException: something in the object cannot travel.

    >>> ObjectMessage({"lines": [("tea", 2)]}).get_object()
    {'lines': [('tea', 2)]}
    """

    __slots__ = ()
    _body_kind: ClassVar[int] = int(BodyKind.OBJECT)

    # _body: the encoded object, so that later changes of it do not show; None if there is none

    def __init__(self, obj: PlainData | None = None, *, properties: Mapping[str, PropertyValue] | None = None) -> None:
        Message.__init__(self)
        if obj is not None:
            self.set_object(obj)
        if properties is not None:
            self._set_properties(properties)

    def get_object(self) -> Any:
        """A fresh copy of the object; None if there is none (OBJ-02).

        Raises:
            MessageFormatException: it cannot be decoded here, for instance because its type is not registered.
        """
        packed = self._packed()
        if packed is None:
            return None
        try:
            return decode_object(packed)
        except FormatError as error:
            raise MessageFormatException(str(error), error.code.name) from error

    def set_object(self, obj: PlainData | None) -> None:
        """Take a snapshot of an object (OBJ-01); None for no body.

        Raises:
            MessageFormatException: something in it cannot travel.
            MessageNotWriteableException: the message was received; call ``clear_body()`` first (MOD-07).
        """
        if self._modes & BODY_READ_ONLY:
            raise MessageNotWriteableException(
                "the body of a received message is read-only; clear_body() makes it writable"
            )
        try:
            self._body = None if obj is None else encode_object(obj)
        except FormatError as error:
            raise MessageFormatException(str(error), error.code.name) from error

    def get_body(self, body_type: type[T]) -> T | None:
        """The object as its own class, a base of it or ``object``; see :meth:`Message.get_body`."""
        value = self.get_object()
        if not _assignable(value, body_type):
            raise MessageFormatException(
                f"the body of this ObjectMessage is of the type {type(value).__name__} and not {body_type.__name__}"
            )
        return value  # type: ignore[no-any-return]

    def is_body_assignable_to(self, body_type: type) -> bool:
        """True for every base of the object's class, and without an object for every type (MSG-12)."""
        return _assignable(self.get_object(), body_type)

    def _packed(self) -> bytes | None:
        return self._fields[12] if self._body is PENDING else self._body  # type: ignore[no-any-return]

    def _encode_body(self) -> bytes | None:
        return self._packed()

    def _body_repr(self) -> str:
        packed = self._packed()
        if packed is None:
            return ""
        if len(packed) > MAX_REPR_BYTES:
            return f"<{len(packed)} bytes>"
        try:
            return short(decode_object(packed))
        except FormatError:
            return "<cannot be decoded here>"
        except Exception:  # too deep for a repr, or that of a registered class raises
            return f"<{len(packed)} bytes>"


def _assignable(value: object, body_type: type) -> bool:
    check_type(body_type)
    if value is None:
        return True
    if value is True or value is False:  # a bool is no int here (D-37)
        return body_type in (bool, object)
    return isinstance(value, body_type)

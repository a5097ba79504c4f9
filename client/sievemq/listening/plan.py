"""A function's signature becomes the way to call it with a message, once, when it is registered."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NoReturn, TypeAlias, get_args, get_origin, get_type_hints

from sievemq.exceptions import JMSException, Reject
from sievemq.listening.conversion import (
    Convert,
    Misfit,
    converter,
    is_model,
    is_struct,
    is_union,
    reason_of,
    shown,
    unwrapped,
)
from sievemq.listening.rules import Header, Property
from sievemq.messages import BytesMessage, MapMessage, Message, ObjectMessage, TextMessage
from sievemq.messages.properties import check_property_name

Read: TypeAlias = Callable[[Message], Any]
"""What a parameter gets of a message."""

_ABSENT: Final = inspect.Parameter.empty

_HEADERS: Final[Mapping[str, Read]] = {
    "JMSCorrelationID": Message.get_jms_correlation_id,
    "JMSDeliveryMode": Message.get_jms_delivery_mode,
    "JMSDeliveryTime": Message.get_jms_delivery_time,
    "JMSDestination": Message.get_jms_destination,
    "JMSExpiration": Message.get_jms_expiration,
    "JMSMessageID": Message.get_jms_message_id,
    "JMSPriority": Message.get_jms_priority,
    "JMSRedelivered": Message.get_jms_redelivered,
    "JMSReplyTo": Message.get_jms_reply_to,
    "JMSTimestamp": Message.get_jms_timestamp,
    "JMSType": Message.get_jms_type,
}

#: Properties convert as Jakarta Messaging says (PRP-13): the text of a STOMP client is read as a number.
_TYPED: Final[Mapping[Any, Callable[[Message, str], Any]]] = {
    bool: Message.get_boolean_property,
    int: Message.get_long_property,
    float: Message.get_double_property,
    str: Message.get_string_property,
}


class Plan:
    """How to call one function.

    Args:
        function: the listener.
        context: class of the contexts of its API.
        names: that its annotations may use beside those of its module.

    Attributes:
        silent: it is annotated to return nothing.

    Raises:
        TypeError: a parameter that cannot get a value; names the parameter.
    """

    __slots__ = ("_context", "_reads", "function", "name", "silent")

    def __init__(self, function: Callable[..., Any], context: type, names: Mapping[str, Any]) -> None:
        self.function = function
        self.name: str = getattr(function, "__qualname__", repr(function))
        self._context = context
        # Of each parameter: its name if it is given by keyword, else None; and what reads it, None for the context.
        self._reads: list[tuple[str | None, Read | None]] = []
        body: str | None = None
        hints = self._hints(names)
        self.silent = hints.get("return", self) is type(None)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                self._refuse(parameter.name, "a listener is called with one value for each parameter; name them")
            if parameter.name not in hints:
                self._refuse(
                    parameter.name,
                    "it has no annotation: annotate it with the type of the body, with Message, or with "
                    "Annotated[str, Property()]",
                )
            annotation = hints[parameter.name]
            read = self._special(parameter, annotation)
            if read is None and annotation is not context:
                if body is not None:
                    self._refuse(
                        parameter.name,
                        f"the body is parameter {body!r} already; a property is Annotated[…, Property()], a header "
                        "Annotated[…, Header(…)]",
                    )
                body = parameter.name
                read = self._body(parameter, annotation)
            self._reads.append((parameter.name if parameter.kind is parameter.KEYWORD_ONLY else None, read))

    def bind(self, context: object) -> Read:
        """The function, to be called with a message received in a context."""
        function = self.function
        reads = [(name, read or (lambda _: context)) for name, read in self._reads]
        if any(name is not None for name, _ in reads):
            plain = [read for name, read in reads if name is None]
            named = [(name, read) for name, read in reads if name is not None]
            return lambda message: function(
                *[read(message) for read in plain], **{name: read(message) for name, read in named}
            )
        match [read for _, read in reads]:
            case [first]:
                return lambda message: function(first(message))
            case [first, second]:
                return lambda message: function(first(message), second(message))
            case several:
                return lambda message: function(*[read(message) for read in several])

    def _hints(self, names: Mapping[str, Any]) -> dict[str, Any]:
        function: Any = self.function
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            function = type(function).__call__
        try:
            return get_type_hints(function, localns=dict(names), include_extras=True)
        except NameError as error:
            raise TypeError(f"an annotation of {self.name}() names nothing: {error}") from error

    def _refuse(self, parameter: str, why: str, cause: Exception | None = None) -> NoReturn:
        raise TypeError(f"parameter {parameter!r} of {self.name}(): {why}") from cause

    def _converter(self, parameter: str, annotation: Any) -> Convert:
        try:
            return converter(annotation)
        except TypeError as error:
            self._refuse(parameter, str(error), error)
        except RecursionError:
            self._refuse(parameter, "its type contains itself: only msgspec and Pydantic read such a one")

    # -- what a parameter gets ----------------------------------------------------------------------------------------

    def _special(self, parameter: inspect.Parameter, annotation: Any) -> Read | None:
        """How to read a parameter that is not the body."""
        if get_origin(annotation) is Annotated:
            inner, *marks = get_args(annotation)
            for mark in marks:
                if mark is Property or mark is Header:
                    self._refuse(parameter.name, f"write {mark.__name__}(…), with parentheses")
                if isinstance(mark, Property):
                    return self._property(parameter, inner, mark.name or parameter.name)
                if isinstance(mark, Header):
                    return self._header(parameter, inner, mark.name)
            annotation = inner
        if isinstance(annotation, type) and issubclass(annotation, Message):
            return _as_message if annotation is Message else _of_kind(annotation)
        if isinstance(annotation, type) and annotation is not self._context and _is_context(annotation):
            self._refuse(
                parameter.name, f"a context is of {self._context.__module__.rpartition('.')[0]} here, as the Listeners"
            )
        return None

    def _property(self, parameter: inspect.Parameter, annotation: Any, name: str) -> Read:
        if name in _HEADERS:
            self._refuse(parameter.name, f"{name} is a header: write Header({name!r})")
        try:
            check_property_name(name)
        except ValueError as error:
            self._refuse(parameter.name, str(error), error)
        default, kind = parameter.default, unwrapped(annotation)
        if is_union(kind) and type(None) in (kinds := get_args(kind)):
            default = None if default is _ABSENT else default
            if len(kinds) == 2:
                kind = next(each for each in kinds if each is not type(None))
        typed = _TYPED.get(kind) if isinstance(kind, type) else None
        convert = self._converter(parameter.name, kind)

        def read(message: Message) -> Any:
            if not message.property_exists(name):
                if default is _ABSENT:
                    raise Reject(f"the message has no property {name}")
                return default
            try:
                return convert(message.get_object_property(name)) if typed is None else typed(message, name)
            except (ValueError, TypeError, JMSException) as error:
                raise Reject(f"property {name}: {error}") from error

        return read

    def _header(self, parameter: inspect.Parameter, annotation: Any, name: str) -> Read:
        if name not in _HEADERS:
            hint = f": a property is Property({name!r})" if name.startswith(("JMSX", "JMS_")) else ""
            self._refuse(parameter.name, f"{name!r} is no header{hint}. Headers are {', '.join(sorted(_HEADERS))}")
        return _HEADERS[name]

    def _body(self, parameter: inspect.Parameter, annotation: Any) -> Read:
        default, kind = parameter.default, unwrapped(annotation)
        if is_union(kind):
            kinds = [each for each in get_args(kind) if each is not type(None)]
            if len(kinds) < len(get_args(kind)) and default is _ABSENT:
                default = None
            if len(kinds) == 1:
                kind = unwrapped(kinds[0])
            elif {str, bytes} & set(kinds):
                self._refuse(parameter.name, f"{shown(kind)} could be any text: annotate it with one type of body")
        convert = self._converter(parameter.name, kind)
        if kind in (str, bytes, object, Any):
            decode = _PLAIN[kind]
        elif is_struct(kind):
            decode = _decode_struct(kind, convert)
        elif is_model(kind):
            decode = _decode_model(kind, convert)
        else:

            def decode(message: Message) -> Any:
                return convert(_value_of(message))

        def read(message: Message) -> Any:
            try:
                return decode(message)
            except _NoBodyError as error:
                if default is _ABSENT:
                    raise Reject("the message has no body") from error
                return default
            except Exception as error:  # whatever a type's own code raises
                reject = Reject(f"the body is no {shown(kind)}: {reason_of(error)}")
                # Of data that does not fit, the reason says all; Pydantic's own text is as long as the data.
                raise reject from None if isinstance(error, ValueError) else error

        return read


def _is_context(annotation: type) -> bool:
    return annotation.__name__ == "JMSContext" and annotation.__module__.startswith("sievemq.")


def _as_message(message: Message) -> Message:
    return message


def _of_kind(kind: type[Message]) -> Read:
    def read(message: Message) -> Message:
        if isinstance(message, kind):
            return message
        raise Reject(f"the message is a {type(message).__name__} and no {kind.__name__}")

    return read


# -- bodies -----------------------------------------------------------------------------------------------------------


class _NoBodyError(Exception):
    """The message has none."""


def _written(message: Message) -> str | bytes:
    """The text or the bytes of a body."""
    written: str | bytes | None = None
    if isinstance(message, TextMessage):
        written = message.get_text()
    elif isinstance(message, BytesMessage):
        written = message.get_body(bytes)
    elif type(message) is not Message:
        raise Misfit(f"a {type(message).__name__} has neither text nor bytes")
    if written is None:
        raise _NoBodyError
    return written


def _text_of(message: Message) -> str:
    written = _written(message)
    return written if isinstance(written, str) else written.decode()


def _bytes_of(message: Message) -> bytes:
    written = _written(message)
    return written if isinstance(written, bytes) else written.encode()


def _value_of(message: Message) -> Any:
    """The plain data of a body: JSON, the entries of a MapMessage, the object of an ObjectMessage."""
    if type(message) is TextMessage:  # most often
        text = message.get_text()
        if text is not None:
            return json.loads(text)
    if isinstance(message, MapMessage):
        return message.get_body(dict)
    if isinstance(message, ObjectMessage):
        value = message.get_object()
        if value is None:
            raise _NoBodyError
        return value
    return json.loads(_written(message))


def _as_it_is(message: Message) -> Any:
    return _value_of(message) if isinstance(message, (MapMessage, ObjectMessage)) else _written(message)


_PLAIN: Final[Mapping[Any, Read]] = {str: _text_of, bytes: _bytes_of, object: _as_it_is, Any: _as_it_is}


def _decode_struct(kind: type, convert: Convert) -> Read:
    decode = sys.modules["msgspec"].json.Decoder(kind).decode

    def read(message: Message) -> Any:
        if isinstance(message, (TextMessage, BytesMessage)):
            return decode(_written(message))
        return convert(_value_of(message))

    return read


def _decode_model(kind: Any, convert: Convert) -> Read:
    def read(message: Message) -> Any:
        if isinstance(message, (TextMessage, BytesMessage)):
            return kind.model_validate_json(_written(message))
        return convert(_value_of(message))

    return read

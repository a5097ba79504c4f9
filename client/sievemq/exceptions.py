"""The exceptions of the API (§10): two trees, and the few errors that are not JMS exceptions.

::

    Exception
    └── JMSException                          anything with no closer class
        ├── IllegalStateException             a call at the wrong time, or on something closed
        ├── InvalidClientIDException          the client id is not valid or in use
        ├── InvalidDestinationException       a destination that is None, unknown, deleted
        ├── InvalidSelectorException          a selector with a mistake; shows where
        ├── JMSSecurityException              user name or password refused
        ├── MessageEOFException               read past the end of a Bytes- or StreamMessage
        ├── MessageFormatException            a type, conversion or message that is not allowed
        ├── MessageNotReadableException       read of a write-only body
        ├── MessageNotWriteableException      write to a read-only body or read-only properties
        ├── ResourceAllocationException       the broker has no room
        ├── TransactionInProgressException    not allowed inside a transaction
        ├── TransactionRolledBackException    commit ended as a rollback
        ├── InvalidURLException  (also a ValueError)   the URL of a broker, or an option of it, is not valid
        └── JMSRuntimeException  (also a RuntimeError)
            ├── IllegalStateRuntimeException           (also an IllegalStateException)
            ├── InvalidClientIDRuntimeException        (also an InvalidClientIDException)
            └── …                                      each twin is also an instance of the class that it pairs with

    ValueError           a property or map name that is not allowed, a listener that is None
    NumberFormatError    (a ValueError) text or null that is not a number of the wanted type
    NullValueError       (a TypeError) null where a value is needed
    UnsupportedOperationError   (a NotImplementedError)
    Reject               a listener's own, for a message that it can never handle
    IndexError           a length that does not fit the buffer

The classic API (Connection, Session, …) raises the classes on the left, the simplified API (JMSContext, JMSProducer,
JMSConsumer) their runtime twins. A twin is a subclass of both trees (PY-21), so each of these catches it:

>>> for style in (InvalidSelectorException, JMSException, JMSRuntimeException, RuntimeError):
...     try:
...         raise InvalidSelectorRuntimeException("price >> 3")
...     except style as error:
...         print(style.__name__, "caught", error)
InvalidSelectorException caught price >> 3
JMSException caught price >> 3
JMSRuntimeException caught price >> 3
RuntimeError caught price >> 3
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sievemq_core.errors import ErrorCode, NullValueError, NumberFormatError, SieveError
from sievemq_core.selector.source import SelectorError

__all__ = [
    "IllegalStateException",
    "IllegalStateRuntimeException",
    "InvalidClientIDException",
    "InvalidClientIDRuntimeException",
    "InvalidDestinationException",
    "InvalidDestinationRuntimeException",
    "InvalidSelectorException",
    "InvalidSelectorRuntimeException",
    "InvalidURLException",
    "JMSException",
    "JMSRuntimeException",
    "JMSSecurityException",
    "JMSSecurityRuntimeException",
    "MessageEOFException",
    "MessageFormatException",
    "MessageFormatRuntimeException",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "MessageNotWriteableRuntimeException",
    "NullValueError",
    "NumberFormatError",
    "Reject",
    "ResourceAllocationException",
    "ResourceAllocationRuntimeException",
    "TransactionInProgressException",
    "TransactionInProgressRuntimeException",
    "TransactionRolledBackException",
    "TransactionRolledBackRuntimeException",
    "UnsupportedOperationError",
    "exception_for",
    "from_core",
    "runtime_twin",
]

_NO_DETAILS: Final[Mapping[str, object]] = MappingProxyType({})


class JMSException(Exception):  # noqa: N818 - the name is the specification's
    """Root of both trees.

    Args:
        reason: what went wrong, for people; ``str()`` of the exception.
        error_code: for programs; from a broker the name of its error code, such as ``INVALID_SELECTOR``.
        linked_exception: what caused it; the same as ``raise … from linked_exception`` (EXC-17).
        details: what the broker added for programs, by error code; empty if nothing.

    >>> error = JMSException("no room", "RESOURCE_ALLOCATION", OSError("disk full"))
    >>> error.get_error_code(), error.get_linked_exception(), error.__cause__ is error.get_linked_exception()
    ('RESOURCE_ALLOCATION', OSError('disk full'), True)
    """

    details: Mapping[str, object] = _NO_DETAILS

    def __init__(
        self,
        reason: str | None = None,
        error_code: str | None = None,
        linked_exception: BaseException | None = None,
        *,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(*(() if reason is None else (reason,)))
        self._error_code = error_code
        if details:
            self.details = MappingProxyType(dict(details))
        if linked_exception is not None:
            self.__cause__ = linked_exception

    def get_error_code(self) -> str | None:
        """The error code, or None (EXC-16)."""
        return self._error_code

    def get_linked_exception(self) -> BaseException | None:
        """The cause of this exception, or None (EXC-17). It is ``__cause__``, so ``raise … from`` sets it too."""
        return self.__cause__

    def set_linked_exception(self, exception: BaseException | None) -> None:
        """Set the cause of this exception (EXC-17)."""
        self.__cause__ = exception

    def __reduce__(self) -> tuple[object, ...]:
        state = {name: value for name, value in self.__dict__.items() if name != "details"}
        state["details"] = dict(self.details)
        return type(self), self.args, state


class IllegalStateException(JMSException):
    """A call at the wrong time, on something closed, or in the wrong kind of session (EXC-02)."""


class InvalidClientIDException(JMSException):
    """The broker refuses the client id: not valid, or in use by a live connection (EXC-03)."""


class InvalidDestinationException(JMSException):
    """A destination that is None where one is needed, not understood, or deleted (EXC-04)."""


class InvalidSelectorException(JMSException):
    """A selector with a mistake, raised by the call that presents it (EXC-05).

    ``str()`` shows the selector with a caret under the mistake. Unknown fields are None.
    """

    @property
    def selector(self) -> str | None:
        """The selector's text, or the first 65,536 characters of it. An extension (EXC-05)."""
        return self._text("selector")

    @property
    def position(self) -> int | None:
        """Position of the mistake, counted from 0. An extension (EXC-05)."""
        return self._number("position")

    @property
    def length(self) -> int | None:
        """Number of wrong characters; 0 at the end of the text. An extension (EXC-05)."""
        return self._number("length")

    @property
    def expected(self) -> str | None:
        """The tokens that would be valid there. An extension (EXC-05)."""
        return self._text("expected")

    @property
    def hint(self) -> str | None:
        """The text to write instead. An extension (EXC-05)."""
        return self._text("hint")

    def _text(self, name: str) -> str | None:
        value = self.details.get(name)
        return value if isinstance(value, str) else None

    def _number(self, name: str) -> int | None:
        value = self.details.get(name)
        return value if isinstance(value, int) else None


class JMSSecurityException(JMSException):
    """User name or password refused, or something the user may not do (EXC-06)."""


class MessageEOFException(JMSException):
    """A read past the end of a BytesMessage or StreamMessage (EXC-07)."""


class MessageFormatException(JMSException):
    """A value of a type, a conversion, or a message that is not allowed (EXC-08)."""


class MessageNotReadableException(JMSException):
    """A read of a write-only body; call ``reset()`` first (EXC-09)."""


class MessageNotWriteableException(JMSException):
    """A write to a read-only body or to read-only properties; clear them first (EXC-10)."""


class ResourceAllocationException(JMSException):
    """The broker has no room or a limit is reached (EXC-11)."""


class TransactionInProgressException(JMSException):
    """Not allowed while a transaction is in progress (EXC-12)."""


class TransactionRolledBackException(JMSException):
    """The commit ended as a rollback (EXC-13). So did everything that the session had sent and received since.

    A call of commit() that is cancelled, interrupted or timed out leaves its outcome open. If it was rolled back, the
    next call on the session raises this exception.

    Attributes:
        committed: how many of the calls of commit() before this one, whose outcome was open, took effect all the same:
            the first ones. The work of the others was rolled back.
    """

    committed = 0

    def report_committed(self, committed: int) -> None:
        """Set :attr:`committed` (D-41)."""
        self.committed = committed


class Reject(Exception):  # noqa: N818 - it is an order rather than an error
    """A message listener raises it for a message that it can never handle: the message becomes a dead letter at once,
    however few attempts there were. Its text is the property ``JMS_SieveMQ_DeadLetterError`` there. An extension.

    In a transacted session whose listener acknowledges by itself it has no such effect.

    >>> raise Reject("no such product")
    Traceback (most recent call last):
        ...
    sievemq.exceptions.Reject: no such product
    """


class InvalidURLException(JMSException, ValueError):  # noqa: N818
    """The URL of a broker, or one of its options, is not valid; the text names the part and the values allowed.

    Raised when a ConnectionFactory is made, where there is no choice between the two trees yet; not in JMS, which
    leaves the making of factories to providers (EXC-19).
    """


class JMSRuntimeException(JMSException, RuntimeError):  # noqa: N818
    """Root of what the simplified API raises; twin of JMSException.

    Args:
        detail_message: what went wrong, for people.
        error_code: for programs.
        cause: what caused it; also ``__cause__``.
        details: as of a JMSException.
    """

    def __init__(
        self,
        detail_message: str | None = None,
        error_code: str | None = None,
        cause: BaseException | None = None,
        *,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail_message, error_code, cause, details=details)


class IllegalStateRuntimeException(JMSRuntimeException, IllegalStateException):
    """Twin of IllegalStateException."""


class InvalidClientIDRuntimeException(JMSRuntimeException, InvalidClientIDException):
    """Twin of InvalidClientIDException."""


class InvalidDestinationRuntimeException(JMSRuntimeException, InvalidDestinationException):
    """Twin of InvalidDestinationException."""


class InvalidSelectorRuntimeException(JMSRuntimeException, InvalidSelectorException):
    """Twin of InvalidSelectorException, with the same attributes."""


class JMSSecurityRuntimeException(JMSRuntimeException, JMSSecurityException):
    """Twin of JMSSecurityException."""


class MessageFormatRuntimeException(JMSRuntimeException, MessageFormatException):
    """Twin of MessageFormatException."""


class MessageNotWriteableRuntimeException(JMSRuntimeException, MessageNotWriteableException):
    """Twin of MessageNotWriteableException."""


class ResourceAllocationRuntimeException(JMSRuntimeException, ResourceAllocationException):
    """Twin of ResourceAllocationException."""


class TransactionInProgressRuntimeException(JMSRuntimeException, TransactionInProgressException):
    """Twin of TransactionInProgressException."""


class TransactionRolledBackRuntimeException(JMSRuntimeException, TransactionRolledBackException):
    """Twin of TransactionRolledBackException."""


class UnsupportedOperationError(NotImplementedError):
    """The provider does not support the operation (PY-19). Not a JMSException."""


_TWINS: Final[dict[type[JMSException], type[JMSRuntimeException]]] = {
    JMSException: JMSRuntimeException,
    IllegalStateException: IllegalStateRuntimeException,
    InvalidClientIDException: InvalidClientIDRuntimeException,
    InvalidDestinationException: InvalidDestinationRuntimeException,
    InvalidSelectorException: InvalidSelectorRuntimeException,
    JMSSecurityException: JMSSecurityRuntimeException,
    MessageFormatException: MessageFormatRuntimeException,
    MessageNotWriteableException: MessageNotWriteableRuntimeException,
    ResourceAllocationException: ResourceAllocationRuntimeException,
    TransactionInProgressException: TransactionInProgressRuntimeException,
    TransactionRolledBackException: TransactionRolledBackRuntimeException,
}

# Codes that are not here have no closer class than JMSException (EXC-01).
_CLASSES: Final[dict[ErrorCode, type[JMSException]]] = {
    ErrorCode.ILLEGAL_STATE: IllegalStateException,
    ErrorCode.INVALID_CLIENT_ID: InvalidClientIDException,
    ErrorCode.INVALID_DESTINATION: InvalidDestinationException,
    ErrorCode.INVALID_SELECTOR: InvalidSelectorException,
    ErrorCode.SECURITY: JMSSecurityException,
    ErrorCode.AUTHENTICATION: JMSSecurityException,
    ErrorCode.RESOURCE_ALLOCATION: ResourceAllocationException,
    ErrorCode.MESSAGE_TOO_LARGE: ResourceAllocationException,
    ErrorCode.TOO_MANY_CONNECTIONS: ResourceAllocationException,
    ErrorCode.TRANSACTION_ROLLED_BACK: TransactionRolledBackException,
    ErrorCode.MESSAGE_FORMAT: MessageFormatException,
    ErrorCode.NOT_FOUND: InvalidDestinationException,
    ErrorCode.SUBSCRIPTION_IN_USE: IllegalStateException,
}


def exception_for(
    code: int,
    text: str,
    details: Mapping[str, object] | None = None,
    runtime: bool = False,
    cause: BaseException | None = None,
) -> JMSException:
    """The exception for an ERROR or SEND_FAILED of the wire protocol.

    Args:
        code: number of an :class:`~sievemq_core.errors.ErrorCode`; an unknown one is read as INTERNAL.
        details: for programs, kept as ``details``; those of INVALID_SELECTOR are checked.
        runtime: the simplified API's class instead of the classic one.

    >>> exception_for(4, "queue:x was deleted")
    InvalidDestinationException('queue:x was deleted')
    >>> exception_for(4, "queue:x was deleted", runtime=True)
    InvalidDestinationRuntimeException('queue:x was deleted')
    """
    known = ErrorCode(code) if code in _CODES else ErrorCode.INTERNAL
    kind = _CLASSES.get(known, JMSException)
    if kind is InvalidSelectorException and cause is None:  # from the wire: nothing in it is certain
        error = SelectorError.from_details(text, details or {})
        text, details = str(error), error.details
    return (_TWINS[kind] if runtime else kind)(text, known.name, cause, details=details)


_CODES: Final = frozenset(int(code) for code in ErrorCode)


def from_core(error: SieveError, runtime: bool = False) -> Exception:
    """The exception that the API raises for an error of the core, which becomes its ``__cause__``.

    NumberFormatError and NullValueError are classes of the API itself (EXC-18) and are returned unchanged.
    """
    if isinstance(error, (NumberFormatError, NullValueError)):
        return error
    return exception_for(error.code, error.text, error.details, runtime, error)


def runtime_twin(exception: JMSException) -> JMSRuntimeException:
    """The exception of the simplified API for one of the classic API; the same text, code, cause and details.

    >>> runtime_twin(IllegalStateException("the session is closed"))
    IllegalStateRuntimeException('the session is closed')
    """
    if isinstance(exception, JMSRuntimeException):
        return exception
    for kind in type(exception).__mro__:  # a subclass of ours has the twin of its nearest base (EXC-19)
        if kind in _TWINS:
            break
    twin = _TWINS[kind](*exception.args)
    twin.__dict__.update(exception.__dict__)
    twin.set_linked_exception(exception.__cause__)
    return twin

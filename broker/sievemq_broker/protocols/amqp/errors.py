"""Errors as AMQP knows them: their conditions, and what ends because of one (part 2, section 2.8)."""

from __future__ import annotations

from typing import Any, Final

from sievemq_broker.protocols.amqp.links import AmqpSession, Link
from sievemq_broker.protocols.amqp.performatives import Error
from sievemq_broker.protocols.amqp.types import Symbol
from sievemq_core.errors import ErrorCode, ProtocolError, RequestError, SieveError, shown

_CONDITIONS: Final = {
    ErrorCode.INTERNAL: "amqp:internal-error",
    ErrorCode.ILLEGAL_STATE: "amqp:illegal-state",
    ErrorCode.INVALID_CLIENT_ID: "amqp:invalid-field",
    ErrorCode.INVALID_DESTINATION: "amqp:not-found",
    ErrorCode.INVALID_SELECTOR: "amqp:invalid-field",
    ErrorCode.SECURITY: "amqp:unauthorized-access",
    ErrorCode.RESOURCE_ALLOCATION: "amqp:resource-limit-exceeded",
    ErrorCode.TRANSACTION_ROLLED_BACK: "amqp:transaction:rollback",
    ErrorCode.MESSAGE_FORMAT: "amqp:invalid-field",
    ErrorCode.NOT_FOUND: "amqp:not-found",
    ErrorCode.SUBSCRIPTION_IN_USE: "amqp:resource-locked",
    ErrorCode.MESSAGE_TOO_LARGE: "amqp:link:message-size-exceeded",
    ErrorCode.MALFORMED_FRAME: "amqp:decode-error",
    ErrorCode.FRAME_TOO_LARGE: "amqp:connection:framing-error",
    ErrorCode.UNSUPPORTED_VERSION: "amqp:not-implemented",
    ErrorCode.UNKNOWN_COMMAND: "amqp:not-implemented",
    ErrorCode.UNEXPECTED_COMMAND: "amqp:not-allowed",
    ErrorCode.HEARTBEAT_MISSED: "amqp:resource-limit-exceeded",
    ErrorCode.SHUTTING_DOWN: "amqp:connection:forced",
    ErrorCode.TOO_MANY_CONNECTIONS: "amqp:resource-limit-exceeded",
    ErrorCode.CLOSED_BY_ADMINISTRATOR: "amqp:connection:forced",
    ErrorCode.AUTHENTICATION: "amqp:unauthorized-access",
    ErrorCode.REDIRECT: "amqp:connection:redirect",
    ErrorCode.UNAVAILABLE: "amqp:connection:forced",
}


class FramingError(ProtocolError):
    """A frame that breaks what the two ends agreed on in open: the connection ends."""

    code = ErrorCode.UNEXPECTED_COMMAND
    condition: Final = "amqp:connection:framing-error"


class SessionError(RequestError):
    """The session ends because of it; the connection goes on."""

    code = ErrorCode.ILLEGAL_STATE

    def __init__(self, session: AmqpSession, text: str, condition: str) -> None:
        super().__init__(text)
        self.session = session
        self.condition = condition


class LinkError(RequestError):
    """The link is detached because of it; its session goes on."""

    code = ErrorCode.ILLEGAL_STATE

    def __init__(self, link: Link, text: str, condition: str = "amqp:invalid-field") -> None:
        super().__init__(text)
        self.link = link
        self.condition = condition


class UnknownTransactionError(RequestError):
    """There is no transaction of this name (part 4, section 4.5.8)."""

    code = ErrorCode.NOT_FOUND
    condition: Final = "amqp:transaction:unknown-id"

    def __init__(self, name: bytes) -> None:
        super().__init__(f"there is no transaction {shown(name)}; it was discharged, or never declared here")


def error_of(error: SieveError, tag: bytes | None = None, hostname: str | None = None) -> Error:
    """An error as a structure of AMQP.

    Args:
        hostname: that the client has named in its open.
        tag: of the delivery that has caused it; None if that was none. A client whose link is detached by the error of
            a settled delivery has no other sign of which one it was.
    """
    details: dict[Any, Any] = {} if tag is None else {Symbol("delivery-tag"): tag}
    if error.code is ErrorCode.INVALID_CLIENT_ID:
        details = {Symbol("invalid-field"): Symbol("container-id")}
    if error.code is ErrorCode.REDIRECT and "url" in error.details:
        details = _redirect(error, hostname)
    if isinstance(error, (FramingError, SessionError, LinkError, UnknownTransactionError)):
        condition = error.condition
    else:
        condition = _CONDITIONS[error.code]
    return Error(condition=condition, description=error.text, info=details or None)


def _redirect(error: SieveError, hostname: str | None) -> dict[Any, Any]:
    """Where to connect instead (part 2, section 2.8.16). A hostname that names the namespace names it there as well."""
    host, _, port = str(error.details["url"]).partition("://")[2].rpartition(":")
    host = host.strip("[]")
    is_named = hostname is not None and hostname.removeprefix("/") == error.details.get("namespace")
    named = hostname if is_named else host
    return {Symbol("hostname"): named, Symbol("network-host"): host, Symbol("port"): int(port)}

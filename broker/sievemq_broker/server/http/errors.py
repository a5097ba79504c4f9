"""Errors as answers: a status, a name for programs, a sentence for people, details for both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Scope

from sievemq_broker import logs
from sievemq_broker.server.http.encoding import encode
from sievemq_core.errors import ErrorCode, SieveError, cut_details, cut_text

log = logs.get("http")


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        error: its name, in capitals.
        text: what is wrong, where, and what to do.
        details: the same for programs.
        headers: of the answer.
    """

    def __init__(
        self,
        status: int,
        error: str,
        text: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        text = cut_text(text)
        super().__init__(text)
        self.status = status
        self.error = error
        self.text = text
        self.details = cut_details(details)
        self.headers = dict(headers or {})

    @property
    def content(self) -> bytes:
        return encode({"error": self.error, "text": self.text, "details": self.details})

    def response(self) -> Response:
        return Response(self.content, self.status, self.headers, "application/json")


class GoneError(Exception):
    """The client has gone: its request is not carried out any further."""


def bad_request(text: str, **details: Any) -> ApiError:
    """400: the request cannot be understood."""
    return ApiError(400, "BAD_REQUEST", text, details)


def not_found(text: str, **details: Any) -> ApiError:
    """404: the path names something that does not exist."""
    return ApiError(404, "NOT_FOUND", text, details)


def changed_meanwhile() -> ApiError:
    """What the caller may do has changed since the request began."""
    return ApiError(
        401, "AUTHENTICATION", "the user, its password or its rights have changed meanwhile; sign in again"
    )  # fmt: skip


def internal() -> ApiError:
    """500: a fault of the broker."""
    return ApiError(500, "INTERNAL", "internal error of the broker; its log has the details")


_STATUS = {
    ErrorCode.INTERNAL: 500,
    ErrorCode.ILLEGAL_STATE: 409,
    ErrorCode.INVALID_CLIENT_ID: 409,
    ErrorCode.INVALID_DESTINATION: 422,
    ErrorCode.INVALID_SELECTOR: 422,
    ErrorCode.SECURITY: 403,
    ErrorCode.RESOURCE_ALLOCATION: 409,
    ErrorCode.MESSAGE_FORMAT: 422,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.SUBSCRIPTION_IN_USE: 409,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.MALFORMED_FRAME: 422,
    ErrorCode.AUTHENTICATION: 401,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.REDIRECT: 421,
    ErrorCode.UNAVAILABLE: 503,
}


def answer_to(error: SieveError) -> ApiError:
    """The answer where the broker's body refuses."""
    return ApiError(_STATUS.get(error.code, 409), error.code.name, error.text, error.details)


def failure(scope: Scope, error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, SieveError):
        return answer_to(error)
    log.fault("http.failed", error, path=scope["path"], method=scope["method"])
    return internal()

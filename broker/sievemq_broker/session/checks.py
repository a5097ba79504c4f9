"""Checks of the fields of commands, beyond their form: ids, pairs, limits, selectors, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sievemq_broker.domain.failure import PLAIN, Failure
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.session.rights import Identity, Verb, forbidden
from sievemq_core.errors import AddressError, ErrorCode, ProtocolError, RequestError, SieveError, shown
from sievemq_core.limits import MAX_CREDIT, MAX_IDENTIFIER_CHARS, MAX_PROPERTIES_BYTES, MAX_PROPERTY_CHARS
from sievemq_core.message.dead_letters import MAX_ERROR_CHARS
from sievemq_core.message.envelope import (
    BODY,
    DELIVERY_TIME,
    EXPIRATION,
    PROPERTIES,
    PROPERTY_TYPES,
    TIMESTAMP,
    pack_properties,
    too_long,
    unpack_properties,
    well_formed,
)
from sievemq_core.selector import CompiledSelector, compile_selector
from sievemq_core.selector.dialect import dialect_named
from sievemq_core.wire.codec import check_headers

#: Bytes that may wait to be written to a connection before further requests for large answers are refused.
UNREAD_BYTES = 64 * 1024 * 1024

#: The highest attempts, ms and factor that a client may state.
_MAX_NUMBER: Final = 2**31 - 1

#: Any of these rights lets a destination be created on first use.
_USES: Final = (Verb.SEND, Verb.CONSUME, Verb.MANAGE)


def unknown(what: str, number: int) -> ProtocolError:
    """The error for an id that this connection never opened."""
    return ProtocolError(f"{what} {number} was never opened on this connection", ErrorCode.UNEXPECTED_COMMAND)


def pairs(handed: Sequence[int]) -> dict[int, int]:
    """consumer id -> tag, from a flat field `handed`.

    Raises:
        ProtocolError: a consumer without its tag.
    """
    if len(handed) % 2:
        raise ProtocolError(f"'handed' lists pairs of consumer and tag; {len(handed)} numbers are not pairs")
    return dict(zip(handed[::2], handed[1::2], strict=True))


def undelivered(consumer_id: int, tag: int, last: int) -> ProtocolError:
    return ProtocolError(
        f"consumer {consumer_id} was delivered messages up to tag {last}, not {tag}", ErrorCode.UNEXPECTED_COMMAND
    )


def failure_of(stated: Mapping[str, Any] | None) -> Failure:
    """What a client states of a failure. Keys that are not known are ignored.

    Raises:
        ProtocolError: a value of a wrong kind.
    """
    if not stated:
        return PLAIN
    text = stated.get("text", "")
    numbers = {name: stated.get(name, 0) for name in ("attempts", "delay", "delay_max")}
    factor, reject = stated.get("factor", 1.0), stated.get("reject", False)
    if (
        type(text) is not str
        or type(reject) is not bool
        or any(type(number) is not int or not 0 <= number <= _MAX_NUMBER for number in numbers.values())
        or type(factor) not in (int, float)
        or not 1 <= factor <= _MAX_NUMBER
    ):
        said = {"text": text, "reject": reject, **numbers, "factor": factor}
        values = ", ".join(f"{name} {shown(value)}" for name, value in said.items() if name in stated)
        raise ProtocolError(f"a failure is stated wrongly: {values}", ErrorCode.MALFORMED_FRAME)
    return Failure(reject, well_formed(text[:MAX_ERROR_CHARS]), factor=float(factor), **numbers)


def too_much_credit(consumer_id: int, credit: int) -> ProtocolError:
    return ProtocolError(
        f"consumer {consumer_id} was granted a credit of {credit}; at most {MAX_CREDIT} can be used",
        ErrorCode.RESOURCE_ALLOCATION,
    )


def the_selector(text: str | None, dialect: str | None, default: str) -> CompiledSelector | None:
    """Verify a selector; None if there is no condition (SES-22, D-12).

    Args:
        dialect: its dialect; None for the default.

    Raises:
        SelectorError: with position and hint in its details.
        RequestError: INVALID_SELECTOR, there is no such dialect.
    """
    try:
        chosen = dialect_named(dialect or default)
    except ValueError as error:
        raise RequestError(str(error), ErrorCode.INVALID_SELECTOR) from None
    return compile_selector(text, chosen)


def check_unread(waiting: int, doing: str) -> None:
    """Raise unless the client reads what it requests. A few bytes of BROWSE request half a MiB: thousands of them in
    one read must not all be answered in memory.

    Args:
        waiting: bytes that wait to be written to it.
        doing: what it should not do before it has read, for people.

    Raises:
        RequestError: RESOURCE_ALLOCATION.
    """
    if waiting > UNREAD_BYTES:
        raise RequestError(
            f"{waiting} bytes of answers wait to be written to this connection; read them before {doing} on",
            ErrorCode.RESOURCE_ALLOCATION,
        )


def check_identifier(what: str, text: str) -> None:
    """Check a namespace, client id or subscription name.

    Raises:
        RequestError: empty, too long, or not printable.
    """
    if not text or len(text) > MAX_IDENTIFIER_CHARS or not text.isprintable():
        raise RequestError(
            f"{what} must have 1 to {MAX_IDENTIFIER_CHARS} printable characters, unlike {text[:40]!r}",
            ErrorCode.ILLEGAL_STATE,
        )


def check_body(body: bytes | None, most: int) -> None:
    """Check the size of a body. Every door asks here.

    Args:
        most: bytes that it may have (max_body_bytes).

    Raises:
        RequestError: MESSAGE_TOO_LARGE.
    """
    if body is not None and len(body) > most:
        raise RequestError(
            f"the body of the message has {len(body)} bytes; at most {most} are accepted here (max_body_bytes)",
            ErrorCode.MESSAGE_TOO_LARGE,
            {"limit": most},
        )


def check_message(fields: tuple[Any, ...], body_bytes: int) -> None:
    """Check a message whose envelope is longer than a body may be, or than MAX_HEADER_CHARS, or whose kind is unknown;
    others need no call.

    Raises:
        RequestError: MESSAGE_TOO_LARGE or MESSAGE_FORMAT.
    """
    check_body(fields[BODY], body_bytes)
    packed = fields[PROPERTIES]
    if packed is not None and len(packed) > MAX_PROPERTIES_BYTES:
        raise RequestError(
            f"the properties of the message have {len(packed)} bytes; at most {MAX_PROPERTIES_BYTES} are accepted here",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    wrong = check_headers(fields)
    if wrong is None and packed is not None and len(packed) > MAX_PROPERTY_CHARS:
        with suppress(ProtocolError):  # the next check refuses them
            wrong = too_long(unpack_properties(fields))
    if wrong is not None:
        raise RequestError(wrong, ErrorCode.MESSAGE_FORMAT)


def with_readable_properties(fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """The envelope of a message whose properties the usual decoder refuses, so that every reader can read them (D-46):
    U+FFFD takes the place of lone surrogates.

    Raises:
        RequestError: MESSAGE_FORMAT, no JMS type holds what is there.
    """
    try:
        properties = unpack_properties(fields)
        repaired = {
            well_formed(name): well_formed(value) if type(value) is str else value for name, value in properties.items()
        }
        if repaired == properties:  # msgpack reads what the faster decoder refuses
            return fields
        changed = list(fields)
        changed[PROPERTIES], changed[PROPERTY_TYPES] = pack_properties(repaired)
    except SieveError as error:
        raise RequestError(error.text, ErrorCode.MESSAGE_FORMAT) from error
    return tuple(changed)


def shift_times(fields: tuple[Any, ...], lag: int) -> tuple[Any, ...]:
    """The envelope with its times moved from an older clock offset to the present one; 0 means no time and stays."""
    shifted = list(fields)
    for position in (TIMESTAMP, EXPIRATION, DELIVERY_TIME):
        if shifted[position]:
            shifted[position] = max(shifted[position] + lag, 1)
    return tuple(shifted)


def require_there(identity: Identity, namespace: Namespace, text: str) -> None:
    """Raise unless a destination exists, or this user may create it. A user who may only view it may not.

    Raises:
        RequestError: SECURITY.
    """
    if not any(identity.may(verb, namespace.name, text) for verb in _USES):
        try:
            missing = namespace.find(text) is None
        except AddressError:
            return
        if missing:
            raise forbidden(identity, Verb.SEND, namespace.name, text)

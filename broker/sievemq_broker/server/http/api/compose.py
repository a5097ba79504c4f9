"""A message from its JSON."""

from __future__ import annotations

from typing import Any

from sievemq_broker.domain.broker_properties import set_by_broker
from sievemq_broker.server.http.api.requests import Send, TryOn
from sievemq_broker.server.http.api.values import from_base64, read_fields, read_properties, unusable
from sievemq_broker.server.server import Server
from sievemq_core.errors import AddressError, FormatError
from sievemq_core.limits import MAX_NAME_CHARS
from sievemq_core.message.body import encode_map, encode_stream, encode_text
from sievemq_core.message.destination import parse_address
from sievemq_core.message.envelope import BodyKind, Envelope, EnvelopeFields, pack_properties
from sievemq_core.message.headers import JMSX, SetBy
from sievemq_core.selector.lexer import is_property_name
from sievemq_core.selector.names import MODE_NUMBERS


async def compose(server: Server, given: Send, message_id: str, now: int) -> Envelope:
    """An envelope as a producer would send it.

    Args:
        server: whose scheduler reads its values.
        given: the message.
        message_id: its JMSMessageID.
        now: ms epoch; its JMSTimestamp.

    Raises:
        ApiError: 422, something in it cannot be sent.
    """
    kind, body = await _body(server, given.body_type, given.body)
    packed, letters = _properties(given.properties)
    return Envelope(
        (
            message_id,
            now,
            given.priority,
            MODE_NUMBERS[given.delivery_mode],
            now + given.time_to_live if given.time_to_live else 0,  # HDR-03
            now + given.delivery_delay,  # HDR-04
            given.correlation_id,
            _address(given.reply_to),
            given.type,
            packed,
            letters,
            int(kind),
            body,
        )
    )


def compose_fields(given: TryOn) -> tuple[dict[str, Any], EnvelopeFields]:
    """Properties and headers of a message that only a selector sees.

    Raises:
        ApiError: 422, something in it cannot be.
    """
    properties = read_properties(given.properties)
    headers = (
        given.message_id, given.timestamp, given.priority, MODE_NUMBERS[given.delivery_mode], 0, 0,
        given.correlation_id, None, given.type, None, None, 0, None,
    )  # fmt: skip
    return properties, headers


def _properties(given: dict[str, Any]) -> tuple[bytes | None, str | None]:
    for name in given:
        if not 0 < len(name) <= MAX_NAME_CHARS or not is_property_name(name):  # PRP-07, PRP-08
            text = f"properties: {name[:60]!r} cannot name a property: a selector could not name it"
            raise unusable(text, name[:100])
        standard = JMSX.get(name)
        if standard is not None and standard.set_by is not SetBy.CLIENT:  # JSX-11
            raise unusable(f"properties: a producer does not set {name}", name)
        if standard is None and name.startswith("JMS") and not name.startswith("JMS_"):  # PRP-12
            raise unusable(f"properties: names such as {name[:60]} belong to the standard", name[:100])
    try:
        properties = read_properties(given)
        return pack_properties({name: value for name, value in properties.items() if not set_by_broker(name)})
    except FormatError as error:
        raise unusable(error.text, "properties") from None


def _address(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return str(parse_address(text))
    except AddressError as error:
        raise unusable(f"reply_to: {error.text}", "reply_to") from None


async def _body(server: Server, kind: str | None, body: Any) -> tuple[BodyKind, bytes | None]:
    if kind is None:
        kinds = {str: "TEXT", dict: "MAP", list: "STREAM", type(None): "NONE"}
        if type(body) not in kinds:
            raise unusable("body: text, an object or an array is one", "body")
        kind = kinds[type(body)]
    match kind, body:
        case "NONE", None:
            return BodyKind.NONE, None
        case (("TEXT" | "BYTES" | "MAP" | "STREAM"), None):
            return BodyKind[kind], None
        case "TEXT", str():
            return BodyKind.TEXT, encode_text(body)
        case "BYTES", str():
            return BodyKind.BYTES, from_base64(body, "body")
        case "MAP", dict():
            if "" in body:
                raise unusable("body: a name in a map must not be empty (MAP-04)", "body")
            return BodyKind.MAP, encode_map(dict(zip(body, await read_fields(server, body), strict=True)))
        case "STREAM", list():
            return BodyKind.STREAM, encode_stream(await read_fields(server, body))
    wants = {"NONE": "no body", "TEXT": "text", "BYTES": "base64", "MAP": "an object", "STREAM": "an array"}
    raise unusable(f"body: {kind} wants {wants[kind]}", "body")

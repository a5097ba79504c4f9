"""From a request to a handler and back: the right, the parameters, the body, the answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
import msgspec.inspect
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from sievemq_broker.domain.work import Budget, Task
from sievemq_broker.server.http.access import caller
from sievemq_broker.server.http.api import PREFIX
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Endpoint
from sievemq_broker.server.http.api.management import Management
from sievemq_broker.server.http.api.recording import Recording
from sievemq_broker.server.http.api.requests import Nothing
from sievemq_broker.server.http.encoding import encode
from sievemq_broker.server.http.errors import ApiError, GoneError, bad_request, not_found
from sievemq_broker.server.http.gate import expect_here
from sievemq_broker.server.http.tasks import run
from sievemq_broker.server.server import Server
from sievemq_broker.session.rights import EVERYTHING, Identity, Verb
from sievemq_core.errors import AddressError
from sievemq_core.message.destination import parse_address

#: Seconds that a body may take to arrive.
BODY_SECONDS = 30.0

#: Seconds that a piece of a stream may wait for its reader, which is cut then: places for streams are few.
READER_SECONDS = 60.0

#: Bytes of a body that is too large that are read all the same, so that its sender sees the answer.
_DISCARDED = 16 * 1024 * 1024

#: Bytes that are checked at once, and the units of that.
_PIECE: Final = 65_536
_PIECE_UNITS: Final = 200

_MARKS: Final = b",", b"[", b"{"
_without_escapes: Final = re.compile(rb"\\.", re.DOTALL).sub

#: Parameters of one request.
_MAX_PARAMETERS = 32


class Operation:
    """An endpoint of the API over one broker: a route.

    Args:
        endpoint: as declared.
        management: the broker, and what all calls share.
    """

    __slots__ = ("_endpoint", "_management", "method", "path")

    def __init__(self, endpoint: Endpoint, management: Management) -> None:
        self._endpoint = endpoint
        self._management = management
        self.method = endpoint.method
        self.path = PREFIX + endpoint.path

    async def respond(self, path: Mapping[str, str], scope: Scope, receive: Receive, send: Send) -> Response | None:
        """See :class:`~sievemq_broker.server.http.router.Route`."""
        endpoint = self._endpoint
        identity = caller(Request(scope))
        gate, changes = self._management.gate, endpoint.method != "GET"
        whole = changes or endpoint.verb is Verb.BROWSE  # of a verb that takes several turns, it may show messages

        async def send_through_gate(message: Message) -> None:
            await gate.passed(changes, whole, message["type"] == "http.response.body")
            try:
                async with asyncio.timeout(READER_SECONDS):
                    await send(message)
            except TimeoutError:
                scope["state"]["hand_over"]()[0].abort()
                raise GoneError from None

        changed = (path["ns"],) if changes and "ns" in path else ()
        with (
            Recording(self._management.server.audit, endpoint, identity, scope, path) as recording,
            self._management.changing(changed),
        ):
            check(identity, endpoint, path)
            if "ns" in path:
                await expect_here(self._management.server, path["ns"])
            query = _query(endpoint, scope["query_string"])
            body = await _body(endpoint, scope, receive, self._management.server)
            call: Call[Any, Any] = Call(
                self._management, identity, scope, receive, send_through_gate, path, query, body, endpoint.status[0]
            )
            answer = await recording.answered(endpoint.handler, call)
        await gate.passed(changes, whole)
        if answer is None and endpoint.answer is None:
            return None  # it has answered itself
        return Response(encode(answer), call.status, call.headers, endpoint.media)


def check(identity: Identity, endpoint: Endpoint, path: Mapping[str, str]) -> None:
    """Check that the caller has the right that an endpoint declares, for the destination in its path.

    Raises:
        RequestError: SECURITY, the caller must not.
        ApiError: 404, a namespace in which the caller has no right at all: for them it does not exist; 422, an address
            that is none.
    """
    namespace = path.get("ns")
    if endpoint.verb is None:
        if namespace is not None and not identity.rights.enters(namespace):
            raise not_found(f"there is no namespace {namespace!r:.300}", namespace=namespace[:300])
        return
    address = path.get("address", EVERYTHING)
    if "address" in path:
        try:
            address = str(parse_address(address))
        except AddressError as error:
            raise ApiError(422, error.code.name, error.text, {"address": address[:600]}) from None
    identity.require(endpoint.verb, EVERYTHING if namespace is None else namespace, address)


def _query(endpoint: Endpoint, raw: bytes) -> Any:
    kind = endpoint.query or Nothing
    known = _fields(kind)
    given: dict[str, str] = {}
    try:
        pairs = parse_qsl(
            raw.decode("latin-1"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
        )
    except UnicodeDecodeError:
        raise bad_request("the parameters are not UTF-8") from None
    except ValueError:
        raise bad_request(f"there are more than {_MAX_PARAMETERS} parameters") from None
    for name, value in pairs:
        if name not in known:
            text = f"{name[:100]!r} is not a parameter here; {_takes(known)}"
            raise bad_request(text, parameter=name[:100], known=list(known))
        if name in given:
            raise bad_request(f"the parameter {name!r} is given twice", parameter=name)
        given[name] = value
    # "null" is a word like any other in a URL; msgspec would take it for nothing given.
    words = {name: value for name, value in given.items() if value.lower() == "null"}
    name = ""
    try:
        query = msgspec.convert({name: given[name] for name in given.keys() - words.keys()}, kind, strict=False)
        for field in msgspec.structs.fields(kind):
            name = field.encode_name
            if name in words:
                setattr(query, field.name, msgspec.convert(words[name], field.type))
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`") or name
        choices = _choices(known.get(name))
        if choices and text.startswith("Invalid enum value"):
            text = f"{given[name][:100]!r} is none of {', '.join(choices)}"
            raise bad_request(f"the parameter {name}: {text}", parameter=name, known=choices) from None
        raise bad_request(f"the parameter {name}: {text}" if name else text, parameter=name) from None
    return query


def _fields(kind: type) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _takes(known: Iterable[str]) -> str:
    names = ", ".join(known)
    return f"{names} are" if names else "there are none"


def _choices(kind: Any) -> list[str]:
    """The texts that a field may have, where it may have only some."""
    if kind is None:
        return []
    info = msgspec.inspect.type_info(kind)
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    parts = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    literals = [part.type if isinstance(part, msgspec.inspect.Metadata) else part for part in parts]
    return [str(value) for part in literals if isinstance(part, msgspec.inspect.LiteralType) for value in part.values]


async def _body(endpoint: Endpoint, scope: Scope, receive: Receive, server: Server) -> Any:
    headers = {name: value for name, value in scope["headers"] if name in (b"content-type", b"content-length")}
    length = headers.get(b"content-length", b"")
    limit = endpoint.body_limit if endpoint.body is not None else 0
    if length.isdigit() and int(length[:20]) > _DISCARDED:
        raise _too_large(limit, {"Connection": "close"})
    try:
        async with asyncio.timeout(BODY_SECONDS):
            data = await _read(receive, limit)
    except TimeoutError:
        text = f"the body did not arrive within {BODY_SECONDS:g} seconds"
        raise ApiError(408, "REQUEST_TIMEOUT", text, headers={"Connection": "close"}) from None
    if endpoint.body is None:
        return None
    if not data:
        if endpoint.body_optional:
            return endpoint.body()
        raise bad_request("this needs a body of JSON")
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if content_type != b"application/json":
        # Also what keeps a form on another site from doing anything here with a browser's credentials.
        raise ApiError(
            415, "UNSUPPORTED_MEDIA_TYPE", "a body is sent as Content-Type: application/json",
            {"content_type": content_type.decode("latin-1")[:100]},
        )  # fmt: skip
    if not await run(server, partial(has_at_most, data, endpoint.value_limit)):
        text = (
            f"the JSON of this request may have some {endpoint.value_limit} values; a client sends larger messages, "
            "and a broker starts with larger definitions"
        )
        raise ApiError(413, "REQUEST_TOO_LARGE", text, {"limit": endpoint.value_limit})
    try:
        return msgspec.json.decode(data, type=endpoint.body)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        known = _fields(endpoint.body)
        where = place.rstrip("`")
        if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", text, re.DOTALL):
            if not where:
                text = f"{unknown[1][:100]!r} is no field here; {_takes(known)}{getattr(endpoint.body, 'hint', '')}"
        elif text.startswith("Invalid enum value") and (choices := _choices(known.get(where))):
            raise bad_request(f"{where}: {text}; there are {', '.join(choices)}", field=where, known=choices) from None
        raise bad_request(f"{where}: {text}" if where else text, field=where, known=list(known)) from None
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    except UnicodeDecodeError:
        raise bad_request("the body is not UTF-8") from None


async def _read(receive: Receive, limit: int) -> bytes:
    """A body. Drain an oversized one before answering: a client that is still sending would not read the response."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("the connection ended in the middle of the body")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        elif size > _DISCARDED:
            raise _too_large(limit, {"Connection": "close"})
        else:
            chunks.clear()
        if not message.get("more_body", False):
            if size > limit:
                raise _too_large(limit, {})
            return b"".join(chunks)


def has_at_most(data: bytes, limit: int, now: int, budget: Budget) -> Task[bool]:
    """True if there are at most this many commas and opening brackets outside of strings.

    Args:
        data: JSON, or anything else.
        limit: how many may be.
    """
    if sum(map(data.count, _MARKS)) <= limit:
        return True
    found, inside, rest = 0, False, b""
    for start in range(0, len(data), _PIECE):
        if budget.spent:
            yield
        budget.spend(_PIECE_UNITS)
        piece = rest + data[start : start + _PIECE]
        rest = b""
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # an escape that continues in the next piece
            piece, rest = piece[:-1], b"\\"
        parts = _without_escapes(b"", piece).split(b'"')
        found += sum(part.count(mark) for part in parts[inside::2] for mark in _MARKS)
        if found > limit:
            return False
        inside ^= len(parts) % 2 == 0
    return True


def _too_large(limit: int, headers: Mapping[str, str]) -> ApiError:
    text = f"a body may have {limit} bytes here" if limit else "no body is expected here"
    return ApiError(413, "REQUEST_TOO_LARGE", text, {"limit": limit}, headers)

"""Writes the vectors. Prints nothing if they were up to date; run it after adding one, never to change one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgpack

from sievemq_core.message.envelope import pack_properties
from sievemq_core.message.values import Byte, Float, Long, Short
from sievemq_core.wire.codec import delivery_head, pack, pack_deliveries
from sievemq_core.wire.commands import Command
from sievemq_core.wire.connection import pack_frames

HERE = Path(__file__).parent
C = Command
T0 = 1_700_000_000_000

PLAIN = ("ID:c1:1", T0, 4, 2, 0, 0, None, None, None, None, None, 1, b"hello")
PROPERTIES, _ = pack_properties({"region": "EU", "weight": 12, "express": True, "price": 9.5})
FULL = (
    "ID:c1:2", T0, 9, 1, T0 + 60_000, T0 + 500, "order-7", "temporary-queue:c1.1", "order", PROPERTIES, None, 1,
    "Grüße".encode(),
)  # fmt: skip
BARE = (None, 0, 0, 2, 0, 0, b"\x00\xff", None, None, None, None, 0, None)


def enc(value: Any) -> Any:
    """A value as JSON."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, (tuple, list)):
        return [enc(item) for item in value]
    if isinstance(value, dict):
        return {key: enc(item) for key, item in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    if type(value) is int and abs(value) > 2**53:
        return {"int": str(value)}
    return value


def frame(name: str, *commands: tuple[Any, ...], state: str = "open") -> dict[str, Any]:
    data = b"".join(pack_frames([pack(command) for command in commands]))
    return {"name": name, "state": state, "form": "shortest", "hex": data.hex(), "commands": enc(commands)}


def special(name: str, form: str, payload: bytes, *commands: tuple[Any, ...], state: str = "open") -> dict[str, Any]:
    data = len(payload).to_bytes(4, "big") + payload
    return {"name": name, "state": state, "form": form, "hex": data.hex(), "commands": enc(commands)}


def wide(value: Any) -> bytes:
    """msgpack at full width, as a lazy encoder writes it."""
    if value is None or type(value) is bool:
        return pack(value)
    if type(value) is int:
        return struct.pack(">Bq", 0xD3, value) if value < 0 else struct.pack(">BQ", 0xCF, value)
    if type(value) is str:
        data = value.encode()
        return struct.pack(">BI", 0xDB, len(data)) + data
    if type(value) is bytes:
        return struct.pack(">BI", 0xC6, len(value)) + value
    if type(value) is tuple:
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(wide, value))
    return struct.pack(">BI", 0xDF, len(value)) + b"".join(wide(k) + wide(v) for k, v in value.items())


HELLO = (C.HELLO, 1, "orders", "ann", "secret", "warehouse", 15_000, "example/1.0", None, {})

CLIENT = [
    frame("hello of an anonymous client", (C.HELLO, 1, "", None, None, None, 0, "", None, {}), state="hello"),
    frame("hello with everything", HELLO, state="hello"),
    frame("hello that resumes", (*HELLO[:8], "c17", {"future": 1}), state="hello"),
    frame("heartbeat", (C.HEARTBEAT,)),
    frame("set client id", (C.SET_CLIENT_ID, 1, "warehouse")),
    frame("goodbye", (C.GOODBYE, 9, ())),
    frame("goodbye with what was handed", (C.GOODBYE, 9, (1, 17, 2, 3))),
    frame("ping", (C.PING, 2)),
    *[frame(f"open session in mode {m}", (C.OPEN_SESSION, 3, 1, m)) for m in range(4)],
    frame("close session", (C.CLOSE_SESSION, 4, 1, (1, 17))),
    frame(
        "open consumer of a queue",
        (C.OPEN_CONSUMER, 5, 1, 1, "queue:orders", None, None, False, None, False, False, 100),
    ),
    frame(
        "open consumer with a selector",
        (C.OPEN_CONSUMER, 6, 1, 2, "queue:orders", "a = 'EU' AND b > 10", "jakarta", False, None, False, False, 1),
    ),
    frame(
        "open shared durable consumer",
        (C.OPEN_CONSUMER, 7, 1, 3, "topic:prices", None, None, True, "audit", True, True, 0),
    ),
    frame(
        "open consumer with a limit of bytes",
        (C.OPEN_CONSUMER, 9, 1, 4, "queue:orders", None, None, False, None, False, False, 32, 0, 4_194_304),
    ),
    frame("close consumer", (C.CLOSE_CONSUMER, 8, 1, 17)),
    frame("declare", (C.DECLARE, 9, "topic:prices")),
    frame("create temporary queue", (C.CREATE_TEMPORARY, 10, False)),
    frame("create temporary topic", (C.CREATE_TEMPORARY, 11, True)),
    frame("delete temporary", (C.DELETE_TEMPORARY, 12, "temporary-queue:c1.1")),
    frame("unsubscribe", (C.UNSUBSCRIBE, 13, "audit")),
    frame("browse, first page", (C.BROWSE, 14, "queue:orders", None, None, None, 100)),
    frame("browse, depth for parts", (C.BROWSE, 14, "queue:orders", None, None, None, 0, 0, 1)),
    frame("browse, page of a part", (C.BROWSE, 15, "queue:orders", "a = 1", None, None, 100, 1, 2)),
    frame("browse, next page", (C.BROWSE, 15, "queue:orders", "a = 1", None, 3_096_224_743_817_223, 100)),
    frame("send", (C.SEND, 1, 1, "queue:orders", PLAIN)),
    frame("send with every header", (C.SEND, 1, 2, "topic:prices", FULL)),
    frame("send with next to nothing", (C.SEND, 1, 3, "orders", BARE)),
    frame("three sends in one frame", *[(C.SEND, 1, n, "queue:orders", PLAIN) for n in (4, 5, 6)]),
    frame("acknowledge and grant", (C.ACKNOWLEDGE, 1, 17, 8)),
    frame("acknowledge all", (C.ACKNOWLEDGE_ALL, 16, 1, (1, 17, 2, 3))),
    frame("acknowledge several", (C.ACKNOWLEDGE_SEVERAL, (1, 17, 2, 3))),
    frame("credit", (C.CREDIT, 1, 100)),
    frame("want", (C.WANT, 17, 1)),
    frame("want without an answer", (C.WANT, 0, 1)),
    frame("release", (C.RELEASE, 1, (15, 16, 17))),
    frame("release of nothing", (C.RELEASE, 1, ())),
    frame("release of what has expired", (C.RELEASE, 1, (18,), True)),
    frame("recover", (C.RECOVER, 18, 1, (1, 17))),
    frame("commit", (C.COMMIT, 19, 1, (1, 17))),
    frame("rollback", (C.ROLLBACK, 20, 1, ())),
    frame("clock seen", (C.CLOCK_SEEN, 86_400_000)),
    frame("clock seen, moved back", (C.CLOCK_SEEN, -5)),
    frame("withdraw a send", (C.WITHDRAW, 21, 1, 7)),
    frame("withdraw in the place of the send", (C.WITHDRAW, 0, 1, 7)),
    frame("withdraw the commit", (C.WITHDRAW, 21, 1, 0)),
    frame("settle two messages", (C.SETTLE, 7, (3, 5), 0, 2)),
    frame("give one back", (C.SETTLE, 7, (4,), 1, 0)),
    frame("reject one", (C.SETTLE, 7, (4,), 2, 1)),
    frame("open tap", (C.OPEN_TAP, 22, "audit", "queue:orders", "copy", None, None, {})),
    frame(
        "open tap with everything",
        (
            C.OPEN_TAP, 23, "nightly", "queue:orders", "drain", "a > 1", "jakarta",
            {"start": "earliest", "retain_messages": 10, "retain_bytes": 65_536, "retain_age": 60_000, "lease": 5_000},
        ),
    ),
    frame("look at a tap", (C.LOOK_TAP, 24, "audit", "queue:orders", 17, 1_000, 0)),
    frame("fetch from a tap", (C.FETCH_TAP, 25, "audit", "queue:orders", "k3v9-1.1", 17, 1_017, 500)),
    frame("acknowledge to a tap", (C.ACKNOWLEDGE_TAP, 26, "audit", "queue:orders", "k3v9-1.1", 1_017)),
    frame("delete tap", (C.DELETE_TAP, 27, "audit", "queue:orders")),
    frame("stage", (C.STAGE, 28, 1, "query 5f2c", 7, 600_000)),
    frame("publish", (C.PUBLISH, 29, "query 5f2c", 7, ("k3v9-1.1", "k3v9-2.2"))),
    frame("discard", (C.DISCARD, 30, "query 5f2c", 7)),
    frame("find destinations", (C.FIND_DESTINATIONS, 31, "queue:orders.*")),
    frame("one turn", (C.ACKNOWLEDGE, 1, 17, 8), (C.SEND, 1, 7, "queue:done", PLAIN), (C.PING, 21)),
    special("send, all integers and lengths wide", "wide", wide((C.SEND, 1, 8, "queue:orders", FULL)),
            (C.SEND, 1, 8, "queue:orders", FULL)),
    special("hello, wide", "wide", wide(HELLO), HELLO, state="hello"),
    special("acknowledge, wide", "wide", wide((C.ACKNOWLEDGE, 1, 17, 8)), (C.ACKNOWLEDGE, 1, 17, 8)),
    special("ping with a field of a newer version", "newer", pack((C.PING, 2, {"trace": "x"})), (C.PING, 2)),
]  # fmt: skip

BROKER = [
    frame("heartbeat", (C.HEARTBEAT,)),
    frame(
        "welcome",
        (
            C.WELCOME, 1, "SieveMQ 1.0", "k3v9", "k3v9-1", 15_000,
            {"frame_bytes": 71_303_168, "body_bytes": 67_108_864, "window_messages": 9999, "window_bytes": 33_554_432},
            {"durable": False, "dialect": "jakarta", "clock_offset": 0, "resumed": False},
        ),
        state="welcoming",
    ),
    frame(
        "welcome with the time",
        (
            C.WELCOME, 1, "SieveMQ 1.0", "k3v9", "k3v9-1", 15_000, {},
            {"time": T0, "clock_offset": -5, "frozen_at": T0 - 5, "moved_at": T0 - 60_000},
        ),
        state="welcoming",
    ),
    frame("refused at the door", (C.ERROR, 0, 41, "user 'ann' or the password is wrong", {}), state="welcoming"),
    frame("ok", (C.OK, 4, None)),
    frame("ok to a ping", (C.OK, 2, T0)),
    frame("ok with an address", (C.OK, 10, "temporary-queue:k3v9-1.1")),
    frame("ok with a page", (C.OK, 14, (3_096_224_743_817_223, (1, PLAIN), (2, FULL)))),
    frame("ok with the last page", (C.OK, 15, (None,))),
    frame(
        "ok with a tap",
        (
            C.OK, 24,
            {"id": "k3v9-1.1", "mode": "copy", "first": 18, "last": 1_017, "acknowledged": 17, "lost": 0, "missed": 0,
             "bytes": 250_000, "upto": 1_017, "more": False},
        ),
    ),
    frame("ok with messages of a tap", (C.OK, 25, (18, (T0, T0 + 5), (1, 3), *zip(PLAIN, FULL, strict=True)))),
    frame("ok with no messages of a tap", (C.OK, 25, (1_018, (), ()))),
    frame("ok with what was staged", (C.OK, 28, "k3v9-1.1")),
    frame("ok, published", (C.OK, 29, 5_000)),
    frame("ok, published before", (C.OK, 29, None)),
    frame("ok after goodbye", (C.OK, 9, None), state="closing"),
    frame("error", (C.ERROR, 9, 4, "temporary-queue:x.1 does not exist", {"destination": "temporary-queue:x.1"})),
    frame(
        "error about a selector",
        (C.ERROR, 6, 5, "…", {"position": 9, "length": 3, "selector": "price > AND", "expected": ["a value"]}),
    ),
    frame("error that ends the connection", (C.ERROR, 0, 37, "nothing was heard for 30000 ms", {})),
    frame("deliver", (C.DELIVER, 1, 1, 1, PLAIN)),
    frame("deliver, with every header, redelivered", (C.DELIVER, 1, 2, 3, FULL)),
    special("deliver, as the broker says it", "wide",
            delivery_head(0x9550, 0xCE, 1, 0xCF, 3, 0xCE, 1) + pack(PLAIN),
            (C.DELIVER, 1, 3, 1, PLAIN)),
    special("deliver at the ends of its numbers", "shortest",
            delivery_head(0x9550, 0xCE, 2**32 - 1, 0xCF, 2**63 - 1, 0xCE, 2**32 - 1) + pack(BARE),
            (C.DELIVER, 2**32 - 1, 2**63 - 1, 2**32 - 1, BARE)),
    frame("confirm", (C.CONFIRM, 1, 7)),
    frame("send failed", (C.SEND_FAILED, 1, 7, 12, "the body of the message has 5 bytes; at most 4 are accepted here")),
    frame("recall", (C.RECALL, 1, (15, 16, 17))),
    frame("consumer closed", (C.CONSUMER_CLOSED, 1, 4, "queue:orders was deleted by an administrator")),
    frame("flow, blocked", (C.FLOW, True, "memory")),
    frame("flow, going on", (C.FLOW, False, "")),
    frame("flow, a send waits", (C.FLOW, True, "queue:orders is full", 1, 7, "queue:orders")),
    frame("flow, a session goes on", (C.FLOW, False, "", 1, 8, None)),
    frame("clock", (C.CLOCK, 86_400_000)),
    frame("clock, moved back", (C.CLOCK, -5)),
    frame("clock, frozen", (C.CLOCK, -5, T0)),
    frame("shutdown", (C.SHUTDOWN, 5000, "restart")),
    frame("deliver several", (C.DELIVER_SEVERAL, 1, 4, (PLAIN, FULL, BARE))),
    special("deliver several, as the broker says it", "wide",
            pack_deliveries(2**32 - 1, 2**62, [pack(PLAIN), pack(BARE)]),
            (C.DELIVER_SEVERAL, 2**32 - 1, 2**62, (PLAIN, BARE))),
    special("deliver several with fields of a newer version", "newer", pack((C.DELIVER_SEVERAL, 1, 7, (PLAIN,), None)),
            (C.DELIVER_SEVERAL, 1, 7, (PLAIN,))),
    frame("one turn", (C.DELIVER, 1, 4, 1, PLAIN), (C.CONFIRM, 1, 9), (C.OK, 21, None)),
    special("deliver with fields of a newer version", "newer", pack((C.DELIVER, 1, 5, 1, PLAIN, 7, None)),
            (C.DELIVER, 1, 5, 1, PLAIN)),
]  # fmt: skip


def letter_form(value: Any) -> Any:
    letters = {Byte: "b", Short: "h", Long: "l", Float: "f"}
    if type(value) in letters:
        return {"t": letters[type(value)], "v": enc(float(value) if type(value) is Float else int(value))}
    return enc(value)


def properties(name: str, values: dict[str, Any]) -> dict[str, Any]:
    packed, letters = pack_properties(values)
    shown = {key: letter_form(value) for key, value in values.items()}
    return {"name": name, "hex": None if packed is None else packed.hex(), "letters": letters, "properties": shown}


ALL_PROPERTIES = [
    properties("none", {}),
    properties(
        "values whose form says their type", {"z": True, "i": -5, "l": 2**40, "d": 9.5, "s": "EU", "null": None}
    ),
    properties("byte", {"b": Byte(-128)}),
    properties("short", {"h": Short(32_767)}),
    properties("a long in the range of an int", {"l": Long(5)}),
    properties("float", {"f": Float(0.1)}),
    properties("one ambiguous value among others", {"a": 1, "b": Byte(1), "c": "x", "d": None, "e": False, "f": 1.5}),
    properties("ends of the integers", {"i": 2**31 - 1, "j": -(2**31), "k": 2**31, "m": 2**63 - 1, "n": -(2**63)}),
    properties("numbers that are none", {"n": float("nan"), "p": float("inf"), "m": float("-inf")}),
    properties("text beyond ASCII", {"größe": "12 €", "🛒": "日本"}),
]


def body(name: str, kind: int, data: bytes | None, value: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "hex": None if data is None else data.hex(), "value": enc(value)}


def mp(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


BODIES = [
    body("message without a body", 0, None, None),
    body("text", 1, "Grüße, 日本".encode(), "Grüße, 日本"),
    body("text, empty", 1, b"", ""),
    body("text, none", 1, None, None),
    body("bytes", 2, bytes(range(8)), bytes(range(8))),
    body("bytes, none", 2, None, None),
    body("map", 3, mp([None, {"name": "tea", "n": 2, "ok": True, "raw": b"\x01", "none": None}]),
         {"name": "tea", "n": 2, "ok": True, "raw": b"\x01", "none": None}),
    body("map with types", 3, mp(["bcf", {"b": 1, "c": "x", "f": 0.5}]),
         {"b": {"t": "b", "v": 1}, "c": {"t": "c", "v": "x"}, "f": {"t": "f", "v": 0.5}}),
    body("stream", 4, mp([None, ["tea", 2, 1.5, b"\x01", None]]), ["tea", 2, 1.5, b"\x01", None]),
    body("stream with types", 4, mp(["hls", [1, 2, "x"]]), [{"t": "h", "v": 1}, {"t": "l", "v": 2}, "x"]),
    body("object", 5, mp({"name": "tea", "lines": {"n": 2}}), {"name": "tea", "lines": {"n": 2}}),
]  # fmt: skip


def broken(name: str, data: bytes, code: int) -> dict[str, Any]:
    return {"name": name, "hex": data.hex(), "code": code}


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


BROKEN = [
    broken("a frame of length zero", b"\x00\x00\x00\x00", 32),
    broken("a frame beyond the limit", b"\xff\xff\xff\xff", 33),
    broken("no msgpack", framed(b"\xc1"), 32),
    broken("a value that is no array", framed(b"\x05"), 32),
    broken("an empty array", framed(b"\x90"), 32),
    broken("bytes in place of an array", framed(mp(bytes([C.CREDIT, 1, 2]))), 32),
    broken("an array that is cut off", framed(pack((C.PING, 1))[:-1]), 32),
    broken("a second command that is cut off", framed(pack((C.PING, 1)) + b"\x92"), 32),
    broken("text that is not UTF-8", framed(b"\x93\x0c\x01\xa2\xff\xfe"), 32),
    broken("a map with keys that are not text", framed(b"\x92\x04\x81\x01\x02"), 32),
    broken("an extension type", framed(b"\x92\x04\xd4\x01\x00"), 32),
    broken("an array of too many elements", framed(b"\x93\x1d\x01\xdd\x00\x10\x00\x00"), 32),
    broken("arrays that announce more than there is", framed(b"\x93\x04\x01" + b"\xdc\x3f\xff" * 100), 32),
    broken("more than 4096 commands in a frame", framed(b"\x91\x00" * 4_097), 32),
    {
        **broken(
            "two commands in a frame of more than 65536 bytes", b"\0\1\0\5" + b"\x91\0" + b"\x92\0\xc5\xff\xfe", 32
        ),
        "fill": 65_534,
    },
    broken("an unknown command", framed(pack((99, 1))), 35),
    broken("true in place of a command's number", framed(mp([True, 1])), 32),
    broken("a field too few", framed(pack((C.ACKNOWLEDGE, 1, 17))), 32),
    broken("a negative integer", framed(pack((C.ACKNOWLEDGE, 1, 17, -1))), 32),
    broken("a boolean in place of an integer", framed(pack((C.ACKNOWLEDGE, 1, True, 1))), 32),
    broken("a float in place of an integer", framed(pack((C.ACKNOWLEDGE, 1, 17.0, 1))), 32),
    broken("bytes in place of text", framed(pack((C.DECLARE, 1, b"queue:q"))), 32),
    broken("a nil where none may be", framed(pack((C.DECLARE, 1, None))), 32),
    broken("ids that are no integers", framed(pack((C.RELEASE, 1, (1, "2")))), 32),
    broken("an envelope with a field too few", framed(pack((C.SEND, 1, 1, "queue:q", PLAIN[:-1]))), 32),
    broken("an envelope with a priority of 10", framed(pack((C.SEND, 1, 1, "q", (*PLAIN[:2], 10, *PLAIN[3:])))), 32),
    broken("an envelope with a delivery mode of 0", framed(pack((C.SEND, 1, 1, "q", (*PLAIN[:3], 0, *PLAIN[4:])))), 32),
    broken("an envelope with an unknown field that is an array", framed(pack((C.SEND, 1, 1, "q", (*PLAIN, ())))), 32),
    broken("an envelope with an unknown field that is a map", framed(pack((C.SEND, 1, 1, "q", (*PLAIN, 7, {})))), 32),
    broken("a command of the broker", framed(pack((C.OK, 1, None))), 36),
    broken("a second hello", framed(pack(HELLO)), 36),
    broken("a send out of sequence", framed(pack((C.OPEN_SESSION, 1, 1, 1)) + pack((C.SEND, 1, 2, "q", PLAIN))), 36),
    broken("a send to a session that never was", framed(pack((C.SEND, 1, 1, "q", PLAIN))), 36),
    broken("credit for a consumer that never was", framed(pack((C.CREDIT, 1, 1))), 36),
]

FILES = {
    "client.json": CLIENT,
    "broker.json": BROKER,
    "properties.json": ALL_PROPERTIES,
    "bodies.json": BODIES,
    "broken.json": BROKEN,
}


def render(vectors: list[dict[str, Any]]) -> str:
    """A line per vector, so that a new one is one line of a diff."""
    lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in vectors)
    return f"[\n{lines}\n]\n"


def main() -> None:
    """Write what is new. A vector whose name is there already must not change."""
    for name, vectors in FILES.items():
        path = HERE / name
        text = render(vectors)
        if path.exists():
            old = {vector["name"]: vector for vector in json.loads(path.read_text("utf-8"))}
            for vector in vectors:
                if old.get(vector["name"], vector) != json.loads(json.dumps(vector)):
                    raise SystemExit(f"{name}: {vector['name']!r} would change; give the new one another name")
            if path.read_text("utf-8") == text:
                continue
        path.write_text(text, "utf-8")
        print(f"{name}: {len(vectors)} vectors")


if __name__ == "__main__":
    main()

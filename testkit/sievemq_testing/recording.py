"""Record messages that applications send to a broker, and replay them in a test, at the pace of the test's clock.

A recording is a file of JSON lines, one per message that was sent (those of a transaction when it is committed), in
order. A line can be read, written and changed by hand::

    {"at": 1767225600000, "namespace": "default", "destination": "queue:orders",
     "message": {"id": "ID:a-1:1", "properties": {"region": "EU"}, "kind": "text", "body": "an order"}}

A missing field has its default. ``types`` are the type letters of the properties (docs/protocol.md) where the JSON form
does not determine the JMS type; ``body`` is text for ``text`` and base64 otherwise.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from sievemq_core.message.envelope import (
    BODY,
    BODY_KIND,
    CORRELATION_ID,
    DELIVERY_MODE,
    DELIVERY_TIME,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    PROPERTIES,
    PROPERTY_TYPES,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    BodyKind,
    Envelope,
    pack_properties,
    unpack_properties,
)
from sievemq_testing.running import Running, RunningNamespace
from sievemq_testing.snapshot import shifted
from sievemq_testing.watched import Watch

_HEADERS: Final = {
    "id": MESSAGE_ID,
    "timestamp": TIMESTAMP,
    "priority": PRIORITY,
    "delivery_mode": DELIVERY_MODE,
    "expiration": EXPIRATION,
    "delivery_time": DELIVERY_TIME,
    "reply_to": REPLY_TO,
    "type": TYPE,
}
_DEFAULTS: Final = (None, 0, 4, 2, 0, 0, None, None, None, None, None, 0, None)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One message of a recording.

    Attributes:
        at: the broker's time at its arrival, ms since 1970.
        namespace: where it was sent.
        destination: address in text.
        envelope: the message.
    """

    at: int
    namespace: str
    destination: str
    envelope: Envelope

    def to_line(self) -> str:
        """Return one line of JSON."""
        fields = self.envelope.fields
        message: dict[str, Any] = {
            name: fields[position] for name, position in _HEADERS.items() if fields[position] != _DEFAULTS[position]
        }
        correlation = fields[CORRELATION_ID]
        if isinstance(correlation, bytes):
            message["correlation_bytes"] = base64.b64encode(correlation).decode()
        elif correlation is not None:
            message["correlation_id"] = correlation
        if fields[PROPERTIES] is not None:
            message["properties"] = unpack_properties(fields)
            if fields[PROPERTY_TYPES] is not None:
                message["types"] = fields[PROPERTY_TYPES]
        kind, body = BodyKind(fields[BODY_KIND]), fields[BODY]
        if kind is not BodyKind.NONE:
            message["kind"] = kind.name.lower()
        if body is not None:
            text = kind is BodyKind.TEXT
            message["body"] = body.decode("utf-8", "surrogatepass") if text else base64.b64encode(body).decode()
        line = {"at": self.at, "namespace": self.namespace, "destination": self.destination, "message": message}
        return json.dumps(line)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read a line.

        Raises:
            ValueError: it is not a line of a recording; the text names the mistake.
        """
        try:
            data = json.loads(line)
            message = data["message"]
            fields: list[Any] = list(_DEFAULTS)
            for name, position in _HEADERS.items():
                if name in message:
                    fields[position] = message[name]
            if "correlation_bytes" in message:
                fields[CORRELATION_ID] = base64.b64decode(message["correlation_bytes"])
            else:
                fields[CORRELATION_ID] = message.get("correlation_id")
            fields[PROPERTIES], fields[PROPERTY_TYPES] = pack_properties(message.get("properties") or {})
            fields[PROPERTY_TYPES] = message.get("types", fields[PROPERTY_TYPES])
            kind = BodyKind[message.get("kind", "none").upper()]
            fields[BODY_KIND] = int(kind)
            body = message.get("body")
            if body is not None:
                fields[BODY] = (
                    body.encode("utf-8", "surrogatepass") if kind is BodyKind.TEXT else base64.b64decode(body)
                )
            return cls(data["at"], data.get("namespace", "default"), data["destination"], Envelope(tuple(fields)))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a line of a recording ({error!r}): {line[:200].rstrip()}") from error


class Tape:
    """A recording being made; ends with the ``with`` block, or :meth:`stop`.

    Args:
        namespace: only messages sent in this namespace; None for all.
    """

    def __init__(self, broker: Running, watch: Watch, path: str | Path, namespace: str | None = None) -> None:
        self._broker = broker
        self._watch = watch
        self._namespace = namespace
        self._file: TextIO | None = Path(path).open("w", encoding="utf-8")  # noqa: SIM115  stop() closes it
        #: The number of messages recorded.
        self.messages = 0
        broker.call(lambda _: watch.tapes.append(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End; everything is in the file when this returns."""
        if self._file is not None:
            self._broker.call(lambda _: self._watch.tapes.remove(self))
            self._file.close()
            self._file = None

    def sent(self, namespace: str, destination: str, envelope: Envelope, now: int) -> None:
        if self._file is not None and self._namespace in (None, namespace):
            self._file.write(f"{Recorded(now, namespace, destination, envelope).to_line()}\n")
            self.messages += 1


class Replay:
    """A recording to send again.

    Args:
        path: the file.

    Raises:
        ValueError: a line is not one of a recording; the text names it.
    """

    def __init__(self, path: str | Path) -> None:
        self.recorded: list[Recorded] = []
        with Path(path).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        self.recorded.append(Recorded.from_line(line))
                    except ValueError as error:
                        raise ValueError(f"{path}, line {number}: {error}") from error

    def __len__(self) -> int:
        return len(self.recorded)

    def __iter__(self) -> Iterator[Recorded]:
        return iter(self.recorded)

    def into(
        self,
        namespace: RunningNamespace,
        *,
        timing: bool = True,
        after_each: Callable[[Recorded], object] | None = None,
    ) -> int:
        """Send everything to a namespace, independent of the recorded one. Times in the messages are shifted: a message
        that had a minute to live has a minute again.

        Args:
            namespace: where to.
            timing: move the broker's clock by the time that lay between two messages, instead of waiting for it; what
                became due in between (expiry, delays) happens in between. Without it, all are sent immediately.
            after_each: called with each message after it was sent.

        Returns:
            How many messages were sent.
        """
        broker = namespace.broker
        before: int | None = None
        for item in self.recorded:
            if timing and before is not None and item.at > before:
                broker.clock.advance(milliseconds=item.at - before)
            before = item.at
            broker.on_server(lambda server, item=item: self._send(namespace.name, item, server.clock.now(), server))  # type: ignore[misc]
            if after_each is not None:
                after_each(item)
        return len(self.recorded)

    @staticmethod
    def _send(namespace: str, item: Recorded, now: int, server: Any) -> None:
        envelope = shifted(item.envelope, now - item.at)
        server.shard.broker.namespace(namespace).send(item.destination, envelope, now)

"""HELLO and WELCOME: what every protocol knows of a client, and what only this one has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sievemq_broker.session.checks import pairs
from sievemq_broker.session.lost import Memory, Report
from sievemq_broker.session.settings import SessionSettings
from sievemq_broker.session.verbs import Hello, Resume, Welcome
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.limits import MAX_PROPERTIES_BYTES, MIN_HEARTBEAT_MS
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command

OLDEST_VERSION: Final = 1


class Greeting(NamedTuple):
    """What only this protocol has in its HELLO.

    Attributes:
        version: of the protocol, that the client speaks.
        heartbeat: ms after which the client expects a frame; 0 for never.
        several: it takes DELIVER_SEVERAL.
    """

    version: int
    heartbeat: int
    several: bool


def divide(command: CommandTuple) -> tuple[Greeting, Hello]:
    """Divide a decoded HELLO.

    Raises:
        ProtocolError: the client's version of the protocol is too old.
    """
    _, version, namespace, user, password, client_id, heartbeat, agent, resume, options = command
    if version < OLDEST_VERSION:
        raise ProtocolError(
            f"protocol version {version} is not supported; this broker supports {OLDEST_VERSION} to {PROTOCOL_VERSION}",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    greeting = Greeting(
        # A newer client is answered in the newest version known here, and decides whether it can speak that.
        min(version, PROTOCOL_VERSION),
        max(heartbeat, MIN_HEARTBEAT_MS) if heartbeat else 0,
        options.get("deliver_several") is True,
    )
    hello = Hello(
        namespace=namespace,
        user=user,
        password=password,
        client_id=client_id,
        agent=agent,
        keep=_number(options.get("keep")),
        resume=None if resume is None else _resume(resume, options),
    )
    return greeting, hello


def welcome_of(greeting: Greeting, welcome: Welcome, settings: SessionSettings) -> CommandTuple:
    """The WELCOME that answers a HELLO."""
    limits = {
        "frame_bytes": settings.frame_bytes,
        "body_bytes": settings.body_bytes,
        "window_messages": settings.window_messages,
        "window_bytes": settings.window_bytes,
        "properties_bytes": MAX_PROPERTIES_BYTES,
        "sessions": settings.max_sessions,
        "consumers": settings.max_consumers,
        "temporaries": settings.max_temporaries,
        "staged_bytes": settings.staged_bytes,
        "subscriptions": welcome.subscriptions,
        "connections": settings.max_connections,
    }
    features: dict[str, object] = {
        "durable": settings.durable,
        "dialect": settings.dialect,
        "time": welcome.real,
        "clock_offset": welcome.clock_offset,
        "frozen_at": welcome.frozen_at,
        "moved_at": welcome.moved_at,
        "resumed": False if welcome.resumed is None else _resumed(welcome.resumed),
        "acknowledge_several": True,
        "shard": settings.shard,
    }
    if settings.peers:
        features["peers"] = settings.peers
    return (
        Command.WELCOME,
        greeting.version,
        settings.broker,
        settings.incarnation,
        welcome.connection,
        settings.heartbeat_ms,
        limits,
        features,
    )


def _resumed(memory: Memory) -> dict[str, object]:
    """What the broker remembers of a lost connection."""
    return {
        "sessions": tuple((number, *progress) for number, progress in memory.sessions.items()),
        "refused": memory.refused,
        "temporaries": not memory.restored,
    }


def _resume(connection: str, options: Mapping[str, Any]) -> Resume:
    """What the options of a HELLO state of the lost connection. What is not in form is ignored."""
    ids = options.get("ids")
    session, consumer = map(_number, ids) if type(ids) is tuple and len(ids) == 2 else (0, 0)
    return Resume(connection, _report(options), session, consumer, _number(options.get("attempt")))


def _number(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _report(options: Mapping[str, Any]) -> Report:
    """What a HELLO states of messages that were delivered to a lost connection."""
    flat = options.get("failed")
    failed: dict[int, tuple[int, int]] = {}
    if type(flat) is tuple and len(flat) % 3 == 0 and all(type(number) is int for number in flat):
        numbers = iter(flat)
        failed = {number: (after, last) for number, after, last in zip(numbers, numbers, numbers, strict=True)}
    return Report(_pairs(options.get("handed")), _pairs(options.get("done")), failed)


def _pairs(flat: Any) -> dict[int, int]:
    """Pairs of consumer and tag from a HELLO; empty if it has no list of pairs."""
    if type(flat) is not tuple or len(flat) % 2 or any(type(number) is not int for number in flat):
        return {}
    return pairs(flat)

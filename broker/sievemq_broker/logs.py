"""How the broker logs.

Broker code says ``log = logs.get("server")`` and ``log.info("connection.opened", peer=peer)``: the event is a constant
name, the values are keys. Message bodies, selectors' literals and credentials are never logged.

Underneath it is the standard library's logging under the name ``sievemq_broker``: an embedded broker configures
nothing, so the host application (or pytest's caplog) sees ordinary records. Only the ``sievemq broker`` process calls
:func:`configure`, and then every record of the process looks the same, uvicorn's included.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

__all__ = ["LEVELS", "configure", "get"]

LEVELS = ("debug", "info", "warning", "error")

_ROOT = "sievemq_broker"


def get(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of one part of the broker.

    Args:
        name: the part: "server", "http", …
    """
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(f"{_ROOT}.{name}"),
        processors=[structlog.stdlib.filter_by_level, _to_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return logger


def _to_record(_: object, __: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """Turn an event into the arguments of a standard record: readable as it is, and with its keys kept apart."""
    name = event.pop("event")
    exc_info = event.pop("exc_info", None)
    text = " ".join([name, *(f"{key}={value!r}" for key, value in event.items())])
    return (text,), {"exc_info": exc_info, "extra": {"event": name, "fields": dict(event)}}


def _from_record(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The keys of our own records back in place; records of others keep their text as the event."""
    record = event["_record"]
    fields = getattr(record, "fields", None)
    if fields is not None:
        event["event"] = record.event
        event.update(fields)
    return event


def configure(level: str = "info", *, json: bool | None = None, stream: TextIO | None = None) -> None:
    """Send every log record of this process to one stream.

    Args:
        level: the lowest level to show, one of LEVELS.
        json: one JSON object per line; False for a console; None decides by whether `stream` is a terminal.
        stream: where to; the standard output if not given.
    """
    stream = stream or sys.stdout
    if json is None:
        json = not stream.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _from_record,
    ]
    last: list[structlog.typing.Processor]
    if json:
        last = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
        ]
    else:
        last = [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # uvicorn says with each start and stop what the broker has said already.
    for noisy in ("uvicorn.error", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))

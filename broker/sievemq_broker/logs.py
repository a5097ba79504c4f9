"""How the broker logs.

Broker code says ``log = logs.get("server")`` and ``log.info("connection.opened", peer=peer)``: the event is a constant
name, the values are keys. Message bodies, selectors' literals and credentials are never logged.

Underneath it is the standard library's logging under the name ``sievemq_broker``: an embedded broker configures
nothing, so the host application (or pytest's caplog) sees ordinary records. Only the ``sievemq broker`` process calls
:func:`configure`, which hands all records to structlog: then every line of the process looks the same, uvicorn's
included. structlog is imported there and not here, since it takes longer than starting a broker does.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from structlog.typing import Processor

__all__ = ["LEVELS", "Log", "configure", "get"]

LEVELS = ("debug", "info", "warning", "error")

_ROOT = "sievemq_broker"


class Log:
    """Events of one part of the broker, as records of the standard library.

    A record's text reads ``event key=value …``; its attributes `event` and `fields` keep the parts apart.

    Args:
        name: the logger's.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        """For debugging."""
        self._write(logging.DEBUG, event, None, fields)

    def info(self, event: str, **fields: object) -> None:
        """What an operator may want to know later."""
        self._write(logging.INFO, event, None, fields)

    def warning(self, event: str, **fields: object) -> None:
        """What an operator should look at some time."""
        self._write(logging.WARNING, event, None, fields)

    def error(self, event: str, **fields: object) -> None:
        """What an operator should look at now."""
        self._write(logging.ERROR, event, None, fields)

    def fault(self, event: str, error: BaseException | None, **fields: object) -> None:
        """A fault of the broker itself, shown with its traceback."""
        self._write(logging.ERROR, event, error, fields)

    def _write(self, level: int, event: str, error: BaseException | None, fields: dict[str, object]) -> None:
        logger = self._logger
        if logger.isEnabledFor(level):
            text = " ".join([event, *(f"{key}={value!r}" for key, value in fields.items())])
            logger.log(level, "%s", text, exc_info=error, extra={"event": event, "fields": fields}, stacklevel=3)


def get(name: str) -> Log:
    """The log of one part of the broker.

    Args:
        name: the part: "server", "http", …
    """
    return Log(f"{_ROOT}.{name}")


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
    import structlog

    stream = stream or sys.stdout
    if json is None:
        json = not stream.isatty()
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _from_record,
    ]
    last: list[Processor]
    if json:
        as_json = structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
        last = [structlog.processors.format_exc_info, as_json]
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

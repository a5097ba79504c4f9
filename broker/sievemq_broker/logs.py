"""How the broker logs.

Broker code calls ``log = logs.get("server")`` and ``log.info("connection.opened", peer=peer)``: the event is a constant
name, the values are keys. Message bodies, selectors' literals and credentials are never logged.

Underneath it is the standard library's logging under the name ``sievemq_broker``: an embedded broker configures
nothing, so the host application (or pytest's caplog) sees ordinary records. Only the ``sievemq broker`` process calls
:func:`configure`: then every line of the process looks the same, uvicorn's included.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from sievemq_core.output import complain

LEVELS = ("debug", "info", "warning", "error")

_ROOT = "sievemq_broker"


class Log:
    """Events of one part of the broker, as records of the standard library.

    A record's text reads ``event key=value …``; its attributes `event` and `fields` keep the parts apart.

    Args:
        name: the logger's.
        fields: that each of its events has.
    """

    __slots__ = ("_fields", "_logger", "_name")

    def __init__(self, name: str, **fields: object) -> None:
        self._name = name
        self._logger = logging.getLogger(name)
        self._fields = fields

    def of(self, **fields: object) -> Log:
        """The same log, whose events have these fields, too."""
        return Log(self._name, **self._fields, **fields)

    def debug(self, event: str, **fields: object) -> None:
        """For debugging."""
        self._write(logging.DEBUG, event, None, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log an event that an operator may want to see later."""
        self._write(logging.INFO, event, None, fields)

    def warning(self, event: str, **fields: object) -> None:
        """A matter for an operator, at some time."""
        self._write(logging.WARNING, event, None, fields)

    def error(self, event: str, **fields: object) -> None:
        """A matter for an operator, now."""
        self._write(logging.ERROR, event, None, fields)

    def fault(self, event: str, error: BaseException | None, **fields: object) -> None:
        """A fault of the broker itself, shown with its traceback."""
        self._write(logging.ERROR, event, error, fields)

    def _write(self, level: int, event: str, error: BaseException | None, fields: dict[str, object]) -> None:
        logger = self._logger
        if logger.isEnabledFor(level):
            fields |= self._fields
            text = " ".join([event, *(f"{key}={value!r}" for key, value in fields.items())])
            logger.log(level, "%s", text, exc_info=error, extra={"event": event, "fields": fields}, stacklevel=3)


def get(name: str) -> Log:
    """The log of one part of the broker.

    Args:
        name: the part: "server", "http", …
    """
    return Log(f"{_ROOT}.{name}")


class _Lines(logging.Formatter):
    """A line per record, in UTC: JSON, or text for a console."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Our own records with their fields; those of others with their text as the event."""
        fields: dict[str, object] | None = getattr(record, "fields", None)
        line = {
            "event": record.getMessage() if fields is None else record.event,  # type: ignore[attr-defined]
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            **(fields or {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if self._as_json:
            return json.dumps(line, default=str, ensure_ascii=False)
        event, level, logger, time, *_ = line.values()
        shown = "".join(f" {key}={_shown(value)}" for key, value in (fields or {}).items())
        trace = f"\n{line['exception']}" if record.exc_info else ""
        return f"{time} [{level:<7}] {event} [{logger}]{shown}{trace}"


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and not set(text) & set(" =\"'") else repr(value)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to a stream. If that fails, as on a full disk, events are dropped, and standard error says so once."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  its name in logging
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._failed:
            self._failed = True
            complain(
                f"sievemq: the log cannot be written: {error.strerror or error}; events are dropped until it can be"
            )


def configure(level: str = "info", *, as_json: bool | None = None, stream: TextIO | None = None) -> None:
    """Send every log record of this process to one stream.

    Args:
        level: the lowest level to show, one of LEVELS.
        as_json: one JSON object per line; False for a console; None decides by whether `stream` is a terminal.
        stream: where to; the standard output if not given.
    """
    stream = stream or sys.stdout
    handler = _Handler(stream)
    handler.setFormatter(_Lines(not stream.isatty() if as_json is None else as_json))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # uvicorn logs each start and stop, which the broker has logged already.
    for noisy in ("uvicorn.error", "asyncio"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))

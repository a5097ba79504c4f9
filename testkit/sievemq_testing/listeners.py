"""Exceptions that message listeners of this process raise, for the assertions that fail because of them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Set
from typing import Final

#: The client's logger of such exceptions.
LOGGER: Final = "sievemq.listeners"

_KEPT: Final = 100


class ListenerErrors(logging.Handler):
    """Keeps the last exceptions, with the ids of their messages."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._raised: deque[tuple[object, BaseException]] = deque(maxlen=_KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and isinstance(record.args, tuple) and record.args:
            self._raised.append((record.args[0], record.exc_info[1]))

    def of(self, messages: Set[object]) -> list[tuple[object, BaseException]]:
        return [(name, error) for name, error in tuple(self._raised) if name in messages]

    def listen(self) -> None:
        logging.getLogger(LOGGER).addHandler(self)

    def stop(self) -> None:
        logging.getLogger(LOGGER).removeHandler(self)

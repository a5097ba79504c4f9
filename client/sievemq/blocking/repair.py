"""Opening another socket while the I/O thread continues: an attempt may hang in a name server, a connect, TLS.

Each attempt has a thread of its own, without a waiter: one that is abandoned closes what it has opened.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sievemq.exceptions import JMSException

__all__ = ["Attempt", "Reach"]

Reach: TypeAlias = Callable[[Sequence[tuple[int, tuple[str, int]]], float], tuple[int, socket.socket]]
"""Connects to the first host that answers: numbered hosts and seconds for each; its number and the socket."""


class Attempt:
    """One attempt to reach a broker.

    Args:
        reach: connects.
        hosts: where to, each with its number.
        seconds: that each may take.
        done: called from the attempt's thread when it has ended, either way.
    """

    __slots__ = ("_abandoned", "_lock", "_result", "ended", "error")

    def __init__(
        self, reach: Reach, hosts: Sequence[tuple[int, tuple[str, int]]], seconds: float, done: Callable[[], None]
    ) -> None:
        self._lock = threading.Lock()
        self._abandoned = False
        self._result: tuple[int, socket.socket] | None = None
        self.ended = False
        self.error: JMSException | None = None

        def run() -> None:
            try:
                result = reach(hosts, seconds)
            except JMSException as error:
                self.error = error
            except Exception as error:
                self.error = JMSException(f"no broker could be reached: {error}", "CONNECTION_FAILED", error)
            else:
                self._keep(result)
            self.ended = True
            done()

        threading.Thread(target=run, name="sievemq-reconnect", daemon=True).start()

    def _keep(self, result: tuple[int, socket.socket]) -> None:
        with self._lock:
            if not self._abandoned:
                self._result = result
                return
        result[1].close()

    def take(self) -> tuple[int, socket.socket] | None:
        """Number of the host and the connected socket; None if there is none. What comes later is closed."""
        with self._lock:
            self._abandoned = True
            result, self._result = self._result, None
            return result

"""A broker without its sockets, in this process: commands in, commands out, and what it cost in processor time.

Everything between the bytes that arrive and the bytes that leave is the real broker; what is missing is the kernel. So
figures repeat to a few per cent on a machine that others use too.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

from sievemq_broker.domain import Broker
from sievemq_broker.protocols.sieve import SieveConnection
from sievemq_broker.server.net.codec import hasten
from sievemq_broker.session import Identity, Peer, Services
from sievemq_core.wire.codec import pack
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

NOW = 1_700_000_000_000
BATCH = 100


def envelope(number: int, size: int = 256, **properties: Any) -> tuple[Any, ...]:
    """The fields of a BytesMessage of `size` bytes."""
    packed = pack(properties) if properties else None
    return (f"ID:c1:{number}", NOW, 4, 1, 0, 0, None, None, None, packed, None, 2, b"x" * size or None)


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _Services(Services[Peer]):
    """A rim that neither waits nor writes."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = 0

    def connection_id(self) -> str:
        self._ids += 1
        return f"c{self._ids}"

    def authenticate(self, peer: Peer, user: str | None, password: str | None, later: object) -> Identity:
        return Identity(user)

    def now(self) -> int:
        return NOW

    def report(self, peer: Peer, doing: str, error: BaseException) -> None:
        raise error


class Client:
    """One connection with one session: what it says is kept until :meth:`flush`."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._broker = SieveConnection(rig.broker, rig.services)
        self._wire = WireConnection("client")
        self._request = self._sent = self._consumers = 0
        self.say(Command.HELLO, PROTOCOL_VERSION, "", None, None, None, 0, "rig", None, {"deliver_several": True})
        self.ask(Command.OPEN_SESSION, 1, 1, 0)

    def say(self, *command: object) -> list[Any]:
        self._wire.send(*command)
        return self.flush()

    def ask(self, number: int, *fields: object) -> list[Any]:
        self._request += 1
        return self.say(number, self._request, *fields)

    def consumer(self, address: str, selector: str | None = None, credit: int = 0) -> int:
        self._consumers += 1
        fields = (address, selector, None, False, None, False, False, credit, 0)
        answer = self.ask(Command.OPEN_CONSUMER, 1, self._consumers, *fields)[0]
        assert answer[0] == Command.OK, answer
        return self._consumers

    def send(self, address: str, fields: tuple[Any, ...]) -> None:
        self._sent += 1
        self._wire.send(Command.SEND, 1, self._sent, address, fields)

    def acknowledge(self, consumer: int, tag: int, credit: int) -> None:
        self._wire.send(Command.ACKNOWLEDGE, consumer, tag, credit)

    def flush(self) -> list[Any]:
        """Hand over what was queued; what the broker says to that. The broker's time counts, the client's does not."""
        data = self._wire.data_to_send()
        start = time.process_time()
        if data:
            self._broker.receive_data(data, NOW)
        data = self._broker.data_to_send() if self._broker.has_data else b""
        self._rig.spent += time.process_time() - start
        return self._wire.receive_data(data) if data else []


class Rig:
    """A broker and its clients.

    Attributes:
        spent: processor seconds of the broker so far.
    """

    def __init__(self) -> None:
        hasten()  # as the broker's process does
        self.broker = Broker()
        self.services = _Services()
        self.spent = 0.0

    def client(self) -> Client:
        return Client(self)

    def work(self) -> None:
        """Do what is pending, as a loop would between two turns."""
        start = time.process_time()
        while self.broker.work(NOW, 1_000):
            pass
        self.spent += time.process_time() - start

"""HELLO and its answer on one transport. A client that may reach its broker at several hosts has one at each of them,
and continues with the first that is welcomed."""

from __future__ import annotations

from typing import Final

from sievemq.exceptions import JMSException, exception_for
from sievemq_core.errors import ErrorCode, ProtocolError
from sievemq_core.harmless import harmless
from sievemq_core.wire.codec import CommandTuple
from sievemq_core.wire.commands import PROTOCOL_VERSION, Command
from sievemq_core.wire.connection import WireConnection

#: Of a broker's text these stay: the lines of a selector with a caret below its mistake.
LINES: Final = "\n\t"


class Handshake:
    """One attempt to be welcomed. Made by :meth:`ClientConnection.hello`; `over` once it has succeeded or failed.

    Args:
        peer: host and port, for people; None if unknown.
        closed: why a peer may close the transport without an answer, for people.
        asked: the time at which the client asks for the broker's, by its own clock.

    Attributes:
        wire: the protocol of this transport.
        welcome: WELCOME, once it has come.
        rest: what came behind it.
        error: why the client is not welcomed.
        resumes: it takes the place of a lost connection.
    """

    __slots__ = ("_closed", "asked", "error", "peer", "rest", "resumes", "welcome", "wire")

    def __init__(self, hello: CommandTuple, peer: tuple[str, int] | None, closed: JMSException, asked: int) -> None:
        self.wire = WireConnection("client")
        self.wire.send(*hello)
        self.peer = peer
        self._closed = closed
        self.asked = asked
        self.resumes = hello[8] is not None
        self.welcome: CommandTuple | None = None
        self.rest: list[CommandTuple] = []
        self.error: JMSException | None = None

    @property
    def over(self) -> bool:
        return self.welcome is not None or self.error is not None

    def data_to_send(self) -> bytes:
        return self.wire.data_to_send()

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the peer. Never raises."""
        if self.error is not None:
            return
        try:
            commands = self.wire.receive_data(data)
        except ProtocolError as error:
            self.error = self._refusal(error)
            return
        for at, command in enumerate(commands):
            if command[0] == Command.WELCOME and self.welcome is None:
                self._welcomed(command)
                self.rest += commands[at + 1 :]
                return
            if command[0] == Command.ERROR:
                _, _, code, text, details, *_ = command
                self.error = exception_for(code, harmless(text, LINES), details)
                return
        if self.welcome is not None:
            self.rest += commands

    def _welcomed(self, command: CommandTuple) -> None:
        if 1 <= command[1] <= PROTOCOL_VERSION:  # HELLO named the versions of this client
            self.welcome = command
            return
        older = "client" if command[1] > PROTOCOL_VERSION else "broker"
        text = (
            f"the broker answered in protocol version {command[1]}; this client speaks {PROTOCOL_VERSION}: "
            f"upgrade the {older}"
        )
        self.error = self._refusal(ProtocolError(text, ErrorCode.UNSUPPORTED_VERSION))

    def _refusal(self, error: ProtocolError) -> JMSException:
        text = f"the connection to the broker is lost: {error}"
        if error.code == ErrorCode.FRAME_TOO_LARGE and self.peer is not None:
            host, port = self.peer  # its first bytes are no frame: HTTP, TLS, another broker
            text = (
                f"what answers at {host}:{port} does not speak SieveMQ's protocol (its management port, or TLS, for "
                f"which the URL begins with sievemqs://?): {error}"
            )
        return JMSException(text, error.code.name, error)

    def lost(self, error: BaseException | None) -> None:
        """The transport has failed, or the peer has closed it.

        Args:
            error: why; None if the peer has closed it.
        """
        if self.error is None:
            if error is None:
                self.error = self._closed
            elif isinstance(error, JMSException):
                self.error = error
            else:
                self.error = JMSException(f"the connection to the broker is lost: {error}", "CONNECTION_LOST", error)

    def leave(self) -> bytes:
        """What to write before the transport is closed, because another host has welcomed the client, or the time is
        over: the broker may have welcomed it, or do so later, and must not take it for a connection that comes back.

        One that takes the place of a lost connection says nothing: it would end what the broker remembers.
        """
        if self.resumes or self.error is not None:
            return b""
        return self.wire.frame_of(Command.GOODBYE, 1, ())

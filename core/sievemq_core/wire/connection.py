"""One end of a connection without its I/O: framing, the codec, and which command is legal when.

Role-blind: a client and a broker run the same class, and one table lists what each may send in which state.

    HELLO ── HELLO ──> WELCOMING ── WELCOME ──> OPEN ── GOODBYE ──> CLOSING ── end of the stream ──> CLOSED
      └──────────────────── a fatal ERROR, a broken frame or the end of the stream ────────────────────┘

Frames: a length and that many bytes of commands.

     0       4                              4 + length
     +-------+------------------------------+
     | u32   | command command … command    |     length: big-endian, 1 … max_frame
     +-------+------------------------------+

A frame holds one or more whole commands, each a msgpack array. A peer with several commands in one loop turn
sends them in one frame: the length is checked once, the decoder runs in C over all of them. A frame of more than
GATHER_BYTES holds one command.

The caller feeds bytes with :meth:`receive_data`, queues commands with :meth:`send` or :meth:`send_packed`, and writes
what :meth:`data_to_send` returns. Nothing here waits or knows the time: the caller asks once each interval for a
heartbeat to send, and whether anything arrived.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any, Final, Literal

from sievemq_core.errors import ErrorCode, ProtocolError, SieveError
from sievemq_core.limits import (
    GATHER_BYTES,
    HANDSHAKE_FRAME_BYTES,
    HANDSHAKE_VALUES,
    MAX_BROKER_VALUES,
    MAX_CLIENT_VALUES,
    MAX_FRAME_BYTES,
    MAX_FRAME_COMMANDS,
    UNCOUNTED_BYTES,
)
from sievemq_core.wire.codec import (
    DELIVERIES_HEAD,
    DELIVERY_HEAD,
    CommandTuple,
    Decoder,
    Payload,
    delivery_head,
    pack,
    pack_deliveries,
)
from sievemq_core.wire.commands import COMMANDS, Command
from sievemq_core.wire.form import FORMS, ROWS, TRUSTED_FORMS, Form, examine

Role = Literal["client", "broker"]


class State(Enum):
    """The state of a connection."""

    HELLO = "hello"
    WELCOMING = "welcoming"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


#: What is still to come of the handshake, for people.
_AWAITED: Final = {State.HELLO: "HELLO", State.WELCOMING: "handshake"}

# (state, number) -> next state. A command that is not here is illegal in that state. Everything that a role may send
# while the connection is open leaves it open, so those rows are made from the table of commands.
_HANDSHAKE = {
    (State.HELLO, Command.HELLO): State.WELCOMING,
    (State.HELLO, Command.ERROR): State.CLOSED,
    (State.WELCOMING, Command.WELCOME): State.OPEN,
    (State.WELCOMING, Command.ERROR): State.CLOSED,
    (State.OPEN, Command.GOODBYE): State.CLOSING,
}
_SPOKEN_WHEN_OPEN = [n for n in COMMANDS if n not in (Command.HELLO, Command.WELCOME, Command.GOODBYE)]
TRANSITIONS: dict[tuple[State, int], State] = {
    **{(State.OPEN, number): State.OPEN for number in _SPOKEN_WHEN_OPEN},
    # After GOODBYE the broker may still have things on their way, and its OK is the last of them.
    **{(State.CLOSING, n): State.CLOSING for n in _SPOKEN_WHEN_OPEN if COMMANDS[n].sender != "client"},
    **_HANDSHAKE,
}
_LEGAL: dict[tuple[State, Role], frozenset[int]] = {
    (state, role): frozenset(
        number for (at, number) in TRANSITIONS if at is state and COMMANDS[number].sender in (role, "both")
    )
    for state in State
    for role in ("client", "broker")
}
# Commands after which the state may differ; all others skip the table.
_TURNING = frozenset({Command.HELLO, Command.WELCOME, Command.GOODBYE, Command.ERROR})
# Quick checks of the commands that are legal now and change nothing: a frame of such commands, each in form, needs no
# second look.
_PLAIN: dict[tuple[State, Role], dict[int, Form]] = {
    (state, role): {n: (TRUSTED_FORMS if role == "broker" else FORMS)[n] for n in legal - _TURNING}
    for (state, role), legal in _LEGAL.items()
}
# What a role mostly sends, where that is legal; -1 is no command.
_MOSTLY = {"client": int(Command.SEND), "broker": int(Command.DELIVER)}
_ROW: dict[tuple[State, Role], tuple[int, Form]] = {
    (state, role): (_MOSTLY[role] if _MOSTLY[role] in plain else -1, ROWS[_MOSTLY[role]])
    for (state, role), plain in _PLAIN.items()
}


class FrameReader:
    """Cuts a byte stream into frame payloads. O(n) in the bytes fed, however they are cut.

    Args:
        max_frame: bytes a payload may have; a longer one is refused as soon as its length is read, before anything
            is reserved for it.
    """

    __slots__ = ("_need", "_partial", "max_frame", "number")

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        # An unfinished frame grows in place: one block of memory, which goes back to the system when it is freed.
        self._partial = bytearray()
        self._need = 4
        #: Counts the frames of which a read ended in the middle.
        self.number = 0

    def accept(self, max_frame: int) -> None:
        self.max_frame = max_frame

    def feed(self, data: bytes) -> list[Payload]:
        """Take bytes from the peer and return the payloads that are now complete, in order.

        Raises:
            ProtocolError: a length of zero (MALFORMED_FRAME) or above `max_frame` (FRAME_TOO_LARGE).
        """
        payloads: list[Payload] = []
        partial = self._partial
        length = int.from_bytes(data[:4], "big")
        if not partial and 0 < length == len(data) - 4 <= self.max_frame:  # one frame, as most reads of few commands
            payloads.append(data[4:])
            return payloads
        if partial:
            partial += data
            need = self._need
            if len(partial) < need:
                return payloads
            self._partial = bytearray()
            if need > 4:
                data = bytes(partial[need:])
                del partial[need:], partial[:4]
                payloads.append(partial)
            else:
                data = bytes(partial)
        position, end = 0, len(data)
        self._need = 4
        while end - position >= 4:
            length = int.from_bytes(data[position : position + 4], "big")
            if not 0 < length <= self.max_frame:
                raise self._refuse(length)
            stop = position + 4 + length
            if stop > end:
                self._need = 4 + length
                break
            payloads.append(data[position + 4 : stop])
            position = stop
        if position < end:
            self._partial += data[position:]
            self.number += 1
        return payloads

    def _refuse(self, length: int) -> ProtocolError:
        if length == 0:
            return ProtocolError("a frame of length zero")
        return ProtocolError(
            f"a frame of {length} bytes; at most {self.max_frame} are accepted here", ErrorCode.FRAME_TOO_LARGE
        )

    @property
    def unfinished(self) -> int:
        """Bytes held of a frame that is not complete yet; not zero at the end of a stream means a truncated frame."""
        return len(self._partial)

    def drop(self) -> None:
        self._partial = bytearray()
        self._need = 4

    @property
    def expected(self) -> int:
        """Bytes of the frame that is not complete yet, its length included; 4 while that is not known, 0 between two
        frames."""
        return self._need if self._partial else 0


def pack_frames(commands: list[bytes], gather: int = GATHER_BYTES) -> list[bytes]:
    """Frames for packed commands, in order, of at most `gather` bytes and MAX_FRAME_COMMANDS commands.

    A single command larger than that gets a frame of its own.
    """
    frames: list[bytes] = []
    start = size = 0
    for index, command in enumerate(commands):
        length = len(command)
        if size and (size + length > gather or index - start == MAX_FRAME_COMMANDS):
            frames.append(size.to_bytes(4, "big"))
            frames.extend(commands[start:index])
            start = index
            size = 0
        size += length
    if size:
        frames.append(size.to_bytes(4, "big"))
        frames.extend(commands[start:] if start else commands)
    return frames


class WireConnection:
    """The protocol of one connection, seen from one end.

    Args:
        max_frame: bytes of the largest frame to accept.
    """

    __slots__ = (
        "_decoder", "_delivered_to", "_frames", "_gathered", "_gathered_room", "_gathered_tag", "_gathers",
        "_max_frame", "_plain", "_received", "_rest", "_row", "_spoke", "interval_in", "interval_out", "out",
        "payloads", "peer", "pending_bytes", "role", "state",
    )  # fmt: skip

    def __init__(self, role: Role, max_frame: int = MAX_FRAME_BYTES) -> None:
        self.role: Role = role
        self.peer: Role = "broker" if role == "client" else "client"
        self.state = State.HELLO
        self._max_frame = max_frame
        if role == "client":
            self._frames = FrameReader(max_frame)
            self._decoder = Decoder(UNCOUNTED_BYTES, MAX_BROKER_VALUES, trusting=True)
        else:  # before WELCOME a peer sends small frames only
            self._frames = FrameReader(min(max_frame, HANDSHAKE_FRAME_BYTES))
            self._decoder = Decoder(0, HANDSHAKE_VALUES)
        #: Frames that have come and are not decoded yet, or not all of the first one: its values that are left.
        self.payloads: list[Payload] = []
        self._rest: list[Any] = []
        self._plain = _PLAIN[State.HELLO, self.peer]
        self._row = _ROW[State.HELLO, self.peer]
        #: Packed commands that wait; the same list for life. Code that appends here adds to `pending_bytes` as well.
        self.out: list[bytes] = []
        #: Bytes in `out`.
        self.pending_bytes = 0
        #: The peer takes DELIVER_SEVERAL.
        self._gathers = False
        #: The consumer of the delivery at the end of `out`; -1 if no other one may join it. Once some have: all
        #: envelopes, the first tag, and the bytes that may still be added. `out` gets them before the next command.
        self._delivered_to = -1
        self._gathered: list[bytes] = []
        self._gathered_tag = 0
        self._gathered_room = -1
        #: Milliseconds after which this end expects a byte from the peer, and after which the peer does; 0 for never.
        self.interval_in = self.interval_out = 0
        self._received = self._spoke = False

    # -- receiving ------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, enough: int = sys.maxsize) -> list[CommandTuple]:
        """Take bytes from the peer; return the commands that are now complete, legal here and in form.

        Args:
            data: bytes from the peer, cut anywhere.
            enough: commands after which no other frame is begun, and no other command of a frame is examined that has
                to be examined one by one; :meth:`receive_more` continues there.

        Raises:
            ProtocolError: the peer broke the protocol. The state is CLOSED; commands of the same call are dropped,
                those before were returned by earlier calls.
        """
        self._received = True
        try:
            payloads = self._frames.feed(data)
            if len(payloads) == 1 and not self.payloads:
                commands = self._decode(payloads[0], enough)
                if self._rest:
                    self.payloads += payloads
                return commands
        except ProtocolError:
            self._enter(State.CLOSED)
            raise
        self.payloads += payloads
        return self.receive_more(enough)

    def receive_more(self, enough: int = sys.maxsize) -> list[CommandTuple]:
        """The commands of frames that :meth:`receive_data` has left; args and errors as there."""
        commands: list[CommandTuple] = []
        payloads = self.payloads
        taken = 0
        try:
            for payload in payloads:
                if len(commands) >= enough:
                    break
                room = enough - len(commands)
                commands += self._examine_some(self._rest, room) if self._rest else self._decode(payload, room)
                if self._rest:
                    break
                taken += 1
        except ProtocolError:
            self._enter(State.CLOSED)
            raise
        del payloads[:taken]
        return commands

    def _decode(self, payload: Payload, enough: int) -> list[CommandTuple]:
        """The commands of one frame, or its first ones."""
        values = self._decoder.unpack(payload)
        number, in_row = self._row
        try:
            if values[-1][0] == number and in_row(values):
                return values
        except (LookupError, TypeError, ValueError):
            pass
        plain = self._plain
        try:
            for value in values:
                if not plain[value[0]](value):
                    break
            else:
                return values
        except (LookupError, TypeError):
            pass
        return self._examine_some(values, enough)

    def _examine_some(self, values: list[Any], most: int) -> list[CommandTuple]:
        if len(values) > most:
            self._rest, values = values[most:], values[:most]
        elif self._rest:
            self._rest = []
        return [self._examine(value) for value in values]

    def drop_input(self) -> None:
        self.payloads.clear()
        self._rest = []
        self._frames.drop()

    def _examine(self, value: object) -> CommandTuple:
        """One command of a frame that is not all plain: form, legality, and the state after it."""
        command = examine(value)
        number = command[0]
        if number not in _LEGAL[self.state, self.peer]:
            raise ProtocolError(
                f"{COMMANDS[number].name} from the {self.peer} is not legal while {self.state.value}",
                ErrorCode.UNEXPECTED_COMMAND,
            )
        if number in _TURNING:
            self._turn(command)
        return command

    @property
    def unfinished(self) -> int:
        """Bytes received of frames that are not complete or not decoded yet."""
        unfinished = self._frames.unfinished
        return unfinished + sum(map(len, self.payloads)) if self.payloads else unfinished

    @property
    def frame_bytes(self) -> int:
        """Bytes that the frame has which is not complete yet, 0 between two frames."""
        return self._frames.expected

    @property
    def frame_number(self) -> int:
        """The number of the incomplete frame, different for each; 0 between two frames."""
        return self._frames.number if self._frames.unfinished else 0

    def receive_eof(self) -> None:
        """The peer's stream ended.

        Raises:
            ProtocolError: in the middle of a frame.
        """
        unfinished = self._frames.unfinished
        self._enter(State.CLOSED)
        if unfinished:
            raise ProtocolError(f"the stream ended inside a frame, {unfinished} bytes after its start")

    # -- sending --------------------------------------------------------------------------------------------------

    def send(self, *command: object) -> None:
        """Queue a command: its number and fields.

        Raises:
            ProtocolError: the command is not legal for this role in this state.
        """
        number = command[0]
        if number in _TURNING or self.state is not State.OPEN:
            if number not in _LEGAL[self.state, self.role]:
                raise ProtocolError(
                    f"{COMMANDS[number].name} cannot be sent while {self.state.value}",  # type: ignore[index]
                    ErrorCode.UNEXPECTED_COMMAND,
                )
            self._turn(command)
        if self._gathered:
            self._end_gathering()
        self._delivered_to = -1
        packed = pack(command)
        self.out.append(packed)
        self.pending_bytes += len(packed)

    def send_packed(self, packed: bytes) -> None:
        """Queue a command that is packed already. For the data path: not checked, never one that changes the state."""
        if self._gathered:
            self._end_gathering()
        self._delivered_to = -1
        self.out.append(packed)
        self.pending_bytes += len(packed)

    def gather_deliveries(self) -> None:
        """The peer takes DELIVER_SEVERAL: first deliveries to one consumer that follow each other are gathered."""
        self._gathers = True

    def deliver(self, consumer: int, tag: int, count: int, envelope: bytes) -> int:
        """Queue a DELIVER around an envelope that is packed already, or let it join the one to the same consumer
        before it. Returns the bytes that are queued now."""
        if consumer == self._delivered_to and count == 1:
            if not self._gathered and self._gathers and len(self.out[-1]) + len(envelope) <= GATHER_BYTES:
                self._begin_gathering(tag - 1)
            room = self._gathered_room - len(envelope)
            if room >= 0:
                self._gathered_room = room
                self._gathered.append(envelope)
                self.pending_bytes = pending = self.pending_bytes + len(envelope)
                return pending
        if self._gathered:
            self._end_gathering()
        packed = delivery_head(0x9550, 0xCE, consumer, 0xCF, tag, 0xCE, count) + envelope
        self.out.append(packed)
        self._delivered_to = consumer if count == 1 else -1
        self.pending_bytes = pending = self.pending_bytes + len(packed)
        return pending

    def _begin_gathering(self, tag: int) -> None:
        envelope = self.out[-1][DELIVERY_HEAD:]
        self._gathered.append(envelope)
        self._gathered_tag = tag
        self._gathered_room = GATHER_BYTES - DELIVERIES_HEAD - len(envelope)
        self.pending_bytes += DELIVERIES_HEAD - DELIVERY_HEAD

    def _end_gathering(self) -> None:
        self.out[-1] = pack_deliveries(self._delivered_to, self._gathered_tag, self._gathered)
        self._gathered = []
        self._gathered_room = -1

    def deliver_several(self, consumer: int, tag: int, envelopes: list[bytes]) -> None:
        self.send_packed(pack_deliveries(consumer, tag, envelopes))

    def frame_of(self, *command: object) -> bytes:
        return b"".join(pack_frames([pack(command)]))

    def send_all(self, packed: list[bytes]) -> None:
        """As :meth:`send_packed`, for several commands."""
        if self._gathered:
            self._end_gathering()
        self._delivered_to = -1
        self.out += packed
        self.pending_bytes += sum(map(len, packed))

    def fail(self, error: SieveError) -> None:
        """Queue a fatal ERROR as the last command, in any state of the connection. Only a broker does that."""
        self.send_packed(pack((Command.ERROR, 0, int(error.code), error.text, error.details)))
        self._enter(State.CLOSED)

    def data_to_send(self) -> bytes:
        """Everything queued since the last call, gathered into frames; empty if nothing was."""
        out = self.out
        if not out:
            return b""
        if self._gathered:
            self._end_gathering()
        self._delivered_to = -1
        pending = self.pending_bytes
        if pending <= GATHER_BYTES and len(out) <= MAX_FRAME_COMMANDS:  # one frame, and its length is known
            data = pending.to_bytes(4, "big") + b"".join(out)
        else:
            data = b"".join(pack_frames(out))
        out.clear()
        self.pending_bytes = 0
        self._spoke = True
        return data

    # -- heartbeats -----------------------------------------------------------------------------------------------

    @property
    def awaited(self) -> str:
        """The pending part of the handshake, as text; empty once it is complete."""
        return _AWAITED.get(self.state, "")

    @property
    def frame_text(self) -> str:
        return f"a frame of {self.frame_bytes} bytes"

    def set_heartbeat(self, incoming: int, outgoing: int) -> None:
        """Agree on intervals.

        Args:
            incoming: milliseconds after which this end expects a byte from the peer; 0 for never.
            outgoing: milliseconds after which the peer wants to.
        """
        self.interval_in, self.interval_out = incoming, outgoing

    def heartbeat_due(self) -> bool:
        """True, and a HEARTBEAT queued, if nothing was sent since the last call; call it each half interval."""
        if self._spoke or self.out or self.state is not State.OPEN or not self.interval_out:
            self._spoke = False
            return False
        self.send(Command.HEARTBEAT)
        return True

    def received(self) -> bool:
        """True if anything arrived since the last call. Call it each incoming interval; two misses are a dead peer."""
        received, self._received = self._received, False
        return received

    def excuse(self) -> None:
        """Count as alive: nothing was read from the peer."""
        self._received = True

    # -- state ----------------------------------------------------------------------------------------------------

    def _turn(self, command: CommandTuple) -> None:
        number = command[0]
        if number == Command.ERROR and command[1] == 0:
            self._enter(State.CLOSED)  # request 0: the connection ends, in any state
        else:
            self._enter(TRANSITIONS[self.state, number])
            if number == Command.WELCOME:
                self._frames.accept(self._max_frame)
                if self.role == "broker":
                    self._decoder = Decoder(GATHER_BYTES, MAX_CLIENT_VALUES)

    def _enter(self, state: State) -> None:
        if state is State.CLOSED:
            self.payloads.clear()
            self._rest = []
        self.state = state
        self._plain = _PLAIN[state, self.peer]
        self._row = _ROW[state, self.peer]

"""The bytes of a batch, of the state of its messages, and of small values. Each begins with a checksum.

    batch    crc32 | length of the header | header | envelopes one after the other
             header: msgpack [time, owners, sizes, messages | nil, places | nil, states | nil]
    state    crc32 | msgpack [live, kept, size, states, failures, attempts]
    value    crc32 | msgpack

`owners`, `sizes`, `messages`, `places`, `states` are little-endian arrays of 32 bits (states: 16). `messages` gives the
envelope of each entry where several share one; `places` the places in the batch where some were dropped; `states` where
some are not new. The checksum covers what identifies the row, too: a row that turns up under another id is damaged.

Numbers in a header's end may be added by later versions of the format; readers take what they know.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgpack

from sievemq_broker.domain.journal import GONE_STATE, HELD_FLAG, PLACE_BITS, STATE_BITS, Batch
from sievemq_broker.domain.saved import SavedBatch
from sievemq_broker.domain.store import DamagedError

_CRC = struct.Struct("<I")
_TWO = struct.Struct("<II")
_BIG_ENDIAN = sys.byteorder == "big"
_STATE = (1 << STATE_BITS) - 1
_packer = msgpack.Packer(use_bin_type=True, unicode_errors="surrogatepass")


def _words(values: array[int]) -> bytes:
    if _BIG_ENDIAN:
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _array(code: str, data: bytes) -> array[int]:
    values = array(code)
    values.frombytes(data)
    if _BIG_ENDIAN:
        values.byteswap()
    return values


def _sealed(identity: bytes, data: bytes) -> bytes:
    return _CRC.pack(zlib.crc32(data, zlib.crc32(identity))) + data


def _opened(what: str, identity: bytes, data: object) -> bytes:
    if type(data) is not bytes or len(data) < 5:
        raise DamagedError(f"{what} is cut off")
    body = data[4:]
    if _CRC.unpack_from(data)[0] != zlib.crc32(body, zlib.crc32(identity)):
        raise DamagedError(f"the checksum of {what} is wrong")
    return body


def _unpack(what: str, data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, use_list=False, strict_map_key=False, unicode_errors="surrogatepass")
    except Exception as error:  # whatever msgpack raises for bytes with a valid checksum
        raise DamagedError(f"{what} cannot be decoded: {error}") from error


# -- small values -----------------------------------------------------------------------------------------------------


def pack_value(identity: bytes, value: object) -> bytes:
    return _sealed(identity, _packer.pack(value))


def unpack_value(what: str, identity: bytes, data: object) -> Any:
    """The value; lists become tuples.

    Raises:
        DamagedError: it is not what was packed; `what` names it.
    """
    return _unpack(what, _opened(what, identity, data))


# -- batches ----------------------------------------------------------------------------------------------------------


class State:
    """The state of the messages of one batch.

    Attributes:
        live: messages that are not gone.
        kept: entries that the batch's row still has, gone ones included.
        size: bytes of that row.
        states: by place, without the attempts.
        failures: ms epoch of the first attempt, by place.
        attempts: those of messages that have any, by place.
    """

    __slots__ = ("attempts", "failures", "kept", "live", "size", "states")

    def __init__(
        self,
        live: int,
        kept: int,
        size: int,
        states: array[int],
        failures: dict[int, int] | None = None,
        attempts: dict[int, int] | None = None,
    ) -> None:
        self.live = live
        self.kept = kept
        self.size = size
        self.states = states
        self.failures = failures or {}
        self.attempts = attempts or {}

    @classmethod
    def new(cls, count: int) -> State:
        return cls(count, count, 0, array("H", bytes(2 * count)))

    def pack_batch(self, batch_id: int, time: int, accepted: list[tuple[int, bytes]]) -> bytes:
        """The row of the new batch that this is the state of; see :func:`pack_batch`."""
        row = pack_batch(batch_id, time, accepted, self.states)
        self.size = len(row)
        return row

    def hide(self) -> None:
        """All messages count as gone until they are shown."""
        count = len(self.states)
        self.states = array("H", (GONE_STATE,)) * count
        self.live = 0

    def show(self) -> None:
        """All messages are there, as new ones."""
        count = len(self.states)
        self.states = array("H", bytes(2 * count))
        self.live = count

    def apply(self, batch_id: int, outcomes: Outcomes) -> None:
        """Record outcomes of these messages. A message that is gone stays gone."""
        states = self.states
        first = batch_id << PLACE_BITS
        if outcomes.held:
            if self.live < len(states):
                _set(states, [n for n in outcomes.held if states[n - first] != GONE_STATE], first, HELD_FLAG)
            else:
                _set(states, outcomes.held, first, HELD_FLAG)
        if outcomes.states:
            failures = outcomes.failures
            for number, value in outcomes.states:
                place = number - first
                if states[place] != GONE_STATE:
                    states[place] = value & _STATE
                    if value > _STATE:
                        self.attempts[place] = value >> STATE_BITS
                        if number in failures:
                            self.failures[place] = failures[number]
                    else:
                        self.attempts.pop(place, None)
                        self.failures.pop(place, None)
        _set(states, outcomes.gone, first, GONE_STATE)
        self.live = len(states) - states.count(GONE_STATE)
        if self.failures or self.attempts:
            self.failures = {place: when for place, when in self.failures.items() if states[place] != GONE_STATE}
            self.attempts = {place: count for place, count in self.attempts.items() if states[place] != GONE_STATE}

    def mark_delivered(self) -> None:
        """Messages that were never delivered count as delivered once."""
        self.states = array("H", [max(state, 1) for state in self.states])

    def without_removed(self, kept: Kept) -> bytes:
        """The batch's row without messages that are gone."""
        states = self.states
        owners, messages, places = array("I"), array("I"), array("I")
        envelopes: list[bytes] = []
        taken = -1
        for owner, message, place in zip(kept.owners, kept.messages, kept.places, strict=True):
            if states[place] == GONE_STATE:
                continue
            if message != taken:
                envelopes.append(kept.envelopes[message])
                taken = message
            owners.append(owner)
            messages.append(len(envelopes) - 1)
            places.append(place)
        row = _pack(kept.id, kept.time, owners, envelopes, messages, places, None)
        self.kept = len(owners)
        self.size = len(row)
        return row

    def check(self, batch_id: int, last_place: int) -> None:
        """Check that it is one of a batch whose last message has this place.

        Raises:
            DamagedError: it is not.
        """
        if last_place >= len(self.states):
            raise DamagedError(f"the state of batch {batch_id} has {len(self.states)} messages, not {last_place + 1}")

    def pack(self, batch_id: int) -> bytes:
        body = (self.live, self.kept, self.size, _words(self.states), self.failures, self.attempts)
        return pack_value(_identity(batch_id, b"s"), body)

    @classmethod
    def unpack(cls, batch_id: int, data: object) -> State:
        """Read the row.

        Raises:
            DamagedError: it is not what was packed.
        """
        what = f"the state of batch {batch_id}"
        fields = unpack_value(what, _identity(batch_id, b"s"), data)
        try:
            live, kept, size, states, failures = fields[:5]
            return cls(live, kept, size, _array("H", states), failures, fields[5] if len(fields) > 5 else None)
        except (TypeError, ValueError) as error:
            raise DamagedError(f"{what} has an invalid form: {error}") from error


def _set(states: array[int], numbers: list[int], first: int, value: int) -> None:
    """Give messages their state.

    Args:
        numbers: ascending.
        first: number of the message at place 0.
    """
    if not numbers:
        return
    count, start = len(numbers), numbers[0] - first
    if numbers[-1] - numbers[0] == count - 1:  # consecutive
        states[start : start + count] = array("H", (value,)) * count
        return
    for number in numbers:
        states[number - first] = value


class Outcomes:
    """What a batch says of the messages of one batch, itself or another.

    Attributes:
        held, gone: as of :class:`~sievemq_broker.domain.journal.Batch`, ascending.
        states: number and state.
        failures: those of the whole batch.
    """

    __slots__ = ("failures", "gone", "held", "states")

    def __init__(self, failures: dict[int, int]) -> None:
        self.held: list[int] = []
        self.states: list[tuple[int, int]] = []
        self.gone: list[int] = []
        self.failures = failures


def outcomes_of(batch: Batch) -> Iterable[tuple[int, Outcomes]]:
    """The outcomes that a batch has, by the id of the batch whose messages they are of.

    Args:
        batch: sorted. Mostly few batches are meant, or consecutive messages.
    """
    found: dict[int, Outcomes] = {}

    def of(batch_id: int) -> Outcomes:
        if batch_id not in found:
            found[batch_id] = Outcomes(batch.failures)
        return found[batch_id]

    for number, value in batch.states.items():
        of(number >> PLACE_BITS).states.append((number, value))
    for batch_id, numbers in _runs(batch.held):
        of(batch_id).held.extend(numbers)
    for batch_id, numbers in _runs(batch.gone):
        of(batch_id).gone.extend(numbers)
    return found.items()


def _runs(numbers: list[int]) -> Iterator[tuple[int, list[int]]]:
    at = 0
    while at < len(numbers):
        batch_id = numbers[at] >> PLACE_BITS
        end = bisect_left(numbers, (batch_id + 1) << PLACE_BITS, at)
        yield batch_id, numbers[at:end]
        at = end


class SavedEntry(NamedTuple):
    """A stored message.

    Attributes:
        number: of the message.
        owner: number of its queue.
        packed: its envelope.
        state: count of deliveries, HELD_FLAG; count of attempts.
        failed: ms epoch of its first attempt, 0 if there was none, or if it is unknown.
        time: ms epoch at which it was kept.
    """

    number: int
    owner: int
    packed: bytes
    state: int
    failed: int
    time: int


class Kept:
    """A batch as its row has it.

    Attributes:
        id: of the batch.
        time: ms epoch.
        owners: number of the queue, per entry.
        messages: which envelope, per entry.
        places: place in the batch, per entry.
        envelopes: the packed envelopes.
        states: as they were when the batch was written; None if all were new.
        size: bytes of the row.
    """

    __slots__ = ("envelopes", "id", "messages", "owners", "places", "size", "states", "time")

    def __init__(
        self,
        batch_id: int,
        time: int,
        owners: array[int],
        messages: array[int] | None,
        places: array[int] | None,
        envelopes: list[bytes],
        states: array[int] | None,
        size: int,
    ) -> None:
        self.id = batch_id
        self.time = time
        self.owners = owners
        self.messages: array[int] | range = range(len(owners)) if messages is None else messages
        self.places: array[int] | range = range(len(owners)) if places is None else places
        self.envelopes = envelopes
        self.states = states
        self.size = size

    @property
    def last_place(self) -> int:
        return self.places[-1]

    def state(self) -> State:
        """The state of messages that have no row of their own."""
        count = len(self.owners)
        states = array("H", bytes(2 * count)) if self.states is None else self.states
        return State(count - states.count(GONE_STATE), count, self.size, states)

    def saved(self) -> SavedBatch:
        """The messages, to be restored."""
        envelopes = self.envelopes
        packs = envelopes if isinstance(self.messages, range) else [envelopes[message] for message in self.messages]
        state = None if self.states is None else self.state()
        return SavedBatch(self.id, self.time, self.owners, self.places, packs, state)

    def entries(self, state: State) -> Iterator[SavedEntry]:
        """The messages that are not gone.

        Raises:
            DamagedError: the state is not one of this batch.
        """
        base, time, envelopes = self.id << PLACE_BITS, self.time, self.envelopes
        states, failures, attempts = state.states, state.failures, state.attempts
        state.check(self.id, self.last_place)
        for owner, message, place in zip(self.owners, self.messages, self.places, strict=True):
            now = states[place]
            if now != GONE_STATE:
                failed = failures.get(place, 0) if failures else 0
                if attempts and place in attempts:
                    now |= attempts[place] << STATE_BITS
                yield SavedEntry(base | place, owner, envelopes[message], now, failed, time)


def pack_batch(batch_id: int, time: int, accepted: list[tuple[int, bytes]], states: array[int]) -> bytes:
    """The row of a new batch.

    Args:
        time: ms epoch.
        accepted: number of the queue and packed envelope of each; the same object several times in a row is kept once.
    """
    numbers, packs = zip(*accepted, strict=True)
    owners = array("I", numbers)
    envelopes: list[bytes] = list(packs)
    messages: array[int] | None = None
    if len(set(map(id, envelopes))) < len(envelopes):
        messages = array("I")
        distinct: list[bytes] = []
        last: bytes | None = None
        for packed in envelopes:
            if packed is not last:
                distinct.append(packed)
                last = packed
            messages.append(len(distinct) - 1)
        envelopes = distinct
    return _pack(batch_id, time, owners, envelopes, messages, None, states if any(states) else None)


def _pack(
    batch_id: int,
    time: int,
    owners: array[int],
    envelopes: list[bytes],
    messages: array[int] | None,
    places: array[int] | None,
    states: array[int] | None,
) -> bytes:
    header: bytes = _packer.pack(
        (
            time,
            _words(owners),
            _words(array("I", map(len, envelopes))),
            None if messages is None else _words(messages),
            None if places is None else _words(places),
            None if states is None else _words(states),
        )
    )
    payload = b"".join(envelopes)
    crc = zlib.crc32(header, zlib.crc32(_identity(batch_id, b"b")))
    return b"".join((_TWO.pack(zlib.crc32(payload, crc), len(header)), header, payload))


def unpack_batch(batch_id: int, data: object) -> Kept:
    """Read the row of a batch.

    Raises:
        DamagedError: it is not what was packed.
    """
    what = f"batch {batch_id}"
    if type(data) is not bytes or len(data) < _TWO.size:
        raise DamagedError(f"{what} is cut off")
    crc, header_size = _TWO.unpack_from(data)
    if crc != zlib.crc32(memoryview(data)[_TWO.size :], zlib.crc32(_identity(batch_id, b"b"))):
        raise DamagedError(f"the checksum of {what} is wrong")
    at = _TWO.size + header_size
    fields = _unpack(what, data[_TWO.size : at])
    try:
        time, owners, sizes, messages, places, states = fields[:6]
        envelopes: list[bytes] = []
        for size in _array("I", sizes):
            envelopes.append(data[at : at + size])
            at += size
        kept = Kept(
            batch_id, time, _array("I", owners), None if messages is None else _array("I", messages),
            None if places is None else _array("I", places), envelopes,
            None if states is None else _array("H", states), len(data),
        )  # fmt: skip
        if at != len(data) or len(kept.messages) != len(kept.owners) or len(kept.places) != len(kept.owners):
            raise ValueError("its parts do not add up")
    except (TypeError, ValueError) as error:
        raise DamagedError(f"{what} has an invalid form: {error}") from error
    return kept


def _identity(batch_id: int, kind: bytes) -> bytes:
    return kind + batch_id.to_bytes(8, "little")

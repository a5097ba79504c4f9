"""Blind changes of good input: what there is where libFuzzer is not."""

from __future__ import annotations

import random
from collections.abc import Sequence

#: Bytes that often are a limit, a sign or an end.
SPECIAL = (b"\0", b"\xff", b"\x7f", b"\x80", b"'", b"(", b")", b"%", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\xff" * 8)


def mutate(seeds: Sequence[bytes], chance: random.Random, most: int = 4_096) -> bytes:
    """One of the seeds after some changes.

    Args:
        seeds: at least one.
        chance: where randomness comes from.
        most: bytes that the result has at most.
    """
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 2, 3, 5, 9))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0 if data:
                data[at % len(data)] = chance.randrange(256)
            case 1 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 2:
                data[at:at] = chance.choice(SPECIAL)
            case 3:
                del data[at : at + chance.randrange(1, 9)]
            case 4:
                data[at:at] = data[max(0, at - chance.randrange(1, 30)) : at]
            case 5:
                other = chance.choice(seeds)
                start = chance.randrange(len(other) + 1)
                data[at:] = other[start:]
            case _:
                data[at:at] = chance.randbytes(chance.randrange(1, 5))
    return bytes(data[:most])

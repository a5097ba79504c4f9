"""Objects that hold a connection stay in their process."""

from __future__ import annotations

from typing import NoReturn


class Unpicklable:
    """A base of what cannot be sent to another process, nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} uses a connection of this process, and can be neither pickled nor copied; "
            "pass the ConnectionFactory or its URL to the other process, and open a connection there"
        )

"""The two delivery modes (§3.4.2)."""

from __future__ import annotations

from typing import Final

__all__ = ["DeliveryMode"]


class DeliveryMode:
    """Constants for the delivery mode of a send (CST-05). Plain ints, as the API has them.

    >>> DeliveryMode.PERSISTENT
    2
    """

    __slots__ = ()

    #: The broker may lose the message when it fails; the fastest mode.
    NON_PERSISTENT: Final = 1
    #: Kept over a restart where the broker has a data directory (D-18). The default.
    PERSISTENT: Final = 2

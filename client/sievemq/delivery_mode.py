"""The two delivery modes (§3.4.2)."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal


class DeliveryMode(IntEnum):
    """The delivery mode of a send (CST-05). The members are equal to the API's ints.

    >>> DeliveryMode.PERSISTENT
    <DeliveryMode.PERSISTENT: 2>
    >>> DeliveryMode.PERSISTENT == 2
    True
    """

    #: The broker may lose the message when it fails; the fastest mode.
    NON_PERSISTENT = 1
    #: Kept over a restart where the broker has a data directory (D-18). The default.
    PERSISTENT = 2


#: What a parameter accepts: a member, or its number.
DeliveryModeLike = DeliveryMode | Literal[1, 2]

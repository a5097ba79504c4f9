"""The four session modes (§6.2.9)."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from sievemq.exceptions import JMSException


class SessionMode(IntEnum):
    """How a session acknowledges messages (CST-01 … CST-04). The members are also constants of ``Session`` and
    ``JMSContext``, and equal to the API's ints.

    >>> from sievemq import JMSContext
    >>> JMSContext.CLIENT_ACKNOWLEDGE
    <SessionMode.CLIENT_ACKNOWLEDGE: 2>
    >>> JMSContext.CLIENT_ACKNOWLEDGE == 2
    True
    """

    #: Sends and receives take effect with ``commit()``.
    SESSION_TRANSACTED = 0
    #: A message is acknowledged when ``receive`` returns it, or when its listener returns. The default.
    AUTO_ACKNOWLEDGE = 1
    #: ``acknowledge()`` acknowledges everything that the session has received so far.
    CLIENT_ACKNOWLEDGE = 2
    #: As AUTO_ACKNOWLEDGE, but the broker learns of it later: a failure can deliver messages twice.
    DUPS_OK_ACKNOWLEDGE = 3


#: What a parameter accepts: a member, or its number (D-28).
SessionModeLike = SessionMode | Literal[0, 1, 2, 3]


def session_mode(mode: object) -> SessionMode:
    """The mode that an argument names.

    Raises:
        JMSException: it is none of the four (CON-02).
    """
    if isinstance(mode, int) and not isinstance(mode, bool) and 0 <= mode <= 3:
        return SessionMode(mode)
    raise JMSException(f"{mode!r:.60} is not a session mode; the modes are {', '.join(SessionMode.__members__)}")

"""Bits of ``Message._modes``: the parts of a message that may be changed, and those that a send must check."""

from __future__ import annotations

from typing import Final

# Properties and body have modes of their own (MOD-08).
BODY_READ_ONLY: Final = 1
HAS_ON_RECEIVE: Final = 2  # some property must be dropped when the message is sent (JSX-11)
HAS_TYPED: Final = 4  # some property may need type letters: checked when the message is sent
PROPERTIES_READ_ONLY: Final = 8  # the highest: modes below it allow a change
RECEIVED: Final = PROPERTIES_READ_ONLY | BODY_READ_ONLY  # MSG-14
SLOW_TO_SEND: Final = HAS_ON_RECEIVE | HAS_TYPED

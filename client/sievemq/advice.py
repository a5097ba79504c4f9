"""Warnings at the application's line: what is legal, and hardly meant."""

from __future__ import annotations

import sys
import warnings
from typing import Final

_PACKAGES: Final = frozenset({"sievemq", "sievemq_spark", "sievemq_testing"})


class SieveMQWarning(UserWarning):
    """What an application does is legal, and probably not what it means. The base of the warnings below."""


class WildcardWarning(SieveMQWarning):
    """A consumer is created on a name that looks like a pattern. SieveMQ has no wildcards: it receives what is sent to
    a destination of that very name."""


class DestinationNameWarning(SieveMQWarning):
    """The name of a destination begins with a kind: ``Queue("queue:orders")`` is not the queue ``orders``. Or a
    consumer is created on a name that is written as for another broker: ``orders?consumer.prefetchSize=1``, ``a,b``,
    ``/queue/orders``."""


class DoubtfulSelectorWarning(SieveMQWarning):
    """The selector of a consumer, browser or tap is legal and doubtful: no message can match it, or a text lacks its
    quotes. ``Selector(text).warnings`` has the same findings."""


def warn(text: str, category: type[SieveMQWarning]) -> None:
    """Warn at the first line on the stack that is not one of SieveMQ's packages."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)

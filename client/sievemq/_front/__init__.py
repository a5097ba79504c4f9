"""Base classes that the blocking and the asyncio front share.

Both fronts' ``MessageProducer`` derives from :class:`ProducerDefaults`, their ``JMSProducer`` from
:class:`ProducerState`, their ``ConnectionFactory`` from :class:`FactorySettings`; each adds what waits.
:class:`ExceptionReports` decides what an ExceptionListener gets. :func:`message_callback` and its sisters turn a
listener, an object or a callable, into a function.
"""

from __future__ import annotations

from sievemq._front.factory import FactorySettings, refuse_lone_name
from sievemq._front.listeners import (
    LISTENER_TURN,
    completion_callbacks,
    failure_of,
    log_raised,
    message_callback,
    refuse_awaitable,
)
from sievemq._front.metadata import ConnectionMetaData
from sievemq._front.observed import (
    Receipt,
    adopted,
    awaiting_listener,
    observed_listener,
    refused,
    sending,
    settling,
)
from sievemq._front.producers import Body, ProducerDefaults, ProducerState, destination_and_message, message_for
from sievemq._front.receiving import SHORT_TIMEOUT, Wanted, answers, as_body, as_kind, check_timeout
from sievemq._front.reports import ExceptionReports
from sievemq._front.runtime import translated
from sievemq._front.unpicklable import Unpicklable
from sievemq._front.weak import is_gone, is_unclosed, unclosed, weakly

__all__ = [
    "LISTENER_TURN",
    "SHORT_TIMEOUT",
    "Body",
    "ConnectionMetaData",
    "ExceptionReports",
    "FactorySettings",
    "ProducerDefaults",
    "ProducerState",
    "Receipt",
    "Unpicklable",
    "Wanted",
    "adopted",
    "answers",
    "as_body",
    "as_kind",
    "awaiting_listener",
    "check_timeout",
    "completion_callbacks",
    "destination_and_message",
    "failure_of",
    "is_gone",
    "is_unclosed",
    "log_raised",
    "message_callback",
    "message_for",
    "observed_listener",
    "refuse_awaitable",
    "refuse_lone_name",
    "refused",
    "sending",
    "settling",
    "translated",
    "unclosed",
    "weakly",
]

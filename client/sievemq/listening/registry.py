"""The functions that were registered as listeners, checked. Base of both APIs' ``Listeners``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, Unpack

from sievemq._front import FactorySettings, message_callback
from sievemq.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic, parse_destination
from sievemq.listening.plan import Plan
from sievemq.listening.rules import Retry
from sievemq.selector import Selector
from sievemq.url import BrokerURL, Options
from sievemq_core.durations import Milliseconds, milliseconds
from sievemq_core.message.destination import misspelt_kind

F = TypeVar("F", bound=Callable[..., Any])

#: A session each; a broker has room for as many on one connection.
_MAX_CONCURRENCY = 1_000


@dataclass(frozen=True, slots=True)
class Registration:
    """One listener.

    Attributes:
        plan: how to call it.
        destination, selector, subscription, durable: where its messages come from.
        concurrency: how many of its messages are in work at a time.
        rule: of redelivery, as the broker reads it; empty for that of the destination.
        transacted: what it sends and what it received commit together.
        reply_to: where its results go; None for JMSReplyTo.
    """

    plan: Plan
    destination: Destination
    selector: str | None
    subscription: str | None
    durable: bool
    concurrency: int
    rule: Mapping[str, object]
    transacted: bool
    reply_to: Destination | None

    def __str__(self) -> str:
        condition = f" where {self.selector}" if self.selector else ""
        return f"{self.plan.name}() at {self.subscription or self.destination}{condition}"

    @property
    def share(self) -> tuple[object, ...]:
        """Two listeners with the same share would divide one stream of messages at random."""
        alone = self.plan.function if isinstance(self.destination, Topic) and self.subscription is None else None
        return str(self.destination), self.subscription, self.selector or None, alone


class Registry:
    """The listeners of an application, and where their broker is.

    Args:
        url, user_name, password, options: as of a ConnectionFactory; `reconnect` is ``forever`` unless it is given.
        stop_timeout: how long a listener that runs may go on when the application stops: a timedelta, or an int of
            milliseconds.
    """

    _context: ClassVar[type]  # of the contexts of the API
    _awaits: ClassVar[bool]  # a listener may be a coroutine function

    def __init__(
        self,
        url: str | BrokerURL | None = None,
        *,
        user_name: str | None = None,
        password: str | None = None,
        stop_timeout: Milliseconds = 30_000,
        **options: Unpack[Options],
    ) -> None:
        self._options = options
        self._url = self._address(url)
        self._user, self._password = user_name, password
        self._stop_seconds = milliseconds("stop_timeout", stop_timeout) / 1000.0
        self._registered: dict[tuple[object, ...], Registration] = {}

    def _address(self, url: str | BrokerURL | None) -> BrokerURL:
        options = self._options
        text = os.environ.get("SIEVEMQ_URL", "") if url is None else url
        if isinstance(text, str) and "reconnect=" not in text and "reconnect" not in options:
            options = {**options, "reconnect": "forever"}
        return FactorySettings(url, **options)._url

    def __repr__(self) -> str:
        names = ", ".join(map(str, self._registered.values()))
        return f"<Listeners of {self._url}: {names or 'none'}>"

    @property
    def _is_started(self) -> bool:
        raise NotImplementedError

    def listener(
        self,
        destination: str | Destination,
        *,
        selector: str | None = None,
        concurrency: int = 1,
        retries: Retry | None = None,
        transacted: bool = False,
        reply_to: str | Destination | None = None,
        subscription: str | None = None,
        durable: bool = False,
    ) -> Callable[[F], F]:
        """Register a function as the listener of a destination. The function itself stays as it is.

        Its parameters get their values by their annotations:

        - a subclass of ``Message``: the message
        - ``Annotated[str, Property("region")]``, ``Annotated[str | None, Header("JMSType")]``: a property, a header
        - ``JMSContext``: the context in which the message was received, to send with
        - one other parameter, of any type: the body

        Args:
            destination: ``"queue:orders"``, ``"topic:prices"``, a bare name of a queue, or a Queue or Topic.
            selector: condition on headers and properties.
            concurrency: how many messages are in work at a time, each in a session of its own. On a topic more than one
                needs a subscription.
            retries: how often a message is redelivered after the listener raised, and when; by default as the
                destination's rules say.
            transacted: what the listener sends through its ``JMSContext`` and what it received commit together.
            reply_to: where results go; by default to the JMSReplyTo of the message, if it has one.
            subscription: name of a shared subscription of the topic.
            durable: the subscription collects messages while nobody listens.

        Raises:
            TypeError: a parameter cannot get a value; names the parameter. Or the function cannot be called here.
            ValueError: an argument is wrong, or another listener gets the same messages.
            InvalidSelectorException: with the place of the mistake.
            InvalidDestinationException: no destination.
            RuntimeError: the application is started already.
        """
        if self._is_started:
            raise RuntimeError("listeners are registered before the application is started")
        target = _destination(destination)
        if isinstance(target, (TemporaryQueue, TemporaryTopic)):
            text = f"{target} ends with its connection: no listener can be registered for it"
            raise ValueError(text)  # noqa: TRY004 - its type is right
        if type(concurrency) is not int or not 1 <= concurrency <= _MAX_CONCURRENCY:
            raise ValueError(f"concurrency is a number from 1 to {_MAX_CONCURRENCY}, not {concurrency!r:.60}")
        if retries is not None and not isinstance(retries, Retry):
            raise TypeError(f"retries is a Retry, such as Retry(attempts=5), not {retries!r:.60}")
        if isinstance(target, Queue) and (subscription is not None or durable):
            raise ValueError(f"a subscription is of a topic, and {target} is a queue")
        if durable and subscription is None:
            raise ValueError("a durable subscription needs a name: subscription=…")
        if isinstance(target, Topic) and subscription is None and concurrency > 1:
            raise ValueError(f"each of {concurrency} consumers of {target} gets every message; name a subscription")
        if selector:
            Selector(selector, dialect=self._url.options.selector_dialect or "jakarta")
        rule = _rule(retries)
        reply = None if reply_to is None else _destination(reply_to)
        names = sys._getframe(1).f_locals

        def register(function: F) -> F:
            message_callback(function, self._awaits)
            plan = Plan(function, self._context, names)
            made = Registration(
                plan, target, selector, subscription, durable, concurrency, rule, bool(transacted), reply
            )
            other = self._registered.get(made.share)
            if other is not None:
                raise ValueError(
                    f"{made} would get only some of its messages, the others go to {other.plan.name}(): register one "
                    "of them, with a higher concurrency, or give them selectors that exclude each other"
                )
            self._registered[made.share] = made
            return function

        return register


def _rule(retries: Retry | None) -> dict[str, object]:
    """A rule as the broker reads it: a part of the field `failure` of RECOVER."""
    if retries is None:
        return {}
    return {
        "attempts": retries.attempts,
        "delay": milliseconds("delay", retries.delay),
        "factor": float(retries.backoff),
        "delay_max": milliseconds("max_delay", retries.max_delay),
    }


def _destination(given: str | Destination) -> Destination:
    if isinstance(given, Destination):
        return given
    misspelt = misspelt_kind(given)
    if misspelt is not None:
        raise ValueError(misspelt)
    return parse_destination(given)

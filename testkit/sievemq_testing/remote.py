"""A broker elsewhere, for ``--sievemq-url``: the same tests against a container.

Browsing and the management API show the current messages and exact counts of outcomes. The messages behind those counts
come from a tap that a view opens when it is created. Tests that need the journal, the clock or faults are skipped with
the reason."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from time import monotonic, sleep
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import quote

import pytest

from sievemq import Connection, ConnectionFactory, Message
from sievemq._management import DEFAULT_HTTP_PORT, Management, ManagementError, place
from sievemq.destinations import Destination, Queue, parse_destination
from sievemq.exceptions import InvalidDestinationException, JMSException
from sievemq.messages import received
from sievemq.taps import Tap, open_tap
from sievemq.tls import tls_of
from sievemq.url import BrokerURL, parse_url
from sievemq_core.counted import counted
from sievemq_core.durations import Seconds, seconds
from sievemq_core.errors import ErrorCode
from sievemq_core.message.dead_letters import REASON
from sievemq_core.message.destination import parse_address
from sievemq_core.message.envelope import MESSAGE_ID, Envelope
from sievemq_testing.broker import refuse_on_a_loop
from sievemq_testing.journal import matches
from sievemq_testing.reasons import why_not
from sievemq_testing.views import (
    ConnectionView,
    ConsumerView,
    address_of,
    at_least,
    check_reason,
    compiled,
    letters_of,
    listed,
    missing,
    other_letters,
    shortfall,
    unawaited,
    unsubscribed,
)

T = TypeVar("T")

_TAP: Final = "sievemq-testing"
_PAUSE_SECONDS: Final = 0.02
_STATES: Final = ("ready", "in_flight", "scheduled")
_LEFT: Final = ("depth", "scheduled", "in_flight")
_USES: Final = (*_LEFT, "consumers", "subscriptions")


def needs_inside(what: str) -> NoReturn:
    pytest.skip(f"{what} needs a broker in the test's process; --sievemq-url names one elsewhere")


def _poll(look: Callable[[], T], within: Seconds) -> T:
    """Poll until a condition holds; returns the last result."""
    limit = seconds("within", within)
    found = look()
    if found or not limit:
        return found
    refuse_on_a_loop()
    deadline = monotonic() + limit
    while not found and monotonic() < deadline:
        sleep(_PAUSE_SECONDS)
        found = look()
    return found


class RemoteBroker:
    """A broker that a URL leads to.

    Args:
        url: as for a ConnectionFactory, without a namespace.
        http_url: of its management port; port 7680 of the same host if not given.
    """

    def __init__(self, url: str, http_url: str = "") -> None:
        self._base = url.partition("?")
        self._parsed: BrokerURL = parse_url(url)
        self.url = url
        host = self._parsed.hosts[0][0]
        scheme = "https" if self._parsed.secure else "http"
        self.http_url = http_url or f"{scheme}://{f'[{host}]' if ':' in host else host}:{DEFAULT_HTTP_PORT}"
        self._management: Management | None = None
        self._refusal = ""

    def __repr__(self) -> str:
        return f"<RemoteBroker {self._parsed}>"

    def check(self) -> None:
        """Connect once.

        Raises:
            JMSException: the broker cannot be reached, or refuses.
        """
        self.namespace(f"test-{os.getpid():x}-check").drop()

    def management(self, what: str, incarnation: str = "") -> Management:
        """The management API; skips the test if it does not answer.

        Args:
            what: needs it.
            incarnation: of the broker that it has to be.
        """
        if self._management is None and not self._refusal:
            try:
                found = self._open_management()
                if found.get("/broker")["incarnation"] != incarnation:
                    raise ManagementError(f"{self.http_url} is the management port of another broker")
                self._management = found
            except ManagementError as error:
                self._refusal = str(error)
        if self._management is None:
            pytest.skip(f"{what} needs the management API: {self._refusal}; --sievemq-http-url says where it is")
        return self._management

    def _open_management(self) -> Management:
        """The management port takes the user, the password and the TLS options of the wire port."""
        url, broker = self.http_url, self._parsed
        if not url.startswith(("http://", "https://")):
            raise ManagementError(
                f"{url!r} is no URL of a management port; write it as http://localhost:{DEFAULT_HTTP_PORT}"
            )
        try:
            tls = tls_of(replace(broker, secure=url.startswith("https://")))
        except JMSException as error:
            raise ManagementError(str(error)) from error
        return Management(url, broker.user, broker.password, tls)

    def namespace(self, name: str) -> RemoteNamespace:
        """A namespace; give it a name that no other test uses."""
        base, mark, options = self._base
        return RemoteNamespace(self, name, f"{base.rstrip('/')}/{quote(name, safe='')}{mark}{options}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        needs_inside(f"broker.{name}")


class RemoteNamespace:
    """A namespace of a broker elsewhere.

    Raises:
        JMSException: the broker cannot be reached, or refuses.
    """

    def __init__(self, broker: RemoteBroker, name: str, url: str) -> None:
        self.broker = broker
        self.name = name
        self.url = url
        self._views: dict[str, RemoteQueue | RemoteTopic] = {}
        self._connection: Connection = ConnectionFactory(url, reconnect=0).create_connection()

    @property
    def amqp_url(self) -> str:
        """For AMQP clients, where the broker has that protocol: as :attr:`EmbeddedNamespace.amqp_url`."""
        base, _, name = self.url.partition("?")[0].rpartition("/")
        return f"{base.replace('sievemq', 'amqp', 1)}?amqp.vhost=%2F{name}"

    @property
    def stomp_url(self) -> str:
        """For STOMP clients, where the broker has that protocol: as :attr:`EmbeddedNamespace.stomp_url`."""
        return self.url.partition("?")[0].replace("sievemq", "stomp", 1)

    def __repr__(self) -> str:
        return f"<RemoteNamespace {self.name!r} of {self.broker!r}>"

    def api(self, what: str) -> Management:
        """The management API; skips the test if it does not answer."""
        return self.broker.management(what, self._connection._engine.terms.incarnation)

    def queue(self, name: str | Destination) -> RemoteQueue:
        """A queue, as ``orders``, ``queue:orders`` or ``Queue("orders")``. Its history begins with waiting messages."""
        address = str(address_of(name, topic=False))
        view = self._views.get(address)
        if not isinstance(view, RemoteQueue):
            view = self._views[address] = RemoteQueue(self, address)
        return view

    def topic(self, name: str | Destination) -> RemoteTopic:
        """A topic, as ``prices``, ``topic:prices`` or ``Topic("prices")``. Its history begins now."""
        address = str(address_of(name, topic=True))
        view = self._views.get(address)
        if not isinstance(view, RemoteTopic):
            view = self._views[address] = RemoteTopic(self, address)
        return view

    @property
    def destinations(self) -> list[str]:
        """Addresses of what exists here, such as ``queue:orders``."""
        rows = self.api("namespace.destinations").rows(place(self.name) + "/destinations", "destinations")
        return sorted(row["address"] for row in rows)

    @property
    def connections(self) -> list[ConnectionView]:
        """The connections that are open, without the one of this view."""
        return self._connections(self.api("namespace.connections"))

    def _connections(self, api: Management) -> list[ConnectionView]:
        mine = self._connection._engine.terms.connection_id
        rows = [row for row in api.rows("/connections", "connections", namespace=self.name) if row["id"] != mine]
        consumers: dict[str, list[str]] = {}
        if rows:
            for address in self.destinations:
                for consumer in api.rows(place(self.name, address, "consumers"), "consumers"):
                    consumers.setdefault(consumer["connection"], []).append(address)
        return [
            ConnectionView(
                row["id"], row["client_id"], row["agent"], tuple(consumers.get(row["id"], ())), row["protocol"]
            )
            for row in rows
        ]

    def drop(self, within: Seconds = 0.0) -> list[ConnectionView]:
        """Delete it with everything in it, over the management API. It stays if that does not answer, or while
        connections are open.

        Args:
            within: seconds, or a timedelta, to wait at most for the connections to end by themselves.

        Returns:
            The connections that are still open.
        """
        left: list[ConnectionView] = []
        with contextlib.suppress(pytest.skip.Exception):
            api = self.api("namespace.drop()")
            _poll(lambda: not self._connections(api), within)
            left = self._connections(api)
        self._connection.close()
        if self.broker._management is not None and not left:
            with contextlib.suppress(ManagementError):  # a client has just come, or there is nothing to delete
                self.broker._management.delete(place(self.name))
        return left

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        needs_inside(f"namespace.{name}")


class _Remote:
    """Base class of the views of a remote broker's queues and topics."""

    _kind: str

    def __init__(self, namespace: RemoteNamespace, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self._taken: list[Envelope] = []
        self._read = 0
        self._tap: Tap | None = None
        self._refusal = ""
        where = parse_destination(name)
        for existing in (True, False):
            self._made = not existing  # the destination, by opening its tap
            try:
                self._tap, state = open_tap(namespace._connection, _TAP, where, start="earliest", existing=existing)
            except JMSException as error:
                self._refusal = f": {error}"
                if error.get_error_code() != ErrorCode.NOT_FOUND.name:
                    break
            else:
                self._refusal = ""
                self._read = state.first - 1
                break

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} in {self.namespace.name!r}>"

    def _api(self) -> Management:
        return self.namespace.api(f"{self._kind} {self.name}")

    def _row(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._api().get(place(self.namespace.name, self.name))
        except ManagementError as error:
            if error.status == 404:
                return None
            raise
        return found

    def _unused(self, row: Mapping[str, Any] | None) -> bool:
        """True if no client has sent to it or consumes from it, and it was not there before this view. One that had a
        tap and is gone was deleted."""
        if row is None:
            return self._tap is None
        return self._made and not any(row["counters"].values()) and not any(row[key] for key in _USES)

    def _if_missing(self) -> list[str]:
        """The line about a destination that no client has used."""
        row = self._row()
        return [f"  {self._missing()}"] if self._unused(row) else []

    def _missing(self) -> str:
        views = self.namespace._views
        others = [
            name
            for name in self.namespace.destinations
            if name not in views or not views[name]._unused(views[name]._row())
        ]
        return missing(self.name, others)

    def _counter(self, name: str) -> int:
        row = self._row()
        return 0 if row is None else int(row["counters"][name])

    def _history(self) -> list[Envelope]:
        """Messages that the tap has seen. Skips the test if the tap is gone."""
        if self._tap is not None:
            try:
                state = self._tap.look(self._read)
            except InvalidDestinationException:
                pytest.skip(
                    f"what went through {self.name} is not known any more: it was deleted, or the broker was restarted"
                )
            for page in self._tap.pages(self._read, state.upto):
                self._taken += [Envelope(fields) for fields in zip(*page.columns, strict=True)]
                self._read = page.first + len(page) - 1
        return self._taken

    def _unknown(self, unseen: int, word: str) -> str:
        return (
            f"{self.name}: {counted(unseen, 'message')} went through before the test made this view{self._refusal}; "
            f"to know which were {word}, call namespace.{self._kind}({self.name.partition(':')[2]!r}) before they are "
            "sent"
        )

    def _assert(
        self,
        word: str,
        selector: str | None,
        count: int | None,
        within: Seconds,
        look: Callable[[], tuple[int, list[Envelope] | None]],
    ) -> list[Message]:
        """Wait for messages."""
        __tracebackhide__ = True
        condition, needed = compiled(selector), at_least(count)
        seen: tuple[int, list[Envelope] | None] = (0, [])
        chosen: list[Envelope] = []

        def number() -> int:
            nonlocal seen, chosen
            seen = look()
            chosen = [e for e in seen[1] or () if condition is None or matches(condition, e)]
            return seen[0] if condition is None else len(chosen)

        _poll(lambda: number() >= needed, within)
        total, known = seen
        if known is None and condition is not None:
            pytest.skip(self._unknown(total - len(self._taken), word))
        found = total if condition is None else len(chosen)
        if found >= 1 if count is None else found == count:
            if known is None:
                return _Unknown(self._unknown(total - len(self._taken), word))
            where = parse_destination(self.name)
            return [received(envelope.fields, where, 1, None) for envelope in chosen]
        text = [shortfall(self.name, word, selector, count, within, found), *listed(chosen, word), *self._if_missing()]
        if condition is not None:
            others = [envelope for envelope in known or () if envelope not in chosen]
            text += listed(others, f"{word}, but does not match", lambda envelope: why_not(condition, envelope))
        raise AssertionError("\n".join(text))

    def _received(self, total: int) -> tuple[int, list[Envelope] | None]:
        history = self._history()
        return max(total, len(history)), history if len(history) >= total else None

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        needs_inside(f"{self._kind}.{name}")


class _Unknown(list[Message]):
    """Messages whose number is known and whose content is not: a test that needs them is skipped."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self._why = why

    def _skip(self, *_: object) -> NoReturn:
        pytest.skip(self._why)

    __iter__ = __len__ = __getitem__ = __contains__ = __eq__ = _skip
    __hash__ = None


class RemoteQueue(_Remote):
    """A queue of a broker elsewhere."""

    _kind = "queue"

    # -- what is there ----------------------------------------------------------------------------------------------

    def messages(self, selector: str | None = None) -> list[Message]:
        """The waiting messages, in the order of delivery."""
        return self._browse(self.name, selector)

    def dead_letters(self, selector: str | None = None) -> list[Message]:
        """The messages of this queue that are on its dead-letter queue."""
        compiled(selector)
        row = self._row()
        target = None if row is None else row["dead_letters"]
        return [] if target is None else self._browse(target, letters_of(self.name, selector))

    def _browse(self, address: str, selector: str | None) -> list[Message]:
        with ConnectionFactory(self.namespace.url).create_context() as context:
            browser: Any = context.create_browser(Queue(parse_address(address).name), selector)
            return list(browser)

    @property
    def depth(self) -> int:
        """Messages that wait."""
        return len(self.messages())

    @property
    def in_flight(self) -> int:
        """Messages that consumers hold and have not acknowledged."""
        row = self._row()
        return 0 if row is None else int(row["in_flight"])

    @property
    def acknowledged(self) -> int:
        """Messages acknowledged so far."""
        return self._counter("acknowledged")

    @property
    def expired(self) -> int:
        """Messages that have expired so far."""
        return self._counter("expired")

    @property
    def redelivered(self) -> int:
        """Messages redelivered so far."""
        return self._counter("redelivered")

    @property
    def consumers(self) -> list[ConsumerView]:
        """The consumers of the queue."""
        rows = self._api().rows(place(self.namespace.name, self.name, "consumers"), "consumers")
        return [
            ConsumerView(
                row["consumer"],
                row["connection"],
                row["client_id"],
                row["selector"],
                row["credit"],
                row["in_flight"],
                row["waiting"],
            )
            for row in rows
        ]

    def purge(self) -> int:
        """Drop the waiting and scheduled messages; returns how many there were."""
        return int(self._act("purge")["touched"])

    def retry(self, selector: str | None = None) -> int:
        """As :meth:`QueueView.retry`."""
        compiled(selector)
        row = self._row()
        if row is None:
            return 0
        target = row["dead_letters"]
        chosen = {"selector": selector if target is None else letters_of(self.name, selector)}
        try:
            done = self._act("retry", target or self.name, **chosen)
        except ManagementError as error:
            if error.status == 404:  # it has no dead letters
                return 0
            raise RuntimeError(f"the dead letters of {self.name} cannot be sent back: {error}") from error
        if done["stopped"]:
            raise RuntimeError(f"the dead letters of {self.name} cannot be sent back: {done['stopped']['text']}")
        return int(done["touched"])

    def pause(self) -> None:
        """Stop deliveries; sending continues."""
        self._act("pause")

    def resume(self) -> None:
        """Deliver again."""
        self._act("resume")

    def _act(self, action: str, address: str = "", **body: object) -> Mapping[str, Any]:
        path = place(self.namespace.name, address or self.name, "actions", action)
        found: Mapping[str, Any] = self._api().post(path, body)
        return found

    # -- assertions -------------------------------------------------------------------------------------------------

    def assert_received(
        self, selector: str | None = None, *, count: int | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """As :meth:`QueueView.assert_received`."""
        __tracebackhide__ = True
        return self._assert("received", selector, count, within, lambda: self._received(self._counter("enqueued")))

    def assert_consumed(
        self, selector: str | None = None, *, count: int | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """As :meth:`QueueView.assert_consumed`."""
        __tracebackhide__ = True

        def look() -> tuple[int, list[Envelope] | None]:
            row = self._row()
            if row is None:
                return 0, self._history()
            counters = row["counters"]
            still = set(self._ids())
            history = self._history()
            gone = [envelope for envelope in history if envelope.fields[MESSAGE_ID] not in still]
            acknowledged = int(counters["acknowledged"])
            # A message that was removed was acknowledged, unless it can have another outcome.
            return acknowledged, gone if len(gone) == acknowledged and not _lost(counters) else None

        try:
            return self._assert("consumed", selector, count, within, look)
        except AssertionError as error:
            held = [
                f"\n  consumer {consumer.id} of {consumer.connection} holds "
                f"{counted(consumer.unacknowledged, 'message')} unacknowledged"
                for consumer in self.consumers
                if consumer.unacknowledged
            ]
            raise AssertionError(f"{error}{''.join(held)}") from None

    def _ids(self) -> Iterator[object]:
        """Message ids of the waiting messages."""
        path = place(self.namespace.name, self.name, "messages")
        for state in _STATES:
            for row in self._api().rows(path, "messages", state=state):
                yield row["message_id"]

    def assert_dead_letters(
        self, selector: str | None = None, *, count: int | None = None, reason: str | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """As :meth:`QueueView.assert_dead_letters`."""
        __tracebackhide__ = True
        check_reason(reason)
        needed = at_least(count)
        found: list[Message] = []

        def look() -> bool:
            nonlocal found
            letters = self.dead_letters(selector)
            found = [m for m in letters if reason in (None, m.properties.get(REASON))]
            return len(found) >= needed

        _poll(look, within)
        if len(found) >= 1 if count is None else len(found) == count:
            return found
        raise AssertionError(other_letters(self.name, selector, count, reason, len(found), self._if_missing()))

    def assert_awaited(self, *, count: int = 1, within: Seconds = 0.0) -> None:
        """As :meth:`QueueView.assert_awaited`."""
        __tracebackhide__ = True
        if not _poll(lambda: sum(consumer.waiting for consumer in self.consumers) >= count, within):
            raise AssertionError(unawaited(self.name, count, self.consumers, self._if_missing()))

    def assert_empty(self, *, within: Seconds = 0.0) -> None:
        """As :meth:`QueueView.assert_empty`."""
        __tracebackhide__ = True
        left: dict[str, int] = {}

        def look() -> bool:
            nonlocal left
            row = self._row()
            left = {} if self._unused(row) else {name: 0 if row is None else row[name] for name in _LEFT}
            return bool(left) and not any(left.values())

        if not _poll(look, within):
            if not left:
                raise AssertionError(self._missing())
            raise AssertionError(
                f"{self.name} is not empty: {left['depth']} wait, {left['scheduled']} are scheduled, "
                f"{left['in_flight']} are in flight"
            )


class RemoteTopic(_Remote):
    """A topic of a broker elsewhere."""

    _kind = "topic"

    @property
    def subscriptions(self) -> list[Mapping[str, Any]]:
        """The subscriptions: name, client_id, selector, durable, shared, depth, in_flight, consumers."""
        rows = self._api().rows(place(self.namespace.name) + "/subscriptions", "subscriptions", topic=self.name)
        names = ("name", "client_id", "selector", "durable", "shared", "depth", "in_flight", "consumers")
        return [{name: row[name] for name in names} for row in rows]

    def assert_awaited(self, *, count: int = 1, within: Seconds = 0.0) -> None:
        """As :meth:`TopicView.assert_awaited`."""
        __tracebackhide__ = True

        def active() -> int:
            return sum(subscription["consumers"] > 0 for subscription in self.subscriptions)

        if not _poll(lambda: active() >= count, within):
            raise AssertionError(unsubscribed(self.name, count, active()))

    def assert_received(
        self, selector: str | None = None, *, count: int | None = None, within: Seconds = 0.0
    ) -> list[Message]:
        """As :meth:`TopicView.assert_received`."""
        __tracebackhide__ = True
        return self._assert("received", selector, count, within, lambda: self._received(self._counter("published")))


def _lost(counters: Mapping[str, int]) -> bool:
    return bool(counters["expired"] or counters["dead_lettered"] or counters["removed"])

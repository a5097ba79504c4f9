"""Named subscriptions: when they may be created, resumed, changed and deleted (section 29)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Protocol

from sievemq_broker.domain.journal import Journal
from sievemq_broker.domain.origin import Origin, RequestId
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Subscription, Topic
from sievemq_broker.matching.condition import Condition
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_IDENTIFIER_CHARS


class SubscriptionHome(Protocol):
    """A namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def journal(self) -> Journal | None:
        """The journal that keeps durable subscriptions across restarts."""


class Subscriptions:
    """The named subscriptions of one namespace, by client id (None for shared ones) and name (SUB-18).

    Attributes:
        durable: they outlive their consumers.
        shared: shared non-durable ones; their names are apart from those of the durable ones (SUB-17).
    """

    __slots__ = ("_limit", "_namespace", "durable", "shared")

    def __init__(self, namespace: SubscriptionHome, limit: int) -> None:
        self._namespace = namespace
        self._limit = limit
        self.durable: dict[tuple[str | None, str], Subscription] = {}
        self.shared: dict[tuple[str | None, str], Subscription] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return chain(self.durable.values(), self.shared.values())

    def made_by(self, request: RequestId, client_id: str | None, name: str) -> bool:
        """True if this request made the durable subscription of that name, and no other has used it since."""
        found = self.durable.get((client_id, name))
        return found is not None and found.origin.is_request(request)

    def subscribe(
        self,
        topic: Topic,
        name: str | None,
        client_id: str | None,
        condition: Condition | None,
        *,
        durable: bool,
        shared: bool,
        no_local: bool,
        connection: str,
        temporary: bool,
        request: RequestId | None = None,
    ) -> Subscription:
        """Resume or create the durable or shared subscription of that name.

        Args:
            request: that asks for it.

        Raises:
            RequestError: section 29 says that neither may be.
        """
        if not name or len(name) > MAX_IDENTIFIER_CHARS:  # SUB-28, SUB-29
            raise RequestError(
                f"a subscription name has 1 to {MAX_IDENTIFIER_CHARS} characters, this one has {len(name or '')}",
                ErrorCode.ILLEGAL_STATE,
            )
        if durable and not shared and client_id is None:  # SUB-10
            raise RequestError(
                f"the unshared durable subscription {name!r} needs a client id; set one on the connection first",
                ErrorCode.ILLEGAL_STATE,
            )
        if durable and temporary:  # TMP-10
            raise RequestError(
                f"{topic.label} is temporary; a durable subscription would outlive it",
                ErrorCode.INVALID_DESTINATION,
                {"destination": topic.label},
            )
        if shared:
            no_local = False  # shared subscriptions have no such argument (SES-23)
        known = self.durable if durable else self.shared
        key = (client_id, name)
        found = known.get(key)
        if found is not None:
            if found.shared != shared:  # SUB-16
                raise _in_use(
                    found, "shared" if found.shared else "unshared", "exists with the same name; unsubscribe it"
                )
            if found.active and not shared:  # SUB-11
                raise _in_use(found, "unshared", "has a consumer already; close that one")
            if found.is_for(topic, condition, no_local):  # SUB-12
                if not shared:
                    found.follow(connection)
                found.origin.used_by(request)
                return found
            if found.active:  # SUB-14
                raise _in_use(found, "shared", "is in use with another topic or selector; close its consumers")
            _refuse_if_held(found)
            if found.topic is not topic:
                topic.refuse_if_full()
            self.drop(found)  # SUB-13, SUB-15
            request = None  # there was one before
        else:
            topic.refuse_if_full()
        if len(self.durable) + len(self.shared) >= self._limit:
            raise RequestError(
                f"namespace {self._namespace.name!r} has {self._limit} durable and shared subscriptions, as many as "
                "are allowed; unsubscribe unused ones",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "max_subscriptions"},
            )
        found = known[key] = self.make(
            topic,
            name,
            client_id,
            condition,
            durable=durable,
            shared=shared,
            no_local=no_local,
            connection=None if shared else connection,
            origin=Origin(request),
        )
        journal = self._namespace.journal
        if durable and journal is not None:
            number = journal.take_number()
            found.queue.observe(journal.ledger(number))
            journal.subscription_made(found.queue.place, number, condition, no_local=no_local, shared=shared)
        return found

    def make(
        self,
        topic: Topic,
        name: str | None,
        client_id: str | None,
        condition: Condition | None,
        *,
        durable: bool,
        shared: bool,
        no_local: bool,
        connection: str | None,
        origin: Origin | None = None,
    ) -> Subscription:
        """Create a subscription; it gets what is published from now on."""
        made = Subscription(
            topic,
            name,
            client_id,
            condition,
            durable=durable,
            shared=shared,
            no_local=no_local,
            connection=connection,
            origin=origin or Origin(),
            drop=self.drop,
        )
        topic.add(made)
        return made

    def keep(self, subscription: Subscription) -> None:
        """Add a durable subscription that existed before a restart."""
        assert subscription.name is not None
        self.durable[subscription.client_id, subscription.name] = subscription

    def unsubscribe(self, client_id: str | None, name: str) -> Queue:
        """See Namespace.unsubscribe. Returns the queue that it had."""
        found = self.durable.get((client_id, name))
        if found is None:
            whose = "without a client id" if client_id is None else f"of client id {client_id!r}"
            raise RequestError(
                f"there is no durable subscription {name!r:.300} {whose}",
                ErrorCode.INVALID_DESTINATION,
                {"subscription": name},
            )
        if found.active:
            raise _in_use(found, "durable", "has a consumer; close it")
        _refuse_if_held(found)
        self.drop(found)
        return found.queue

    def drop(self, subscription: Subscription) -> None:
        """End a subscription and remove its messages, without the checks of section 29."""
        subscription.topic.remove(subscription)
        subscription.queue.delete(ErrorCode.INVALID_DESTINATION, f"{subscription.queue.label} has ended")
        if subscription.name is not None:
            known = self.durable if subscription.durable else self.shared
            del known[(subscription.client_id, subscription.name)]
            journal = self._namespace.journal
            if subscription.durable and journal is not None:
                journal.subscription_ended(subscription.queue.place)


def _refuse_if_held(subscription: Subscription) -> None:
    if subscription.queue.in_flight:
        raise _in_use(subscription, "durable", "has messages that are not acknowledged; do that, or close the session")


def _in_use(subscription: Subscription, kind: str, why: str) -> RequestError:
    return RequestError(
        f"the {kind} subscription {subscription.name!r} to {subscription.topic.label} {why} first",
        ErrorCode.SUBSCRIPTION_IN_USE,
        {"subscription": subscription.name},
    )

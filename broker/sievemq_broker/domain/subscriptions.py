"""The subscriptions with a name: which may be made, resumed, changed and deleted when (section 29)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from sievemq_broker.domain.subscription import Subscription
from sievemq_broker.domain.topic import Topic
from sievemq_broker.matching.condition import Condition
from sievemq_core.errors import ErrorCode, RequestError
from sievemq_core.limits import MAX_IDENTIFIER_CHARS

__all__ = ["Subscriptions"]


class Subscriptions:
    """Those of one namespace, by client id (or None, for shared ones) and name (SUB-18).

    Attributes:
        durable: they outlive their consumers.
        shared: shared non-durable ones; their names are apart from those of the durable ones (SUB-17).
    """

    __slots__ = ("durable", "shared")

    def __init__(self) -> None:
        self.durable: dict[tuple[str | None, str], Subscription] = {}
        self.shared: dict[tuple[str | None, str], Subscription] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return chain(self.durable.values(), self.shared.values())

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
    ) -> Subscription:
        """The durable or shared subscription of that name, resumed or made.

        Args:
            temporary: the topic is a temporary one.

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
            no_local = False  # no such argument exists for shared subscriptions (SES-23)
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
                    found.connection = connection  # SUB-21: no_local follows the consumer
                return found
            if found.active:  # SUB-14
                raise _in_use(found, "shared", "is in use with another topic or selector; close its consumers")
            _refuse_if_held(found)
            self.drop(found)  # SUB-13, SUB-15
        limit = topic.namespace.broker.settings.max_subscriptions
        if len(self.durable) + len(self.shared) >= limit:
            raise RequestError(
                f"namespace {topic.namespace.name!r} has {limit} durable and shared subscriptions, as many as are "
                "allowed; unsubscribe those that are not used any more",
                ErrorCode.RESOURCE_ALLOCATION,
                {"limit": "max_subscriptions"},
            )
        found = Subscription(
            topic,
            name,
            client_id,
            condition,
            durable=durable,
            shared=shared,
            no_local=no_local,
            connection=None if shared else connection,
        )
        known[key] = found
        topic.add(found)
        journal = topic.namespace.broker.journal
        if durable and journal is not None:
            journal.subscription_made(found)
        return found

    def unsubscribe(self, client_id: str | None, name: str) -> None:
        """See Namespace.unsubscribe."""
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

    def drop(self, subscription: Subscription) -> None:
        """A subscription ends, with what it has collected. Not for callers that must follow section 29."""
        subscription.topic.remove(subscription)
        subscription.queue.delete(ErrorCode.INVALID_DESTINATION, f"{subscription.queue.label} has ended")
        if subscription.name is not None:
            known = self.durable if subscription.durable else self.shared
            del known[(subscription.client_id, subscription.name)]
            journal = subscription.topic.namespace.broker.journal
            if subscription.durable and journal is not None:
                journal.subscription_ended(subscription)


def _refuse_if_held(subscription: Subscription) -> None:
    if subscription.queue.in_flight:
        raise _in_use(subscription, "durable", "has messages that are not acknowledged; do that, or close the session")


def _in_use(subscription: Subscription, kind: str, why: str) -> RequestError:
    return RequestError(
        f"the {kind} subscription {subscription.name!r} to {subscription.topic.label} {why} first",
        ErrorCode.SUBSCRIPTION_IN_USE,
        {"subscription": subscription.name},
    )

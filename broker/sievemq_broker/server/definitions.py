"""Makes a broker have what definitions say: what differs, what may be done about it, and doing it.

Nothing is lost by it: what would delete messages is refused unless it is named. What is not defined is left alone, or
is deleted with `prune`, in the namespaces that are defined. Rules, limits and users are settings that change at run
time (`live_settings.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sievemq_broker import logs
from sievemq_broker.config import Settings
from sievemq_broker.definitions import Definitions, NamespaceDefinition, SubscriptionDefinition
from sievemq_broker.domain import management
from sievemq_broker.domain.broker import Broker
from sievemq_broker.domain.namespace import Namespace
from sievemq_broker.domain.queue import Queue
from sievemq_broker.domain.topic import Subscription, Topic
from sievemq_broker.domain.work import Budget, Make, Task, finish
from sievemq_broker.matching.condition import group_key
from sievemq_broker.server.live_settings import Layer, LiveSettings, RefusedError, difference
from sievemq_broker.server.watch.counts import queues_at
from sievemq_core.counted import counted
from sievemq_core.errors import RequestError
from sievemq_core.message.destination import parse_address
from sievemq_core.selector import CompiledSelector

if TYPE_CHECKING:  # few brokers are part of a cluster
    from sievemq_broker.server.placement import Placement

CREATE, CHANGE, DELETE = "create", "change", "delete"

#: Namespaces whose shards are looked up at once: one query finds as many.
_ASKED_AT_ONCE: Final = 64

Held: TypeAlias = Queue | Topic | Subscription
"""What holds messages, by itself or in its subscriptions."""

#: Units of looking at one definition, and of making one.
_LOOK: Final = 2
_MAKE: Final = 16
#: Units of compiling a selector, and characters for one more.
_COMPILE: Final = 100
_CHARACTERS: Final = 2

log = logs.get("server")


@dataclass(slots=True)
class Change:
    """A difference between definitions and a broker.

    Attributes:
        action: CREATE, CHANGE or DELETE.
        kind: `namespace`, `queue`, `topic` or `subscription`; `rule`, `limit` or `user`.
        namespace: where; None for rules, limits and users.
        name: by which it is forced: `default/queue:orders`.
        text: what differs; empty if all of it does.
        at_start: it is made when a broker starts with these definitions, and not before: the first users.
        refused: why it is not made; empty if it is.
        can_be_forced: it is made nevertheless if it is named.
        made: it has been made.
    """

    action: str
    kind: str
    namespace: str | None
    name: str
    text: str = ""
    at_start: bool = False
    refused: str = ""
    can_be_forced: bool = False
    made: bool = False

    def refuse(self, why: str, *, can_be_forced: bool) -> None:
        """It is not made; or it is, for no reason."""
        self.refused, self.can_be_forced = why, bool(why) and can_be_forced

    def done(self) -> None:
        """It has been made."""
        self.made = True

    def make(self, do: Make[None], now: int, budget: Budget) -> Task[None]:
        """Make it, unless it is refused meanwhile, or a limit does not allow it."""
        if self.refused:
            return
        try:
            yield from do(now, budget)
        except RequestError as error:
            self.refuse(error.text, can_be_forced=False)
        self.made = not self.refused


@dataclass(frozen=True, slots=True)
class Terms:
    """How definitions are applied.

    Attributes:
        prune: delete what is not defined, in namespaces that are.
        force: names of changes that are made although messages are deleted.
        partly: make the other changes if some are refused; otherwise none.
    """

    prune: bool = False
    force: Collection[str] = ()
    partly: bool = False


async def without_others(
    definitions: Definitions, placement: Placement | None, *, claims: bool
) -> tuple[Definitions, list[str]]:
    """The part of definitions that concerns this broker's shard.

    Args:
        placement: of its cluster; None without one.
        claims: namespaces without a shard get one now.

    Returns:
        That part, and the names of the namespaces in other shards.
    """
    others: dict[str, None] = {}
    if placement is not None:
        unknown = [name for name in definitions.namespaces if not placement.here(name)]
        ask = placement.claim if claims else placement.find
        for at in range(0, len(unknown), _ASKED_AT_ONCE):  # a takeover waits for the answers
            found = await asyncio.gather(*map(ask, unknown[at : at + _ASKED_AT_ONCE]))
            others |= {where.name: None for where in found if where.shard != placement.shard}
    ours = {name: wanted for name, wanted in definitions.namespaces.items() if name not in others}
    return replace(definitions, namespaces=ours), list(others)


def apply_at_start(broker: Broker, definitions: Definitions, settings: Settings, now: int) -> int:
    """Make what is missing before clients are served; returns how many changes that were. What is refused stays as it
    was restored, and is logged."""
    terms = Terms(partly=True)
    changes = finish(partial(apply, broker, definitions, settings.dialect, terms), now)
    for change in changes:
        if change.refused:
            way = "; `sievemq definitions apply --force` changes it" if change.can_be_forced else ""
            log.warning(
                "definitions.refused", definition=change.name, reason=change.refused, note=f"it is as it was{way}"
            )
    made = sum(change.made for change in changes)
    log.info("definitions.applied", source=definitions.origin, changes=made, refused=len(changes) - made)
    return made


def check_selectors(definitions: Definitions, dialect: str, now: int, budget: Budget) -> Task[None]:
    """Compile the selectors of definitions.

    Raises:
        ValueError: one is not valid.
    """
    for namespace in definitions.namespaces.values():
        for subscription in namespace.subscriptions:
            if budget.spent:
                yield
            _compile(subscription, dialect, budget)


def _compile(subscription: SubscriptionDefinition, dialect: str, budget: Budget) -> CompiledSelector | None:
    if subscription.selector is not None:
        budget.spend(_COMPILE + len(subscription.selector) // _CHARACTERS)
    return subscription.compile(dialect)


def compare(
    broker: Broker, definitions: Definitions, dialect: str, terms: Terms, now: int, budget: Budget
) -> Task[list[Change]]:
    """What applying them would do, in order.

    Args:
        dialect: of selectors that name none.
    """
    steps = yield from _steps(broker, definitions, dialect, terms, budget)
    return [step.change for step in steps]


def apply(
    broker: Broker, definitions: Definitions, dialect: str, terms: Terms, now: int, budget: Budget
) -> Task[list[Change]]:
    """Make a broker have what definitions say, but for rules, limits and users (:func:`change_settings`).

    Returns:
        The changes. If one is refused and not `partly`, none is made. What came to hold messages meanwhile is refused.
    """
    steps = yield from _steps(broker, definitions, dialect, terms, budget)
    changes = [step.change for step in steps]
    if not terms.partly and any(change.refused for change in changes):
        return changes
    for step in steps:
        if budget.spent:
            now = yield
        budget.spend(_MAKE)
        yield from step.change.make(step.do, now, budget)
    return changes


def settings_changes(definitions: Definitions, live: LiveSettings, *, prune: bool, secured: bool) -> list[Change]:
    """How rules, limits and users differ from those of a broker.

    Args:
        secured: clients need a user. Otherwise users change when it starts: the first ones lock all clients out.
    """
    found: list[Change] = []
    for layer, wanted in _tables_of(definitions, live):
        if wanted is None:
            continue
        there = layer.present
        gone = [name for name in there if name not in wanted] if prune else []
        others = 0
        for name, value in (*wanted.items(), *((name, None) for name in gone)):
            action = DELETE if value is None else CHANGE if name in there else CREATE
            text = difference(there[name], value) if action == CHANGE else ""
            if action == CHANGE and not text:
                continue
            at_start = layer is live.users and not secured
            change = Change(action, layer.kind, None, f"{layer.kind}/{name}", text, at_start)
            try:
                layer.check(name, others)
                others += name not in layer.changes
            except RefusedError as error:
                change.refuse(str(error), can_be_forced=False)
            found.append(change)
        if layer is not live.users and [*_arranged(layer, wanted)] != [*there]:
            found.append(Change(CHANGE, layer.kind, None, f"{layer.kind}s", "their order"))
    return found


def refuse_users(changes: list[Change], why: str) -> None:
    """Refuse the changes of users, if there is a reason."""
    for change in changes:
        if change.kind == "user" and why:
            change.refuse(why, can_be_forced=False)


def change_settings(
    changes: list[Change], definitions: Definitions, live: LiveSettings, by: str | None, now: int
) -> None:
    """Make what :func:`settings_changes` found; the broker uses it afterwards."""
    for layer, wanted in _tables_of(definitions, live):
        of_layer = {
            change.name.partition("/")[2]: change
            for change in changes
            if change.kind == layer.kind and not change.at_start and not change.refused
        }
        order = of_layer.pop("", None)
        refused = layer.put_each({name: (wanted or {}).get(name) for name in of_layer}, by, now)
        arranged = _arranged(layer, wanted or {}) if layer is not live.users else ()
        if arranged and arranged != [*layer.present]:
            layer.arrange(arranged, by, now)
        if order is not None:
            order.done()
        for name, change in of_layer.items():
            if name in refused:
                change.refuse(str(refused[name]), can_be_forced=False)
            else:
                change.done()


def _arranged(layer: Layer[Any], wanted: Mapping[str, Any]) -> list[str]:
    """The names of a layer, of which those that are wanted have their order in the places that they have."""
    ordered = iter([name for name in wanted if name in layer.present])
    return [next(ordered) if name in wanted else name for name in layer.present]


def _tables_of(definitions: Definitions, live: LiveSettings) -> tuple[tuple[Layer[Any], Mapping[str, Any] | None], ...]:
    return (live.rules, definitions.rules), (live.limits, definitions.limits), (live.users, definitions.users)


def name_of(client_id: str | None, name: str) -> str:
    """A subscription, as changes name it."""
    return f"subscription:{name}" if client_id is None else f"subscription:{client_id}/{name}"


def collect(
    broker: Broker, dialect: str, live: LiveSettings, spaces: Iterable[str], now: int, budget: Budget
) -> Task[Definitions]:
    """The definitions of a broker as it is: what outlives connections, rules, limits and users.

    Args:
        dialect: the broker's.
        spaces: names of namespaces.
    """
    namespaces: dict[str, NamespaceDefinition] = {}
    for name in sorted(spaces):
        space = broker.namespaces.get(name)
        if space is None:
            continue
        found: dict[bool, list[str]] = {False: [], True: []}
        for label in list(space.destinations):
            if budget.spent:
                yield
            budget.spend(_LOOK)
            kind = parse_address(label).kind
            if not kind.is_temporary:
                found[kind.is_topic].append(label)
        subscriptions = []
        for each in list(space.subscriptions.durable.values()):
            if budget.spent:
                yield
            budget.spend(_LOOK)
            subscriptions.append(_defined(each, dialect))
        namespaces[name] = NamespaceDefinition(tuple(found[False]), tuple(found[True]), tuple(subscriptions))
    users = live.users.present
    return Definitions(
        namespaces, live.rules.present, live.limits.present, {name: users[name] for name in sorted(users)}
    )


def _defined(found: Subscription, dialect: str) -> SubscriptionDefinition:
    condition = found.condition
    named = None if condition is None or str(condition.dialect) == dialect else str(condition.dialect)
    text = None if condition is None else condition.text
    assert found.name is not None
    return SubscriptionDefinition(
        found.name, found.topic.label, found.client_id, text, named, found.shared, found.no_local
    )


# -- comparing --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Step:
    """A change, and the function that makes it. That function looks again at what it changes, which may be different
    by then."""

    change: Change
    do: Make[None]


def _steps(broker: Broker, definitions: Definitions, dialect: str, terms: Terms, budget: Budget) -> Task[list[_Step]]:
    found: list[_Step] = []
    for name, wanted in definitions.namespaces.items():
        for step in _Comparison(broker, name, wanted, dialect, terms).steps(budget):
            if budget.spent:
                yield
            budget.spend(_LOOK)
            if step is not None:
                found.append(step)
    return found


class _Comparison:
    """The definition of a namespace beside that namespace."""

    def __init__(self, broker: Broker, name: str, wanted: NamespaceDefinition, dialect: str, terms: Terms) -> None:
        self._broker = broker
        self._name = name
        self._wanted = wanted
        self._dialect = dialect
        self._terms = terms

    def steps(self, budget: Budget) -> Iterator[_Step | None]:
        """What differs, None for each that does not. Subscriptions are deleted before their topics."""
        space = self._broker.namespaces.get(self._name)
        if space is None and self._name != "default":
            yield _Step(self._change(CREATE, "namespace", ""), partial(self._make, None))
        for address in (*self._wanted.queues, *self._wanted.topics):
            if space is not None and space.find(address) is not None:
                yield None
            else:
                kind = parse_address(address).kind.value
                yield _Step(self._change(CREATE, kind, address), partial(self._make, address))
        for subscription in self._wanted.subscriptions:
            yield self._compare(space, subscription, budget)
        if space is not None and self._terms.prune:
            yield from self._surplus(space)

    def _change(self, action: str, kind: str, name: str, found: Held | None = None, text: str = "") -> Change:
        """A change; refused if `found`, which it replaces or deletes, must stay."""
        change = Change(action, kind, self._name, f"{self._name}/{name}" if name else self._name, text)
        if found is not None:
            self._check(change, found)
        return change

    def _compare(self, space: Namespace | None, wanted: SubscriptionDefinition, budget: Budget) -> _Step | None:
        key = (wanted.client_id, wanted.name)
        found = None if space is None else space.subscriptions.durable.get(key)
        condition = _compile(wanted, self._dialect, budget)
        text = "" if found is None else _difference(found, wanted, condition)
        if found is not None and not text:
            return None
        change = self._change(CREATE if found is None else CHANGE, "subscription", name_of(*key), found, text)
        return _Step(change, partial(self._subscribe, change, wanted, condition))

    def _surplus(self, space: Namespace) -> Iterator[_Step | None]:
        defined = {(each.client_id, each.name) for each in self._wanted.subscriptions}
        for key, found in list(space.subscriptions.durable.items()):
            if key in defined:
                yield None
            else:
                change = self._change(DELETE, "subscription", name_of(*key), found)
                yield _Step(change, partial(self._unsubscribe, change, key))
        kept = {*self._wanted.queues, *self._wanted.topics}
        for label, destination in list(space.destinations.items()):
            kind = parse_address(label).kind
            if label in kept or kind.is_temporary:
                yield None
            else:
                change = self._change(DELETE, kind.value, label, destination)
                yield _Step(change, partial(self._delete, change, label))

    def _check(self, change: Change, found: Held) -> bool:
        """Note why what a change replaces or deletes must not be; False if that is so."""
        queues = [found.queue] if isinstance(found, Subscription) else queues_at(found)
        consumers = sum(len(queue.consumers) for queue in queues)
        messages = sum(queue.depth + queue.in_flight + len(queue.scheduled) for queue in queues)
        why, can_be_forced = "", True
        if isinstance(found, Subscription) and (found.active or found.queue.in_flight):
            why, can_be_forced = "it is in use: close its consumers and sessions first", False
        elif messages:
            why = f"it holds {counted(messages, 'message', form=',')}"
        elif consumers:
            why = f"it has {counted(consumers, 'consumer')}"
        elif not isinstance(found, Subscription) and self._is_tapped(found.label):
            why = "it has a tap"
        if can_be_forced and change.name in self._terms.force:
            why = ""
        change.refuse(why, can_be_forced=can_be_forced)
        return not why

    def _is_tapped(self, label: str) -> bool:
        return any(tap.destination.label == label for tap in self._broker.namespace(self._name).taps)

    # -- making it --------------------------------------------------------------------------------------------------

    def _make(self, address: str | None, now: int, budget: Budget) -> Task[None]:
        yield from ()
        space = self._broker.namespace(self._name)
        if address is not None:
            space.create(address)

    def _delete(self, change: Change, label: str, now: int, budget: Budget) -> Task[None]:
        space = self._broker.namespace(self._name)
        found = space.find(label)
        if found is None or not self._check(change, found):
            return
        yield from self._empty(change, queues_at(found), now, budget)
        if space.find(label) is found and self._check(change, found):
            space.delete(label)

    def _empty(self, change: Change, queues: Iterable[Queue], now: int, budget: Budget) -> Task[None]:
        """Delete messages where that is named: those that arrive meanwhile anywhere else must stay."""
        if change.name in self._terms.force:
            yield from management.emptied(queues, False, now, budget)

    def _unsubscribe(self, change: Change, key: tuple[str | None, str], now: int, budget: Budget) -> Task[None]:
        space = self._broker.namespace(self._name)
        found = space.subscriptions.durable.get(key)
        if found is None or not self._check(change, found):
            return
        yield from self._empty(change, [found.queue], now, budget)
        if space.subscriptions.durable.get(key) is found and self._check(change, found):
            space.unsubscribe(*key)

    def _subscribe(
        self,
        change: Change,
        wanted: SubscriptionDefinition,
        condition: CompiledSelector | None,
        now: int,
        budget: Budget,
    ) -> Task[None]:
        yield from self._unsubscribe(change, (wanted.client_id, wanted.name), now, budget)
        space = self._broker.namespace(self._name)
        if change.refused or (wanted.client_id, wanted.name) in space.subscriptions.durable:
            return
        topic = space.create(wanted.topic)
        assert isinstance(topic, Topic)
        space.subscriptions.subscribe(
            topic,
            wanted.name,
            wanted.client_id,
            condition,
            durable=True,
            shared=wanted.shared,
            no_local=wanted.no_local,
            connection="",
            temporary=False,
        )


def _difference(found: Subscription, wanted: SubscriptionDefinition, condition: CompiledSelector | None) -> str:
    """What differs of a subscription; empty for nothing."""
    parts = []
    if found.topic.label != wanted.topic:
        parts.append(f"{found.topic.label} becomes {wanted.topic}")
    if group_key(found.condition) != group_key(condition):
        old, new = (None if each is None else each.text for each in (found.condition, condition))
        parts.append(f"selector {old or 'none'} becomes {new or 'none'}")
    for name in ("shared", "no_local"):
        old, new = getattr(found, name), getattr(wanted, name)
        if old != new:
            parts.append(f"{name} becomes {str(new).lower()}")
    return ", ".join(parts)

"""Which of many distinct selectors match a message, without asking each of them.

A selector that can only be TRUE if a name has one of some values, a number between two bounds, a text with a certain
beginning, NULL or anything but NULL there, is filed under that (clue.py, places.py); a message then costs one look-up
per name in use plus one evaluation per selector in the buckets it hits. ``a = 1 OR b = 2`` is filed under both. Those
without such a fact are evaluated one by one. Buckets may hold too many, never too few: the selector's function decides.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sievemq_broker.matching.asking import AT_ONCE, Answers
from sievemq_broker.matching.clue import Clue, choose, the_clue
from sievemq_broker.matching.condition import Condition, is_true, units_of
from sievemq_broker.matching.places import Bucket, Places
from sievemq_core.errors import SieveError
from sievemq_core.message.envelope import Envelope

T = TypeVar("T")

_NO_PROPERTIES: dict[str, Any] = {}


class SelectorIndex(Generic[T]):
    """Targets by selector. A target is added once, with one selector.

    Attributes:
        evaluations: selectors asked so far: those that a bucket offered, and those that no bucket can hold. One that
            only compares with texts is answered by the look-up itself, and counted all the same.
        matches: those that were TRUE.
        error: what went wrong in the last :meth:`match`, or None (D-14). The reader resets it.
        most: selectors that one message is matched with, at most.
        units: the most that this costs (condition.units), unless they search texts.
        costly: a message may be worth the question whether all can be asked about it at once (:meth:`asking`).
        watch: called in place of the next :meth:`match`, with it and the message; returns what it does. None for none.
    """

    __slots__ = (
        "_filed", "_longest", "_names", "_needing", "_places", "_rest", "_searching", "_serial", "_several",
        "costly", "error", "evaluations", "matches", "most", "units", "watch",
    )  # fmt: skip

    def __init__(self) -> None:
        self._names: dict[str, Places] = {}
        self._places: tuple[Places, ...] = ()  # the same, for iterating
        self._rest: Bucket = {}
        self._filed: dict[T, tuple[Condition, tuple[Clue, ...], int]] = {}  # the last: numbers in order
        self._serial = 0
        self._searching = 0  # selectors that search texts: each may take long
        self._longest = 0  # parts of the selector that has most of them
        self._needing = 0  # selectors that name a property: without any, properties need not be decoded
        self._several = 0  # selectors filed under more than one name or kind: a message may meet them twice
        self.evaluations = 0
        self.matches = 0
        self.error: Exception | None = None
        self.most = 0
        self.units = 0
        self.costly = False
        self.watch: Callable[[Callable[[Envelope], list[T]], Envelope], list[T]] | None = None

    def watch_next(self, watch: Callable[[Callable[[Envelope], list[T]], Envelope], list[T]]) -> None:
        """Call `watch` in place of the next :meth:`match`."""
        self.watch = watch

    def __len__(self) -> int:
        return len(self._filed)

    def take_error(self) -> Exception:
        """The error of a selector, which is reset."""
        error, self.error = self.error, None
        assert error is not None
        return error

    def add(self, condition: Condition, target: T) -> None:
        """File `target` where it will be evaluated least often."""
        serial = self._serial = self._serial + 1
        if condition.facts.never:
            self._filed[target] = condition, (), serial  # it never matches: it is in no bucket
            return
        lookup = condition.is_lookup
        clues = the_clue(condition) if lookup else choose(condition, self._cost)
        self._filed[target] = condition, clues, serial
        parts, searches = condition.effort
        self._longest = max(self._longest, parts)
        self._searching += searches > 0
        self._needing += condition.facts.uses_properties
        self._several += len(clues) > 1
        if not clues:
            self._rest[target] = condition.function
        function = None if lookup else condition.function
        for clue in clues:
            if clue.name not in self._names:
                self._names[clue.name] = Places(clue.name)
                self._places = tuple(self._names.values())
            self._names[clue.name].add(clue, target, function)
        self._weigh()

    def remove(self, target: T) -> None:
        """Remove `target`."""
        condition, clues, _ = self._filed.pop(target)
        if condition.facts.never:
            return
        self._searching -= condition.effort[1] > 0
        self._needing -= condition.facts.uses_properties
        self._several -= len(clues) > 1
        if not clues:
            del self._rest[target]
        for clue in clues:
            places = self._names.get(clue.name)
            if places is None:
                continue  # all entries there belonged to this one, by another clue
            places.remove(clue, target)
            if not places:
                del self._names[clue.name]
                self._places = tuple(self._names.values())
        self._weigh()

    def clues(self, target: T) -> tuple[Clue, ...]:
        """Under what `target` is filed; empty if it is evaluated for every message, or for none."""
        return self._filed[target][1]

    @property
    def filed(self) -> Container[object]:
        return self._filed

    def effort(self, target: T) -> tuple[int, int]:
        """The most that evaluating it can cost (plan.effort_of)."""
        return self._filed[target][0].effort

    def serial(self, target: T) -> int:
        return self._filed[target][2]

    def _weigh(self) -> None:
        self.most = len(self._rest) + sum([places.most for places in self._places])
        self.units = self.most * units_of((self._longest, 0), 0)
        self.costly = self._searching > 0 or self.units > AT_ONCE

    def asking(self, envelope: Envelope) -> Answers[T] | None:
        """Begin to evaluate selectors on a message in slices; None if :meth:`match` does not take long."""
        if not self.costly:
            return None
        known: Answers[T] | None = envelope.answers
        if known is not None and known.index is not self:
            known = None
        if self.has_asked(envelope):
            return None
        try:
            properties = envelope.read_properties() if self._needing else _NO_PROPERTIES
        except SieveError:
            return None  # selectors that name one are not evaluated
        if known is not None:
            buckets = [self._added_since(known.serial)]
        else:
            buckets = self._buckets(properties, envelope.fields)
        if not self._searching and sum(map(len, buckets)) * units_of((self._longest, 0), 0) <= AT_ONCE:
            return None
        answers = Answers(self, envelope, properties, buckets, self._serial, known)
        return answers if answers.costs_more_than(AT_ONCE) else None

    def has_asked(self, envelope: Envelope) -> bool:
        known: Answers[T] | None = envelope.answers
        return known is not None and known.index is self and known.serial == self._serial

    def _buckets(self, properties: Mapping[str, Any], fields: Sequence[Any]) -> list[Bucket]:
        """Whom :meth:`match` would ask, the last ones first; one that is filed under several facts perhaps for each."""
        found: list[Bucket] = []
        for places in self._places:
            position = places.position
            value = properties.get(places.name) if position is None else fields[position]
            bucket = places.keys.get(("boolean", value) if value.__class__ is bool else value)
            if bucket is None:
                pass
            elif bucket.__class__ is not dict:
                found.append({bucket: None})
            else:
                found.append(bucket)
            if places.more is not None:
                found += places.more.hit(value)
        if self._rest:
            found.append(self._rest)
        found.reverse()
        return found

    def _added_since(self, serial: int) -> Bucket:
        """The targets whose selectors were added behind one with this number."""
        added: Bucket = {}
        for target, (condition, _, number) in reversed(self._filed.items()):
            if number <= serial:
                break
            if not condition.facts.never:
                added[target] = condition.function
        return added

    def _known(self, answers: Answers[T], envelope: Envelope) -> list[T]:
        """The results that a message has, with those of selectors that were added since."""
        answers.drop()
        if answers.serial < self._serial:
            for target, (condition, _, serial) in reversed(self._filed.items()):
                if serial <= answers.serial:
                    break
                self.evaluations += 1
                try:
                    if not condition.facts.never and is_true(condition, envelope):
                        answers.found.append(target)
                except Exception as error:  # as below
                    answers.fail(error)
            answers.reach(self._serial)
        self.error = answers.error or self.error
        self.matches += len(answers.found)
        return answers.found.copy()

    def count_known(self, answers: Answers[T], matches: int) -> None:
        """Count a message whose results are there already as :meth:`match` does."""
        self.error = answers.error or self.error
        self.matches += matches

    def count(self) -> None:
        self.evaluations += 1

    def look(self, envelope: Envelope) -> list[T]:
        """:meth:`match` without counting."""
        counted = self.evaluations, self.matches
        found = self.match(envelope)
        self.evaluations, self.matches = counted
        return found

    def match(self, envelope: Envelope) -> list[T]:  # noqa: C901
        """The targets whose selector is TRUE for this message. One that is filed under several facts may be asked once
        for each that the message meets; it is found once.

        Never raises: where properties cannot be decoded no selector that names one matches, and :attr:`error` has
        the reason (D-14).
        """
        answers: Answers[T] | None = envelope.answers
        if answers is not None and answers.index is self:
            return self._known(answers, envelope)
        watch = self.watch
        if watch is not None:
            self.watch = None
            return watch(self.match, envelope)
        found: list[T] = []
        evaluations = 0
        try:
            properties = envelope.read_properties() if self._needing else _NO_PROPERTIES
            fields = envelope._fields  # it has usually just arrived; no property is called
            if type(fields) is not tuple:
                fields = envelope.fields
            for places in self._places:
                position = places.position
                value = properties.get(places.name) if position is None else fields[position]
                # TRUE equals 1 as a key in Python, but not to a selector
                bucket = places.keys.get(("boolean", value) if type(value) is bool else value)
                if bucket is None:
                    pass
                elif type(bucket) is not dict:  # one target that the look-up has decided
                    evaluations += 1
                    found.append(bucket)
                else:
                    evaluations += len(bucket)
                    for target, function in bucket.items():
                        if function is None or function(properties, fields):
                            found.append(target)
                if places.more is not None:
                    for bucket in places.more.hit(value):
                        evaluations += len(bucket)
                        for target, function in bucket.items():
                            if function is None or function(properties, fields):
                                found.append(target)
            if self._rest:
                evaluations += len(self._rest)
                for target, function in self._rest.items():
                    if function is None or function(properties, fields):
                        found.append(target)
            self.evaluations += evaluations
            if self._several and len(found) > 1:
                found = list(dict.fromkeys(found))
        except Exception as error:  # whatever a hostile sender sent: only this message is concerned
            self.error = error
            found = list(self._asked_alone(envelope))
        self.matches += len(found)
        return found

    def _asked_alone(self, envelope: Envelope) -> Iterator[T]:
        """As :meth:`match`, but a selector that fails does not keep others from matching. Rare: no index is used."""
        for target, (condition, _, _) in self._filed.items():
            try:
                self.evaluations += 1
                properties = envelope.properties if condition.facts.uses_properties else _NO_PROPERTIES
                if condition.function(properties, envelope.fields):
                    yield target
            except Exception as error:  # as above
                self.error = error

    def _cost(self, clue: Clue) -> float:
        """The clue whose buckets are emptiest and that few messages meet; among equals a name that messages are read
        for anyway, then the fewest keys. So `region = 'EU' AND customer = 17` ends up under the customer, whoever else
        asks for the region."""
        places = self._names.get(clue.name)
        keys = len(clue.data) if clue.data is not None else 0
        return int(clue.kind) + (0.5 if places is None else places.fullest(clue)) + min(keys, 4_096) / 16_384

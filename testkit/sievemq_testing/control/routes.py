"""The endpoints below ``/api/v1/test``. Each calls verbs of the kit; what they mean is described there."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import UNSET
from starlette.datastructures import Headers
from starlette.responses import Response

from sievemq import Message, TextMessage
from sievemq_broker.domain.policy import DestinationPolicy
from sievemq_broker.embedded import BrokerClock, Moved
from sievemq_broker.server.http.api.call import Call
from sievemq_broker.server.http.api.declare import Routes
from sievemq_broker.server.http.errors import ApiError
from sievemq_broker.session.checks import check_identifier
from sievemq_broker.session.rights import EVERYTHING, Verb
from sievemq_core.message.envelope import BODY
from sievemq_testing.broker import TestNamespace
from sievemq_testing.control import answers, requests
from sievemq_testing.control.desk import Desk, Lasting
from sievemq_testing.excerpt import show_message
from sievemq_testing.faults import Rule
from sievemq_testing.journal import Event
from sievemq_testing.reasons import why_not
from sievemq_testing.snapshot import Snapshot
from sievemq_testing.views import QueueView, TopicView

routes = Routes("Test control")

_TOPICS: Final = ("topic:", "temporary-topic:")

#: What a fault and an assertion take, beside what all of their kind do.
_OF_COMMANDS: Final = {"on", "times", "skip", "probability", "destination", "client_id"}
_FAULTS: Final[dict[str, set[str]]] = {
    "refuse": {*_OF_COMMANDS, "error", "text"},
    "drop": {*_OF_COMMANDS, "after"},
    "delay": {*_OF_COMMANDS, "delay_ms"},
    "cut": {"to_client", "skip", "between", "client_id"},
    "disconnect": {"client_id"},
    "close": {"error", "client_id"},
    "pause": {"client_id"},
    "slow": {"client_id"},
    "fill": {"destination"},
}
_ASSERTIONS: Final[dict[str, set[str]]] = {
    "received": {"destination", "selector", "count"},
    "consumed": {"destination", "selector", "count"},
    "scheduled": {"destination", "selector", "count"},
    "dead_letters": {"destination", "selector", "count", "reason"},
    "empty": {"destination"},
    "awaited": {"destination", "count"},
    "nothing_lost": {"allow_expired"},
    "idle": set(),
}


# -- namespaces -------------------------------------------------------------------------------------------------------


@routes.add(
    "POST", "/test/namespaces", Verb.MANAGE, answers.OpenedNamespace, body=requests.OpenNamespace, body_optional=True
)
async def open_test_namespace(call: Call[Any, requests.OpenNamespace]) -> answers.OpenedNamespace:
    """Open a namespace for a test: its own queues, topics, journal and faults.

    A namespace of this name that was dropped is open again, and empty."""
    if call.body.name is not None:
        check_identifier("the name of a namespace", call.body.name)
    return _opened(call, Desk.of(call.server).open(call.body.name))


@routes.add("DELETE", "/test/namespaces/{ns}", Verb.MANAGE, answers.DroppedNamespace)
async def drop_test_namespace(call: Call[Any, Any]) -> answers.DroppedNamespace:
    """Delete a namespace with everything in it, and cut its connections.

    Clients that connect to it again are refused until it is opened again."""
    desk = Desk.of(call.server)
    namespace = desk.namespace(call.path["ns"])
    left = await desk.ask(namespace.drop)
    desk.forget(namespace.name)
    return answers.DroppedNamespace(name=namespace.name, connections=[str(connection) for connection in left])


@routes.add("POST", "/test/namespaces/{ns}/reset", Verb.MANAGE, answers.OpenedNamespace)
async def reset_test_namespace(call: Call[Any, Any]) -> answers.OpenedNamespace:
    """Delete the messages, the faults and the journal of a namespace; connections and consumers stay."""
    desk = Desk.of(call.server)
    namespace = desk.namespace(call.path["ns"])
    await desk.ask(namespace.reset)
    desk.clear_faults(namespace.name)
    return _opened(call, namespace)


def _opened(call: Call[Any, Any], namespace: TestNamespace) -> answers.OpenedNamespace:
    def spoken(protocol: str, url: Callable[[], str]) -> str | None:
        return _reached(call, url()) if protocol in call.server.settings.protocols else None

    return answers.OpenedNamespace(
        name=namespace.name,
        url=spoken("sieve", lambda: namespace.url),
        amqp_url=spoken("amqp", lambda: namespace.amqp_url),
        stomp_url=spoken("stomp", lambda: namespace.stomp_url),
    )


def _reached(call: Call[Any, Any], url: str) -> str:
    """A URL of a broker that listens on all addresses, by the name that the caller has for it."""
    name = urlsplit(f"//{Headers(scope=call.scope).get('host', '')}").hostname
    for unspecified in ("//0.0.0.0:", "//[::]:"):
        if unspecified in url and name:
            return url.replace(unspecified, f"//{f'[{name}]' if ':' in name else name}:", 1)
    return url


@routes.add("POST", "/test/namespaces/{ns}/policies", Verb.MANAGE, answers.AppliedPolicy, body=requests.SetPolicy)
async def set_test_policy(call: Call[Any, requests.SetPolicy]) -> answers.AppliedPolicy:
    """Change rules of a destination, such as its attempts and redelivery delay, now."""
    desk = Desk.of(call.server)
    view = _view(desk.namespace(call.path["ns"]), call.body.destination)
    policy = await desk.ask(partial(view.configure, **call.body.rules))
    rules = {f.name: getattr(policy, f.name) for f in fields(DestinationPolicy) if f.init}
    return answers.AppliedPolicy(destination=view.name, rules=rules)


# -- snapshots --------------------------------------------------------------------------------------------------------


@routes.add("POST", "/test/namespaces/{ns}/snapshots", Verb.BROWSE, answers.KeptSnapshot, status=(201,))
async def take_test_snapshot(call: Call[Any, Any]) -> answers.KeptSnapshot:
    """Keep the destinations, durable subscriptions and messages of a namespace as they are now."""
    desk = Desk.of(call.server)
    namespace = desk.namespace(call.path["ns"])
    snapshot = await desk.ask(namespace.snapshot)
    return _kept(desk.add_snapshot(namespace.name, snapshot), snapshot)


@routes.add("POST", "/test/namespaces/{ns}/snapshots/{id}/restore", Verb.MANAGE, answers.KeptSnapshot)
async def restore_test_snapshot(call: Call[Any, Any]) -> answers.KeptSnapshot:
    """Reset a namespace, and have again what a snapshot holds; consumers that are open get the messages."""
    desk = Desk.of(call.server)
    namespace = desk.namespace(call.path["ns"])
    snapshot = desk.snapshot(namespace.name, call.path["id"])
    await desk.ask(namespace.restore, snapshot)
    desk.clear_faults(namespace.name)
    return _kept(call.path["id"], snapshot)


def _kept(name: str, snapshot: Snapshot) -> answers.KeptSnapshot:
    addresses = [kept.address for kept in snapshot.destinations]
    return answers.KeptSnapshot(id=name, at=snapshot.at, destinations=addresses, messages=snapshot.messages)


# -- the clock --------------------------------------------------------------------------------------------------------


@routes.add("GET", "/test/clock", Verb.VIEW, answers.ClockState)
async def get_test_clock(call: Call[Any, Any]) -> answers.ClockState:
    """The broker's clock."""
    clock = call.server.clock
    return answers.ClockState(now=clock.now(), offset_ms=clock.offset, frozen=clock.frozen_at is not None, seen=True)


@routes.add("POST", "/test/clock/advance", Verb.MANAGE, answers.ClockState, body=requests.Advance)
async def advance_test_clock(call: Call[Any, requests.Advance]) -> answers.ClockState:
    """Move the clock forward; everything that is due by then has happened when this answers.

    The clock is that of the whole broker."""
    return await _move(call, lambda clock: clock.advance(milliseconds=call.body.ms))


@routes.add("POST", "/test/clock/set", Verb.MANAGE, answers.ClockState, body=requests.SetClock)
async def set_test_clock(call: Call[Any, requests.SetClock]) -> answers.ClockState:
    """Have the clock show a time; a frozen clock stays frozen there."""
    to = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=call.body.to)
    return await _move(call, lambda clock: clock.set(to))


@routes.add("POST", "/test/clock/freeze", Verb.MANAGE, answers.ClockState)
async def freeze_test_clock(call: Call[Any, Any]) -> answers.ClockState:
    """Stop the clock: nothing becomes due until it is moved or resumed."""
    return await _move(call, BrokerClock.freeze)


@routes.add("POST", "/test/clock/resume", Verb.MANAGE, answers.ClockState)
async def resume_test_clock(call: Call[Any, Any]) -> answers.ClockState:
    """Let the clock run on from the time that it shows."""
    return await _move(call, BrokerClock.resume)


@routes.add("POST", "/test/clock/restore", Verb.MANAGE, answers.ClockState)
async def restore_test_clock(call: Call[Any, Any]) -> answers.ClockState:
    """Let the clock run and show the machine's time again."""
    return await _move(call, BrokerClock.restore)


async def _move(call: Call[Any, Any], move: Callable[[BrokerClock], Moved]) -> answers.ClockState:
    desk = Desk.of(call.server)
    moved = await desk.ask(move, desk.broker.clock)
    clock = call.server.clock
    return answers.ClockState(
        now=moved.now, offset_ms=clock.offset, frozen=clock.frozen_at is not None, seen=moved.seen
    )


# -- faults -----------------------------------------------------------------------------------------------------------


@routes.add("GET", "/test/namespaces/{ns}/faults", Verb.VIEW, answers.FaultStates)
async def list_test_faults(call: Call[Any, Any]) -> answers.FaultStates:
    """The faults of a namespace that were requested and not ended."""
    desk = Desk.of(call.server)
    found = desk.faults(desk.namespace(call.path["ns"]).name)
    return answers.FaultStates(faults=[_fault(name, kind, fault) for name, (kind, fault) in found.items()])


@routes.add("POST", "/test/namespaces/{ns}/faults", Verb.MANAGE, answers.FaultState, body=requests.Fault, status=(201,))
async def request_test_fault(call: Call[Any, requests.Fault]) -> answers.FaultState:
    """Request a fault of the connections of a namespace, whatever protocol they speak."""
    desk, wanted = Desk.of(call.server), call.body
    namespace = desk.namespace(call.path["ns"])
    given = _given(wanted, wanted.fault, _FAULTS[wanted.fault])
    made = await desk.ask(_request, namespace, wanted.fault, given)
    if isinstance(made, int):
        text = "the limit is reached" if wanted.fault == "fill" else "done"
        return answers.FaultState(id=None, fault=wanted.fault, text=text, used=made, left=0)
    return _fault(desk.add_fault(namespace.name, wanted.fault, made), wanted.fault, made)


def _request(namespace: TestNamespace, kind: str, given: dict[str, Any]) -> Lasting | int:
    """Call the verb; returns a fault that lasts, or how many connections it has met."""
    faults = namespace.faults
    if kind in ("refuse", "drop", "delay"):
        command = given.pop("on", None)
        if command is None:
            raise ValueError(f"on: the command that {kind} waits for, such as send")
        if kind == "refuse":
            return faults.refuse(command, **given)
        if kind == "drop":
            return faults.drop_on(command, **given)
        if "delay_ms" not in given:
            raise ValueError("delay_ms: the time by which the command is delayed")
        return faults.delay_on(command, timedelta(milliseconds=given.pop("delay_ms")), **given)
    if kind == "fill":
        if "destination" not in given:
            raise ValueError("destination: the queue whose limit is reached")
        faults.fill(_view(namespace, given["destination"]).name)
        return 0
    verbs: dict[str, Callable[..., Any]] = {
        "cut": faults.cut_frame,
        "disconnect": faults.drop_connections,
        "close": faults.close_connections,
        "pause": faults.pause_connections,
        "slow": faults.slow_consumers,
    }
    made: Lasting | int = verbs[kind](**given)
    return made


@routes.add("DELETE", "/test/namespaces/{ns}/faults/{id}", Verb.MANAGE, answers.FaultState)
async def end_test_fault(call: Call[Any, Any]) -> answers.FaultState:
    """End a fault; what it holds continues."""
    desk = Desk.of(call.server)
    namespace = desk.namespace(call.path["ns"])
    name = call.path["id"]
    kind, fault = desk.take_fault(namespace.name, name)
    await desk.ask(fault.cancel if isinstance(fault, Rule) else fault.resume)
    return _fault(name, kind, fault)


@routes.add("DELETE", "/test/namespaces/{ns}/faults", Verb.MANAGE, answers.FaultStates)
async def clear_test_faults(call: Call[Any, Any]) -> answers.FaultStates:
    """End all faults of a namespace; what they broke stays broken."""
    desk = Desk.of(call.server)
    namespace = desk.namespace(call.path["ns"])
    await desk.ask(namespace.faults.clear)
    desk.clear_faults(namespace.name)
    return answers.FaultStates(faults=[])


def _fault(name: str, kind: str, fault: Lasting) -> answers.FaultState:
    if isinstance(fault, Rule):
        return answers.FaultState(id=name, fault=kind, text=repr(fault), used=fault.used, left=fault.left)
    return answers.FaultState(id=name, fault=kind, text=repr(fault), used=fault.size, left=None)


# -- the journal ------------------------------------------------------------------------------------------------------


@routes.add("GET", "/test/namespaces/{ns}/journal", Verb.BROWSE, answers.JournalPage, query=requests.ReadJournal)
async def read_test_journal(call: Call[requests.ReadJournal, Any]) -> answers.JournalPage:
    """What has happened in a namespace, oldest first."""
    desk, query = Desk.of(call.server), call.query
    namespace = desk.namespace(call.path["ns"])
    return await desk.ask(_page, namespace, query)


def _page(namespace: TestNamespace, query: requests.ReadJournal) -> answers.JournalPage:
    events = namespace.journal
    chosen = [
        event
        for event in events
        if event.number > query.after
        and query.kind in (None, event.kind)
        and (query.destination is None or query.destination in (event.where, event.topic))
    ]
    shown = chosen[: query.limit]
    return answers.JournalPage(
        events=[_event(event) for event in shown],
        dropped=events[0].number - 1 if events else 0,
        next=shown[-1].number if len(shown) < len(chosen) else None,
    )


def _event(event: Event) -> answers.JournalEvent:
    envelope = event.envelope
    return answers.JournalEvent(
        number=event.number,
        at=event.at,
        kind=event.kind,
        destination=event.where,
        topic=event.topic,
        message_id=event.message_id,
        message=None if envelope is None else show_message(envelope),
        by=event.by,
        detail=event.detail,
        not_matched=[
            answers.WhyNot(selector=str(selector), text=why_not(selector, envelope))
            for selector in event.selectors
            if envelope is not None
        ],
    )


@routes.add(
    "GET", "/test/namespaces/{ns}/explanation", Verb.BROWSE, None, query=requests.Explain, media="text/plain"
)  # fmt: skip
async def explain_test(call: Call[requests.Explain, Any]) -> None:
    """The end of the journal as text, with the reason why each message was not delivered.

    It is what a failing test shows."""
    desk = Desk.of(call.server)
    namespace = desk.namespace(call.path["ns"])
    text = await desk.ask(partial(namespace.excerpt, call.query.lines, elsewhere=_sees_all(call)))
    await Response(f"{text}\n", media_type="text/plain")(call.scope, call.receive, call.send)


# -- assertions -------------------------------------------------------------------------------------------------------


@routes.add(
    "POST", "/test/namespaces/{ns}/assertions", Verb.BROWSE, answers.Outcome, body=requests.Assertion, records=False
)  # fmt: skip
async def check_test_assertion(call: Call[Any, requests.Assertion]) -> answers.Outcome:
    """Check what should have happened, and wait for it: `received` by a selector, so many, within a time.

    The answer is 200 whether it passed or not. If it did not, `text` says why, and `explanation` is the journal's
    end with the reasons why messages were not delivered."""
    desk, wanted = Desk.of(call.server), call.body
    namespace = desk.namespace(call.path["ns"])
    given = _given(wanted, wanted.that, _ASSERTIONS[wanted.that])
    within = timedelta(milliseconds=wanted.within_ms)
    try:
        found = await desk.ask(_assert, namespace, wanted.that, given, within)
    except AssertionError as error:
        explanation = await desk.ask(partial(namespace.excerpt, elsewhere=_sees_all(call)))
        return answers.Outcome(passed=False, text=str(error), explanation=explanation, messages=[])
    return answers.Outcome(passed=True, text="", explanation="", messages=[_message(each) for each in found or ()])


def _assert(namespace: TestNamespace, that: str, given: dict[str, Any], within: timedelta) -> list[Message] | None:
    if that == "idle":
        namespace.wait_until_idle(within)
        return None
    if that == "nothing_lost":
        namespace.assert_nothing_lost(**given, within=within)
        return None
    if "destination" not in given:
        raise ValueError("destination: the queue or topic that this is about")
    view = _view(namespace, given.pop("destination"))
    verb: Callable[..., list[Message] | None] | None = getattr(view, f"assert_{that}", None)
    if verb is None:
        raise ValueError(f"{that}: {view.name} is a topic; received, consumed and awaited can be asserted of it")
    return verb(**given, within=within)


def _message(message: Message) -> answers.SeenMessage:
    body: bytes | None = message._fields[BODY]
    is_text = isinstance(message, TextMessage)
    correlation_id = message.get_jms_correlation_id()
    return answers.SeenMessage(
        message_id=message.get_jms_message_id(),
        type=message.get_jms_type(),
        correlation_id=correlation_id,
        priority=message.get_jms_priority(),
        properties=dict(message.properties),
        text=message.get_text() if isinstance(message, TextMessage) else None,
        base64=None if is_text or body is None else b64encode(body).decode(),
    )


def _sees_all(call: Call[Any, Any]) -> bool:
    """True if the caller may see the messages of all namespaces."""
    return call.identity.may(Verb.BROWSE, EVERYTHING, EVERYTHING)


# -- what is given ----------------------------------------------------------------------------------------------------


def _view(namespace: TestNamespace, destination: str) -> QueueView | TopicView:
    """A queue, or a topic.

    Raises:
        ApiError: 422, it is no destination.
    """
    try:
        return namespace.topic(destination) if destination.startswith(_TOPICS) else namespace.queue(destination)
    except (ValueError, LookupError) as error:
        raise ApiError(422, "INVALID_DESTINATION", str(error), {"field": "destination"}) from None


def _given(wanted: requests.Fault | requests.Assertion, kind: str, takes: set[str]) -> dict[str, Any]:
    """What was given beside the kind.

    Raises:
        ApiError: 422, something that this kind does not take.
    """
    always = {"fault", "that", "within_ms"}
    given = {name: value for name in wanted.__struct_fields__ if (value := getattr(wanted, name)) is not UNSET}
    for name in given:
        if name not in takes and name not in always:
            listed = ", ".join(sorted(takes)) or "nothing more"
            raise ApiError(422, "INVALID_VALUE", f"{name}: {kind} takes {listed}", {"field": name})
    return {name: value for name, value in given.items() if name not in always}

"""The two APIs are one: same names, classes, methods and parameters; what waits is a coroutine function in aio."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import sievemq
import sievemq.aio
import sievemq.aio.staging
import sievemq.aio.taps
import sievemq.staging
import sievemq.taps

SPECIAL = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__"}
#: Plain in aio because they are answered without the broker and without waiting for anybody. Everything else waits.
LOCAL_PREFIXES = ("get_", "set_", "create_", "clear_", "property_exists", "durable", "broker", "messages")
#: Methods of those names that wait all the same.
WAITING = {
    "Connection.create_session",
    "Connection.set_client_id",
    "ConnectionFactory.create_connection",
    "ConnectionFactory.create_context",
    "JMSContext.create_browser",
    "JMSContext.create_consumer",
    "JMSContext.create_context",
    "JMSContext.create_durable_consumer",
    "JMSContext.create_shared_consumer",
    "JMSContext.create_shared_durable_consumer",
    "JMSContext.create_temporary_queue",
    "JMSContext.create_temporary_topic",
    "JMSContext.set_client_id",
    "QueueConnection.create_queue_session",
    "QueueConnection.create_session",
    "QueueConnection.set_client_id",
    "QueueConnectionFactory.create_connection",
    "QueueConnectionFactory.create_context",
    "QueueConnectionFactory.create_queue_connection",
    "QueueSession.create_browser",
    "QueueSession.create_consumer",
    "QueueSession.create_durable_consumer",
    "QueueSession.create_durable_subscriber",
    "QueueSession.create_producer",
    "QueueSession.create_receiver",
    "QueueSession.create_sender",
    "QueueSession.create_shared_consumer",
    "QueueSession.create_shared_durable_consumer",
    "QueueSession.create_temporary_queue",
    "QueueSession.create_temporary_topic",
    "Session.create_browser",
    "Session.create_consumer",
    "Session.create_durable_consumer",
    "Session.create_durable_subscriber",
    "Session.create_producer",
    "Session.create_shared_consumer",
    "Session.create_shared_durable_consumer",
    "Session.create_temporary_queue",
    "Session.create_temporary_topic",
    "TopicConnection.create_session",
    "TopicConnection.create_topic_session",
    "TopicConnection.set_client_id",
    "TopicConnectionFactory.create_connection",
    "TopicConnectionFactory.create_context",
    "TopicConnectionFactory.create_topic_connection",
    "TopicSession.create_browser",
    "TopicSession.create_consumer",
    "TopicSession.create_durable_consumer",
    "TopicSession.create_durable_subscriber",
    "TopicSession.create_producer",
    "TopicSession.create_publisher",
    "TopicSession.create_shared_consumer",
    "TopicSession.create_shared_durable_consumer",
    "TopicSession.create_subscriber",
    "TopicSession.create_temporary_queue",
    "TopicSession.create_temporary_topic",
}
#: Called by us, not by the application: whether they wait is the application's choice.
LISTENERS = ("MessageListener", "ExceptionListener", "CompletionListener")

NAMES = sorted(
    name
    for name in set(sievemq.__all__) | set(sievemq.aio.__all__)
    if getattr(sievemq, name, None) is not getattr(sievemq.aio, name, None)
)


def public(kind: type[Any]) -> dict[str, Any]:
    """Public members of a class, with those of its bases that are ours."""
    members: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("sievemq"):
            members |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    return members


METHODS = [
    pytest.param(name, method, id=f"{name}.{method}")
    for name in NAMES
    for method, value in public(getattr(sievemq, name)).items()
    if inspect.isfunction(value)
]


def test_the_same_names_are_exported() -> None:
    assert sorted(sievemq.__all__) == sorted(sievemq.aio.__all__)
    assert {"Connection", "Session", "JMSContext", "QueueRequestor"} <= set(NAMES)


def test_messages_destinations_and_exceptions_are_shared() -> None:
    for name in set(sievemq.__all__) - set(NAMES):
        assert getattr(sievemq, name) is getattr(sievemq.aio, name)
    assert "Message" not in NAMES
    assert "JMSException" not in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_class_has_the_same_members_and_bases(name: str) -> None:
    blocking, aio = getattr(sievemq, name), getattr(sievemq.aio, name)
    assert sorted(public(blocking)) == sorted(public(aio))
    ours = [base.__name__ for base in blocking.__mro__ if base.__module__.startswith("sievemq")]
    assert [base.__name__ for base in aio.__mro__ if base.__module__.startswith("sievemq")] == ours
    for plain, waiting in SPECIAL.items():
        assert hasattr(blocking, plain) == hasattr(aio, waiting), plain
        assert not hasattr(aio, plain)


@pytest.mark.parametrize("name", NAMES)
def test_constructors_take_the_same(name: str) -> None:
    """Of those that applications call; the others are made by methods."""
    if name.endswith(("Factory", "Requestor")):
        assert parameters(getattr(sievemq, name).__init__) == parameters(getattr(sievemq.aio, name).__init__)


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_a_method_takes_the_same_parameters(name: str, method: str) -> None:
    blocking, aio = getattr(getattr(sievemq, name), method), getattr(getattr(sievemq.aio, name), method)
    assert parameters(blocking) == parameters(aio)


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_a_method_has_a_docstring_in_both(name: str, method: str) -> None:
    for api in (sievemq, sievemq.aio):
        assert (getattr(getattr(api, name), method).__doc__ or "").strip()
        assert (getattr(api, name).__doc__ or "").strip()


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_only_methods_that_wait_are_coroutine_functions(name: str, method: str) -> None:
    function = inspect.unwrap(getattr(getattr(sievemq.aio, name), method))
    waits = inspect.iscoroutinefunction(function)
    assert not inspect.iscoroutinefunction(getattr(getattr(sievemq, name), method))
    if name == "Listeners":
        assert waits is (method in ("start", "stop"))
    elif name in LISTENERS:
        assert not waits
    elif method.startswith(LOCAL_PREFIXES):
        assert waits is (f"{name}.{method}" in WAITING)
    else:
        assert waits


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


# -- the modules beside the API: taps and staged sends ----------------------------------------------------------------

BESIDE = [
    pytest.param(sievemq.taps, sievemq.aio.taps, name, id=f"taps.{name}")
    for name in ("Tap", "delete_tap", "find_destinations", "find_tap", "open_tap")
] + [
    pytest.param(sievemq.staging, sievemq.aio.staging, name, id=f"staging.{name}")
    for name in ("discard", "publish", "stage")
]


@pytest.mark.parametrize("name", ["taps", "staging"])
def test_modules_beside_the_api_export_the_same(name: str) -> None:
    blocking, aio = getattr(sievemq, name), getattr(sievemq.aio, name)
    assert blocking.__all__ == aio.__all__
    compared = {parameter.values[2] for parameter in BESIDE if parameter.values[0] is blocking}
    for each in set(blocking.__all__) - compared:  # values, of which there is one kind
        assert getattr(blocking, each) is getattr(aio, each)


@pytest.mark.parametrize(("blocking", "aio", "name"), BESIDE)
def test_a_function_beside_the_api_takes_the_same_and_waits(blocking: Any, aio: Any, name: str) -> None:
    plain, waiting = getattr(blocking, name), getattr(aio, name)
    if inspect.isclass(plain):
        pairs = [(value, public(waiting)[method]) for method, value in public(plain).items()]
        assert public(plain).keys() == public(waiting).keys()
    else:
        pairs = [(plain, waiting)]
    pairs = [pair for pair in pairs if inspect.isfunction(pair[0])]
    assert pairs
    for one, other in pairs:
        assert parameters(one) == parameters(other)
        assert (one.__doc__ or "").strip()
        assert (other.__doc__ or "").strip()
        assert inspect.iscoroutinefunction(other) or inspect.isasyncgenfunction(other)

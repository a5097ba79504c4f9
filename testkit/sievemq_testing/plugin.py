"""The pytest plugin: a broker per run, a namespace per test, and the journal of a failing test.

pytest loads this in every project that has SieveMQ installed, so it imports nothing but pytest until a fixture is used.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Unpack

import pytest

if TYPE_CHECKING:
    from sievemq import JMSContext
    from sievemq_broker.embedded import BrokerClock
    from sievemq_testing.broker import BrokerOptions, TestBroker, TestNamespace
    from sievemq_testing.faults import Faults
    from sievemq_testing.fixtures import BrokerFactory, ContextOpener, ListenersRunner

_numbers = itertools.count(1)
_SDK = frozenset({"sievemq", "sievemq_core"})
_seen = pytest.StashKey[list[Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """--sievemq-url and --sievemq-trace, also as ini options."""
    group = parser.getgroup("sievemq", "SieveMQ")
    group.addoption(
        "--sievemq-url",
        metavar="URL",
        help="run against this broker (such as sievemq://localhost:7672) instead of one in the process; "
        "tests that need access to its inside are skipped",
    )
    group.addoption(
        "--sievemq-http-url",
        metavar="URL",
        help="the management port of that broker; port 7680 of the same host by default",
    )
    group.addoption(
        "--sievemq-trace",
        action="store_true",
        help="show the whole journal of each failing test (with -rP of passing ones too), not only its end",
    )
    parser.addini("sievemq_url", "as --sievemq-url", default="")
    parser.addini("sievemq_http_url", "as --sievemq-http-url", default="")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of SieveMQ is imported: pytest is not to rewrite its modules."""
    from sievemq_testing.imports import PlainImports

    finder = PlainImports()
    sys.meta_path.insert(0, finder)

    def remove() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    early_config.add_cleanup(remove)


def pytest_sessionstart(session: pytest.Session) -> None:
    """End the run immediately if the remote broker cannot be used."""
    config = session.config
    if not _url(config) or config.option.collectonly or hasattr(config, "workerinput"):
        return
    from sievemq import JMSException

    try:
        _remote(config).check()
    except (JMSException, ValueError) as error:
        raise pytest.UsageError(f"--sievemq-url {_url(config).rpartition('@')[2]}: {error}") from error


def _url(config: pytest.Config) -> str:
    return config.getoption("--sievemq-url") or config.getini("sievemq_url") or ""


# -- the broker -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def sievemq_test_broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """The broker of this run (of each worker, under xdist): embedded, on a free port. Its clock runs."""
    url = _url(request.config)
    if url:
        yield _remote(request.config)  # looks like one as far as it goes, and skips beyond
        return
    with _make() as broker:
        yield broker


@pytest.fixture
def sievemq_broker_factory(request: pytest.FixtureRequest) -> Iterator[BrokerFactory]:
    """Starts further brokers for one test: ``sievemq_broker_factory(policies=…, users=…)``.
    They are stopped after the test. The arguments are those of :class:`sievemq_testing.TestBroker`."""
    if _url(request.config):
        _needs_inside("sievemq_broker_factory")
    made: list[TestBroker] = []

    def make(**options: Unpack[BrokerOptions]) -> TestBroker:
        broker = _make(**options).start()
        made.append(broker)
        watch(request.node, broker)
        return broker

    yield make
    for broker in made:
        broker.stop()


@pytest.fixture
def sievemq_namespace(request: pytest.FixtureRequest, sievemq_test_broker: TestBroker) -> Iterator[TestNamespace]:
    """A namespace that no other test has, with its own queues, topics, journal and faults; dropped after the test."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    # Other runs may use the same broker, where there is a URL.
    run = f"{os.getpid():x}-" if _url(request.config) else ""
    namespace = sievemq_test_broker.namespace(f"test-{run}{worker}-{next(_numbers)}")
    watch(request.node, namespace)
    yield namespace
    drop(request.node, namespace)


@pytest.fixture
def sievemq_url(sievemq_namespace: TestNamespace) -> str:
    """URL of the test's namespace, for the configuration of the application under test."""
    return sievemq_namespace.url


# -- clients ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sievemq_amqp_url(sievemq_namespace: TestNamespace) -> str:
    """Where the AMQP clients of this test connect: ``amqp://host:port?amqp.vhost=%2Fnamespace``, as Qpid JMS takes
    it. Others name the namespace, with its ``/``, as the ``hostname`` of their open: it is one of the test's own.
    """
    return sievemq_namespace.amqp_url


@pytest.fixture
def sievemq_stomp_url(sievemq_namespace: TestNamespace) -> str:
    """Where the STOMP clients of this test connect: ``stomp://host:port/namespace``. The path, with its ``/``, is the
    ``host`` header of CONNECT: it leads to a namespace of the test's own.
    """
    return sievemq_namespace.stomp_url


@pytest.fixture
def sievemq_context(sievemq_url: str) -> Iterator[JMSContext]:
    """A blocking JMSContext in the test's namespace; its connection starts with its first consumer."""
    from sievemq import ConnectionFactory

    with ConnectionFactory(sievemq_url).create_context() as context:
        yield context


@pytest.fixture
def sievemq_aio(sievemq_url: str) -> ContextOpener:
    """Opens asyncio contexts in the test's namespace: ``async with sievemq_aio() as context:``, with the arguments of
    ``create_context``. Not an async fixture, so it works under every runner: pytest-asyncio, anyio, unittest."""
    from sievemq_testing.fixtures import Opener

    return Opener(sievemq_url)


@pytest.fixture
def sievemq_listeners(sievemq_url: str) -> ListenersRunner:
    """Runs an application of listeners in the test's namespace: ``with sievemq_listeners(app):``, or ``async with`` for
    one of ``sievemq.aio``. At the end of the block the application has stopped."""
    from sievemq_testing.fixtures import ListenersRunner

    return ListenersRunner(sievemq_url)


# -- inside -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sievemq_clock(request: pytest.FixtureRequest, sievemq_test_broker: TestBroker) -> Iterator[BrokerClock]:
    """The clock of the run's broker: ``advance(seconds=60)``, ``freeze()``, ``set(datetime)``. After the test it runs
    again and shows the machine's time."""
    if _url(request.config):
        _needs_inside("sievemq_clock")
    yield sievemq_test_broker.clock
    sievemq_test_broker.reset_clock()


@pytest.fixture
def sievemq_faults(request: pytest.FixtureRequest, sievemq_namespace: TestNamespace) -> Iterator[Faults]:
    """Faults of the connections of the test's namespace; none is left after the test."""
    if _url(request.config):
        _needs_inside("sievemq_faults")
    yield sievemq_namespace.faults
    sievemq_namespace.faults.clear()


def _remote(config: pytest.Config) -> Any:
    from sievemq_testing.remote import RemoteBroker

    http_url = config.getoption("--sievemq-http-url") or config.getini("sievemq_http_url") or ""
    return RemoteBroker(_url(config), http_url)


def _make(**options: Unpack[BrokerOptions]) -> TestBroker:
    from sievemq_testing.broker import TestBroker

    return TestBroker(**options)


def _needs_inside(what: str) -> None:
    from sievemq_testing.remote import needs_inside

    needs_inside(what)


# -- the journal of a failing test ------------------------------------------------------------------------------------


def drop(item: pytest.Item, namespace: TestNamespace) -> None:
    from sievemq_testing.broker import CLOSING, left_open

    left = namespace.drop(CLOSING)
    if left:
        item.warn(pytest.PytestWarning(left_open(item.nodeid, left)))


def watch(item: pytest.Item, watched: Any) -> None:
    """Show the journal of a broker or namespace should this test fail."""
    item.stash.setdefault(_seen, []).append(watched)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the test's faults before its fixtures close their contexts, which would wait for paused connections."""
    for one in item.stash.get(_seen, []):
        with suppress(RuntimeError):  # the test has stopped that broker
            if not _url(item.config):
                one.faults.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the journals of the namespaces that the test used to its report. Exceptions of the API are shown at the
    test's own line."""
    with _ending_at_the_call(call.excinfo):
        outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if _url(item.config):
        return
    watched = item.stash.get(_seen, [])
    if not watched and "sievemq_test_broker" in getattr(item, "funcargs", {}):
        watched = [item.funcargs["sievemq_test_broker"]]  # type: ignore[attr-defined]  # it used the broker's own namespace
    trace = item.config.getoption("--sievemq-trace")
    # A passing test's journal is taken when it was called; a failing one's in whichever phase failed.
    if report.failed or (trace and report.when == "call"):
        for one in watched:
            text = one.excerpt(None) if trace else one.excerpt()
            report.sections.append(("SieveMQ journal", text))


@contextmanager
def _ending_at_the_call(raised: pytest.ExceptionInfo[BaseException] | None) -> Iterator[None]:
    """Hide the SDK's frames in tracebacks of exceptions that the API raises. Any other exception there is a defect, and
    is shown whole; --full-trace shows all frames."""
    exceptions = sys.modules.get("sievemq.exceptions")
    hidden: list[dict[str, Any]] = []
    if raised is not None and exceptions is not None and isinstance(raised.value, exceptions.JMSException):
        for entry in raised.traceback:
            names = entry.frame.f_globals
            if names.get("__name__", "").partition(".")[0] in _SDK and "__tracebackhide__" not in names:
                names["__tracebackhide__"] = True
                hidden.append(names)
    try:
        yield
    finally:
        for names in hidden:
            del names["__tracebackhide__"]

"""The pytest plugin in projects of its own: every runner, both options, and nothing where it is not used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.projects import PYTEST

from sievemq_testing import TestBroker

STORY = """
    import pytest
    from sievemq import Queue

    ORDERS = Queue("orders")

    def test_one(sievemq_context, sievemq_namespace):
        sievemq_context.create_producer().send(ORDERS, "x")
        assert sievemq_context.create_consumer(ORDERS).receive_body(str, 60_000) == "x"

    def test_two(sievemq_context, sievemq_namespace):
        assert sievemq_context.create_consumer(ORDERS).receive_no_wait() is None  # nothing of the other test
"""


# pytest-asyncio warns in every project that does not say this.
_ASYNCIO = {
    False: ("-p", "no:asyncio"),
    True: ("-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function"),
}


def run(folder: Path, text: str, *arguments: str, code: int = 0, strict: bool = False, path: Path | None = None) -> str:
    (folder / "test_it.py").write_text(textwrap.dedent(text), encoding="utf-8")
    result = subprocess.run(
        [*PYTEST, "-rs", *_ASYNCIO[strict], *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
        | ({} if path is None else {"PYTHONPATH": str(path)}),
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_fixtures_are_there_without_a_word_of_configuration(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, STORY)


def test_fixtures_have_a_repr_that_says_what_they_are(tmp_path: Path) -> None:
    story = """
        def test_it(sievemq_test_broker, sievemq_namespace, sievemq_aio, sievemq_clock, sievemq_faults):
            url = sievemq_test_broker.url
            assert repr(sievemq_test_broker) == f"<TestBroker {url}>"
            assert repr(sievemq_namespace) == f"<TestNamespace {sievemq_namespace.name!r}>"
            assert repr(sievemq_aio) == f"<sievemq_aio: opens asyncio contexts at {sievemq_namespace.url}>"
            assert repr(sievemq_clock) == "<BrokerClock +0 s from the machine's>"
            assert repr(sievemq_faults) == f"<Faults of {sievemq_namespace.name!r}: none>"
    """
    assert "1 passed" in run(tmp_path, story)


def test_a_pause_that_a_test_forgets_ends_before_its_fixtures_close(tmp_path: Path) -> None:
    story = """
        from sievemq import Queue

        def test_it(sievemq_faults, sievemq_context):  # the context is closed first
            sievemq_faults.pause_connections()

        def test_next(sievemq_faults):
            assert sievemq_faults.drop_connections() == 0
    """
    shown = run(tmp_path, story.replace("from sievemq import Queue", ""), "-rP", "--sievemq-trace")
    assert "2 passed" in shown
    assert "the pause ends" not in shown  # the context did not even have to say goodbye


def test_each_fixture_is_described_and_shadows_no_package(tmp_path: Path) -> None:
    shown = run(tmp_path, "", "--fixtures", "-v")
    for name in (
        "sievemq_test_broker [session scope]", "sievemq_namespace", "sievemq_url", "sievemq_context", "sievemq_aio",
        "sievemq_clock", "sievemq_faults", "sievemq_broker_factory",
    ):  # fmt: skip
        assert f"\n{name} " in shown
    assert "sievemq_testing/plugin.py" in shown
    # A test that imports a package of a fixture's name would lose it.
    ours = set(re.findall(r"^(\w+)(?: \[\w+ scope\])? -- .*sievemq_testing/plugin", shown, re.MULTILINE))
    assert len(ours) > 8
    assert not ours & {"sievemq", "sievemq_broker", "sievemq_core", "sievemq_spark", "sievemq_testing"}
    assert not ours & sys.stdlib_module_names


def test_strict_asyncio(tmp_path: Path) -> None:
    story = """
        import pytest

        @pytest.mark.asyncio
        async def test_it(sievemq_aio, sievemq_clock):
            async with sievemq_aio() as context:
                orders = context.create_queue("orders")
                await context.create_producer().set_delivery_delay(60_000).send(orders, "x")
                await sievemq_clock.advance(seconds=60)
                consumer = await context.create_consumer(orders)
                assert await consumer.receive_body(str, 60_000) == "x"
    """
    assert "1 passed" in run(tmp_path, story, strict=True)


def test_anyio(tmp_path: Path) -> None:
    story = """
        import anyio
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        async def test_it(sievemq_aio, sievemq_namespace):
            async with sievemq_aio() as context:
                orders = context.create_queue("orders")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(context.create_producer().send, orders, "x")
                queue = sievemq_namespace.queue("orders")
                await anyio.to_thread.run_sync(lambda: queue.assert_received(count=1, within=60))
                assert await (await context.create_consumer(orders)).receive_body(str, 60_000) == "x"
    """
    assert "1 passed" in run(tmp_path, story)


def test_unittest(tmp_path: Path) -> None:
    story = """
        import unittest
        from sievemq.aio import ConnectionFactory
        from sievemq_testing import BrokerTestCase

        class Blocking(BrokerTestCase):
            def test_one(self):
                context = self.create_context()
                context.create_producer().send(context.create_queue("q"), "x")
                self.assertEqual(self.namespace.queue("q").depth, 1)

            def test_two(self):
                self.assertEqual(self.namespace.queue("q").depth, 0)

        class Asyncio(BrokerTestCase, unittest.IsolatedAsyncioTestCase):
            async def test_it(self):
                async with await ConnectionFactory(self.url).create_context() as context:
                    await context.create_producer().send(context.create_queue("q"), "x")
                self.namespace.queue("q").assert_received(count=1)

        class Failing(BrokerTestCase):
            @unittest.skipUnless(__name__ == "__main__", "only for the journal")
            def test_it(self):
                context = self.create_context()
                context.create_producer().send(context.create_queue("q"), "x")
                self.fail("on purpose")

        if __name__ == "__main__":
            unittest.main()
    """
    assert "3 passed, 1 skipped" in run(tmp_path, story)
    shown = run(tmp_path, story.replace('__name__ == "__main__", "', 'True, "'), code=1)
    assert "- SieveMQ journal -" in shown
    assert "no consumer is open on queue:q" in shown
    (tmp_path / "test_it.py").write_text(textwrap.dedent(story))
    by_itself = subprocess.run(
        [sys.executable, "-W", "error", "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "FAILED (failures=1)" in by_itself.stderr
    assert "SieveMQ journal of __main__.Failing.test_it" in by_itself.stderr
    assert "no consumer is open on queue:q" in by_itself.stderr


def test_workers_of_xdist(tmp_path: Path) -> None:
    story = """
        import pytest
        from sievemq import Queue

        @pytest.mark.parametrize("number", range(30))
        def test_it(number, sievemq_context, sievemq_namespace):
            sievemq_context.create_producer().send(Queue("orders"), str(number))
            assert sievemq_namespace.queue("orders").depth == 1
    """
    assert "30 passed" in run(tmp_path, story, "-n", "2")


def test_connections_that_a_test_leaves_open_are_named_and_stay_away(tmp_path: Path) -> None:
    story = """
        from sievemq import ConnectionFactory, Queue

        kept = []

        def test_leaks(sievemq_url):
            context = ConnectionFactory(sievemq_url, application="leaky").create_context()
            context.create_consumer(Queue("orders"))
            kept.append(context)

        def test_the_next_one(sievemq_context, sievemq_test_broker, sievemq_namespace):
            sievemq_context.create_producer().send(Queue("orders"), "x")
            assert sievemq_test_broker.namespaces == [sievemq_namespace.name]
            kept.pop().close()
    """
    shown = run(tmp_path, story, "-W", "default")
    assert "2 passed, 1 warning" in shown
    assert "PytestWarning: test_it.py::test_leaks has left 1 SieveMQ connection open" in shown
    assert re.search(r"connection \S+ of sievemq-python/\S+ leaky, with consumers of queue:orders", shown)
    assert "2 passed, 1 error" in run(tmp_path, story, code=1)  # where warnings are errors


def test_unittest_names_connections_left_open(tmp_path: Path) -> None:
    story = """
        import unittest
        from sievemq import ConnectionFactory
        from sievemq_testing import BrokerTestCase

        class Leaky(BrokerTestCase):
            def test_it(self):
                self.kept = ConnectionFactory(self.url).create_context()

        if __name__ == "__main__":
            unittest.main()
    """
    shown = run(tmp_path, story, "-W", "default")
    assert "test_it.py::Leaky::test_it has left 1 SieveMQ connection open" in shown
    by_itself = subprocess.run(
        [sys.executable, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert "ResourceWarning: __main__.Leaky.test_it has left 1 SieveMQ connection open" in by_itself.stderr


FAILING = """
    from sievemq import Queue

    def test_fails(sievemq_context):
        for _ in range(40):
            sievemq_context.create_producer().set_property("region", "US").send(Queue("orders"), "an order")
        assert sievemq_context.create_consumer(Queue("orders"), "region = 'EU'").receive_no_wait() is not None

    def test_passes(sievemq_context):
        sievemq_context.create_producer().send(Queue("orders"), "fine")
"""


def test_a_failing_test_shows_the_end_of_its_journal(tmp_path: Path) -> None:
    shown = run(tmp_path, FAILING, "-rP", code=1)
    assert "- SieveMQ journal -" in shown
    assert "82 events, the last 40 of them (--sievemq-trace shows all)" in shown
    assert "wants \"region = 'EU'\": region = 'EU' is FALSE (region is 'US')" in shown
    assert "'fine'" not in shown


def test_trace_shows_all_of_it_and_of_passing_tests_too(tmp_path: Path) -> None:
    shown = run(tmp_path, FAILING, "-rP", "--sievemq-trace", code=1)
    assert "82 events\n" in shown
    assert shown.count(" sent ") == 41
    assert "'fine'" in shown


def test_a_test_that_fails_with_a_broker_of_its_own_shows_its_journal(tmp_path: Path) -> None:
    story = """
        from sievemq import ConnectionFactory, Queue

        def test_fails(sievemq_broker_factory):
            broker = sievemq_broker_factory(users={"me": "secret"}, policies={"orders": {"max_attempts": 1}})
            with ConnectionFactory(broker.url, user_name="me", password="secret").create_context() as context:
                context.create_producer().send(Queue("orders"), "x")
            broker.queue("orders").assert_consumed()
    """
    shown = run(tmp_path, story, code=1)
    assert "at least 1 message should have been consumed; none were" in shown
    assert "namespace 'default': 4 events" in shown
    assert "wait_for" not in shown  # the kit's own frames are hidden


def test_a_test_that_fails_with_a_stopped_broker_shows_its_journal(tmp_path: Path) -> None:
    story = """
        from sievemq import ConnectionFactory, Queue

        def test_fails(sievemq_broker_factory):
            broker = sievemq_broker_factory()
            with ConnectionFactory(broker.url).create_context() as context:
                context.create_producer().send(Queue("orders"), "x")
            broker.kill()
            assert not "a broker"
    """
    shown = run(tmp_path, story, code=1)
    assert "INTERNALERROR" not in shown
    assert "namespace 'default': 4 events" in shown


def test_a_test_that_uses_the_brokers_own_namespace_shows_that_journal(tmp_path: Path) -> None:
    story = """
        from sievemq import ConnectionFactory, Queue

        def test_fails(sievemq_test_broker):
            with ConnectionFactory(sievemq_test_broker.url).create_context() as context:
                context.create_producer().send(Queue("orders"), "x")
            assert not sievemq_test_broker.queue("orders").depth
    """
    assert "namespace 'default': 4 events" in run(tmp_path, story, code=1)


REMOTE = (
    STORY
    + """
    def test_queues_can_be_seen(sievemq_context, sievemq_test_broker, sievemq_namespace):
        sievemq_context.create_producer().set_property("n", 1).send(ORDERS, "x")
        assert sievemq_namespace.queue("orders").depth == 1
        assert [m.get_text() for m in sievemq_namespace.queue("orders").messages("n = 1")] == ["x"]
        assert sievemq_test_broker.url.startswith("sievemq://")

    def test_clock(sievemq_clock):
        raise AssertionError

    def test_faults(sievemq_faults):
        raise AssertionError

    def test_factory(sievemq_broker_factory):
        raise AssertionError

    def test_journal(sievemq_namespace):
        sievemq_namespace.assert_nothing_lost()
        raise AssertionError

    def test_broker(sievemq_test_broker):
        sievemq_test_broker.wait_until_idle()
        raise AssertionError

    def test_received(sievemq_context, sievemq_namespace):
        sievemq_context.create_producer().set_property("n", 1).send(ORDERS, "x")
        sievemq_context.create_producer().set_property("n", 2).send(ORDERS, "y")
        orders = sievemq_namespace.queue("orders")
        assert [m.get_text() for m in orders.assert_received(count=2, within=60)] == ["x", "y"]
        with sievemq_context.create_consumer(ORDERS) as consumer:
            assert consumer.receive_body(str, 60_000) == "x"
        (consumed,) = orders.assert_consumed("n = 1", count=1, within=60)
        assert consumed.get_text() == "x"
        assert len(orders.assert_received("n > 0", count=2)) == 2
        with pytest.raises(AssertionError, match="1 message should have been consumed that .*; none were"):
            orders.assert_consumed("n = 2", count=1)
        with pytest.raises(AssertionError, match="queue:orders is not empty"):
            orders.assert_empty()
        orders.purge()
        orders.assert_empty(within=60)
        assert (orders.depth, orders.in_flight, orders.acknowledged, orders.consumers) == (0, 0, 1, [])

    def test_what_went_through_before_is_counted(sievemq_context, sievemq_namespace):
        sievemq_context.create_producer().send(ORDERS, "x")
        assert sievemq_context.create_consumer(ORDERS).receive_body(str, 60_000) == "x"
        sievemq_context.close()
        late = sievemq_namespace.queue("orders")
        late.assert_received(count=1)
        late.assert_consumed(count=1)
        with pytest.raises(AssertionError, match="2 messages should have been received; 1 was"):
            late.assert_received(count=2)
        (message,) = late.assert_received(count=1)
        raise AssertionError

    def test_waits(sievemq_context, sievemq_namespace, sievemq_url):
        import threading
        from sievemq import ConnectionFactory

        def work():
            with ConnectionFactory(sievemq_url).create_context() as context:
                assert context.create_consumer(ORDERS).receive_body(str, 60_000) == "x"

        orders = sievemq_namespace.queue("orders")
        worker = threading.Thread(target=work)
        worker.start()
        orders.assert_awaited(within=60)
        sievemq_context.create_producer().send(ORDERS, "x")
        orders.assert_consumed(count=1, within=60)
        worker.join()
        orders.assert_empty(within=60)

    def test_dead_letters(sievemq_url, sievemq_namespace):
        from sievemq import ConnectionFactory, JMSContext
        orders = sievemq_namespace.queue("orders")
        with ConnectionFactory(sievemq_url).create_context(JMSContext.SESSION_TRANSACTED) as context:
            context.create_producer().send(ORDERS, "poison")
            context.commit()
            consumer = context.create_consumer(ORDERS)
            for _ in range(2):
                consumer.receive(60_000)
                context.rollback()
        (letter,) = orders.assert_dead_letters(count=1, reason="attempts", within=60)
        assert letter.get_text() == "poison"
        with pytest.raises(AssertionError, match="there should be at least 1 dead letter that match"):
            orders.assert_dead_letters("a = 1")

    def test_topic(sievemq_context, sievemq_namespace):
        from sievemq import Topic
        prices = sievemq_namespace.topic("prices")
        with pytest.raises(AssertionError, match="1 subscription should have an open consumer; none has"):
            prices.assert_awaited()
        sievemq_context.create_consumer(Topic("prices"))
        prices.assert_awaited(within=60)
        sievemq_context.create_producer().set_property("n", 1).send(Topic("prices"), "9")
        (price,) = prices.assert_received("n = 1", count=1, within=60)
        assert price.get_text() == "9"
    """
)


def test_a_remote_broker_supports_clients_and_the_management_api(tmp_path: Path) -> None:
    with TestBroker(http=True, policies={"orders": {"max_attempts": 2}}) as broker:
        port = f"--sievemq-http-url={broker.http_url}"
        shown = run(tmp_path, REMOTE, f"--sievemq-url={broker.url}", port)
        assert "7 passed, 6 skipped" in shown
        assert "sievemq_clock needs a broker in the test's process; --sievemq-url names one elsewhere" in shown
        assert "queue:orders: 1 message went through before the test made this view" in shown
        assert broker.namespaces == []  # each test's is deleted
        (tmp_path / "pytest.ini").write_text(
            f"[pytest]\nsievemq_url = {broker.url}?prefetch=10\nsievemq_http_url = {broker.http_url}\n"
        )
        assert "7 passed, 6 skipped" in run(tmp_path, REMOTE, "-n", "1")


def test_a_broker_elsewhere_without_its_management_port_is_browsed(tmp_path: Path) -> None:
    with TestBroker() as broker, TestBroker(http=True) as other:
        port = f"--sievemq-http-url={other.http_url}"
        shown = run(tmp_path, REMOTE, f"--sievemq-url={broker.url}", port, "-k", "not waits")
        assert "3 passed, 9 skipped" in shown
        reason = f"queue queue:orders needs the management API: {other.http_url} is the management port of another"
        assert reason in shown


def test_a_broker_elsewhere_that_does_not_answer_ends_the_run_at_once(tmp_path: Path) -> None:
    with TestBroker() as broker:
        url = broker.url
    reason = f"ERROR: --sievemq-url {url}: no broker could be reached"
    assert reason in run(tmp_path, REMOTE, f"--sievemq-url={url}", code=4)
    assert reason in run(tmp_path, REMOTE, f"--sievemq-url={url}", "-n", "1", code=4)
    with TestBroker(users={"me": "secret"}) as broker:
        shown = run(tmp_path, REMOTE, f"--sievemq-url={broker.url.replace('//', '//me:wrong@')}", code=4)
        assert f"ERROR: --sievemq-url {broker.url.partition('//')[2]}: " in shown
        assert "wrong@" not in shown
        assert "tests collected" in run(tmp_path, REMOTE, f"--sievemq-url={broker.url}", "--collect-only", "-q")


def test_pytest_rewrites_no_module_of_the_broker_or_the_client(tmp_path: Path) -> None:
    # As an installed wheel looks to pytest: it rewrites what a distribution with a plugin lists in its RECORD.
    about = tmp_path / "installed" / "sievemq_installed-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sievemq-installed\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[pytest11]\nsievemq = sievemq_testing.plugin\n")
    packages = ("sievemq", "sievemq_broker", "sievemq_core", "sievemq_testing")
    (about / "RECORD").write_text("".join(f"{package}/__init__.py,,\n" for package in packages))
    (tmp_path / "conftest.py").write_text("import sievemq\n")
    story = """
        import sys

        def test_it(sievemq_context):
            hook = __spec__.loader  # pytest's: this module is rewritten
            ours = [name for name in sys.modules if name.split("_")[0].split(".")[0] == "sievemq"]
            assert len(ours) > 100
            # What pytest imports before the plugin can act.
            rewritten = {name for name in ours if sys.modules[name].__spec__.loader is hook}
            assert rewritten == {"sievemq_testing", "sievemq_testing.imports", "sievemq_testing.plugin"}, len(rewritten)
    """
    assert "1 passed" in run(tmp_path, story, path=about.parent)


def test_loading_the_plugin_is_cheap(tmp_path: Path) -> None:
    program = (
        "import sys, sievemq_testing.plugin, sievemq_testing\n"
        "heavy = {'sievemq', 'sievemq_broker', 'sievemq_core', 'msgpack', 'asyncio', 'socket', 'typer'}\n"
        "before = set(sys.modules)\n"
        "print(sorted(m for m in before if m in heavy and m not in OTHERS))\n"
    )
    alone = "import sys, pytest\nOTHERS = set(sys.modules)\n" + program
    result = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=True, timeout=180)
    assert result.stdout == "[]\n"


def test_the_sdk_alone_is_enough(tmp_path: Path) -> None:
    # The extra `test` adds pytest, and what makes a broker faster and its log nicer; the fixtures need none of it.
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('uvloop', 'typer', 'rich', 'starlette', 'uvicorn'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    assert "2 passed" in run(tmp_path, STORY)


REFUSED = """
    import pytest
    from sievemq import ConnectionFactory, JMSRuntimeException, Queue

    def test_refused(sievemq_context, sievemq_faults):
        sievemq_faults.refuse("send")
        sievemq_context.create_producer().send(Queue("orders"), "x")  # this line

    @pytest.mark.asyncio
    async def test_asyncio(sievemq_aio, sievemq_faults):
        sievemq_faults.refuse("send")
        async with sievemq_aio() as context:
            await context.create_producer().send(Queue("orders"), "x")  # this line

    def test_a_defect(sievemq_context, monkeypatch):
        producer = sievemq_context.create_producer()
        producer._engine = None
        producer.send(Queue("orders"), "x")

    def test_a_cause(sievemq_context):
        ConnectionFactory("sievemq://127.0.0.1:1?reconnect=0").create_context()
"""


@pytest.mark.parametrize("name", ["refused", "asyncio"])
def test_exceptions_of_the_api_are_shown_at_the_line_of_the_test(tmp_path: Path, name: str) -> None:
    shown = run(tmp_path, REFUSED, "-k", name, "--sievemq-trace", code=1, strict=True)
    assert re.search(r">\s+.*context\.create_producer\(\)\.send\(.*# this line\n(\s+\^+\n)?E .*RuntimeException", shown)
    assert "def send(" not in shown
    assert "def send(" in run(tmp_path, REFUSED, "-k", name, "--full-trace", code=1, strict=True)


def test_a_defect_of_the_sdk_is_shown_whole(tmp_path: Path) -> None:
    assert "jms_producer.py" in run(tmp_path, REFUSED, "-k", "defect", code=1, strict=True)


def test_a_cause_is_shown(tmp_path: Path) -> None:
    shown = run(tmp_path, REFUSED, "-k", "cause", code=1, strict=True)
    assert "no broker could be reached" in shown
    assert "ConnectionRefusedError" in shown

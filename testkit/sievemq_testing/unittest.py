"""For tests written with unittest: a broker per class, a namespace per test, the journal of failing tests on stderr."""

from __future__ import annotations

import itertools
import sys
import unittest
import warnings
from functools import partial
from typing import Any, ClassVar, Final, overload

from sievemq import ConnectionFactory, JMSContext
from sievemq.session_mode import SessionModeLike
from sievemq_testing.broker import CLOSING, BrokerOptions, TestBroker, TestNamespace, left_open

_NUMBERS: Final = itertools.count(1)


class BrokerTestCase(unittest.TestCase):
    """A TestCase with a broker. Combine it with ``unittest.IsolatedAsyncioTestCase`` for asyncio.

    Attributes:
        broker_options: what the class's :class:`TestBroker` is made with.
        broker: of the class.
        namespace: of the test; dropped after it.
        url: leads to that namespace.
    """

    broker_options: ClassVar[BrokerOptions] = {}
    broker: ClassVar[TestBroker]
    namespace: TestNamespace
    url: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.broker = TestBroker(**cls.broker_options).start()
        cls.addClassCleanup(cls.broker.stop)

    def run(self, result: Any = None) -> unittest.TestResult | None:
        """Run the test in its own namespace; a method of unittest."""
        self.namespace = self.broker.namespace(f"test-{next(_NUMBERS)}")
        self.url = self.namespace.url
        if isinstance(result, unittest.TestResult):
            before = len(result.failures) + len(result.errors)
            try:
                return super().run(result)
            finally:
                if len(result.failures) + len(result.errors) > before:
                    sys.stderr.write(f"\nSieveMQ journal of {self.id()}\n{self.namespace.excerpt()}\n")
                left = self.namespace.drop(CLOSING)
                if left:
                    warnings.warn(left_open(self.id(), left), ResourceWarning, stacklevel=2)
        if result is not None:  # pytest passes its own item, which reports the test later
            from sievemq_testing.plugin import drop, watch

            watch(result, self.namespace)
            result.addfinalizer(partial(drop, result, self.namespace))
        return super().run(result)

    @overload
    def create_context(self, session_mode: SessionModeLike, /) -> JMSContext: ...

    @overload
    def create_context(self, *, session_mode: SessionModeLike | None = None) -> JMSContext: ...

    @overload
    def create_context(
        self, user_name: str | None, password: str | None, session_mode: SessionModeLike | None = None
    ) -> JMSContext: ...

    def create_context(self, *arguments: Any, **keywords: Any) -> JMSContext:
        """A context in the test's namespace, closed after the test."""
        context = ConnectionFactory(self.url).create_context(*arguments, **keywords)
        self.addCleanup(context.close)
        return context

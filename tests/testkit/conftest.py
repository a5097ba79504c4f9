"""The plugin's fixtures under the names that most tests of the kit say."""

from __future__ import annotations

import pytest

from sievemq import JMSContext
from sievemq_testing import TestNamespace


@pytest.fixture
def namespace(sievemq_namespace: TestNamespace) -> TestNamespace:
    """The test's own."""
    return sievemq_namespace


@pytest.fixture
def context(sievemq_context: JMSContext) -> JMSContext:
    """A context in it."""
    return sievemq_context

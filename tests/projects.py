"""How a test runs pytest in a project of its own, as a user would."""

from __future__ import annotations

import sys

#: Without the plugins that only our own tests use: they take four fifths of the time of a small run.
PYTEST = (
    sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", "-p", "no:schemathesis",
    "-p", "no:hypothesispytest", "-p", "no:timeout",
)  # fmt: skip

#: For a run of pytester's in this process, which has all plugins.
QUIET = ("-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function")

"""One target under libFuzzer, with the project's code instrumented.

python -m tests.hostile.fuzz.libfuzzer TARGET [OPTIONS OF LIBFUZZER]
"""

from __future__ import annotations

import sys

import atheris

if __name__ == "__main__":
    from tests.hostile.fuzz.targets import opened  # knows the names only

    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["sievemq", "sievemq_core", "sievemq_broker"]), opened(name) as target:
        atheris.Setup([sys.argv[0], *options], target.run)
        atheris.Fuzz()

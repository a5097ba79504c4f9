"""Installing a release into empty environments, with pip and with uv, and using it there."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from release.build import run, uv

ROOT = Path(__file__).resolve().parents[1]
SMOKE = ROOT / "release" / "smoke.py"

#: What a reader of the README waits for: seconds of `pip install sievemq`, milliseconds of `import sievemq`. Both are
#: judged by processor time, which does not depend on what else runs.
PIP_SECONDS = 3.0
IMPORT_MS = 60.0

_EVERYTHING = ("sievemq", "sievemq_broker", "sievemq_core", "sievemq_spark", "sievemq_testing")
_IMPORT = "import time; t = time.process_time(); import sievemq; print(1000 * (time.process_time() - t))"


class Promise(NamedTuple):
    """What an extra is for.

    Attributes:
        whole: packages whose modules can all be imported then,
        but: those aside that need one of these packages, which another extra installs.
        commands: what has to work; the first word is a program of the environment.
    """

    whole: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()


#: By extra; "" is the base install.
PROMISES = {
    "": Promise(("sievemq_core",)),
    "all": Promise(_EVERYTHING, commands=(("sievemq", "--help"),)),
    "broker": Promise(
        ("sievemq", "sievemq_broker"),
        ("opentelemetry", "psycopg"),
        (("sievemq", "config", "show"), ("sievemq", "broker", "--help")),
    ),
    "cli": Promise(("sievemq",), ("opentelemetry",), (("sievemq", "version"), ("sievemq", "send", "--help"))),
    "container": Promise(commands=(("python", "-c", "import sievemq_testing.container"),)),
    "demo": Promise(commands=(("sievemq", "demo", "flights", "--limit", "2000"),)),
    "dev": Promise(("sievemq", "sievemq_broker", "sievemq_testing")),
    "fuzz": Promise(),
    "otel": Promise(("sievemq",), ("typer", "rich", "tomli_w")),
    "otlp": Promise(commands=(("python", "-c", "import sievemq_broker.server.otlp"),)),
    "postgres": Promise(commands=(("python", "-c", "import sievemq_broker.store.postgres"),)),
    "site": Promise(commands=(("zensical", "--version"),)),
    "spark": Promise(("sievemq_spark",), commands=(("sievemq", "pipeline", "--help"),)),
    "test": Promise(("sievemq_testing",), ("typer", "rich", "testcontainers", "msgspec", "starlette")),
}


class Environment:
    """An empty virtual environment.

    Args:
        folder: where it is made.
        python: the interpreter that it is made with.
        installer: ``pip``, the one that comes with that Python, or ``uv``.
    """

    def __init__(self, folder: Path, python: Path, installer: str) -> None:
        self.folder = folder
        self._installer = installer
        if installer == "uv":
            run([uv(), "venv", "--quiet", "--no-python-downloads", "--python", str(python), str(folder)])
        else:
            run([str(python), "-m", "venv", str(folder)])

    def program(self, name: str) -> str:
        """The path of a program in it."""
        return str(self.folder / ("Scripts" if os.name == "nt" else "bin") / name)

    def install(self, requirements: Sequence[str]) -> tuple[float, float]:
        """Install, and return the seconds that it took, and those of the processor."""
        if self._installer == "uv":
            command = [uv(), "pip", "install", "--quiet", "--python", self.program("python")]
        else:
            command = [self.program("python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        begun, worked = time.monotonic(), _worked()
        run([*command, *requirements])
        return time.monotonic() - begun, _worked() - worked

    def smoke(self, promise: Promise, compiled: bool) -> str:
        """Run release/smoke.py and the commands of a promise; returns what the first prints."""
        options = [f"--whole={package}" for package in promise.whole] + [f"--but={package}" for package in promise.but]
        if compiled:
            options.append("--compiled")
        printed = run([self.program("python"), str(SMOKE), *options], self.folder)
        for name, *arguments in promise.commands:
            run([self.program(name), *arguments], self.folder)
        return printed.strip()

    def import_ms(self) -> float:
        """Milliseconds of the processor for `import sievemq`, bytecode on disk: the median of eleven."""
        times = [float(run([self.program("python"), "-c", _IMPORT], self.folder)) for _ in range(12)]
        return statistics.median(times[1:])

    def documents(self, paths: Sequence[str]) -> str:
        """Run tests of documents, which run the documents' programs, with what is installed here. Needs the extra dev.

        Returns:
            The last line of pytest's report.
        """
        command = [self.program("python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths]
        return run(command, ROOT).strip().splitlines()[-1]


def _worked() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def requirement(file: Path, extra: str) -> str:
    """What pip and uv install from a file of the release."""
    return f"sievemq[{extra}] @ {file.resolve().as_uri()}" if extra else str(file)

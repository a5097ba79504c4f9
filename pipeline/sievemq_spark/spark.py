"""A SparkSession as the pipeline needs it, and clear words where Spark cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sievemq_spark.errors import MissingSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["require_spark", "spark_session"]

JAVA = 17
"""The oldest Java that PySpark 4.3 runs on."""


def require_spark() -> None:
    """Raise unless PySpark and a Java that it runs on are there.

    Raises:
        MissingSparkError: the text says what to install.
    """
    try:
        import pyarrow as pa  # noqa: F401
        import pyspark
    except ModuleNotFoundError as error:
        raise MissingSparkError(f"{error.name} is not installed: pip install 'sievemq[spark]'") from error
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2] if part.isdigit())
    if version < (4, 3):
        raise MissingSparkError(f"PySpark {pyspark.__version__} is too old: pip install 'sievemq[spark]' brings 4.3")
    if shutil.which(_java()) is None:
        raise MissingSparkError(
            f"Spark needs Java {JAVA} or newer and there is no {_java()!r}: install one "
            f"(Debian: apt-get install openjdk-17-jre-headless), or let JAVA_HOME name it"
        )
    found = _java_version()
    if found is not None and found < JAVA:
        raise MissingSparkError(f"Spark needs Java {JAVA} or newer; {_java()!r} is {found}. JAVA_HOME can name another")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"  # noqa: PTH118  # shutil.which wants text


def _java_version() -> int | None:
    shown = subprocess.run([_java(), "-version"], capture_output=True, text=True, check=False, timeout=30).stderr  # noqa: S603
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
        master: ``local[*]``, ``local[2]``, ``spark://host:7077``, …; a session that runs already keeps its own.
        app: its name.
        settings: Spark settings on top.

    Raises:
        MissingSparkError: PySpark or Java are missing or too old.
    """
    require_spark()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app).config("spark.sql.session.timeZone", "UTC")
    # arithmetic 100 deep, the most that a selector may be, is resolved level by level
    builder = builder.config("spark.sql.analyzer.maxIterations", "1000")
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
    return builder.getOrCreate()

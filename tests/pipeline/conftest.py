"""One SparkSession for all tests of the pipeline; without PySpark or Java those marked `spark` are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from sievemq_spark.errors import MissingSparkError
from sievemq_spark.spark import require_spark, spark_session

#: For the Java machines of the tests, those of commands and examples too. None runs long enough to earn the time that
#: the optimizing compiler takes. Without it Java sets 48 MB aside for compiled code, which Spark fills: then Java
#: interprets, and looks for code to drop. It also collects garbage each time that the classes have grown.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=512m"

#: Most queries run once, over a few rows: Spark evaluates their expressions in less time than it takes to compile them.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
#: Spark's defaults.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("spark")]
    if not marked:
        return
    try:
        require_spark()
    except MissingSparkError as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture(scope="session", autouse=True)
def short_lived_java() -> None:
    """Also for what a test starts in a process of its own."""
    os.environ["SPARK_SUBMIT_OPTS"] = JAVA


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "local[2]",
        settings={
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.warehouse.dir": folder,
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "2g",
            # of a Spark Connect server, which test_connect.py starts
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": 0,
            "spark.hadoop.fs.s3a.endpoint": "http://h:9000",
            "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
            "spark.hadoop.fs.s3a.access.key": "me",
            "spark.hadoop.fs.s3a.secret.key": "secret",
            "spark.buffer.pageSize": "1m",  # else each task that sorts or groups clears 64 MB
            **INTERPRETED,
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def compiled_to_java(spark: Any) -> Iterator[None]:
    """As in production: Spark makes Java code of every query."""
    for name, value in COMPILED.items():
        spark.conf.set(name, value)
    yield
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)

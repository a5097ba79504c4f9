"""One SparkSession for all tests of the pipeline; without PySpark or Java those marked `spark` are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sievemq_spark.errors import MissingSparkError
from sievemq_spark.spark import SLOW_WORKER, require_spark, spark_session

#: Spark waits ten seconds for a Python process, and no setting makes that longer: a busy machine is no failure. The
#: second is what our commands say of it.
TOO_BUSY = {"reruns": 5, "only_rerun": [SLOW_WORKER, "Spark waits ten seconds for a Python process"]}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("spark")]
    if not marked:
        return
    for item in marked:
        item.add_marker(pytest.mark.flaky(**TOO_BUSY))
    try:
        require_spark()
    except MissingSparkError as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=str(error)))


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
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()

"""The SparkSession that :func:`sievemq_spark.spark_session` makes."""

from __future__ import annotations

import os
from typing import Any

import pytest


@pytest.mark.spark
def test_python_workers_import_the_installed_pyspark(spark: Any) -> None:
    """Not Spark's archive of it, for which Python keeps no bytecode: a busy machine starts a worker in time."""
    import pyspark
    from pyspark.sql.datasource import DataSource

    class Imported(DataSource):
        @classmethod
        def name(cls) -> str:
            return "imported"

        def schema(self) -> str:
            import pyspark

            return f"`{pyspark.__file__}` STRING"

    spark.dataSource.register(Imported)
    assert spark.read.format("imported").load().columns == [pyspark.__file__]
    (of_a_task,) = spark.range(1).rdd.map(lambda _: __import__("pyspark").__file__).collect()
    assert of_a_task == pyspark.__file__
    assert "SPARK_HOME" not in os.environ

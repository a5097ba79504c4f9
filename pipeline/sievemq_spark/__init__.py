"""SieveMQ's data pipeline on Spark: the broker's selectors as Columns, messages as rows, jobs over them.

>>> from sievemq_spark import where_sql
>>> where_sql("paid")
"properties['paid'].b"
"""

from sievemq_spark.drain import drain
from sievemq_spark.errors import DataLossError, MissingSparkError, PipelineError
from sievemq_spark.selector_column import selector_column, where, where_sql
from sievemq_spark.spark import spark_session

__all__ = [
    "DataLossError",
    "MissingSparkError",
    "PipelineError",
    "drain",
    "selector_column",
    "spark_session",
    "where",
    "where_sql",
]

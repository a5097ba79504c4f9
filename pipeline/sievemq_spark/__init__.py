"""SieveMQ's data pipeline on Spark: the broker's selectors as Columns, messages as rows, jobs over them.

>>> from sievemq_spark import where_sql
>>> where_sql("paid")
"properties['paid'].b"

Where things are:

- the data source: source, options, reader, writer, outgoing, stream_reader, stream_writer, tap_reader, offsets
- a message as a row: schema, columns, packed_maps, property_columns, tap_rows, bodies, times
- a selector as a Column: selector_column, selector_sql, selector_values
- the archive, and what keeps it small: archive, misfits, drain, compaction, replacement, retention
- its files: files, file_systems, hadoop_files, arrow_files
- questions to it: traffic, backtest, profile, outcomes, deadletters, report
- back to a broker: replay, routes
- the command, and running it: cli, progress, spark, shards, links, errors, failures
"""

from sievemq_spark.drain import drain
from sievemq_spark.errors import DataLossError, MissingSparkError, PipelineError
from sievemq_spark.offsets import lag
from sievemq_spark.selector_column import selector_column, where, where_sql
from sievemq_spark.spark import spark_session

__all__ = [
    "DataLossError",
    "MissingSparkError",
    "PipelineError",
    "drain",
    "lag",
    "selector_column",
    "spark_session",
    "where",
    "where_sql",
]

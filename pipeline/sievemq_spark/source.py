"""``format("sievemq")``: the data source.

Spark imports this in three or four Python processes for each read, and in every program that uses any format. Readers
and writers, and with them Arrow and the client, are imported where one is made.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sievemq_spark.errors import PipelineError
from sievemq_spark.options import ReadOptions, WriteOptions
from sievemq_spark.schema import ddl


class SieveMQDataSource(DataSource):
    """Messages as rows and rows as messages; options in options.py, columns in schema.py."""

    @classmethod
    def name(cls) -> str:
        return "sievemq"

    def schema(self) -> str:
        """Called by ``load()``, so that a wrong option or selector raises there.

        Raises:
            PipelineError, InvalidSelectorException, InvalidURLException: see :meth:`ReadOptions.read`.
        """
        return ddl(columns=ReadOptions.read(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader."""
        options = ReadOptions.read(self.options)
        _own_schema(schema, options)
        if options.mode == "browse":
            from sievemq_spark.reader import BrowseReader

            return BrowseReader(options, schema)
        from sievemq_spark.tap_reader import TapReader

        return TapReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader for ``readStream``."""
        options = ReadOptions.read(self.options)
        _own_schema(schema, options)
        if options.mode == "browse":
            raise PipelineError(
                "a stream reads through taps: give the option 'tap', a name for the cursors that only this query "
                "reads; mode 'browse' is for batches"
            )
        from sievemq_spark.stream_reader import TapStreamReader

        return TapStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise PipelineError("messages can only be added: write with .mode('append')")
        from sievemq_spark.writer import MessageWriter

        return MessageWriter(WriteOptions.read(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer for ``writeStream``, in any output mode: the rows of a batch are sent."""
        from sievemq_spark.stream_writer import MessageStreamWriter

        return MessageStreamWriter(WriteOptions.read(self.options), schema)


def _own_schema(schema: StructType, options: ReadOptions) -> None:
    given = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    if given != list(options.schema.items()):
        raise PipelineError("a schema cannot be given: leave .schema(…) out and name properties in 'columns'")

"""Files as the driver's JVM reaches them: the Hadoop file system of a path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sievemq_spark.errors import PipelineError
from sievemq_spark.failures import explain_failure
from sievemq_spark.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles(Files):
    """Files wherever Spark can write.

    Args:
        spark: the running session, whose Hadoop settings count.
        root: the folder, as Spark takes it: a local path, ``hdfs://…``, ``s3a://…``.

    Raises:
        PipelineError: Spark has no such file system, or cannot reach it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        jsc: Any = spark._jsc
        session: Any = spark._jsparkSession
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._settings = jsc.hadoopConfiguration()
        try:
            self._fs = self._path(root).getFileSystem(self._settings)
            self._fs.exists(self._path(root))
        except Exception as error:
            raise PipelineError(f"{root} cannot be reached: {explain_failure(error)}") from error
        parquet = jvm.org.apache.spark.sql.execution.datasources.parquet
        self._converter = parquet.ParquetToSparkSchemaConverter(session.sessionState().conf())
        self.root = str(self._fs.makeQualified(self._path(root)).toString())

    def exists(self, name: str = "") -> bool:
        return bool(self._fs.exists(self._path(self.at(name))))

    def create(self, name: str, data: bytes) -> None:
        stream = self._fs.create(self._path(self.at(name)), True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def read(self, name: str) -> str:
        stream = self._fs.open(self._path(self.at(name)))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, folder: str) -> list[str]:
        if not self.exists(folder):
            return []
        return sorted(str(each.getPath().getName()) for each in self._fs.listStatus(self._path(self.at(folder))))

    def delete(self, name: str) -> None:
        self._fs.delete(self._path(self.at(name)), True)

    def rename(self, name: str, to: str) -> None:
        if not self._fs.rename(self._path(self.at(name)), self._path(self.at(to))):
            raise OSError(f"{self.at(name)} cannot be renamed to {self.at(to)}")

    def parquet_schema(self, name: str) -> str:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,import-not-found]

        hadoop = self._jvm.org.apache.parquet.hadoop
        try:
            source = hadoop.util.HadoopInputFile.fromPath(self._path(self.at(name)), self._settings)
            reader = hadoop.ParquetFileReader.open(source)
            try:
                return str(self._converter.convert(reader.getFooter().getFileMetaData().getSchema()).json())
            finally:
                reader.close()
        except Py4JJavaError as error:
            cause: Any = error.java_exception
            raise OSError(str(cause.getMessage()).removeprefix(f"{self.at(name)} ").split("\n")[0]) from None

    def _all(self) -> Iterator[tuple[str, int]]:
        if not self.exists():
            return
        found = self._fs.listFiles(self._path(self.root), True)
        while found.hasNext():
            status = found.next()
            name = str(status.getPath().toString()).removeprefix(self.root).lstrip("/")
            yield name, int(status.getLen())

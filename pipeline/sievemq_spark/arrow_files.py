"""Files as a Python process of a Spark Connect server reaches them: pyarrow's file system of a URI."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sievemq_spark.errors import PipelineError
from sievemq_spark.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE: Final = re.compile(r"file:(?://)?(?P<path>/[^/].*)", re.DOTALL)  # with no host between the slashes
_S3: Final = re.compile(r"s3[an]?://(?P<path>[^/]+.*)", re.DOTALL)
_SETTING: Final = "spark.hadoop.fs.s3a."
#: Hadoop's settings of S3 that count. A Spark Connect server shows no client its keys: the task has them as AWS does.
_S3_SETTINGS: Final = ("endpoint", "endpoint.region", "connection.ssl.enabled")


def require_uri(path: str) -> None:
    """Raise unless a path is on a file system that is supported over Spark Connect.

    Raises:
        PipelineError: says which are, and what to do.
    """
    if not (_FILE.fullmatch(path) or _S3.fullmatch(path)):
        raise PipelineError(
            f"{path} cannot be reached over Spark Connect: give a URI such as s3a://bucket/archive, or "
            "file:///data/archive for a folder that the server and its executors share. Other file systems need a "
            "session on the cluster's master, such as --master spark://host:7077"
        )


def settings_of(spark: SparkSession, path: str) -> dict[str, str]:
    """The settings of the session for the file system of a path: ``spark.hadoop.fs.s3a.…``."""
    if not _S3.fullmatch(path):
        return {}
    known: dict[str, str] = dict(spark.conf.getAll)
    return {name: known[_SETTING + name] for name in _S3_SETTINGS if known.get(_SETTING + name)}


def _s3_options(settings: Mapping[str, str]) -> dict[str, Any]:
    options = {"region": settings["endpoint.region"]} if "endpoint.region" in settings else {}
    scheme, separator, host = settings.get("endpoint", "").rpartition("://")
    if host:
        options["endpoint_override"] = host
    if not separator:
        scheme = "http" if settings.get("connection.ssl.enabled", "").lower() == "false" else "https"
    return {**options, "scheme": scheme}


class ArrowFiles(Files):
    """Files in a local folder or in S3.

    Args:
        root: the folder, a URI that :func:`require_uri` accepts.
        settings: as :func:`settings_of` returns them.

    Raises:
        PipelineError: the URI is of another file system.
    """

    def __init__(self, root: str, settings: Mapping[str, str]) -> None:
        from pyarrow import fs

        require_uri(root)
        self.root = root.rstrip("/")
        local, there = _FILE.fullmatch(self.root), _S3.fullmatch(self.root)
        self._is_local = local is not None
        found = local or there
        assert found is not None
        self._base = found["path"]
        self._fs: Any = fs.LocalFileSystem() if local else fs.S3FileSystem(**_s3_options(settings))

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base

    def _info(self, name: str) -> Any:
        return self._fs.get_file_info(self._path(name))

    def _found(self, folder: str, *, recursive: bool) -> Any:
        from pyarrow.fs import FileSelector

        return self._fs.get_file_info(FileSelector(self._path(folder), allow_not_found=True, recursive=recursive))

    def exists(self, name: str = "") -> bool:
        from pyarrow.fs import FileType

        return bool(self._info(name).type != FileType.NotFound)

    def create(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if self._is_local:  # an object store has no folders
            self._fs.create_dir(path.rpartition("/")[0])
        with self._fs.open_output_stream(path) as stream:
            stream.write(data)

    def read(self, name: str) -> str:
        with self._fs.open_input_stream(self._path(name)) as stream:
            return str(stream.read(), "utf-8")

    def names(self, folder: str) -> list[str]:
        return sorted(each.base_name for each in self._found(folder, recursive=False))

    def delete(self, name: str) -> None:
        from pyarrow.fs import FileType

        kind = self._info(name).type
        if kind == FileType.Directory:
            self._fs.delete_dir(self._path(name))
        elif kind != FileType.NotFound:
            self._fs.delete_file(self._path(name))
            folder, slash, base = name.rpartition("/")
            if self._is_local and not base.endswith(".crc"):  # Hadoop writes a checksum beside each file
                self.delete(f"{folder}{slash}.{base}.crc")

    def rename(self, name: str, to: str) -> None:
        self._fs.move(self._path(name), self._path(to))

    def parquet_schema(self, name: str) -> str:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_schema
        from pyspark.sql.types import StructField, StructType

        try:
            found = read_schema(self._path(name), filesystem=self._fs)
        except (OSError, ArrowException) as error:
            raise OSError(str(error).split("\n")[0]) from None
        kinds = [(each.name, _spark_type(each.type)) for each in found]
        return str(StructType([StructField(name, kind) for name, kind in kinds if kind is not None]).json())

    def _all(self) -> Iterator[tuple[str, int]]:
        for each in self._found("", recursive=True):
            if each.is_file:
                yield each.path.removeprefix(self._base).lstrip("/"), each.size


def _spark_type(kind: Any) -> Any:
    """Spark's type for a type of Arrow; None if it has none, which no column of an archive is."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return from_arrow_type(kind)
    except PySparkException:
        return None

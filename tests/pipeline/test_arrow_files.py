"""The files of an archive as a task of Spark Connect reaches them: in a folder, and in an object store."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

import pyarrow as pa
from pyarrow.parquet import write_table

from sievemq_spark.arrow_files import ArrowFiles
from sievemq_spark.errors import PipelineError
from sievemq_spark.files import Files
from sievemq_spark.replacement import WORK, Replacement, _finish

pytestmark = pytest.mark.spark  # which is when Arrow is there

DAY = "namespace=(default)/destination=queue%3Aa%2Fb/date=2024-10-04"


@pytest.fixture(scope="module")
def lake() -> Iterator[dict[str, str]]:
    """Settings of an object store with a bucket `lake`."""
    server = pytest.importorskip("moto.server", reason="needs moto[server,s3]")
    store = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/lake", method="PUT"), timeout=60).close()
    yield {"endpoint": f"http://{host}:{port}", "endpoint.region": "us-east-1"}
    store.stop()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """As executors have them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-lake")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-lake")


@pytest.fixture(params=["file", "s3a"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """A folder that does not exist yet."""
    name = "an [archive] {of,1} *? %41 #x"
    if request.param == "file":
        return ArrowFiles(f"file://{tmp_path}/{name}", {})
    return ArrowFiles(f"s3a://lake/{name}", request.getfixturevalue("lake"))


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    write_table(pa.table({"seq": [1, 2]}), sink)
    return bytes(sink.getvalue())


def test_files_are_listed_read_and_deleted(place: Files) -> None:
    assert (place.exists(), place.names("x"), list(place.parquet()), place.has_parquet()) == (False, [], [], False)
    place.delete("x")
    place.require_writable()
    assert (place.names(""), list(place.parquet())) == ([], [])
    data = parquet()
    for name in (f"{DAY}/a.parquet", f"{DAY}/_hidden.parquet", "_work/b.parquet", ".c/d.parquet"):
        place.create(name, data)
    assert place.listed() == (place.root, [(f"{DAY}/a.parquet", len(data))])
    assert place.names("") == [".c", "_work", "namespace=(default)"]
    assert json.loads(place.parquet_schema(f"{DAY}/a.parquet"))["fields"][0]["name"] == "seq"
    place.create(f"{DAY}/a.parquet", b"nothing")
    with pytest.raises(OSError, match="7 bytes"):
        place.parquet_schema(f"{DAY}/a.parquet")
    place.write("note.json", "é")
    assert (place.read("note.json"), place.exists("note.json.part")) == ("é", False)
    place.delete_all(["note.json", "_work", DAY])
    assert (place.names(""), place.exists(DAY), place.has_parquet()) == ([".c", "namespace=(default)"], False, False)


def test_new_files_take_the_place_of_old_ones(place: Files) -> None:
    old, staged = [f"{DAY}/{number}.parquet" for number in range(3)], f"{WORK}/job/{DAY}"
    for name in (*old, f"{staged}/new.parquet"):
        place.create(name, parquet())
    move: Replacement = {"folder": DAY, "staged": staged, "new": ["new.parquet"], "old": old}
    place.write(f"{WORK}/job.json", json.dumps([move]))
    _finish(place)
    assert [name for name, _ in place.parquet()] == [f"{DAY}/new.parquet"]
    assert place.names(WORK) == []


def test_a_bucket_that_does_not_exist_is_named(lake: dict[str, str]) -> None:
    with pytest.raises(PipelineError, match=r"^s3a://none/x cannot be written: .*NO_SUCH_BUCKET"):
        ArrowFiles("s3a://none/x", lake).require_writable()

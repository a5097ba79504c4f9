"""Several shards in one query: known by name, whatever their hosts; one that is away; one that got another name."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from sievemq import JMSException
from sievemq_broker import EmbeddedBroker
from sievemq_spark import shards
from sievemq_spark.errors import DataLossError, PipelineError
from sievemq_spark.offsets import lag
from sievemq_spark.options import ReadOptions
from sievemq_spark.reader import BrowseReader
from sievemq_spark.schema import COLUMNS
from sievemq_spark.shards import Shard
from sievemq_spark.tap_reader import TapReader

from .streams import Stream, batch_rows, forget_connections, schema_of, send

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shards, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(shards, "_SHARE", 0)
    yield
    forget_connections()


def broker(name: str, **options: Any) -> EmbeddedBroker:
    return EmbeddedBroker(settings={"shard": name}, **options)


def urls(*brokers: EmbeddedBroker) -> str:
    """Without a second attempt, and no time for one."""
    return ", ".join(f"{each.url}?reconnect=0" for each in brokers)


def browse(url: str, **options: str) -> list[dict[str, Any]]:
    reader = BrowseReader(ReadOptions.read({"url": url, "destination": "q", **options}), schema_of(COLUMNS))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch_rows(batch)]


def test_rows_and_offsets_name_the_shard() -> None:
    with broker("a") as a, broker("b") as b:
        stream = Stream(f"{urls(a)}, {b.namespace('näh/e').url}")
        assert list(stream.begin or ()) == ["a/queue:q", "b/n%C3%A4h%2Fe/queue:q"]
        send(a, "here")
        send(b.namespace("näh/e"), "there")
        end = stream.plan()
        rows = stream.read(stream.begin or {}, end)
        assert {(row["shard"], row["namespace"], row["body_text"]) for row in rows} == {
            ("a", "", "here"), ("b", "näh/e", "there"),
        }  # fmt: skip
        progress = {"sources": [{"endOffset": json.dumps(stream.begin), "latestOffset": end}]}
        assert lag(progress) == {"a/queue:q": 1, "b/n%C3%A4h%2Fe/queue:q": 1}
        assert [row["shard"] for row in browse(urls(b, a), failonmissing="false")] == ["a"]


def test_two_urls_of_one_shard_are_read_once() -> None:
    with broker("a") as a:
        send(a, "x")
        both = f"{a.url}, sievemq://localhost:{a.port}"
        assert [row["body_text"] for row in browse(both)] == ["x"]
        stream = Stream(both)
        assert [stream.batch(), stream.batch()] == [["x"], []]


def test_two_brokers_that_call_their_messages_alike_are_refused() -> None:
    with broker("a") as a, broker("a") as b:
        for use in (lambda: browse(urls(a, b)), lambda: Stream(urls(a, b))):
            with pytest.raises(PipelineError, match=r"the option 'url' names two brokers.*--shard NAME"):
                use()


def test_a_shard_that_moved_to_other_hosts_is_read_on(tmp_path: Path) -> None:
    with broker("a", data_dir=tmp_path) as a:
        send(a, "1")
        stream = Stream(a)
        assert stream.batch() == ["1"]
    with broker("a", data_dir=tmp_path) as a:
        send(a, "2")
        assert Stream(a, begin=stream.begin).batch() == ["2"]


def test_a_shard_with_another_name_is_read_on(tmp_path: Path) -> None:
    """The tap's id shows that it is the same; also in the middle of a batch, and if two change their names."""
    folders = [tmp_path / name for name in "ab"]
    with broker("a", data_dir=folders[0]) as a, broker("b", data_dir=folders[1]) as b:
        stream = Stream(urls(a, b))
        send(a, "a1")
        send(b, "b1", "b2")
        assert sorted(stream.batch()) == ["a1", "b1", "b2"]
        send(a, "a2")
        begin, end = stream.begin or {}, stream.plan()
    with broker("b", data_dir=folders[0]) as a, broker("a", data_dir=folders[1]) as b:
        again = Stream(urls(a, b), begin=begin)
        rows = again.read(begin, end)
        assert [(row["shard"], row["body_text"]) for row in rows] == [("b", "a2")]
        again.begin = end
        send(b, "b3")
        assert again.batch() == ["b3"]
        assert {key: place["seq"] for key, place in (again.begin or {}).items()} == {"a/queue:q": 3, "b/queue:q": 2}


def test_a_shard_with_another_name_and_without_its_data_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with broker("a") as a:
        stream = Stream(a)
    with broker("b") as b:
        again = Stream(b, begin=stream.begin)
        assert again.batch() == again.batch() == []
    assert [each.getMessage() for each in caplog.records if each.name == "sievemq.spark"] == [
        "the checkpoint has places of a/queue:q, which this run does not read"
    ]


def test_a_batch_of_what_is_not_read_any_more_is_an_error() -> None:
    with broker("a") as a, broker("b") as b:
        stream = Stream(urls(a, b))
        send(a, "x")
        begin, end = stream.begin or {}, stream.plan()
        with pytest.raises(DataLossError, match=r"a/queue:q has not the tap .* do not name it any more"):
            Stream(b, begin=begin).read(begin, end)
        assert Stream(b, begin=begin, failOnDataLoss="false").read(begin, end) == []


def test_a_shard_joins_a_query() -> None:
    """A checkpoint without it; its first offset says where it began."""
    with broker("a") as a, broker("b") as b:
        alone = Stream(a)
        send(b, *"xyz")
        both = Stream(urls(a, b), begin=alone.begin, startingOffsets="latest")
        assert both.batch() == []
        send(b, "1")
        begin, end = both.begin or {}, both.plan()
        assert [row["body_text"] for row in both.read(begin, end)] == ["1"]
        both.start()
        assert [row["body_text"] for row in both.read(begin, end)] == ["1"]


# -- away -------------------------------------------------------------------------------------------------------------


def test_a_shard_that_is_away_at_the_start(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with broker("a") as a:
        both = f"{urls(a)}, sievemq://127.0.0.1:{port}?reconnect=0"
        with pytest.raises(JMSException, match="no broker could be reached"):
            Stream(both)
        stream = Stream(both, unavailable="wait")
        send(a, "1")
        assert list(stream.begin or ()) == ["a/queue:q"]
        assert stream.batch() == ["1"]
        stream.reader.prepareForTriggerAvailableNow()
        with broker("b", port=port) as b:
            send(b, "old")
            assert stream.batch() == []  # the run began without it
            stream.start()
            assert [stream.batch(), stream.batch()] == [["old"], []]
    said = [each.getMessage() for each in caplog.records if each.name == "sievemq.spark"]
    assert len(said) == 2
    assert f"127.0.0.1:{port} is away; the query goes on without it" in said[0]
    assert said[1].startswith("shard 'b' (")


def test_no_shard_is_there_at_the_first_start(port: int) -> None:
    with pytest.raises(JMSException, match="no broker could be reached"):
        Stream(f"sievemq://127.0.0.1:{port}?reconnect=0", unavailable="wait")


def test_wrong_credentials_are_not_waited_for() -> None:
    with EmbeddedBroker(users={"me": "secret"}) as locked, pytest.raises(JMSException, match="password"):
        Stream(locked, user="me", password="wrong", unavailable="wait")


def test_a_shard_that_goes_away_in_the_middle(tmp_path: Path, port: int) -> None:
    """The others are read on, its place stays, and a batch that was planned waits for it."""
    with broker("a") as a, ExitStack() as first:
        b = first.enter_context(broker("b", data_dir=tmp_path, port=port))
        stream = Stream(urls(a, b), unavailable="wait")
        send(b, "b1")
        assert stream.batch() == ["b1"]
        send(a, "a1")
        send(b, "b2")
        begin, end = stream.begin or {}, stream.plan()
        first.close()
        parts = stream.reader.partitions(begin, end)
        stream.start()  # the driver as well
        assert len(parts) == len(stream.reader.partitions(begin, end)) == 2
        rows: list[dict[str, Any]] = []
        waits = threading.Thread(target=lambda: rows.extend(stream.read(begin, end)))
        waits.start()
        stream.reader.commit(begin)
        later = stream.plan()  # a batch behind it, as if that were done
        assert (later["b/queue:q"], later["a/queue:q"]) == (begin["b/queue:q"], end["a/queue:q"])
        assert list(stream.reader.reportLatestOffset() or ()) == ["a/queue:q"]
        with broker("b", data_dir=tmp_path, port=port) as b:
            waits.join(60)
            assert sorted(row["body_text"] for row in rows) == ["a1", "b2"]
            stream.begin = end
            send(b, "b3")
            assert stream.batch() == ["b3"]
            stream.plan()


def test_a_shard_that_goes_away_in_the_middle_ends_the_query_unless_it_waits(tmp_path: Path) -> None:
    with broker("a") as a:
        with broker("b") as b:
            stream = Stream(urls(a, b))
            stream.batch()
        stream.reader._shards.link = lambda shard: shards.Link(shard.url, None, None, "jakarta", patience=0)
        with pytest.raises(JMSException):
            stream.plan()


def test_a_batch_read_needs_each_shard(port: int) -> None:
    options = ReadOptions.read(
        {"url": f"sievemq://127.0.0.1:{port}", "destination": "q", "tap": "t", "unavailable": "wait"}
    )
    with pytest.raises(PipelineError, match="a batch read needs each shard"):
        TapReader(options, schema_of(COLUMNS))


def test_a_tap_is_read_by_several_shards_in_a_batch() -> None:
    with broker("a") as a, broker("b") as b:
        send(a, "1")
        send(b, "2")
        reader = TapReader(ReadOptions.read({"url": urls(a, b), "destination": "q", "tap": "t"}), schema_of(COLUMNS))
        parts = pickle.loads(pickle.dumps(reader.partitions()))
        rows = [row for part in parts for batch in reader.read(part) for row in batch_rows(batch)]
        assert [(row["shard"], row["body_text"]) for row in rows] == [("a", "1"), ("b", "2")]


def test_names_of_shards_in_words() -> None:
    assert str(Shard("a", "tests", "sievemq://me:secret@h:1/tests")) == "shard 'a', namespace 'tests' (h:1)"

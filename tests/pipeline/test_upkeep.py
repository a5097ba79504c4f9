"""An archive over time: many small files become few, old days leave, and a kill at any point does no harm."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sievemq_spark.archive import archive, read_archive
from sievemq_spark.compaction import compact
from sievemq_spark.errors import NoArchiveError, NoDestinationError, PipelineError
from sievemq_spark.hadoop_files import HadoopFiles
from sievemq_spark.replacement import WORK
from sievemq_spark.retention import expire
from sievemq_spark.schema import COLUMNS, ddl
from sievemq_spark.times import day_of, time_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_200)]

DAY = 86_400_000


def rows(spark: Any, numbers: range, *, destination: str = "queue:a/b *", day: int = 20_000) -> Any:
    """Messages of one day."""
    made = []
    for number in numbers:
        row = dict.fromkeys(COLUMNS)
        row |= {
            "shard": "main",
            "namespace": "",
            "destination": destination,
            "seq": number,
            "message_id": f"ID:{number}",
        }
        row |= {"timestamp": day * DAY + number if day else 0, "body_text": f"text {number}", "size": 10}
        made.append(tuple(row[name] for name in COLUMNS))
    return spark.createDataFrame(made, ddl())


@pytest.fixture(scope="module")
def template(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("upkeep") / "archive")
    for first in range(0, 50, 10):
        archive(spark, rows(spark, range(first, first + 10)), path)
    archive(spark, rows(spark, range(50, 53), day=20_001), path)
    return path


@pytest.fixture
def crowded(template: str, tmp_path: Path) -> str:
    """An archive with a day in five files, another in one. Its name is no pattern, although Spark takes patterns."""
    return str(shutil.copytree(template, tmp_path / "an [archive] {of,1} *? %41 #x"))


def contents(spark: Any, path: str) -> list[int]:
    return [row.seq for row in read_archive(spark, path).orderBy("seq").select("seq").collect()]


def files(path: str) -> int:
    return len(list(Path(path).rglob("*.parquet")))


def test_few_files_with_the_same_messages(spark: Any, crowded: str) -> None:
    before = read_archive(spark, crowded).orderBy("seq").collect()
    assert files(crowded) == 6
    done = compact(spark, crowded)
    assert (done.folders, done.before, done.after, done.messages) == (1, 5, 1, 50)
    assert files(crowded) == 2
    assert read_archive(spark, crowded).orderBy("seq").collect() == before
    assert not (Path(crowded) / WORK).exists()
    assert compact(spark, crowded).folders == 0


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["write", "delete", "rename"])
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_point(spark: Any, crowded: str, monkeypatch: pytest.MonkeyPatch, verb: str, after: bool) -> None:
    """Before or after any step: whoever opens the archive next sees each message once."""
    expected = contents(spark, crowded)
    real = getattr(HadoopFiles, verb)
    made = 100
    for step in range(100):
        deadline = Deadline(real, step, after)
        with monkeypatch.context() as patched:
            patched.setattr(HadoopFiles, verb, deadline.method())
            try:
                compact(spark, crowded)
            except Killed:
                pass
        if not deadline.passed:
            break  # it had fewer steps than that
        assert contents(spark, crowded) == expected, (verb, step)
        if files(crowded) == 2:  # what was decided is carried out: crowd it again, for the next step
            for _ in range(4):
                archive(spark, rows(spark, range(made, made + 10)), crowded)
                made += 10
            expected = contents(spark, crowded)
    assert step >= 1
    assert contents(spark, crowded) == expected


class Deadline:
    """Lets a method be called some times, then ends the process before or after its next call."""

    def __init__(self, real: Any, calls: int, after: bool) -> None:
        self.real, self.left, self.after, self.passed = real, calls, after, False

    def method(self) -> Any:
        def dying(place: HadoopFiles, *arguments: Any, **options: Any) -> Any:
            if self.left > 0:
                self.left -= 1
                return self.real(place, *arguments, **options)
            self.passed = True
            if self.after:
                self.real(place, *arguments, **options)
            raise Killed

        return dying


def test_killed_in_a_rename_that_is_a_copy_and_a_delete(
    spark: Any, crowded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an object store, which renames nothing and replaces no file by it."""
    expected, real = contents(spark, crowded), HadoopFiles.rename

    def begun(place: HadoopFiles, name: str, to: str) -> None:
        if not name.endswith(".parquet"):
            return real(place, name, to)
        shutil.copy(Path(crowded, name), Path(crowded, to))
        raise Killed

    def renamed(place: HadoopFiles, name: str, to: str) -> None:
        assert not place.exists(to)
        real(place, name, to)

    monkeypatch.setattr(HadoopFiles, "rename", begun)
    with pytest.raises(Killed):
        compact(spark, crowded)
    monkeypatch.setattr(HadoopFiles, "rename", renamed)
    assert contents(spark, crowded) == expected
    assert files(crowded) == 2


def test_what_was_not_decided_is_dropped_by_the_next_compaction(spark: Any, crowded: str) -> None:
    left = Path(crowded) / WORK / "dead" / "namespace=x"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(b"half a file")
    (Path(crowded) / WORK / "dead.json.part").write_text(json.dumps([])[:1])
    assert contents(spark, crowded) == list(range(53))
    assert left.exists()  # it may belong to a job that runs
    compact(spark, crowded)
    assert not (Path(crowded) / WORK).exists()
    assert contents(spark, crowded) == list(range(53))


def test_a_reader_takes_nothing_from_a_compaction_that_runs(
    spark: Any, crowded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader or writer between its steps, against the documents, still loses nothing."""
    real = HadoopFiles.write

    def read_first(place: HadoopFiles, name: str, text: str) -> None:
        assert contents(spark, crowded) == list(range(53))
        assert archive(spark, rows(spark, range(10)), crowded).added == 0
        real(place, name, text)

    monkeypatch.setattr(HadoopFiles, "write", read_first)
    assert compact(spark, crowded).messages == 50
    assert contents(spark, crowded) == list(range(53))
    assert files(crowded) == 2


def test_old_files_stay_when_the_new_ones_are_missing(spark: Any, crowded: str) -> None:
    work = Path(crowded) / WORK
    work.mkdir()
    old = [str(file.relative_to(crowded)) for file in Path(crowded).rglob("*.parquet")]
    move = {"folder": "namespace=x", "staged": f"{WORK}/gone", "new": ["part-0.parquet"], "old": old}
    (work / "gone.json").write_text(json.dumps([move]))
    with pytest.raises(PipelineError, match=r"gone/part-0\.parquet takes the place of 6 files, but it is not there"):
        read_archive(spark, crowded)
    (work / "gone.json").unlink()
    assert contents(spark, crowded) == list(range(53))


def test_messages_that_would_be_lost_stop_it(spark: Any, crowded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = type(spark.range(1))
    real = frames.sortWithinPartitions
    monkeypatch.setattr(frames, "sortWithinPartitions", lambda self, *by: real(self, *by).limit(7))
    with pytest.raises(PipelineError, match="50 messages became 7"):
        compact(spark, crowded)
    monkeypatch.undo()
    assert contents(spark, crowded) == list(range(53))


def test_retention(spark: Any, crowded: str) -> None:
    archive(spark, rows(spark, range(60, 62), day=0), crowded)  # without timestamps
    archive(spark, rows(spark, range(70, 72), destination="queue:other"), crowded)
    later = date(2024, 10, 5)  # the day after day 20,000
    assert date.fromordinal(date(1970, 1, 1).toordinal() + 20_001) == later
    would = expire(spark, crowded, later, destination="queue:a/b *", dry_run=True)
    assert (would.files, len(would.days)) == (5, 1)
    assert len(contents(spark, crowded)) == 57
    assert expire(spark, crowded, later, destination="queue:a/b *") == would
    assert contents(spark, crowded) == [50, 51, 52, 60, 61, 70, 71]
    assert expire(spark, crowded, date(1971, 1, 1), destination="queue:other").files == 0
    assert expire(spark, crowded, later).files == 1
    assert expire(spark, crowded, later, destination="queue:other").files == 0  # its days are gone
    with pytest.raises(
        NoDestinationError, match=r"no messages of queue:othr; it has those of queue:a/b \*, queue:other"
    ):
        expire(spark, crowded, later, destination="queue:othr")
    assert contents(spark, crowded) == [50, 51, 52, 60, 61]
    assert expire(spark, crowded, date(1971, 1, 1)).files == 0


def test_errors(spark: Any, tmp_path: Path, crowded: str) -> None:
    with pytest.raises(NoArchiveError):
        compact(spark, str(tmp_path / "none"))
    with pytest.raises(NoArchiveError):
        expire(spark, str(tmp_path / "none"), date(2026, 1, 1))
    with pytest.raises(PipelineError, match="2 or more"):
        compact(spark, crowded, files=1)


def test_days_and_hours_are_utc_in_any_session(spark: Any, tmp_path: Path) -> None:
    """Five minutes before and after midnight, and before 1970, in a session that shows the time of Kiritimati."""
    midnight = 20_000 * DAY
    frame = spark.createDataFrame([(midnight - 300_000,), (midnight + 300_000,), (-1,), (None,)], "ms bigint")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        shown = frame.select(day_of(frame.ms).alias("day"), time_of(frame.ms, "hour").alias("hour")).collect()
        archive(spark, rows(spark, range(3)), str(tmp_path / "archive"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [tuple(row) for row in shown] == [
        ("2024-10-03", "2024-10-03T23"),
        ("2024-10-04", "2024-10-04T00"),
        ("1969-12-31", "1969-12-31T23"),
        (None, None),
    ]
    assert [folder.name for folder in (tmp_path / "archive").glob("*/*/date=*")] == ["date=2024-10-04"]

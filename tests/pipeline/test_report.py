"""Reports: what a result consists of, and one HTML file that nobody's data can break out of. No Spark is needed."""

from __future__ import annotations

import io
import re
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("matplotlib", reason="needs the extra `spark`")

from sievemq_spark.backtest import Backtest, Coverage, SelectorResult
from sievemq_spark.cli.options import ArchivePart
from sievemq_spark.cli.shown import print_tables
from sievemq_spark.deadletters import DeadLetters, Lift
from sievemq_spark.outcomes import Fate, Outcomes
from sievemq_spark.profile import Profile, PropertyProfile
from sievemq_spark.progress import batches_of, progress, rows_of, tasks_of
from sievemq_spark.report import Chart, Table, parts_of, write_html
from sievemq_spark.times import duration, every, unit_shown

pytestmark = pytest.mark.spark  # which is when matplotlib is there

HOSTILE = "a = '<script>alert(1)</script>' AND $x = '$\\frac{1}{' AND _b = \"&\""
BACKTEST = Backtest(
    12,
    [
        SelectorResult(HOSTILE, 5, 4, 3, {"2026-01-01T05": 5}, {("a",): 2, (): 1}, ["ID:1"]),
        SelectorResult("b", 1, 11, 0, {"2026-01-01T06": 1}, {}, [None]),
    ],
    4,
    1,
    ["ID:1"],
    [None],
)
RESULTS = [
    BACKTEST,
    Coverage(5, 1, 2, 2, {HOSTILE: 3, "b": 2}, {(HOSTILE, "b"): 2}, [("b", HOSTILE)]),
    Profile(3, {"TEXT": 3}, 10.5, 20, {"2026-01-01T05": 3}, [PropertyProfile("$p", {"int": 3}, 0, 3, 0.33)], ["$p"]),
    DeadLetters(
        2,
        10,
        {("attempts", "queue:<o>"): 2},
        {6: 2},
        {"2026-01-01T05": 2},
        {50: 10, 100: 20},
        [Lift("a", "String", "<b>", 2, 0, 1.0, 0.0, None), Lift("c", None, None, 1, 5, 0.5, 0.5, 1.0)],
    ),
    Outcomes(
        4,
        1,
        [
            Fate("acknowledged", None, 2, 2 / 3, 1.5, {50: 10, 90: 9_876, 99: 206_082, 100: 93_784_000}),
            Fate("dead-lettered", "<b>", 1, 1 / 3, 6, {}),
        ],
        {("queue:<o>", "acknowledged"): 2},
        {None: 1, HOSTILE: 1},
        {"acknowledged": {"2026-01-01T05": 2}, "dead-lettered": {"2026-01-01T06": 1}},
    ),
]


class Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_report_is_one_file_without_scripts_or_external_content(tmp_path: Path, result: Any) -> None:
    path = tmp_path / "report.html"
    write_html(path, "A <report>", parts_of(result), ["from $here & there"])
    text = path.read_text(encoding="utf-8")
    page = Reader(text)
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)  # within the charts
    assert page.tags.count("svg") == sum(isinstance(part, Chart) for part in parts_of(result))
    assert {"from $here & there", "A <report>"} <= set(page.texts)
    for part in parts_of(result):
        assert part.title in page.texts
        if isinstance(part, Table):
            assert all(cell in page.texts for row in part.rows for cell in row if cell)
    assert re.search(r"https?://(?!www\.w3\.org/|purl\.org|creativecommons\.org)", text) is None


def test_outcomes_fit_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    took = {50: 86_399_999, 90: 86_399_999, 99: 3_599_999, 100: 123_456_789_000}
    fates = [Fate("acknowledged", None, 1_234_567, 0.9, 1.5, took), Fate("dead-lettered", "rejected", 9, 0.1, 6, took)]
    print_tables(Outcomes(1_234_576, 0, fates, {}, {}, {}))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for whole in ("dead-lettered (rejected)", "1,234,567", "23 h 59 min", "59 min 59 s", "1,428 d 21 h"):
        assert whole in shown


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (59_999, "59.9 s"), (60_000, "1 min 0 s"), (206_082, "3 min 26 s"),
     (3_600_000, "1 h 0 min"), (93_784_000, "1 d 2 h")],
)  # fmt: skip
def test_durations_are_for_people(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


def test_a_backtest_labels_its_curves_and_shows_some_matches() -> None:
    selectors, sample, curves, _, difference = parts_of(BACKTEST)
    assert isinstance(selectors, Table)
    assert [row[:3] for row in selectors.rows] == [(HOSTILE, "1", "5"), ("b", "2", "1")]
    assert isinstance(sample, Table)
    assert sample.rows == [("1", "ID:1"), ("2", "(without an id)")]
    assert isinstance(curves, Chart)
    assert list(curves.series) == ["1", "2"]
    assert isinstance(difference, Table)
    assert difference.rows == [("the first only", "4", "ID:1"), ("the second only", "1", "(without an id)")]


def test_a_report_is_the_same_each_time(tmp_path: Path) -> None:
    for name in "ab":
        write_html(tmp_path / name, "t", parts_of(BACKTEST))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_many_labels(tmp_path: Path) -> None:
    """Of three months of hours, a few are written below the curve."""
    labels = [f"$hour {number}$" for number in range(2_000)]
    path = tmp_path / "r.html"
    write_html(path, "t", [Chart("c", labels, {"$one_": [1.0] * 2_000, "two": [2.0] * 2_000}, bars=False)])
    text = path.read_text(encoding="utf-8")
    assert text.count("$hour ") <= 13
    assert "$one_" in text


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="a str cannot be shown"):
        parts_of("x")


class Tracker:
    """A status tracker whose stage 2 ends during the query."""

    def getActiveStageIds(self) -> list[int]:
        return [1, 2, 3]

    def getStageInfo(self, stage: int) -> Any:
        return None if stage == 2 else SimpleNamespace(numCompletedTasks=stage, numTasks=4)


def test_tasks() -> None:
    assert tasks_of(Tracker()) == (4, 8)


class Stages:
    """Java's sequence of stages."""

    def size(self) -> int:
        return 2

    def apply(self, number: int) -> Any:
        return SimpleNamespace(inputRecords=lambda: 1_000, shuffleReadRecords=lambda: number)


class Store:
    def activeStages(self) -> Stages:
        return Stages()


def test_rows_and_batches() -> None:
    assert rows_of(Store()) == 2_001
    queries = [SimpleNamespace(lastProgress=None), SimpleNamespace(lastProgress={"batchId": 2})]
    assert batches_of(queries) == 3


def test_times_that_suit_their_span() -> None:
    assert every([]) == []
    assert every(["2026-01-01T23:59", "2026-01-02T00:01"]) == [
        "2026-01-01T23:59",
        "2026-01-02T00:00",
        "2026-01-02T00:01",
    ]
    assert every(["2026-01-02T01", "2026-01-01T22"]) == [
        f"2026-01-0{time}" for time in ("1T22", "1T23", "2T00", "2T01")
    ]
    assert every(["1970-01-01", "2026-01-01"]) == ["1970-01-01", "2026-01-01"]  # one without a timestamp
    assert [unit_shown(text) for text in ("2026-01-01", "2026-01-01T05", "2026-01-01T05:09")] == [
        "day",
        "hour",
        "minute",
    ]
    shown = parts_of(Profile(3, {}, 1, 1, {"2026-01-01T05:01": 1, "2026-01-01T05:03": 2}, [], []))[-1]
    assert isinstance(shown, Chart)
    assert shown.title == "messages by minute (UTC)"
    assert shown.series == {"messages": [1, 0, 2]}


def test_a_report_says_where_what_and_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    about = ArchivePart("shop", "2026-11-01", None, "orders").about
    assert about[:2] == [f"Archive {tmp_path / 'shop'}", "Messages of queue:orders, 2026-11-01 to the end"]
    assert re.fullmatch(r"Made 20\d\d-\d\d-\d\d \d\d:\d\d UTC", about[2])
    assert ArchivePart("s3a://b/x").about[:2] == ["Archive s3a://b/x", "Messages of all destinations, all days"]


def test_the_main_table_is_open(tmp_path: Path) -> None:
    rows = [(str(number),) for number in range(30)]
    write_html(tmp_path / "r.html", "t", [Table("main", ("n",), rows), Table("more", ("n",), rows)])
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert (text.count("<details open>"), text.count("<details>")) == (1, 1)


def test_a_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    def tracker() -> Tracker:
        looked.set()
        return Tracker()

    java = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=Store))
    context = SimpleNamespace(statusTracker=tracker, _jsc=java)
    spark: Any = SimpleNamespace(sparkContext=context, streams=SimpleNamespace(active=[]))
    with progress(spark, "backtest", Console(file=io.StringIO())):
        pass
    assert not looked.is_set()
    shown = io.StringIO()
    with progress(spark, "backtest", Console(file=shown, force_terminal=True)):
        assert looked.wait(60)
        deadline = time.monotonic() + 60
        while "2,001 rows read" not in shown.getvalue() and time.monotonic() < deadline:
            threading.Event().wait(0.05)
    assert "backtest" in shown.getvalue()
    assert "2,001 rows read" in shown.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "sievemq-progress"]

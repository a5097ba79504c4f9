"""What the benchmarks make of their rows: the table in the README, and that their rig is the real broker."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks import floods, latency
from benchmarks.growth import SERIES
from benchmarks.peers import run
from benchmarks.rig import Rig, envelope

from sievemq_core.wire.commands import Command


def row(peer: str, workload: str, rate: float, p50: float = 0.0, ok: bool = True) -> dict[str, object]:
    return {"peer": peer, "workload": workload, "msgs_per_s": rate, "p50_us": p50, "ok": ok}


ROWS = [
    row("sievemq", "W1", 100),
    row("sievemq", "W1", 300),
    row("sievemq", "W1", 200),
    row("sievemq_aio", "W1", 400, ok=False),
    row("redis", "W1", 50),
    row("sievemq_aio", "W2", 1, p50=100),
    row("redis", "W2", 1, p50=150),
    row("sievemq", "W5", 90),
    row("redis", "W5", 180),
    row("activemq_java", "W5", 30),
]


def test_medians_of_runs_that_were_exact() -> None:
    rates = run.medians(ROWS)
    assert rates["sievemq", "W1"] == 200
    assert ("sievemq_aio", "W1") not in rates
    assert rates["sievemq_aio", "W2"] == 100


def test_ratios_are_above_one_where_sievemq_is_ahead() -> None:
    rates = run.medians(ROWS)
    assert run.ratio(rates, "W1") == 4.0
    assert run.ratio(rates, "W2") == 1.5
    assert run.ratio(rates, "W5") == 0.5
    assert run.ratio(rates, "W5", selecting=True) == 3.0
    assert run.ratio(rates, "W6") is None
    table = run.ratios(rates)
    assert "180 (channels)" in table
    assert len({line.count("|") for line in table.splitlines()}) == 1


def test_the_table_says_that_the_compiled_build_was_measured() -> None:
    rates = run.medians(ROWS)
    built = [{**one, "versions": {"build": "compiled"}} for one in ROWS]
    for rows, said in ((ROWS, False), (built, True)):
        lines = run.ratios(rates, compiled=run.compiled(rows)).splitlines()
        assert ["compiled" in line for line in lines if "**SieveMQ**" in line] == [said, said]
        assert not [line for line in lines if "compiled" in line and "SDK" not in line]


def test_latency_keeps_to_a_timetable_and_drops_what_warms_up() -> None:
    due = list(latency.due_times(rate=1_000, n=4))
    assert [later - earlier for earlier, later in pairwise(due)] == [1_000_000] * 3
    assert int(latency.body(due[0])[:20]) == due[0]
    assert len(latency.body(due[0])) == latency.SIZE
    cold = [9_000_000] * 20
    assert latency.percentiles([*cold, *range(1_000, 81_000, 1_000)]) == {
        "p50": 40.0, "p99": 79.0, "p99.9": 79.0, "max": 80.0
    }  # fmt: skip


def test_the_table_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{run.BEGIN}\nold\n{run.END}\n\nafter\n")
    for table in ("| first |", "| second |"):
        assert run.write_table(table, readme)
        assert readme.read_text() == f"before\n\n{run.BEGIN}\n\n{table}\n\n{run.END}\n\nafter\n"
    readme.write_text("no marks")
    assert not run.write_table("| table |", readme)
    assert readme.read_text() == "no marks"


def test_the_comparison_has_a_place_for_the_table() -> None:
    text = run.COMPARISON.read_text()
    assert text.count(run.BEGIN) == text.count(run.END) == 1


def test_the_rig_is_a_broker() -> None:
    rig = Rig()
    sender, receiver = rig.client(), rig.client()
    consumer = receiver.consumer("queue:q", "a = 1", credit=5)
    sender.send("queue:q", envelope(1, a=1))
    sender.send("queue:q", envelope(2, a=2))
    assert sender.flush() == []  # no caller waits for the confirm
    (delivery,) = receiver.flush()
    assert delivery[:4] == (Command.DELIVER, consumer, 1, 1)
    assert rig.spent > 0


@pytest.mark.parametrize("name", SERIES)
def test_every_series_measures(name: str) -> None:
    point = SERIES[name].point(3)
    assert point["us_per_message"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", floods.FLOODS)
def test_every_flood_is_measured(name: str) -> None:
    found = floods.measured(name, 0.2 if name == "commits" else 0.02)
    assert found["turns"] > 0
    assert found["longest_ms"] >= found["p99_ms"] > 0
    assert found["waits"] > 0


@pytest.mark.parametrize("script", ["run", "latency"])
def test_other_brokers_need_no_sievemq_beside_them(script: str) -> None:
    path = Path(run.__file__).with_name(f"{script}.py")
    without = "\n".join(
        [
            "import runpy, sys",
            "for name in ('sievemq', 'sievemq_core', 'sievemq_broker', 'sievemq_testing', 'msgpack', 'uvloop'):",
            "    sys.modules[name] = None",
            f"runpy.run_path({str(path)!r})['main']",
        ]
    )
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

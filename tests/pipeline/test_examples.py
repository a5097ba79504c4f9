"""The pipeline's example and its command's help, run as users run them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from sievemq_broker import EmbeddedBroker

ROOT = Path(__file__).parents[2]


PRINTS = {
    "backtest.py": [
        "archived 4 of 4 orders",
        "NOT (country = 'DE'): 1 matched, 1 unknown (1 without country)",
        "country <> 'DE' OR country IS NULL: 2 matched, 0 unknown",
        "only the second matches 1",
        "between 400 and 500: ten lamps",
        "replayed 2 orders to queue:germany",
    ],
    "stream.py": [
        "behind: {'main/queue:orders': 0}",
        "kept 6 orders, 1 of them without a country",
        "review: [1200, 2500]",
        "left on queue:large: 0",
    ],
}


@pytest.mark.spark
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", PRINTS)
def test_the_examples_run(name: str) -> None:
    program = ROOT / "examples" / "pipeline" / name
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == PRINTS[name]


def test_every_command_and_option_is_documented() -> None:
    from sievemq_spark.cli import pipeline as group
    from sievemq_spark.options import _SPELLED, ReadOptions, WriteOptions
    from sievemq_spark.schema import COLUMNS

    text = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    for command in group.registered_commands:
        assert command.callback is not None
        assert f"sievemq pipeline {command.callback.__name__}" in text
    for column in COLUMNS:
        assert f"`{column}`" in text
    for option in (*fields(ReadOptions), *fields(WriteOptions)):
        plain = option.name.replace("_", "")
        if plain != "tapranges":  # made by sievemq_spark.drain, not by people
            assert f"`{_SPELLED.get(plain, plain)}`" in text


PROGRAM = (
    "import sys; sys.modules.update(pyspark=None, pyarrow=None); "
    "from sievemq.cli import run; sys.exit(run(['pipeline', *sys.argv[1:]]))"
)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["profile", "nowhere"], 2, "pyarrow is not installed: pip install 'sievemq[spark]'"),
        (["archive", "q", "--to", "x", "--url", "sievemq://127.0.0.1:1?reconnect=0"], 1, "no broker could be reached"),
        (["archive", "q", "--to", "x", "--url", "http://x"], 2, "sievemq://"),
        (["backtest", "x", "a ANDD b"], 4, "    ^^^^"),
        (["coverage", "x", "a", "--dialect", "sql"], 2, "no selector dialect 'sql'"),
        (["archive", "topic:t", "--to", "x"], 2, "topic:t is a topic: it cannot be browsed"),
        (["archive", "queue:", "--to", "x"], 2, "empty"),
        (["replay", "x", "--to", "queue:"], 2, "empty"),
        (["replay", "x", "--rename", "queue:a=queue:"], 2, "a destination to rename is wrong"),
        (["replay", "x", "--set", "a b=1"], 2, "'a b' cannot name a property"),
        (["backtest", "x", "a = 1", "--from", "monday"], 2, "'monday' is not a day; write it as 2026-11-01"),
        (["deadletters", "x", "-d", "queue:"], 2, "empty"),
        (["expire", "x", "--before", "monday"], 2, "'monday' is not a day"),
    ],
)
def test_mistakes_show_before_spark_starts(arguments: list[str], code: int, says: str) -> None:
    done = pipeline(*arguments)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("sievemq: ")
    assert says in done.stderr


def test_bad_credentials() -> None:
    with EmbeddedBroker(users={"me": "secret"}) as broker:
        done = pipeline("replay", "x", "--url", broker.url)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr


def test_help_needs_no_spark() -> None:
    shown = pipeline("--help")
    assert shown.returncode == 0, shown.stderr
    assert "backtest" in shown.stdout


def pipeline(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, where neither PySpark nor Arrow can be imported."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

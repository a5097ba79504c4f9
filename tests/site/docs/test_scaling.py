"""docs/scaling.md: the commands of a first cluster run, and the table has the figures that its arithmetic gives."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from benchmarks import cores
from tests.postgres import Server

from .test_high_availability import WAIT, run_commands

TEXT = (Path(__file__).parents[3] / "docs/scaling.md").read_text(encoding="utf-8")
PORTS = ("7672", "7673", "7674", "7680", "7681", "7682")


def test_rates_follow_from_the_processor_time_of_a_message() -> None:
    rows = re.findall(r"(?m)^\| [^|]+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (.*) \|$", TEXT)
    assert len(rows) == 4
    for *spent, others in rows:
        assert cores.row("", cores.Spent(*map(float, spent)))[4:] == others.split(" | ")
    one, other = re.findall(r"(\d+\.\d\d) of their sum, and 64 shards\n?\s*(\d+\.\d\d)", TEXT)[0]
    assert (float(one), float(other)) == tuple(round(cores.balance(number, 64), 2) for number in cores.CORES)
    of_more = re.findall(r"with 1,000 namespaces (\d+\.\d\d) and (\d+\.\d\d)", TEXT)[0]
    assert tuple(map(float, of_more)) == tuple(round(cores.balance(number, 1_000), 2) for number in cores.CORES)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_a_first_cluster_run(postgres: Server, tmp_path: Path) -> None:
    begin, *blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", TEXT.split("\n## A first cluster\n")[1].split("\n## ")[0])
    for port in PORTS[3:]:
        begin = re.sub(rf"(--http-port {port} .*\n)", rf"\1{WAIT.format(port)}", begin, count=1)
    roles = "".join(f"curl -s http://127.0.0.1:{port}/activez; echo\n" for port in PORTS[3:])
    wait = f'until [ "$(({roles}) | grep -c owner)" = 2 ]; do sleep 0.1; done\n{roles}'
    text = "\n".join([begin, wait, *blocks, "kill $(jobs -p) 2> /dev/null", "wait"])
    done = run_commands(text, PORTS, postgres, tmp_path, seconds=100)
    said = [json.loads(line) for line in re.findall(r"(?m)^\{.*\}$", done.stdout)]
    owned = sorted(each["shard"] for each in said if each["role"] == "owner")
    assert (len(said), owned) == (3, ["a", "b"]), done.stdout + done.stderr
    assert re.findall(r"(?m)^(\w+)\t0\tsievemq", done.stdout) == ["a", "b"], done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("two chairs"), done.stderr

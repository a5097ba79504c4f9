"""``make bench``: micro and macro benchmarks, each beside its baseline in the same run; tables and JSON.

python -m benchmarks.run                     everything, under three minutes on two cores
python -m benchmarks.run --quick             everything, smaller: half a minute
python -m benchmarks.run --only W1,codec     some of it
python -m benchmarks.run --api aio           the asyncio SDK in place of the blocking one
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import durable, machine, shared
from benchmarks.macro import relay
from benchmarks.macro.processes import Broker, run_workload
from benchmarks.micro.timing import Row
from benchmarks.workloads import DEFAULT_COUNTS

HERE = Path(__file__).parent
MICRO = tuple(sorted(path.stem for path in (HERE / "micro").glob("[!_]*.py") if path.stem != "timing"))
SIZE = 256
RESULTS = HERE / "results"

TITLES = {
    "W1": "queue, acknowledged",
    "W1c": "the same, every send confirmed",
    "W2": "request/reply, one at a time",
    "W3": "topic, 10 subscribers",
    "W4": "queue, 4 consumers with selectors",
    "W5": "topic, 1,000 subscribers with selectors",
    "W6": "by correlation id from a queue of {n:,}",
}


def baseline_of(workload: str, n: int) -> tuple[str, Callable[[], dict[str, Any]]]:
    """What a workload is compared with: the relay doing the same traffic without being a broker."""
    if workload in ("W2", "W6"):
        return "relay round trip", lambda: relay.round_trips("repack", 2_000, SIZE)
    if workload == "W3":
        return "relay to 10 sinks", lambda: relay.fan_out("repack", max(n, 20_000), SIZE)
    return "relay, repack", lambda: relay.throughput("repack", max(n, 200_000), SIZE, workload)


def median_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The run whose rate is the median, with the rates of all."""
    ordered = sorted(rows, key=lambda row: row["msgs_per_s"])
    middle = dict(ordered[len(ordered) // 2])
    middle["rates"] = [row["msgs_per_s"] for row in rows]
    for key in ("p50_us", "p99_us"):
        if key in middle:
            middle[key] = statistics.median(row[key] for row in rows)
    return middle


def macro(workloads: list[str], quick: bool, api: str, repeats: int) -> list[dict[str, Any]]:
    """Every workload, SieveMQ and baseline alternating."""
    rows = []
    for workload in workloads:
        n = DEFAULT_COUNTS[workload] // (10 if quick else 1)
        name, baseline = baseline_of(workload, n)
        own, base = [], []
        calibrations = []
        for repeat in range(repeats):
            say(f"{workload} {TITLES[workload].format(n=n)}: run {repeat + 1} of {repeats}")
            calibrations.append(machine.calibrate_ms())
            with Broker() as broker:
                own.append(run_workload(broker, workload, n, SIZE, api, f"r{repeat}"))
                own[-1]["start_ms"] = broker.start_ms
            base.append(baseline())
        row: dict[str, Any] = {
            "workload": workload,
            "title": TITLES[workload].format(n=n),
            "api": api,
            "n": n,
            "size": SIZE,
        }
        row |= {"sievemq": median_row(own), "baseline": {"name": name, **median_row(base)}}
        row["ratio"] = round(row["sievemq"]["msgs_per_s"] / row["baseline"]["msgs_per_s"], 3)
        row["calib_ms"] = calibrations
        rows.append(row)
    return rows


def micro(names: list[str], quick: bool) -> list[dict[str, Any]]:
    """Every micro module: it has `run(seconds) -> list[Row]`."""
    rows = []
    for name in names:
        say(f"micro {name}")
        module = importlib.import_module(f"benchmarks.micro.{name}")
        results: list[Row] = module.run(0.02 if quick else 0.1)
        rows += [{"suite": name, **row._asdict(), "ratio": row.ratio} for row in results]
    return rows


def say(text: str) -> None:
    print(f"  … {text}", file=sys.stderr, flush=True)


def table(head: list[str], lines: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *lines]) for i in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [head, *lines]]
    rule = ["-" * width for width in widths]
    return "\n".join(f"| {' | '.join(row)} |" for row in [padded[0], rule, *padded[1:]])


def micro_table(rows: list[dict[str, Any]]) -> str:
    """Microseconds and how many times faster than the baseline."""
    lines = [
        [row["suite"], row["case"], f"{row['us']:.3f}", row["baseline"], f"{row['baseline_us']:.3f}", f"{row['ratio']}"]
        for row in rows
    ]
    return table(["suite", "case", "µs", "baseline", "µs", "times as fast"], lines)


def macro_table(rows: list[dict[str, Any]]) -> str:
    """Rates, share of the relay, and what each process used."""
    lines = []
    for row in rows:
        own, base = row["sievemq"], row["baseline"]
        cpu = ", ".join(f"{name} {seconds:.2f}" for name, seconds in own["cpu_s"].items())
        latency = f"{own['p50_us']:.0f} / {own['p99_us']:.0f}" if "p50_us" in own else ""
        lines.append(
            [
                row["workload"],
                row["title"],
                f"{own['msgs_per_s']:,}",
                latency,
                f"{base['name']} {base['msgs_per_s']:,}",
                f"{row['ratio']:.2f}",
                f"{cpu} of {own['seconds']:.2f} s",
            ]
        )
    return table(["", "workload", "per second", "p50 / p99 µs", "baseline", "ratio", "CPU seconds"], lines)


def start_up() -> dict[str, Any]:
    """Milliseconds from process start to the first accepted connection, and resident megabytes after it."""
    starts, resident = [], []
    for _ in range(3):
        with Broker() as broker:
            starts.append(broker.start_ms)
            resident.append(broker.rss_mb())
    return {"start_ms": statistics.median(starts), "idle_rss_mb": statistics.median(resident)}


def main() -> None:
    """Parse arguments, run, print, write JSON."""
    parser = argparse.ArgumentParser(prog="make bench", description="SieveMQ's benchmarks beside their baselines")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one run of each")
    parser.add_argument("--only", help="comma-separated workloads and micro suites")
    parser.add_argument("--api", choices=("blocking", "aio"), default="blocking")
    parser.add_argument("--repeats", type=int, help="runs of each workload; the median counts (3)")
    parser.add_argument("--json", type=Path, default=RESULTS / "latest.json", help="where the figures are written")
    arguments = parser.parse_args()
    known = [*MICRO, *DEFAULT_COUNTS, "start", "durable", "shared"]
    chosen = arguments.only.split(",") if arguments.only else known
    unknown = set(chosen) - {*known}
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    repeats = arguments.repeats or (1 if arguments.quick else 3)

    start = time.monotonic()
    report: dict[str, Any] = {"machine": machine.describe(), "calib_ms": machine.calibrate_ms()}
    head = report["machine"]
    python = f"{head['python']}, {head['build']} build"
    print(f"{head['cpu']}, {head['cores']} cores, {python}; calibration loop {report['calib_ms']} ms\n")
    if names := [name for name in MICRO if name in chosen]:
        report["micro"] = micro(names, arguments.quick)
        print(micro_table(report["micro"]), end="\n\n")
    if workloads := [name for name in DEFAULT_COUNTS if name in chosen]:
        report["macro"] = macro(workloads, arguments.quick, arguments.api, repeats)
        print(macro_table(report["macro"]), end="\n\n")
    if "start" in chosen:
        report["start"] = start_up()
        print(
            "broker: ready {start_ms:.0f} ms after its start, {idle_rss_mb:.0f} MB resident\n".format(**report["start"])
        )
    for name, rows in {"durable": durable.run, "shared": shared.run}.items():
        if name in chosen:
            report[name] = rows(arguments.quick, repeats, say)
            lines = [[row["what"], row["figure"], row["beside"], row["other"], str(row["ratio"] or "")]
                     for row in report[name]]  # fmt: skip
            print(table([name, "", "beside", "", "ratio"], lines), end="\n\n")
    report["seconds"] = round(time.monotonic() - start, 1)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{report['seconds']:.0f} s; figures in {arguments.json.name}")


if __name__ == "__main__":
    main()

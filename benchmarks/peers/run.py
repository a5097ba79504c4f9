"""``make bench-peers``: SieveMQ beside other brokers, fetched on the way; rates, processor time, ratios.

make bench-peers                                                        the whole table, five runs of each
make bench-peers ARGS="--peers nats,redis --workloads W2 --repeats 3"   some of it, beside SieveMQ
make bench-peers ARGS="--peers nats --workloads W2 --busy-poll 600"      SieveMQ with busy polling
make bench-peers BENCH_PYTHON=.venv-compiled/bin/python                 the compiled build

A whole run takes the place of the tables in benchmarks/comparison.md, unless ``--keep-table`` says no. A peer that
cannot be had is left out with one line. The brokers of a workload run together and are measured in turn, so that all
see the machine at the same speed. A run counts only if the receivers' count and sum are exact.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.machine import calibrate_ms, describe
from benchmarks.macro.processes import Broker, run_workload
from benchmarks.peers import fetch, plot
from benchmarks.peers.catalogue import OURS, PEERS, Peer, versions_of
from benchmarks.workloads import DEFAULT_COUNTS

ROOT = Path(__file__).resolve().parents[2]
COMPARISON = ROOT / "benchmarks" / "comparison.md"
BEGIN, END = "<!-- made by make bench-peers -->", "<!-- end of what make bench-peers made -->"
WORKLOADS = tuple(DEFAULT_COUNTS)
SIZE = 256
HEADINGS = {
    "W1": "queue",
    "W1c": "queue, confirmed",
    "W2": "request/reply p50 µs",
    "W3": "topic, 10 subscribers",
    "W4": "queue, 4 selectors",
    "W5": "topic, 1,000 selectors",
    "W6": "by correlation id, of 50,000",
}
#: The processes of a run, in the order in which a message meets them.
PARTS = ("producer", "caller", "broker", "responder", "consumers")
Row: TypeAlias = dict[str, Any]
Rates: TypeAlias = dict[tuple[str, str], float]


def _good(rows: list[Row], peer: str, workload: str) -> list[Row]:
    return [row for row in rows if row["peer"] == peer and row["workload"] == workload and row.get("ok")]


def medians(rows: list[Row]) -> Rates:
    """What each peer reached in each workload: messages a second; in W2 the median round trip in microseconds."""
    rates: Rates = {}
    for peer in {row["peer"] for row in rows}:
        for workload in WORKLOADS:
            if good := _good(rows, peer, workload):
                key = "p50_us" if workload == "W2" else "msgs_per_s"
                rates[peer, workload] = statistics.median(row[key] for row in good)
    return rates


def costs(rows: list[Row]) -> dict[tuple[str, str], dict[str, float]]:
    """Microseconds of processor time for a message, by process: medians."""
    found = {}
    for peer, workload in medians(rows):
        good = _good(rows, peer, workload)
        parts = [part for part in PARTS if part in good[0].get("us_per_message", ())]
        found[peer, workload] = {part: statistics.median(row["us_per_message"][part] for row in good) for part in parts}
    return found


def ratio(rates: Rates, workload: str, selecting: bool = False, sdks: Collection[str] = OURS) -> float | None:
    """SieveMQ's better SDK as a multiple of the best peer, or of the best that selects; above 1 is ahead."""
    ours = [rate for (peer, w), rate in rates.items() if w == workload and peer in sdks]
    theirs = [
        rate
        for (peer, w), rate in rates.items()
        if w == workload
        and peer not in OURS
        and PEERS[peer].rival
        and not (selecting and workload in PEERS[peer].equivalent)
    ]
    if not ours or not theirs:
        return None
    return min(theirs) / min(ours) if workload == "W2" else max(ours) / max(theirs)


def compiled(rows: list[Row]) -> bool:
    """Whether it was SieveMQ's compiled build that was measured."""
    return any(row.get("versions", {}).get("build") == "compiled" for row in rows if row["peer"] in OURS)


def _table(rows: list[Row], cell: Callable[[str, str], str | None]) -> list[str]:
    lines = [f"| | {' | '.join(HEADINGS[w] for w in WORKLOADS)} |", "|---" * (len(WORKLOADS) + 1) + "|"]
    measured = {row["peer"] for row in rows}
    for name, peer in PEERS.items():
        if name in measured:
            title = peer.title + (", compiled" if name in OURS and compiled(rows) else "")
            lines.append(f"| {title} | {' | '.join(cell(name, w) or '-' for w in WORKLOADS)} |")
    return lines


def rates_table(rows: list[Row]) -> str:
    """Medians of every peer, and SieveMQ's as a multiple of the best peer's."""
    rates = medians(rows)

    def cell(peer: str, workload: str) -> str | None:
        if (peer, workload) not in rates:
            return None
        less = PEERS[peer].equivalent.get(workload)
        return f"{rates[peer, workload]:,.0f}" + (f" ({less})" if less else "")

    lines = _table(rows, cell)
    for title, selecting in (("SieveMQ : best peer", False), ("SieveMQ : best that selects", True)):
        found = [ratio(rates, workload, selecting) for workload in WORKLOADS]
        lines.append(f"| {title} | {' | '.join('-' if value is None else f'{value:.2f}' for value in found)} |")
    return "\n".join(lines)


def costs_table(rows: list[Row]) -> str:
    """Microseconds of processor time for a message: all processes, and each in the order of :data:`PARTS`."""
    found = costs(rows)

    def cell(peer: str, workload: str) -> str | None:
        parts = found.get((peer, workload))
        if not parts:
            return None
        return f"{sum(parts.values()):,.1f} ({' + '.join(f'{each:,.1f}' for each in parts.values())})"

    return "\n".join(_table(rows, cell))


def tables(rows: list[Row]) -> str:
    """Both tables, the second with a sentence before it."""
    return (
        f"{rates_table(rows)}\n\nProcessor time of a message in µs: of all processes, and in brackets of producer (or "
        f"caller), broker, and consumers (or responder).\n\n{costs_table(rows)}"
    )


def write_tables(text: str, page: Path = COMPARISON, begin: str = BEGIN, end: str = END) -> bool:
    """Put the tables between their marks; False if the page has none."""
    old = page.read_text()
    if begin not in old or end not in old:
        return False
    head, _, rest = old.partition(begin)
    _, _, tail = rest.partition(end)
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}")
    return True


def measure(
    peers: Mapping[str, Peer], workload: str, messages: int | None, repeats: int, emit: Callable[[Row], None]
) -> dict[str, str]:
    """Start the broker of each peer that has the workload, and run it on all of them in turn, so often.

    Returns:
        The peers that cannot be had here or did not start, with the reason.
    """
    n = messages or DEFAULT_COUNTS[workload]
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        brokers = {}
        for name, peer in peers.items():
            try:
                brokers[name] = stack.enter_context(peer.start(workload))
            except (fetch.MissingError, RuntimeError) as reason:
                missing[name] = str(reason)[-300:]
        for repeat in range(repeats):
            for name, broker in brokers.items():
                peer = peers[name]
                row: Row = {"peer": name, "workload": workload, "repeat": repeat, "n": n, "calib_ms": calibrate_ms()}
                try:
                    row |= run_workload(broker, workload, n, SIZE, name, f"r{repeat}", peer.command)
                    row["ok"] = True
                except RuntimeError as error:
                    row |= {"ok": False, "error": str(error)[-600:]}
                row |= {"settings": peer.settings, "client": peer.workloads[workload], "versions": versions_of(name)}
                emit({**row, "start_ms": broker.start_ms})
    return missing


def polling(name: str, microseconds: int) -> Peer:
    """SieveMQ, its broker and its client polling for so long before they block."""
    return replace(
        PEERS[name],
        settings=f"in memory, busy_poll {microseconds}",
        start=lambda workload: Broker(
            "--busy-poll", str(microseconds), url=f"sievemq://127.0.0.1:{{port}}?busy_poll={microseconds}"
        ),
    )


def _chosen(parser: argparse.ArgumentParser, kind: str, given: str | None, known: tuple[str, ...]) -> list[str]:
    names = given.split(",") if given else list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no {kind} {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def main(arguments: list[str] | None = None) -> None:
    """Run the chosen peers and workloads, append rows, print and write the tables."""
    parser = argparse.ArgumentParser(
        prog="make bench-peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    others = tuple(name for name in PEERS if name not in OURS)
    parser.add_argument("--peers", help=f"comma-separated, beside SieveMQ: {', '.join(others)}; all")
    parser.add_argument("--workloads", help=f"comma-separated: {', '.join(WORKLOADS)}; all")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each; the median counts")
    parser.add_argument("--messages", type=int, help="of each workload; its own number")
    parser.add_argument("--busy-poll", type=int, help="microseconds for which SieveMQ polls; 0 by default")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "peers")
    parser.add_argument("--keep-table", action="store_true", help="leave benchmarks/comparison.md as it is")
    given = parser.parse_args(arguments)
    peers = _chosen(parser, "peer", given.peers, others)
    workloads = _chosen(parser, "workload", given.workloads, WORKLOADS)
    if given.repeats < 1 or (given.messages is not None and given.messages < 1):
        parser.error("--repeats and --messages are 1 or more")
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    log = given.out / "rows.jsonl"
    log.write_text("")

    def emit(row: Row) -> None:
        rows.append(row)
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        rate = f"{row['msgs_per_s']:>9,.0f}/s" if row["ok"] else f"does not count: {row['error'][-300:]}"
        spent = " + ".join(f"{part} {us:.1f}" for part, us in row.get("us_per_message", {}).items())
        print(f"{row['peer']:14} {row['workload']:4} {rate} {row.get('p50_us', '')}  {spent}", flush=True)

    chosen = {name: PEERS[name] for name in (*OURS, *peers)}
    if given.busy_poll is not None:
        chosen |= {name: polling(name, given.busy_poll) for name in OURS}
    missing: dict[str, str] = {}
    for workload in workloads:
        having = {name: peer for name, peer in chosen.items() if name not in missing and workload in peer.workloads}
        for name, reason in measure(having, workload, given.messages, given.repeats, emit).items():
            missing[name] = reason
            print(f"{name} is left out: {reason}", flush=True)
        rounds = [medians([row for row in rows if row["repeat"] == repeat]) for repeat in range(given.repeats)]
        for name in OURS:
            each = [ratio(rates, workload, sdks=[name]) for rates in rounds]
            print(f"{name} {workload} : best peer, by round {' '.join(f'{x:.2f}' for x in each if x)}", flush=True)
    text = tables(rows)
    (given.out / "tables.md").write_text(text + "\n")
    (given.out / "machine.json").write_text(json.dumps(describe(), indent=1) + "\n")
    print("\n" + text)
    rates = medians(rows)
    whole = (
        given.messages is None
        and given.busy_poll is None
        and not missing
        and all(ratio(rates, workload) for workload in WORKLOADS)
    )
    if given.keep_table or not whole:
        print(f"\n{COMPARISON.name} keeps its tables")
    elif not write_tables(text):
        print(f"\nno {BEGIN} in {COMPARISON.name}: it keeps its tables")
    plot.draw(rates, given.out / "peers.svg")


if __name__ == "__main__":
    main()

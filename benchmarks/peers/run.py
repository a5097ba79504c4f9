"""``make bench-peers``: SieveMQ and the brokers that are installed, side by side through the peers harness.

The table it makes takes the place of the one in benchmarks/comparison.md, unless ``--keep-table`` says no.

The harness stays as it is: SieveMQ's entry of its table of brokers is added here at run time, and the package of its
drivers also searches this folder. Runs under a Python that has the harness' requirements; parts of SieveMQ
are played by BENCH_PYTHON.

    run.py HARNESS --out FOLDER [--peers a,b] [--workloads W1,W2] [--reps 3] [--messages N] [--keep-table]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORKLOADS = ("W1", "W1c", "W2", "W3", "W4", "W5", "W6")
OURS = ("sievemq", "sievemq_aio")
COMPARISON = ROOT / "benchmarks" / "comparison.md"
BEGIN, END = "<!-- made by make bench-peers -->", "<!-- end of what make bench-peers made -->"
#: How the table calls them.
NAMES = {
    "sievemq": "**SieveMQ**, blocking SDK",
    "sievemq_aio": "**SieveMQ**, asyncio SDK",
    "activemq_java": "ActiveMQ Classic, Java client",
    "activemq_stomp": "ActiveMQ Classic, stomp.py",
    "nats": "NATS core (no acknowledgements)",
    "nats_js": "NATS JetStream",
    "redis": "Redis streams, pub/sub",
    "rabbitmq": "RabbitMQ, aio-pika",
    "rabbitmq_pika": "RabbitMQ, pika",
    "mosquitto": "Mosquitto, QoS 1",
}
#: Peers that do less than a selector does in a workload: a subject, channel, key or binding for each value.
EQUIVALENT = {
    ("nats", "W5"): "subjects",
    ("redis", "W5"): "channels",
    ("rabbitmq", "W5"): "headers",
    ("nats_js", "W6"): "subject",
    ("redis", "W6"): "key",
}
HEADINGS = {
    "W1": "queue",
    "W1c": "queue, confirmed",
    "W2": "request/reply p50 µs",
    "W3": "topic, 10 subscribers",
    "W4": "queue, 4 selectors",
    "W5": "topic, 1,000 selectors",
    "W6": "by correlation id, of 50,000",
}
# Peer -> a program of its server; a peer without it is not installed.
SERVERS = {
    "activemq_java": "activemq",
    "activemq_stomp": "activemq",
    "nats": "nats-server",
    "nats_js": "nats-server",
    "redis": "redis-server",
    "rabbitmq": "rabbitmq-server",
    "rabbitmq_pika": "rabbitmq-server",
    "mosquitto": "mosquitto",
}
SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/share/activemq/bin"])


def broker_command(folder: str) -> tuple[list[str], dict[str, str]]:
    """How the harness starts SieveMQ's broker: as anybody would, in memory, on the loopback."""
    program = Path(os.environ.get("BENCH_PYTHON", sys.executable)).with_name("sievemq")
    return [str(program), "broker", "--host", "127.0.0.1", "--port", "7672", "--http-port", "0"], {}


def join(harness: Path) -> Any:
    """Make SieveMQ one of the harness' peers; return the harness' runner."""
    sys.path[0] = str(harness)  # in place of this folder, whose sievemq.py must not be taken for the SDK
    sys.path.append(str(ROOT))
    procs = importlib.import_module("brokers.procs")
    # An open port answers nothing by itself: the broker waits for HELLO. A frame that is no HELLO is refused with an
    # ERROR, which is the sign that it is there.
    procs.PROBES["sievemq"] = (2).to_bytes(4, "big") + b"\x91\x00"
    procs.SPECS["sievemq"] = (broker_command, 7672, "sievemq", "in memory, default settings, uvloop")
    drivers = importlib.import_module("drivers")
    drivers.__path__.append(str(HERE))
    return importlib.import_module("run")


def installed() -> list[str]:
    """The peers whose servers are on this machine."""
    return [peer for peer, server in SERVERS.items() if shutil.which(server, path=SEARCH)]


def medians(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """What each peer reached in each workload: messages a second; in W2 the median round trip in microseconds."""
    rates: dict[tuple[str, str], float] = {}
    for peer in {row["peer"] for row in rows}:
        for workload in WORKLOADS:
            good = [row for row in rows if row["peer"] == peer and row["workload"] == workload and row.get("ok")]
            if good:
                key = "p50_us" if workload == "W2" else "msgs_per_s"
                rates[peer, workload] = statistics.median(row[key] for row in good)
    return rates


def ratio(rates: dict[tuple[str, str], float], workload: str, selecting: bool = False) -> float | None:
    """SieveMQ's better SDK as a multiple of the best peer, or of the best that selects; above 1 is ahead."""
    ours = [rate for (peer, w), rate in rates.items() if w == workload and peer in OURS]
    theirs = [
        rate
        for (peer, w), rate in rates.items()
        if w == workload and peer not in OURS and not (selecting and (peer, w) in EQUIVALENT)
    ]
    if not ours or not theirs:
        return None
    return min(theirs) / min(ours) if workload == "W2" else max(ours) / max(theirs)


def compiled(rows: list[dict[str, Any]]) -> bool:
    """Whether it was SieveMQ's compiled build that was measured."""
    return any(row.get("versions", {}).get("build") == "compiled" for row in rows if row["peer"] in OURS)


def ratios(rates: dict[tuple[str, str], float], *, compiled: bool = False) -> str:
    """The table: medians of every peer, and SieveMQ's as a multiple of the best peer's.

    Args:
        rates: what :func:`medians` made of the rows.
        compiled: whether it was SieveMQ's compiled build; its rows then say so.
    """
    lines = [f"| | {' | '.join(HEADINGS[w] for w in WORKLOADS)} |", "|---" * 8 + "|"]
    order = list(NAMES)
    for peer in sorted({peer for peer, _ in rates}, key=lambda peer: order.index(peer) if peer in order else 99):
        cells = []
        for workload in WORKLOADS:
            known = f"{rates[peer, workload]:,.0f}" if (peer, workload) in rates else "-"
            less = EQUIVALENT.get((peer, workload))
            cells.append(f"{known} ({less})" if less and known != "-" else known)
        name = NAMES.get(peer, peer) + (", compiled" if compiled and peer in OURS else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for title, selecting in (("SieveMQ : best peer", False), ("SieveMQ : best that selects", True)):
        found = [ratio(rates, workload, selecting) for workload in WORKLOADS]
        lines.append(f"| {title} | {' | '.join('-' if value is None else f'{value:.2f}' for value in found)} |")
    return "\n".join(lines)


def write_table(table: str, page: Path = COMPARISON) -> bool:
    """Put the table between its marks; False if the page has none."""
    text = page.read_text()
    if BEGIN not in text or END not in text:
        return False
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}")
    return True


def main() -> None:
    """Run the chosen peers and workloads, append rows, print and write the tables."""
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__.partition("\n")[0])
    parser.add_argument("harness", type=Path, help="folder of the peers harness")
    parser.add_argument("--out", type=Path, required=True, help="folder for rows and tables")
    parser.add_argument("--peers", help="comma-separated; SieveMQ and all that are installed")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--messages", type=int, help="of each workload; the harness' default")
    parser.add_argument(
        "--keep-table", action="store_true", help="leave the table in benchmarks/comparison.md as it is"
    )
    parser.add_argument("--lock", action="store_true", help="take the machine's measurement lock around each run")
    arguments = parser.parse_args()
    harness = arguments.harness.resolve()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    runner = join(harness)
    peers = arguments.peers.split(",") if arguments.peers else [*OURS, *installed()]
    rows: list[dict[str, Any]] = []
    log = out / "rows.jsonl"
    log.write_text("")

    def emit(row: dict[str, Any]) -> None:
        rows.append(row)
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        rate = f"{row['msgs_per_s']:,.0f}/s" if row.get("ok") else f"NOT OK {row.get('error', '')[-200:]}"
        print(f"{row['peer']:16} {row['workload']:4} {rate} {row.get('p50_us', '')}", flush=True)

    for workload in arguments.workloads.split(","):  # peers alternate, so that all see the machine at the same speed
        for peer in peers:
            try:
                runner.run_peer(peer, workload, arguments.messages, 256, arguments.reps, arguments.lock, None, emit)
            except RuntimeError as error:
                print(f"{peer:16} {workload:4} did not run: {str(error)[-300:]}", flush=True)
    rates = medians(rows)
    table = ratios(rates, compiled=compiled(rows))
    (out / "table.md").write_text(table + "\n")
    print("\n" + table)
    whole = all(ratio(rates, workload) is not None for workload in WORKLOADS) and arguments.messages is None
    if arguments.keep_table or not whole:
        print(f"{COMPARISON.name} keeps its table")
    elif not write_table(table):
        print(f"no {BEGIN} in {COMPARISON.name}: it keeps its table")
    plot = [os.environ.get("BENCH_PYTHON", sys.executable), str(HERE / "plot.py"), str(log), str(out / "peers.svg")]
    subprocess.run(plot, check=False)  # says itself what is missing
    report = [sys.executable, str(harness / "report.py"), "--rows", str(log)]
    subprocess.run([*report, "--json", str(out / "results.json"), "--md", str(out / "results.md")], check=True)


if __name__ == "__main__":
    main()

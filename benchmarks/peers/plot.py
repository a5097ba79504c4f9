"""Bars of what every broker reached, from the rows of ``make bench-peers``: ``plot.py ROWS.jsonl OUT.svg``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])  # in place of this folder, whose sievemq.py is no SDK

from benchmarks.peers.run import HEADINGS, NAMES, OURS, WORKLOADS, medians  # noqa: E402


def main() -> None:
    """Draw one panel per workload; longer bars are better, but for the round trip."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        print("matplotlib is not installed (extra spark): no plot")
        return
    rates = medians([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()])
    peers = [peer for peer in NAMES if any((peer, workload) in rates for workload in WORKLOADS)][::-1]
    figure = Figure(figsize=(9, 1.2 + 0.24 * len(peers) * len(WORKLOADS)), layout="constrained")
    FigureCanvasSVG(figure)
    for number, workload in enumerate(WORKLOADS, 1):
        axes = figure.add_subplot(len(WORKLOADS), 1, number)
        values = [rates.get((peer, workload), 0.0) for peer in peers]
        colors = ["#2a6f97" if peer in OURS else "#b8b8b8" for peer in peers]
        axes.barh([NAMES[peer].replace("**", "") for peer in peers], values, color=colors)
        axes.set_title(f"{workload}: {HEADINGS[workload]}{'' if workload == 'W2' else ', messages/s'}", fontsize=9)
        axes.tick_params(labelsize=7)
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()

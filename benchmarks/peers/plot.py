"""Bars of what every broker reached."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.catalogue import OURS, PEERS


def draw(rates: Mapping[tuple[str, str], float], out: Path) -> None:
    """Draw one panel per workload; longer bars are better, but for the round trip."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed (extra spark)")
        return
    workloads = sorted({workload for _, workload in rates})
    peers = [peer for peer in PEERS if any((peer, workload) in rates for workload in workloads)][::-1]
    figure = Figure(figsize=(9, 1.2 + 0.24 * len(peers) * len(workloads)), layout="constrained")
    FigureCanvasSVG(figure)
    for number, workload in enumerate(workloads, 1):
        axes = figure.add_subplot(len(workloads), 1, number)
        values = [rates.get((peer, workload), 0.0) for peer in peers]
        colors = ["#2a6f97" if peer in OURS else "#b8b8b8" for peer in peers]
        axes.barh([PEERS[peer].title.replace("**", "") for peer in peers], values, color=colors)
        axes.set_title(f"{workload}: {'p50 µs' if workload == 'W2' else 'messages/s'}", fontsize=9)
        axes.tick_params(labelsize=7)
    figure.savefig(out, metadata={"Date": None})

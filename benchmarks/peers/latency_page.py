"""The figures of ``make bench-latency PEERS=all`` as tables, as a plot, and as a sentence of the README.

All of it is made from benchmarks/latency.json; the plot is SVG, which needs no library.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.peers.catalogue import OURS, PEERS
from benchmarks.peers.run import COMPARISON, write_tables

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "benchmarks" / "latency.json"
PLOT = ROOT / "benchmarks" / "latency.svg"
README = ROOT / "README.md"
BEGIN, END = "<!-- made by make bench-latency -->", "<!-- end of what make bench-latency made -->"
#: Messages a second that the README names.
NAMED = "1000"
#: Load of the machine up to which a measurement goes into the README.
QUIET = 1.0
#: Characters of a line of the README.
_WRAPPED = 120

Figures: TypeAlias = Mapping[str, Any]

# -- tables ------------------------------------------------------------------------------------------------------------


def _columns(figures: Figures, shares: bool) -> list[str]:
    """What was measured, in order: shares of a peer's own rate, or rates that are the same for all."""
    found = {at for peer in figures["peers"].values() for at in peer["at"] if at.endswith("%") == shares}
    return sorted(found, key=lambda at: int(at.rstrip("%")))


def _title(name: str, figures: Figures) -> str:
    return PEERS[name].title + (", compiled" if name in OURS and figures["machine"]["build"] == "compiled" else "")


def _table(figures: Figures, shares: bool) -> str:
    columns = _columns(figures, shares)
    heads = [f"{at if shares else f'{int(at):,}/s'}: p50" for at in columns]
    lines = [f"| | {'messages/s | ' if shares else ''}{' | p99 | '.join(heads)} | p99 |"]
    lines.append("|---" * (1 + shares + 2 * len(columns)) + "|")
    for name, peer in figures["peers"].items():
        cells = [f"{peer['sustained']:,.0f}"] if shares else []
        for at in columns:
            found = peer["at"].get(at)
            cells += [f"{found[key]:,.0f}" if found else "-" for key in ("p50", "p99")]
        lines.append(f"| {_title(name, figures)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def is_quiet(figures: Figures) -> bool:
    """True if hardly anything else ran on the machine."""
    return bool(figures["load"][0] <= QUIET)


def _rounds(figures: Figures) -> str:
    repeats = figures["repeats"]
    rounds = "one round" if repeats == 1 else f"medians of {repeats} rounds"
    return f"{rounds} on {figures['machine']['cores']} cores"


def _measured(figures: Figures) -> str:
    """How it was measured, and how busy the machine was."""
    before, _ = figures["load"]  # what it was later is the benchmark's own
    low, high = figures["calib_ms"]
    return f"{_rounds(figures)} with a load of {before:g} before (calibration loop {low:g} to {high:g} ms)"


def tables(figures: Figures) -> str:
    """Both tables, with the state of the machine."""
    busy = "" if is_quiet(figures) else " The machine was busy: the figures are those of its other work as well."
    return (
        f"Microseconds, {_measured(figures)}, {figures['seconds']:g} s at each rate. `-`: more than the broker "
        f"sustains.{busy}\n\n{_table(figures, shares=False)}\n\nAt shares of what each broker sustains itself, "
        f"which the second column has:\n\n{_table(figures, shares=True)}"
    )


def sentence(figures: Figures) -> str:
    """SieveMQ's better SDK beside the best of the others, at one rate, on a quiet machine."""
    found = {name: peer["at"][NAMED] for name, peer in figures["peers"].items() if NAMED in peer["at"]}
    ours = min((name for name in found if name in OURS), key=lambda name: float(found[name]["p50"]))
    other = min((name for name in found if name not in OURS), key=lambda name: float(found[name]["p50"]))

    def shown(name: str) -> str:
        return f"{found[name]['p50'] / 1e3:.2f} ms (p50) and {found[name]['p99'] / 1e3:.1f} ms (p99)"

    return textwrap.fill(
        f"At {int(NAMED):,} messages a second, a message takes {shown(ours)} from send to receipt with the "
        f"{PEERS[ours].title.partition(', ')[2]}, and {shown(other)} with the fastest other, "
        f"{PEERS[other].title.partition(' (')[0].partition(',')[0]}: {_rounds(figures)}.",
        width=_WRAPPED,
    )


# -- the plot ----------------------------------------------------------------------------------------------------------

_LEFT: Final = 250
_WIDTH: Final = 560
_ROW: Final = 20
_HEAD: Final = 34
_OURS, _OTHERS, _GRID, _TEXT = "#2a6f97", "#8a8a8a", "#dddddd", "#333333"


def _spans(figures: Figures) -> tuple[float, float]:
    """Powers of ten around all that is drawn."""
    values = [
        row[key]
        for peer in figures["peers"].values()
        for at, row in peer["at"].items()
        if not at.endswith("%")
        for key in ("p50", "p99")
    ]
    return 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))


def _unit(us: float) -> str:
    return f"{us:g} µs" if us < 1_000 else f"{us / 1_000:g} ms" if us < 1_000_000 else f"{us / 1_000_000:g} s"


def _text(x: float, y: float, text: str, anchor: str = "start", color: str = _TEXT, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


def _panel(figures: Figures, at: str, top: float, low: float, high: float) -> Iterator[str]:
    scale = _WIDTH / math.log10(high / low)

    def place(us: float) -> float:
        return _LEFT + math.log10(us / low) * scale

    bottom = top + _ROW * len(figures["peers"])
    yield _text(_LEFT, top - 10, f"{int(at):,} messages a second", weight="bold")
    tick = low
    while tick <= high:
        x = place(tick)
        yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="{_GRID}"/>'
        yield _text(x, bottom + 13, _unit(tick), "middle")
        tick *= 10
    for number, (name, peer) in enumerate(figures["peers"].items()):
        y = top + _ROW * (number + 0.5)
        color = _OURS if name in OURS else _OTHERS
        title = PEERS[name].title.replace("**", "").partition(" (")[0]
        yield _text(_LEFT - 10, y + 4, title, "end", color if name in OURS else _TEXT)
        if (row := peer["at"].get(at)) is None:
            yield _text(_LEFT + 6, y + 4, "sustains less", color=_OTHERS)
            continue
        left, right = place(row["p50"]), place(row["p99"])
        yield f'<line x1="{left:.1f}" y1="{y}" x2="{right:.1f}" y2="{y}" stroke="{color}" stroke-width="2"/>'
        yield f'<circle cx="{left:.1f}" cy="{y}" r="5" fill="{color}"/>'
        yield f'<circle cx="{right:.1f}" cy="{y}" r="4" fill="white" stroke="{color}" stroke-width="2"/>'


def plot(figures: Figures) -> str:
    """From p50 to p99 of each broker, a panel for each rate that is the same for all."""
    columns, (low, high) = _columns(figures, shares=False), _spans(figures)
    step = _HEAD + _ROW * len(figures["peers"]) + 20
    width, height = _LEFT + _WIDTH + 40, 30 + step * len(columns)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(_LEFT, 20, "From send to receipt: filled p50, open p99; further left is faster"),
    ]
    for number, at in enumerate(columns):
        lines.extend(_panel(figures, at, 30 + _HEAD + step * number, low, high))
    return "\n".join([*lines, "</svg>"]) + "\n"


def write(figures: Figures, page: Path = COMPARISON, readme: Path = README, picture: Path = PLOT) -> None:
    """Put the tables and the plot where they belong; the sentence only if the machine was quiet."""
    write_tables(tables(figures), page, BEGIN, END)
    picture.write_text(plot(figures))
    if is_quiet(figures):
        write_tables(sentence(figures), readme, BEGIN, END)

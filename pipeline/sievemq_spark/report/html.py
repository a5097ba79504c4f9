"""One HTML file with tables and charts: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sievemq_spark.errors import MissingSparkError
from sievemq_spark.report.parts import Chart, Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LABELS = 12

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h2::first-letter { text-transform: uppercase; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: right; padding: .25rem .75rem; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; font-family: ui-monospace, monospace; }
figure { margin: 0; background: #fff; border-radius: .5rem; padding: .5rem; max-width: 60rem; }
svg { width: 100%; height: auto; }
footer { margin-top: 3rem; opacity: .7; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
{% for line in about %}<p>{{ line }}</p>
{% endfor %}
{% for part in parts %}
<section>
<h2>{{ part.title }}</h2>
{% if part.svg %}<figure role="img" aria-label="{{ part.title }}">{{ part.svg }}</figure>
{% else %}{% if part.rows|length > 24 %}<details{% if loop.first %} open{% endif %}>
<summary>{{ part.rows|length }} rows</summary>{% endif %}
<div class="wide"><table>
<thead><tr>{% for name in part.columns %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in part.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody>
</table></div>{% if part.rows|length > 24 %}</details>{% endif %}{% endif %}
</section>
{% endfor %}
<footer>SieveMQ</footer>
</body>
</html>
"""


def write_html(path: str | Path, title: str, parts: Sequence[Part], about: Sequence[str] = ()) -> None:
    """Write a report.

    Args:
        path: the file; replaced if it exists.
        parts: tables and charts, in order.
        about: lines below the title, such as the source of the messages.

    Raises:
        MissingSparkError: a library of the extra ``spark`` is missing.
        OSError: the file cannot be written.
    """
    try:
        from jinja2 import Environment
        from markupsafe import Markup
    except ModuleNotFoundError as error:
        raise MissingSparkError(f"{error.name} is not installed: pip install 'sievemq[spark]'") from error
    shown: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Chart):
            shown.append({"title": part.title, "svg": Markup(drawn(part))})  # noqa: S704  # made below, escaped there
        else:
            shown.append({"title": part.title, "columns": part.columns, "rows": part.rows})
    page = Environment(autoescape=True).from_string(_PAGE).render(title=title, about=about, parts=shown)
    Path(path).write_text(page, encoding="utf-8")


def drawn(chart: Chart) -> str:
    """A chart as SVG, to stand inside HTML.

    Raises:
        MissingSparkError: matplotlib is missing.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingSparkError(f"{error.name} is not installed: pip install 'sievemq[spark]'") from error
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.title, "font.size": 9}):
        figure = Figure(figsize=(9, 3), layout="constrained")
        FigureCanvasSVG(figure)
        _plot(figure.add_subplot(), chart)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    return text[text.index("<svg") :]


def _plot(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator

    places = list(range(len(chart.labels)))
    many = max(len(chart.series), 1)
    for number, (name, figures) in enumerate(chart.series.items()):
        if chart.bars:
            axes.bar([place + number * 0.8 / many for place in places], figures, width=0.8 / many, label=name)
        else:
            axes.plot(places, figures, label=name, linewidth=1.5, marker="." if len(places) < 50 else None)
    step = max(1, -(-len(places) // _MOST_LABELS))
    # A `$` in a label is a `$`, not the beginning of a formula.
    slanted: dict[str, Any] = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if step > 1 else {}
    axes.set_xticks(places[::step], list(chart.labels)[::step], parse_math=False, **slanted)
    axes.margins(x=0.01)
    axes.set_axisbelow(True)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))  # of messages
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    if many > 1:
        # Above the axes, where it covers nothing.
        above = axes.legend(frameon=False, ncols=min(many, 8), loc="lower left", bbox_to_anchor=(0, 1))
        for text in above.get_texts():
            text.set_parse_math(False)

"""Charts on paper: each one as PNG at 300 dots per inch and as PDF, by matplotlib."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ibcl.experiments.evaluation.chart import Chart, Line, Panel, Ranking
from ibcl.experiments.evaluation.style import DASHES, MARKERS, PALETTE, SETTINGS
from ibcl.experiments.methods.registration import ALL_DATA, GROUPS

# Lines this close at their ends, in shares of the axis, get their names moved apart.
_APART = 0.062

# Points that are marked one by one; more of them are a curve.
# Letters of all names of places on an axis that fit beside each other.
_BESIDE_EACH_OTHER = 24
_MARKED = 50


def write_figures(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Draw every chart as ``folder/name.png`` and ``folder/name.pdf``; return the PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in charts:
        with mpl.rc_context(SETTINGS):
            figure = draw(chart)
            path = folder / f"{chart.name}.png"
            figure.savefig(path, metadata={"Software": None})
            # Without a date the same results give the same file.
            figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
        written.append(path)
    return written


def figure_as_png(chart: Chart) -> str:
    """Draw a chart at half the resolution, as base64 text for a page."""
    buffer = BytesIO()
    with mpl.rc_context(SETTINGS):
        draw(chart).savefig(buffer, dpi=150, metadata={"Software": None})
    return b64encode(buffer.getvalue()).decode()


def draw(chart: Chart) -> Figure:
    """Draw one chart; lines are named at their ends."""
    if chart.rankings:
        return _draw_rankings(chart)
    count = len(chart.panels)
    figure = Figure(figsize=(max(4.2, 3.1 * count), 2.9), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(chart.title, fontsize=9)
    for position, panel in enumerate(chart.panels):
        axes: Any = figure.add_subplot(1, count, position + 1)
        _draw_panel(axes, panel)
    return figure


def _draw_panel(axes: Any, panel: Panel) -> None:
    for line in panel.lines:
        _draw_line(axes, line)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.set_title(panel.title)
    if panel.scale != "linear":
        axes.set_xscale("log")
    if panel.scale == "log-log":
        # 0 is on the axis, below the smallest number.
        smallest = min((y for line in panel.lines for y in line.y if y > 0), default=1.0)
        axes.set_yscale("symlog", linthresh=smallest)
        axes.set_ylim(bottom=-0.2 * smallest)
    elif panel.x == "task":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.lines and all(isinstance(x, str) for x in panel.lines[0].x):
        letters = sum(len(str(x)) for x in panel.lines[0].x)
        axes.tick_params(axis="x", labelrotation=30 if letters > _BESIDE_EACH_OTHER else 0)
    _name_lines(axes, panel)


def _draw_line(axes: Any, line: Line) -> None:
    y, width = np.asarray(line.y), np.asarray(line.half_width)
    style = {
        "color": line.look.hue,
        "marker": MARKERS[line.look.marker] if len(line.x) <= _MARKED else None,
        "linestyle": DASHES[line.look.dashes] if line.joined else "none",
    }
    axes.plot(line.x, y, **style)
    if np.isfinite(width).any():
        width = np.nan_to_num(width)
        if len(y) > 4 and not isinstance(line.x[0], str):
            axes.fill_between(
                line.x, y - width, y + width, color=line.look.hue, alpha=0.15, linewidth=0
            )
        else:
            axes.errorbar(line.x, y, width, color=line.look.hue, linestyle="none", capsize=2)


def _name_lines(axes: Any, panel: Panel) -> None:
    """Write each line's name at its end, moved apart where ends are close."""
    if not panel.lines:
        return
    axes.margins(x=0.06)
    # Asking for the limits settles them, and with them where a value is on the axis.
    left, _ = axes.get_xlim()
    axes.get_ylim()
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = []
    for line in panel.lines:
        known = [value for value in line.y if not np.isnan(value)]
        ends.append(float(to_axes.transform((left, known[-1]))[1]) if known else 0.5)
    places = _spread(ends)
    for line, place in zip(panel.lines, places, strict=True):
        axes.annotate(
            line.name,
            (1.0, place),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            color=line.look.hue,
            fontsize=6.5,
            va="center",
            annotation_clip=False,
        )


def _spread(ends: Sequence[float]) -> list[float]:
    """Move positions apart, keeping their order, around where they were."""
    order = np.argsort(ends, kind="stable")
    placed = np.clip(np.asarray(ends, dtype=float)[order], 0, 1)
    for _ in range(100):
        gaps = np.diff(placed)
        close = np.flatnonzero(gaps < _APART - 1e-6)
        if not len(close):
            break
        for first in close:
            push = (_APART - (placed[first + 1] - placed[first])) / 2
            if push > 0:
                placed[first] -= push
                placed[first + 1] += push
    result = np.empty_like(placed)
    result[order] = placed
    return [float(value) for value in result]


def _draw_rankings(chart: Chart) -> Figure:
    """All contenders of all benchmarks: rows are shared, each benchmark has its own scale."""
    rows: dict[str, str] = {}
    for ranking in chart.rankings:
        rows |= dict(zip(ranking.names, ranking.groups, strict=True))
    ordered = sorted(rows, key=lambda name: GROUPS.index(rows[name]))
    places: dict[str, float] = {}
    height, before = 0.0, None
    for name in ordered:
        height += 1.0 if before in (None, rows[name]) else 1.5
        places[name], before = height, rows[name]
    count = len(chart.rankings)
    figure = Figure(figsize=(2.4 + 1.5 * count, 0.8 + 0.155 * (height + 1)), layout="constrained")
    FigureCanvasAgg(figure)
    first: Any = None
    for position, ranking in enumerate(chart.rankings):
        axes: Any = figure.add_subplot(1, count, position + 1, sharey=first)
        first = first or axes
        _draw_ranking(axes, ranking, places)
        if position == 0:
            axes.set_yticks(list(places.values()), list(places), fontsize=6.5)
            axes.set_ylim(height + 0.8, 0.2)
        else:
            axes.tick_params(axis="y", labelleft=False, length=0)
    return figure


def _draw_ranking(axes: Any, ranking: Ranking, places: dict[str, float]) -> None:
    reference = [
        value
        for name, group, value in zip(ranking.names, ranking.groups, ranking.values, strict=True)
        if group == ALL_DATA and name == "oracle"
    ]
    for value in reference:
        axes.axvline(value, color="#444444", linestyle="dotted", linewidth=0.9)
    best = max(ranking.values)
    # Those far below would squeeze the others together; they are at the edge, with their number.
    floor = max(min(ranking.values), best - 12)
    for name, group, value, width in zip(
        ranking.names, ranking.groups, ranking.values, ranking.half_widths, strict=True
    ):
        if value < floor:
            axes.annotate(
                f"◂ {value:.1f}",
                (0.02, places[name]),
                xycoords=("axes fraction", "data"),
                fontsize=6,
                va="center",
            )
            continue
        kind = GROUPS.index(group)
        axes.errorbar(
            value,
            places[name],
            xerr=None if np.isnan(width) else width,
            color=PALETTE[kind],
            marker=MARKERS[kind],
            markersize=3.5,
            linestyle="none",
            elinewidth=1,
        )
    axes.set_title(ranking.title, fontsize=7.5)
    axes.set_xlim(floor - 0.4, best + 0.8)

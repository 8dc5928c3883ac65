"""Charts on paper: each one as PNG and PDF, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ibcl.experiments.evaluation.charts import Chart, Line, Panel


def write_figures(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Draw every chart as ``folder/name.png`` and ``folder/name.pdf``; return the PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in charts:
        figure = draw(chart)
        path = folder / f"{chart.name}.png"
        figure.savefig(path)
        # Without a date the same results give the same file.
        figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
        written.append(path)
    return written


def draw(chart: Chart) -> Figure:
    """Draw one chart; all panels share a legend."""
    count = len(chart.panels)
    figure = Figure(figsize=(max(5.5, 3.9 * count), 3.9), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(chart.title, fontsize=10)
    handles: dict[str, Any] = {}
    for position, panel in enumerate(chart.panels):
        axes: Any = figure.add_subplot(1, count, position + 1)
        _draw_panel(axes, panel, handles)
    columns = min(5, max(2, int(1.6 * count)))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=columns,
        fontsize=7,
        frameon=False,
    )
    return figure


def _draw_panel(axes: Any, panel: Panel, handles: dict[str, Any]) -> None:
    for line in panel.lines:
        handles[line.name] = _draw_line(axes, line)
    axes.set_xlabel(panel.x, fontsize=8)
    axes.set_ylabel(panel.y, fontsize=8)
    axes.set_title(panel.title, fontsize=9)
    axes.tick_params(labelsize=7)
    if panel.logarithmic:
        axes.set(xscale="log", yscale="log")
    elif panel.lines and all(isinstance(x, str) for x in panel.lines[0].x):
        axes.tick_params(axis="x", labelrotation=20)
    elif panel.x == "task":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25, linewidth=0.5)


def _draw_line(axes: Any, line: Line) -> Any:
    y, width = np.asarray(line.y), np.nan_to_num(np.asarray(line.half_width))
    (handle,) = axes.plot(
        line.x,
        y,
        color=line.colour,
        linestyle="--" if line.dash else "-",
        marker="o",
        markersize=2.5,
        linewidth=1.1,
    )
    if width.any():
        axes.fill_between(line.x, y - width, y + width, color=line.colour, alpha=0.12, linewidth=0)
    return handle

"""The report: one self-contained page to look at, and the figures beside it."""

from __future__ import annotations

import re
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from ibcl.experiments.evaluation import overhead
from ibcl.experiments.evaluation.charts import Chart, all_charts
from ibcl.experiments.evaluation.figures import write_figures
from ibcl.experiments.evaluation.runs import environment
from ibcl.experiments.evaluation.summary import (
    comparison,
    difference_table,
    differences,
    markdown,
    summarise,
    title,
)

REFERENCES = ("oracle", "ibcl_evidence")
"""Contenders that the page compares all others with, seed by seed."""

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem;
       color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p.look { color: #555; margin: .2rem 0 .6rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
.wide { overflow-x: auto; }
"""


def write_report(table: pd.DataFrame, folder: Path) -> Path:
    """Write ``report.html``, the tables behind it as CSV, ``comparison.md``, and the figures.

    Return the path of the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    charts = all_charts(table)
    summary = summarise(table)
    main = table[table["label"] == ""]
    training = overhead.training_table(main if len(main) else None)
    memory = overhead.memory_table(main if len(main) else None)
    summary.to_csv(folder / "summary.csv", index=False, float_format="%.6g")
    training.to_csv(folder / "table1-updates.csv", index=False, float_format="%.6g")
    memory.to_csv(folder / "table2-kilobytes.csv", index=False, float_format="%.6g")
    paired = {reference: differences(table, reference) for reference in REFERENCES}
    paired = {reference: found for reference, found in paired.items() if len(found)}
    for reference, found in paired.items():
        file = folder / f"differences-from-{reference}.csv"
        found.to_csv(file, index=False, float_format="%.6g")
    frame = comparison(summary)
    (folder / "comparison.md").write_text(markdown(frame) + "\n", encoding="utf-8")
    write_figures(charts, folder / "figures")
    page = folder / "report.html"
    page.write_text(_page(table, charts, summary, paired, training, memory), encoding="utf-8")
    return page


def _page(
    table: pd.DataFrame,
    charts: list[Chart],
    summary: pd.DataFrame,
    paired: dict[str, pd.DataFrame],
    training: pd.DataFrame,
    memory: pd.DataFrame,
) -> str:
    seeds = ", ".join(str(seed) for seed in sorted(table["seed"].unique()))
    backbones = table.groupby("benchmark", sort=False)["backbone"].first()
    features = ", ".join(f"{name}: {backbone}" for name, backbone in backbones.items())
    versions = ", ".join(f"{name} {value}" for name, value in environment().items())
    sections = [
        "<h1>Any preference between tasks, without training again</h1>",
        f"<p class=look>Features: {escape(features)}. Seeds: {seeds}. "
        f"Made on {date.today().isoformat()} with {escape(versions)}.</p>",
        "<h2>Who wins where</h2>",
        "<p class=look>Average per-task accuracy after the last task, in percent, of each "
        "preference's mean model; bold is the best that does not keep all data.</p>",
        _winners(summary),
    ]
    for reference, found in paired.items():
        sections += [
            f"<h2>Points more or less than {escape(title(reference))}, seed by seed</h2>",
            "<p class=look>The same data, held-out examples and preferences for both, so their "
            "difference is known better than either; 95 % intervals over seeds.</p>",
            _html(difference_table(found)),
        ]
    for chart in charts:
        sections += [
            f"<h2>{escape(chart.title)}</h2>",
            f"<p class=look>{escape(chart.caption)}</p>",
            interactive(chart).to_html(full_html=False, include_plotlyjs=False),
        ]
    sections += [
        "<h2>Updates at the last task</h2>",
        "<p class=look>As the paper prints them, by its formula, and as counted in these runs "
        "(other epochs, so other numbers; compare methods, not columns).</p>",
        _html(training),
        "<h2>Kilobytes kept after the last task</h2>",
        "<p class=look>The paper counts float16; what was counted is stored as it is.</p>",
        _html(memory),
        "<h2>Everything</h2>",
        _html(summary),
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>IBCL results</title>"
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>"
        + "\n".join(sections)
        + "</body></html>\n"
    )


def interactive(chart: Chart) -> Any:
    """Draw a chart with plotly: lines can be switched off by a click in the legend."""
    figure = make_subplots(
        rows=1, cols=len(chart.panels), subplot_titles=[panel.title for panel in chart.panels]
    )
    seen: set[str] = set()
    for column, panel in enumerate(chart.panels, start=1):
        for line in panel.lines:
            figure.add_trace(
                go.Scatter(
                    x=list(line.x),
                    y=list(line.y),
                    error_y={"array": list(line.half_width), "thickness": 0.7, "width": 2},
                    name=line.name,
                    legendgroup=line.name,
                    showlegend=line.name not in seen,
                    mode="lines+markers",
                    line={
                        "color": line.colour,
                        "dash": "dash" if line.dash else "solid",
                        "width": 1.6,
                    },
                    marker={"size": 5},
                ),
                row=1,
                col=column,
            )
            seen.add(line.name)
        kind = "log" if panel.logarithmic else None
        figure.update_xaxes(title_text=panel.x, type=kind, row=1, col=column)
        figure.update_yaxes(title_text=panel.y, type=kind, row=1, col=column)
    figure.update_layout(
        template="plotly_white", height=460, margin={"t": 40, "b": 40, "l": 60, "r": 20}
    )
    return figure


def _winners(summary: pd.DataFrame) -> str:
    """Return the comparison as HTML, its winners in bold."""
    frame = comparison(summary)
    if frame.empty:
        return "<p>There are no main runs here, only ablations.</p>"
    return re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", _html(frame))


def _html(frame: pd.DataFrame) -> str:
    text = frame.to_html(index=False, border=0, na_rep="–", float_format=lambda v: f"{v:.4g}")
    return f"<div class=wide>{text}</div>"

"""The report: one self-contained page to look at, and the figures beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from ibcl.experiments.evaluation import bootstrap, overhead
from ibcl.experiments.evaluation.chart import Chart
from ibcl.experiments.evaluation.chart_drawing import figure_as_png, write_figures
from ibcl.experiments.evaluation.charts import all_charts, region_example
from ibcl.experiments.evaluation.comparison_tables import (
    comparison,
    difference_table,
    differences,
    markdown,
    summarise,
    worth_table,
)
from ibcl.experiments.evaluation.findings import findings
from ibcl.experiments.evaluation.protocol import UNIFORM_BASELINE
from ibcl.experiments.evaluation.runs import environment
from ibcl.experiments.evaluation.study_tables import study_tables
from ibcl.experiments.evaluation.style import PLOTLY_DASHES, PLOTLY_SYMBOLS
from ibcl.experiments.evaluation.titles import benchmark_title, title

REFERENCES = ("oracle", "routed")
"""Contenders that the page compares all others with, seed by seed."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 1.5rem auto;
       padding: 0 1rem; color: #1c1c1c; background: #fff; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.6rem; }
p, li { max-width: 44rem; }
p.look { color: #555; margin: .2rem 0 .6rem; }
nav ul { columns: 2 18rem; padding-left: 1.2rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right;
         white-space: nowrap; }
th { cursor: pointer; position: sticky; top: 0; background: #fff; user-select: none; }
th[aria-sort=ascending]::after { content: " \\25b2"; }
th[aria-sort=descending]::after { content: " \\25bc"; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } img { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) {
  body, th { background: #16181b; color: #e6e6e6; } p.look { color: #a9a9a9; }
  th, td { border-color: #3a3d41; } img, .js-plotly-plot { background: #fff; }
}
@media print {
  nav, .js-plotly-plot { display: none; } body { max-width: none; color: #000; }
  h2 { break-after: avoid; } table { font-size: 7.5pt; } tr { break-inside: avoid; }
  .wide { overflow: visible; }
}
@media screen { .printed { display: none; } }
"""

_SORTING = """
document.querySelectorAll("table").forEach(table => {
  table.querySelectorAll("th").forEach((head, column) => head.addEventListener("click", () => {
    const rising = head.getAttribute("aria-sort") === "descending";
    table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const key = row => row.children[column].textContent.trim();
    const number = text => parseFloat(text.replace(/[,+]/g, "").replace("\\u2212", "-"));
    const body = table.tBodies[0];
    [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)], [p, q] = [number(x), number(y)];
      const order = isNaN(p) && isNaN(q) ? x.localeCompare(y)
        : isNaN(p) ? (rising ? 1 : -1) : isNaN(q) ? (rising ? -1 : 1) : p - q;
      return rising ? order : -order;
    }).forEach(row => body.append(row));
  }));
});
"""


def write_report(
    table: pd.DataFrame, folder: Path, studies: Mapping[str, pd.DataFrame] | None = None
) -> Path:
    """Write ``report.html``, the tables behind it as CSV and Markdown, and the figures.

    Return the path of the page.

    Parameters
    ----------
    studies
        Tables of studies beside the protocol, by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    charts = [*all_charts(table), region_example()]
    summary = summarise(table)
    main = table[table["label"] == ""]
    training = overhead.training_table(main if len(main) else None)
    memory = overhead.memory_table(main if len(main) else None)
    summary.to_csv(folder / "summary.csv", index=False, float_format="%.6g")
    training.to_csv(folder / "table1-updates.csv", index=False, float_format="%.6g")
    memory.to_csv(folder / "table2-kilobytes.csv", index=False, float_format="%.6g")
    paired = {reference: paired_differences(table, reference) for reference in REFERENCES}
    paired = {reference: found for reference, found in paired.items() if len(found)}
    worth = worth_table(table)
    parts = ["# Tables\n", "## Who wins where\n", markdown(comparison(summary))]
    for reference, found in paired.items():
        file = folder / f"differences-from-{reference}.csv"
        found.to_csv(file, index=False, float_format="%.6g")
        parts += [f"\n## Points more or less than {title(reference)}\n"]
        parts += [markdown(difference_table(found))]
    if len(worth):
        parts += [f"\n## {WORTH}\n", markdown(worth)]
    for column, heading in OTHER_TABLES.items():
        if column in summary:
            parts += [
                f"\n## {heading}\n",
                markdown(comparison(summary, column).replace(r"\*", "", regex=True)),
            ]
    extra = study_tables(studies or {})
    for heading, frame in extra.items():
        parts += [f"\n## {heading}\n", markdown(frame)]
    (folder / "tables.md").write_text("\n".join(parts) + "\n", encoding="utf-8")
    write_figures(charts, folder / "figures")
    page = folder / "report.html"
    text = _page(table, charts, summary, paired, training, memory, extra, worth)
    page.write_text(text, encoding="utf-8")
    return page


WORTH = "What a preference is worth: points over the same method with the uniform preference"


def paired_differences(table: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Differences from a reference: over seeds and test examples where test answers were kept."""
    main = table[table["label"].isin(["", UNIFORM_BASELINE])]
    found = bootstrap.differences(main, reference)
    if found.empty:
        return differences(table, reference)
    return found[(found["method"] != reference) | (found["label"] != "")]


OTHER_TABLES = {
    "class_accuracy": "The answer among all classes of all tasks, accuracy in percent",
    "calibration_error": "Expected calibration error, in percent",
    "brier": "Brier score, times 100",
    "log_loss": "Log loss, times 100",
}
"""Columns of the summary that have a table of their own."""


def _page(
    table: pd.DataFrame,
    charts: list[Chart],
    summary: pd.DataFrame,
    paired: dict[str, pd.DataFrame],
    training: pd.DataFrame,
    memory: pd.DataFrame,
    extra: Mapping[str, pd.DataFrame],
    worth: pd.DataFrame,
) -> str:
    seeds = ", ".join(str(seed) for seed in sorted(table["seed"].unique()))
    backbones = table.groupby("benchmark", sort=False)["backbone"].first()
    features = ", ".join(f"{benchmark_title(str(n))}: {b}" for n, b in backbones.items())
    versions = ", ".join(f"{name} {value}" for name, value in environment().items())
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in findings(table))
    sections: list[tuple[str, str, str]] = [
        (
            "Who wins where",
            "Average per-task accuracy after the last task, in percent, of each preference's mean "
            "model, with 95 % intervals over seeds; bold is the best that does not keep all data. "
            "Click on a column's head to sort by it.",
            _winners(summary),
        )
    ]
    for reference, found in paired.items():
        sections.append(
            (
                f"Points more or less than {title(reference)}, seed by seed",
                "The same data, held-out examples and preferences for both, so their difference is "
                "known better than either; 95 % intervals over seeds and test examples, [low, "
                "high], where test answers were kept, and otherwise over seeds, ±.",
                _html(difference_table(found)),
            )
        )
    if len(worth):
        sections.append((WORTH, "95 % intervals over seeds and test examples.", _html(worth)))
    for chart in charts:
        sections.append((chart.title, chart.caption, _shown(chart)))
    for column, heading in OTHER_TABLES.items():
        if column in summary:
            plain = comparison(summary, column).replace(r"\*", "", regex=True)
            sections.append((heading, "Mean models after the last task.", _html(plain)))
    for heading, frame in extra.items():
        sections.append(
            (heading, "Routed evidence; means over seeds with 95 % intervals.", _html(frame))
        )
    sections += [
        (
            "Updates at the last task",
            "As the paper prints them, by its formula, and as counted in these runs (other epochs, "
            "so other numbers; compare methods, not columns).",
            _html(_named(training)),
        ),
        (
            "Kilobytes kept after the last task",
            "The paper counts float16; what was counted is stored as it is.",
            _html(_named(memory)),
        ),
        ("Everything", "Every number, by method, memory and selection.", _html(_named(summary))),
    ]
    contents = "".join(
        f"<li><a href=#s{number}>{escape(heading)}</a></li>"
        for number, (heading, _, _) in enumerate(sections)
    )
    body = "\n".join(
        f"<section><h2 id=s{number}>{escape(heading)}</h2><p class=look>{escape(look)}</p>{content}"
        "</section>"
        for number, (heading, look, content) in enumerate(sections)
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>IBCL results</title><style>{_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body>"
        "<h1>Any preference between tasks, without training again</h1>"
        f"<ul>{sentences}</ul>"
        f"<p class=look>Features: {escape(features)}. Seeds: {seeds}. "
        f"Made on {date.today().isoformat()} with {escape(versions)}.</p>"
        f"<nav aria-label=Contents><h2>Contents</h2><ul>{contents}</ul></nav>"
        f"{body}<script>{_SORTING}</script></body></html>\n"
    )


def _shown(chart: Chart) -> str:
    """Draw a chart for the screen, to click on, and for print, as a picture."""
    picture = figure_as_png(chart)
    image = f'<img alt="{escape(chart.title)}" src="data:image/png;base64,{picture}">'
    if chart.rankings:
        return image
    live = interactive(chart).to_html(
        full_html=False, include_plotlyjs=False, config={"responsive": True, "displaylogo": False}
    )
    return f"{live}<div class=printed>{image}</div>"


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """Put people's names where a table has those of the code."""
    shown = frame.copy()
    shown["method"] = shown["method"].map(title)
    shown["benchmark"] = shown["benchmark"].map(benchmark_title)
    return shown.rename(columns=lambda column: str(column).replace("_95", " ±").replace("_", " "))


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
                    mode="lines+markers" if line.joined else "markers",
                    line={
                        "color": line.look.hue,
                        "dash": PLOTLY_DASHES[line.look.dashes],
                        "width": 1.6,
                    },
                    marker={"size": 6, "symbol": PLOTLY_SYMBOLS[line.look.marker]},
                ),
                row=1,
                col=column,
            )
            seen.add(line.name)
        across = "log" if panel.scale != "linear" else None
        up = "log" if panel.scale == "log-log" else None
        figure.update_xaxes(title_text=panel.x, type=across, row=1, col=column)
        figure.update_yaxes(title_text=panel.y, type=up, row=1, col=column)
    figure.update_layout(
        template="plotly_white",
        height=440,
        margin={"t": 40, "b": 40, "l": 60, "r": 20},
        legend={"orientation": "h", "y": -0.25},
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

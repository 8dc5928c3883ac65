"""One row a contender: the metrics after the last task, with their intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pandas as pd

from ibcl.experiments.evaluation import metrics, overhead

if TYPE_CHECKING:
    from rich.table import Table

NAMES = {
    "ibcl": "IBCL (paper: Wasserstein)",
    "ibcl_mixture": "IBCL, mixture",
    "ibcl_evidence": "IBCL, evidence",
    "ibcl_evidence_apart": "IBCL, evidence, tasks apart",
    "ibcl_evidence_random": "IBCL, evidence, random features",
    "oracle": "oracle (all data)",
    "oracle_linear": "oracle, linear head",
    "fine_tuning": "fine-tuning",
    "convex_combination": "convex combination",
    "convex_combination_shared_start": "convex combination, shared start",
    "gem": "GEM",
    "agem": "A-GEM",
    "der": "DER",
    "derpp": "DER++",
    "vcl": "VCL + rehearsal",
    "l2p": "L2P (adapted)",
}
"""Contenders as people know them."""

KEYS = ["benchmark", "preferences", "method", "memory", "selection", "label"]


def title(method: str, memory: int = 0) -> str:
    """Name a contender in a figure or table.

    Examples
    --------
    >>> title("gem", 50)
    'GEM, 50 a task'
    """
    name = NAMES.get(method, method)
    return f"{name}, {memory} a task" if memory else name


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Summarise all runs: each metric has a column for its mean and one for its half width.

    Metrics are after the last task; peak accuracy is averaged over the tasks. Regret is that of the
    benchmark's own metric, and left out where there is no oracle.
    """
    found = {
        "average_accuracy": metrics.at_last_task(metrics.average_per_task(table)),
        "average_balanced_accuracy": metrics.at_last_task(
            metrics.average_per_task(table, "balanced_accuracy")
        ),
        "peak_accuracy": metrics.along_all_tasks(metrics.peak_per_task(table)),
        "calibration_error": metrics.at_last_task(metrics.calibration(table)),
    }
    if table["task_seen"].max() > 1:
        found["backward_transfer"] = metrics.at_last_task(metrics.backward_transfer(table))
    against = _with_method(table, "oracle")
    if len(against):
        found["regret"] = metrics.at_last_task(by_metric(against, metrics.regret))
    result: pd.DataFrame | None = None
    for name, values in found.items():
        columns = metrics.over_seeds(values).rename(
            columns={"mean": name, "half_width": f"{name}_95"}
        )
        if result is None:
            result = columns
        else:
            result = result.merge(columns.drop(columns="seeds"), on=KEYS, how="left")
    assert result is not None
    result["metric"] = result["benchmark"].map(table.groupby("benchmark")["metric"].first())
    costs = overhead.counted(table).drop(columns=["updates_at_last_task"])
    return result.merge(costs, on=[key for key in KEYS if key != "selection"], how="left")


def by_metric(
    table: pd.DataFrame, measure: Callable[[pd.DataFrame, str], pd.DataFrame]
) -> pd.DataFrame:
    """Apply a measure to every benchmark with the column that the benchmark prefers."""
    parts = [measure(part, str(metric)) for metric, part in table.groupby("metric", sort=False)]
    return pd.concat(parts, ignore_index=True)


def differences(table: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Each contender's average per-task accuracy less the reference's, seed by seed.

    After the last task, mean models of the main runs, in the benchmark's own metric; benchmarks
    without the reference are left out. Columns ``mean`` and ``half_width`` (95 %) are shares, not
    percent.
    """
    main = table[(table["label"] == "") & (table["selection"] == "mean")]
    main = _with_method(main, reference)
    if main.empty:
        return pd.DataFrame()
    values = metrics.at_last_task(by_metric(main, metrics.average_per_task))
    found = metrics.paired_differences(values, reference)
    return found[found["method"] != reference].drop(columns=["selection", "label"])


def difference_table(found: pd.DataFrame) -> pd.DataFrame:
    """One row a contender, one column a benchmark: points more (+) or less (−) than a reference."""
    rows: dict[str, dict[str, str]] = {}
    for row in found.to_dict("records"):
        column = row["benchmark"] + (
            "" if row["preferences"] == "uniform" else f", {row['preferences']}"
        )
        width = "" if math.isnan(row["half_width"]) else f" ± {100 * row['half_width']:.1f}"
        text = f"{100 * row['mean']:+.1f}{width}"
        rows.setdefault(title(row["method"], row["memory"]), {})[column] = text
    return pd.DataFrame([{"method": name, **rows[name]} for name in _ordered(rows)]).fillna("–")


def summary_table(table: pd.DataFrame) -> Table:
    """Show the mean models' summary on a terminal."""
    from rich.table import Table

    rows = summarise(table)
    rows = rows[rows["selection"] == "mean"]
    shown = Table(title="After the last task; mean models; 95 % intervals over seeds")
    for position, column in enumerate(
        ("benchmark", "method", "accuracy", "balanced", "regret", "updates", "kB", "seeds")
    ):
        shown.add_column(column, justify="right" if position > 1 else "left")
    for row in rows.to_dict("records"):
        name = str(row["benchmark"])
        if row["preferences"] != "uniform":
            name += f", {row['preferences']}"
        shown.add_row(
            name,
            title(row["method"], row["memory"]) + (f" ({row['label']})" if row["label"] else ""),
            percent(row["average_accuracy"], row["average_accuracy_95"]),
            percent(row["average_balanced_accuracy"], row["average_balanced_accuracy_95"]),
            percent(row.get("regret", math.nan), row.get("regret_95", math.nan)),
            f"{row['updates']:,.0f}",
            f"{row['kilobytes']:,.0f}",
            str(row["seeds"]),
        )
    return shown


def comparison(summary: pd.DataFrame) -> pd.DataFrame:
    """Who wins where: one row a contender, one column a benchmark, in percent.

    Average per-task accuracy after the last task, of mean models; balanced accuracy where that is
    the benchmark's metric. The best contender that does not keep all data stands between asterisks.
    """
    rows = summary[(summary["selection"] == "mean") & (summary["label"] == "")]
    found: dict[str, dict[str, str]] = {}
    for (benchmark, family), part in rows.groupby(["benchmark", "preferences"], sort=False):
        metric = f"average_{part['metric'].iloc[0]}"
        column = str(benchmark)
        column += ", balanced accuracy" if metric == "average_balanced_accuracy" else ""
        column += "" if family == "uniform" else f", {family}"
        fair = part[~part["method"].str.startswith("oracle")]
        best = fair[metric].max() if len(fair) else math.nan
        for row in part.to_dict("records"):
            text = percent(row[metric], row[f"{metric}_95"])
            won = row[metric] == best and not row["method"].startswith("oracle")
            name = title(row["method"], row["memory"])
            found.setdefault(name, {})[column] = f"**{text}**" if won else text
    return pd.DataFrame([{"method": name, **found[name]} for name in _ordered(found)]).fillna("–")


def _with_method(table: pd.DataFrame, method: str) -> pd.DataFrame:
    """Keep the benchmarks and families of preferences that a method has been run on."""
    keys = ["benchmark", "preferences"]
    present = set(table.loc[table["method"] == method, keys].itertuples(index=False, name=None))
    return table[[key in present for key in table[keys].itertuples(index=False, name=None)]]


def _ordered(names: Iterable[str]) -> list[str]:
    """Put contenders in the order people know them, the smaller memory first."""
    order = [*NAMES.values()]
    return sorted(names, key=lambda name: (_place(name, order), len(name), name))


def _place(name: str, order: list[str]) -> int:
    """Position of a contender's name, with or without its memory."""
    return order.index(name.rpartition(", ")[0] if name.endswith(" a task") else name)


def markdown(frame: pd.DataFrame) -> str:
    """Write a table of text as Markdown.

    Examples
    --------
    >>> print(markdown(pd.DataFrame({"method": ["GEM"], "20news": ["88.5"]})))
    | method | 20news |
    |---|---|
    | GEM | 88.5 |
    """
    lines = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    lines += [list(map(str, row)) for row in frame.itertuples(index=False)]
    texts = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([texts[0], texts[1].replace(" ", ""), *texts[2:]])


def percent(mean: float, half_width: float = math.nan) -> str:
    """Write a share in percent, with its interval where it has one.

    Examples
    --------
    >>> percent(0.9234, 0.0051), percent(0.5)
    ('92.3 ± 0.5', '50.0')
    """
    if math.isnan(mean):
        return "–"
    return f"{100 * mean:.1f}" + ("" if math.isnan(half_width) else f" ± {100 * half_width:.1f}")

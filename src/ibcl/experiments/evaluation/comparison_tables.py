"""One row per contender: the metrics after the last task, with their intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import pandas as pd

from ibcl.experiments.evaluation import bootstrap, metrics, overhead
from ibcl.experiments.evaluation.protocol import UNIFORM_BASELINE
from ibcl.experiments.evaluation.titles import (
    benchmark_title,
    keeps_all_data,
    place,
    title,
)

if TYPE_CHECKING:
    from rich.table import Table

OURS = "routed"
"""The library's default, which tables show with the uniform preference for everybody as well."""

KEYS = ["benchmark", "preferences", "method", "memory", "selection", "label"]


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Summarise all runs: each metric has a column for its mean and one for its half width.

    ``average_low`` and ``average_high`` are the interval of the benchmark's own metric over seeds
    and test examples (`ibcl.experiments.evaluation.bootstrap`), the others are over seeds.

    Metrics are after the last task; peak accuracy is averaged over the tasks. Peak accuracy and
    backward transfer need runs in which every task was asked. Regret is that of the benchmark's own
    metric, and left out where there is no oracle.
    """
    found = {
        "average_accuracy": metrics.at_last_task(metrics.average_per_task(table)),
        "average_balanced_accuracy": metrics.at_last_task(
            metrics.average_per_task(table, "balanced_accuracy")
        ),
    }
    for column in ("calibration_error", "brier", "log_loss", "class_accuracy"):
        if column in table and table[column].notna().any():
            answered = table[table[column].notna()]
            found[column] = metrics.at_last_task(metrics.average_per_task(answered, column))
    asked = metrics.asked_at_every_task(table)
    if len(asked):
        found["peak_accuracy"] = metrics.along_all_tasks(metrics.peak_per_task(asked))
        found["backward_transfer"] = metrics.at_last_task(metrics.backward_transfer(asked))
    # Everybody's regret is against the oracle of their own preference, which a label hides.
    against = _with_method(table[table["label"] != UNIFORM_BASELINE], "oracle")
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
    known = bootstrap.intervals(table).rename(
        columns={"low": "average_low", "high": "average_high"}
    )
    if len(known):
        known = known.drop(columns="value").assign(selection="mean")
        result = result.merge(known, on=KEYS, how="left")
    result["metric"] = result["benchmark"].map(table.groupby("benchmark")["metric"].first())
    costs = overhead.counted(table).drop(columns=["updates_at_last_task"])
    return result.merge(costs, on=[key for key in KEYS if key != "selection"], how="left")


def by_metric(
    table: pd.DataFrame, measure: Callable[[pd.DataFrame, str], pd.DataFrame]
) -> pd.DataFrame:
    """Apply a measure to every benchmark with the column that the benchmark prefers."""
    parts = [measure(part, str(metric)) for metric, part in table.groupby("metric", sort=False)]
    return pd.concat(parts, ignore_index=True)


def difference_table(found: pd.DataFrame) -> pd.DataFrame:
    """One row per contender, one column per benchmark: points more (+) or less (−).

    Takes what `ibcl.experiments.evaluation.bootstrap` returns, with intervals over seeds and test
    examples, or what `differences` returns, with intervals over seeds.
    """
    rows: dict[tuple[str, int, str], dict[str, str]] = {}
    for row in found.to_dict("records"):
        column = column_title(row["benchmark"], row["preferences"])
        who = (row["method"], row["memory"], row.get("label", ""))
        rows.setdefault(who, {})[column] = _points(row)
    return _by_contender(rows)


def _points(row: dict[Hashable, Any]) -> str:
    """Write a difference in points of a percent, with its interval.

    Examples
    --------
    >>> _points({"value": 0.002, "low": -0.006, "high": 0.01})
    '+0.20 [−0.60, +1.00]'
    """
    if "low" in row:
        ends = f"[{100 * row['low']:+.2f}, {100 * row['high']:+.2f}]"
        return f"{100 * row['value']:+.2f} {ends}".replace("-", "−")
    width = "" if math.isnan(row["half_width"]) else f" ± {100 * row['half_width']:.1f}"
    return f"{100 * row['mean']:+.1f}{width}"


def worth_table(table: pd.DataFrame) -> pd.DataFrame:
    """What a preference is worth to each method, in points; empty without the uniform baseline."""
    found = bootstrap.worth_of_preference(table, UNIFORM_BASELINE)
    return difference_table(found) if len(found) else pd.DataFrame()


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


def column_title(benchmark: str, family: str) -> str:
    """Name a benchmark and a family of preferences; the paper's is not mentioned.

    Examples
    --------
    >>> column_title("20news", "uniform"), column_title("celeba", "sparse")
    ('20 Newsgroups', 'CelebA, sparse')
    """
    return benchmark_title(benchmark) + ("" if family == "uniform" else f", {family}")


def _by_contender(rows: dict[tuple[str, int, str], dict[str, str]]) -> pd.DataFrame:
    ordered = sorted(rows, key=lambda who: (place(who[0]), *who))
    named = [{"method": _named(*who), **rows[who]} for who in ordered]
    return pd.DataFrame(named).fillna("–")


def _named(method: str, memory: int, label: str) -> str:
    return title(method, memory) + (f", {label}" if label else "")


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
        shown.add_row(
            column_title(row["benchmark"], row["preferences"]),
            title(row["method"], row["memory"]) + (f" ({row['label']})" if row["label"] else ""),
            percent(row["average_accuracy"], row["average_accuracy_95"]),
            percent(row["average_balanced_accuracy"], row["average_balanced_accuracy_95"]),
            percent(row.get("regret", math.nan), row.get("regret_95", math.nan)),
            f"{row['updates']:,.0f}",
            f"{row['kilobytes']:,.0f}",
            str(row["seeds"]),
        )
    return shown


def comparison(summary: pd.DataFrame, column: str | None = None) -> pd.DataFrame:
    """Who wins where: one row per contender, one column per benchmark, in percent.

    After the last task, of mean models: average per-task accuracy (balanced accuracy where that is
    the benchmark's metric), or another column of the summary. The best contender that does not
    keep all data stands between asterisks.
    """
    main = summary[summary["selection"] == "mean"]
    # The uniform baseline of every method would double the table; all are in `worth_table`.
    baseline = (main["label"] == UNIFORM_BASELINE) & (main["method"] == OURS)
    rows = main[(main["label"] == "") | baseline]
    found: dict[tuple[str, int, str], dict[str, str]] = {}
    for (benchmark, family), part in rows.groupby(["benchmark", "preferences"], sort=False):
        metric = column or f"average_{part['metric'].iloc[0]}"
        part = part[part[metric].notna()]
        if part.empty:
            continue
        fair = part[~part["method"].map(keeps_all_data) & (part["label"] == "")]
        best = fair[metric].max() if len(fair) else math.nan
        for row in part.to_dict("records"):
            text = percent(row[metric], row[f"{metric}_95"])
            competes = not keeps_all_data(row["method"]) and row["label"] == ""
            won = competes and row[metric] == best
            named = column_title(str(benchmark), str(family))
            found.setdefault((row["method"], row["memory"], row["label"]), {})[named] = (
                f"**{text}**" if won else text
            )
    return _by_contender(found)


def _with_method(table: pd.DataFrame, method: str) -> pd.DataFrame:
    """Keep the benchmarks and families of preferences that a method has been run on."""
    keys = ["benchmark", "preferences"]
    present = set(table.loc[table["method"] == method, keys].itertuples(index=False, name=None))
    return table[[key in present for key in table[keys].itertuples(index=False, name=None)]]


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

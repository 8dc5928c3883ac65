"""The results of the tables as one JSON file and one page of Markdown."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd

from ibcl.experiments.evaluation.comparison_tables import markdown
from ibcl.experiments.evaluation.runs import environment
from ibcl.files import write_atomically
from ibcl.intervals import interval

REFERENCE = "linear, per preference"
METRICS = {"accuracy": "accuracy", "auc": "AUC", "r2": "R²"}


def write_page(results: pd.DataFrame, folder: Path) -> Path:
    """Write ``tables.json`` and ``tables.md``; return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"environment": environment(), "results": results.to_dict("records")}
    write_atomically(folder / "tables.json", (json.dumps(content, indent=1) + "\n").encode(), True)
    page = folder / "tables.md"
    write_atomically(page, page_text(results).encode(), True)
    return page


def page_text(results: pd.DataFrame) -> str:
    """The page: the result in a sentence, then scores and differences, and how it was made."""
    seeds = ", ".join(str(seed) for seed in sorted(results["seed"].unique()))
    parts = [
        "# Tables",
        "",
        sentence(results),
        "",
        "## Scores, times 100",
        "",
        markdown(scores(results)),
        "",
        f"## Points more or less than {REFERENCE}",
        "",
        markdown(differences(results)),
        "",
        "Means over seeds with 95 % Student intervals, differences paired by seed; each seed "
        "splits every task into 70 % to learn from and 30 % to test on. A score is "
        "Σ_k w_k score_k, averaged over five random preferences and one near each vertex (0.9 on "
        "one task). "
        "*Linear* is logistic regression, or ridge regression for R²; *per preference* is trained "
        f"again for every preference, with rows of task k weighted by w_k / n_k. Seeds: {seeds}. "
        "Made by `ibcl bench tables`.",
        "",
    ]
    return "\n".join(parts)


def sentence(results: pd.DataFrame) -> str:
    """Say where the default stands against the linear model of each preference."""
    means = results.groupby(["table", "contender"], sort=False)["score"].mean().unstack()
    less = 100 * (means["ibcl"] - means[REFERENCE])
    worst = str(less.idxmin())
    return (
        f"The default estimator is on average {less.mean():+.1f} points from a linear model "
        f"trained again for every preference, over {len(less)} tables; at worst "
        f"{less.min():+.1f}, on {worst}."
    )


def scores(results: pd.DataFrame) -> pd.DataFrame:
    """One row per table, one column per contender."""
    return _table(results, lambda own, _: own, signed=False)


def differences(results: pd.DataFrame) -> pd.DataFrame:
    """The same less the reference, seed by seed."""
    found = _table(results, lambda own, reference: own - reference, signed=True)
    return found.drop(columns=REFERENCE)


def _table(results: pd.DataFrame, measure: object, signed: bool) -> pd.DataFrame:
    assert callable(measure)
    rows = []
    for name, part in results.groupby("table", sort=False):
        first = part.iloc[0]
        row = {
            "table": str(name),
            "rows × columns, tasks": f"{first['rows']:,} × {first['columns']:,}, {first['tasks']}",
            "metric": METRICS[str(first["metric"])],
        }
        by_seed = part.pivot(index="seed", columns="contender", values="score")
        for contender in results["contender"].unique():
            if contender not in by_seed:
                row[contender] = "–"
                continue
            found = interval(measure(by_seed[contender], by_seed[REFERENCE]).tolist())
            width = "" if math.isnan(found.half_width) else f" ± {100 * found.half_width:.1f}"
            row[contender] = f"{100 * found.mean:{'+' if signed else ''}.1f}{width}"
        rows.append(row)
    return pd.DataFrame(rows)

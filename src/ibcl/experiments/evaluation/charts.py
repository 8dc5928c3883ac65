"""What there is to see in a table of results, as charts that know nothing of how they are drawn.

`ibcl.experiments.evaluation.chart_drawing` draws them for a paper,
`ibcl.experiments.evaluation.report` for a browser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch

import ibcl
from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.ablation_charts import ablation_charts
from ibcl.experiments.evaluation.chart import (
    Chart,
    Line,
    Panel,
    Ranking,
    lines_by_method,
    mean_models,
    percent,
)
from ibcl.experiments.evaluation.comparison_tables import by_metric, column_title
from ibcl.experiments.evaluation.runs import slug
from ibcl.experiments.evaluation.style import MOST_LINES, look
from ibcl.experiments.evaluation.titles import (
    group_of,
    in_order,
    title,
)
from ibcl.intervals import interval

ALONG = "along=tasks"
"""Label of runs in which a few contenders were asked after every task."""


def all_charts(table: pd.DataFrame) -> list[Chart]:
    """Make every chart the table has data for."""
    main, ablations = table[table["label"] == ""], table[table["label"] != ""]
    charts: list[Chart] = []
    if not main.empty:
        charts += rankings(main)
        charts += selections(main)
    charts += metrics_along_tasks(table)
    if not ablations.empty:
        charts += ablation_charts(ablations[ablations["label"] != ALONG])
    return charts


def region_example() -> Chart:
    """The paper's example of a highest density region: of a mixture with two peaks, α = 0.25."""
    mixture = ibcl.Mixture(
        [0.6, 0.4],
        [
            ibcl.DiagonalGaussian(torch.tensor([mean]), torch.tensor([std]))
            for mean, std in ((-1.5, 1.0), (2.0, 0.6))
        ],
    )
    region = ibcl.HighestDensityRegion(mixture, alpha=0.25)
    x = torch.linspace(-5, 5, 401)[:, None]
    density = mixture.log_prob(x).exp().double()
    level = float(np.exp(region.threshold))
    inside = region.contains(x)
    xs = x[:, 0].tolist()
    nothing = [math.nan] * len(xs)
    covered = torch.where(inside, level, torch.nan).tolist()
    return Chart(
        "region",
        "The 0.75 highest density region of a mixture",
        "The smallest set that holds 75 % of the mass: all θ whose density is at least the level. "
        "It is two intervals, one around each peak.",
        (
            Panel(
                "θ",
                "density",
                (
                    Line("density", xs, density.tolist(), nothing, look(0)),
                    Line("the region, at its level", xs, covered, nothing, look(1)),
                ),
            ),
        ),
    )


def rankings(table: pd.DataFrame) -> Iterator[Chart]:
    """Everybody on every benchmark, after the last task."""
    values = metrics.at_last_task(by_metric(mean_models(table), metrics.average_per_task))
    if values.empty:
        return
    found = []
    for (benchmark, family), part in values.groupby(["benchmark", "preferences"], sort=False):
        each = {
            (str(method), int(str(memory))): interval(group["value"].tolist())
            for (method, memory), group in part.groupby(["method", "memory"], sort=False)
        }
        order = in_order(each)
        found.append(
            Ranking(
                column_title(str(benchmark), str(family)),
                tuple(title(*who) for who in order),
                tuple(group_of(method) for method, _ in order),
                tuple(100 * each[who].mean for who in order),
                tuple(100 * each[who].half_width for who in order),
            )
        )
    yield Chart(
        "ranking",
        "Average per-task accuracy after the last task, in percent",
        "Points are means over seeds with 95 % intervals (balanced accuracy on CelebA). The dotted "
        "line is the oracle's, which keeps all data and retrains for every preference.",
        rankings=tuple(found),
    )


def metrics_along_tasks(table: pd.DataFrame) -> Iterator[Chart]:
    """The paper's main figures: three metrics along tasks, one chart per benchmark."""
    asked = metrics.asked_at_every_task(mean_models(table))
    asked = asked[asked["label"].isin(["", ALONG])]
    if asked.empty:
        return
    for (benchmark, family), part in asked.groupby(["benchmark", "preferences"], sort=False):
        column = str(part["metric"].iloc[0])
        shown = column.replace("_", " ")
        few = _best_of_each_kind(part, column)
        named = column_title(str(benchmark), str(family))
        yield Chart(
            slug(f"metrics-{benchmark}-{family}"),
            f"{named}: along the tasks",
            "A line is a mean over seeds, its band the 95 % interval. Of each kind of method the "
            "best is shown.",
            tuple(
                Panel(
                    "task",
                    f"{name} {shown} (%)",
                    lines_by_method(percent(metric(few, column)), "task"),
                )
                for name, metric in (
                    ("average per-task", metrics.average_per_task),
                    ("peak per-task", metrics.peak_per_task),
                    ("backward transfer,", metrics.backward_transfer),
                )
            ),
        )


def _best_of_each_kind(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Keep at most six contenders: the paper's IBCL, and the best of every kind after it."""
    values = metrics.at_last_task(metrics.average_per_task(table, column))
    means = values.groupby(["method", "memory"])["value"].mean().sort_values(ascending=False)
    chosen: dict[str, tuple[str, int]] = {}
    for method, memory in means.index:
        kind = "paper" if method == "ibcl" else group_of(method)
        chosen.setdefault(kind, (method, memory))
    kept = set(sorted(chosen.values(), key=lambda who: -means[who])[:MOST_LINES])
    if "paper" in chosen and chosen["paper"] not in kept:
        kept.remove(min(kept, key=lambda who: means[who]))
        kept.add(chosen["paper"])
    pairs = zip(table["method"], table["memory"], strict=True)
    return table[[pair in kept for pair in pairs]]


def selections(table: pd.DataFrame) -> Iterator[Chart]:
    """How much is won by looking at the test data: the four selections of IBCL's models."""
    drawn = table.groupby(["benchmark", "method"])["selection"].transform("nunique") > 1
    rows = table[drawn]
    values = metrics.at_last_task(by_metric(rows, metrics.average_per_task)) if len(rows) else rows
    if len(values) == 0:
        return
    order = {"mean": 0, "averaged": 1, "validated": 2, "test_maximum": 3}
    values = values.sort_values("selection", key=lambda column: column.map(order), kind="stable")
    words = {"validated": "best on\nvalidation", "test_maximum": "best on test\n(optimistic)"}
    values["selection"] = values["selection"].replace(words)
    parts = list(values.groupby(["benchmark", "preferences"], sort=False))
    for number in range(0, len(parts), 3):
        yield Chart(
            "selections" + (f"-{number // 3 + 1}" if len(parts) > 3 else ""),
            "Which model of the region stands for a preference",
            "The mean model, the average of drawn ones, the drawn one that is best on validation "
            "data, and the one that is best on the test data, as the paper reports: no user can "
            "choose that.",
            tuple(
                Panel(
                    "",
                    "average per-task accuracy (%)" if position == 0 else "",
                    lines_by_method(percent(part), "selection"),
                    column_title(*map(str, key)),
                )
                for position, (key, part) in enumerate(parts[number : number + 3])
            ),
        )

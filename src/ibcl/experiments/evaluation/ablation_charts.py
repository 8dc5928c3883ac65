"""What ablations show: one chart per knob and benchmark."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.chart import (
    Chart,
    Line,
    Panel,
    lines_by_method,
    lines_over_seeds,
    mean_models,
    percent,
)
from ibcl.experiments.evaluation.comparison_tables import by_metric
from ibcl.experiments.evaluation.runs import slug
from ibcl.experiments.evaluation.style import look, looks_of
from ibcl.experiments.evaluation.titles import benchmark_title, title


def ablation_charts(table: pd.DataFrame) -> Iterator[Chart]:
    """One chart per knob and benchmark: its settings against the accuracy."""
    knobs = table["label"].str.partition("=")
    frame = table.assign(knob=knobs[0], setting=knobs[2])
    for (knob, benchmark), part in frame.groupby(["knob", "benchmark"], sort=False):
        if knob == "front":
            yield _front(part, str(benchmark))
        elif knob == "preferences":
            yield _cost(part, str(benchmark))
        elif knob in ("alpha", "inverted_alpha"):
            yield _significance(part, str(knob), str(benchmark))
        elif knob in ("alpha_front", "inverted_alpha_front"):
            yield _significance_front(part, str(knob), str(benchmark))
        else:
            yield _knob(part, str(knob), str(benchmark))


KNOBS = {
    "d": "threshold d, on the scale W2/√D",
    "d_norms": "threshold d, on its authors' scale",
    "prior_std": "standard deviation of the prior",
    "priors": "number of priors",
    "pooling": "pooling rule and covariance",
    "order": "order of the tasks (0: the benchmark's)",
    "memory": "samples kept of each task",
    "storage": "how the evidence is stored",
}
"""What people call the settings that are varied."""

THRESHOLDS = ("d", "d_norms")
"""Those whose first setting is 0, which a logarithm has no place for."""


def _knob(table: pd.DataFrame, knob: str, benchmark: str) -> Chart:
    """Accuracy after the last task against the setting, one line per method."""
    rows = mean_models(table)
    values = metrics.at_last_task(by_metric(rows, metrics.average_per_task))
    values = values.assign(setting=values["label"].str.partition("=")[2])
    number = pd.to_numeric(values["setting"], errors="coerce").notna().all()
    if number:
        values["setting"] = values["setting"].astype(float)
    values = percent(values.assign(memory=0 if knob == "memory" else values["memory"]))
    positive = number and bool((values["setting"] > 0).all())
    scale = "log" if positive and knob in ("prior_std", "memory") else "linear"
    if knob in THRESHOLDS and number:
        values["setting"] = values["setting"].map("{:g}".format)
    panels = [
        Panel(
            KNOBS.get(knob, knob),
            "average per-task accuracy (%)",
            lines_by_method(values, "setting"),
            scale=scale,
        )
    ]
    if knob in THRESHOLDS:
        kept = metrics.at_last_task(metrics.costs(rows))
        kept = kept.assign(value=kept["posteriors"], setting=kept["label"].str.partition("=")[2])
        lines = lines_by_method(kept, "setting")
        panels.append(Panel(KNOBS[knob], "posteriors stored at the end", lines))
    return Chart(
        slug(f"ablation-{knob}-{benchmark}"),
        f"{benchmark_title(benchmark)}: {KNOBS.get(knob, knob)}",
        "Means over seeds with 95 % intervals, after the last task; all else as in the main runs.",
        tuple(panels),
    )


_READINGS = {
    "alpha": "Highest density regions by their definition: in many dimensions α hardly changes "
    "what is drawn, so the lines are flat.",
    "inverted_alpha": "Not the definition: per-coordinate intervals of mass α instead of 1 − α. "
    "Draws move away from the mean model as α grows.",
}


def _significance(table: pd.DataFrame, knob: str, benchmark: str) -> Chart:
    """Drawn models after the last task against α."""
    words = {"mean": "mean model", "averaged": "average of draws"}
    words |= {"validated": "best on validation", "test_maximum": "best on test (optimistic)"}
    values = percent(metrics.at_last_task(metrics.average_per_task(table)))
    values = values.assign(setting=values["label"].str.partition("=")[2].astype(float))
    return Chart(
        slug(f"ablation-{knob}-{benchmark}"),
        f"{benchmark_title(benchmark)}: α" + (", inverted" if knob != "alpha" else ""),
        _READINGS[knob],
        (
            Panel(
                "α",
                "average per-task accuracy (%)",
                lines_over_seeds(
                    values.assign(who=values["selection"].map(words)), "who", "setting"
                ),
                scale="log",
            ),
        ),
    )


def _significance_front(table: pd.DataFrame, knob: str, benchmark: str) -> Chart:
    """The paper's first figure on α: the drawn model of largest L2 sum of two accuracies."""
    reading = knob.removesuffix("_front")
    rows = table[(table["task_seen"] == 2) & (table["selection"] == "test_maximum")]
    panels: list[Panel] = []
    for label, part in rows.groupby("label", sort=False):
        found = _accuracies(part)
        panels.append(
            Panel(
                "accuracy on task 1 (%)",
                "accuracy on task 2 (%)" if not panels else "",
                tuple(
                    Line(f"w = ({w:g}, {1 - w:g})", [x], [y], [math.nan], look(n), joined=False)
                    for n, (w, x, y) in enumerate(found)
                ),
                f"α = {str(label).partition('=')[2]}",
            )
        )
    return Chart(
        slug(f"{knob}-{benchmark}"),
        f"{benchmark_title(benchmark)}: α on five preferences over the first two tasks",
        "Of 200 drawn models the one with the best preference-weighted test accuracy, averaged "
        f"over seeds: optimistic, as in the paper. {_READINGS[reading]}",
        tuple(panels),
    )


def _accuracies(rows: pd.DataFrame) -> list[tuple[float, float, float]]:
    """w_1 and the two accuracies in percent of every preference over two tasks."""
    means = rows.groupby(["preference", "task_tested"])[["accuracy", "weight"]].mean().unstack()
    return [
        (round(float(row["weight", 1]), 6), 100 * row["accuracy", 1], 100 * row["accuracy", 2])
        for _, row in means.iterrows()
    ]


def _cost(table: pd.DataFrame, benchmark: str) -> Chart:
    """Updates and CPU time at the second task against the number of preferences."""
    costs = metrics.costs(mean_models(table))
    costs = costs[costs["task"] == 2]
    costs = costs.assign(number=costs["label"].str.partition("=")[2].astype(int))
    panels = tuple(
        Panel(
            "number of preferences",
            shown,
            lines_by_method(costs.assign(value=costs[column]), "number"),
            scale="log-log",
        )
        for column, shown in (
            ("updates", "updates at the second task"),
            ("seconds", "CPU seconds at the second task"),
        )
    )
    return Chart(
        slug(f"cost-{benchmark}"),
        f"{benchmark_title(benchmark)}: what preferences cost",
        "IBCL trains once for all preferences; rehearsal trains once for each preference.",
        panels,
    )


def _front(table: pd.DataFrame, benchmark: str) -> Chart:
    """Accuracies on the first two tasks, one point per preference, averaged over seeds."""
    rows = table[(table["task_seen"] == 2) & (table["selection"] == "mean")]
    names = [str(name) for name in rows["method"].unique()]
    looks = looks_of(names)
    lines = []
    for (method, memory), part in rows.groupby(["method", "memory"], sort=False):
        found = _accuracies(part)
        lines.append(
            Line(
                title(str(method), int(str(memory))),
                [x for _, x, _ in found],
                [y for _, _, y in found],
                [math.nan] * len(found),
                looks[str(method)],
            )
        )
    return Chart(
        slug(f"front-{benchmark}"),
        f"{benchmark_title(benchmark)}: trade-offs over the first two tasks",
        "Up and to the right is better; one point per preference, from all on the second task "
        "to all on the first.",
        (Panel("accuracy on task 1 (%)", "accuracy on task 2 (%)", tuple(lines)),),
    )

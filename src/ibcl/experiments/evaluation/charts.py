"""What there is to see in a table of results, as charts that know nothing of how they are drawn.

`ibcl.experiments.evaluation.figures` draws them for a paper, `ibcl.experiments.evaluation.report`
for a browser. A panel has at most six lines; where there are more contenders, the best of each kind
are shown and the tables have the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

import ibcl
from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.names import (
    benchmark_title,
    group_of,
    in_order,
    keeps_all_data,
    title,
)
from ibcl.experiments.evaluation.runs import slug
from ibcl.experiments.evaluation.style import MOST_LINES, Look, look, looks_of
from ibcl.experiments.evaluation.summary import by_metric, column_title

ALONG = "along=tasks"
"""Label of runs in which a few contenders were asked after every task."""


@dataclass(frozen=True)
class Line:
    """Points joined by a line, or single points; ``half_width`` of an interval may be NaN."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    half_width: Sequence[float]
    look: Look
    joined: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Parameters
    ----------
    scale
        ``"linear"``, ``"log"`` in x, or ``"log-log"``, in which 0 has a place of its own in y.
    """

    x: str
    y: str
    lines: tuple[Line, ...]
    title: str = ""
    scale: str = "linear"


@dataclass(frozen=True)
class Ranking:
    """Contenders one below the other, with a point and an interval each."""

    title: str
    names: tuple[str, ...]
    groups: tuple[str, ...]
    values: tuple[float, ...]
    half_widths: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Panels side by side, a name for files, and a sentence that says what to look at."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...] = ()
    rankings: tuple[Ranking, ...] = ()


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
    values = metrics.at_last_task(by_metric(_mean_models(table), metrics.average_per_task))
    if values.empty:
        return
    found = []
    for (benchmark, family), part in values.groupby(["benchmark", "preferences"], sort=False):
        each = {
            (str(method), int(str(memory))): metrics.interval(group["value"].tolist())
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
    """The paper's main figures: three metrics along tasks, one chart a benchmark."""
    asked = metrics.asked_at_every_task(_mean_models(table))
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
                    "task", f"{name} {shown} (%)", _by_method(_percent(metric(few, column)), "task")
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
                    _by_method(_percent(part), "selection"),
                    column_title(*map(str, key)),
                )
                for position, (key, part) in enumerate(parts[number : number + 3])
            ),
        )


def ablation_charts(table: pd.DataFrame) -> Iterator[Chart]:
    """One chart a knob and benchmark: what it is set to across, what comes out up."""
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
    "prior_std": "standard deviation of the prior",
    "priors": "number of priors",
    "pooling": "pooling rule and covariance",
    "order": "order of the tasks (0: the benchmark's)",
    "memory": "samples kept of each task",
    "storage": "how the evidence is stored",
}
"""What people call the settings that are varied."""


def _knob(table: pd.DataFrame, knob: str, benchmark: str) -> Chart:
    """Accuracy after the last task against the setting, one line a method."""
    rows = _mean_models(table)
    values = metrics.at_last_task(by_metric(rows, metrics.average_per_task))
    values = values.assign(setting=values["label"].str.partition("=")[2])
    number = pd.to_numeric(values["setting"], errors="coerce").notna().all()
    if number:
        values["setting"] = values["setting"].astype(float)
    values = _percent(values.assign(memory=0 if knob == "memory" else values["memory"]))
    positive = number and bool((values["setting"] > 0).all())
    scale = "log" if positive and knob in ("d", "prior_std", "memory") else "linear"
    if knob == "d" and number:
        # The first setting is 0, which a logarithm has no place for.
        values["setting"] = values["setting"].map("{:g}".format)
    panels = [
        Panel(
            KNOBS.get(knob, knob),
            "average per-task accuracy (%)",
            _by_method(values, "setting"),
            scale=scale,
        )
    ]
    if knob == "d":
        kept = metrics.at_last_task(metrics.costs(rows))
        kept = kept.assign(value=kept["posteriors"], setting=kept["label"].str.partition("=")[2])
        lines = _by_method(kept, "setting")
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
    values = _percent(metrics.at_last_task(metrics.average_per_task(table)))
    values = values.assign(setting=values["label"].str.partition("=")[2].astype(float))
    return Chart(
        slug(f"ablation-{knob}-{benchmark}"),
        f"{benchmark_title(benchmark)}: α" + (", inverted" if knob != "alpha" else ""),
        _READINGS[knob],
        (
            Panel(
                "α",
                "average per-task accuracy (%)",
                _lines(values.assign(who=values["selection"].map(words)), "who", "setting"),
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
    costs = metrics.costs(_mean_models(table))
    costs = costs[costs["task"] == 2]
    costs = costs.assign(number=costs["label"].str.partition("=")[2].astype(int))
    panels = tuple(
        Panel(
            "number of preferences",
            shown,
            _by_method(costs.assign(value=costs[column]), "number"),
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
        "IBCL trains once, whoever asks; rehearsal trains once for each preference.",
        panels,
    )


def _front(table: pd.DataFrame, benchmark: str) -> Chart:
    """Accuracies on the first two tasks, one point a preference, averaged over seeds."""
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
        "Up and to the right is better; one point a preference, from all weight on the second task "
        "to all weight on the first.",
        (Panel("accuracy on task 1 (%)", "accuracy on task 2 (%)", tuple(lines)),),
    )


def _mean_models(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["selection"] == "mean"]


def _percent(values: pd.DataFrame) -> pd.DataFrame:
    return values.assign(value=100 * values["value"])


def _by_method(values: pd.DataFrame, x: str) -> tuple[Line, ...]:
    """One line a method and memory, in the order of tables, those that keep all data dashed."""
    pairs = in_order(
        {(str(m), int(n)) for m, n in zip(values["method"], values["memory"], strict=True)}
    )
    shown = pairs[:MOST_LINES]
    looks = {}
    for position, (method, memory) in enumerate(shown):
        chosen = look(position)
        dashes = 1 if keeps_all_data(method) else chosen.dashes
        looks[title(method, memory)] = chosen._replace(dashes=dashes)
    who = [title(m, int(n)) for m, n in zip(values["method"], values["memory"], strict=True)]
    frame = values.assign(who=who)
    frame = frame[frame["who"].isin(looks)]
    order = {name: position for position, name in enumerate(looks)}
    frame = frame.sort_values("who", key=lambda names: names.map(order), kind="stable")
    return _lines(frame, "who", x, looks)


def _lines(
    values: pd.DataFrame, who: str, x: str, looks: dict[str, Look] | None = None
) -> tuple[Line, ...]:
    """One line for each value of `who`: means over seeds, with 95 % intervals."""
    lines = []
    for position, (name, part) in enumerate(values.groupby(who, sort=False)):
        points = [
            (at, metrics.interval(group["value"].tolist()))
            for at, group in part.groupby(x, sort=False)
        ]
        if all(isinstance(at, int | float) for at, _ in points):
            points.sort(key=lambda point: float(str(point[0])))
        lines.append(
            Line(
                str(name),
                [at for at, _ in points],  # type: ignore[misc]
                [found.mean for _, found in points],
                [found.half_width for _, found in points],
                (looks or {}).get(str(name), look(position)),
            )
        )
    return tuple(lines)

"""What there is to see in a table of results, as charts that know nothing of how they are drawn.

`ibcl.experiments.evaluation.figures` draws them for a paper, `ibcl.experiments.evaluation.report` for a browser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.summary import NAMES, title


@dataclass(frozen=True)
class Line:
    """Points joined by a line; ``half_width`` of an interval may be NaN."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    half_width: Sequence[float]
    colour: str
    dash: bool = False
    joined: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    x: str
    y: str
    lines: tuple[Line, ...]
    title: str = ""
    logarithmic: bool = False


@dataclass(frozen=True)
class Chart:
    """Panels side by side, a name for files, and a sentence that says what to look at."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


COLOURS = dict(
    zip(
        NAMES,
        (
            *("#d62728", "#ff9896", "#1f77b4", "#aec7e8", "#17becf"),
            *("#000000", "#555555", "#aaaaaa"),
            *("#8c564b", "#c49c94"),
            *("#2ca02c", "#98df8a", "#9467bd", "#c5b0d5", "#ff7f0e", "#bcbd22"),
        ),
        strict=True,
    )
)
_CYCLE = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")

METRICS: tuple[tuple[str, Callable[[pd.DataFrame, str], pd.DataFrame]], ...] = (
    ("average per-task", metrics.average_per_task),
    ("peak per-task", metrics.peak_per_task),
    ("backward transfer,", metrics.backward_transfer),
)


def all_charts(table: pd.DataFrame) -> list[Chart]:
    """Make every chart the table has data for."""
    main, ablations = table[table["label"] == ""], table[table["label"] != ""]
    charts: list[Chart] = []
    if not main.empty:
        charts += metrics_along_tasks(main)
        charts += posteriors_stored(main)
        charts += selections(main)
    if not ablations.empty:
        charts += ablation_charts(ablations)
    return charts


def metrics_along_tasks(table: pd.DataFrame) -> Iterator[Chart]:
    """The paper's main figures: three metrics along tasks, one chart a benchmark."""
    rows = table[table["selection"] == "mean"]
    for (benchmark, family), part in rows.groupby(["benchmark", "preferences"], sort=False):
        for column in ("accuracy", "balanced_accuracy"):
            if column == "balanced_accuracy" and column not in part["metric"].to_numpy():
                continue
            shown = column.replace("_", " ")
            yield Chart(
                f"metrics-{benchmark}-{family}-{column}",
                f"{benchmark}: {shown} along the tasks, {family} preferences",
                "Each line is a method, a mean over seeds with its 95 % interval. IBCL's evidence "
                "pooling should lie on the oracle's black line, which may keep all data.",
                tuple(
                    Panel("task", f"{name} {shown}", _by_method(metric(part, column), "task"))
                    for name, metric in METRICS
                ),
            )


def posteriors_stored(table: pd.DataFrame) -> Iterator[Chart]:
    """Posteriors stored along tasks, one line a benchmark (IBCL as in the paper)."""
    rows = table[(table["method"] == "ibcl") & (table["selection"] == "mean")]
    if rows.empty:
        return
    values = metrics.costs(rows[rows["preferences"] == "uniform"])
    values = values.assign(value=values["posteriors"])
    yield Chart(
        "posteriors-stored",
        "Posteriors stored along tasks",
        "A flat line means that new posteriors lay within d of stored ones and were not kept.",
        (Panel("task", "posteriors stored", _lines(values, "benchmark", "task")),),
    )


def selections(table: pd.DataFrame) -> Iterator[Chart]:
    """How much is won by looking at the test data: the four selections of IBCL's models."""
    rows = table[table["method"].str.startswith("ibcl") & (table["preferences"] == "uniform")]
    values = metrics.at_last_task(metrics.average_per_task(rows)) if len(rows) else rows
    if len(values) == 0 or values["selection"].nunique() < 2:
        return
    order = {"mean": 0, "averaged": 1, "validated": 2, "test_maximum": 3}
    values = values.sort_values("selection", key=lambda column: column.map(order), kind="stable")
    values["selection"] = values["selection"].replace({"test_maximum": "test maximum (optimistic)"})
    yield Chart(
        "selections",
        "Which model of the region: mean, average, chosen on validation, chosen on test data",
        "The last point of each line looks at the answers, as the paper's figures do: no user can.",
        tuple(
            Panel(
                "",
                "average per-task accuracy" if position == 0 else "",
                _by_method(part, "selection"),
                str(benchmark),
            )
            for position, (benchmark, part) in enumerate(values.groupby("benchmark", sort=False))
        ),
    )


def ablation_charts(table: pd.DataFrame) -> Iterator[Chart]:
    """One chart a knob and benchmark."""
    knobs = table["label"].str.partition("=")
    frame = table.assign(knob=knobs[0], setting=knobs[2])
    for (knob, benchmark), part in frame.groupby(["knob", "benchmark"], sort=False):
        if knob == "front":
            yield _front(part, str(benchmark))
        elif knob == "preferences":
            yield _cost(part, str(benchmark))
        elif knob in ("alpha", "inverted_alpha"):
            yield _significance(part, str(knob), str(benchmark))
        else:
            yield _knob(part, str(knob), str(benchmark))


def _knob(table: pd.DataFrame, knob: str, benchmark: str) -> Chart:
    """Three metrics along tasks, one line a value of the knob and method."""
    panels = []
    for name, metric in METRICS:
        values = metric(table, "accuracy")
        values["who"] = values["label"] + values["method"].map(
            lambda method: f", {title(method)}" if table["method"].nunique() > 1 else ""
        )
        panels.append(Panel("task", f"{name} accuracy", _lines(values, "who", "task")))
    if knob == "d":
        stored = metrics.costs(table)
        stored = stored.assign(value=stored["posteriors"], who=stored["label"])
        panels.append(Panel("task", "posteriors stored", _lines(stored, "who", "task")))
    return Chart(
        f"ablation-{knob}-{benchmark}",
        f"{benchmark}: {knob}",
        "One line a setting; all else as in the main runs.",
        tuple(panels),
    )


def _significance(table: pd.DataFrame, knob: str, benchmark: str) -> Chart:
    """Sampled models along tasks for each α; over the first two tasks, and over all."""
    reading = (
        "Highest density regions by their definition: α hardly matters in many dimensions."
        if knob == "alpha"
        else "Not the definition: per-coordinate intervals of mass α instead of 1 − α, under which "
        "accuracy falls as α grows."
    )
    panels = []
    for selection in ("averaged", "test_maximum"):
        values = metrics.average_per_task(table[table["selection"] == selection])
        shown = "test maximum (optimistic)" if selection == "test_maximum" else selection
        panels.append(
            Panel("task", "average per-task accuracy", _lines(values, "label", "task"), shown)
        )
    return Chart(f"ablation-{knob}-{benchmark}", f"{benchmark}: {knob}", reading, tuple(panels))


def _cost(table: pd.DataFrame, benchmark: str) -> Chart:
    """Updates and CPU time at the second task against the number of preferences."""
    costs = metrics.costs(table)
    costs = costs[costs["task"] == 2]
    costs = costs.assign(number=costs["label"].str.partition("=")[2].astype(int))
    panels = tuple(
        Panel(
            "number of preferences",
            shown,
            _by_method(costs.assign(value=costs[column].clip(lower=least)), "number"),
            logarithmic=True,
        )
        for column, shown, least in (
            ("updates", "updates at the second task (1: none)", 1),
            ("seconds", "CPU seconds at the second task", 1e-3),
        )
    )
    return Chart(
        f"cost-{benchmark}",
        f"{benchmark}: cost against the number of preferences",
        "IBCL trains once, whoever asks; rehearsal trains once for each preference.",
        panels,
    )


def _front(table: pd.DataFrame, benchmark: str) -> Chart:
    """Accuracies on the first two tasks, one point a preference, averaged over seeds."""
    rows = table[(table["task_seen"] == 2) & (table["selection"] == "mean")]
    keys = ["method", "memory", "preference", "task_tested"]
    means = rows.groupby(keys, sort=False)["accuracy"].mean().unstack("task_tested").reset_index()
    lines = []
    for (method, memory), part in means.groupby(["method", "memory"], sort=False):
        lines.append(
            Line(
                title(str(method), int(str(memory))),
                part[1].tolist(),
                part[2].tolist(),
                [float("nan")] * len(part),
                COLOURS[str(method)],
                dash=str(method).startswith("oracle"),
            )
        )
    return Chart(
        f"front-{benchmark}",
        f"{benchmark}: trade-offs over the first two tasks",
        "Up and to the right is better; one point a preference, from all weight on the second task "
        "to all weight on the first.",
        (Panel("accuracy on task 1", "accuracy on task 2", tuple(lines)),),
    )


def _by_method(values: pd.DataFrame, x: str) -> tuple[Line, ...]:
    """One line a method and memory, in the contenders' own order and colours."""
    places = {name: place for place, name in enumerate(NAMES)}
    values = values.sort_values("memory", kind="stable")
    values = values.sort_values("method", key=lambda names: names.map(places), kind="stable")
    who = [title(m, int(n)) for m, n in zip(values["method"], values["memory"], strict=True)]
    colours = dict(zip(who, values["method"].map(COLOURS), strict=True))
    smallest = min((n for n in values["memory"] if n), default=0)
    dashed = {name for name, n in zip(who, values["memory"], strict=True) if n > smallest}
    # A mixture's mean models are the barycentre's: dashed, both can be seen.
    dashed |= {name for name in who if name.startswith("oracle") or name == title("ibcl_mixture")}
    return _lines(values.assign(who=who), "who", x, colours, dashed)


def _lines(
    values: pd.DataFrame,
    who: str,
    x: str,
    colours: dict[str, str] | None = None,
    dashed: set[str] | None = None,
) -> tuple[Line, ...]:
    """One line for each value of `who`: means over seeds, with 95 % intervals."""
    lines = []
    for position, (name, part) in enumerate(values.groupby(who, sort=False)):
        points = [
            (at, metrics.interval(group["value"].tolist()))
            for at, group in part.groupby(x, sort=False)
        ]
        if x != "selection":
            points.sort(key=lambda point: float(str(point[0])))
        lines.append(
            Line(
                str(name),
                [at for at, _ in points],  # type: ignore[misc]
                [found.mean for _, found in points],
                [found.half_width for _, found in points],
                (colours or {}).get(str(name), _CYCLE[position % len(_CYCLE)]),
                dash=str(name) in (dashed or set()),
            )
        )
    return tuple(lines)

"""Tables of the studies, for people."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ibcl.experiments.evaluation.comparison_tables import percent
from ibcl.experiments.evaluation.titles import benchmark_title
from ibcl.intervals import interval

HALF_A_POINT = 0.005


def study_tables(studies: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Make a table with a heading of every study that was run."""
    found: dict[str, pd.DataFrame] = {}
    detection, bounds, inferred, calibration = (
        studies.get(name, pd.DataFrame())
        for name in ("detection", "bounds", "inferred", "calibration")
    )
    if len(detection):
        found["Inputs of no task: area under the receiver operating characteristic, times 100"] = (
            _detection(detection)
        )
    if len(bounds):
        found["Lower and upper probabilities, in percent, averaged over tasks"] = _bounds(bounds)
    if len(inferred):
        found["Preferences inferred from examples: points lost against the true preference"] = (
            _inferred(inferred)
        )
    if len(calibration):
        found["Expected calibration error in percent, and what chance makes of it"] = _calibration(
            calibration
        )
    return found


def _interval(values: pd.Series[float]) -> str:
    present = values.dropna()
    if present.empty:
        return "–"
    found = interval(present.tolist())
    return percent(found.mean, found.half_width)


def _detection(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (benchmark, other), part in table.groupby(["benchmark", "other"], sort=False):
        row = {
            "learnt": benchmark_title(str(benchmark)),
            "inputs from": benchmark_title(str(other)),
        }
        for score, values in part.groupby("score", sort=False):
            row[str(score)] = _interval(values["auroc"])
        rows.append(row)
    return pd.DataFrame(rows)


def _bounds(table: pd.DataFrame) -> pd.DataFrame:
    words = {
        "coverage": "true class within the bounds' answer",
        "decided": "bounds decide",
        "accuracy": "accuracy",
        "accuracy_decided": "accuracy where they decide",
        "accuracy_undecided": "accuracy where they do not",
    }
    rows = []
    for benchmark, part in table.groupby("benchmark", sort=False):
        means = part.groupby("seed")[list(words)].mean()
        row = {"benchmark": benchmark_title(str(benchmark))}
        rows.append(row | {word: _interval(means[column]) for column, word in words.items()})
    return pd.DataFrame(rows)


def _inferred(table: pd.DataFrame) -> pd.DataFrame:
    """Points lost by number of examples, and how many it takes to lose less than half a point."""
    rows = []
    for (benchmark, labelled), part in table.groupby(["benchmark", "labelled"], sort=False):
        losses = {int(str(n)): values["loss"] for n, values in part.groupby("examples")}
        enough = [
            n for n in losses if all(losses[m].mean() <= HALF_A_POINT for m in losses if m >= n)
        ]
        rows.append(
            {
                "benchmark": benchmark_title(str(benchmark)),
                "examples": "labelled" if labelled else "unlabelled",
                **{str(n): _interval(values) for n, values in losses.items()},
                "enough for half a point": str(min(enough)) if enough else "more",
            }
        )
    return pd.DataFrame(rows)


def _calibration(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (benchmark, family), part in table.groupby(["benchmark", "preferences"], sort=False):
        row = {"benchmark": benchmark_title(str(benchmark)), "preferences": family}
        for of, values in part.groupby("of", sort=False):
            row[f"on {of}"] = _interval(values["error"])
            row[f"by chance alone, on {of}"] = _interval(values["by_chance"])
            row[f"were tasks' own answers right, on {of}"] = _interval(values["tasks_right"])
        rows.append(row)
    return pd.DataFrame(rows)

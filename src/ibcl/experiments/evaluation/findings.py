"""The summary in words: who wins where, by how much, and how sure that is."""

from __future__ import annotations

import math

import pandas as pd

from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.comparison_tables import by_metric, column_title, percent
from ibcl.experiments.evaluation.titles import group_of, keeps_all_data, title
from ibcl.experiments.methods.registration import OURS
from ibcl.intervals import interval


def findings(table: pd.DataFrame) -> list[str]:
    """One sentence per benchmark and family of preferences, from the main runs' mean models."""
    main = table[(table["label"] == "") & (table["selection"] == "mean")]
    if main.empty:
        return []
    values = metrics.at_last_task(by_metric(main, metrics.average_per_task))
    return [
        f"{column_title(str(benchmark), str(family))}: {_sentence(part)}"
        for (benchmark, family), part in values.groupby(["benchmark", "preferences"], sort=False)
    ]


def _sentence(values: pd.DataFrame) -> str:
    means = values.groupby(["method", "memory"])["value"].mean().sort_values(ascending=False)
    fair = [who for who in means.index if not keeps_all_data(who[0])]
    if not fair:
        return "only methods that keep all data were run."
    best = fair[0]
    own = interval(_of(values, best).tolist())
    text = f"{title(*best)} is best with {percent(own.mean, own.half_width)} %"
    rivals = [who for who in fair[1:] if (group_of(who[0]) == OURS) != (group_of(best[0]) == OURS)]
    if rivals:
        whose = "IBCL's best" if group_of(best[0]) != OURS else "the best of the others"
        text += f"; {whose}, {title(*rivals[0])}, {_lead(values, best, rivals[0])}"
    if ("oracle", 0) in means.index:
        text += f"; the oracle, which retrains on all data, {_lead(values, best, ('oracle', 0))}"
    return text + "."


def _of(values: pd.DataFrame, who: tuple[str, int]) -> pd.Series[float]:
    chosen = values[(values["method"] == who[0]) & (values["memory"] == who[1])]
    return chosen.set_index("seed")["value"]


def _lead(values: pd.DataFrame, first: tuple[str, int], second: tuple[str, int]) -> str:
    """How far the second is behind the first, seed by seed, and whether that is sure."""
    difference = (_of(values, first) - _of(values, second)).dropna()
    found = interval(difference.tolist()) if len(difference) else None
    if found is None:
        return "shares no seed with it"
    points = 100 * found.mean
    if math.isnan(found.half_width):
        return f"is {abs(points):.1f} points {'behind' if points >= 0 else 'ahead'} on one seed"
    width = 100 * found.half_width
    if abs(points) <= width:
        return f"cannot be told from it ({-points:+.1f} ± {width:.1f} points)"
    return f"is {abs(points):.1f} ± {width:.1f} points {'behind' if points > 0 else 'ahead'}"

"""What the comparison found, as tables for people and plain values for machines."""

from __future__ import annotations

import math
from typing import Any

from rich import box
from rich.table import Table

from ibcl.demo.movies.comparison import PERSONAL, REFERENCE, Comparison, interval
from ibcl.demo.movies.ranking import MEASURES

TITLES = {
    "accuracy": "Would they like it? Accuracy in percent",
    "auc": "Area under the receiver operating characteristic, times 100",
    "ndcg_at_10": "The order of a viewer's own later films: NDCG@10, times 100",
    "recall_at_20": "Liked films among the first 20 of that order: recall@20, in percent",
}


def figures(comparison: Comparison) -> dict[str, Any]:
    """Return every number as plain Python values; intervals are over viewers, of 95 %."""
    return {
        "audiences": comparison.audiences.value_counts().sort_index().to_dict(),
        "ratings_learnt_from": len(comparison.ratings.early),
        "viewers": len(comparison.ratings.viewers),
        "ratings_tested": sum(len(viewer.later) for viewer in comparison.ratings.viewers),
        "learning_seconds": comparison.learning_seconds,
        "reference": REFERENCE,
        "contenders": {
            name: {
                str(count): {
                    **{m: _plain(interval(one.measures[m])) for m in MEASURES},
                    **{
                        f"{m}_difference": _plain(comparison.difference(name, count, m))
                        for m in MEASURES
                    },
                    "seconds_per_viewer": one.seconds_per_viewer,
                }
                for count, one in ((r.count, r) for r in comparison.results if r.name == name)
            }
            for name in dict.fromkeys(one.name for one in comparison.results)
        },
    }


def _plain(found: tuple[float, float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in found]


def tables(comparison: Comparison) -> list[Table]:
    """Return a table for each measure: ways of predicting by how many ratings are known."""
    return [_table(comparison, measure, title) for measure, title in TITLES.items()]


def _table(comparison: Comparison, measure: str, title: str) -> Table:
    viewers = comparison.ratings.viewers
    table = Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")
    table.add_column("ratings known")
    counts = list(dict.fromkeys(one.count for one in comparison.results))
    for count in counts:
        table.add_column(str(count), justify="right")
    for name in dict.fromkeys(one.name for one in comparison.results):
        cells = [
            _percent(*interval(comparison.result(name, count).measures[measure]))
            for count in counts
        ]
        table.add_row(name, *cells)
    table.add_row(
        f"{PERSONAL} less {REFERENCE}",
        *(_percent(*comparison.difference(PERSONAL, c, measure), signed=True) for c in counts),
    )
    table.caption = f"Averages over {len(viewers)} viewers never seen before, 95 % intervals."
    table.caption_justify = "left"
    return table


def verdict(comparison: Comparison) -> str:
    """Say what personal preferences bought with few and with many ratings."""
    counts = [count for count in dict.fromkeys(one.count for one in comparison.results) if count]
    parts = []
    for count in counts:
        gain, half = comparison.difference(PERSONAL, count, "accuracy")
        parts.append(f"{_percent(gain, half, signed=True)} after {count}")
    return (
        f"Against one model for all, a viewer's own preference, inferred from their first ratings, "
        f"is worth in points of accuracy: {', '.join(parts)}."
    )


def _percent(mean: float, half: float, signed: bool = False) -> str:
    if math.isnan(mean):
        return "–"
    return f"{100 * mean:{'+' if signed else ''}.1f} ± {100 * half:.1f}"

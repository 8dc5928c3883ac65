"""The demo's tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.table import Table

from ibcl.demo.experiment import COVERAGE_DRAWS, Results, WayResult


def tables(results: Results) -> Iterator[Table]:
    """Return one table a way of learning, and one of what each way cost."""
    for result in results.ways:
        yield _accuracy(results, result)
    yield _cost(results)


def _accuracy(results: Results, result: WayResult) -> Table:
    """What each preference's model scores, beside the model retrained for it."""
    table = _table(f"{result.way.name}: test accuracy (trained again for the preference)")
    table.add_column("preference")
    for name in (*results.digits.names, "weighted"):
        table.add_column(name, justify="right")
    ours, theirs = results.weighted(result.accuracy), results.weighted(result.retrained)
    for row, name in enumerate(results.preferences):
        pairs = zip(
            (*result.accuracy[row], ours[row]), (*result.retrained[row], theirs[row]), strict=True
        )
        table.add_row(name, *(f"{a:.3f} ({b:.3f})" for a, b in pairs))
    return table


def _cost(results: Results) -> Table:
    table = _table("What it took, and the region's coverage")
    table.add_column("way")
    for name in (
        "weighted accuracy",
        "trained again",
        "updates, all preferences",
        "updates, trained again, each",
        "time a model",
        f"region holds, of {COVERAGE_DRAWS:,} draws",
    ):
        table.add_column(name, justify="right")
    for result in results.ways:
        table.add_row(
            result.way.name,
            f"{results.weighted(result.accuracy).mean():.3f}",
            f"{results.weighted(result.retrained).mean():.3f}",
            f"{result.updates:,}",
            f"{result.retraining_updates:,}",
            f"{1000 * result.seconds_a_model:.2f} ms",
            f"{result.coverage:.2%} (1 − α = {1 - result.learner.alpha:.0%})",
        )
    return table


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")

"""What the comparison found, as tables for people and plain values for machines."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from ibcl.demo.movies.experiment import Comparison, interval


def figures(comparison: Comparison) -> dict[str, Any]:
    """Return every number as plain Python values."""
    return {
        "tasks": list(comparison.ratings.tasks),
        "ratings_learnt_from": len(comparison.ratings.learning),
        "viewers": len(comparison.viewers),
        "ratings_tested": comparison.test_ratings,
        "learning_seconds": comparison.learning_seconds,
        "reference": comparison.reference,
        "contenders": _figures_of(comparison, blind=False),
        "rows_without_genres": _figures_of(comparison, blind=True),
    }


def _figures_of(comparison: Comparison, blind: bool) -> dict[str, Any]:
    accuracy = comparison.differences("accuracy", blind)
    loss = comparison.differences("log_loss", blind)
    return {
        one.name: {
            "accuracy": interval(one.accuracy),
            "log_loss": interval(one.log_loss),
            "accuracy_difference": accuracy[one.name],
            "log_loss_difference": loss[one.name],
            "seconds_a_viewer": one.seconds_a_viewer,
        }
        for one in (comparison.blind if blind else comparison.contenders)
    }


def tables(comparison: Comparison) -> list[Table]:
    """Return a table of all contenders, and one of rows that do not say the genre."""
    return [
        _table(
            comparison,
            f"Would they like it? {comparison.test_ratings:,} later ratings of "
            f"{len(comparison.viewers)} viewers, each predicted from the past; averages over "
            "viewers with 95% intervals",
            blind=False,
        ),
        _table(comparison, "The same, from rows that do not say the genre", blind=True),
    ]


def _table(comparison: Comparison, title: str, blind: bool) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")
    table.add_column("")
    for name in ("accuracy", "difference", "−log p", "difference", "time a viewer"):
        table.add_column(name, justify="right")
    accuracy = comparison.differences("accuracy", blind)
    loss = comparison.differences("log_loss", blind)
    for one in comparison.blind if blind else comparison.contenders:
        reference = one.name == comparison.reference
        table.add_row(
            one.name,
            _percent(*interval(one.accuracy)),
            "–" if reference else _percent(*accuracy[one.name], signed=True),
            "{:.3f} ± {:.3f}".format(*interval(one.log_loss)),
            "–" if reference else "{:+.3f} ± {:.3f}".format(*loss[one.name]),
            f"{1000 * one.seconds_a_viewer:.1f} ms",
        )
    table.caption = f"Differences are from '{comparison.reference}', viewer by viewer."
    table.caption_justify = "left"
    return table


def verdict(comparison: Comparison) -> str:
    """Say what personal preferences bought, on rows with and without their genre."""
    return (
        f"Personal preferences {_bought(comparison, blind=False)} where rows say the genre, and "
        f"{_bought(comparison, blind=True)} where they do not, against "
        f"{comparison.reference}."
    )


def _bought(comparison: Comparison, blind: bool) -> str:
    name = comparison.contenders[0].name
    gain, half = comparison.differences("accuracy", blind)[name]
    shown = f"{100 * abs(gain):.1f} ± {100 * half:.1f} points of accuracy"
    if abs(gain) <= half:
        return f"make no difference that these viewers could show ({100 * gain:+.1f} ± " + (
            f"{100 * half:.1f} points of accuracy)"
        )
    return f"{'buy' if gain > 0 else 'cost'} {shown}"


def _percent(mean: float, half: float, signed: bool = False) -> str:
    return f"{100 * mean:{'+' if signed else ''}.1f} ± {100 * half:.1f}"

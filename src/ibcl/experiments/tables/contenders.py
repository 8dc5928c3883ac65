"""Who is compared: each learns a table, and answers rows under a preference between its tasks.

A new contender is a class with `fit` and `predict`, and a line in `CONTENDERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import ibcl
from ibcl.experiments.tables.catalogue import Table

Answers = NDArray[np.float64]
Preference = Mapping[str, float]


class Contender(Protocol):
    """Learns a table once, and answers as often as there are preferences."""

    def fit(self, table: Table) -> None:
        """Learn all tasks of a table."""

    def predict(self, x: pd.DataFrame, preference: Preference) -> Answers:
        """Return class probabilities, (n, classes), or values, (n,)."""


class Estimator:
    """The library's estimator, with settings of its own or as it comes."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.model: Any = None

    def fit(self, table: Table) -> None:
        """Learn the tasks one after another."""
        if table.metric == "r2":
            options = {k: v for k, v in self.settings.items() if k != "class_weight"}
            self.model = ibcl.IBCLRegressor(**options)
        else:
            self.model = ibcl.IBCLClassifier(**self.settings)
        self.model.fit(table.x, table.y, task=table.task.to_numpy())

    def predict(self, x: pd.DataFrame, preference: Preference) -> Answers:
        """Answer with the model of the preference."""
        regression = isinstance(self.model, ibcl.IBCLRegressor)
        answer = self.model.predict if regression else self.model.predict_proba
        return np.asarray(answer(x, preference=dict(preference)))


class Retrained:
    """A scikit-learn model, trained again for every preference, or once with all tasks alike.

    A row of task k counts w_k / n_k, so that a task counts as the preference says, however many
    rows it has.
    """

    def __init__(self, build: Callable[[bool], Pipeline], once: bool) -> None:
        self.build, self.once = build, once
        self.table: Table | None = None
        self.fitted: tuple[Preference, Pipeline] | None = None

    def fit(self, table: Table) -> None:
        """Keep the data; with ``once`` also train."""
        self.table, self.fitted = table, None

    def predict(self, x: pd.DataFrame, preference: Preference) -> Answers:
        """Answer with a model trained for the preference, or for the uniform one."""
        assert self.table is not None
        tasks = self.table.tasks
        wanted = {task: 1 / len(tasks) for task in tasks} if self.once else dict(preference)
        if self.fitted is None or self.fitted[0] != wanted:
            self.fitted = (wanted, self._trained(self.table, wanted))
        model = self.fitted[1]
        regression = self.table.metric == "r2"
        return np.asarray(model.predict(x) if regression else model.predict_proba(x))

    def _trained(self, table: Table, preference: Preference) -> Pipeline:
        sizes = table.task.value_counts()
        each = table.task.map(lambda name: preference[name] / sizes[name]).to_numpy(dtype=float)
        weights = each * len(each) / each.sum()
        pipeline = self.build(table.metric == "r2")
        # Rows of no weight are left out; every class must stay.
        rows = weights > 0
        if table.metric != "r2" and table.y[rows].nunique() < table.y.nunique():
            rows, weights = np.ones(len(rows), dtype=bool), np.maximum(weights, 1e-9)
        last = pipeline.steps[-1][0]
        return pipeline.fit(
            table.x[rows], table.y[rows], **{f"{last}__sample_weight": weights[rows]}
        )


_CATEGORIES = make_column_selector(dtype_exclude="number")
_NUMBERS = make_column_selector(dtype_include="number")


def linear(regression: bool) -> Pipeline:
    """Logistic regression, or ridge regression with its penalty by leave-one-out."""
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), _NUMBERS),
        (OneHotEncoder(handle_unknown="ignore", min_frequency=5), _CATEGORIES),
    )
    head = RidgeCV(np.logspace(-3, 3, 7)) if regression else LogisticRegression(max_iter=1000)
    return make_pipeline(columns, head)


def boosting(regression: bool) -> Pipeline:
    """Histogram gradient boosting as it comes."""
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    columns = make_column_transformer((encoder, _CATEGORIES), remainder="passthrough")
    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    return make_pipeline(columns, kind(random_state=0))


CONTENDERS: dict[str, Callable[[], Contender]] = {
    "ibcl": Estimator,
    "ibcl, boosting beside": lambda: Estimator(expert="auto"),
    "ibcl, linear head": lambda: Estimator(network="linear"),
    "ibcl, balanced classes": lambda: Estimator(class_weight="balanced"),
    "linear, per preference": lambda: Retrained(linear, once=False),
    "linear, once": lambda: Retrained(linear, once=True),
    "boosting, per preference": lambda: Retrained(boosting, once=False),
    "boosting, once": lambda: Retrained(boosting, once=True),
}
"""Who is compared, by name; *linear* is logistic or ridge regression."""

"""What classifier and regressor share: tasks, preference, and the model between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from ibcl.estimator.cache import ModelCache
from ibcl.inference import Inference
from ibcl.learner import IBCL
from ibcl.likelihoods import Likelihood
from ibcl.model import Model
from ibcl.pooling import Routed
from ibcl.preference import Preference
from ibcl.tabular import (
    Numbers,
    Schema,
    head_names,
    in_scaled_units,
    make_head,
    outputs_for,
    scales,
)


class IBCLEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: tasks, preference, and the model between them."""

    learner_: IBCL
    schema_: Schema

    def __init__(
        self,
        head: str = "random_features",
        *,
        width: int = 256,
        priors: Sequence[float] | None = None,
        inference: Inference | None = None,
        pooling: str | Routed | None = None,
        preference: Any = None,
        continual: bool | None = None,
        d: float | None = None,
        alpha: float = 0.01,
        random_state: Any = 0,
    ) -> None:
        self.head = head
        self.width = width
        self.priors = priors
        self.inference = inference
        self.pooling = pooling
        self.preference = preference
        self.continual = continual
        self.d = d
        self.alpha = alpha
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def tasks_(self) -> tuple[str, ...]:
        """Names of the tasks learnt, in order."""
        check_is_fitted(self, "learner_")
        return self.learner_.tasks

    def set_preference(self, preference: Any) -> Self:
        """Choose the preference of all predictions from now on; None weighs all tasks equally."""
        if preference is not None and hasattr(self, "learner_"):
            Preference.parse(preference, self.tasks_)
        self.preference = preference
        return self

    def _checked(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        """Check a table as scikit-learn does, and leave a frame a frame.

        An estimator refuses a frame whose columns are others, or in another order, than those it
        was fitted on, as all of scikit-learn does.
        """
        first = y is not None and not hasattr(self, "learner_")
        if isinstance(X, pd.DataFrame):
            repeated = X.columns[X.columns.duplicated()]
            if len(repeated):
                raise ValueError(f"X has more than one column named {repeated[0]!r}.")
            if y is not None and not len(X):
                raise ValueError("X has no rows to learn from.")
            validate_data(self, X, reset=first, skip_check_array=True)
            if y is not None:
                check_consistent_length(X, y)
            return X, y
        settings = {
            "reset": first,
            "accept_sparse": True,
            "dtype": np.float64,
            "ensure_all_finite": "allow-nan",
        }
        if y is None:
            return validate_data(self, X, **settings), None
        table, labels = validate_data(self, X, y, **settings)
        return table, labels

    def _learn(
        self,
        X: Any,
        y: NDArray[Any],
        task: Any,
        weights: Numbers | None,
        *,
        classes: Iterable[Any] | None,
        likelihood: str | Likelihood = "auto",
    ) -> Self:
        """Learn tasks, or further batches of tasks learnt before; all of them or none.

        Parameters
        ----------
        classes : None for a regression.
        likelihood : in units of y.
        """
        if weights is not None and not weights.all():
            # A sample of weight zero is none.
            kept = np.flatnonzero(weights)
            X, y, weights = _rows(X, kept), y[kept], weights[kept]
            task = task if np.ndim(task) == 0 else np.asarray(task, dtype=object)[kept]
        tasks = self._split(task, len(y))
        first = next(iter(tasks.values()))
        learner = getattr(self, "learner_", None)
        schema = getattr(self, "schema_", None)
        if learner is None or schema is None:
            schema = Schema.fit(
                _rows(X, first),
                y[first],
                classes=classes,
                regression=classes is None,
                scale_target=scales(likelihood),
                sample_weight=None if weights is None else weights[first],
            )
            learner = self._make_learner(schema, in_scaled_units(likelihood, schema.scale))
        for name, rows in tasks.items():
            action = learner.extend if name in learner.tasks else learner.learn
            part = None if weights is None else weights[rows]
            action(_rows(X, rows), y[rows], task=name, sample_weight=part)
        self.schema_, self.learner_ = schema, learner
        self._models = ModelCache()
        return self

    def _make_learner(self, schema: Schema, likelihood: str | Likelihood) -> IBCL:
        if self.head not in head_names():
            raise ValueError(f"head must be one of {', '.join(head_names())}, not {self.head!r}.")
        state = self.random_state
        seed = state if isinstance(state, int) else check_random_state(state).randint(2**31 - 1)
        sizes: dict[str, Any] = {"random_features": {"width": self.width}}.get(
            self.head, {"hidden": (self.width,)} if self.head == "mlp" else {}
        )
        network = make_head(
            self.head,
            schema.width,
            outputs_for(None if schema.classes is None else len(schema.classes)),
            seed=seed,
            **sizes,
        )
        return IBCL(
            network,
            self.priors,
            self.inference,
            self.pooling,
            self.d,
            self.alpha,
            seed,
            likelihood=likelihood,
            continual=self.continual,
            encoder=schema,
        )

    def _split(self, task: Any, samples: int) -> dict[str, NDArray[np.intp]]:
        """Rows of each task, in the order of first appearance."""
        rows = np.arange(samples)
        if task is None:
            learnt = len(self.learner_.tasks) if hasattr(self, "learner_") else 0
            return {f"task {learnt + 1}": rows}
        names = np.asarray(task, dtype=object)
        if pd.isna(names).any():
            raise ValueError(
                "Some samples have no task: task holds None or NaN; name a task for each of them, "
                "or leave them out."
            )
        if names.ndim == 0:
            return {str(task): rows}
        if names.shape != (samples,):
            raise ValueError(
                f"task must be one name or one name a sample ({samples}), but its shape is "
                f"{names.shape}."
            )
        texts = np.array([str(name) for name in names])
        return {str(name): rows[texts == name] for name in dict.fromkeys(texts)}

    def _forget(self) -> None:
        for name in ("learner_", "schema_", "_models"):
            self.__dict__.pop(name, None)

    def _model(self, preference: Any = None) -> Model:
        """Return the model of a preference, or of the estimator's own; made once and kept."""
        tasks = self.tasks_
        wanted = self.preference if preference is None else preference
        if wanted is None:
            wanted = np.full(len(tasks), 1 / len(tasks))
        return self._models.model(self.learner_, Preference.parse(wanted, tasks))


def _rows(table: Any, rows: NDArray[np.intp]) -> Any:
    if isinstance(table, pd.DataFrame):
        return table.iloc[rows]
    sparse_table = isinstance(table, sparse.sparray | sparse.spmatrix)
    return table.tocsr()[rows] if sparse_table else table[rows]

r"""One version of a knowledge base, ready to predict for many users at once.

Under routed evidence whose heads do not depend on the preference, a prediction is

    p(y | x, w) = Σ_k w_k e_k(x) p_k(y | x) / Σ_k w_k e_k(x),

so that e and p are computed once for the rows of all users, and a user costs K products. Other
rules need a model a preference, which is made once and remembered for a while.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

import ibcl
from ibcl.serve.errors import Refusal
from ibcl.serve.rows import RowEncoder
from ibcl.tabular import Schema

Numbers = NDArray[np.float64]
Row = Mapping[str, Any]

_MODELS = 256
"""Models remembered of one version."""


@dataclass(frozen=True)
class Prepared:
    """Everything about some rows that no preference changes."""

    inputs: Tensor
    scores: Numbers | None
    """log p_k(x) up to a term that all tasks share, of shape (rows, tasks), where routed."""
    members: Numbers | None
    """p_k(y | x), of shape (tasks, rows, columns), where routed with heads for all preferences."""

    @property
    def shares(self) -> Numbers | None:
        """What the gate would give each task if all were as likely, of shape (rows, tasks)."""
        if self.scores is None:
            return None
        shares = np.exp(self.scores - self.scores.max(1, keepdims=True))
        return np.asarray(shares / shares.sum(1, keepdims=True))


class Served:
    """A learner of one version.

    Parameters
    ----------
    version
        The manifest's checksum.
    """

    def __init__(self, version: str, learner: ibcl.IBCL) -> None:
        self.version, self.learner, self.view = version, learner, learner.view
        self.tasks = self.view.knowledge.tasks
        self._models: OrderedDict[bytes, ibcl.Model] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Served({self.version[:12]}, {', '.join(self.tasks)})"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a row must have; positions where they have none."""
        names: tuple[str, ...] | None = getattr(self.view.encoder, "names", None)
        if names is not None:
            return names
        specification = self.view.network.specification or {}
        count = len(getattr(self.view.encoder, "columns", ())) or specification.get("inputs", 0)
        return tuple(str(position) for position in range(int(count)))

    @cached_property
    def classes(self) -> tuple[Any, ...] | None:
        """The user's classes in the order of their numbers, None for regression."""
        if not self.view.answers.classification:
            return None
        if self.view.encoder is not None:
            return self.view.encoder.classes
        inputs = torch.zeros(1, len(self.columns))
        return tuple(range(self.predict(self.prepare(inputs), self._uniform(1)).shape[1]))

    def _uniform(self, rows: int) -> Numbers:
        return np.full((rows, len(self.tasks)), 1 / len(self.tasks))

    def warm(self) -> None:
        """Compute what the first request would otherwise wait for."""
        width = getattr(self.view.encoder, "width", len(self.columns))
        self.predict(self.prepare(torch.zeros(1, width)), self._uniform(1))
        _ = self.classes

    def _values(self, rows: Sequence[Row]) -> list[list[Any]]:
        """Return the rows' values in the order of the columns; none may be lacking."""
        columns = self.columns
        try:
            return [[row[name] for name in columns] for row in rows]
        except KeyError as error:
            position = next(k for k, row in enumerate(rows) if error.args[0] not in row)
            raise Refusal(
                409,
                f"Row {position + 1} lacks the column {error.args[0]!r}; the columns are "
                f"{', '.join(columns)}.",
            ) from None

    def table(self, rows: Sequence[Row]) -> Any:
        """Return rows by name as what the learner takes: a frame, or an array without names."""
        return self._table(self._values(rows))

    def _table(self, values: list[list[Any]]) -> Any:
        if getattr(self.view.encoder, "names", None) is not None:
            columns = zip(*values, strict=True)
            return pd.DataFrame(dict(zip(self.columns, columns, strict=True)))
        if any(isinstance(value, str) for row in values for value in row):
            raise Refusal(409, "The columns of this knowledge base must be numbers.")
        return np.array(values, dtype=np.float64)

    @cached_property
    def _row_encoder(self) -> RowEncoder | None:
        encoder = self.view.encoder
        if isinstance(encoder, Schema) and self.view.task_incremental is None:
            return RowEncoder(encoder)
        return None

    def encode(self, rows: Sequence[Row]) -> Tensor:
        """Turn rows by name into the network's inputs; what does not fit is refused."""
        values = self._values(rows)
        inputs = None if self._row_encoder is None else self._row_encoder(values)
        if inputs is not None:
            return inputs.to(self.view.network.device)
        try:
            inputs = self.view.encode(self._table(values))
        except (ValueError, TypeError) as error:
            raise Refusal(409, str(error)) from None
        if not bool(torch.isfinite(inputs).all()):
            raise Refusal(409, "A row holds a number that is missing or too large.")
        return inputs

    def labels(self, labels: Sequence[Any]) -> Tensor:
        """Turn labels into class numbers, or scaled targets; unknown ones are refused."""
        try:
            if self.view.encoder is not None:
                return self.view.encoder.labels(pd.Series(list(labels)))
            values = torch.as_tensor([float(label) for label in labels])
        except (ValueError, TypeError) as error:
            raise Refusal(409, str(error)) from None
        if self.classes is None:
            return values
        if not bool(torch.isin(values, torch.arange(len(self.classes))).all()):
            raise Refusal(409, f"Labels must be whole numbers from 0 to {len(self.classes) - 1}.")
        return values.long()

    @property
    def shared_heads(self) -> bool:
        """Tell whether all preferences share their heads, so that a user costs K products."""
        rule = self.view.pooling
        return isinstance(rule, ibcl.Routed) and rule.heads == "uniform"

    def prepare(self, inputs: Tensor) -> Prepared:
        """Compute what predictions for any preference need."""
        if not isinstance(self.view.pooling, ibcl.Routed):
            return Prepared(inputs, None, None)
        members = self.view.task_means(inputs).numpy() if self.shared_heads else None
        return Prepared(inputs, self._scores(inputs), members)

    def _scores(self, inputs: Tensor) -> Numbers:
        """Log p_k(x) up to a term that all tasks share, of shape (rows, tasks)."""
        return self.view.input_scores(inputs).numpy()

    def predict(self, prepared: Prepared, weights: Numbers) -> Numbers:
        """Return probabilities (or expected values), of shape (rows, columns).

        Parameters
        ----------
        weights
            A preference a row, of shape (rows, tasks).
        """
        result = np.empty((len(weights), 0))
        alone = (weights > 0).sum(1) == 1
        mixed = prepared.members is not None and not alone.all()
        if mixed:
            assert prepared.members is not None
            assert prepared.scores is not None
            with np.errstate(divide="ignore"):
                shares = softmax(prepared.scores + np.log(weights), axis=1)
            result = np.einsum("nk,knc->nc", shares, prepared.members)
        # Where all weight is on one task, or the rule has no heads for all, a model of its own.
        rest = alone if mixed else np.ones(len(weights), dtype=bool)
        if rest.any():
            result = self._by_model(prepared.inputs, weights, rest, result)
        return result

    def _by_model(
        self, inputs: Tensor, weights: Numbers, rows: NDArray[np.bool_], result: Numbers
    ) -> Numbers:
        """Predict some rows preference by preference, into a copy of a result."""
        positions = np.flatnonzero(rows)
        unique, which = np.unique(weights[positions], axis=0, return_inverse=True)
        for number, preference in enumerate(unique):
            chosen = positions[which.reshape(-1) == number]
            means = self.model(preference).predictor.means(inputs[chosen])[0].double().numpy()
            if not result.shape[1]:
                result = np.empty((len(weights), means.shape[1]))
            result[chosen] = means
        return result

    def decide(self, means: Numbers) -> list[Any]:
        """Return predictions as the user's classes or values."""
        decision = self.view.answers.decide(torch.as_tensor(means))
        if self.view.encoder is not None:
            decided: list[Any] = self.view.encoder.decode(decision).tolist()
            return decided
        plain: list[Any] = decision.tolist()
        return plain

    def model(self, preference: Numbers) -> ibcl.Model:
        """Return the model of a preference in the order of the tasks."""
        key = preference.tobytes()
        with self._lock:
            found = self._models.get(key)
            if found is not None:
                self._models.move_to_end(key)
                return found
        made = self.learner.model(preference)
        with self._lock:
            self._models[key] = made
            while len(self._models) > _MODELS:
                self._models.popitem(last=False)
        return made

    def log_likelihood(self, inputs: Tensor, labels: Tensor | None) -> Numbers:
        r"""Return log L_ik = log p_k(x_i) + log p_k(y_i | x_i), of shape (rows, tasks)."""
        features = self.view.network.features(inputs).double()
        try:
            result = self._scores(features)
        except ValueError as error:
            raise Refusal(409, str(error)) from None
        if labels is not None:
            result = result + self.view.label_scores(inputs, labels).numpy()
        return result

    def bounds(self, model: ibcl.Model, rows: Sequence[Row]) -> tuple[Numbers, Numbers]:
        """Return lower and upper probabilities (or expected values) over the credal set."""
        lower, upper = model.credal_bounds(self.table(rows))
        return _matrix(lower), _matrix(upper)

    def uncertainty(self, model: ibcl.Model, rows: Sequence[Row]) -> dict[str, Numbers]:
        """Return the uncertainty of every row and its two parts."""
        parts = model.uncertainty(self.table(rows))
        return {name: np.asarray(part, np.float64) for name, part in parts._asdict().items()}

    def routing(self, model: ibcl.Model, rows: Sequence[Row]) -> tuple[Numbers, Numbers]:
        """Return every task's share in the prediction of a row, and the row's novelty."""
        table = self.table(rows)
        try:
            shares, novelty = model.routing(table), model.novelty(table)
        except ValueError as error:
            raise Refusal(409, str(error)) from None
        return np.asarray(shares, np.float64), np.asarray(novelty, np.float64)


def _matrix(values: Any) -> Numbers:
    table = np.asarray(values, dtype=np.float64)
    return table.reshape(len(table), -1)

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
from torch import Tensor

import ibcl
from ibcl.serve.errors import Refusal

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

    def part(self, begin: int, end: int) -> Prepared:
        """Return some of the rows."""
        return Prepared(
            self.inputs[begin:end],
            None if self.scores is None else self.scores[begin:end],
            None if self.members is None else self.members[:, begin:end],
        )


class Served:
    """A learner of one version.

    Parameters
    ----------
    version
        The manifest's checksum.
    """

    def __init__(self, version: str, learner: ibcl.IBCL) -> None:
        self.version, self.learner = version, learner
        self.tasks = learner.tasks
        self.encoder: Any = getattr(learner, "encoder", None)
        self._models: OrderedDict[bytes, ibcl.Model] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Served({self.version[:12]}, {', '.join(self.tasks)})"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a row must have."""
        if self.encoder is not None:
            return tuple(self.encoder.features)
        specification = self.learner.network.specification or {}
        return tuple(str(position) for position in range(int(specification.get("inputs", 0))))

    @cached_property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, None for regression."""
        if self.encoder is not None:
            found = self.encoder.classes
            return None if found is None else tuple(map(str, found))
        if not self._classification:
            return None
        count = self.predict(self.prepare(self._blank()), self._uniform(1)).shape[1]
        return tuple(str(position) for position in range(count))

    @property
    def _classification(self) -> bool:
        return bool(getattr(self.learner.likelihood, "classification", True))

    def _uniform(self, rows: int) -> Numbers:
        return np.full((rows, len(self.tasks)), 1 / len(self.tasks))

    def _blank(self) -> Tensor:
        return torch.zeros(1, len(self.columns))

    def warm(self) -> None:
        """Compute what the first request would otherwise wait for."""
        if self.tasks:
            width = len(self.columns) if self.encoder is None else self.encoder.width
            prepared = self.prepare(torch.zeros(1, width))
            self.predict(prepared, self._uniform(1))
            _ = self.classes

    def encode(self, rows: Sequence[Row]) -> Tensor:
        """Turn rows by name into the network's inputs; what does not fit is refused."""
        for position, row in enumerate(rows):
            missing = next((name for name in self.columns if name not in row), None)
            if missing is not None:
                raise Refusal(
                    409,
                    f"Row {position + 1} lacks the column {missing!r}; the columns are "
                    f"{', '.join(self.columns)}.",
                )
        if self.encoder is None:
            return self._plain(rows)
        frame = pd.DataFrame(
            {name: [row[name] for row in rows] for name in self.columns}, columns=[*self.columns]
        )
        try:
            inputs: Tensor = self.encoder.inputs(frame)
        except (ValueError, TypeError) as error:
            raise Refusal(409, str(error)) from None
        return inputs

    def _plain(self, rows: Sequence[Row]) -> Tensor:
        values = [[row[name] for name in self.columns] for row in rows]
        if not all(isinstance(value, int | float) for row in values for value in row):
            raise Refusal(409, "The columns of this knowledge base must be numbers.")
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=np.float64).astype(np.float32)
        if not np.isfinite(array).all():
            raise Refusal(409, "A row holds a number that is too large.")
        return torch.from_numpy(array)

    def labels(self, labels: Sequence[Any]) -> Tensor:
        """Turn labels into class numbers, or scaled targets; unknown ones are refused."""
        try:
            if self.encoder is not None:
                encoded: Tensor = self.encoder.labels(pd.Series(list(labels)))
                return encoded
            values = torch.as_tensor([float(label) for label in labels])
        except (ValueError, TypeError, KeyError) as error:
            raise Refusal(409, str(error)) from None
        if self.classes is not None:
            whole = (values == values.round()) & (values >= 0) & (values < len(self.classes))
            if not bool(whole.all()):
                raise Refusal(409, f"The classes are 0 to {len(self.classes) - 1}.")
            return values.long()
        return values

    def prepare(self, inputs: Tensor) -> Prepared:
        """Compute what predictions for any preference need."""
        return Prepared(inputs, None, None)

    def predict(self, prepared: Prepared, weights: Numbers) -> Numbers:
        """Return probabilities (or expected values), of shape (rows, columns).

        Parameters
        ----------
        weights
            A preference a row, of shape (rows, tasks).
        """
        unique, which = np.unique(weights, axis=0, return_inverse=True)
        result: Numbers | None = None
        for position, preference in enumerate(unique):
            chosen = np.flatnonzero(which.reshape(-1) == position)
            values = self._means(self.model(preference), prepared.inputs[chosen])
            if result is None:
                result = np.empty((len(weights), values.shape[1]))
            result[chosen] = values
        assert result is not None
        return result

    def _means(self, model: ibcl.Model, inputs: Tensor) -> Numbers:
        if self._classification:
            values = model.predict_proba(inputs)
        else:
            values = model.predict(inputs)
            values = values.reshape(len(inputs), -1)
        return np.asarray(values, dtype=np.float64)

    def decide(self, means: Numbers) -> list[Any]:
        """Return predictions as the user's classes or values."""
        if self.classes is not None:
            names = self.classes
            return [names[position] for position in means.argmax(1)]
        return means[:, 0].tolist() if means.shape[1] == 1 else means.tolist()

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
        prepared = self.prepare(inputs)
        result = np.zeros((len(inputs), len(self.tasks)))
        if prepared.scores is not None:
            result += prepared.scores
        elif labels is None:
            raise Refusal(
                409,
                "This knowledge base does not know what its tasks' inputs look like, so a "
                "preference can be inferred from labelled rows only; give labels, or learn with "
                "pooling='routed'.",
            )
        if labels is not None:
            if not self._classification:
                raise Refusal(409, "A preference is inferred from labels of classes only.")
            for task, _ in enumerate(self.tasks):
                vertex = np.eye(len(self.tasks))[task]
                means = self._means(self.model(vertex), inputs)
                chosen = means[np.arange(len(means)), labels.numpy().astype(int)]
                result[:, task] += np.log(np.maximum(chosen, 1e-12))
        return result

    def bounds(self, model: ibcl.Model, inputs: Tensor) -> tuple[Numbers, Numbers]:
        """Return lower and upper probabilities (or expected values) over the credal set."""
        lower, upper = model.credal_bounds(inputs)
        return _table(lower), _table(upper)

    def uncertainty(self, model: ibcl.Model, inputs: Tensor) -> dict[str, Numbers]:
        """Return the uncertainty of every row and its two parts."""
        parts = model.uncertainty(inputs)
        return {name: np.asarray(part, np.float64) for name, part in parts._asdict().items()}

    def routing(self, model: ibcl.Model, inputs: Tensor) -> tuple[Numbers, Numbers]:
        """Return every task's share in the prediction of a row, and the row's novelty."""
        if not hasattr(model, "routing"):
            raise Refusal(409, "Only a knowledge base with pooling='routed' says where rows go.")
        try:
            shares, novelty = model.routing(inputs), model.novelty(inputs)
        except ValueError as error:
            raise Refusal(409, str(error)) from None
        return np.asarray(shares, np.float64), np.asarray(novelty, np.float64)


def _table(values: Any) -> Numbers:
    table = np.asarray(values, dtype=np.float64)
    return table.reshape(len(table), -1)

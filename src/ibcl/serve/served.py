r"""One version of a knowledge base, ready to predict for many users at once.

Rows of all users become features together, once, and what no preference changes of their answers is
computed once (`ibcl.predictive.Answers`); a user of routed evidence then costs K products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

import ibcl
from ibcl.conformal import Guarantee, label_sets
from ibcl.model import Features
from ibcl.predictive import Answers
from ibcl.serve.arrays import Array, ArrayInputs, numbers
from ibcl.serve.errors import ApiError
from ibcl.serve.messages import Given
from ibcl.serve.rows import RowEncoder, rows_frame
from ibcl.tabular import CategoricalColumn, Schema

Numbers = NDArray[np.float64]
Row = Mapping[str, Any] | Array


class Served:
    """A learner of one version.

    Parameters
    ----------
    version
        The manifest's checksum.
    """

    def __init__(self, version: str, learner: ibcl.IBCL) -> None:
        self.version, self.learner, self.state = version, learner, learner.state
        self.tasks = self.state.tasks
        self.reads_arrays: ArrayInputs | None = None
        """What a row is where it is no row of a table."""
        if self.state.encoder is None and self.state.network.specification is None:
            self.reads_arrays = ArrayInputs.of(self.state.network)

    def __repr__(self) -> str:
        return f"Served({self.version[:12]}, {', '.join(self.tasks)})"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a row must have; positions where they have none."""
        names: tuple[str, ...] | None = getattr(self.state.encoder, "names", None)
        if names is not None:
            return names
        specification = self.state.network.specification or {}
        count = len(getattr(self.state.encoder, "columns", ())) or specification.get("inputs", 0)
        return tuple(str(position) for position in range(int(count)))

    @cached_property
    def classes(self) -> tuple[Any, ...] | None:
        """The user's classes in the order of their numbers, None for regression."""
        if not self.state.likelihood.classification:
            return None
        if self.state.encoder is not None:
            return self.state.encoder.classes
        return tuple(range(self.answers(self._blank).columns))

    @property
    def _blank(self) -> Tensor:
        """One row of inputs without any meaning."""
        if self.reads_arrays is not None:
            return self.reads_arrays.blank.to(self.state.network.device)
        return torch.zeros(1, getattr(self.state.encoder, "width", len(self.columns)))

    @cached_property
    def has_sets(self) -> bool:
        """Whether its calibration can prove sets of nine in ten for every preference."""
        rows = Features(self.state.network.features(self._blank), None)
        try:
            model = self.model(np.full(len(self.tasks), 1 / len(self.tasks)))
            self.sets(model, rows, 0.9, "task")
        except (ApiError, ValueError):
            return False
        return True

    def warm(self) -> None:
        """Compute what the first request would otherwise wait for."""
        uniform = np.full((1, len(self.tasks)), 1 / len(self.tasks))
        self.predict(self.answers(self._blank), uniform)
        _ = self.classes

    def rows(self, given: Given) -> Sequence[Row]:
        """Return the rows of a request, by name or as arrays, whichever this one reads."""
        by_name, as_arrays = (name in given.model_fields_set for name in ("rows", "inputs"))
        if by_name == as_arrays:
            raise ApiError(422, "body: Give either rows or inputs.")
        arrays, columns = self.reads_arrays, self.columns
        if by_name:
            if arrays is not None:
                raise ApiError(409, f"This knowledge base reads {arrays}: send them as inputs.")
            return given.rows
        if arrays is not None:
            return arrays.rows(given.inputs)
        if getattr(self.state.encoder, "names", None) is not None:
            raise ApiError(
                409,
                "This knowledge base reads tables: send rows by the names of their columns, which "
                f"are {', '.join(columns)}.",
            )
        values = numbers(given.inputs)
        if values.shape[1:] != (len(columns),):
            raise ApiError(
                409,
                f"This knowledge base reads {len(columns)} numbers per row, but these inputs have "
                f"the shape {values.shape}.",
            )
        return [dict(zip(columns, row, strict=True)) for row in values.tolist()]

    def _values(self, rows: Sequence[Row]) -> list[list[Any]]:
        """Return the rows' values in the order of the columns; none may be lacking."""
        columns: Any = self.columns
        try:
            return [[row[name] for name in columns] for row in rows]
        except KeyError as error:
            position = next(k for k, row in enumerate(rows) if error.args[0] not in row)
            raise ApiError(
                422,
                f"Row {position + 1} lacks the column {error.args[0]!r}; the columns are "
                f"{', '.join(columns)}.",
            ) from None

    def _table(self, values: list[list[Any]]) -> Any:
        if getattr(self.state.encoder, "names", None) is not None:
            return rows_frame(self.columns, values)
        if any(isinstance(value, str) for row in values for value in row):
            raise ApiError(409, "The columns of this knowledge base must be numbers.")
        return np.array(values, dtype=np.float64)

    @cached_property
    def _row_encoder(self) -> RowEncoder | None:
        encoder = self.state.encoder
        if isinstance(encoder, Schema) and self.state.settings.task_incremental is None:
            return RowEncoder(encoder)
        return None

    def encode(self, rows: Sequence[Row]) -> Tensor:
        """Turn rows into the network's inputs; what does not fit is refused."""
        if self.reads_arrays is not None:
            arrays = [row for row in rows if isinstance(row, np.ndarray)]
            return self.state.inputs(self.reads_arrays.stacked(arrays))
        values = self._values(rows)
        inputs = None if self._row_encoder is None else self._row_encoder(values)
        if inputs is not None:
            return inputs.to(self.state.network.device)
        try:
            inputs = self.state.inputs(self._table(values))
        except (ValueError, TypeError) as error:
            raise ApiError(409, str(error)) from None
        if not bool(torch.isfinite(inputs).all()):
            raise ApiError(409, "A row holds a number that is missing or too large.")
        return inputs

    def unknown(self, rows: Sequence[Row]) -> dict[str, int]:
        """Count the categories that were never learnt, by column, of columns that have some."""
        encoder = self.state.encoder
        if not isinstance(encoder, Schema):
            return {}
        counts = {}
        for name, column in zip(self.columns, encoder.columns, strict=True):
            if isinstance(column, CategoricalColumn):
                named = (row[name] for row in rows if isinstance(row, Mapping))
                found = column.count_unknown(named)
                if found:
                    counts[name] = found
        return counts

    def labels(self, labels: Sequence[Any]) -> Tensor:
        """Turn labels into class numbers, or scaled targets; unknown ones are refused."""
        try:
            if self.state.encoder is not None:
                return self.state.encoder.labels(pd.Series(list(labels)))
            values = torch.as_tensor([float(label) for label in labels])
        except (ValueError, TypeError) as error:
            raise ApiError(409, str(error)) from None
        if self.classes is None:
            return values
        if not bool(torch.isin(values, torch.arange(len(self.classes))).all()):
            raise ApiError(409, f"Labels must be whole numbers from 0 to {len(self.classes) - 1}.")
        return values.long()

    @property
    def shares_parameters(self) -> bool:
        """Whether all preferences share their parameters, so that none costs any computation."""
        return self.state.predictives.shares_parameters

    def answers(self, inputs: Tensor) -> Answers:
        """Compute what predictions for any preference need."""
        return self.state.predictives.answers(self._phi(inputs))

    def _phi(self, inputs: Tensor) -> Tensor:
        """Return the network's features; inputs that its own module refuses are refused."""
        try:
            return self.state.network.features(inputs)
        except (ValueError, IndexError) as error:
            if self.reads_arrays is None:
                raise
            raise ApiError(409, f"The base model cannot take these inputs: {error}") from None

    def predict(self, answers: Answers, weights: Numbers) -> Numbers:
        """Return probabilities (or expected values), of shape (rows, columns).

        Parameters
        ----------
        weights
            One preference per row, of shape (rows, tasks).
        """
        return answers.paired(torch.tensor(weights)).cpu().numpy()

    def shares(self, answers: Answers) -> Numbers | None:
        """What the gate would give each task if all were as likely, of shape (rows, tasks)."""
        densities = answers.densities
        return None if densities is None else torch.softmax(densities, 1).cpu().numpy()

    def decide(self, means: Numbers) -> list[Any]:
        """Return predictions as the user's classes or values."""
        decision = self.state.likelihood.decide(torch.as_tensor(means))
        if self.state.encoder is not None:
            decided: list[Any] = self.state.encoder.decode(decision).tolist()
            return decided
        plain: list[Any] = decision.tolist()
        return plain

    def model(self, preference: Numbers) -> ibcl.Model:
        """Return the model of a preference in the order of the tasks."""
        return self.learner.model(preference)

    def log_densities(self, inputs: Tensor, labels: Tensor | None) -> Numbers:
        r"""Return log p_k(x_i) + log p_k(y_i | x_i), of shape (rows, tasks)."""
        try:
            found = self.state.log_densities(self._phi(inputs), labels)
        except ValueError as error:
            raise ApiError(409, str(error)) from None
        return found.cpu().numpy()

    def features(self, rows: Sequence[Row]) -> Features:
        """Turn rows into φ, for the methods of a model."""
        return Features(self._phi(self.encode(rows)), None)

    def bounds(self, model: ibcl.Model, rows: Features) -> tuple[Numbers, Numbers]:
        """Return lower and upper probabilities (or expected values) over the credal set."""
        lower, upper = model.credal_bounds(rows)
        return _matrix(lower), _matrix(upper)

    def sets(
        self,
        model: ibcl.Model,
        rows: Features,
        coverage: float,
        guarantee: Guarantee = "mixture",
    ) -> list[list[Any]]:
        """Return the classes in each row's prediction set, or the ends of its interval, if any."""
        try:
            if self.classes is None:
                ends = model.predict_interval(rows, 1 - coverage, guarantee)
                return [[] if np.isnan(each).any() else each.tolist() for each in ends]
            members = model.predict_set(rows, 1 - coverage, guarantee)
        except ValueError as error:
            raise ApiError(409, str(error)) from None
        return [list(each) for each in label_sets(members, self.classes)]

    def uncertainty(self, model: ibcl.Model, rows: Features) -> dict[str, Numbers]:
        """Return the uncertainty of every row and its two parts."""
        parts = model.uncertainty(rows)
        return {name: np.asarray(part, np.float64) for name, part in parts._asdict().items()}

    def routing(self, model: ibcl.Model, rows: Features) -> tuple[Numbers, Numbers]:
        """Return every task's share in the prediction of a row, and the row's novelty."""
        try:
            shares, novelty = model.routing(rows), model.novelty(rows)
        except ValueError as error:
            raise ApiError(409, str(error)) from None
        return np.asarray(shares, np.float64), np.asarray(novelty, np.float64)


def _matrix(values: Any) -> Numbers:
    table = np.asarray(values, dtype=np.float64)
    return table.reshape(len(table), -1)

"""What models say about a table, as a table: names of columns, and nothing else of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import ibcl
from ibcl import Model, expected_calibration_error
from ibcl.cli.preferences import Users
from ibcl.conformal import in_words
from ibcl.gaussians import Gaussian
from ibcl.tabular import Schema

BLOCK_NUMBERS = 2**20
"""Numbers of a block of many users' predictions, so that memory stays bounded."""


def predictions(
    model: Model,
    schema: Schema,
    frame: pd.DataFrame,
    samples: int,
    bounds: bool,
    uncertainty: bool,
    coverage: float | None = None,
) -> pd.DataFrame:
    """Return one row per row of the table, with the columns asked for.

    Parameters
    ----------
    coverage
        Probability with which sets of classes, or intervals, hold the right answer.
    """
    rows = model.features(frame)
    columns: dict[str, Any] = {"prediction": model.predict(rows, samples)}
    if schema.classes is not None:
        columns |= _by_class("probability", schema, model.predict_proba(rows, samples))
    if bounds:
        for name, values in model.credal_bounds(rows, samples)._asdict().items():
            if schema.classes is None:
                columns[name] = np.asarray(values).reshape(len(frame))
            else:
                columns |= _by_class(name, schema, values)
    if uncertainty:
        parts = model.uncertainty(rows, samples) if samples else model.uncertainty(rows)
        for name, values in parts._asdict().items():
            columns[f"{name}_uncertainty"] = np.asarray(values)
    if coverage is None:
        return pd.DataFrame(columns)
    if schema.classes is None:
        columns["set_lower"], columns["set_upper"] = model.predict_interval(rows, 1 - coverage).T
    else:
        members = model.predict_set(rows, 1 - coverage)
        columns |= _by_class("in_set", schema, members)
        columns["set"] = in_words(members, schema.classes)
    return pd.DataFrame(columns)


def _by_class(prefix: str, schema: Schema, values: Any) -> dict[str, Any]:
    names = schema.class_names or ()
    return {f"{prefix}_{name}": np.asarray(values)[:, column] for column, name in enumerate(names)}


def predictions_of_many(
    learner: ibcl.IBCL,
    schema: Schema,
    blocks: Iterable[pd.DataFrame],
    users: Users,
    numbers: int,
    first: int = 1,
) -> Iterator[pd.DataFrame]:
    """Return one row per user and row of the table, in blocks of bounded size.

    Parameters
    ----------
    numbers
        How many a block may hold.
    first
        Number of the first row.
    """
    for frame in blocks:
        begin = 0
        for values in learner.predict_blocks(frame, users.preferences, numbers=numbers):
            names = users.names.iloc[begin : begin + len(values)]
            yield _long_table(schema, names, first, values.cpu().numpy())
            begin += len(values)
        first += len(frame)


def users_at_once(schema: Schema, rows: int, numbers: int) -> int:
    """Return for how many users the predictions of a block of rows are made at once."""
    columns = 1 if schema.classes is None else len(schema.classes)
    return max(1, numbers // (rows * columns))


def _long_table(schema: Schema, users: pd.Series[Any], first: int, values: Any) -> pd.DataFrame:
    """Write values of shape (users, rows, columns) as one row per user and row.

    A text is written once and referred to by its number, since making millions of them takes far
    longer than predicting.
    """
    rows = np.arange(first, first + values.shape[1])
    numbers, names = pd.factorize(users)
    columns: dict[str, Any] = {
        "user": pd.Categorical.from_codes(numbers.astype(np.int32).repeat(len(rows)), names),
        "row": np.tile(rows, len(users)),
    }
    flat = values.reshape(len(users) * len(rows), -1)
    if schema.classes is None:
        return pd.DataFrame({**columns, "prediction": flat[:, 0]})
    # Along an axis of two, a comparison is much faster than a search.
    best = flat[:, 1] > flat[:, 0] if flat.shape[1] == 2 else flat.argmax(1)
    columns["prediction"] = _named(schema.classes, best)
    return pd.DataFrame({**columns, **_by_class("probability", schema, flat)})


def _named(classes: tuple[Any, ...], numbers: Any) -> Any:
    values = pd.Index(classes)
    if pd.api.types.is_string_dtype(values):
        return pd.Categorical.from_codes(numbers.astype(np.int32), values)
    return values.to_numpy()[numbers.astype(np.intp)]


def scores(
    model: Model, schema: Schema, frame: pd.DataFrame, y: pd.Series[Any], samples: int
) -> dict[str, float]:
    """Return how well a model predicts the labels of a table."""
    from sklearn.metrics import accuracy_score, r2_score, root_mean_squared_error

    truth = schema.labels(y)
    if schema.classes is None:
        values, guess = schema.decode(truth), model.predict(frame, samples)
        return {
            # R² compares with the spread of the truth, and one sample has none.
            "r2": float(r2_score(values, guess)) if len(values) > 1 else float("nan"),
            "rmse": float(root_mean_squared_error(values, guess)),
        }
    probabilities = np.asarray(model.predict_proba(frame, samples))
    numbers, guess = truth.numpy(), probabilities.argmax(1)
    return {
        "accuracy": float(accuracy_score(numbers, guess)),
        "balanced_accuracy": _balanced_accuracy(numbers, guess),
        "calibration_error": expected_calibration_error(probabilities, numbers),
    }


def _balanced_accuracy(y: Any, guess: Any) -> float:
    """Mean of the accuracies on the classes that occur, also where others are predicted."""
    return float(np.mean([np.mean(guess[y == c] == c) for c in np.unique(y)]))


def region_facts(model: Model) -> dict[str, float | None]:
    """Return what describes the region of a model."""
    region = model.region
    ellipsoid = isinstance(region.q, Gaussian)
    return {
        "alpha": region.alpha,
        "log_volume": region.log_volume if ellipsoid else None,
        "threshold": region.threshold,
    }

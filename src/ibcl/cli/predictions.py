"""What models say about a table, as a table: names of columns, and nothing else of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import ibcl
from ibcl import Model, expected_calibration_error
from ibcl.gaussians import Gaussian
from ibcl.tabular import Schema

# Numbers of a block of many users' predictions, so that memory stays bounded.
_BLOCK_NUMBERS = 2**22


def predictions(
    model: Model, schema: Schema, frame: pd.DataFrame, samples: int, bounds: bool, uncertainty: bool
) -> pd.DataFrame:
    """Return one row a row of the table, with the columns asked for."""
    columns: dict[str, Any] = {"prediction": model.predict(frame, samples)}
    if schema.classes is not None:
        columns |= _by_class("probability", schema, model.predict_proba(frame, samples))
    if bounds:
        for name, values in model.credal_bounds(frame, samples)._asdict().items():
            if schema.classes is None:
                columns[name] = np.asarray(values).reshape(len(frame))
            else:
                columns |= _by_class(name, schema, values)
    if uncertainty:
        parts = model.uncertainty(frame, samples) if samples else model.uncertainty(frame)
        for name, values in parts._asdict().items():
            columns[f"{name}_uncertainty"] = np.asarray(values)
    return pd.DataFrame(columns)


def _by_class(prefix: str, schema: Schema, values: Any) -> dict[str, Any]:
    names = schema.class_names or ()
    return {f"{prefix}_{name}": np.asarray(values)[:, column] for column, name in enumerate(names)}


def predictions_of_many(
    learner: ibcl.IBCL,
    schema: Schema,
    blocks: Iterator[pd.DataFrame],
    users: pd.Series[Any],
    preferences: Any,
) -> Iterator[pd.DataFrame]:
    """Return one row a user and row of the table, in blocks of bounded size."""
    first = 1
    for frame in blocks:
        begin = 0
        for values in learner.predict_blocks(frame, preferences, numbers=_BLOCK_NUMBERS):
            wanted = users.iloc[begin : begin + len(values)]
            yield long_table(schema, wanted, first, values.cpu().numpy())
            begin += len(values)
        first += len(frame)


def user_slices(schema: Schema, rows: int, users: int) -> list[slice]:
    """Return the users whose predictions for a block of rows are made at once."""
    columns = 1 if schema.classes is None else len(schema.classes)
    step = max(1, _BLOCK_NUMBERS // (rows * columns))
    return [slice(begin, min(begin + step, users)) for begin in range(0, users, step)]


def long_table(schema: Schema, users: pd.Series[Any], first: int, values: Any) -> pd.DataFrame:
    """Write values of shape (users, rows, columns) as one row a user and row.

    Parameters
    ----------
    first
        Number of the first row.
    """
    rows = np.arange(first, first + values.shape[1])
    names = users.to_numpy().repeat(len(rows))
    flat = values.reshape(len(names), -1)
    columns: dict[str, Any] = {"user": names, "row": np.tile(rows, len(users))}
    if schema.classes is None:
        return pd.DataFrame({**columns, "prediction": flat[:, 0]})
    best = np.array(schema.classes, dtype=object)[flat.argmax(1)]
    columns["prediction"] = pd.Series(best).infer_objects()
    return pd.DataFrame({**columns, **_by_class("probability", schema, flat)})


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

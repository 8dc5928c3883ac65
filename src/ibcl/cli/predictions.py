"""What a model says about a table: predictions, scores, and facts about its region."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, r2_score, root_mean_squared_error

from ibcl import Model, expected_calibration_error
from ibcl.cli.schema import Schema
from ibcl.gaussians import Gaussian


def predictions(
    model: Model, schema: Schema, frame: pd.DataFrame, samples: int, bounds: bool, uncertainty: bool
) -> pd.DataFrame:
    """Return one row a row of the table, with the columns asked for."""
    x = schema.x(frame)
    columns: dict[str, Any] = {}
    if schema.classes is None:
        columns["prediction"] = schema.original(model.predict(x, samples))
    else:
        probabilities = model.predict_proba(x, samples)
        columns["prediction"] = np.array(schema.classes)[probabilities.argmax(1)]
        columns |= _by_class("probability", schema, probabilities)
    if bounds:
        lower, upper = model.credal_bounds(x, samples)
        for name, values in (("lower", lower), ("upper", upper)):
            if schema.classes is None:
                columns[name] = schema.original(values)[:, 0]
            else:
                columns |= _by_class(name, schema, values)
    if uncertainty:
        parts = model.uncertainty(x, samples) if samples else model.uncertainty(x)
        # For regression these are variances, so they come back with the square of the scale.
        scale = 1.0 if schema.target is None else schema.target.scale[0] ** 2
        for name, values in parts._asdict().items():
            columns[f"{name}_uncertainty"] = np.asarray(values) * scale
    return pd.DataFrame(columns)


def _by_class(prefix: str, schema: Schema, values: Any) -> dict[str, Any]:
    names = schema.classes or ()
    return {f"{prefix}_{name}": values[:, column] for column, name in enumerate(names)}


def scores(
    model: Model, schema: Schema, frame: pd.DataFrame, label: str, samples: int
) -> dict[str, float]:
    """Return how well a model predicts the labels of a table."""
    x, y = schema.x(frame), schema.y(frame, label)
    if schema.classes is None:
        truth, guess = schema.original(y), schema.original(model.predict(x, samples))
        return {
            # R² compares with the spread of the truth, and one sample has none.
            "r2": float(r2_score(truth, guess)) if len(truth) > 1 else float("nan"),
            "rmse": float(root_mean_squared_error(truth, guess)),
        }
    probabilities = model.predict_proba(x, samples)
    guess = probabilities.argmax(1)
    return {
        "accuracy": float(accuracy_score(y, guess)),
        "balanced_accuracy": _balanced_accuracy(y, guess),
        "calibration_error": expected_calibration_error(probabilities, y),
    }


def _balanced_accuracy(y: Any, guess: Any) -> float:
    """Mean of the accuracies on the classes that occur, also where others are predicted."""
    return float(np.mean([accuracy_score(y[y == c], guess[y == c]) for c in np.unique(y)]))


def region_facts(model: Model) -> dict[str, float | None]:
    """Return what describes the region of a model."""
    region = model.region
    ellipsoid = isinstance(region.q, Gaussian)
    return {
        "alpha": region.alpha,
        "log_volume": region.log_volume if ellipsoid else None,
        "threshold": region.threshold,
    }

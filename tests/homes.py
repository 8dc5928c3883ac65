"""Tables of homes with a column of every kind, for tests of all front doors on the defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import ibcl

COLUMNS = ["size", "floor", "town", "garden", "sold"]
TOWNS = ["Oslo", "NA", "01", "1", "true", "é", " ", "None", "2024-02-29", str(2**60 + 1)]
KINDS = ("two classes", "three classes", "values", "counts")
OPTIONS = {"values": ["--regression"], "counts": ["--regression", "--likelihood", "poisson"]}
"""What `ibcl learn` is told of a kind."""


def homes(kind: str, task: int, n: int = 70) -> pd.DataFrame:
    """Return homes of a task, one in twenty values missing, with a verdict of the kind."""
    generator = np.random.default_rng([task, KINDS.index(kind)])
    frame = pd.DataFrame(
        {
            "size": generator.normal(80, 20, n).round(2),
            "floor": generator.integers(0, 4, n),
            "town": generator.choice(TOWNS, n),
            "garden": generator.random(n) < 0.5,
            "sold": pd.date_range("2020-01-01", periods=n, freq="37h"),
        }
    )
    value = (frame["size"] - 80) / 20 + (frame["town"] == "Oslo") - frame["garden"] * (1 + task)
    if kind == "two classes":
        frame["verdict"] = value > 0
    elif kind == "three classes":
        frame["verdict"] = np.array(["NA", "2", "x"])[np.digitize(value, [-0.7, 0.7])]
    elif kind == "values":
        frame["verdict"] = 1e6 * (value + task)
    else:
        frame["verdict"] = generator.poisson(np.exp(value / 2))
    frame = frame.astype({"floor": "Int64", "garden": "boolean", "town": object})
    for name in COLUMNS:
        frame.loc[generator.random(n) < 0.05, name] = None
    return frame


def estimator(kind: str) -> Any:
    """Return the estimator of a kind, with its defaults."""
    if kind not in OPTIONS:
        return ibcl.IBCLClassifier()
    return ibcl.IBCLRegressor(likelihood="poisson" if kind == "counts" else "normal")

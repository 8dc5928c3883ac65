"""Two small tasks over the same columns."""

from __future__ import annotations

import numpy as np
import pandas as pd


def weather(task: str, n: int = 80) -> pd.DataFrame:
    """Good or bad, by one feature where the task is sun and by another where it is rain."""
    x = np.random.default_rng(0 if task == "sun" else 1).normal(size=(n, 3))
    frame = pd.DataFrame(x * [1, 10, 0.1] + [0, 5, 0], columns=["a", "b", "c"])
    frame["verdict"] = np.where(x[:, 0 if task == "sun" else 1] > 0, "good", "bad")
    return frame

r"""Feature maps: what stands between a benchmark's features and a method.

With μ the mean of the *first* task's training rows and x' = x − μ,

* ``raw``: x itself,
* ``unit``: x' / ‖x'‖,
* ``polar``: [x' / ‖x'‖, log(‖x'‖ / median ‖x'‖) / √d], which keeps the length as one more feature.

The result is divided by one number, such that the first task's rows have the length the contender
wants, on average. Nothing is fitted on data that has not arrived. Which map a method takes is a
setting of it, chosen on validation data like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

MAPS = ("raw", "unit", "polar")


@dataclass(frozen=True)
class FeatureMap:
    """A map fitted on the first task's training rows.

    Examples
    --------
    >>> rows = np.array([[3.0, 4.0], [0.0, 1.0]], dtype=np.float32)
    >>> FeatureMap.fit(rows, "raw", length=6.0)(rows)  # of average length 3
    array([[6., 8.],
           [0., 2.]], dtype=float32)
    >>> np.linalg.norm(FeatureMap.fit(rows, "unit", length=1.0)(rows), axis=1)
    array([1., 1.], dtype=float32)
    >>> FeatureMap.fit(rows, "polar", length=1.0)(rows).shape
    (2, 3)
    """

    kind: str
    mean: Rows
    median: float
    scale: float

    @classmethod
    def fit(cls, rows: Rows, kind: str, length: float) -> FeatureMap:
        """Fit a map by its name, after which these rows have this length on average."""
        if kind not in MAPS:
            raise ValueError(f"A feature map is {' or '.join(MAPS)}, not {kind!r}; choose one.")
        mean = rows.mean(0)
        median = float(np.median(np.linalg.norm(rows - mean, axis=1))) or 1.0
        plain = cls(kind, mean, median, 1.0)
        return cls(kind, mean, median, length / mean_row_norm(plain(rows)))

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows as a method sees them."""
        if self.kind == "raw":
            return rows * np.float32(self.scale)
        centred = rows - self.mean
        lengths = np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
        mapped = centred / lengths
        if self.kind == "polar":
            spread = np.log(lengths / self.median) / np.sqrt(rows.shape[1])
            mapped = np.concatenate([mapped, spread], axis=1)
        scaled: Rows = (mapped * self.scale).astype(np.float32)
        return scaled

    def width(self, features: int) -> int:
        """How many features come out of so many."""
        return features + (self.kind == "polar")


def mean_row_norm(rows: Rows) -> float:
    """Return the average length of the rows.

    Examples
    --------
    >>> mean_row_norm(np.array([[3.0, 4.0], [0.0, 1.0]], dtype=np.float32))
    3.0
    """
    return float(np.linalg.norm(rows, axis=1).mean()) or 1.0

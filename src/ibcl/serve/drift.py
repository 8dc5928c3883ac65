"""How far what is asked for has moved from what it used to be.

Two exponential averages of the same probability vectors, one that forgets quickly and one that
forgets slowly, agree as long as nothing changes; their total variation ½ Σ_k |fast_k − slow_k| is
the drift, between 0 and 1.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class Drift:
    """Averages of probability vectors, in vectors seen.

    Examples
    --------
    >>> drift = Drift(fast=10, slow=1000)
    >>> drift.see(np.tile([1.0, 0.0], (2000, 1)))
    >>> round(drift.value, 3)
    0.0
    >>> drift.see(np.tile([0.0, 1.0], (50, 1)))
    >>> drift.value > 0.9
    True
    """

    def __init__(self, fast: float = 1_000, slow: float = 100_000) -> None:
        self._lengths = np.array([fast, slow])
        self._lock = threading.Lock()
        self._sums: Numbers | None = None
        self._masses = np.zeros(2)

    def see(self, vectors: Numbers) -> None:
        """Take in vectors of shape (n, tasks); the drift begins anew where their length changes."""
        if not len(vectors):
            return
        with self._lock:
            if self._sums is None or self._sums.shape[1] != vectors.shape[1]:
                self._sums = np.zeros((2, vectors.shape[1]))
                self._masses = np.zeros(2)
            kept = np.exp(-len(vectors) / self._lengths)
            # A block counts as its mean, so that its rows' order does not matter.
            mass = self._lengths * (1 - kept)
            self._sums = kept[:, None] * self._sums + mass[:, None] * vectors.mean(0)
            self._masses = kept * self._masses + mass

    @property
    def recent(self) -> Numbers | None:
        """The average that forgets quickly."""
        with self._lock:
            return None if self._sums is None else self._sums[0] / self._masses[0]

    @property
    def value(self) -> float:
        """Total variation between the two averages."""
        with self._lock:
            if self._sums is None:
                return 0.0
            averages = self._sums / self._masses[:, None]
            return float(0.5 * abs(averages[0] - averages[1]).sum())

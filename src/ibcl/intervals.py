"""A mean over seeds with its 95 % Student interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A mean with the half width of its 95 % Student interval; NaN from one value."""

    mean: float
    half_width: float
    n: int

    def times(self, unit: float, digits: int = 3) -> str:
        """Write as a multiple of a unit.

        Examples
        --------
        >>> Interval(5.5e6, 1e5, 9).times(1e6)
        '5.500 ± 0.100'
        """
        spread = "" if math.isnan(self.half_width) else f" ± {self.half_width / unit:.{digits}f}"
        return f"{self.mean / unit:.{digits}f}{spread}"


def interval(values: Sequence[float]) -> Interval:
    """Estimate a mean from one value per seed.

    Examples
    --------
    >>> found = interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.half_width, 3), found.n
    (2.0, 2.484, 3)
    """
    from scipy import stats

    n = len(values)
    if n == 0:
        raise ValueError("An interval needs at least one value.")
    mean = float(np.mean(values))
    if n == 1:
        return Interval(mean, math.nan, 1)
    quantile = float(stats.t.ppf(0.975, n - 1))
    return Interval(mean, quantile * float(np.std(values, ddof=1)) / math.sqrt(n), n)

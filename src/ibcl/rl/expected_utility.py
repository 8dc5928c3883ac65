r"""Expected utility of a front: what a user with an unknown linear preference can expect from it.

For return vectors v and preferences w spread evenly over the simplex,

    EUM = mean_w max_v  w·v.

A user picks the policy that is best for w; the mean is over users. It stays in the unit of a
return, needs no reference point, and counts the convex hull of a front only.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def even_preferences(n: int, objectives: int = 2) -> NDArray[np.float64]:
    """Spread n preferences evenly: from (0, 1) to (1, 0), or on a lattice of at most n points.

    Examples
    --------
    >>> even_preferences(3).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    >>> even_preferences(5, objectives=3).tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    if objectives == 2:
        first = np.linspace(0, 1, n)
        return np.stack([first, 1 - first], axis=1)
    height = 1
    while math.comb(height + objectives, objectives - 1) <= n:
        height += 1
    steps = itertools.product(range(height + 1), repeat=objectives - 1)
    rows = [(*each, height - sum(each)) for each in steps if sum(each) <= height]
    return np.array(rows, dtype=np.float64) / height


def expected_utility(returns: ArrayLike, preferences: int = 200) -> float:
    """Mean over even preferences of the best weighted return.

    Examples
    --------
    >>> expected_utility([[2.0, 0.0], [0.0, 2.0]], preferences=3)
    1.6666666666666667
    """
    points = np.asarray(returns, dtype=np.float64)
    if points.ndim != 2 or not len(points):
        raise ValueError(
            f"Returns must have shape (policies, objectives) with at least one policy, "
            f"not {points.shape}."
        )
    weights = even_preferences(preferences, points.shape[1])
    return float((weights @ points.T).max(1).mean())

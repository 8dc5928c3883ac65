"""How good a set of return vectors is: the hypervolume it dominates, and its front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    import moocore
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError("Hypervolumes need moocore: pip install 'ibcl[rl]'.") from error


def _points(returns: ArrayLike) -> NDArray[np.float64]:
    points = np.asarray(returns, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] < 2:
        raise ValueError(
            f"Returns must have shape (policies, objectives) with at least two objectives, "
            f"not {points.shape}."
        )
    return points


def hypervolume(returns: ArrayLike, reference: Sequence[float] | None = None) -> float:
    """Volume between the reference point (the origin by default) and the returns, maximised.

    Examples
    --------
    >>> hypervolume([[2.0, 1.0], [1.0, 2.0]])
    3.0
    """
    points = _points(returns)
    corner = np.zeros(points.shape[1]) if reference is None else np.asarray(reference, dtype=float)
    if corner.shape != points.shape[1:]:
        raise ValueError(
            f"The reference point has {corner.size} values, but there are {points.shape[1]} "
            "objectives."
        )
    return float(moocore.hypervolume(points, ref=corner, maximise=True))


def front(returns: ArrayLike) -> NDArray[np.int64]:
    """Find the returns that no other dominates; their indices, ordered by the first objective.

    Examples
    --------
    >>> front([[2.0, 1.0], [0.5, 0.5], [1.0, 2.0]]).tolist()
    [2, 0]
    """
    points = _points(returns)
    kept = np.flatnonzero(moocore.is_nondominated(points, maximise=True))
    return kept[np.argsort(points[kept, 0], kind="stable")]

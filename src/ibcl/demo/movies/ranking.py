"""How good a viewer's predicted likes are: as answers, as probabilities and as a ranking."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score, roc_auc_score

Numbers = NDArray[np.float64]

MEASURES = ("accuracy", "log_loss", "auc", "ndcg_at_10", "recall_at_20")
"""Of one viewer's later films; the last three are of their ranking by predicted probability."""


def scores(probability: Numbers, liked: NDArray[np.bool_]) -> dict[str, float]:
    """Return all measures of one viewer; NaN for a ranking where all or no films are liked.

    Films of the same probability are ranked as by a coin, on average: a constant prediction has
    the area 0.5.

    Examples
    --------
    >>> found = scores(np.array([0.9, 0.2, 0.6]), np.array([True, False, False]))
    >>> found["accuracy"], found["auc"], found["ndcg_at_10"], found["recall_at_20"]
    (0.6666666666666666, 1.0, 1.0, 1.0)
    """
    safe = np.clip(probability, 1e-6, 1 - 1e-6)
    found = {
        "accuracy": float(((probability > 0.5) == liked).mean()),
        "log_loss": float(-np.where(liked, np.log(safe), np.log(1 - safe)).mean()),
    }
    if liked.all() or not liked.any():
        return {**found, "auc": np.nan, "ndcg_at_10": np.nan, "recall_at_20": np.nan}
    return {
        **found,
        "auc": float(roc_auc_score(liked, probability)),
        "ndcg_at_10": float(ndcg_score([liked.astype(float)], [probability], k=10)),
        "recall_at_20": recall_at(probability, liked, 20),
    }


def recall_at(probability: Numbers, liked: NDArray[np.bool_], n: int) -> float:
    """The share of liked films among the n ranked first; ties count as on average.

    Examples
    --------
    >>> recall_at(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]), 2)
    0.75
    """
    if len(probability) <= n:
        return 1.0
    last = np.sort(probability)[-n]
    above, tied = probability > last, probability == last
    chance = (n - above.sum()) / tied.sum()
    return float((liked[above].sum() + chance * liked[tied].sum()) / liked.sum())

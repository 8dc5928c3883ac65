"""How sure a prediction is, and how far its probabilities can be trusted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


class Uncertainty(NamedTuple):
    """Total uncertainty and its two parts, one value per sample.

    For classification in nats: the entropy of the averaged probabilities, the average entropy
    (aleatoric), and their difference, the mutual information (epistemic). For regression as
    variances: noise (aleatoric) plus the models' disagreement (epistemic).
    """

    total: Any
    aleatoric: Any
    epistemic: Any


class Bounds(NamedTuple):
    """Lower and upper probability (or expected value) over a credal set."""

    lower: Any
    upper: Any


def entropy(probabilities: Tensor) -> Tensor:
    """−Σ_c p_c log p_c along the last axis.

    Examples
    --------
    >>> round(float(entropy(torch.tensor([0.5, 0.5]))), 4)
    0.6931
    """
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(-1)


def decompose(probabilities: Tensor) -> Uncertainty:
    """Split the uncertainty of an ensemble's probabilities, of shape (models, n, classes)."""
    total = entropy(probabilities.mean(0))
    aleatoric = entropy(probabilities).mean(0)
    return Uncertainty(total, aleatoric, (total - aleatoric).clamp(min=0))


def expected_calibration_error(
    probabilities: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    bins: int = 15,
    weights: ArrayLike | None = None,
) -> float:
    """Average gap between confidence and accuracy, over equally wide bins of confidence.

    Parameters
    ----------
    probabilities
        Class probabilities of shape (n, classes), or of class 1 alone with shape (n,).
    y
        True classes 0, 1, ...
    weights
        What each row counts; all the same without them.

    Examples
    --------
    >>> expected_calibration_error([[0.0, 1.0], [0.0, 1.0]], [1, 0])
    0.5
    >>> expected_calibration_error([[0.0, 1.0], [0.0, 1.0]], [1, 0], weights=[3, 1])
    0.25
    """
    table = np.asarray(probabilities, dtype=np.float64)
    labels = np.asarray(y)
    if table.ndim == 1:
        table = np.stack([1 - table, table], 1)
    if table.ndim != 2 or labels.shape != (len(table),) or len(labels) == 0:
        raise ValueError(
            f"Probabilities of shape {table.shape} do not fit labels of shape {labels.shape}."
        )
    if not np.isfinite(table).all() or table.min() < -1e-9 or table.max() > 1 + 1e-9:
        raise ValueError("Probabilities must lie between 0 and 1.")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}.")
    shares = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    if shares.shape != labels.shape or shares.min() < 0 or not 0 < shares.sum() < np.inf:
        raise ValueError("Weights must be one number of at least 0 per row, and not all 0.")
    confidence = table.max(1)
    correct = table.argmax(1) == labels
    which = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(which, weights=shares * (confidence - correct), minlength=bins)
    return float(np.abs(gaps).sum() / shares.sum())

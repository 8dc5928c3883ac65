"""Prior and noise of Bayesian linear regression, chosen by the data: type II maximum likelihood."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# With so many samples per column the product ΦᵀΦ takes the place of a decomposition of Φ.
_MANY_SAMPLES = 4
# Eigenvalues below this part of the largest are rounding.
_ROUNDING = 1e-13


def maximise_marginal_likelihood(
    design: NDArray[np.float64],
    y: NDArray[np.float64],
    std: float | None = None,
    weights: NDArray[np.float64] | None = None,
) -> tuple[float, float]:
    r"""Prior std σ and noise of Bayesian linear regression with the largest marginal likelihood.

    Marginally y ~ N(0, σ² (ΦΦᵀ + λI)) with λ = noise²/σ². In the singular basis of Φ this is a sum
    over its singular values, and for each λ the best σ² is closed form; λ is found on a grid.

    Parameters
    ----------
    std
        Fix σ and choose the noise alone.
    weights
        How often each sample counts: N(y_s | f_s, noise²)^w_s, which is the likelihood of √w_s y_s
        with features √w_s φ_s, and W = Σ w_s in place of n factors of the noise.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> design = generator.normal(size=(2000, 50))
    >>> y = design @ generator.normal(size=50) * 2 + generator.normal(size=2000) * 0.5
    >>> std, noise = maximise_marginal_likelihood(design, y)
    >>> 1.5 < std < 2.5, 0.45 < noise < 0.55
    (True, True)
    """
    n = float(len(y))
    if weights is not None:
        roots = np.sqrt(weights)
        design, y, n = roots[:, None] * design, roots * y, float(weights.sum())
    squares_of_singular, inside = _spectrum(design, y)
    rank = len(squares_of_singular)
    outside = max(0.0, float(y @ y - inside.sum()))
    ratio = np.logspace(-6, 6, 241)
    variances = squares_of_singular + ratio[:, None]
    squares = (inside / variances).sum(1) + outside / ratio
    scale = squares / n if std is None else np.full(len(ratio), std**2)
    scale = np.maximum(scale, 1e-6)
    losses = (
        n * np.log(scale) + np.log(variances).sum(1) + (n - rank) * np.log(ratio) + squares / scale
    )
    best = int(np.argmin(losses))
    return float(np.sqrt(scale[best])), float(np.sqrt(scale[best] * ratio[best]))


def _spectrum(
    design: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Squares of the singular values of Φ, and of y's parts along its left singular vectors.

    With many samples from the eigenvectors of ΦᵀΦ, which is made in one product; what is so small
    that squaring lost it counts as zero.
    """
    samples, columns = design.shape
    if samples <= _MANY_SAMPLES * columns:
        basis, singular, _ = np.linalg.svd(design, full_matrices=False)
        return singular**2, (basis.T @ y) ** 2
    values, vectors = np.linalg.eigh(design.T @ design)
    kept = values > _ROUNDING * values[-1]
    along = (vectors[:, kept].T @ (design.T @ y)) ** 2 / values[kept]
    return values[kept], along

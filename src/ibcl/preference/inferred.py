r"""A preference inferred from examples: it is the proportion of the tasks in a mixture.

Inputs that come from task k with probability w_k have the density Σ_k w_k p_k(x), so the preference
behind examples x_i (with labels y_i, where known) maximises

    Σ_i a_i log Σ_k w_k p_k(x_i) p_k(y_i | x_i)  +  Σ_k c_k log w_k,

with weights a_i of the examples and a Dirichlet prior worth c_k examples of task k. That is
concave, and EM climbs it: responsibilities ρ_ik ∝ w_k p_k(x_i) p_k(y_i | x_i), then
w_k ∝ Σ_i a_i ρ_ik + c_k. Densities are the gate's, tempered as it is: p_k(x) stands for e_k(φ).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import softmax

from ibcl.preference.preference import Preference

_STEPS = 10_000
_SETTLED = 1e-10


class InferredPreference(Preference):
    """A preference with what is known of its uncertainty.

    Attributes
    ----------
    std
        Standard deviation of every task's weight, by Laplace's approximation on the simplex; at
        most √(w_k (1 − w_k)), which no distribution on [0, 1] with that mean exceeds.
    responsibilities
        Which task each example speaks for, shape (n, tasks).
    examples
        Σ_i a_i, how many examples it rests on.
    """

    def __init__(
        self,
        weights: dict[str, float],
        std: dict[str, float],
        responsibilities: NDArray[np.float64],
        examples: float,
    ) -> None:
        super().__init__(weights)
        self.std, self.responsibilities, self.examples = std, responsibilities, examples


def infer_proportions(
    log_densities: NDArray[np.float64],
    tasks: Sequence[str],
    concentration: float | Sequence[float] | None = None,
    sample_weight: NDArray[np.float64] | None = None,
) -> InferredPreference:
    """Infer the proportions of the tasks from the examples' densities under each of them.

    Parameters
    ----------
    log_densities
        log p_k(x_i) + log p_k(y_i | x_i), up to a term per example: shape (n, tasks).
    concentration
        c, how many examples of every task (or of each) the prior is worth; one example in all where
        None.
    sample_weight
        a_i; 1 where None.

    Examples
    --------
    >>> certain = np.log([[0.99, 0.01]] * 30 + [[0.01, 0.99]] * 10)
    >>> preference = infer_proportions(certain, ["a", "b"])
    >>> round(preference["a"], 2), round(preference.std["a"], 2)
    (0.75, 0.07)
    """
    table = np.asarray(log_densities, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(tasks) or not len(tasks):
        raise ValueError(
            f"Densities of shape {table.shape} do not fit {len(tasks)} tasks: one column per task."
        )
    if np.isnan(table).any() or (table == np.inf).any() or (table == -np.inf).all(1).any():
        raise ValueError("Every example needs a finite density under at least one task.")
    try:
        counts = np.ones(len(table)) if sample_weight is None else np.asarray(sample_weight, float)
    except (TypeError, ValueError):
        counts = np.empty(0)
    if counts.shape != (len(table),) or not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError(
            f"sample_weight must be {len(table)} finite numbers that are not negative."
        )
    given = 1 / len(tasks) if concentration is None else concentration
    prior = np.full(len(tasks), given, dtype=np.float64)
    if not ((prior > 0) & (prior < np.inf)).all():
        raise ValueError(f"concentration must be positive, not {concentration!r}.")
    total = counts.sum() + prior.sum()
    weights = np.full(len(tasks), 1 / len(tasks))
    # The largest density of a row is 1 and no weight is below its prior's, so none divides by 0.
    densities = np.exp(table - table.max(1, keepdims=True))
    for _ in range(_STEPS):
        following = (weights * ((counts / (densities @ weights)) @ densities) + prior) / total
        change = float(np.abs(following - weights).max())
        weights = following
        if change <= _SETTLED:
            break
    weights = weights / weights.sum()
    responsibilities = softmax(table + np.log(weights), axis=1)
    std = _standard_deviations(responsibilities, weights, counts, prior)
    return InferredPreference(
        dict(zip(tasks, weights.tolist(), strict=True)),
        dict(zip(tasks, std.tolist(), strict=True)),
        responsibilities,
        float(counts.sum()),
    )


def _standard_deviations(
    responsibilities: NDArray[np.float64],
    weights: NDArray[np.float64],
    counts: NDArray[np.float64],
    prior: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Laplace's approximation within the simplex.

    The curvature is H = Σ_i a_i g_i g_iᵀ + diag(c/w²), with g_ik = ρ_ik / w_k. Within the simplex,
    where moves sum to 0, the covariance is H⁻¹ − H⁻¹11ᵀH⁻¹ / 1ᵀH⁻¹1. Woodbury's identity has H⁻¹ by
    a matrix of the examples, so that neither time nor memory grows with the square of the tasks:

        H⁻¹ = W C⁻¹ (C − RᵀM⁻¹R) C⁻¹ W,     M = I + R C⁻¹ Rᵀ,     R = √a ρ,

    with W and C the diagonals of w and c.
    """
    scaled = np.sqrt(counts)[:, None] * responsibilities
    over = scaled / prior
    if len(scaled) < len(weights):
        within = np.eye(len(scaled)) + over @ scaled.T
        factor = np.linalg.cholesky(within)
        reduced = solve_triangular(factor, over * weights, lower=True)
        diagonal = weights**2 / prior - (reduced**2).sum(0)
        row_sums = weights**2 / prior - reduced.T @ reduced.sum(1)
    else:
        # In units of w/√c, in which what the prior adds is the identity.
        unit = weights / np.sqrt(prior)
        columns = scaled / np.sqrt(prior)
        inverse = np.linalg.inv(np.eye(len(weights)) + columns.T @ columns)
        diagonal = unit**2 * np.diag(inverse)
        row_sums = unit * (inverse @ unit)
    variances = diagonal - row_sums**2 / row_sums.sum()
    deviations: NDArray[np.float64] = np.sqrt(np.clip(variances, 0, weights * (1 - weights)))
    return deviations

"""Mixtures: what the convex combination of densities makes of Gaussians."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ibcl.gaussians import Distribution, Gaussian


class Mixture(Distribution):
    """A convex combination of densities, Σ_k w_k q_k(θ) (the definition of a credal set's members).

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> q = Mixture([0.5, 0.5], [DiagonalGaussian([-2.0], [1.0]), DiagonalGaussian([2.0], [1.0])])
    >>> q.mean.tolist()
    [0.0]
    """

    def __init__(self, weights: Tensor | ArrayLike, components: Sequence[Gaussian]) -> None:
        probabilities = torch.as_tensor(np.asarray(weights, dtype=np.float64))
        if probabilities.shape != (len(components),) or not components:
            raise ValueError(
                f"A mixture needs one weight per component, not {probabilities.numel()} weights "
                f"for {len(components)} components."
            )
        for component in components:
            if not isinstance(component, Gaussian):
                raise ValueError(
                    f"A mixture's components are Gaussians, not {type(component).__name__}."
                )
        if not bool((probabilities >= 0).all()) or abs(float(probabilities.sum()) - 1) > 1e-6:
            raise ValueError("Mixture weights must be non-negative and sum to 1.")
        kept = [i for i, weight in enumerate(probabilities.tolist()) if weight > 0]
        self.weights = probabilities[kept]
        self.components = tuple(components[i] for i in kept)
        for component in self.components:
            self.components[0].check_same_dimension(component)
        means = torch.stack([component.mean.double() for component in self.components])
        single = all(component.mean.dtype == torch.float32 for component in self.components)
        self.mean = (self.weights.to(means) @ means).to(torch.float32 if single else torch.float64)

    def __repr__(self) -> str:
        return f"Mixture(components={len(self.components)}, dimension={self.dimension})"

    @property
    def nbytes(self) -> int:
        """Bytes of weights and components."""
        return self.weights.nbytes + sum(component.nbytes for component in self.components)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n parameter vectors; the result has shape (n, D)."""
        choice = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        draws = torch.empty(n, self.dimension, dtype=self.mean.dtype, device=self.mean.device)
        for index, component in enumerate(self.components):
            rows = torch.nonzero(choice == index).flatten().to(draws.device)
            draws[rows] = component.sample(len(rows), generator).to(draws.dtype)
        return draws

    def log_prob(self, theta: Tensor | ArrayLike) -> Tensor:
        """Log density, log Σ_k w_k q_k(θ)."""
        families = {type(component) for component in self.components}
        family = families.pop() if len(families) == 1 else Gaussian
        terms = family.log_probs(self.components, self.points(theta))
        return torch.logsumexp(terms + self.weights.to(terms).log(), -1)

    def kl(self, other: Distribution, draws: int = 10_000, seed: int = 0) -> float:
        """KL(q ‖ other) by seeded Monte Carlo; mixtures have no closed form."""
        self.check_same_dimension(other)
        theta = self.sample(draws, torch.Generator().manual_seed(seed))
        return float((self.log_prob(theta) - other.log_prob(theta)).mean())

    def wasserstein(self, other: Distribution) -> float:
        r"""Mixture-Wasserstein distance: transport restricted to Gaussian-mixture plans.

        MW2² = min over couplings π of the two weight vectors of Σ_{kl} π_kl W2²(q_k, p_l). It is a
        metric between Gaussian mixtures and an upper bound on W2 (Delon and Desolneux, 2020).
        """
        self.check_same_dimension(other)
        ours, theirs = self, other if isinstance(other, Mixture) else None
        components = theirs.components if theirs else (other,)
        target = theirs.weights.numpy() if theirs else np.ones(1)
        cost = np.array([[q.wasserstein(p) ** 2 for p in components] for q in ours.components])
        rows = np.kron(np.eye(cost.shape[0]), np.ones(cost.shape[1]))
        columns = np.kron(np.ones(cost.shape[0]), np.eye(cost.shape[1]))
        # It takes most of a second to import, which not everybody needs.
        from scipy.optimize import linprog

        plan = linprog(
            cost.ravel(),
            A_eq=np.vstack([rows, columns])[:-1],
            b_eq=np.concatenate([ours.weights.numpy(), target])[:-1],
        )
        return math.sqrt(max(0.0, float(plan.fun or 0.0)))

r"""Pooling: from knowledge base and preference to q_w (Algorithm 2, first half).

A preference w gives task k the weight w_k, split over its m extreme elements into β_kj with
Σ_j β_kj = w_k, equally unless told otherwise. Three rules turn these weights into one distribution:

* ``mixture``, the definition of a credal set's members: q_w(θ) = Σ_kj β_kj q_kj(θ).
* ``wasserstein``, the barycentre under the 2-Wasserstein distance, which is what averaging means
  and standard deviations of diagonal Gaussians is.
* ``evidence``, the posterior of the preference-weighted problem of K tasks:
  q_w(θ) ∝ q₀(θ) Π_kj ℓ_kj(θ)^(K β_kj), with each task's likelihood kept as the Gaussian factor
  ℓ_kj = q_kj / q_{k−1,j}.

To add a rule, write a class with the two methods of `PoolingRule` and add its line to `RULES`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ibcl.gaussians import (
    DenseGaussian,
    DiagonalGaussian,
    Distribution,
    Gaussian,
    NaturalParameters,
)
from ibcl.knowledge import KnowledgeBase
from ibcl.mixture import Mixture
from ibcl.preference import Preference


class EvidenceWarning(UserWarning):
    """A task's evidence was not a proper likelihood and had to be cut back."""


class PoolingRule(Protocol):
    """A way to combine extreme elements; weights β have shape (..., tasks, m) and sum to 1."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return q_w for one set of weights."""

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the means of q_w for many sets of weights at once: shape (n, D)."""


def split_weights(
    knowledge: KnowledgeBase,
    preferences: Tensor,
    split: Mapping[str, Sequence[float]] | None = None,
) -> Tensor:
    """Split task weights (..., tasks) over each task's extremes: β of shape (..., tasks, m).

    Parameters
    ----------
    split
        For tasks whose extremes should not share equally: m non-negative shares that sum to 1.
    """
    m = len(knowledge.priors)
    shares = torch.full((len(knowledge.tasks), m), 1 / m, dtype=torch.float64)
    for task, values in (split or {}).items():
        row = torch.as_tensor(np.asarray(values, dtype=np.float64))
        if row.shape != (m,) or not bool((row >= 0).all()) or abs(float(row.sum()) - 1) > 1e-6:
            raise ValueError(
                f"The split of task {task!r} must be {m} non-negative shares that sum to 1, "
                f"not {list(values)}."
            )
        shares[knowledge.tasks.index(knowledge.record(task).name)] = row
    return preferences.to(torch.float64).unsqueeze(-1) * shares


def _weighted(knowledge: KnowledgeBase, weights: Tensor) -> tuple[list[float], list[Gaussian]]:
    """Extreme elements with their total weights, each stored posterior once."""
    totals: dict[int, float] = {}
    for record, row in zip(knowledge.records, weights.tolist(), strict=True):
        for position, weight in zip(record.posteriors, row, strict=True):
            if weight > 0:
                totals[position] = totals.get(position, 0.0) + weight
    return list(totals.values()), [knowledge.stored[position] for position in totals]


def _averaged_means(knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
    stacked = knowledge.stacked_means
    rows = weights.reshape(*weights.shape[:-2], -1).to(stacked.dtype)
    return rows @ stacked.reshape(-1, knowledge.dimension)


class MixturePooling:
    """The convex combination of densities."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the mixture, or the one component that has all the weight."""
        totals, components = _weighted(knowledge, weights)
        return components[0] if len(components) == 1 else Mixture(totals, components)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the weighted means."""
        return _averaged_means(knowledge, weights)


class WassersteinPooling:
    """The 2-Wasserstein barycentre."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the barycentre: a Gaussian with the weighted mean."""
        stds = knowledge.stacked_stds
        if stds is not None:
            rows = weights.reshape(-1).to(stds.dtype)
            return DiagonalGaussian(
                _averaged_means(knowledge, weights), rows @ stds.reshape(-1, knowledge.dimension)
            )
        totals, components = _weighted(knowledge, weights)
        if len(components) == 1:
            return components[0]
        mean = self.means(knowledge, weights.unsqueeze(0))[0]
        covariance = bures_barycentre(totals, [q.dense().covariance for q in components])
        return DenseGaussian(mean, torch.linalg.inv(covariance).to(mean.dtype))

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the weighted means."""
        return _averaged_means(knowledge, weights)


def _square_root(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the symmetric square root and its inverse."""
    values, vectors = torch.linalg.eigh(matrix)
    roots = values.clamp(min=torch.finfo(matrix.dtype).tiny).sqrt()
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T


def bures_barycentre(weights: Sequence[float], covariances: Sequence[Tensor]) -> Tensor:
    r"""Covariance of the 2-Wasserstein barycentre of Gaussians.

    The fixed point of S ← S^{−½} (Σ_k w_k (S^½ Σ_k S^½)^½)² S^{−½} (Álvarez-Esteban and others,
    2016), which converges from any positive definite start.

    Examples
    --------
    >>> one, nine = torch.eye(1).double(), 9 * torch.eye(1).double()
    >>> round(float(bures_barycentre([0.5, 0.5], [one, nine])), 6)
    4.0
    """
    current = sum(
        (weight * covariance for weight, covariance in zip(weights, covariances, strict=True)),
        torch.zeros_like(covariances[0]),
    )
    for _ in range(100):
        root, inverse_root = _square_root(current)
        middle = sum(
            (
                weight * _square_root(root @ covariance @ root)[0]
                for weight, covariance in zip(weights, covariances, strict=True)
            ),
            torch.zeros_like(current),
        )
        following = inverse_root @ middle @ middle @ inverse_root
        following = (following + following.T) / 2
        settled = float((following - current).norm()) <= 1e-9 * float(current.norm())
        current = following
        if settled:
            break
    return current


class EvidencePooling:
    """The posterior of the preference-weighted problem, from the tasks' evidence."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return q_w, with its precision and the mean that solves it."""
        pooled = self._natural_parameters(knowledge, weights)
        mean = self._mean(pooled)
        if pooled.precision.ndim == 1:
            return DiagonalGaussian(mean.float(), pooled.precision.rsqrt().float())
        return DenseGaussian(mean, pooled.precision)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the means, one solve each."""
        means = [self._mean(self._natural_parameters(knowledge, row)) for row in weights]
        diagonal = knowledge.stacked_stds is not None
        return torch.stack(means).to(torch.float32 if diagonal else torch.float64)

    @staticmethod
    def _mean(pooled: NaturalParameters) -> Tensor:
        if pooled.precision.ndim == 1:
            return pooled.linear / pooled.precision
        factor, failure = torch.linalg.cholesky_ex(pooled.precision)
        if int(failure):
            raise ValueError(
                "The pooled evidence has no positive definite precision: posteriors replaced by "
                "pointers have left evidence that cancels. Learn with d=0 to pool evidence."
            )
        return torch.cholesky_solve(pooled.linear[:, None], factor)[:, 0]

    def _natural_parameters(self, knowledge: KnowledgeBase, weights: Tensor) -> NaturalParameters:
        r"""P₀μ₀ + K Σ β_kj η_kj and P₀ + K Σ β_kj Λ_kj.

        With m > 1 priors, q₀ is their log-linear pool with weights Σ_k β_kj.
        """
        terms = self._factors(knowledge, weights)
        for share, prior in zip(weights.sum(0).tolist(), knowledge.priors, strict=True):
            terms.append((share, prior.natural_parameters()))
        if any(term.precision.ndim == 2 for _, term in terms):
            terms = [(weight, term.dense()) for weight, term in terms]
        linear = torch.zeros_like(terms[0][1].linear)
        precision = torch.zeros_like(terms[0][1].precision)
        for weight, term in terms:
            linear.add_(term.linear, alpha=weight)
            precision.add_(term.precision, alpha=weight)
        return NaturalParameters(linear, precision)

    @staticmethod
    def _factors(
        knowledge: KnowledgeBase, weights: Tensor
    ) -> list[tuple[float, NaturalParameters]]:
        """Evidence factors with their exponents K β_kj, each a proper likelihood."""
        tasks = len(knowledge.tasks)
        factors = []
        cut = 0.0
        for task, row in zip(knowledge.tasks, weights.tolist(), strict=True):
            for index, weight in enumerate(row):
                if weight == 0:
                    continue
                factor = knowledge.evidence(task, index)
                if factor.precision.ndim == 1:
                    # A mean-field posterior can be wider than its prior in some coordinates. What
                    # the task says there is no likelihood, so it is taken to say nothing.
                    improper = factor.precision < 0
                    cut = max(cut, float(improper.double().mean()))
                    factor = NaturalParameters(
                        factor.linear.masked_fill(improper, 0.0),
                        factor.precision.masked_fill(improper, 0.0),
                    )
                factors.append((tasks * weight, factor))
        if cut > 0:
            warnings.warn(
                f"Evidence was negative in up to {cut:.1%} of a task's parameters and is left out "
                "there; full covariances (DenseVI) do not have this problem.",
                EvidenceWarning,
                stacklevel=3,
            )
        return factors


RULES: dict[str, PoolingRule] = {
    "wasserstein": WassersteinPooling(),
    "mixture": MixturePooling(),
    "evidence": EvidencePooling(),
}


def pooling_rule(name: str) -> PoolingRule:
    """Return a rule by its name."""
    if name not in RULES:
        raise ValueError(f"pooling must be one of {', '.join(RULES)}, not {name!r}.")
    return RULES[name]


def pool(
    knowledge: KnowledgeBase,
    preference: Any,
    rule: str = "wasserstein",
    split: Mapping[str, Sequence[float]] | None = None,
) -> Distribution:
    """Return q_w, the distribution over parameters that a preference selects.

    Examples
    --------
    >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], d=0)
    >>> _ = knowledge.add("a", [DiagonalGaussian([1.0], [0.5])])
    >>> _ = knowledge.add("b", [DiagonalGaussian([3.0], [0.1])])
    >>> q = pool(knowledge, {"a": 0.5, "b": 0.5}, "wasserstein")
    >>> q.mean.item(), round(q.std.item(), 6)
    (2.0, 0.3)
    """
    vector = Preference.parse(preference, knowledge.tasks).vector()
    weights = split_weights(knowledge, torch.as_tensor(vector), split)
    return pooling_rule(rule).pool(knowledge, weights)

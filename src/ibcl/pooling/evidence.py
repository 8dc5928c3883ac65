r"""``evidence``, the posterior of the preference-weighted problem of K tasks.

q_w(θ) ∝ q₀(θ) Π_kj ℓ_kj(θ)^(K β_kj), with each task's likelihood kept as the Gaussian factor
ℓ_kj = q_kj / q_{k−1,j}.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from ibcl.gaussians import Distribution, ImproperError, NaturalParameters, linear_combination
from ibcl.knowledge import EvidenceWarning, KnowledgeBase
from ibcl.pooling.rule import Pooled, PoolingRule


@dataclass(frozen=True)
class EvidencePooling(PoolingRule):
    """The posterior of the preference-weighted problem, from the tasks' evidence."""

    name: ClassVar[str] = "evidence"

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return q_w, with its precision and the mean that solves it."""
        with _saying_what_to_do():
            return self.natural(knowledge, weights).gaussian(knowledge.stacked_means.dtype)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the means, one solve each."""
        with _saying_what_to_do():
            means = [self.natural(knowledge, row).mean() for row in weights]
        return torch.stack(means).to(knowledge.stacked_means.dtype)

    def pooled(self, knowledge: KnowledgeBase, weights: Tensor) -> Pooled:
        """Return q_w with the mean solved for, and the rest from the same natural parameters."""
        with _saying_what_to_do():
            natural = self.natural(knowledge, weights)
            mean = natural.mean().to(knowledge.stacked_means.dtype)
        return Pooled(mean, partial(natural.around, mean))

    def natural(self, knowledge: KnowledgeBase, weights: Tensor) -> NaturalParameters:
        r"""Return the natural parameters of q_w: prior + K Σ β_kj · evidence_kj.

        That is P₀μ₀ + K Σ β_kj η_kj and P₀ + K Σ β_kj Λ_kj. With m > 1 priors, or priors with a
        scale of each task's own, q₀ is their log-linear pool with weights β_kj.

        Examples
        --------
        >>> from ibcl.gaussians import DiagonalGaussian
        >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], d=0)
        >>> _ = knowledge.add("a", [DiagonalGaussian([1.0], [0.5])])
        >>> EvidencePooling().natural(knowledge, torch.tensor([[1.0]])).precision.item()
        4.0
        """
        if all(record.scale is None for record in knowledge.records):
            priors = list(zip(weights.sum(0).tolist(), knowledge.priors, strict=True))
        else:
            priors = [
                (share, knowledge.initial_prior_of(task, index))
                for task, row in zip(knowledge.tasks, weights.tolist(), strict=True)
                for index, share in enumerate(row)
            ]
        prior = [(share, q.natural_parameters()) for share, q in priors if share != 0]
        return linear_combination([*prior, *self._evidence(knowledge, weights)])

    @staticmethod
    def _evidence(
        knowledge: KnowledgeBase, weights: Tensor
    ) -> list[tuple[float, NaturalParameters]]:
        """Evidence with its exponents K β_kj, each a proper likelihood."""
        tasks = len(knowledge.tasks)
        factors = []
        worst = 0.0
        for task, row in zip(knowledge.tasks, weights.tolist(), strict=True):
            for index, weight in enumerate(row):
                if weight != 0:
                    factor, cut = knowledge.evidence(task, index).proper()
                    factors.append((tasks * weight, factor))
                    worst = max(worst, cut)
        if worst > 0:
            warnings.warn(
                f"Evidence was negative in up to {worst:.1%} of a task's parameters and is left "
                "out there; full covariances (DenseVI) do not have this problem.",
                EvidenceWarning,
                stacklevel=4,
            )
        return factors


@contextmanager
def _saying_what_to_do() -> Iterator[None]:
    try:
        yield
    except ImproperError:
        raise ImproperError(
            "The pooled evidence has no positive definite precision: posteriors replaced by "
            "pointers have left evidence that cancels. Learn with d=0 to pool evidence."
        ) from None

"""``mixture``, the definition of a credal set's members: q_w(θ) = Σ_kj β_kj q_kj(θ)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ibcl.gaussians import Distribution
from ibcl.knowledge import KnowledgeBase
from ibcl.mixture import Mixture
from ibcl.pooling.rule import PAPER_THRESHOLD, PoolingRule, averaged_means, weighted_extremes


@dataclass(frozen=True)
class MixturePooling(PoolingRule):
    """The convex combination of densities."""

    name: ClassVar[str] = "mixture"
    threshold: ClassVar[float] = PAPER_THRESHOLD

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the mixture, or the one component that has all the weight."""
        totals, components = weighted_extremes(knowledge, weights)
        return components[0] if len(components) == 1 else Mixture(totals, components)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the weighted means."""
        return averaged_means(knowledge, weights)

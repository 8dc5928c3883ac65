"""``wasserstein``, the barycentre under the 2-Wasserstein distance.

For diagonal Gaussians that is averaging means and standard deviations, as the paper's experiments
do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ibcl.gaussians import Distribution, barycentre
from ibcl.knowledge import KnowledgeBase
from ibcl.pooling.rule import PAPER_THRESHOLD, PoolingRule, averaged_means, weighted_extremes


@dataclass(frozen=True)
class WassersteinPooling(PoolingRule):
    """The 2-Wasserstein barycentre."""

    name: ClassVar[str] = "wasserstein"
    threshold: ClassVar[float] = PAPER_THRESHOLD

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the barycentre: a Gaussian with the weighted mean."""
        totals, components = weighted_extremes(knowledge, weights)
        return components[0] if len(components) == 1 else barycentre(totals, components)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the weighted means."""
        return averaged_means(knowledge, weights)

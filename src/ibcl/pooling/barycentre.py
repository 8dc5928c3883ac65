"""``wasserstein``, the barycentre under the 2-Wasserstein distance.

For diagonal Gaussians that is averaging means and standard deviations, as the paper's experiments
do.
"""

from __future__ import annotations

from torch import Tensor

from ibcl.gaussians import Distribution, barycentre
from ibcl.knowledge import KnowledgeBase
from ibcl.pooling.rule import averaged_means, weighted_extremes


class WassersteinPooling:
    """The 2-Wasserstein barycentre."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the barycentre: a Gaussian with the weighted mean."""
        totals, components = weighted_extremes(knowledge, weights)
        return components[0] if len(components) == 1 else barycentre(totals, components)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the weighted means."""
        return averaged_means(knowledge, weights)

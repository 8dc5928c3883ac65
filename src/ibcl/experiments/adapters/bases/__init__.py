"""The base models of the comparison: what is below the adapted layers, run once, and what is above.

All that is compared reads or adapts upper layers only. What the layers below them return is the
same for every contender and seed: it is computed once per input, as the features of a backbone of
`ibcl.experiments.benchmarks`, and kept. The base model of all contenders is then the upper part, an
ordinary torch module whose inputs are those features. Costs are counted in passes through the
whole model all the same.
"""

from ibcl.experiments.adapters.bases.base import BASES, Base, Upper
from ibcl.experiments.adapters.bases.efficientnet import EFFICIENTNET
from ibcl.experiments.adapters.bases.minilm import MINILM

__all__ = ["BASES", "EFFICIENTNET", "MINILM", "Base", "Upper"]

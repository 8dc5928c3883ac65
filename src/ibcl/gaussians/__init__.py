r"""The Gaussians q over a network's flat parameter vector θ, one file per family.

They are the extreme elements a knowledge base stores. Their grammar is that of every `Distribution`
(`ibcl.mixture` is one more):

* ``sample(n, generator)`` draws θ, ``log_prob(theta)`` is log q(θ);
* ``kl(other)`` is KL(q ‖ other) and ``wasserstein(other)`` the 2-Wasserstein distance W2;
* ``natural_parameters()`` are (Pμ, P), with precision P. Products of densities add them, quotients
  subtract them, powers scale them: see `NaturalParameters`, the currency of pooling, forgetting and
  merging;
* ``tensors()`` and ``from_tensors`` are its exact form, for files and for equality.

Tensors are kept as they are given (float32 for diagonal posteriors, float64 for dense ones, whose
precisions are later subtracted from each other); densities, determinants and distances are always
computed in float64.

To add a family, write a file with a `Gaussian` and its `NaturalParameters` and `register` it.
"""

from ibcl.gaussians.block_diagonal import (
    BlockDiagonalGaussian,
    BlockDiagonalNatural,
    low_rank_blocks,
)
from ibcl.gaussians.dense import DenseGaussian, DenseNatural, bures_barycentre
from ibcl.gaussians.diagonal import DiagonalGaussian, DiagonalNatural
from ibcl.gaussians.distribution import LOG_TWO_PI, Distribution, Gaussian, barycentre
from ibcl.gaussians.independent import IndependentGaussian, IndependentNatural
from ibcl.gaussians.low_rank import LowRankGaussian, LowRankNatural
from ibcl.gaussians.natural import ImproperError, NaturalParameters, linear_combination
from ibcl.gaussians.registry import FAMILIES, family_named, register

for _family in (
    DiagonalGaussian,
    DenseGaussian,
    LowRankGaussian,
    BlockDiagonalGaussian,
    IndependentGaussian,
):
    register(_family)

__all__ = [
    "FAMILIES",
    "LOG_TWO_PI",
    "BlockDiagonalGaussian",
    "BlockDiagonalNatural",
    "DenseGaussian",
    "DenseNatural",
    "DiagonalGaussian",
    "DiagonalNatural",
    "Distribution",
    "Gaussian",
    "ImproperError",
    "IndependentGaussian",
    "IndependentNatural",
    "LowRankGaussian",
    "LowRankNatural",
    "NaturalParameters",
    "barycentre",
    "bures_barycentre",
    "family_named",
    "linear_combination",
    "low_rank_blocks",
    "register",
]

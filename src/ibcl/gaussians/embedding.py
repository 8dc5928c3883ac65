"""Posteriors in a larger space: what was never seen keeps its prior.

A parameter that no sample of a task has touched is, in the task's posterior, as the prior has it
and independent of the others. So a posterior learnt before there were such parameters is embedded
exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.gaussians.block_diagonal import BlockDiagonalGaussian
from ibcl.gaussians.dense import DenseGaussian
from ibcl.gaussians.diagonal import DiagonalGaussian
from ibcl.gaussians.distribution import Gaussian
from ibcl.gaussians.low_rank import LowRankGaussian


def embedded(posterior: Gaussian, prior: DiagonalGaussian, positions: Tensor) -> Gaussian:
    """Return a posterior among the parameters of a larger prior.

    Parameters
    ----------
    positions
        Where each of its parameters is among the prior's.

    Examples
    --------
    >>> prior = DiagonalGaussian([0.0, 0.0, 0.0], [2.0, 2.0, 2.0])
    >>> found = embedded(DiagonalGaussian([1.0], [0.5]), prior, torch.tensor([1]))
    >>> found.mean.tolist(), found.as_diagonal().std.tolist()
    ([0.0, 1.0, 0.0], [2.0, 0.5, 2.0])
    """
    mean = prior.mean.to(posterior.mean.dtype).clone()
    mean[positions] = posterior.mean
    precision = prior.std.double().pow(-2)
    if isinstance(posterior, DiagonalGaussian):
        std = prior.std.to(posterior.std.dtype).clone()
        std[positions] = posterior.std
        return DiagonalGaussian(mean, std)
    if isinstance(posterior, LowRankGaussian):
        diagonal = precision.to(posterior.diagonal.dtype)
        diagonal[positions] = posterior.diagonal
        factor = posterior.factor.new_zeros(len(mean), posterior.factor.shape[1])
        factor[positions] = posterior.factor
        return LowRankGaussian(mean, diagonal, factor)
    dense = posterior.dense().precision
    matrix = torch.diag(precision.to(dense.dtype))
    matrix[positions[:, None], positions] = dense
    return DenseGaussian(mean, matrix)


def embedded_blocks(
    posterior: Gaussian, prior: DiagonalGaussian, sources: Tensor, places: Tensor, blocks: Tensor
) -> Gaussian:
    """Return a posterior of independent outputs among the parameters of a larger prior.

    Parameters
    ----------
    sources
        Parameters of each output so far, shape (outputs, B).
    places
        Where the B parameters of an output are among those B′ of a larger one.
    blocks
        Parameters of each output of the larger prior, shape (outputs′, B′); the first ones are
        those that there are.
    """
    if isinstance(posterior, DiagonalGaussian | LowRankGaussian):
        positions = torch.empty(posterior.dimension, dtype=torch.int64)
        positions[sources] = blocks[: len(sources)][:, places]
        return embedded(posterior, prior, positions)
    mean = prior.mean.to(posterior.mean.dtype).clone()
    known = posterior if isinstance(posterior, BlockDiagonalGaussian) else posterior.dense()
    dtype = known.blocks.dtype if isinstance(known, BlockDiagonalGaussian) else torch.float64
    matrices = torch.diag_embed(prior.std.double().pow(-2)[blocks]).to(dtype)
    for output, source in enumerate(sources):
        mean[blocks[output, places]] = posterior.mean[source]
        if isinstance(known, BlockDiagonalGaussian):
            precision = known.blocks[output]
        else:
            assert isinstance(known, DenseGaussian)
            precision = known.precision[source[:, None], source].to(dtype)
        matrices[output][places[:, None], places] = precision
    return BlockDiagonalGaussian(mean, matrices, blocks)


def against_each_other(posterior: Gaussian, blocks: Tensor) -> Gaussian:
    """Return the posterior of one logit as that of two outputs, each class against the other.

    σ(z) and σ(−z) are their probabilities, so that nothing is changed by it.

    Parameters
    ----------
    blocks
        Parameters of both outputs, shape (2, B).

    Examples
    --------
    >>> found = against_each_other(DiagonalGaussian([3.0], [0.5]), torch.tensor([[0], [1]]))
    >>> found.mean.tolist()
    [-3.0, 3.0]
    """
    mean = posterior.mean.new_zeros(blocks.numel())
    mean[blocks[0]], mean[blocks[1]] = -posterior.mean, posterior.mean
    if isinstance(posterior, DiagonalGaussian):
        std = torch.empty_like(mean)
        std[blocks] = posterior.std
        return DiagonalGaussian(mean, std)
    if isinstance(posterior, LowRankGaussian):
        diagonal = posterior.diagonal.new_empty(len(mean))
        diagonal[blocks] = posterior.diagonal
        rank = posterior.factor.shape[1]
        factor = posterior.factor.new_zeros(len(mean), 2 * rank)
        factor[blocks[0], :rank] = factor[blocks[1], rank:] = posterior.factor
        return LowRankGaussian(mean, diagonal, factor)
    precision = posterior.dense().precision
    return BlockDiagonalGaussian(mean, torch.stack([precision, precision]), blocks)

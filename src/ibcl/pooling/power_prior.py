r"""Heads that borrow: the prior of every task's head holds a power of the other tasks' evidence.

    q_k(θ) ∝ q₀(θ) ℓ_k(θ) Π_{j ≠ k} ℓ_j(θ)^c_k,

the power prior of Ibrahim and Chen (2000), with each task's likelihood as its Gaussian factor
ℓ_k = q_k / q₀. Of the powers compared, the one is taken under which the task's own evidence is most
probable,

    log m_k(c) = log ∫ ℓ_k dπ_c,     π_c ∝ q₀ Π_{j ≠ k} ℓ_j^c,

so that a task unlike the others stays alone, c = 0, and tasks that are alike answer as one, c = 1.
All of it is a function of the set of the tasks' records, summed in the order of their names: no
data are needed, the order of learning does not matter, and a task that is forgotten leaves nothing
behind.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ibcl.gaussians import (
    BlockDiagonalGaussian,
    Gaussian,
    LowRankGaussian,
    LowRankNatural,
    NaturalParameters,
    linear_combination,
)
from ibcl.knowledge import KnowledgeBase

POWERS = (0.0, 0.03, 0.1, 0.3, 1.0)
"""Powers that are compared."""
MOST_TASKS = 64
"""Tasks up to which heads borrow: beyond, each has its own posterior."""
# Multiplications of factorising all tasks' full covariances once, up to which heads borrow.
_LARGEST_WORK = 2**32
# Compact posteriors are kept in single precision.
_SINGLE_ROUNDING = torch.finfo(torch.float32).eps


class Borrowed(NamedTuple):
    """A task's posterior, and the power of the others' evidence in its prior."""

    power: float
    posterior: Gaussian


def borrows(knowledge: KnowledgeBase) -> bool:
    """Tell whether the tasks' heads can borrow from each other, in negligible time."""
    tasks = len(knowledge.tasks)
    able = knowledge.independent and knowledge.correlated and len(knowledge.priors) == 1
    if not able or not 1 < tasks <= MOST_TASKS:
        return False
    if len({type(posterior) for posterior in knowledge.stored}) > 1:
        # Evidence of different forms, as where one output became many, only adds up in full.
        return tasks * knowledge.dimension**3 <= _LARGEST_WORK
    return tasks * max(_work(posterior) for posterior in knowledge.stored) <= _LARGEST_WORK


def _work(posterior: Gaussian) -> int:
    """Multiplications that factorising a covariance takes, roughly."""
    if isinstance(posterior, LowRankGaussian):
        return posterior.dimension * posterior.factor.shape[1] ** 2
    if isinstance(posterior, BlockDiagonalGaussian):
        blocks, size = posterior.positions.shape
        return int(blocks) * int(size) ** 3
    return posterior.dimension**3


def borrowed(knowledge: KnowledgeBase) -> list[Borrowed]:
    """Return every task's posterior with what it borrows from the others.

    Examples
    --------
    >>> from ibcl.gaussians import DenseGaussian
    >>> knowledge = KnowledgeBase([DenseGaussian([0.0], [[0.1]])], d=0, independent=True)
    >>> for task, mean in [("north", 3.0), ("south", 3.1)]:
    ...     _ = knowledge.add(task, [DenseGaussian([mean], [[2.0]])])
    >>> [each.power for each in borrowed(knowledge)]
    [1.0, 1.0]
    """
    evidence = {task: _evidence(knowledge, task) for task in sorted(knowledge.tasks)}
    found = []
    for task in knowledge.tasks:
        prior = knowledge.initial_prior_of(task, 0).natural_parameters()
        rest = linear_combination(
            [(1.0, factor) for other, factor in evidence.items() if other != task]
        )
        # The first of equals, so that a task without anything to gain stays as it is.
        compared = [_with(power, prior, rest, evidence[task]) for power in POWERS]
        best = max(compared, key=lambda each: each[0])[1]
        found.append(best if best.power else Borrowed(0.0, knowledge.extremes(task)[0]))
    return found


def _evidence(knowledge: KnowledgeBase, task: str) -> NaturalParameters:
    """Return what a task's data say: nothing where less is left than its posterior was rounded by.

    Of a narrow prior, that may be more than the whole prior of another task.
    """
    found = knowledge.evidence(task, 0).proper()[0]
    if not isinstance(found, LowRankNatural):
        return found
    prior = knowledge.initial_prior_of(task, 0).natural_parameters().precision_diagonal()
    rounded = found.diagonal.abs() <= _SINGLE_ROUNDING * prior
    diagonal = found.diagonal.masked_fill(rounded, 0.0)
    return LowRankNatural(found.linear, diagonal, found.factor, found.weights)


def _with(
    power: float, prior: NaturalParameters, rest: NaturalParameters, own: NaturalParameters
) -> tuple[float, Borrowed]:
    """Return log m_k(c), up to a term without c, and the posterior under this power."""
    before = linear_combination([(1.0, prior), (power, rest)]) if power else prior
    after = linear_combination([(1.0, before), (1.0, own)])
    posterior, earlier = after.gaussian(torch.float64), before.gaussian(torch.float64)
    score = _log_normaliser(after, posterior) - _log_normaliser(before, earlier)
    return score, Borrowed(power, posterior)


def _log_normaliser(natural: NaturalParameters, gaussian: Gaussian) -> float:
    """Log ∫ exp(ηᵀθ − ½ θᵀPθ) dθ, up to a constant."""
    fit = float(natural.linear.double() @ gaussian.mean.double())
    return 0.5 * (fit + float(gaussian.log_determinant))

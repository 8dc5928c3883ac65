r"""How much of a task's answer is its expert's, and how much its head's.

    p_k(y | φ) = λ expert(y | φ) + (1 − λ) head(y | φ),     λ = E[λ | held-out rows],

with the density 3 (1 − λ)² of λ before these rows are seen: a quarter is the expert's, since the
head is the better one of the two on most small tasks. The answer is linear in λ, so that answering
with its mean is averaging the answers of all λ. Many rows give all to the better one, or to each as
much as makes them best together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.likelihoods import Likelihood
from ibcl.tasks import TaskData

# Equal parts of [0, 1], at whose middles the likelihood is computed.
_PARTS = 100
# Exponent of 1 − λ in its prior density, chosen among 0 and 2 on twelve tables.
_HEADS_FAVOUR = 2
# What a class that was never seen is taken to have had as its probability.
_SMALLEST_PROBABILITY = 1e-6


def posterior_share(likelihood: Likelihood, expert: Tensor, head: Tensor, data: TaskData) -> float:
    """Return the mean of λ given held-out rows.

    Parameters
    ----------
    expert, head
        Their answers to the rows, shape (n, columns).
    data
        The rows.

    Examples
    --------
    >>> from ibcl.likelihoods import Bernoulli
    >>> sure, unsure = torch.tensor([[0.1, 0.9]]), torch.tensor([[0.5, 0.5]])
    >>> one = TaskData(torch.zeros(1, 1), torch.ones(1))
    >>> round(posterior_share(Bernoulli(), sure, unsure, one), 3)
    0.275
    >>> many = TaskData(torch.zeros(100, 1), torch.ones(100))
    >>> posterior_share(Bernoulli(), sure.expand(100, 2), unsure.expand(100, 2), many) > 0.9
    True
    """
    shares = (torch.arange(_PARTS, dtype=torch.float64) + 0.5) / _PARTS
    expert, head = expert.double().cpu(), head.double().cpu()
    y = data.y.cpu()
    weights = torch.ones(data.size) if data.weights is None else data.weights.cpu()
    if likelihood.classification:
        own, other = (each[torch.arange(data.size), y.long()] for each in (expert, head))
        chances = torch.outer(shares, own) + torch.outer(1 - shares, other)
        losses = -chances.clamp(min=_SMALLEST_PROBABILITY).log()
    else:
        mixtures = [share * expert + (1 - share) * head for share in shares]
        outputs = likelihood.outputs_of(torch.cat(mixtures))
        losses = likelihood.negative_log(outputs, torch.cat([y] * _PARTS)).reshape(_PARTS, -1)
    prior = _HEADS_FAVOUR * torch.log1p(-shares)
    return float(torch.softmax(prior - losses.double() @ weights.double(), 0) @ shares)

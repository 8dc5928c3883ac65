r"""How much of a task's answer is its own expert's, and how much is that of all else.

    p_k(y | φ) = λ expert(y | φ) + (1 − λ) rest(y | φ),     λ = E[λ | held-out rows],

with a density of λ before these rows are seen that is proportional to (1 − λ)^a: a quarter is the
expert's where a = 2, and an eighth of boosting, a = 6, since the head is the better one of the two
on most small tasks. The answer is linear in λ, so that answering
with its mean is averaging the answers of all λ. Many rows give all to the better one, or to each as
much as makes them best together.

Rows are judged by one number each (`judged`): what was answered as the probability of a row's
class, or how far a value was from what was answered, in standard deviations. Both are linear in the
answer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.likelihoods import Likelihood
from ibcl.routing.predictive import in_range
from ibcl.tasks import TaskData

# Equal parts of [0, 1], at whose middles the likelihood is computed.
_PARTS = 100
BOOSTING_AGAINST = 6.0
"""a for boosting, chosen among 2, 4 and 6 on other splits of twelve tables than the results'."""
# What a class that was never seen is taken to have had as its probability.
_SMALLEST_PROBABILITY = 1e-6


def judged(likelihood: Likelihood, answers: Tensor, data: TaskData, variance: Tensor) -> Tensor:
    """Return a number per row: the probability of its class, or its standardised residual.

    Parameters
    ----------
    answers
        Probabilities or values, shape (rows, columns).
    variance
        Of the rows' values, shape (rows, columns); of no meaning for classes. Rows of several
        values are as many rows.
    """
    answers = answers.double().cpu()
    if likelihood.classification:
        return answers[torch.arange(data.size), data.y.long().cpu()]
    residuals = in_range(likelihood, answers) - data.y.double().cpu().reshape(answers.shape)
    return (residuals / variance.double().cpu().sqrt()).flatten()


def log_likelihood(rows: Tensor, classes: bool) -> Tensor:
    """Return the log likelihood of rows that were judged, up to a constant."""
    return rows.clamp(min=_SMALLEST_PROBABILITY).log() if classes else -0.5 * rows.square()


def posterior_share(
    own: Tensor, rest: Tensor, classes: bool, weights: Tensor, against: float = 2.0
) -> float:
    """Return the mean of λ given held-out rows.

    Parameters
    ----------
    own, rest
        What was judged of the expert's answers, and of the others'.
    weights
        What each row counts for.
    against
        a, the exponent of 1 − λ in its density before any row is seen.

    Examples
    --------
    >>> sure, unsure, one = torch.tensor([0.9]), torch.tensor([0.5]), torch.ones(1)
    >>> round(posterior_share(sure, unsure, True, one), 3)
    0.275
    >>> posterior_share(sure.expand(100), unsure.expand(100), True, torch.ones(100)) > 0.9
    True
    """
    shares = (torch.arange(_PARTS, dtype=torch.float64) + 0.5) / _PARTS
    mixtures = torch.outer(shares, own.double()) + torch.outer(1 - shares, rest.double())
    found = log_likelihood(mixtures, classes) @ weights.double()
    return float(torch.softmax(against * torch.log1p(-shares) + found, 0) @ shares)

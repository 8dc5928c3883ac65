r"""How wide the prior around a module's own weights is to be, by rows held out of the task.

A module may bring weights that were trained, which a few rows must not spoil, or weights that
somebody just drew, which say nothing and must be free to move. Nothing but the task's data tells
the two from each other, and the ELBO of mean-field posteriors does not (its gap grows with the
prior's width, so that it favours posteriors that hardly move). So the task is tried under
both priors on three quarters of its rows, and the others judge (of few rows, every quarter in its
turn): the wide prior is taken where its mean model's log-likelihood is ahead by more than two
standard errors of the rows' differences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.gaussians import Gaussian
from ibcl.inference.protocol import Inference
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

# Rows that are looked at, at most, and how few are too few.
_MOST_ROWS, _FEWEST_ROWS = 2000, 12
# One of so many parts judges; of few rows, each part in its turn.
_PARTS, _FEW_ROWS = 4, 400


def wider_answers_better(
    network: FlatNetwork,
    likelihood: Likelihood,
    inference: Inference,
    near: Gaussian,
    wide: Gaussian,
    data: TaskData,
) -> bool:
    """Whether held-out rows of a task are surely answered better after learning from `wide`.

    Parameters
    ----------
    data
        The task, with labels as the likelihood's `check` returns them.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> from ibcl.inference import MeanFieldVI
    >>> from ibcl.likelihoods import Bernoulli
    >>> x = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
    >>> network = FlatNetwork(torch.nn.Linear(1, 1))
    >>> near, wide = (DiagonalGaussian([-0.3, 0.0], [std, std]) for std in (0.03, 3.0))
    >>> data = TaskData(x, (x[:, 0] > 0).float())
    >>> inference = MeanFieldVI(learning_rate=None)
    >>> wider_answers_better(network, Bernoulli(), inference, near, wide, data)
    True
    """

    def losses(prior: Gaussian, judging: Tensor, trying: Tensor) -> Tensor:
        result = inference.infer(
            network,
            likelihood,
            [prior],
            _rows(data, trying),
            validation=None,
            start_from_prior=False,
            seed=0,
            progress=None,
        )
        (posterior,) = result.posteriors
        judged = _rows(data, judging)
        with torch.no_grad():
            outputs = network(posterior.mean.to(judged.x), judged.x)
        return likelihood.negative_log(outputs, judged.y).double()

    if data.size < _FEWEST_ROWS:
        return False
    order = torch.randperm(data.size, generator=torch.Generator().manual_seed(0))[:_MOST_ROWS]
    parts = torch.tensor_split(order.to(data.x.device), _PARTS)
    turns = len(parts) if len(order) <= _FEW_ROWS else 1
    ahead = torch.cat(
        [
            losses(near, judging, trying) - losses(wide, judging, trying)
            for judging, trying in (
                (parts[turn], torch.cat([*parts[:turn], *parts[turn + 1 :]]))
                for turn in range(turns)
            )
        ]
    )
    return bool(ahead.mean() > 2 * ahead.std() / len(ahead) ** 0.5)


def _rows(data: TaskData, rows: Tensor) -> TaskData:
    weights = None if data.weights is None else data.weights[rows]
    return TaskData(data.x[rows], data.y[rows], weights)

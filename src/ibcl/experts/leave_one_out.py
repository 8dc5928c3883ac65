r"""What a head linear in its parameters would answer to each of its rows, had it not learnt it.

One Newton step takes the row's likelihood out of the posterior N(μ, Σ). With the output f = φᵀμ,
its variance v = φᵀΣφ, and slope g and curvature λ of the row's negative log likelihood at f,

    f₋ = f + v g / (1 − λ v),

exact for Gaussian likelihoods. So a task's rows say how well its head predicts, without learning it
a second time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.gaussians import BlockDiagonalGaussian, Gaussian
from ibcl.likelihoods import Categorical, Likelihood, OneVsRest
from ibcl.networks import FlatNetwork, head_outputs
from ibcl.tasks import TaskData

# 1 − λ v is positive but for approximations; a row whose leverage is larger counts as this.
_LEAST = 1e-3


def has_leave_one_out(head: FlatNetwork, likelihood: Likelihood) -> bool:
    """Tell whether outputs can be had: of linear heads whose outputs are fitted one by one."""
    joint = isinstance(likelihood, Categorical) and not isinstance(likelihood, OneVsRest)
    return head.is_linear and not joint


def leave_one_out(
    head: FlatNetwork, likelihood: Likelihood, posterior: Gaussian, data: TaskData
) -> Tensor:
    """Return the answers of a task's head to its own rows, each without itself: (n, columns).

    Parameters
    ----------
    posterior
        What was learnt from all rows.
    data
        The rows' features, and labels as the likelihood takes them.

    Examples
    --------
    >>> from ibcl.gaussians import DenseGaussian
    >>> from ibcl.likelihoods import Normal
    >>> from ibcl.networks import linear
    >>> head, rows = FlatNetwork(linear(1)), TaskData(torch.zeros(1, 1), torch.ones(1, 1))
    >>> posterior = DenseGaussian([0.0, 0.5], [[1.0, 0.0], [0.0, 2.0]])
    >>> abs(leave_one_out(head, Normal(1.0), posterior, rows).item()) < 1e-12
    True
    """
    outputs = head_outputs(head, posterior.mean[None], data.x)[0].double()
    with torch.enable_grad():
        at = outputs.detach().requires_grad_()
        loss = likelihood.negative_log(at, data.y).sum()
        (slope,) = torch.autograd.grad(loss, at, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), at)
    slope = slope.detach()
    if data.weights is not None:
        each = data.weights.to(slope)[:, None]
        slope, curvature = each * slope, each * curvature
    variance = _output_variances(head, posterior, data.x)
    rest = (1 - curvature * variance).clamp(min=_LEAST)
    return likelihood.mean(outputs + variance * slope / rest)


def _output_variances(head: FlatNetwork, posterior: Gaussian, features: Tensor) -> Tensor:
    """φᵀΣφ of every output's own parameters, shape (n, outputs)."""
    rows = head.features(features).flatten(1).double()
    found = head.linear_head()
    if found.layer.bias is not None:
        rows = torch.cat([rows, torch.ones_like(rows[:, :1])], 1)
    if isinstance(posterior, BlockDiagonalGaussian):
        factors = posterior.covariance_factors
        order = {tuple(row): place for place, row in enumerate(posterior.positions.tolist())}
        own = [factors[order[tuple(row)]] for row in found.positions.tolist()]
    else:
        root = posterior.dense().covariance_factor
        own = [root[row] for row in found.positions]
    return torch.stack([(rows @ factor).square().sum(1) for factor in own], 1)

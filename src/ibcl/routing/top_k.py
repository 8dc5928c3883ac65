r"""Top-k routing: of costly experts only those are run that matter for a row.

The costly experts of the tasks with a row's smallest shares are not run as long as those shares sum
to at most τ; these tasks answer with their heads h_k alone. With p_k = λ_k e_k + (1 − λ_k) h_k,

    p̃(y | φ, w) = Σ_{k run} r_k p_k + Σ_{k not run} r_k h_k,
    |p − p̃| = |Σ_{k not run} r_k λ_k (e_k − h_k)| ≤ τ max_k λ_k:

a probability differs by at most τ from the full sum's, and an expected value by τ times the
largest distance between an expert's answer and its head's. Which experts are run depends on the row
and the preference alone.

A server of adapters has no heads: it is given the shares of those kept, scaled to sum to 1.
"""

from __future__ import annotations

import torch
from torch import Tensor


def are_run(shares: Tensor, costly: Tensor, tolerance: float) -> Tensor:
    """Return which tasks' experts are run for a row, shape (n, tasks): all that are not costly.

    Parameters
    ----------
    shares
        r_k of each row, shape (n, tasks).
    costly
        Which tasks' experts are costly, shape (tasks,).
    tolerance
        τ.

    Examples
    --------
    >>> shares = torch.tensor([[0.9, 0.08, 0.02], [0.5, 0.3, 0.2]])
    >>> are_run(shares, torch.tensor([True, True, True]), 0.1)
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    ordered, order = shares.masked_fill(~costly, torch.inf).sort(1)
    left_out = torch.zeros_like(shares, dtype=torch.bool)
    return ~left_out.scatter_(1, order, ordered.cumsum(1) <= tolerance)


def kept_shares(shares: Tensor, costly: Tensor, tolerance: float) -> Tensor:
    """Return shares without those of costly experts that are not run, scaled to sum to 1.

    Parameters
    ----------
    shares, costly, tolerance
        As in `are_run`.

    Examples
    --------
    >>> shares = torch.tensor([[0.9, 0.08, 0.02], [0.5, 0.3, 0.2]])
    >>> kept_shares(shares, torch.tensor([True, True, True]), 0.1)
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.3000, 0.2000]])
    """
    kept = shares.masked_fill(~are_run(shares, costly, tolerance), 0.0)
    return kept / kept.sum(1, keepdim=True)

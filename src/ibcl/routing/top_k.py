r"""Top-k routing: of costly experts only those are run that matter for a row.

The costly experts with a row's smallest shares are left out as long as those shares sum to at most
τ; the others' are scaled to sum to 1:

    p̃(y | φ, w) = Σ_{k kept} r_k p_k / (1 − δ),     δ = Σ_{k left out} r_k ≤ τ.

With q the mixture of those left out, p = (1 − δ) p̃ + δ q, so that |p − p̃| = δ |q − p̃|: a
probability differs by at most τ from the full sum's, and an expected value by τ times the range of
the tasks' answers. Which experts are kept depends on the row and the preference alone.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kept_shares(shares: Tensor, costly: Tensor, tolerance: float) -> Tensor:
    """Return shares without those of costly experts that are left out, scaled to sum to 1.

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
    >>> kept_shares(shares, torch.tensor([True, True, True]), 0.1)
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.3000, 0.2000]])
    """
    sizes = shares.masked_fill(~costly, torch.inf)
    ordered, order = sizes.sort(1)
    left_out = torch.zeros_like(shares, dtype=torch.bool)
    left_out.scatter_(1, order, ordered.cumsum(1) <= tolerance)
    kept = shares.masked_fill(left_out, 0.0)
    return kept / kept.sum(1, keepdim=True)

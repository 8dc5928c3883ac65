"""A-GEM: averaged gradient episodic memory."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.descent import Gradient
from ibcl.experiments.methods.per_sample import per_sample_gradients
from ibcl.experiments.methods.registration import REHEARSAL, Registration, register
from ibcl.experiments.methods.rehearsal import Pool, Rehearsal


def conflict(products: Tensor) -> Tensor:
    r"""How much of the reference gradient to add so that a step no longer conflicts with it.

    The closest vector to g with g̃ᵀg_ref ≥ 0 is g̃ = g + v g_ref with (equation 11 of the paper)

        v = −gᵀg_ref / g_refᵀg_ref  where gᵀg_ref < 0, and v = 0 elsewhere.

    A reference so small that its square is 0 in this precision holds nothing back.

    Parameters
    ----------
    products
        The inner products of g and g_ref of every model, of shape (P, 2, 2).

    Examples
    --------
    >>> g, g_ref = torch.tensor([1.0, -1.0]), torch.tensor([0.0, 2.0])
    >>> both = torch.stack([g, g_ref])
    >>> g + conflict((both @ both.T)[None]) * g_ref
    tensor([1., 0.])
    """
    agreement, length = products[:, 0, 1], products[:, 1, 1]
    return torch.where((agreement < 0) & (length > 0), -agreement / length, 0.0)


class AGEM(Rehearsal):
    r"""Chaudhry, Ranzato, Rohrbach and Elhoseiny, *Efficient Lifelong Learning with A-GEM*, 2019.

    A step may not increase the average loss over the memories, as a random batch of them shows it:
    the gradient g is projected on the half-space gᵀg_ref ≥ 0.

    Preferences: g is the gradient of Σ_j w_j L_j on a minibatch of current data and memory, and
    the reference that of the past's share of it, Σ_{j<i} w_j L_j on b samples of the memories. A
    preference that gives the past no weight is not held back by it. The projected gradient is
    given to Adam (the paper: plain gradient descent). The reference batches are not counted as
    updates, as in the paper's table.
    """

    name = "agem"

    def direction(self, pool: Pool, preferences: Tensor, generator: torch.Generator) -> Gradient:
        """Project g of the minibatch by g_ref of a batch of memories."""
        data, importance = pool.data, pool.importance(preferences)
        size = self.descent.batch_size
        memories = torch.nonzero(~pool.current).flatten()

        def gradient(thetas: Tensor, rows: Tensor, _: int) -> Tensor:
            draw = torch.randint(max(1, len(memories)), (size,), generator=generator)
            drawn = torch.cat([rows, memories[draw] if len(memories) else memories])
            slopes = partial(self.slope, y=data.y[drawn])
            samples = per_sample_gradients(self.models, thetas, data.x[drawn], slopes)
            # The two rows of `shares` turn gradients of samples into g and g_ref.
            shares = torch.zeros(len(thetas), 2, len(drawn))
            shares[:, 0, : len(rows)] = importance[:, rows] / len(rows)
            shares[:, 1, len(rows) :] = importance[:, drawn[len(rows) :]] / size
            v = conflict(shares @ samples.inner_products() @ shares.mT)
            return samples.combine(shares[:, 0] + v[:, None] * shares[:, 1], out=thetas.grad)

        return gradient


register(Registration("agem", "A-GEM", AGEM, REHEARSAL, MLP, 10.0, GRADIENT, DECAYED))

"""GEM: gradient episodic memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.descent import Gradient
from ibcl.experiments.methods.per_sample import per_sample_gradients
from ibcl.experiments.methods.registration import REHEARSAL, Registration, register
from ibcl.experiments.methods.rehearsal import Pool, Rehearsal


def multipliers(
    products: NDArray[np.float64], constrains: NDArray[np.bool_]
) -> NDArray[np.float64]:
    r"""Solve GEM's dual problem of every model, from inner products alone.

    For the gradient g and the references g_1 … g_m that constrain it, find v for which
    g̃ = g + Σ_k v_k g_k is the closest vector to g with g̃ᵀg_k ≥ 0 for all k (equations 8 to 12 of
    the GEM paper):

        min over v ≥ 0 of ½ vᵀ G Gᵀ v + gᵀ Gᵀ v  =  min over v ≥ 0 of ½ ‖Gᵀv + g‖² + constant.

    A square root of the inner products holds coordinates of all gradients in a space of m + 1
    dimensions with the same inner products, where this is non-negative least squares.

    Parameters
    ----------
    products
        The inner products of g, g_1, … g_m of every model, of shape (P, m + 1, m + 1).
    constrains
        Which references constrain which model, of shape (P, m); v is 0 for the others.

    Examples
    --------
    >>> multipliers(np.array([[[2.0, -2.0], [-2.0, 4.0]]]), np.array([[True]])).round(6)
    array([[0.5]])
    """
    solution = np.zeros(constrains.shape)
    # A model whose training has diverged has no direction left to correct.
    products = np.where(np.isfinite(products).all((1, 2), keepdims=True), products, 0.0)
    values, vectors = np.linalg.eigh(products)
    coordinates = vectors * np.sqrt(np.clip(values, 0, None))[:, None, :]
    conflicts = (constrains & (products[:, 0, 1:] < 0)).any(1)
    for model in np.flatnonzero(conflicts):
        kept = constrains[model]
        references = coordinates[model, 1:][kept]
        solution[model, kept] = nnls(references.T, -coordinates[model, 0])[0]
    return solution


class GEM(Rehearsal):
    r"""Lopez-Paz and Ranzato, *Gradient Episodic Memory for Continual Learning*, NeurIPS 2017.

    A step may not increase the loss on any task's memory, to first order: the gradient g is
    replaced by the closest g̃ with g̃ᵀg_k ≥ 0 for the loss gradient g_k of every past task k.

    Preferences: g is the gradient of Σ_j w_j L_j on a minibatch of current data and memory; the
    constraints are those of the past tasks the preference gives any weight. The g_k come from
    `reference` random samples of each memory at every step (the paper: all of it, which costs a
    pass over the whole memory a step); they are not counted as updates, as in the paper's table.
    The memory is a random choice of the task's samples (the paper: the last ones of a shuffled
    stream), and the projected gradient is given to Adam (the paper: plain gradient descent).

    Parameters
    ----------
    reference
        Samples of each memory behind a reference gradient.
    """

    name = "gem"

    def __init__(self, network: nn.Module, *, reference: int = 8, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.reference = at_least("reference", reference, 1)

    def direction(self, pool: Pool, preferences: Tensor, generator: torch.Generator) -> Gradient:
        """Project g of the minibatch by the g_k of all past tasks together."""
        data, importance = pool.data, pool.importance(preferences)
        firsts = (pool.sizes.cumsum(0) - pool.sizes).tolist()
        sizes = pool.sizes.tolist()
        past = len(sizes) - 1
        constrains = preferences[:, :past].numpy() > 0

        def gradient(thetas: Tensor, rows: Tensor, _: int) -> Tensor:
            groups = [rows] + [
                first + torch.randperm(size, generator=generator)[: self.reference]
                for first, size in zip(firsts[:past], sizes[:past], strict=True)
            ]
            drawn = torch.cat(groups)
            slopes = partial(self.slope, y=data.y[drawn])
            samples = per_sample_gradients(self.models, thetas, data.x[drawn], slopes)
            # Row r of `shares` turns gradients of samples into that of group r: g, g_1, … g_past.
            means = [torch.full((1, len(group)), 1 / len(group)) for group in groups]
            shares = torch.block_diag(*means).repeat(len(thetas), 1, 1)  # type: ignore[no-untyped-call]
            shares[:, 0, : len(rows)] *= importance[:, rows]
            products = (shares @ samples.inner_products() @ shares.mT).double().numpy()
            v = multipliers(products, constrains)
            with_g = torch.cat([torch.ones(len(v), 1), torch.from_numpy(v).float()], 1)
            return samples.combine((with_g.unsqueeze(1) @ shares).squeeze(1), out=thetas.grad)

        return gradient


register(Registration("gem", "GEM", GEM, REHEARSAL, MLP, 10.0, GRADIENT, DECAYED))

"""Class Gaussians: a mean and one covariance per class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import share
from ibcl.experiments.methods.class_moments import ClassMoments
from ibcl.experiments.methods.common_settings import LINEAR, SCORES
from ibcl.experiments.methods.registration import CLOSED_FORM, Range, Registration, register


class ClassGaussians(ClassMoments):
    r"""Quadratic discriminants with covariances that are nearly shared.

    With S_c the covariance of class c and S the pooled one,

        C_c = (1 − b)(a S + (1 − a) S_c) + b · mean(diag S) · I,
        s_kc(x) = −½ ((x − μ_c)ᵀ C_c⁻¹ (x − μ_c) + log |C_c|) / t + log π_{c|k}.

    Regularised discriminant analysis (Friedman, 1989) with tempered densities. Moments are sums, so
    a class can be forgotten exactly.

    Parameters
    ----------
    pooled
        a, the share of the pooled covariance.
    shrinkage
        b.
    """

    name = "class_gaussians"

    def __init__(
        self,
        network: nn.Module,
        *,
        pooled: float = 0.95,
        shrinkage: float = 0.05,
        temperature: float = 3.0,
        **settings: Any,
    ) -> None:
        super().__init__(network, temperature=temperature, **settings)
        self.pooled = share("pooled", pooled)
        self.shrinkage = share("shrinkage", shrinkage)
        self.scatters: list[Tensor] = []

    def add_scatter(self, scatter: Tensor, n: int) -> None:
        """Keep the scatter of each class."""
        self.scatters.append(scatter.float())

    def scores(self, x: Tensor) -> Tensor:
        """The classes' log densities, up to a constant."""
        pooled = torch.stack(self.scatters).sum(0).double() / self.counts.sum()
        floor = self.shrinkage * pooled.diagonal().mean() * torch.eye(len(pooled)).double()
        shared = (1 - self.shrinkage) * self.pooled * pooled + floor
        own = (1 - self.shrinkage) * (1 - self.pooled)
        values = x.flatten(1)
        columns = []
        for mean, scatter, n in zip(self.means, self.scatters, self.counts, strict=True):
            factor = torch.linalg.cholesky(shared + own * scatter.double() / n)
            white = torch.linalg.solve_triangular(
                factor.float(), (values - mean.float()).T, upper=False
            )
            determinant = 2 * factor.diagonal().log().sum()
            columns.append(-0.5 * (white.square().sum(0).double() + determinant))
        return self.with_shares(torch.stack(columns, 1))

    @property
    def stored_bytes(self) -> int:
        """Bytes of means, counts and covariances."""
        kept = sum(scatter.nbytes for scatter in self.scatters)
        return self.means.nbytes + self.counts.nbytes + kept


register(
    Registration(
        "class_gaussians",
        "class Gaussians",
        ClassGaussians,
        CLOSED_FORM,
        LINEAR,
        settings={"temperature": 3.0, "shrinkage": 0.05, "pooled": 0.95},
        space={**SCORES, "shrinkage": Range(0.01, 0.3), "pooled": Range(0.5, 1.0)},
    )
)

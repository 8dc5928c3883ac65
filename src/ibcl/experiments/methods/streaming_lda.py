"""Streaming linear discriminant analysis."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import share
from ibcl.experiments.methods.class_moments import ClassMoments, shrunk
from ibcl.experiments.methods.common_settings import LINEAR, SCORES
from ibcl.experiments.methods.registration import CLOSED_FORM, Range, Registration, register


class StreamingLDA(ClassMoments):
    r"""Hayes and Kanan, *Lifelong Machine Learning with Deep Streaming LDA*, CVPR workshops 2020.

    Classes are Gaussians with means of their own and one covariance S, updated as classes arrive:

        C = (1 − b) S + b · mean(diag S) · I,
        s_kc(x) = (μ_cᵀ C⁻¹ x − ½ μ_cᵀ C⁻¹ μ_c) / t + log π_{c|k}.

    Here the mean of a finished class is exact, so that S = Σ_c scatter_c / Σ_c n_c is the pooled
    within-class covariance. The paper shrinks by b I with b = 10⁻⁴.

    Parameters
    ----------
    shrinkage
        b.
    """

    name = "streaming_lda"

    def __init__(self, network: nn.Module, *, shrinkage: float = 0.05, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.shrinkage = share("shrinkage", shrinkage)
        self.scatter: Tensor | None = None

    def add_scatter(self, scatter: Tensor, n: int) -> None:
        """Add up the scatters of all classes."""
        self.scatter = scatter if self.scatter is None else self.scatter + scatter

    def scores(self, x: Tensor) -> Tensor:
        """The classes' linear discriminants."""
        assert self.scatter is not None
        covariance = shrunk(self.scatter / self.counts.sum(), self.shrinkage)
        directions = torch.linalg.solve(covariance, self.means.T)
        offsets = 0.5 * (self.means.T * directions).sum(0)
        return self.with_shares(x.flatten(1).double() @ directions - offsets)

    @property
    def stored_bytes(self) -> int:
        """Bytes of means, counts and the one covariance."""
        kept = 0 if self.scatter is None else self.scatter.nbytes
        return self.means.nbytes + self.counts.nbytes + kept


register(
    Registration(
        "streaming_lda",
        "streaming LDA",
        StreamingLDA,
        CLOSED_FORM,
        LINEAR,
        settings={"temperature": 2.0, "shrinkage": 0.1},
        space={**SCORES, "shrinkage": Range(1e-4, 0.5)},
    )
)

"""Nearest class mean: the simplest closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.class_moments import ClassMoments
from ibcl.experiments.methods.common_settings import LINEAR, SCORES
from ibcl.experiments.methods.registration import CLOSED_FORM, Registration, register


class NearestClassMean(ClassMoments):
    r"""Mensink et al., *Distance-based image classification*, 2013, with Euclidean distance.

    Classes are spherical Gaussians around their means with one variance v, the average variance of
    a feature within classes:

        s_kc(x) = −‖x − μ_c‖² / (2 v t) + log π_{c|k}.

    It stores one mean per class, and takes no updates.
    """

    name = "nearest_class_mean"

    def __init__(self, network: nn.Module, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.squares = torch.zeros((), dtype=torch.float64)

    def add_scatter(self, scatter: Tensor, n: int) -> None:
        """Keep the average of its diagonal only."""
        self.squares = self.squares + scatter.diagonal().mean()

    def scores(self, x: Tensor) -> Tensor:
        """Less the squared distance to every mean, over twice the variance."""
        distances = torch.cdist(x.flatten(1).double(), self.means).square()
        variance = self.squares / self.counts.sum()
        return self.with_shares(-distances / (2 * variance))

    @property
    def stored_bytes(self) -> int:
        """Bytes of means and counts."""
        return self.means.nbytes + self.counts.nbytes


register(
    Registration(
        "nearest_class_mean",
        "nearest class mean",
        NearestClassMean,
        CLOSED_FORM,
        LINEAR,
        settings={"temperature": 3.0},
        space=SCORES,
    )
)

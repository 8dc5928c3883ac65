"""KLDA: linear discriminant analysis in random Fourier features."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least, positive
from ibcl.experiments.methods.common_settings import LINEAR, NORM, SCORES
from ibcl.experiments.methods.registration import CLOSED_FORM, Range, Registration, register
from ibcl.experiments.methods.streaming_lda import StreamingLDA


class KLDA(StreamingLDA):
    r"""Momeni, Mazumder and Liu, *Continual Learning Using a Kernel-Based Method*, AAAI 2025.

    Features become φ(x) = √(2/D) cos(ωᵀx + b), ω ~ N(0, 2γ I) and b uniform on [0, 2π), whose inner
    products approximate the kernel exp(−γ ‖x − x'‖²); classes are Gaussians with means of their own
    and one covariance in that space, the discriminants of `StreamingLDA`. The authors take the
    pseudo-inverse of the summed scatter; here the shrinkage is a setting, and a tiny one is theirs.

    Parameters
    ----------
    width
        D; the authors use 5,000.
    bandwidth
        γ.
    """

    name = "klda"

    def __init__(
        self, network: nn.Module, *, width: int = 2000, bandwidth: float = 1.0, **settings: Any
    ) -> None:
        super().__init__(network, **settings)
        self.width = at_least("width", width, 1)
        self.bandwidth = positive("bandwidth", bandwidth)
        self.frequencies = torch.empty(0, 0)
        self.phases = torch.empty(0)

    def features(self, x: Tensor) -> Tensor:
        """φ(x) = √(2/D) cos(ωᵀx + b)."""
        angles = x.flatten(1) @ self.frequencies + self.phases
        return math.sqrt(2 / self.width) * torch.cos(angles)

    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Add the new classes' moments in the space of φ."""
        if not self.frequencies.numel():
            generator = self.generator()
            shape = (x[0].numel(), self.width)
            scale = math.sqrt(2 * self.bandwidth)
            self.frequencies = scale * torch.randn(shape, generator=generator)
            self.phases = 2 * math.pi * torch.rand(self.width, generator=generator)
        super().learn_classes(self.features(x), column, new)

    def scores(self, x: Tensor) -> Tensor:
        """The classes' linear discriminants of φ."""
        return super().scores(self.features(x))

    @property
    def stored_bytes(self) -> int:
        """Bytes of the random map, means, counts and the one covariance."""
        return self.frequencies.nbytes + self.phases.nbytes + super().stored_bytes


register(
    Registration(
        "klda",
        "KLDA",
        KLDA,
        CLOSED_FORM,
        LINEAR,
        1.0,
        {"temperature": 2.0, "shrinkage": 1e-3, "bandwidth": 1.0, "width": 2000},
        {**NORM, **SCORES, "shrinkage": Range(1e-6, 0.3), "bandwidth": Range(0.01, 10.0)},
    )
)

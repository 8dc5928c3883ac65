"""RanPAC: random projections, and ridge regression on class indicators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least, positive
from ibcl.experiments.methods.class_scores import ClassScores
from ibcl.experiments.methods.common_settings import LINEAR, NORM
from ibcl.experiments.methods.registration import CLOSED_FORM, Range, Registration, register

RIDGES = tuple(10.0**power for power in range(-8, 9))
"""The values of λ that are tried, as in the authors' code."""


class RanPAC(ClassScores):
    r"""McDonnell et al., *RanPAC: Random Projections and Pre-trained Models*, NeurIPS 2023.

    Features go through a fixed random layer h(x) = relu(x W), W of standard normal numbers. Sums
    over all samples so far, G = Σ h hᵀ and Q = Σ h yᵀ with y the indicator of the class, give the
    scores (G + λ I)⁻¹ Q applied to h. As in the authors' code λ is chosen at every task among
    10⁻⁸ … 10⁸, by the squared error on the last fifth of the task's samples of a regression on the
    others. (No first-session fine-tuning: the backbone stays frozen for all methods here.)

    The scores are not log densities; divided by a temperature t they stand for them in Bayes' rule.

    Parameters
    ----------
    width
        Random features; the authors use 10,000.
    temperature
        t.
    """

    name = "ranpac"

    def __init__(
        self, network: nn.Module, *, width: int = 2000, temperature: float = 0.1, **settings: Any
    ) -> None:
        super().__init__(network, **settings)
        self.width = at_least("width", width, 1)
        self.temperature = positive("temperature", temperature)
        self.projection = torch.empty(0, 0)
        # In double precision: the smallest λ is far below the rounding of single-precision sums.
        self.gram = torch.zeros(self.width, self.width, dtype=torch.float64)
        self.products = torch.zeros(self.width, 0, dtype=torch.float64)
        self.ridge = 1.0
        self.weights: Tensor | None = None

    def features(self, x: Tensor) -> Tensor:
        """h(x) = relu(x W)."""
        return torch.relu(x.flatten(1) @ self.projection)

    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Add to G and Q, and choose λ on the present task."""
        generator = self.generator()
        if not self.projection.numel():
            shape = (x[0].numel(), self.width)
            self.projection = torch.randn(shape, generator=generator)
        h = self.features(x)
        indicators = torch.nn.functional.one_hot(column, len(self.columns)).float()
        grown = torch.zeros(self.width, len(self.columns), dtype=torch.float64)
        grown[:, : self.products.shape[1]] = self.products
        self.products = grown + h.double().T @ indicators.double()
        self.gram = self.gram.addmm(h.double().T, h.double())
        order = torch.randperm(len(h), generator=generator)
        self.ridge = best_ridge(h[order], indicators[order][:, new])
        self.weights = None

    def scores(self, x: Tensor) -> Tensor:
        """The ridge regression's answers."""
        if self.weights is None:
            ridged = self.gram + self.ridge * torch.eye(self.width, dtype=torch.float64)
            self.weights = torch.linalg.solve(ridged, self.products)
        return (self.features(x).double() @ self.weights / self.temperature).float()

    @property
    def stored_bytes(self) -> int:
        """Bytes of W, G and Q."""
        if not self.projection.numel():
            return 0
        return self.projection.nbytes + self.gram.nbytes + self.products.nbytes


def best_ridge(h: Tensor, y: Tensor, ridges: tuple[float, ...] = RIDGES) -> float:
    """Choose λ by the error on the last fifth of the rows of a regression on the first four.

    The regressions for all λ share one eigendecomposition, of the smaller of hᵀh and hhᵀ.

    Examples
    --------
    >>> rng = torch.Generator().manual_seed(0)
    >>> h = torch.randn(50, 3, generator=rng)
    >>> best_ridge(h, h @ torch.ones(3, 1)) <= 1e-5
    True
    """
    n = max(1, int(0.8 * len(h)))
    train, held_out = h[:n].double(), h[n:].double()
    y = y.double()
    if n < h.shape[1]:
        values, vectors = torch.linalg.eigh(train @ train.T)
        left, right = held_out @ train.T @ vectors, vectors.T @ y[:n]
    else:
        values, vectors = torch.linalg.eigh(train.T @ train)
        left, right = held_out @ vectors, vectors.T @ train.T @ y[:n]
    errors = [
        float((left @ (right / (values.clamp(min=0) + ridge)[:, None]) - y[n:]).square().mean())
        for ridge in ridges
    ]
    return ridges[min(range(len(ridges)), key=errors.__getitem__)]


register(
    Registration(
        "ranpac",
        "RanPAC",
        RanPAC,
        CLOSED_FORM,
        LINEAR,
        1.0,
        {"temperature": 0.1, "width": 2000},
        {**NORM, "temperature": Range(0.02, 1.0)},
    )
)

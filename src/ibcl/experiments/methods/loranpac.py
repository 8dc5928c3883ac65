"""LoRanPAC: random projections, and truncated singular values in place of a ridge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least, positive, share
from ibcl.experiments.methods.class_scores import ClassScores
from ibcl.experiments.methods.common_settings import LINEAR, NORM
from ibcl.experiments.methods.registration import CLOSED_FORM, Range, Registration, register


class LoRanPAC(ClassScores):
    r"""Peng et al., *LoRanPAC: Low-rank Random Features and Pre-trained Models*, ICLR 2025.

    Features go through a fixed random layer h(x) = relu(x W). Of all rows h so far only the leading
    singular vectors are kept: with B Bᵀ ≈ Σ h hᵀ and Q = Σ h yᵀ,

        [B, H_tᵀ] = U Σ Vᵀ,   B ← U_r Σ_r,   scores = (U_r Σ_r⁻² U_rᵀ Q)ᵀ h,

    where r leaves out the smallest share of the singular values that rows and width allow. The
    smallest ones are what makes least squares on wide random features unstable; dropping them
    replaces the choice of a ridge. Nothing is truncated with a share of 0, and then the answer is
    least squares on all data.

    Parameters
    ----------
    width
        Random features; the authors use up to 100,000.
    truncated
        The share of singular values left out; the authors use 0.25.
    temperature
        What scores are divided by, before they stand for log densities in Bayes' rule.
    """

    name = "loranpac"

    def __init__(
        self,
        network: nn.Module,
        *,
        width: int = 2000,
        truncated: float = 0.25,
        temperature: float = 0.1,
        **settings: Any,
    ) -> None:
        super().__init__(network, **settings)
        self.width = at_least("width", width, 1)
        self.truncated = share("truncated", truncated)
        self.temperature = positive("temperature", temperature)
        self.projection = torch.empty(0, 0)
        self.basis = torch.zeros(self.width, 0, dtype=torch.float64)
        self.squares = torch.zeros(0, dtype=torch.float64)
        self.products = torch.zeros(self.width, 0, dtype=torch.float64)
        self.rows = 0

    def features(self, x: Tensor) -> Tensor:
        """h(x) = relu(x W), in double precision."""
        return torch.relu(x.flatten(1) @ self.projection).double()

    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Add to the leading singular vectors and to Q."""
        if not self.projection.numel():
            shape = (x[0].numel(), self.width)
            self.projection = torch.randn(shape, generator=self.generator())
        h = self.features(x)
        grown = torch.zeros(self.width, len(self.columns), dtype=torch.float64)
        grown[:, : self.products.shape[1]] = self.products
        self.products = grown + h.T @ nn.functional.one_hot(column, len(self.columns)).double()
        self.rows += len(h)
        rank = max(1, round((1 - self.truncated) * min(self.rows, self.width)))
        together = torch.cat([self.basis * self.squares.sqrt(), h.T], 1)
        self.basis, self.squares = leading_vectors(together, rank)

    def scores(self, x: Tensor) -> Tensor:
        """The answers of least squares within the leading singular vectors."""
        weights = self.basis @ ((self.basis.T @ self.products) / self.squares[:, None])
        return (self.features(x) @ weights / self.temperature).float()

    @property
    def stored_bytes(self) -> int:
        """Bytes of W, the singular vectors and values, and Q."""
        kept = (self.projection, self.basis, self.squares, self.products)
        return sum(part.nbytes for part in kept)


def leading_vectors(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the leading left singular vectors, (rows, r), and squares of their values.

    By the eigenvectors of the smaller product of the matrix with itself; values that are zero but
    for rounding are left out whatever the rank.

    Examples
    --------
    >>> vectors, squares = leading_vectors(torch.diag(torch.tensor([3.0, 2.0, 0.0])).double(), 3)
    >>> squares
    tensor([9., 4.], dtype=torch.float64)
    """
    wide = matrix.shape[1] > matrix.shape[0]
    values, vectors = torch.linalg.eigh(matrix @ matrix.T if wide else matrix.T @ matrix)
    values, vectors = values.flip(0)[:rank], vectors.flip(1)[:, :rank]
    present = values > values[0] * 1e-12
    values, vectors = values[present], vectors[:, present]
    return vectors if wide else matrix @ vectors / values.sqrt(), values


register(
    Registration(
        "loranpac",
        "LoRanPAC",
        LoRanPAC,
        CLOSED_FORM,
        LINEAR,
        1.0,
        {"temperature": 0.1, "truncated": 0.25, "width": 2000},
        {**NORM, "temperature": Range(0.02, 1.0), "truncated": (0.1, 0.25, 0.5, 0.75)},
    )
)

"""Counts, means and scatters of classes: sums that add up over tasks."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import positive
from ibcl.experiments.methods.class_scores import ClassScores, shares_within_tasks


class ClassMoments(ClassScores):
    """A method that keeps one mean per class, and what its subclasses need of the scatter.

    Parameters
    ----------
    temperature
        t: scores are divided by it, because no class is as Gaussian as the formula takes it for.
    """

    def __init__(self, network: nn.Module, *, temperature: float = 1.0, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.temperature = positive("temperature", temperature)
        self.counts = torch.empty(0, dtype=torch.float64)
        self.means = torch.empty(0, 0, dtype=torch.float64)

    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Add the new classes' moments."""
        values = x.flatten(1).double()
        for c in new.tolist():
            rows = values[column == c]
            mean = rows.mean(0)
            self.counts = torch.cat([self.counts, torch.tensor([float(len(rows))])])
            self.means = torch.cat([self.means.reshape(-1, len(mean)), mean[None]])
            self.add_scatter((rows - mean).T @ (rows - mean), len(rows))

    @abstractmethod
    def add_scatter(self, scatter: Tensor, n: int) -> None:
        """Take Σ (x − μ_c)(x − μ_c)ᵀ of one more class of n samples."""

    def with_shares(self, scores: Tensor) -> Tensor:
        """Divide by the temperature, and add how frequent a class is within its task."""
        shares = shares_within_tasks(self.counts, self.columns[:, 0])
        return (scores / self.temperature + shares).float()


def shrunk(covariance: Tensor, shrinkage: float) -> Tensor:
    """(1 − b) S + b · mean(diag S) · I.

    Examples
    --------
    >>> shrunk(torch.tensor([[1.0, 1.0], [1.0, 3.0]]), 0.5)
    tensor([[1.5000, 0.5000],
            [0.5000, 2.5000]])
    """
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    return (1 - shrinkage) * covariance + shrinkage * covariance.diagonal().mean() * identity

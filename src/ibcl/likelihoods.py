"""Likelihoods: how a network's outputs f(θ, x) give the labels y a probability.

A likelihood is chosen once, at the first task, and kept for all later ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Likelihood(Protocol):
    """p(y | f), with f of shape (..., n, outputs) and y of shape (n,) or (n, outputs)."""

    name: str

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Return labels in the dtype the likelihood computes with, or refuse them."""

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """−log p(y | f), one value a sample: shape (..., n)."""


def _refuse(expected: str, y: Tensor) -> ValueError:
    seen = ", ".join(str(value) for value in torch.unique(y).tolist()[:6])
    return ValueError(f"{expected}, but the labels hold {seen}.")


@dataclass(frozen=True)
class Bernoulli:
    """Binary classification: p(y=1 | f) = 1 / (1 + exp(−f)).

    Examples
    --------
    >>> Bernoulli().probabilities(torch.tensor([[0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    name = "bernoulli"

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels 0 and 1, as floats."""
        if outputs != 1:
            raise ValueError(f"A Bernoulli likelihood needs one output, not {outputs}.")
        if not bool(((y == 0) | (y == 1)).all()):
            raise _refuse(
                "A network with one output classifies into 0 and 1 (give it one output a class for "
                "more, or likelihood='gaussian' for regression)",
                y,
            )
        return y.reshape(-1).float()

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross entropy of each sample."""
        logits = outputs.squeeze(-1)
        return functional.binary_cross_entropy_with_logits(
            logits, y.to(logits.dtype).expand_as(logits), reduction="none"
        )

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Class probabilities, shape (..., n, 2)."""
        positive = torch.sigmoid(outputs.squeeze(-1))
        return torch.stack([1 - positive, positive], -1)


@dataclass(frozen=True)
class Categorical:
    """Multi-class classification: p(y=c | f) = softmax(f)_c."""

    name = "categorical"

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels 0 to outputs − 1, as whole numbers."""
        if outputs < 2:
            raise ValueError("A categorical likelihood needs at least two outputs.")
        whole = y.reshape(-1).long()
        if not bool((whole == y.reshape(-1)).all()) or not bool(
            ((whole >= 0) & (whole < outputs)).all()
        ):
            raise _refuse(f"A network with {outputs} outputs classifies into 0 to {outputs - 1}", y)
        return whole

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross entropy of each sample."""
        log_probabilities = functional.log_softmax(outputs, -1)
        index = y.expand(outputs.shape[:-1]).unsqueeze(-1)
        return -log_probabilities.gather(-1, index).squeeze(-1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Class probabilities, shape (..., n, outputs)."""
        return torch.softmax(outputs, -1)


@dataclass(frozen=True)
class OneVsRest(Categorical):
    """Multi-class labels as C binary ones: p(y=c | f) = s(f_c) / Σ_k s(f_k), s the logistic.

    Examples
    --------
    >>> OneVsRest().probabilities(torch.tensor([[0.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    name = "one_vs_rest"

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Sum of the C binary cross entropies of each sample."""
        chosen = functional.one_hot(y, outputs.shape[-1]).to(outputs.dtype).expand_as(outputs)
        return functional.binary_cross_entropy_with_logits(outputs, chosen, reduction="none").sum(
            -1
        )

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Class probabilities, shape (..., n, outputs)."""
        # In logarithms, so that a sample no class claims still has probabilities that sum to 1.
        return torch.softmax(functional.logsigmoid(outputs), -1)


@dataclass(frozen=True)
class Normal:
    """Regression: y ~ N(f, noise²), with known noise."""

    noise: float = 1.0
    name = "gaussian"

    def __post_init__(self) -> None:
        if not 0 < self.noise < float("inf"):
            raise ValueError(
                f"The noise of a Gaussian likelihood must be positive, not {self.noise!r}."
            )

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Targets of shape (n, outputs), as floats."""
        targets = y.reshape(len(y), -1).float()
        if targets.shape[1] != outputs:
            raise ValueError(
                f"The targets have {targets.shape[1]} columns, but the network has {outputs} "
                "outputs."
            )
        return targets

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """½ ‖(y − f)/noise‖² + log normaliser, of each sample."""
        scaled = (y.to(outputs.dtype) - outputs) / self.noise
        normaliser = math.log(self.noise) + 0.5 * math.log(2 * math.pi)
        return (0.5 * scaled.square() + normaliser).sum(-1)


def choose(name: str | Likelihood, y: Tensor, outputs: int) -> Likelihood:
    """Choose the likelihood that fits the labels and the network's number of outputs.

    Whole-number labels mean classification, real-valued ones regression.

    Examples
    --------
    >>> choose("auto", torch.tensor([0, 1, 1]), outputs=1).name
    'bernoulli'
    >>> choose("auto", torch.tensor([0.3, -1.2]), outputs=1).name
    'gaussian'
    """
    if not isinstance(name, str):
        return name
    if name == "auto":
        real = y.is_floating_point() and not bool((y == y.round()).all())
        matrix = y.ndim == 2 and y.shape[1] > 1
        name = "gaussian" if real or matrix else "bernoulli" if outputs == 1 else "categorical"
    known: dict[str, Likelihood] = {
        "bernoulli": Bernoulli(),
        "categorical": Categorical(),
        "one_vs_rest": OneVsRest(),
        "gaussian": Normal(),
    }
    if name not in known:
        raise ValueError(f"likelihood must be 'auto' or one of {', '.join(known)}, not {name!r}.")
    return known[name]

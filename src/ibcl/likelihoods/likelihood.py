"""What every likelihood can do, most of it by default."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, get_type_hints

import torch
from torch import Tensor

from ibcl.likelihoods.quadrature import Expectations, expectations_by_quadrature
from ibcl.uncertainty import Uncertainty, decompose

# Outputs between which a mean is inverted by bisection, in halvings that reach double precision.
_WIDEST_OUTPUT = 1024.0
_HALVINGS = 80


class Predictive(NamedTuple):
    """Of y under f ~ N(mean, variance): its mean, and the two parts of its variance."""

    mean: Tensor
    """E[y]."""
    aleatoric: Tensor
    """E[Var[y | f]]."""
    epistemic: Tensor
    """Var[E[y | f]]."""


class Likelihood(ABC):
    """p(y | f), with f of shape (..., n, outputs) and y of shape (n,) or (n, outputs).

    A likelihood is a frozen dataclass whose fields are its settings, each a float, int, bool or
    str. It must say its `name`, and how to `check`, `negative_log` and `mean`; the rest follows
    from these, and is written out where a closed form is faster or more exact.

    It must satisfy, as `ibcl.likelihoods.requirements` checks when it is first used:

    * `check` returns labels of one row per sample, or refuses them in a sentence;
    * `negative_log` is finite for every real output, one value per sample, and made of torch's
      differentiable functions; outputs may carry leading dimensions, one for each model;
    * `mean` is finite, of one row per sample; for a classification its columns are probabilities;
    * for `DenseVI` and `OneVsRestVI` the loss is also twice differentiable, without kinks, and
      convex in the outputs (p is log-concave). `MeanFieldVI` needs neither.
    """

    name: ClassVar[str]
    """What it is chosen and stored by."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Earlier names, by which it is still found."""
    classification: ClassVar[bool] = False
    """Whether the columns of `mean` are probabilities of classes."""
    quadrature_error: ClassVar[float] = 1e-3
    """Relative error that `expectations` leaves in an expected loss, roughly."""

    @abstractmethod
    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Return labels in the dtype the likelihood computes with, or refuse them."""

    @abstractmethod
    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """−log p(y | f), one value per sample: shape (..., n)."""

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The derivative of `negative_log` by the outputs of its own sample: their shape."""
        leaf = outputs.detach().requires_grad_()
        (found,) = torch.autograd.grad(self.negative_log(leaf, y).sum(), leaf)
        return found

    @abstractmethod
    def mean(self, outputs: Tensor) -> Tensor:
        """E[y | f], by which models are averaged and bounded: shape (..., n, columns).

        Class probabilities, or expected values.
        """

    def variance(self, outputs: Tensor) -> Tensor:
        """Var[y | f] of a regression, shape (..., n, columns).

        Not a number where a likelihood does not say: its noise is then unknown, not zero.
        """
        return torch.full_like(self.mean(outputs), torch.nan)

    def decide(self, mean: Tensor) -> Tensor:
        """Class numbers (the most probable), or expected values with a single column squeezed."""
        if self.classification:
            return mean.argmax(-1)
        return mean.squeeze(-1) if mean.shape[-1] == 1 else mean

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Class probabilities, shape (..., n, classes); a regression has none and says so."""
        if not self.classification:
            raise ValueError("A regression model has no class probabilities; use predict.")
        return self.mean(outputs)

    def columns(self, outputs: int) -> int:
        """How many columns `mean` has for a network with so many outputs."""
        return self.mean(torch.zeros(1, outputs, device="cpu")).shape[-1]

    def outputs_of(self, mean: Tensor) -> Tensor:
        """Outputs f whose `mean` this is, the inverse link: shape (..., n, outputs).

        By default for one output, of which the mean's last column is taken to be monotone, by
        bisection.
        """
        target = mean[..., -1:].double()
        low = torch.full_like(target, -_WIDEST_OUTPUT)
        high = torch.full_like(target, _WIDEST_OUTPUT)
        probe = self.mean(low)
        if probe.shape != mean.shape:
            raise ValueError(
                f"The likelihood {self.name!r} does not say which outputs have a given mean; give "
                "it a method outputs_of(mean)."
            )
        rising = probe[..., -1:] <= self.mean(high)[..., -1:]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = (self.mean(middle)[..., -1:] < target) == rising
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return ((low + high) / 2).to(mean.dtype)

    def uncertainty(self, outputs: Tensor) -> Uncertainty:
        """Total, aleatoric and epistemic uncertainty of outputs of shape (models, n, outputs).

        Entropies for classification; for regression variances, summed over the columns: with the
        law of total variance Var[y] = E[Var[y | f]] + Var[E[y | f]].
        """
        if self.classification:
            return decompose(self.mean(outputs))
        aleatoric = self.variance(outputs).sum(-1).mean(0)
        epistemic = self.mean(outputs).var(0, correction=0).sum(-1)
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive | None:
        """Moments of y under outputs f ~ N(mean, variance), where they have a closed form.

        Only regressions are asked; None lets models be sampled instead.
        """
        return None

    def expectations(self, mean: Tensor, covariance: Tensor, y: Tensor) -> Expectations:
        """Expectations under outputs z ~ N(mean, covariance), one Gaussian per sample.

        Parameters
        ----------
        mean
            Shape (n, outputs).
        covariance
            Shape (n, outputs, outputs); zeros give the plain loss and its derivatives.
        """
        return expectations_by_quadrature(self.negative_log, mean, covariance, y)

    def likely_outputs(self, y: Tensor, outputs: int) -> Tensor | None:
        """Outputs (n, outputs) under which the labels are likely, for a first step; or None.

        Needed where outputs far from the labels have losses that overflow.
        """
        return None

    def separate(self, y: Tensor, outputs: int) -> Sequence[Separated] | None:
        """Split p(y | f) into one likelihood an output, where no two outputs share a label.

        None where the outputs depend on each other.
        """
        return None

    @classmethod
    def settings(cls) -> dict[str, type]:
        """Names and types of the settings: the dataclass's fields."""
        if not dataclasses.is_dataclass(cls):
            return {}
        hints = get_type_hints(cls)
        return {field.name: hints[field.name] for field in dataclasses.fields(cls)}

    def description(self) -> dict[str, Any]:
        """Name and settings, as plain values; `from_description` is the inverse."""
        return {"name": self.name, **{name: getattr(self, name) for name in self.settings()}}


@dataclasses.dataclass(frozen=True)
class Separated:
    """The likelihood of one output alone, with its labels."""

    likelihood: Likelihood
    y: Tensor


def refusal(expected: str, y: Tensor) -> ValueError:
    """Say what was expected and which labels came."""
    seen = ", ".join(str(value) for value in torch.unique(y).tolist()[:6])
    return ValueError(f"{expected}, but the labels hold {seen}.")


def as_columns(y: Tensor, outputs: int) -> Tensor:
    """Targets as a float matrix of one column per output, or a refusal."""
    targets = y.reshape(len(y), -1).float()
    if targets.shape[1] != outputs:
        raise ValueError(
            f"The targets have {targets.shape[1]} columns, but the network has {outputs} outputs."
        )
    return targets

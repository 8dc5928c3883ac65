"""Models: what a preference turns into, ready to predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ibcl.gaussians import Distribution, Gaussian
from ibcl.likelihoods import Bernoulli, Categorical, Likelihood, Normal
from ibcl.networks import FlatNetwork
from ibcl.preference import Preference
from ibcl.region import HighestDensityRegion
from ibcl.tasks import as_inputs
from ibcl.uncertainty import Bounds, Uncertainty, decompose

# Models averaged where a caller asks for uncertainty without saying how many.
DEFAULT_SAMPLES = 64


class Model:
    """The model of one preference: its mean model, and the region it was taken from.

    Made by `IBCL.model`. Predictions come as tensors where x is a tensor, as numpy arrays
    otherwise. With ``samples=n`` they average n models drawn from the highest density region;
    without, they are the mean model's.

    Parameters
    ----------
    theta
        Parameters of the mean model.
    distribution
        Called once, when the distribution q_w behind the mean is first needed.
    extremes
        The credal set's extreme elements, for lower and upper probabilities.
    encode
        Turns a user's x and task name into the network's input.
    provenance
        Called when the model is saved, to say where it comes from.
    """

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        preference: Preference,
        theta: Tensor,
        *,
        distribution: Callable[[], Distribution],
        extremes: Sequence[Gaussian],
        encode: Callable[[Tensor, str | None], Tensor],
        alpha: float,
        seed: int,
        provenance: Callable[[], dict[str, Any]],
    ) -> None:
        self.network, self.likelihood = network, likelihood
        self.preference = preference
        self.theta = theta
        self.alpha, self.seed = alpha, seed
        self._make_distribution = distribution
        self._extremes = extremes
        self._encode = encode
        self.provenance = provenance

    def __repr__(self) -> str:
        return f"Model({self.preference})"

    @cached_property
    def distribution(self) -> Distribution:
        """q_w, the distribution over parameters that the preference selects."""
        return self._make_distribution()

    @cached_property
    def region(self) -> HighestDensityRegion:
        """The highest density region of q_w with mass 1 − α."""
        return HighestDensityRegion(self.distribution, self.alpha, self.seed)

    def module(self) -> nn.Module:
        """Return the mean model as a plain `torch.nn.Module` of its own."""
        return self.network.module(self.theta)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the mean model as one safetensors file, for `ibcl.load_model` and other tools."""
        from ibcl import store

        store.save_model(self, path)

    def outputs(self, x: Any, samples: int = 0, task: str | None = None) -> Tensor:
        """Return the network's outputs, of shape (models, n, outputs), as a tensor."""
        inputs = self._encode(as_inputs(x), task)
        return self._outputs(inputs, self._thetas(samples))

    def _thetas(self, samples: int) -> Tensor:
        if samples < 0:
            raise ValueError(f"samples must not be negative, not {samples}.")
        return self.region.sample(samples) if samples else self.theta[None]

    def _outputs(self, inputs: Tensor, thetas: Tensor) -> Tensor:
        with torch.no_grad():
            return self.network.outputs_of_many(thetas.to(inputs.dtype), inputs)

    def _probabilities(self, outputs: Tensor) -> Tensor:
        if not isinstance(self.likelihood, Bernoulli | Categorical):
            raise ValueError("A regression model has no class probabilities; use predict.")
        return self.likelihood.probabilities(outputs)

    def predict(self, x: Any, samples: int = 0, task: str | None = None) -> Any:
        """Return class labels, or expected values for regression."""
        outputs = self.outputs(x, samples, task)
        if isinstance(self.likelihood, Normal):
            expected = outputs.mean(0)
            return _like(x, expected[:, 0] if expected.shape[1] == 1 else expected)
        return _like(x, self._probabilities(outputs).mean(0).argmax(-1))

    def predict_proba(self, x: Any, samples: int = 0, task: str | None = None) -> Any:
        """Return class probabilities of shape (n, classes)."""
        return _like(x, self._probabilities(self.outputs(x, samples, task)).mean(0))

    def credal_bounds(self, x: Any, samples: int = 0, task: str | None = None) -> Bounds:
        """Return lower and upper probabilities over the credal set, each of shape (n, classes).

        A probability is linear in the density, so over all mixtures of the extreme elements it is
        smallest and largest at extreme elements. Each one is represented by its mean model, or
        with ``samples=n`` by the average of n models drawn from it. For regression the bounds are
        on the expected value.
        """
        inputs = self._encode(as_inputs(x), task)
        members = []
        for position, extreme in enumerate(self._extremes):
            generator = torch.Generator().manual_seed(self.seed + position)
            thetas = extreme.sample(samples, generator) if samples else extreme.mean[None]
            outputs = self._outputs(inputs, thetas)
            regression = isinstance(self.likelihood, Normal)
            values = outputs if regression else self._probabilities(outputs)
            members.append(values.mean(0))
        stacked = torch.stack(members)
        return Bounds(_like(x, stacked.amin(0)), _like(x, stacked.amax(0)))

    def uncertainty(
        self, x: Any, samples: int = DEFAULT_SAMPLES, task: str | None = None
    ) -> Uncertainty:
        """Return total, aleatoric and epistemic uncertainty over models of the region."""
        outputs = self.outputs(x, max(1, samples), task)
        if isinstance(self.likelihood, Normal):
            disagreement = outputs.var(0, correction=0).sum(-1)
            noise = torch.full_like(disagreement, outputs.shape[-1] * self.likelihood.noise**2)
            parts = Uncertainty(noise + disagreement, noise, disagreement)
        else:
            parts = decompose(self._probabilities(outputs))
        return Uncertainty(*(_like(x, part) for part in parts))


def _like(x: Any, result: Tensor) -> Any:
    """Give the caller the kind of array they came with."""
    return result if isinstance(x, Tensor) else np.asarray(result)

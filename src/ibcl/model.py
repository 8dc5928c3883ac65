"""Models: what a preference turns into, ready to predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from ibcl.closed_form import has_closed_form, regression_uncertainty
from ibcl.encoding import Encoder
from ibcl.gaussians import Distribution, Gaussian
from ibcl.memory import check_memory
from ibcl.networks import FlatNetwork
from ibcl.predictors import Predictor, RoutedNetworks
from ibcl.preference import Preference
from ibcl.region import HighestDensityRegion
from ibcl.uncertainty import Bounds, Uncertainty

# Models averaged where a caller asks for uncertainty without saying how many.
DEFAULT_SAMPLES = 64


@dataclass(frozen=True)
class CredalSet:
    """The distribution a model's parameters were taken from, and the extreme elements around it.

    Parameters
    ----------
    distribution
        Called once, when q_w itself is first needed.
    extremes
        Called once, when bounds are first asked for.
    """

    distribution: Callable[[], Distribution]
    extremes: Callable[[], Sequence[tuple[int, Gaussian]]]


class Model:
    """The model of one preference: its mean model, and the region it was taken from.

    Made by `IBCL.model`. Predictions come as tensors where x is a tensor, as numpy arrays
    otherwise, and in the user's own classes and units where the learner has an encoder. With
    ``samples=n`` they average n models drawn from the highest density region; without, they are the
    mean model's. A model never changes, and any number of threads may use it at once.

    Parameters
    ----------
    predictor
        The mean model's parameters, and what they answer.
    encode
        Turns a user's x and task name into the network's input.
    encoder
        Turns class numbers and scaled values into the user's own; None leaves them as they are.
    credal
        The credal set around it; None for a model read from a file, which has left it behind.
    provenance
        Where it comes from, said when it is saved.
    """

    def __init__(
        self,
        predictor: Predictor,
        preference: Preference,
        *,
        encode: Callable[[Any, str | None], Tensor],
        encoder: Encoder | None,
        credal: CredalSet | None,
        alpha: float,
        seed: int,
        provenance: Callable[[], dict[str, Any]],
    ) -> None:
        self.predictor, self.preference = predictor, preference
        self.likelihood, self.encoder = predictor.likelihood, encoder
        self.alpha, self.seed = alpha, seed
        self.provenance = provenance
        self._encode, self._credal = encode, credal

    def __repr__(self) -> str:
        return f"Model({self.preference})"

    @property
    def network(self) -> FlatNetwork:
        """The network whose parameters it has."""
        return self.predictor.network

    @property
    def theta(self) -> Tensor:
        """Parameters of the mean model; of all heads with weight, one after another, if routed."""
        return self.predictor.theta

    def _known(self) -> CredalSet:
        if self._credal is None:
            _refuse()
        return self._credal

    @cached_property
    def distribution(self) -> Distribution:
        """q_w, the distribution over parameters that the preference selects."""
        return self._known().distribution()

    @cached_property
    def _extremes(self) -> Sequence[tuple[int, Gaussian]]:
        return self._known().extremes()

    @cached_property
    def region(self) -> HighestDensityRegion:
        """The highest density region of q_w with mass 1 − α."""
        return HighestDensityRegion(self.distribution, self.alpha, self.seed)

    def module(self) -> nn.Module:
        """Return the mean model as a plain `torch.nn.Module` of its own."""
        return self.predictor.module()

    def save(self, path: str | PathLike[str], overwrite: bool = True) -> None:
        """Save the mean model as one safetensors file, for `ibcl.load_model` and other tools."""
        from ibcl import store

        store.save_model(self, path, overwrite)

    def card(self) -> str:
        """Say what the model was made from, as Markdown; an exported model holds it too."""
        from ibcl import cards

        return cards.model_card(self.preference, self.provenance())

    def _inputs(self, x: Any, task: str | None) -> Tensor:
        inputs = self._encode(x, task)
        self.network.check_width(inputs)
        return inputs

    def _thetas(self, samples: int) -> Tensor | None:
        if not isinstance(samples, int | np.integer):
            raise ValueError(f"samples must be a whole number, not {samples!r}.")
        if samples < 0:
            raise ValueError(f"samples must not be negative, not {samples}.")
        if samples == 0:
            return None
        # Draws, and these once more in double precision.
        needed = 16 * int(samples) * self.theta.numel()
        check_memory(needed, f"Drawing {samples:,} models", "draw fewer")
        return self.region.sample(int(samples))

    def outputs(self, x: Any, samples: int = 0, task: str | None = None) -> Tensor:
        """Return the network's outputs, of shape (models, n, outputs), as a tensor."""
        outputs = self.predictor.outputs(self._inputs(x, task), self._thetas(samples))
        return outputs.to(torch.get_default_dtype())

    def _mean(self, inputs: Tensor, samples: int) -> Tensor:
        return self.predictor.means(inputs, self._thetas(samples)).mean(0)

    def predict(self, x: Any, samples: int = 0, task: str | None = None) -> Any:
        """Return class labels, or expected values for regression and counts."""
        decision = self.likelihood.decide(self._mean(self._inputs(x, task), samples))
        return _like(x, decision) if self.encoder is None else self.encoder.decode(decision)

    def predict_proba(self, x: Any, samples: int = 0, task: str | None = None) -> Any:
        """Return class probabilities of shape (n, classes)."""
        if not self.likelihood.classification:
            raise ValueError("A regression model has no class probabilities; use predict.")
        return _like(x, self._mean(self._inputs(x, task), samples))

    def credal_bounds(self, x: Any, samples: int = 0, task: str | None = None) -> Bounds:
        """Return lower and upper probabilities over the credal set, each of shape (n, classes).

        The credal set is the convex hull of the tasks' predictives and of this model's own: the
        extreme elements' (of the tasks' heads, if routed) and the served one's. A probability is
        linear in the density, so it is smallest and largest at one of those; and the prediction
        lies between the bounds, whatever the pooling rule. Each element is represented by its mean
        model, or with ``samples=n`` by the average of n models drawn from it. For regression the
        bounds are on the expected value.
        """
        extremes = self._extremes
        inputs = self._inputs(x, task)
        members = [self._mean(inputs, samples)]
        for position, extreme in extremes:
            generator = torch.Generator().manual_seed(self.seed + position)
            thetas = extreme.sample(samples, generator) if samples else extreme.mean[None]
            members.append(self.predictor.member(inputs, position, thetas).to(members[0].dtype))
        stacked = torch.stack(members)
        bounds = stacked.amin(0), stacked.amax(0)
        if self.encoder is not None and not self.likelihood.classification:
            return Bounds(*(self.encoder.decode(bound) for bound in bounds))
        return Bounds(*(_like(x, bound) for bound in bounds))

    def uncertainty(
        self, x: Any, samples: int | None = None, task: str | None = None
    ) -> Uncertainty:
        """Return total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        samples
            How many models of the region to take it over. Where None, a regression whose network is
            linear in its parameters has it in closed form over all models, exactly; otherwise over
            64 models.
        """
        if samples is None and has_closed_form(self.predictor):
            inputs = self._inputs(x, task)
            parts = regression_uncertainty(self.predictor, self.distribution, inputs)
        else:
            count = DEFAULT_SAMPLES if samples is None else max(1, samples)
            outputs = self.predictor.outputs(self._inputs(x, task), self._thetas(count))
            parts = self.likelihood.uncertainty(outputs)
        if self.encoder is not None and not self.likelihood.classification:
            parts = Uncertainty(*(part * self.encoder.scale**2 for part in parts))
        return Uncertainty(*(_like(x, part) for part in parts))

    def _routed(self) -> RoutedNetworks:
        if not isinstance(self.predictor, RoutedNetworks):
            raise ValueError("Only routed models have a gate: learn with pooling='routed'.")
        return self.predictor

    def routing(self, x: Any) -> Any:
        """Return the share of each task in the answer to each input, of shape (n, tasks)."""
        return _like(x, self._routed().routing(self._inputs(x, None)))

    def novelty(self, x: Any) -> Any:
        """Return how far each input is from every task: about 1 for inputs like those learnt.

        It is the squared Mahalanobis distance to the nearest task (or class), divided by the number
        of features.
        """
        return _like(x, self._routed().novelty(self._inputs(x, None)))


def _refuse() -> NoReturn:
    raise ValueError(
        "A model file holds the mean model only; for regions, samples, bounds and uncertainty make "
        "the model from its knowledge base."
    )


def _like(x: Any, result: Tensor) -> Any:
    """Give the caller the kind of array they came with, and tensors in their own precision."""
    if not isinstance(x, Tensor):
        return np.asarray(result.cpu())
    wanted = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return result.to(wanted) if result.is_floating_point() else result

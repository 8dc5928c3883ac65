r"""Which model stands for a preference: the region holds many.

``mean``
    The mean model; the only one that deterministic methods have.
``averaged``
    Probabilities averaged over models drawn from the highest density region.
``validated``
    The drawn model with the best preference-weighted accuracy on *validation* data.
``test_maximum``
    The drawn model with the best preference-weighted accuracy on the *test* data. This is how the
    paper reports; it is optimistic, because it looks at the answers, and grows with the number of
    draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from ibcl.gaussians import DiagonalGaussian
from ibcl.mixture import Mixture
from ibcl.model import Model

SELECTIONS = ("mean", "averaged", "validated", "test_maximum")

# Draws that place the boundary of a mixture's region; its own threshold takes thousands of them.
_MIXTURE_DRAWS = 100


class Selection(NamedTuple):
    """Class probabilities of one model per preference: a tensor (models, n, classes) per task."""

    name: str
    probabilities: list[Tensor]


Examples = tuple[Tensor, Callable[[Tensor], list[Tensor]], list[NDArray[np.int64]]]
"""Inputs of several tasks, how to split predictions on them by task, and the tasks' labels."""


def class_probabilities(logits: Tensor) -> Tensor:
    """Turn outputs (..., outputs) into probabilities (..., classes); one output means two classes.

    Examples
    --------
    >>> class_probabilities(torch.zeros(1, 1))
    tensor([[0.5000, 0.5000]])
    """
    if logits.shape[-1] > 1:
        return logits.softmax(-1)
    positive = torch.sigmoid(logits)
    return torch.cat([1 - positive, positive], -1)


Draw = Callable[[Model, int, Tensor], Tensor]
"""From a model, a number and inputs to drawn models' class probabilities (number, n, classes)."""


def sampled_selections(
    models: Sequence[Model],
    weights: NDArray[np.float64],
    examples: Sequence[Examples],
    samples: int,
    draws: Draw,
) -> Iterator[Selection]:
    """Yield the three selections that draw from the regions.

    Parameters
    ----------
    models, weights
        One model, and one row of weights over the tasks, a preference.
    examples
        Test examples, then validation examples.
    samples, draws
        Models drawn for each preference, and how.
    """
    (x, split, y), (held_out_x, held_out_split, held_out_y) = examples
    both = torch.cat([x, held_out_x])
    chosen: dict[str, list[Tensor]] = {"averaged": [], "validated": [], "test_maximum": []}
    for model, row in zip(models, weights, strict=True):
        # One draw answers both: the models must be the same.
        answers = draws(model, samples, both)
        tested, validated = answers[:, : len(x)], answers[:, len(x) :]
        best = weighted_accuracies(held_out_split(validated), held_out_y, row).argmax()
        luckiest = weighted_accuracies(split(tested), y, row).argmax()
        chosen["averaged"].append(tested.mean(0))
        chosen["validated"].append(tested[best])
        chosen["test_maximum"].append(tested[luckiest])
    for name, probabilities in chosen.items():
        yield Selection(name, split(torch.stack(probabilities)))


def draw(model: Model, samples: int, x: Tensor) -> Tensor:
    """Answer with models drawn from a model's highest density region, (samples, n, classes).

    A mixture's boundary is taken from 100 draws: those of the α least density are left out.
    """
    if isinstance(model.distribution, Mixture):
        return _answers(model, draw_from_mixture(model, samples), x)
    return class_probabilities(model.outputs(x, samples=samples)).float()


def draw_from_mixture(model: Model, samples: int) -> Tensor:
    """Draw parameters from a mixture's region, of shape (samples, D)."""
    generator = torch.Generator().manual_seed(model.seed)
    draws = model.distribution.sample(_MIXTURE_DRAWS, generator)
    outside = math.floor(model.alpha * _MIXTURE_DRAWS)
    inside = model.distribution.log_prob(draws).argsort(descending=True, stable=True)
    kept = inside[: _MIXTURE_DRAWS - outside]
    # In their own order, or the densest would always come first.
    return draws[kept.sort().values[:samples]]


def draw_inverted(model: Model, samples: int, x: Tensor) -> Tensor:
    """Answer with models drawn by `inverted_parameters`."""
    return _answers(model, inverted_parameters(model, samples), x)


def inverted_parameters(model: Model, samples: int) -> Tensor:
    """Draw from per-coordinate central intervals of mass α (not 1 − α), one number per tensor.

    Not the definition's region: α = 0.01 stays within 1.3 % of a standard deviation of the mean
    model, and the draws move away from it as α grows. Kept to show what that reading gives. Each
    parameter tensor is moved by one uniform quantile within the interval.
    """
    q = model.distribution
    if not isinstance(q, DiagonalGaussian):
        raise ValueError("Per-coordinate intervals are drawn from diagonal Gaussians only.")
    rng = np.random.default_rng(model.seed)
    levels = rng.uniform(-model.alpha / 2, model.alpha / 2, (samples, len(model.network.sizes)))
    moves = np.repeat(stats.norm.ppf(0.5 + levels), model.network.sizes, axis=1)
    return q.mean + q.std * torch.from_numpy(moves).to(q.std.dtype)


def weighted_accuracies(
    probabilities: Sequence[Tensor], y: Sequence[NDArray[np.int64]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Σ_j w_j acc_j of every model, given each task's probabilities (models, n, classes).

    Examples
    --------
    >>> right, wrong = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.1, 0.9]])
    >>> first_task, second_task = torch.stack([right, wrong]), torch.stack([wrong, right])
    >>> labels = np.array([0])
    >>> weighted_accuracies([first_task, second_task], [labels, labels], np.array([0.7, 0.3]))
    array([0.7, 0.3])
    """
    total = np.zeros(len(probabilities[0]))
    for values, labels, weight in zip(probabilities, y, weights, strict=True):
        right = values.argmax(-1).numpy() == labels
        total += weight * right.mean(1)
    return total


def _answers(model: Model, thetas: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        return class_probabilities(model.network.outputs_of_many(thetas.float(), x))

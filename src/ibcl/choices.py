"""Choices: what a learner does where its user left it open, decided on the first task.

One function decides for every front door: `ibcl.IBCL`, the scikit-learn estimators and the command
line. What it chooses is the best we have measured for the network it is given:

* a head linear in its parameters: full covariances (`DenseVI`, one class against the rest for more
  than two classes), tasks learnt apart, routed evidence; the prior's standard deviation by the
  evidence, and a regression's noise by the marginal likelihood;
* any other network: mean-field posteriors, tasks learnt apart too, and each task's own network
  behind the gate: networks that were not learnt from each other cannot be averaged, and learnt
  from each other they score less (see the results).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ibcl.gaussians import DiagonalGaussian, Gaussian
from ibcl.inference import DenseVI, Inference, MeanFieldVI, OneVsRestVI
from ibcl.inference.marginal_likelihood import maximise_marginal_likelihood
from ibcl.inference.sites import needed_bytes
from ibcl.likelihoods import Likelihood, Normal, OneVsRest, choose
from ibcl.memory import check_memory
from ibcl.moments import LARGEST_SUMMED
from ibcl.networks import FlatNetwork, random_features
from ibcl.pooling import PoolingRule, Routed, pooling_rule
from ibcl.pooling.routed import has_bias
from ibcl.tasks import TaskData

# Tried on the first task, in units of the features' size; the evidence says which one fits.
PRIOR_STDS = (0.1, 0.3, 1.0, 3.0, 10.0)
# For networks without evidence to choose by.
MEAN_FIELD_PRIOR_STD = 1.0
MEAN_FIELD_RATE = 0.02
PAPER_THRESHOLD = 0.012
# Random features of the closed form that finds a regression's noise for networks without one.
_NOISE_WIDTH = 256
# Root mean square of the features below which the prior would leave single precision.
_SMALLEST_SIZE = 1e-15


@dataclass(frozen=True)
class Given:
    """What the user settled; None where it is left open."""

    priors: tuple[float | Gaussian, ...] | None = None
    inference: Inference | None = None
    pooling: str | Routed | None = None
    d: float | None = None
    continual: bool | None = None
    likelihood: str | Likelihood = "auto"
    task_incremental: int | None = None

    def __post_init__(self) -> None:
        method = self.inference
        if method is not None and (isinstance(method, type) or not hasattr(method, "infer")):
            raise ValueError(f"inference must be an object such as ibcl.DenseVI(), not {method!r}.")
        tasks = self.task_incremental
        if tasks is not None and (not isinstance(tasks, int | np.integer) or tasks < 1):
            raise ValueError(f"task_incremental must be at least 1, a whole number, not {tasks!r}.")
        if not isinstance(self.continual, bool | np.bool_ | None):
            raise ValueError(f"continual must be True, False or None, not {self.continual!r}.")


@dataclass(frozen=True)
class Choices:
    """What is done, settled or chosen, and why it was chosen."""

    priors: tuple[Gaussian, ...]
    inference: Inference
    pooling: PoolingRule | Routed
    pooling_name: str
    d: float
    continual: bool
    likelihood: Likelihood
    reasons: dict[str, str]
    """By the name of each setting that was left open: what was chosen, and why."""


def decide(network: FlatNetwork, data: TaskData, outputs: int, given: Given) -> Choices:
    """Settle on the first task's data what the user left open.

    Parameters
    ----------
    data
        The first task, its labels as they came.
    outputs
        How many outputs the network has.
    """
    reasons: dict[str, str] = {}
    linear = network.is_linear
    if linear and (given.inference is None or isinstance(given.inference, DenseVI)):
        _check_memory(network, data)
    kind = "linear in its parameters" if linear else "not linear in its parameters"
    likelihood = choose(given.likelihood, data.y, outputs)
    several = isinstance(given.likelihood, str) and likelihood.name == "categorical"
    separable = given.inference is None or isinstance(given.inference, OneVsRestVI)
    if given.likelihood == "auto" and several and linear and separable:
        likelihood = OneVsRest()
    inference = given.inference
    if inference is None:
        inference = _inference(linear, likelihood)
        reasons["inference"] = f"{inference!r}, since the network is {kind}"
    checked = TaskData(data.x, likelihood.check(data.y, outputs), data.weights)
    priors = given.priors
    noise_open = given.likelihood in ("auto", "gaussian") and isinstance(likelihood, Normal)
    closed_form = linear and isinstance(inference, DenseVI)
    if noise_open:
        std, noise = _regression(network, checked, _only_std(priors) if closed_form else None)
        likelihood = Normal(noise)
        reasons["noise"] = f"{noise:.3g}, of the largest marginal likelihood"
        if priors is None and closed_form:
            priors = (std,)
            reasons["priors"] = f"{std:.3g}, of the largest marginal likelihood"
    if priors is None and closed_form and isinstance(inference, DenseVI):
        priors = (_classification(network, likelihood, inference, checked),)
        reasons["priors"] = f"{priors[0]:.3g}, of the largest evidence among {len(PRIOR_STDS)}"
    if priors is None:
        priors = (MEAN_FIELD_PRIOR_STD,)
        reasons["priors"] = f"{MEAN_FIELD_PRIOR_STD:g}, the usual for networks"
    rule, name = _pooling(network, data, given, closed_form, reasons)
    continual = given.continual
    if continual is None:
        continual = name != Routed.name
        reasons["continual"] = (
            "tasks learnt one after another"
            if continual
            else "tasks learnt apart, so that they can be forgotten and merged exactly"
        )
    d = given.d
    if d is None:
        d = PAPER_THRESHOLD if name in ("wasserstein", "mixture") else 0.0
        reasons["d"] = f"{d:g}" + ("" if d else ", since evidence needs every posterior")
    return Choices(
        as_priors(priors, network), inference, rule, name, d, continual, likelihood, reasons
    )


def _check_memory(network: FlatNetwork, data: TaskData) -> None:
    """Refuse features whose covariance alone is too large, before any of them is computed."""
    columns = network.linear_head().layer.in_features + 1
    check_memory(
        needed_bytes(data.size, columns, 1),
        f"A full covariance of {columns:,} parameters",
        "use a head with fewer features",
    )


def _inference(linear: bool, likelihood: Likelihood) -> Inference:
    if not linear:
        return MeanFieldVI(learning_rate=MEAN_FIELD_RATE)
    return OneVsRestVI() if isinstance(likelihood, OneVsRest) else DenseVI()


def _pooling(
    network: FlatNetwork, data: TaskData, given: Given, closed_form: bool, reasons: dict[str, str]
) -> tuple[PoolingRule | Routed, str]:
    if given.pooling is not None:
        return as_rule(given.pooling)
    columns = network.features(data.x[:1]).shape[1]
    fits = columns**2 <= LARGEST_SUMMED or (closed_form and has_bias(network))
    if given.task_incremental is None and fits:
        reasons["pooling"] = "'routed', the most accurate: a head a task, and a gate between them"
        return Routed(), Routed.name
    name = "evidence" if closed_form else "wasserstein"
    why = "tasks are told apart" if given.task_incremental else f"{columns} features are too many"
    reasons["pooling"] = f"{name!r}, since {why} for a gate"
    return pooling_rule(name), name


def as_rule(pooling: str | Routed) -> tuple[PoolingRule | Routed, str]:
    """Return a pooling rule and its name, from either."""
    if isinstance(pooling, Routed):
        return pooling, pooling.name
    return pooling_rule(pooling), pooling


def as_tuple(priors: Sequence[float | Gaussian] | None) -> tuple[float | Gaussian, ...] | None:
    """Return the priors that were given; None where they are left open."""
    if priors is None:
        return None
    if isinstance(priors, str | Gaussian) or not isinstance(priors, Iterable):
        raise ValueError(
            "priors must be a list of standard deviations or Gaussians, such as [2.5], not "
            f"{priors!r}."
        )
    values = tuple(priors)
    if not values:
        raise ValueError("A knowledge base needs at least one prior.")
    return values


def as_priors(values: Sequence[float | Gaussian], network: FlatNetwork) -> tuple[Gaussian, ...]:
    """Return Gaussians over the network's parameters: those given, or zero-mean with these stds."""
    return tuple(_prior(value, network) for value in values)


def _prior(value: float | Gaussian, network: FlatNetwork) -> Gaussian:
    dimension = network.dimension
    if isinstance(value, Gaussian):
        if value.dimension != dimension:
            raise ValueError(
                f"A prior has {value.dimension} parameters, but the network has {dimension}."
            )
        return value.to(network.device)
    try:
        std = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"A prior is a standard deviation or a Gaussian, not {value!r}.") from None
    single = torch.finfo(torch.float32)
    if not single.tiny**0.5 < std < single.max**0.5:
        raise ValueError(
            f"A prior's standard deviation must be positive and of a size whose square is a number "
            f"of single precision (1e-19 to 1e19), not {value!r}."
        )
    mean = torch.zeros(dimension, device=network.device)
    return DiagonalGaussian(mean, torch.full_like(mean, std))


def _only_std(priors: Sequence[float | Gaussian] | None) -> float | None:
    if priors is None or isinstance(priors[0], Gaussian):
        return None
    return float(priors[0])


def _half_power(value: float) -> float:
    """Round to the nearest of ..., 0.1, 0.3, 1, 3, 10, ...

    Examples
    --------
    >>> _half_power(0.12), _half_power(2.4)
    (0.1, 3.0)
    """
    steps = round(2 * float(np.log10(value)))
    return float(f"{(1 if steps % 2 == 0 else 3)}e{steps // 2}")


def _size(features: Tensor, weights: Tensor | None) -> float:
    """Root mean square of the features; 1 where there is nothing to measure."""
    squares = features.double().square().mean(1)
    counts = torch.ones_like(squares) if weights is None else weights.to(squares)
    size = float(((counts * squares).sum() / counts.sum()).sqrt())
    return size if np.isfinite(size) and size > 0 else 1.0


def _classification(
    network: FlatNetwork, likelihood: Likelihood, inference: DenseVI, data: TaskData
) -> float:
    """Return the prior std with the largest ELBO on the first task.

    Those tried are half powers of ten, so that learners of similar tasks mostly choose the same.
    """
    size = _size(network.features(data.x), data.weights)
    if size < _SMALLEST_SIZE:
        raise ValueError(
            f"The features' size is {size:.3g}, too small to choose a prior for; scale the inputs, "
            "for example to unit variance, or give priors."
        )
    stds = [_half_power(std / size) for std in PRIOR_STDS]
    rough: Any = dataclasses.replace(inference, tolerance=0.1)
    result = rough.infer(network, likelihood, as_priors(stds, network), data)
    return stds[int(np.argmax(result.objectives))]


def _regression(network: FlatNetwork, data: TaskData, std: float | None) -> tuple[float, float]:
    """Return prior std and noise of the largest marginal likelihood, over all outputs alike."""
    if not network.is_linear:
        # The noise is a property of the data; any flexible head with a closed form finds it.
        width = data.x.flatten(1).shape[1]
        network, data = (
            FlatNetwork(random_features(width, _NOISE_WIDTH)),
            TaskData(data.x.flatten(1), data.y, data.weights),
        )
    features = network.features(data.x).double().cpu().numpy()
    design = np.column_stack([features, np.ones(len(features))])
    targets = data.y.double().reshape(len(data.y), -1).cpu().numpy()
    weights = None if data.weights is None else data.weights.double().cpu().numpy()
    found = np.array(
        [maximise_marginal_likelihood(design, column, std, weights) for column in targets.T]
    )
    return tuple(np.sqrt(np.square(found).mean(0)).tolist())

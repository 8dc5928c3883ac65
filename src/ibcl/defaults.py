"""Defaults: what a learner does where its user left it open.

`settle` decides once, for every front door: `ibcl.IBCL`, the scikit-learn estimators and the
command line. What it chooses is the best we have measured for the network it is given:

* a head linear in its parameters: full covariances (`DenseVI`, one class against the rest for more
  than two classes), independent tasks, routed evidence;
* any other network: mean-field posteriors, independent tasks too, and each task's own network
  behind the gate: networks that were not learnt from each other cannot be averaged, and learnt
  from each other they score less (see the results).

Of the first task's data it reads nothing but what kind of labels they are: numbers that come from
data are chosen for every task on its own data (`choose_for_task`) and kept with it: the scale of
its prior by its evidence, and a regression's noise by its marginal likelihood. So no task depends
on another one, and a task that is forgotten has left nothing behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ibcl.gaussians import DiagonalGaussian, Gaussian
from ibcl.inference import DenseVI, Inference, MeanFieldVI, OneVsRestVI
from ibcl.inference.marginal_likelihood import maximise_marginal_likelihood
from ibcl.inference.prior_scale import PriorChoice, choose_prior
from ibcl.inference.prior_width import wider_answers_better
from ibcl.inference.sites import Natural, needed_bytes
from ibcl.knowledge import scaled
from ibcl.likelihoods import Likelihood, Normal, OneVsRest, choose
from ibcl.networks import FlatNetwork, random_features
from ibcl.pooling import PoolingRule, Routed, RoutedEvidence, pooling_rule
from ibcl.ram import check_memory
from ibcl.settings import Settings
from ibcl.tasks import TaskData

# Tried on a task, in units of one over the features' length; its evidence says which one fits.
PRIOR_SCALES = (0.3, 1.0, 3.0, 10.0, 30.0)
# Tried besides for a module that brings its weights: those of a trained one hardly move.
NEAR_PRIOR_SCALES = (0.01, 0.03, 0.1)
# For networks without evidence to choose by.
MEAN_FIELD_PRIOR_STD = 1.0
MEAN_FIELD_RATE = 0.02
# Of other modules that bring their weights: how far the prior lets them move, in units of their
# size, and how many times as far where held-out rows say that the weights know little of the task.
TRAINED_PRIOR_SHARE = 0.3
WIDE_PRIOR_SCALE = 10.0
# Random features of the closed form that finds a regression's noise for networks without one.
_NOISE_WIDTH = 256
# Root mean square of the features below which the prior would leave single precision.
_SMALLEST_SIZE = 1e-15


def settle(
    network: FlatNetwork, data: TaskData, outputs: int, given: Settings
) -> tuple[Settings, dict[str, str]]:
    """Settle on the first task's data what the user left open; say what was chosen, and why.

    Parameters
    ----------
    network
        From features to outputs.
    data
        The first task's features, and its labels as they came.
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
        inference = _inference(network, likelihood)
        reasons["inference"] = f"{inference!r}, since the network is {kind}"
    likelihood.check(data.y, outputs)
    priors = given.priors
    closed_form = linear and isinstance(inference, DenseVI)
    open_noise = isinstance(given.likelihood, str) and isinstance(likelihood, Normal)
    if open_noise:
        reasons["noise"] = "each task's own, of the largest marginal likelihood"
    if priors is None:
        priors, reasons["priors"] = _open_priors(network, closed_form)
    rule = _pooling(network, data, given, closed_form, reasons)
    if given.expert is not None and not rule.takes_experts:
        raise ValueError(
            f"Experts answer behind a gate, which pooling {rule.name!r} has not: use "
            "pooling='routed', without task ids."
        )
    independent = given.independent
    if independent is None:
        independent = rule.independent
        reasons["independent"] = (
            "independent tasks, so that they can be forgotten and merged exactly"
            if independent
            else "every task learnt from the one before"
        )
    d = given.d
    if d is None:
        d = rule.threshold
        reasons["d"] = f"{d:g}" + ("" if d else ", since evidence needs every posterior")
    settled = dataclasses.replace(
        given,
        priors=as_priors(priors, network),
        inference=inference,
        pooling=rule,
        d=d,
        independent=independent,
        likelihood=Normal.name if open_noise else likelihood,
    )
    return settled, reasons


class TaskChoice(NamedTuple):
    """What a task's own data choose; None where it is given."""

    scale: float | None
    """Of the initial priors' standard deviations."""
    noise: float | None
    """Standard deviation of a regression's noise."""
    evidence: tuple[Natural, ...] | None = None
    """About what the task adds to that prior, where the search came to know it."""


def choose_for_task(
    network: FlatNetwork, data: TaskData, given: Settings, settled: Settings, chained: bool = False
) -> TaskChoice:
    """Choose the scale of a task's prior, and its noise, where these were left open.

    Repeated rows count once for the scale: what is said ten times is not ten times as certain.

    Parameters
    ----------
    network
        From features to outputs.
    data
        The task's features, and labels as the likelihood takes them.
    chained
        Whether the task is learnt from another one's posteriors, and not from the priors.
    """
    inference = settled.inference
    closed_form = network.is_linear and isinstance(inference, DenseVI)
    open_scale = given.priors is None and not chained
    likelihood = settled.likelihood
    scale = noise = evidence = None
    if likelihood == Normal.name:
        fixed = _only_std(given.priors) if closed_form else None
        std, noise = _regression(network, grouped(data), fixed)
        likelihood = Normal(noise)
        scale = std if open_scale and closed_form else None
    elif open_scale and closed_form:
        assert isinstance(likelihood, Likelihood)
        assert isinstance(inference, DenseVI)
        scale, evidence = _classification(network, likelihood, inference, data)
    if open_scale and not closed_form and network.pretrained:
        assert isinstance(likelihood, Likelihood)
        assert inference is not None
        assert settled.priors is not None
        near = _prior(settled.priors[0], network)
        wide = scaled(near, WIDE_PRIOR_SCALE)
        better = wider_answers_better(network, likelihood, inference, near, wide, data)
        scale = WIDE_PRIOR_SCALE if better else 1.0
    return TaskChoice(scale, noise, evidence)


def grouped(data: TaskData) -> TaskData:
    r"""Return every different sample once, with weights that sum to Kish's effective size.

    A sample that occurs w_s times has the weight w_s n/W, with W = Σ w_s and n = W²/Σ w_s²: of
    samples that occur equally often, their number.

    Examples
    --------
    >>> data = TaskData(torch.tensor([[1.0], [1.0], [2.0], [2.0]]), torch.tensor([0, 0, 1, 1]))
    >>> grouped(data).x.tolist(), grouped(data).weights.tolist()
    ([[1.0], [2.0]], [1.0, 1.0])
    """
    rows = torch.cat([data.x.flatten(1), data.y.reshape(len(data.y), -1).to(data.x)], 1)
    weights = torch.ones(len(rows), dtype=torch.float64) if data.weights is None else data.weights
    first: dict[bytes, int] = {}
    found = [
        first.setdefault(row.tobytes(), number)
        for number, row in enumerate(np.ascontiguousarray(rows.cpu().numpy()))
    ]
    kept, which = np.unique(found, return_inverse=True)
    counts = torch.zeros(len(kept), dtype=torch.float64)
    counts.index_add_(0, torch.from_numpy(which), weights.double().cpu())
    effective = counts.sum().square() / counts.square().sum()
    chosen = torch.from_numpy(kept).to(data.x.device)
    shares = (counts * (effective / counts.sum())).to(data.x.device)
    return TaskData(data.x[chosen], data.y[chosen], shares)


def _check_memory(network: FlatNetwork, data: TaskData) -> None:
    """Refuse features whose covariance alone is too large, before any of them is computed."""
    columns = network.linear_head().layer.in_features + 1
    check_memory(
        needed_bytes(data.size, columns, 1),
        f"A full covariance of {columns:,} parameters",
        "use a head with fewer features",
    )


def _inference(network: FlatNetwork, likelihood: Likelihood) -> Inference:
    if not network.is_linear:
        return MeanFieldVI(learning_rate=None if network.pretrained else MEAN_FIELD_RATE)
    return OneVsRestVI() if isinstance(likelihood, OneVsRest) else DenseVI()


def _open_priors(
    network: FlatNetwork, closed_form: bool
) -> tuple[tuple[float | Gaussian, ...], str]:
    """Return the priors of a user who gave none, and what they are."""
    if closed_form:
        around = " around the network's weights" if network.pretrained else ""
        return (MEAN_FIELD_PRIOR_STD,), f"each task's own{around}, of the largest evidence"
    if network.pretrained:
        share = f"{TRAINED_PRIOR_SHARE:g} of their size"
        wide = f"{TRAINED_PRIOR_SHARE * WIDE_PRIOR_SCALE:g} where held-out rows say so"
        return (_around_trained(network),), f"around the network's weights, {share}, {wide}"
    return (MEAN_FIELD_PRIOR_STD,), f"{MEAN_FIELD_PRIOR_STD:g}, the usual for networks"


def _pooling(
    network: FlatNetwork,
    data: TaskData,
    given: Settings,
    closed_form: bool,
    reasons: dict[str, str],
) -> PoolingRule:
    if given.pooling is not None:
        return pooling_rule(given.pooling)
    columns = _head_columns(network, data)
    if given.task_incremental is None and RoutedEvidence().fits(columns):
        reasons["pooling"] = "'routed', the most accurate: one head per task, and a gate between"
        return pooling_rule("routed")
    if given.task_incremental is None and Routed().fits(columns, network, closed_form):
        reasons["pooling"] = f"'routed1', since {columns} features are too many for densities"
        return pooling_rule("routed1")
    name = "evidence" if closed_form else "wasserstein"
    why = "tasks are told apart" if given.task_incremental else f"{columns} features are too many"
    reasons["pooling"] = f"{name!r}, since {why} for a gate"
    return pooling_rule(name)


def _head_columns(network: FlatNetwork, data: TaskData) -> int:
    """How many columns of φ heads and gate read."""
    return network.features(data.x[:1]).flatten(1).shape[1]


def as_priors(values: Sequence[float | Gaussian], network: FlatNetwork) -> tuple[Gaussian, ...]:
    """Return Gaussians over the network's parameters: those given, or around its centre."""
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
    mean = network.centre
    return DiagonalGaussian(mean, torch.full_like(mean, std))


def _around_trained(network: FlatNetwork) -> Gaussian:
    """Return the prior around trained weights, as wide as a share of each layer's root mean square.

    Layers of zeros, such as fresh biases, are as wide as the average weight.
    """
    centre = network.centre
    overall = centre.square().mean().sqrt().clamp(min=torch.finfo(torch.float32).eps)
    sizes = []
    for values in torch.split(centre, network.sizes):
        size = values.square().mean().sqrt()
        sizes.append(torch.where(size > 0, size, overall).expand(len(values)))
    return DiagonalGaussian(centre, TRAINED_PRIOR_SHARE * torch.cat(sizes))


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


def _length(features: Tensor, weights: Tensor | None) -> float:
    """Root mean square of the features' lengths; 1 where there is nothing to measure."""
    squares = torch.linalg.vector_norm(features, dim=1, dtype=torch.float64).square()
    counts = torch.ones_like(squares) if weights is None else weights.to(squares)
    size = float(((counts * squares).sum() / counts.sum()).sqrt())
    return size if np.isfinite(size) and size > 0 else 1.0


def _classification(
    network: FlatNetwork, likelihood: Likelihood, inference: DenseVI, data: TaskData
) -> PriorChoice:
    """Choose the prior std with the largest ELBO, climbing from the middle of those tried.

    They are half powers of ten, so that similar tasks mostly choose the same.
    """
    size = _length(network.features(data.x), data.weights)
    if size < _SMALLEST_SIZE:
        raise ValueError(
            f"The features' size is {size:.3g}, too small to choose a prior for; scale the inputs, "
            "for example to unit variance, or give priors."
        )
    scales = (*NEAR_PRIOR_SCALES, *PRIOR_SCALES) if network.pretrained else PRIOR_SCALES
    stds = [_half_power(scale / size) for scale in scales]
    return choose_prior(network, likelihood, inference, stds, data, group=True)


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
    if network.pretrained:
        # The prior is centred at the network's own parameters, so its own answers come off.
        centre = network.centre.double()[None]
        targets = (
            targets - network.outputs_of_features(centre, torch.as_tensor(features))[0].numpy()
        )
    weights = None if data.weights is None else data.weights.double().cpu().numpy()
    found = np.array(
        [maximise_marginal_likelihood(design, column, std, weights) for column in targets.T]
    )
    return tuple(np.sqrt(np.square(found).mean(0)).tolist())

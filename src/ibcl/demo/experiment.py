r"""The demo's experiment: four ways to learn the tasks, and retraining to compare with.

For each preference w a learner's model needs no data and no training; the retrained model minimises
Σ_k w_k L_k + ‖θ‖² / (2 σ² n) over the n samples of all tasks, σ being the learner's prior standard
deviation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import ibcl
from ibcl import networks
from ibcl.demo.tasks import PIXELS, DigitTask, DigitTasks
from ibcl.experiments.methods.oracle import Oracle
from ibcl.experiments.methods.rehearsal import Pool
from ibcl.inference import Inference
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

Numbers = NDArray[np.float64]

COVERAGE_DRAWS, COVERAGE_BLOCK = 10_000, 1_000
FRONT_STEPS = 11


@dataclass(frozen=True)
class Way:
    """A way to learn the tasks, and to retrain the same network for comparison."""

    name: str
    network: Callable[[int], nn.Module]
    """From a seed to the network."""
    inference: Inference
    pooling: str
    prior: float
    independent: bool
    retraining: dict[str, Any]
    """How retraining goes, long enough to converge."""


# Width, scale and priors were chosen on validation data, on splits of seeds 100 to 102.
ROUTED = Way(
    "routed evidence",
    lambda seed: networks.random_features(PIXELS, width=512, scale=5.0, seed=seed),
    ibcl.DenseVI(),
    "routed",
    prior=100.0,
    independent=True,
    retraining={"epochs": 25, "batch_size": 64, "learning_rate": 0.3},
)
RANDOM_FEATURES = replace(ROUTED, name="random features", pooling="evidence")
LINEAR = Way(
    "linear",
    lambda _: networks.linear(PIXELS),
    ibcl.DenseVI(),
    "evidence",
    prior=0.15,
    independent=True,
    retraining={"epochs": 25, "batch_size": 64, "learning_rate": 0.05},
)
PAPER = Way(
    "the paper's network",
    lambda _: networks.mlp(PIXELS, hidden=64),
    ibcl.MeanFieldVI(epochs=30, learning_rate=0.01),
    "wasserstein",
    prior=2.5,
    independent=False,
    retraining={"epochs": 12, "batch_size": 64, "learning_rate": 0.01},
)
WAYS = (ROUTED, RANDOM_FEATURES, LINEAR, PAPER)


@dataclass(frozen=True)
class WayResult:
    """What one way of learning gave; accuracies are on test data."""

    way: Way
    learner: ibcl.IBCL
    accuracy: Numbers
    """Of the named preferences' models, of shape (preferences, tasks)."""
    retrained: Numbers
    """The same for models retrained for each preference."""
    front: Numbers
    """Along the trade-off between two tasks, of shape (steps, tasks)."""
    retrained_front: Numbers
    updates: int
    """Batch updates for all preferences there will ever be."""
    retraining_updates: int
    """Batch updates for one preference."""
    learning_seconds: float
    seconds_a_model: float
    retraining_seconds_a_model: float
    coverage: float
    """Share of draws from q_w that lie in its region, for the uniform preference."""


@dataclass(frozen=True)
class Results:
    """The whole experiment."""

    seed: int
    digits: DigitTasks
    preferences: dict[str, Numbers]
    front_tasks: tuple[int, int]
    front_weights: Numbers
    ways: tuple[WayResult, ...]

    def weighted(self, accuracy: Numbers) -> Numbers:
        """Σ_k w_k accuracy_k of each named preference."""
        weights = np.stack(list(self.preferences.values()))
        return np.asarray((weights * accuracy).sum(1))

    def figures(self) -> dict[str, Any]:
        """Return every number as plain Python values, for machines."""
        return {
            "seed": self.seed,
            "tasks": {
                task.name: {"train": task.train.size, "test": task.test.size}
                for task in self.digits.tasks
            },
            "preferences": {name: w.tolist() for name, w in self.preferences.items()},
            "ways": {result.way.name: self._figures_of(result) for result in self.ways},
        }

    def _figures_of(self, result: WayResult) -> dict[str, Any]:
        report = result.learner.knowledge.report()
        return {
            "parameters": result.learner.network.dimension,
            "accuracy": dict(zip(self.preferences, result.accuracy.tolist(), strict=True)),
            "accuracy_retrained": dict(
                zip(self.preferences, result.retrained.tolist(), strict=True)
            ),
            "weighted_accuracy": dict(
                zip(self.preferences, self.weighted(result.accuracy).tolist(), strict=True)
            ),
            "weighted_accuracy_retrained": dict(
                zip(self.preferences, self.weighted(result.retrained).tolist(), strict=True)
            ),
            "front": result.front[:, self.front_tasks].tolist(),
            "front_retrained": result.retrained_front[:, self.front_tasks].tolist(),
            "updates_for_all_preferences": result.updates,
            "retraining_updates_for_one_preference": result.retraining_updates,
            "learning_seconds": result.learning_seconds,
            "seconds_a_model": result.seconds_a_model,
            "retraining_seconds_a_model": result.retraining_seconds_a_model,
            "alpha": result.learner.alpha,
            "coverage": result.coverage,
            "stored_posteriors": [growth.stored for growth in report],
            "stored_bytes": [growth.nbytes for growth in report],
        }


def named_preferences(names: Sequence[str], seed: int) -> dict[str, Numbers]:
    """Return the uniform preference, one that leans on each task, and three random ones.

    Examples
    --------
    >>> list(named_preferences(["a", "b"], seed=0))
    ['all alike', 'mostly a', 'mostly b', 'random 1', 'random 2', 'random 3']
    """
    count = len(names)
    preferences = {"all alike": np.full(count, 1 / count)}
    for position, name in enumerate(names):
        weights = np.full(count, 0.2 / (count - 1))
        weights[position] = 0.8
        preferences[f"mostly {name}"] = weights
    for number, weights in enumerate(ibcl.sample_preferences(count, 3, seed), start=1):
        preferences[f"random {number}"] = weights
    return preferences


def between(first: int, second: int, count: int) -> Numbers:
    """Return preferences that move all weight from one task to another, step by step."""
    weights = np.zeros((FRONT_STEPS, count))
    weights[:, second] = np.linspace(0, 1, FRONT_STEPS)
    weights[:, first] = 1 - weights[:, second]
    return weights


def run(
    digits: DigitTasks, seed: int = 0, started: Callable[[str], Any] = lambda _: None
) -> Results:
    """Run the experiment.

    Parameters
    ----------
    started
        Called with the name of each way as it begins.
    """
    preferences = named_preferences(digits.names, seed)
    front = (0, len(digits.tasks) - 1)
    front_weights = between(*front, len(digits.tasks))
    weights = np.concatenate([np.stack(list(preferences.values())), front_weights])
    ways: list[WayResult] = []
    for way in WAYS:
        started(way.name)
        # The same network, trained again in the same way, is the same.
        known = {r.way.network: r for r in ways}.get(way.network)
        ways.append(compare(way, digits.tasks, weights, len(preferences), seed, known))
    return Results(seed, digits, preferences, front, front_weights, tuple(ways))


def compare(
    way: Way,
    tasks: Sequence[DigitTask],
    weights: Numbers,
    named: int,
    seed: int,
    retrained: WayResult | None = None,
) -> WayResult:
    """Learn the tasks one way, generate a model for every preference, and retrain for every one.

    Parameters
    ----------
    named
        So many of the preferences are reported by name; the others run along the front.
    retrained
        A result with the same network, whose retrained models need not be trained once more.
    """
    learner = ibcl.IBCL(
        way.network(seed),
        priors=[way.prior],
        inference=way.inference,
        pooling=way.pooling,
        d=0.0 if way.independent else 0.012,
        seed=seed,
        independent=way.independent,
    )
    begin = time.perf_counter()
    records = [learner.learn(task.train.x, task.train.y, task=task.name) for task in tasks]
    # What all preferences share is made once per task, and so counts as learning.
    learner.model(weights[0])
    learnt = time.perf_counter()
    for preference in weights:
        learner.model(preference)
    generated = time.perf_counter()
    ours = np.stack([_shares_right(learner, weights, task) for task in tasks], 1)
    if retrained is None:
        begin_again = time.perf_counter()
        thetas, updates = _retrain(way, learner.network, tasks, weights, seed)
        seconds = (time.perf_counter() - begin_again) / len(weights)
        theirs = _accuracies(learner.network, thetas, tasks)
    else:
        updates, seconds = retrained.retraining_updates, retrained.retraining_seconds_a_model
        theirs = np.concatenate([retrained.retrained, retrained.retrained_front])
    return WayResult(
        way,
        learner,
        accuracy=ours[:named],
        retrained=theirs[:named],
        front=ours[named:],
        retrained_front=theirs[named:],
        updates=sum(record.updates for record in records),
        retraining_updates=updates,
        learning_seconds=learnt - begin,
        seconds_a_model=(generated - learnt) / len(weights),
        retraining_seconds_a_model=seconds,
        coverage=_coverage(learner, seed),
    )


def _retrain(
    way: Way, network: FlatNetwork, tasks: Sequence[DigitTask], weights: Numbers, seed: int
) -> tuple[Tensor, int]:
    """Retrain for every preference; return the parameters, and the batch updates of one."""
    # Fixed features are computed once, so that retraining is not slower than it has to be.
    layers = list(network.template.children())
    fixed = [layer for layer in layers if isinstance(layer, networks.RandomReLUFeatures)]
    trained = nn.Sequential(*layers[len(fixed) :])
    data = [TaskData(nn.Sequential(*fixed)(task.train.x), task.train.y.float()) for task in tasks]
    everything = Pool(data)
    oracle = Oracle(
        trained,
        weight_decay=1 / (way.prior**2 * everything.size),
        likelihood=ibcl.Bernoulli(),
        seed=seed,
        **way.retraining,
    )
    generator = oracle.generator()
    importance = everything.importance(torch.as_tensor(weights, dtype=torch.float32))
    start = oracle.network.initial_parameters(generator)
    thetas = oracle.minimise(start, everything.data, importance, generator)
    return thetas, oracle.updates // len(weights)


def _shares_right(learner: ibcl.IBCL, weights: Numbers, task: DigitTask) -> Numbers:
    """Accuracy of every preference's model on the test images of a task."""
    classes = learner.predict_many(task.test.x, weights).argmax(-1)
    right: Numbers = (classes == task.test.y).double().mean(1).numpy()
    return right


def _accuracies(network: FlatNetwork, thetas: Tensor, tasks: Sequence[DigitTask]) -> Numbers:
    with torch.no_grad():
        right = [
            (network.outputs_of_many(thetas, task.test.x)[..., 0] > 0) == task.test.y
            for task in tasks
        ]
    return torch.stack([column.double().mean(1) for column in right], 1).numpy()


def _coverage(learner: ibcl.IBCL, seed: int) -> float:
    """Draw from q_w again and again, and count how often its region holds the draw."""
    count = len(learner.tasks)
    region = learner.model(np.full(count, 1 / count)).region
    generator = torch.Generator().manual_seed(seed)
    inside = [
        region.contains(region.q.sample(COVERAGE_BLOCK, generator))
        for _ in range(COVERAGE_DRAWS // COVERAGE_BLOCK)
    ]
    return float(torch.cat(inside).double().mean())

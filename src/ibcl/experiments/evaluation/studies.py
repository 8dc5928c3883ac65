"""Studies beside the protocol: inputs of no task, bounds, inferred preferences, calibration.

Each is a function of a contender, a benchmark and a seed, and returns a tidy table of its own. All
learn every task with routed evidence, as in the main runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

import ibcl
from ibcl.experiments import benchmarks
from ibcl.experiments.benchmarks import Benchmark
from ibcl.experiments.evaluation.contenders import Contender
from ibcl.experiments.evaluation.feature_maps import FeatureMap
from ibcl.experiments.evaluation.protocol import Inputs, Protocol
from ibcl.experiments.methods.ibcl_methods import IBCLMethod
from ibcl.uncertainty import expected_calibration_error

EXAMPLES = (5, 10, 20, 50, 100, 200)
"""How many examples a preference is inferred from."""

SINGLE_TASKS, OWN_INPUTS = "single tasks", "the preference's inputs"
_DRAWS = 10


class Learnt(NamedTuple):
    """A learner that has seen all tasks of a benchmark, and the map in front of it."""

    learner: ibcl.IBCL
    features: FeatureMap


def learn_all(contender: Contender, benchmark: Benchmark, seed: int) -> Learnt:
    """Learn every task of a benchmark as the protocol does."""
    features = contender.fit_map(benchmark.tasks[0].train.x)
    method = contender.create(features.width(benchmark.features), 0, seed)
    if not isinstance(method, IBCLMethod):
        raise ValueError(f"{contender.name} is no variant of IBCL: studies need its learner.")
    for task in benchmark.tasks:
        method.learner.learn(_inputs(task.train.x, features), task.train.y, task=task.name)
    return Learnt(method.learner, features)


def detection(contender: Contender, benchmark: Benchmark, seed: int) -> pd.DataFrame:
    """How well inputs of another benchmark are told from this one's, by four scores.

    The model is that of the uniform preference. A row is another benchmark and a score, with the
    area under the receiver operating characteristic: 0.5 is a guess. Only benchmarks of the same
    features can be asked.
    """
    learnt = learn_all(contender, benchmark, seed)
    known = np.concatenate([task.test.x for task in benchmark.tasks])
    inside = _doubts(learnt, known)
    rows = []
    own = benchmarks.BENCHMARKS.get(benchmark.name, benchmarks.BENCHMARKS["digits"])
    for name, entry in benchmarks.BENCHMARKS.items():
        # Benchmarks that are tuned as another one ask other questions about the same inputs.
        inputs = entry.tuned_as or name
        if inputs != name or inputs == (own.tuned_as or own.name):
            continue
        if not (entry.backbone and own.backbone):
            continue
        other = benchmarks.load(name, backbone=benchmark.provenance.backbone, seed=seed)
        unique = {id(task.test.x): task.test.x for task in other.tasks}
        outside = _doubts(learnt, np.concatenate(list(unique.values())))
        truth = np.repeat([0, 1], [len(inside["novelty"]), len(outside["novelty"])])
        for score, values in inside.items():
            area = roc_auc_score(truth, np.concatenate([values, outside[score]]))
            rows.append({"other": name, "score": score, "auroc": float(area)})
    return pd.DataFrame(rows)


def _doubts(learnt: Learnt, x: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
    """Scores of inputs that should be larger where the model has nothing to go by."""
    tasks = len(learnt.learner.tasks)
    model = learnt.learner.model(np.full(tasks, 1 / tasks))
    inputs = _inputs(x, learnt.features)
    bounds = model.credal_bounds(inputs)
    routing = model.routing(inputs).clamp(min=1e-12)
    found = {
        "novelty": model.novelty(inputs),
        "credal width": (bounds.upper - bounds.lower)[:, 1],
        "gate entropy": -(routing * routing.log()).sum(1),
        "1 − largest probability": 1 - model.predict_proba(inputs).amax(1),
    }
    return {name: values.double().numpy() for name, values in found.items()}


def bounds(contender: Contender, benchmark: Benchmark, seed: int) -> pd.DataFrame:
    """What lower and upper probabilities say: how often they decide, and how right they are then.

    The answer is every class whose upper probability is not below another's lower one. A row is a
    task, under the uniform preference: ``coverage`` is how often the answer holds the true class,
    ``decided`` how often it is a single class, and the two accuracies those of the prediction where
    the bounds decide and where they do not.
    """
    learnt = learn_all(contender, benchmark, seed)
    tasks = len(learnt.learner.tasks)
    model = learnt.learner.model(np.full(tasks, 1 / tasks))
    rows = []
    for number, task in enumerate(benchmark.tasks, start=1):
        inputs = _inputs(task.test.x, learnt.features)
        found = model.credal_bounds(inputs)
        allowed = found.upper >= found.lower.amax(1, keepdim=True)
        y = torch.from_numpy(task.test.y)
        right = model.predict(inputs) == y
        decided = allowed.sum(1) == 1
        covered = allowed.gather(1, y[:, None]).squeeze(1)
        rows.append(
            {
                "task": number,
                "coverage": _share(covered),
                "decided": _share(decided),
                "accuracy": _share(right),
                "accuracy_decided": _share(right[decided]),
                "accuracy_undecided": _share(right[~decided]),
            }
        )
    return pd.DataFrame(rows)


def inferred(contender: Contender, benchmark: Benchmark, seed: int) -> pd.DataFrame:
    """How many examples a preference can be inferred from, with labels and without.

    For each of the protocol's ten preferences w, so many validation examples are drawn from the
    tasks with the probabilities w. A row is a number of examples: ``loss`` is Σ_j w_j acc_j of the
    model of w less that of the inferred preference's model, on test data, averaged over w, and
    ``distance`` the total variation between the two preferences.
    """
    learnt = learn_all(contender, benchmark, seed)
    learner = learnt.learner
    wanted = Protocol().preferences_at(len(benchmark.tasks), seed)
    rng = np.random.default_rng([seed, 77])
    found: list[dict[str, Any]] = []
    guesses: list[NDArray[np.float64]] = []
    for n in EXAMPLES:
        for k, weights in enumerate(wanted):
            x, y = _drawn(benchmark, weights, n, rng, learnt.features)
            for labelled in (True, False):
                guess = learner.infer_preference(x, y if labelled else None).vector()
                guesses.append(guess)
                distance = 0.5 * float(np.abs(guess - weights).sum())
                found.append(
                    {"examples": n, "labelled": labelled, "preference": k} | {"distance": distance}
                )
    scores = _scores(learnt, benchmark, np.stack([*wanted, *guesses]))
    best = (scores[: len(wanted)] * wanted).sum(1)
    for row, accuracies in zip(found, scores[len(wanted) :], strict=True):
        k = row["preference"]
        row["loss"] = float(best[k] - accuracies @ wanted[k])
    table = pd.DataFrame(found)
    means = table.groupby(["examples", "labelled"])[["loss", "distance"]].mean()
    return means.reset_index()


def calibration(contender: Contender, benchmark: Benchmark, seed: int) -> pd.DataFrame:
    """Calibration errors of the protocol's preferences, and what chance alone makes of them.

    The answer to w is p(y | x, w): how often y is right among inputs that come from task k with
    probability w_k. A row is a family of preferences and what the error is *of*:

    * the preference's inputs: a test example of task k weighs w_k/n_k, with equal classes where the
      benchmark's metric is balanced accuracy, for which its training data have equal classes;
    * single tasks: the error on each task alone, weighted by w. An answer to w has some even where
      it is Bayes' rule: what is right among all tasks' inputs is not among one task's.

    ``error`` is averaged over the preferences. The other two are what it would be with other
    labels: ``by_chance`` with labels drawn from the answer itself, so that it is right exactly as
    often as it says, but test examples are few; ``tasks_right`` with every task's labels drawn from
    the answer to that task alone, as if all that was learnt within tasks were exactly right.
    """
    learnt = learn_all(contender, benchmark, seed)
    tests = [task.test for task in benchmark.tasks]
    inputs = Inputs(tests, learnt.features)
    rng = np.random.default_rng([seed, 78])
    labels = [test.y for test in tests]
    equal = benchmark.metric == "balanced_accuracy"
    shares = [_class_shares(y) if equal else np.full(len(y), 1 / len(y)) for y in labels]
    rows = []
    alone = [part[k] for k, part in enumerate(_answers(learnt, inputs, np.eye(len(tests))))]
    for family in benchmarks.registered(benchmark.name).families:
        wanted = Protocol(family=family).preferences_at(len(tests), seed)
        answers = _answers(learnt, inputs, wanted)
        found = []
        for k, weights in enumerate(wanted):
            own = [part[k] for part in answers]
            errors = [_errors(own, labels, shares, weights)]
            for truth in (own, alone):
                drawn = [[_drawn_labels(p, rng) for p in truth] for _ in range(_DRAWS)]
                errors.append(np.mean([_errors(own, y, shares, weights) for y in drawn], 0))
            found.append(errors)
        means = dict(zip(("error", "by_chance", "tasks_right"), np.mean(found, 0), strict=True))
        for place, of in enumerate((SINGLE_TASKS, OWN_INPUTS)):
            values = {name: value[place] for name, value in means.items()}
            rows.append({"preferences": family, "of": of} | values)
    return pd.DataFrame(rows)


def _answers(
    learnt: Learnt, inputs: Inputs, preferences: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """Probabilities of every preference's model, (preferences, n, classes) for each task."""
    found = learnt.learner.predict_many(inputs.x, preferences)
    # In single precision a ratio of sums may exceed 1 by its rounding.
    return [part.double().clamp(0, 1).numpy() for part in inputs.split(found)]


def _errors(
    answers: list[NDArray[np.float64]],
    labels: list[NDArray[np.int64]],
    shares: list[NDArray[np.float64]],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Calibration errors of one preference's model: on single tasks, and on its own inputs."""
    single = [expected_calibration_error(p, y) for p, y in zip(answers, labels, strict=True)]
    each = np.concatenate([w * share for w, share in zip(weights, shares, strict=True)])
    together = expected_calibration_error(
        np.concatenate(answers), np.concatenate(labels), weights=each
    )
    return np.array([weights @ single, together])


def _class_shares(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shares of a task's examples that give its classes equal ones."""
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return 1 / (len(counts) * counts[places])


def _drawn_labels(
    probabilities: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw a label for each row from its probabilities."""
    limits = probabilities.cumsum(1)[:, :-1]
    labels: NDArray[np.int64] = (rng.random(len(limits))[:, None] > limits).sum(1)
    return labels


def _drawn(
    benchmark: Benchmark,
    weights: NDArray[np.float64],
    n: int,
    rng: np.random.Generator,
    features: FeatureMap,
) -> tuple[Tensor, NDArray[np.int64]]:
    """Draw validation examples from the tasks with these probabilities."""
    tasks = rng.choice(len(weights), n, p=weights / weights.sum())
    x, y = [], []
    for task in tasks:
        part = benchmark.tasks[task].validation
        row = rng.integers(len(part))
        x.append(part.x[row])
        y.append(part.y[row])
    return _inputs(np.stack(x), features), np.array(y)


def _scores(
    learnt: Learnt, benchmark: Benchmark, preferences: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The benchmark's metric of every preference's model on every task, (preferences, tasks)."""
    columns = []
    for task in benchmark.tasks:
        answers = learnt.learner.predict_many(_inputs(task.test.x, learnt.features), preferences)
        right = answers.argmax(-1).numpy() == task.test.y
        if benchmark.metric == "accuracy":
            columns.append(right.mean(1))
        else:
            labels = np.unique(task.test.y)
            columns.append(np.mean([right[:, task.test.y == c].mean(1) for c in labels], axis=0))
    return np.stack(columns, 1)


def _inputs(x: NDArray[np.float32], features: FeatureMap) -> Tensor:
    return torch.from_numpy(features(x))


def _share(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


Study = Callable[[Contender, Benchmark, int], pd.DataFrame]

STUDIES: dict[str, Study] = {
    "detection": detection,
    "bounds": bounds,
    "inferred": inferred,
    "calibration": calibration,
}
"""Studies by name."""

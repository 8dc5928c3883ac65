r"""Prediction sets of a knowledge base: the right answer is in them with probability 1 − α.

Every task keeps something of rows that nothing was learnt from (`ibcl.conformal.Calibration`).

* Rows kept: the score of an answer is that of the served model, s(x, y) = p(y | x, w), or for
  values minus the standardised residual. It is computed again for any preference, and a threshold
  τ on the scores of the rows kept gives the set {y : s(x, y) ≥ τ} (`ServedScores`).
* Scores only: every task has a score of its own (`ibcl.task_scores`), and the set is the union
  ∪_k {y : s_k(x, y) ≥ τ_k} (`TaskUnion`).

`ibcl.conformal` says which τ promises what, and why. Guarantees that need no preference score with
the model of equal weights, since one that knows w is poor in tasks without weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.closed_form import has_closed_form, regression_uncertainty
from ibcl.conformal import (
    Calibration,
    CalibrationRows,
    Guarantee,
    component_intervals,
    component_scores,
    joint_threshold,
    label_scores,
    prediction_set,
    residual_intervals,
    residual_scores,
    union_set,
    union_thresholds,
)
from ibcl.knowledge import register_part
from ibcl.likelihoods import Likelihood
from ibcl.pooling import GatedPredictives
from ibcl.predictive import Answers, Predictive
from ibcl.routing import RoutedNetworks
from ibcl.state import State
from ibcl.task_scores import TaskScore, as_scored, centres_and_noise

register_part(Calibration)
Numbers = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ServedScores:
    """A model, and its scores of the right answers of all calibration rows.

    Parameters
    ----------
    weights
        The model's preference.
    scores, task
        Of each calibration row, its score and the number of its task.
    equal
        The same of the model of equal weights, which other guarantees than the mixture's score
        with. A model read from a file has none, and scores with its own: any score is valid.
    portable
        Whether values are scored by what a file holds of a model, which is no distribution.
    """

    predictive: Predictive
    weights: Numbers
    tasks: tuple[str, ...]
    scores: Numbers
    task: Positions
    equal: Callable[[], ServedScores] | None = None
    portable: bool = False

    def threshold(self, alpha: float, guarantee: Guarantee) -> float:
        """τ."""
        scored = self._scored(guarantee)
        tau = joint_threshold(
            scored.scores, scored.task, self.weights, alpha, guarantee, names=self.tasks
        )
        return float(tau)

    def sets(self, features: Tensor, alpha: float, guarantee: Guarantee) -> NDArray[np.bool_]:
        """Return which classes are in the set of each row, shape (rows, classes)."""
        check_classes(self.predictive.likelihood)
        tau = self.threshold(alpha, guarantee)
        predictive = self._scored(guarantee).predictive
        return prediction_set(_probabilities(predictive, features), tau)

    def intervals(self, features: Tensor, alpha: float, guarantee: Guarantee) -> Numbers:
        """Return the interval of each row's value, shape (rows, 1, 2)."""
        check_values(self.predictive.likelihood)
        tau = self.threshold(alpha, guarantee)
        predictive = self._scored(guarantee).predictive
        return residual_intervals(*_centre_and_spread(predictive, features, self.portable), tau)

    def _scored(self, guarantee: Guarantee) -> ServedScores:
        return self if guarantee == "mixture" or self.equal is None else self.equal()


@dataclass(frozen=True, eq=False)
class Coverage:
    """What all tasks of a knowledge base are calibrated with."""

    state: State

    @cached_property
    def _parts(self) -> dict[int, Calibration]:
        """What tasks are calibrated with, by their numbers."""
        found = {
            number: part
            for number, parts in enumerate(self.state.knowledge.parts)
            if isinstance(part := parts.get(Calibration.kind), Calibration)
        }
        if not found:
            raise ValueError(
                "Prediction sets need calibration samples, and no task has any: learn with "
                "calibration=, or give fresh samples to learner.calibrate(task, x, y)."
            )
        if len({part.rows for part in found.values()}) > 1:
            raise ValueError(
                "Some tasks keep calibration rows and others only scores, which make no sets "
                "together: give fresh samples of some tasks to learner.calibrate(task, x, y)."
            )
        return found

    @property
    def rows(self) -> CalibrationRows:
        """What is kept of the calibration samples."""
        return next(iter(self._parts.values())).rows

    @cached_property
    def _task(self) -> Positions:
        return np.repeat([*self._parts], [part.n for part in self._parts.values()])

    @cached_property
    def _features(self) -> Tensor:
        length = max(part.length for part in self._parts.values())
        kept = [part.kept(length) for part in self._parts.values()]
        return torch.cat(kept).to(self.state.network.device)

    @cached_property
    def _answers(self) -> NDArray[np.generic]:
        return torch.cat([part.tensors()["answers"] for part in self._parts.values()]).numpy()

    def of(self, predictive: Predictive, weights: Numbers) -> ServedScores | TaskUnion:
        """Return the calibration of one model."""
        if self.rows == "scores":
            return TaskUnion(self, weights)
        return self._served(predictive, weights, equal=lambda: self._equal)

    def portable(self, predictive: Predictive, weights: Numbers) -> ServedScores | None:
        """Return what a file can keep of a model's calibration; None where that is nothing."""
        parts = self.state.knowledge.parts
        known = [parts[number].get(Calibration.kind) for number in np.flatnonzero(weights)]
        if not all(isinstance(part, Calibration) and part.rows == "kept" for part in known):
            return None
        return self._served(predictive, weights, portable=True)

    def _served(
        self,
        predictive: Predictive,
        weights: Numbers,
        equal: Callable[[], ServedScores] | None = None,
        portable: bool = False,
    ) -> ServedScores:
        if predictive.likelihood.classification:
            scores = label_scores(_probabilities(predictive, self._features), self._answers)
        else:
            predicted = _centre_and_spread(predictive, self._features, portable)
            scores = residual_scores(self._answers, *predicted)
        tasks = self.state.tasks
        return ServedScores(predictive, weights, tasks, scores, self._task, equal, portable)

    @cached_property
    def _equal(self) -> ServedScores:
        tasks = len(self.state.tasks)
        weights = np.full(tasks, 1 / tasks)
        return self._served(self.state.predictives.at(torch.as_tensor(weights)), weights)

    def sets_of_many(
        self, features: Tensor, preferences: Numbers, alpha: float, guarantee: Guarantee
    ) -> NDArray[np.bool_]:
        """Return the sets of many preferences, shape (preferences, rows, classes)."""
        check_classes(self.state.likelihood)
        if self.rows == "scores":
            return TaskUnion(self, preferences).sets(features, alpha, guarantee)
        predictives = self.state.predictives
        asked = torch.as_tensor(preferences)
        if guarantee != "mixture":
            asked = torch.full_like(asked, 1 / asked.shape[1])
        known = label_scores(_numbers(self._crossed.crossed(asked)), self._answers)
        tau = joint_threshold(
            known, self._task, preferences, alpha, guarantee, names=self.state.tasks
        )
        rows = as_scored(features, self.state.network)
        return prediction_set(_numbers(predictives.answers(rows).crossed(asked)), tau)

    @cached_property
    def _crossed(self) -> Answers:
        """What no preference changes of the answers to the rows kept."""
        return self.state.predictives.answers(self._features)

    def component_intervals(
        self, features: Tensor, weights: Numbers, alpha: float, guarantee: Guarantee
    ) -> Numbers:
        """Return intervals around each task's prediction, shape (rows, tasks, 2).

        The score is the best of the tasks' (`ibcl.conformal.component_scores`), with their shares
        r_k at the preference, or at equal weights where the guarantee needs none.
        """
        if self.rows == "scores":
            return TaskUnion(self, weights).intervals(features, alpha, guarantee)
        check_values(self.state.likelihood)
        served = weights if guarantee == "mixture" else np.full_like(weights, 1 / len(weights))
        known = component_scores(self._answers, *self._components(self._features, served))
        tau = joint_threshold(known, self._task, weights, alpha, guarantee, names=self.state.tasks)
        rows = as_scored(features, self.state.network)
        return component_intervals(*self._components(rows, served), tau)

    def _components(self, features: Tensor, weights: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Log r_k, f_k and σ_k of every row, shape (rows, tasks) each."""
        predictives = self.state.predictives
        if not isinstance(predictives, GatedPredictives):
            raise ValueError(
                "Only routed models have an interval of each task's own: learn with "
                "pooling='routed', or ask for one interval with union=False."
            )
        answers = predictives.task_answers(features)
        prior = torch.as_tensor(weights).log().to(answers.densities)
        shares = torch.log_softmax(answers.densities + prior, 1).cpu().numpy()
        centres, noise = centres_and_noise(self.state.likelihood, answers.of_tasks.double())
        return shares, centres.T, noise.T

    @cached_property
    def task_scores(self) -> dict[int, TaskScore]:
        """The score of every task's own, which must be the one its calibration was scored with."""
        found = {}
        for number, part in self._parts.items():
            name = self.state.tasks[number]
            found[number] = TaskScore(self.state.only(name))
            if found[number].fingerprint != bytes(part.tensors()["fingerprint"].tolist()):
                raise ValueError(
                    f"Task {name!r} has changed since its calibration scores were taken; give "
                    "fresh samples to learner.calibrate(task, x, y)."
                )
        return found

    @cached_property
    def known_scores(self) -> tuple[Numbers, Positions]:
        """Scores only: those of all calibration samples, and the numbers of their tasks."""
        scores = torch.cat([part.tensors()["scores"] for part in self._parts.values()])
        return scores.numpy(), self._task


@dataclass(frozen=True, eq=False)
class TaskUnion:
    """The union of every task's own set, of one preference or of many.

    Parameters
    ----------
    weights
        Shape (tasks,) or (preferences, tasks).
    """

    coverage: Coverage
    weights: Numbers

    def threshold(self, alpha: float, guarantee: Guarantee) -> float:
        """Refused: every task has a score and a threshold of its own."""
        raise ValueError(
            "Where only calibration scores are kept every task has a threshold of its own, and a "
            "model has none: learn with calibration_rows='kept'."
        )

    def sets(self, features: Tensor, alpha: float, guarantee: Guarantee) -> NDArray[np.bool_]:
        """Return which classes are in the sets: shape (rows, classes), or of each preference."""
        check_classes(self.coverage.state.likelihood)
        taus = self._thresholds(alpha, guarantee)
        rows = as_scored(features, self.coverage.state.network)
        parts = [score.of_classes(rows) for score in self.coverage.task_scores.values()]
        return union_set(np.stack(parts, 1), taus)

    def intervals(self, features: Tensor, alpha: float, guarantee: Guarantee) -> Numbers:
        """Return intervals around each task's prediction, shape (rows, tasks, 2)."""
        check_values(self.coverage.state.likelihood)
        taus = self._thresholds(alpha, guarantee)
        rows = as_scored(features, self.coverage.state.network)
        scores = [*self.coverage.task_scores.values()]
        shares = np.stack([score.log_shares(rows) for score in scores], 1)
        centres, noise = (
            np.stack(each, 1)
            for each in zip(*(score.predictions(rows) for score in scores), strict=True)
        )
        return component_intervals(shares, centres, noise, taus)

    def _thresholds(self, alpha: float, guarantee: Guarantee) -> Numbers:
        """τ_k of the tasks that are calibrated."""
        tasks = [*self.coverage.task_scores]
        names = self.coverage.state.tasks
        scores, task = self.coverage.known_scores
        taus = union_thresholds(scores, task, self.weights, alpha, guarantee, names=names)
        found: Numbers = np.broadcast_to(taus, self.weights.shape)[..., tasks]
        return found


def check_classes(likelihood: Likelihood) -> None:
    """Refuse sets of values."""
    if not likelihood.classification:
        raise ValueError("Values have intervals, not sets: use predict_interval.")


def check_values(likelihood: Likelihood) -> None:
    """Refuse intervals of classes."""
    if likelihood.classification:
        raise ValueError("Classes have sets, not intervals: use predict_set.")


def _numbers(answers: Tensor) -> Numbers:
    return answers.double().cpu().numpy()


def _probabilities(predictive: Predictive, features: Tensor) -> Numbers:
    return _numbers(predictive.means(as_scored(features, predictive.network))[0])


def _centre_and_spread(
    predictive: Predictive, features: Tensor, portable: bool
) -> tuple[Numbers, Numbers]:
    """The expected value, and a standard deviation around it.

    That of the noise, of the tasks' disagreement, and where the distribution over parameters is
    there and has a closed form, of the models'.
    """
    rows = as_scored(features, predictive.network)
    answers = predictive.means(rows)[0]
    centre, noise = centres_and_noise(predictive.likelihood, answers.double())
    if has_closed_form(predictive) and not portable:
        return centre, regression_uncertainty(predictive, rows).total.sqrt().cpu().numpy()
    if isinstance(predictive, RoutedNetworks):
        total = predictive.spread(rows).total
        noise = torch.where(total > 0, total, 1.0).sqrt().double().cpu().numpy()
    return centre, noise

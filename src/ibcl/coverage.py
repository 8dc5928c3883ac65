r"""Prediction sets of a knowledge base: the right answer is in them with probability 1 − α.

Every task keeps some rows that nothing was learnt from (`ibcl.conformal.Calibration`). The score of
an answer is that of the served model, s(x, y) = p(y | x, w), or for values minus the standardised
residual. It is computed again for any preference, and a threshold τ on the scores of the rows kept
gives the set {y : s(x, y) ≥ τ}; `ibcl.conformal` says which τ promises what, and why.

Guarantees that need no preference score with the model of equal weights, since one that knows w is
poor in tasks without weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.closed_form import has_closed_form, regression_uncertainty
from ibcl.conformal import (
    Calibration,
    Guarantee,
    as_kept,
    hull,
    joint_threshold,
    label_scores,
    prediction_set,
    residual_intervals,
    residual_scores,
)
from ibcl.knowledge import KnowledgeBase, register_part
from ibcl.predictive import Predictive, Predictives

register_part(Calibration)
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Coverage:
    """The calibration rows of all tasks, and the predictives they are scored with."""

    predictives: Predictives
    knowledge: KnowledgeBase

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
        """Features, answers and tasks' numbers of all calibration rows."""
        kept: list[Calibration] = []
        for task, parts in zip(self.knowledge.tasks, self.knowledge.parts, strict=True):
            part = parts.get(Calibration.kind)
            if not isinstance(part, Calibration):
                raise ValueError(
                    f"Task {task!r} has no calibration rows, which prediction sets need: learn "
                    "with calibration=, or give fresh samples to learner.calibrate."
                )
            kept.append(part)
        device = self.predictives.network.device
        length = max(part.length for part in kept)
        features = torch.cat([part.kept(length) for part in kept]).to(device)
        answers = torch.cat([part.tensors()["answers"] for part in kept])
        return features, answers, np.repeat(np.arange(len(kept)), [part.n for part in kept])

    def sets(
        self,
        predictive: Predictive,
        features: Tensor,
        weights: Sequence[float] | Numbers,
        alpha: float,
        guarantee: Guarantee,
    ) -> NDArray[np.bool_]:
        """Return which classes are in the set of each row, shape (rows, classes)."""
        scored = self._scored(predictive, guarantee)
        rows, answers, task = self._rows
        known = label_scores(_probabilities(scored, rows), answers.numpy())
        tau = self._threshold(known, task, weights, alpha, guarantee)
        return prediction_set(_probabilities(scored, self._as_kept(features)), tau)

    def intervals(
        self,
        predictive: Predictive,
        features: Tensor,
        weights: Sequence[float] | Numbers,
        alpha: float,
        guarantee: Guarantee,
    ) -> Numbers:
        """Return the interval of each row's value, shape (rows, 2)."""
        scored = self._scored(predictive, guarantee)
        rows, answers, task = self._rows
        known = residual_scores(answers.numpy(), *_centre_and_spread(scored, rows))
        tau = self._threshold(known, task, weights, alpha, guarantee)
        centre, spread = _centre_and_spread(scored, self._as_kept(features))
        return hull(residual_intervals(centre, spread, tau))

    def crossed_sets(
        self, features: Tensor, preferences: Tensor, alpha: float, guarantee: Guarantee
    ) -> NDArray[np.bool_]:
        """Return the sets of many preferences, shape (preferences, rows, classes)."""
        rows, answers, task = self._rows
        equal = torch.full_like(preferences, 1 / preferences.shape[1])
        asked = preferences if guarantee == "mixture" else equal
        calibrated = self.predictives.answers(rows).crossed(asked).double().cpu().numpy()
        known = label_scores(calibrated, answers.numpy())
        tau = self._threshold(known, task, preferences.numpy(), alpha, guarantee)
        new = self._as_kept(features)
        scores = self.predictives.answers(new).crossed(asked).double().cpu().numpy()
        return prediction_set(scores, tau)

    def _as_kept(self, features: Tensor) -> Tensor:
        return as_kept(features, self.predictives.network.tokens_from)

    def _scored(self, predictive: Predictive, guarantee: Guarantee) -> Predictive:
        if guarantee == "mixture":
            return predictive
        tasks = len(self.knowledge.tasks)
        return self.predictives.at(torch.full((tasks,), 1 / tasks, dtype=torch.float64))

    def _threshold(
        self,
        scores: Numbers,
        task: NDArray[np.int64],
        weights: Sequence[float] | Numbers,
        alpha: float,
        guarantee: Guarantee,
    ) -> Numbers:
        names = self.knowledge.tasks
        return joint_threshold(scores, task, weights, alpha, guarantee, names=names)


def _probabilities(predictive: Predictive, features: Tensor) -> Numbers:
    return predictive.means(features)[0].double().cpu().numpy()


def _centre_and_spread(predictive: Predictive, features: Tensor) -> tuple[Numbers, Numbers]:
    """The expected value, and the standard deviation where it has a closed form, else 1."""
    centre = predictive.means(features)[0, :, 0].double().cpu().numpy()
    if not has_closed_form(predictive):
        return centre, np.ones_like(centre)
    return centre, regression_uncertainty(predictive, features).total.sqrt().cpu().numpy()

"""Two tasks that contradict each other: two questions about the same images.

*Is the digit odd?* and *is it at least five?* have the same answer for six digits and opposite ones
for 1, 3, 6 and 8, and no image says which question was meant. So every model trades one task for
the other there, and a preference decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import ibcl
from ibcl.demo.tasks import PIXELS, DigitTasks

Numbers = NDArray[np.float64]

QUESTIONS = ("is it odd?", "is it at least 5?")
WEIGHTS = np.array([0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0])
"""Of the second question."""


@dataclass(frozen=True)
class Disagreement:
    """Accuracy on each question, of shape (weights, 2)."""

    own: Numbers
    """Of every preference's own model."""
    uniform: Numbers
    """Of the uniform preference, for every user."""
    retrained: Numbers
    """Of a linear model trained again for every preference on the images of both tasks."""

    @staticmethod
    def weighted(accuracy: Numbers) -> Numbers:
        """Σ_k w_k accuracy_k of each preference."""
        return np.asarray((_preferences() * accuracy).sum(1))


def _preferences() -> Numbers:
    return np.stack([1 - WEIGHTS, WEIGHTS], 1)


def disagreement(digits: DigitTasks, seed: int = 0) -> Disagreement:
    """Learn both questions as tasks, and answer for every weight between them."""
    train, test = ([getattr(task, part) for task in digits.tasks] for part in ("train", "test"))
    x, test_x = (torch.cat([part.x for part in parts]) for parts in (train, test))
    labels, answers = (
        np.stack(
            [
                np.concatenate([part.y.numpy() for part in parts]),
                np.concatenate([_at_least_five(k, part.y.numpy()) for k, part in enumerate(parts)]),
            ]
        )
        for parts in (train, test)
    )
    learner = ibcl.IBCL(ibcl.networks.linear(PIXELS), seed=seed)
    for question, label in zip(QUESTIONS, labels, strict=True):
        learner.learn(x, label, task=question)
    preferences = _preferences()
    own = learner.predict_many(test_x, preferences).argmax(-1).numpy()
    alike = learner.predict_many(test_x, [[0.5, 0.5]]).argmax(-1).numpy()
    both = torch.cat([x, x]).numpy()
    again = np.stack(
        [
            LogisticRegression(max_iter=500)
            .fit(both, labels.flatten(), sample_weight=np.repeat(weights, len(x)) + 1e-9)
            .predict(test_x.numpy())
            for weights in preferences
        ]
    )
    return Disagreement(*(_accuracies(found, answers) for found in (own, alike, again)))


def _at_least_five(task: int, odd: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of the digits 2k and 2k + 1, which are at least 5."""
    return (2 * task + odd >= 5).astype(np.int64)


def _accuracies(found: NDArray[np.int64], answers: NDArray[np.int64]) -> Numbers:
    """Accuracy on both questions of predictions of shape (models, images)."""
    right = (found[:, None] == answers).mean(-1)
    return np.broadcast_to(right, (len(WEIGHTS), 2))

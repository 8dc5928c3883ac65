r"""Gradient boosting beside each task's head: how long to boost, and how much of the answer it is.

Both are said by rows held out of the task. Boosting learns the others, and is stopped ten trees
after its likelihood of the held-out rows was largest. The share of the answer comes from the same
rows (`ibcl.experts.share`); then boosting learns all of them with as many trees. Boosting of tasks
learnt before answers beside it as far as the task's rows say (`ibcl.experts.judgement`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from ibcl.experts.expert import Expert, Fitted
from ibcl.tasks import TaskData

if TYPE_CHECKING:
    from ibcl.experts.estimators import Estimator

MOST_TREES = 100
"""Trees that boosting has at most; of more than two classes each has as many."""


class Trial(NamedTuple):
    """What boosting answered to rows that it had not learnt, and with how many trees."""

    answers: Tensor
    trees: int


@dataclass(frozen=True)
class Auto(Expert):
    """Gradient boosting beside each task's head, with the share that held-out rows give it.

    Parameters
    ----------
    held_out
        Part of a task's rows that says how much of the answer is boosting's; boosting and head then
        learn all of them.

    Examples
    --------
    >>> Auto().held_out
    0.25
    """

    held_out: float = 0.25
    name: ClassVar[str] = "auto"
    judges_others: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1, not {self.held_out!r}.")

    def trial(self, learnt: TaskData, kept: TaskData, classes: int | None, seed: int) -> Trial:
        """Boost on some rows, as long as that makes others more probable, and answer those.

        Parameters
        ----------
        kept
            The others, of which those count whose class is among what is learnt.
        """
        from ibcl.experts.estimators import in_all_classes

        known = kept if classes is None else _among(kept, torch.unique(learnt.y))
        boosting = _boosting(classes, MOST_TREES, early_stopping=known.size > 0)
        estimator = boosting.fitted(learnt, classes, seed, known if known.size else None)
        # Scores are losses with their sign turned, that before the first tree among them.
        scores = estimator.validation_score_
        trees = max(1, int(scores.argmax())) if known.size else MOST_TREES
        staged = estimator.staged_predict if classes is None else estimator.staged_predict_proba
        found = next(islice(staged(kept.x.cpu().numpy()), trees - 1, None))
        return Trial(in_all_classes(found, estimator, classes), trees)

    def fit(self, data: TaskData, classes: int | None, seed: int) -> Fitted:
        """Fit boosting with all its trees."""
        return self.boosted(data, classes, seed, MOST_TREES)

    def boosted(self, data: TaskData, classes: int | None, seed: int, trees: int) -> Fitted:
        """Fit boosting with so many trees."""
        return _boosting(classes, trees, early_stopping=False).fit_known(data, classes, seed)

    def description(self) -> dict[str, Any]:
        """Return its setting."""
        return {"held_out": self.held_out}

    @classmethod
    def from_description(cls, description: Any) -> Self:
        """Return it with its setting."""
        if not isinstance(description, dict) or set(description) != {"held_out"}:
            raise ValueError("An automatic expert is described by held_out alone.")
        return cls(**description)

    @classmethod
    def decode(cls, data: bytes) -> Fitted:
        """Refused: what it fitted is kept under its own name."""
        raise ValueError(f"these {len(data)} bytes are of no expert: an automatic one keeps none")


def _boosting(classes: int | None, trees: int, early_stopping: bool) -> Estimator:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    from ibcl.experts.estimators import Estimator

    kind = HistGradientBoostingRegressor if classes is None else HistGradientBoostingClassifier
    return Estimator(kind(max_iter=trees, early_stopping=early_stopping))


def _among(data: TaskData, classes: Tensor) -> TaskData:
    """Return the rows whose class is one of these."""
    rows = torch.isin(data.y, classes)
    return TaskData(
        data.x[rows], data.y[rows], None if data.weights is None else data.weights[rows]
    )

"""Who makes sets: this library in both ways and with all guarantees, and MAPIE for each preference.

MAPIE calibrates one model for one distribution. For a preference it gets the same model's
probabilities, and calibration rows drawn from all tasks' as the preference says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from ibcl import IBCL
from ibcl.conformal import CalibrationRows, Guarantee
from ibcl.experiments.sets.data import Measured

ALPHAS = (0.01, 0.05, 0.1, 0.2)
Numbers = NDArray[np.float64]
Sets = dict[float, Numbers]
"""By α: which classes are in the sets, shape (preferences, rows, classes), or the ends of
intervals, shape (preferences, rows, parts, 2)."""

OWN: dict[str, tuple[CalibrationRows, Guarantee]] = {
    "rows kept": ("kept", "mixture"),
    "rows kept, every task": ("kept", "task"),
    "rows kept, uniform": ("kept", "uniform"),
    "scores only": ("scores", "mixture"),
    "scores only, every task": ("scores", "task"),
}
MAPIE = {"MAPIE LAC": "lac", "MAPIE APS": "aps"}
MAPIE_INTERVALS = "MAPIE absolute"


def own_sets(learner: IBCL, x: Any, weights: Numbers, guarantee: Guarantee, union: bool) -> Sets:
    """Return this library's; an α that the calibration cannot prove is left out."""
    found: Sets = {}
    classes = learner.state.likelihood.classification
    models = [] if classes else [learner.model(row) for row in weights]
    for alpha in ALPHAS:
        try:
            if classes:
                found[alpha] = learner.predict_sets(x, weights, alpha, guarantee).astype(float)
            elif union:
                parts = [m.predict_interval(x, alpha, guarantee, union=True) for m in models]
                found[alpha] = padded(parts)
            else:
                ends = [m.predict_interval(x, alpha, guarantee) for m in models]
                found[alpha] = np.stack(ends)[:, :, None]
        except ValueError as error:
            if "too few" not in str(error):
                raise
    return found


def padded(unions: Sequence[Sequence[Sequence[tuple[float, float]]]]) -> Numbers:
    """Return unions of intervals as one array, filled up with empty ones.

    Examples
    --------
    >>> padded([[[(0.0, 1.0)], [(0.0, 1.0), (2.0, 3.0)]]]).shape
    (1, 2, 2, 2)
    """
    most = max(1, max(len(row) for rows in unions for row in rows))
    table = np.full((len(unions), len(unions[0]), most, 2), np.nan)
    for number, rows in enumerate(unions):
        for place, row in enumerate(rows):
            table[number, place, : len(row)] = np.reshape(row, (-1, 2))
    return table


class Looked(BaseEstimator):  # type: ignore[misc]
    """A model whose answers are known: x is the number of the row."""

    def __init__(self, answers: Numbers) -> None:
        self.answers = answers

    def fit(self, x: Any, y: Any) -> Looked:
        """Nothing is left to learn."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _of(self, x: Any) -> Numbers:
        found: Numbers = self.answers[np.asarray(x)[:, 0].astype(int)]
        return found


class LookedClassifier(ClassifierMixin, Looked):  # type: ignore[misc]
    """Of classes."""

    @property
    def classes_(self) -> NDArray[np.int64]:
        """Numbers of the classes."""
        return np.arange(self.answers.shape[1])

    def predict_proba(self, x: Any) -> Numbers:
        """Return the probabilities."""
        return self._of(x)

    def predict(self, x: Any) -> NDArray[np.int64]:
        """Return the most probable."""
        best: NDArray[np.int64] = self._of(x).argmax(1)
        return best


class LookedRegressor(RegressorMixin, Looked):  # type: ignore[misc]
    """Of values."""

    def predict(self, x: Any) -> Numbers:
        """Return the values."""
        return self._of(x)


def mapie_sets(
    name: str, measured: Measured, x: Any, weights: Numbers, seed: int
) -> tuple[str, Sets]:
    """Return MAPIE's sets of one score, fitted for every preference."""
    from mapie.classification import SplitConformalClassifier
    from mapie.regression import SplitConformalRegressor

    known = joined([part for part, _ in measured.calibration])
    truth = np.concatenate([y for _, y in measured.calibration])
    task = np.repeat(np.arange(weights.shape[1]), [len(y) for _, y in measured.calibration])
    learner, levels = measured.learner, [1 - alpha for alpha in ALPHAS]
    calibrated, asked = (learner.predict_many(rows, weights) for rows in (known, x))
    rng = np.random.default_rng(seed)
    found: dict[float, list[Numbers]] = {alpha: [] for alpha in ALPHAS}
    for row, ours, theirs in zip(weights, calibrated, asked, strict=True):
        share = (row / np.bincount(task, minlength=len(row)))[task]
        drawn = rng.choice(len(task), size=len(task), p=share / share.sum())
        answers = np.concatenate([ours, theirs]).astype(np.float64)
        places = np.arange(len(answers))[:, None]
        if name == MAPIE_INTERVALS:
            regressor = SplitConformalRegressor(
                LookedRegressor(answers[:, 0]), confidence_level=levels, prefit=True
            ).conformalize(places[drawn], truth[drawn])
            sets = regressor.predict_interval(places[len(ours) :])[1][:, None]
        else:
            score = MAPIE[name]
            answers = answers / answers.sum(1, keepdims=True)
            classifier = SplitConformalClassifier(
                LookedClassifier(answers),
                confidence_level=levels,
                conformity_score=score,
                prefit=True,
                random_state=seed,
            ).conformalize(places[drawn], truth[drawn])
            sets = classifier.predict_set(places[len(ours) :])[1]
        for number, alpha in enumerate(ALPHAS):
            found[alpha].append(sets[..., number].astype(np.float64))
    return name, {alpha: np.stack(each) for alpha, each in found.items()}


def joined(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts, as a frame where these are frames."""
    import pandas as pd

    join: Callable[..., Any] = np.concatenate
    if isinstance(parts[0], pd.DataFrame):
        return pd.concat(parts, ignore_index=True)
    return join(parts)


def contenders(measured: Measured, x: Any, weights: Numbers, seed: int) -> dict[str, Sets]:
    """Return the sets of all, by name."""
    classes = measured.learner.state.likelihood.classification
    learners = {rows: measured.calibrated(rows) for rows, _ in OWN.values()}
    found = {
        name: own_sets(learners[rows], x, weights, guarantee, union=rows == "scores")
        for name, (rows, guarantee) in OWN.items()
    }
    if not classes:
        found["rows kept, union"] = own_sets(learners["kept"], x, weights, "mixture", union=True)
    names = [MAPIE_INTERVALS]
    if classes:
        binary = found["rows kept"][ALPHAS[-1]].shape[2] == 2
        # MAPIE has its other scores for more than two classes only.
        names = [name for name, score in MAPIE.items() if score == "lac" or not binary]
    return found | dict(mapie_sets(name, measured, x, weights, seed) for name in names)

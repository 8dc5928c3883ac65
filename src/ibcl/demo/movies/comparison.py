"""Learn audiences as tasks, infer new viewers' preferences from their first ratings, and compare.

All predict the same later ratings of the same new viewers, after 0, 5, 10, 20 and 50 of their first
ratings:

* *personal mixture*: one knowledge base with audiences as tasks, and the viewer's own preference
  between them, inferred from those ratings; no training for a viewer;
* *one model for all*: the same knowledge base with the audiences' shares among early viewers as
  everybody's preference; and one logistic regression on all early ratings;
* the viewer's average: how often they liked a film so far, shrunk towards everybody's;
* matrix factorisation, into which a viewer is folded with those ratings;
* the logistic regression trained again for every viewer, with audiences weighted by the viewer's
  preference and their own ratings among the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import ibcl
from ibcl.demo.movies.audiences import AUDIENCES, find_audiences
from ibcl.demo.movies.ranking import MEASURES, scores
from ibcl.demo.movies.ratings import FALSE, TRUE, Ratings, Viewer
from ibcl.tabular import Schema

Numbers = NDArray[np.float64]
Way = Callable[[Viewer, pd.DataFrame], Numbers]
"""From a viewer and the ratings known so far to probabilities of liking their later films."""

COUNTS = (0, 5, 10, 20, 50)
"""How many of a viewer's first ratings are known."""
PERSONAL, REFERENCE = "personal mixture of audiences", "one model for all"
RETRAINING_ROWS = 8_000
"""Rows that are trained on again for every viewer, a random sample of all."""
OWN_RATINGS_COUNT = 20.0
"""One of the viewer's own ratings counts as so many of others in retraining."""


@dataclass(frozen=True)
class Result:
    """What one way of predicting scores after so many ratings, viewer by viewer."""

    name: str
    count: int
    measures: Mapping[str, Numbers]
    seconds_per_viewer: float


@dataclass(frozen=True)
class Comparison:
    """The whole experiment."""

    learner: ibcl.IBCL
    ratings: Ratings
    audiences: pd.Series[str]
    """Of every early viewer."""
    preferences: dict[str, dict[str, float]]
    """Of every new viewer, from all their first ratings."""
    results: tuple[Result, ...]
    learning_seconds: float

    def result(self, name: str, count: int) -> Result:
        """Return what a way of predicting scores after so many ratings."""
        return next(one for one in self.results if (one.name, one.count) == (name, count))

    def difference(self, name: str, count: int, measure: str) -> tuple[float, float]:
        """Return a paired difference from one model for all, with its 95 % interval."""
        own = self.result(name, count).measures[measure]
        return interval(own - self.result(REFERENCE, count).measures[measure])


def interval(values: Numbers) -> tuple[float, float]:
    """Return a mean and the half width of its Student 95 % interval; NaN are left out.

    Examples
    --------
    >>> mean, half = interval(np.array([1.0, 2.0, np.nan, 3.0]))
    >>> round(mean, 2), round(half, 2)
    (2.0, 2.48)
    """
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return float(known.mean()) if len(known) else float("nan"), float("inf")
    width = student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return float(known.mean()), float(width)


def learn(ratings: Ratings, audiences: pd.Series[str]) -> ibcl.IBCL:
    """Learn audiences one after another, the way the library chooses."""
    early, columns = ratings.early, list(ratings.features)
    schema = Schema.fit(early[columns], early["label"], classes=[FALSE, TRUE])
    learner = ibcl.IBCL(ibcl.networks.linear(schema.width), encoder=schema)
    task = early["user"].map(audiences)
    for name in sorted(audiences.unique()):
        own = early[task == name]
        learner.learn(own[columns], own["label"], task=name)
    return learner


def compare(
    ratings: Ratings,
    started: Callable[[str], Any] = lambda _: None,
    seed: int = 0,
    number: int = AUDIENCES,
    counts: Sequence[int] = COUNTS,
) -> Comparison:
    """Run the experiment.

    Parameters
    ----------
    started
        Called with what is under way.
    number
        How many audiences to look for.
    counts
        How many of a viewer's first ratings are known.
    """
    started("Finding audiences")
    audiences = find_audiences(ratings, number, seed=seed)
    started("Learning audiences")
    begin = time.perf_counter()
    learner = learn(ratings, audiences)
    learning_seconds = time.perf_counter() - begin
    started("Training what is compared")
    ways = _ways(ratings, audiences, learner, seed)
    results = []
    for name, way in ways.items():
        for count in counts:
            started(f"Predicting after {count} ratings: {name}")
            begin = time.perf_counter()
            guesses = [way(viewer, viewer.first.iloc[:count]) for viewer in ratings.viewers]
            seconds = (time.perf_counter() - begin) / len(ratings.viewers)
            found = [
                scores(guess, (viewer.later["label"] == TRUE).to_numpy())
                for guess, viewer in zip(guesses, ratings.viewers, strict=True)
            ]
            by_measure = {m: np.array([one[m] for one in found]) for m in MEASURES}
            results.append(Result(name, count, by_measure, seconds))
    columns = list(ratings.features)
    preferences = {
        viewer.name: dict(learner.infer_preference(viewer.first[columns], viewer.first["label"]))
        for viewer in ratings.viewers
    }
    return Comparison(learner, ratings, audiences, preferences, tuple(results), learning_seconds)


def _ways(
    ratings: Ratings, audiences: pd.Series[str], learner: ibcl.IBCL, seed: int
) -> dict[str, Way]:
    columns = list(ratings.features)
    shares = audiences.value_counts(normalize=True)
    usual = {task: float(shares[task]) for task in learner.tasks}
    regression = _Regression(ratings, audiences, seed)
    recommender = _Recommender(ratings)
    base = float((ratings.early["label"] == TRUE).mean())

    def preference(known: pd.DataFrame) -> Mapping[str, float]:
        if known.empty:
            return usual
        return learner.infer_preference(known[columns], known["label"])

    def answered(weights: Mapping[str, float], viewer: Viewer) -> Numbers:
        return np.asarray(learner.model(weights).predict_proba(viewer.later[columns]))[:, 1]

    def average(viewer: Viewer, known: pd.DataFrame) -> Numbers:
        likes = float((known["label"] == TRUE).sum())
        return np.full(len(viewer.later), (likes + 5 * base) / (len(known) + 5))

    return {
        PERSONAL: lambda viewer, known: answered(preference(known), viewer),
        REFERENCE: lambda viewer, _: answered(usual, viewer),
        "one logistic regression": lambda viewer, _: regression.of_all(viewer),
        "the viewer's average": average,
        "matrix factorisation": recommender,
        "trained again for every viewer": lambda viewer, known: regression.trained_again(
            viewer, known, preference(known)
        ),
    }


class _Regression:
    """Logistic regression: one for all, or trained again for a viewer."""

    def __init__(self, ratings: Ratings, audiences: pd.Series[str], seed: int) -> None:
        self._columns = list(ratings.features)
        early = ratings.early
        self._scaler = StandardScaler().fit(early[self._columns])
        self._all = LogisticRegression(max_iter=200)
        self._all.fit(self._scaler.transform(early[self._columns]), early["label"] == TRUE)
        rows = early.sample(min(RETRAINING_ROWS, len(early)), random_state=seed)
        self._x = self._scaler.transform(rows[self._columns])
        self._y = (rows["label"] == TRUE).to_numpy()
        self._task = rows["user"].map(audiences).to_numpy()
        self._sizes = pd.Series(self._task).value_counts()

    def of_all(self, viewer: Viewer) -> Numbers:
        """Predict a viewer's later ratings like anybody's."""
        x = self._scaler.transform(viewer.later[self._columns])
        return np.asarray(self._all.predict_proba(x))[:, 1]

    def trained_again(
        self, viewer: Viewer, known: pd.DataFrame, preference: Mapping[str, float]
    ) -> Numbers:
        """Train with audiences weighted by the preference, and with the viewer's own ratings."""
        each = {task: preference[str(task)] / size for task, size in self._sizes.items()}
        weights = len(self._x) * np.array([each[task] for task in self._task])
        x, y = self._x, self._y
        if len(known):
            x = np.concatenate([x, self._scaler.transform(known[self._columns])])
            y = np.concatenate([y, (known["label"] == TRUE).to_numpy()])
            weights = np.concatenate([weights, np.full(len(known), OWN_RATINGS_COUNT)])
        model = LogisticRegression(max_iter=200)
        model.fit(x, y, sample_weight=weights)
        later = self._scaler.transform(viewer.later[self._columns])
        return np.asarray(model.predict_proba(later))[:, 1]


class _Recommender:
    """Matrix factorisation, and how its stars become probabilities of a like.

    The relation between stars and likes is fitted on early viewers as new ones are predicted: from
    half of their ratings to the other half.
    """

    def __init__(self, ratings: Ratings) -> None:
        self._factors = ratings.factors
        stars, liked = [], []
        for _, own in ratings.early.groupby("user"):
            half = len(own) // 2
            stars.append(self._stars(own.iloc[:half], own.iloc[half:]))
            liked.append((own["label"] == TRUE).to_numpy()[half:])
        self._calibration = LogisticRegression()
        self._calibration.fit(np.concatenate(stars)[:, None], np.concatenate(liked))

    def _stars(self, known: pd.DataFrame, later: pd.DataFrame) -> Numbers:
        viewer = self._factors.fold_in(known["movie"].to_numpy(), known["rating"].to_numpy())
        return self._factors.predict(viewer, later["movie"].to_numpy())

    def __call__(self, viewer: Viewer, known: pd.DataFrame) -> Numbers:
        stars = self._stars(known, viewer.later)
        return np.asarray(self._calibration.predict_proba(stars[:, None]))[:, 1]

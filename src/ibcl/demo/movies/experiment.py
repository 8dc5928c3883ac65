"""Learn genres one after another, infer every viewer's preference, and compare.

What is compared predicts the same later ratings of the same viewers, each from the past alone:

* *personal*: routed evidence with the viewer's own preference, inferred from their history (films
  with their verdicts, or the films alone);
* *one model for all*: the same knowledge base with all genres alike, or with the shares that genres
  have among all ratings; and one logistic regression on all ratings learnt from;
* the viewer's average, the film's average;
* matrix factorisation, done anew several times as time goes on, into which every viewer is folded
  with all they rated before the moment;
* the logistic regression trained again for every viewer, with genres weighted by the preference.

Rows say the genre of a film themselves, so the same is asked once more of routed evidence with rows
that do not: then only the preference knows what a viewer usually watches.
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
from ibcl.demo.movies.factorisation import Factorisation, factorise
from ibcl.demo.movies.ratings import FALSE, TRUE, Ratings
from ibcl.tabular import Schema

Numbers = NDArray[np.float64]

CALIBRATION_PART = 0.15
"""The last part of what is learnt from, on which factorisation's probabilities are calibrated."""
REFITS = 4
"""Times that ratings are factorised anew after learning."""
RETRAINING_ROWS = 8_000
"""Rows that are trained on again for every viewer, a random sample of all."""


@dataclass(frozen=True)
class Contender:
    """What one way of predicting scores, viewer by viewer."""

    name: str
    accuracy: Numbers
    log_loss: Numbers
    seconds_a_viewer: float


@dataclass(frozen=True)
class Comparison:
    """The whole experiment."""

    learner: ibcl.IBCL
    ratings: Ratings
    viewers: tuple[str, ...]
    preferences: dict[str, dict[str, float]]
    """Of every viewer, from their labelled history."""
    contenders: tuple[Contender, ...]
    blind: tuple[Contender, ...]
    """Routed evidence on rows that do not say the genre."""
    reference: str
    """The contender that others are compared with."""
    test_ratings: int
    learning_seconds: float

    def differences(self, measure: str, blind: bool = False) -> dict[str, tuple[float, float]]:
        """Return each contender's paired difference from the reference, with its 95% interval."""
        chosen = self.blind if blind else self.contenders
        values = {one.name: getattr(one, measure) for one in chosen}
        return {name: interval(own - values[self.reference]) for name, own in values.items()}


def interval(values: Numbers) -> tuple[float, float]:
    """Return a mean and the half width of its Student 95% interval.

    Examples
    --------
    >>> mean, half = interval(np.array([1.0, 2.0, 3.0]))
    >>> round(mean, 2), round(half, 2)
    (2.0, 2.48)
    """
    if len(values) < 2:
        return float(values.mean()), float("inf")
    width = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(width)


def learn(ratings: Ratings) -> ibcl.IBCL:
    """Learn genres one after another, the way the library chooses."""
    learning = ratings.learning
    columns = list(ratings.features)
    first = learning[learning["task"] == ratings.tasks[0]]
    schema = Schema.fit(first[columns], first["label"], classes=[FALSE, TRUE])
    learner = ibcl.IBCL(ibcl.networks.linear(schema.width), encoder=schema)
    for task in ratings.tasks:
        own = learning[learning["task"] == task]
        learner.learn(own[columns], own["label"], task=task)
    return learner


def compare(
    ratings: Ratings, started: Callable[[str], Any] = lambda _: None, seed: int = 0
) -> Comparison:
    """Run the experiment.

    Parameters
    ----------
    started
        Called with what is under way.
    """
    viewers = ratings.viewers()
    if not viewers:
        raise ValueError("No viewer has enough ratings after the part that is learnt from.")
    started("Learning genres")
    begin = time.perf_counter()
    learner = learn(ratings)
    learning_seconds = time.perf_counter() - begin
    inferred: dict[str, dict[str, float]] = {}
    ways = _routed_ways(learner, ratings, inferred)
    started("Training what is compared")
    columns = list(ratings.features)
    regression = _Regression(ratings.learning, columns)
    recommender = _Recommender(ratings, seed)
    again = _Again(ratings.learning, columns, inferred, seed)
    ways |= {
        "one logistic regression for all": lambda _, __, after: regression(after),
        "the viewer's average": lambda _, __, after: after["viewer_liked"].to_numpy(),
        "the film's average": lambda _, __, after: after["film_liked"].to_numpy(),
        "matrix factorisation": lambda _, history, after: recommender(history, after),
        "trained again for every viewer": lambda name, _, after: again(name, after),
    }
    contenders = _measured(ways, viewers, started)
    started("Learning genres from rows that do not say them")
    hidden = ratings.without_genres()
    blind = _measured(_routed_ways(learn(hidden), hidden, {}), viewers, started)
    return Comparison(
        learner,
        ratings,
        tuple(name for name, _, _ in viewers),
        inferred,
        contenders,
        blind,
        "one model for all, usual shares",
        sum(len(after) for _, _, after in viewers),
        learning_seconds,
    )


Viewer = tuple[str, pd.DataFrame, pd.DataFrame]
Way = Callable[[str, pd.DataFrame, pd.DataFrame], Numbers]


def _routed_ways(
    learner: ibcl.IBCL, ratings: Ratings, inferred: dict[str, dict[str, float]]
) -> dict[str, Way]:
    """Return the ways to predict with one knowledge base; inferred preferences are noted down."""
    columns = list(ratings.features)
    shares = ratings.learning["task"].value_counts(normalize=True)
    usual = {task: float(shares.get(task, 0.0)) for task in ratings.tasks}
    alike = {task: 1 / len(ratings.tasks) for task in ratings.tasks}

    def routed(preference: Mapping[str, float], after: pd.DataFrame) -> Numbers:
        return np.asarray(learner.model(preference).predict_proba(after[columns]))[:, 1]

    def personal(name: str, history: pd.DataFrame, after: pd.DataFrame) -> Numbers:
        found = learner.infer_preference(history[columns], history["label"])
        inferred[name] = dict(found)
        return routed(found, after)

    def told(_: str, history: pd.DataFrame, after: pd.DataFrame) -> Numbers:
        shares_of = history["task"].value_counts(normalize=True)
        return routed({task: float(shares_of.get(task, 0.0)) for task in ratings.tasks}, after)

    return {
        "personal preference, from verdicts": personal,
        "personal preference, from films alone": lambda _, history, after: routed(
            learner.infer_preference(history[columns]), after
        ),
        "personal preference, genres counted": told,
        "one model for all, genres alike": lambda _, __, after: routed(alike, after),
        "one model for all, usual shares": lambda _, __, after: routed(usual, after),
    }


def _measured(
    ways: Mapping[str, Way], viewers: Sequence[Viewer], started: Callable[[str], Any]
) -> tuple[Contender, ...]:
    contenders = []
    for name, way in ways.items():
        started(f"Predicting: {name}")
        begin = time.perf_counter()
        guesses = [way(*viewer) for viewer in viewers]
        seconds = (time.perf_counter() - begin) / len(viewers)
        scores = [_scores(p, after) for p, (_, _, after) in zip(guesses, viewers, strict=True)]
        accuracy, loss = np.array(scores).T
        contenders.append(Contender(name, accuracy, loss, seconds))
    return tuple(contenders)


def _scores(probability: Numbers, after: pd.DataFrame) -> tuple[float, float]:
    """Return accuracy and average −log p of the truth."""
    truth = (after["label"] == TRUE).to_numpy()
    safe = np.clip(probability, 1e-6, 1 - 1e-6)
    loss = -np.where(truth, np.log(safe), np.log(1 - safe)).mean()
    return float(((probability > 0.5) == truth).mean()), float(loss)


class _Regression:
    """One logistic regression on everything that is learnt from."""

    def __init__(self, learning: pd.DataFrame, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._scaler = StandardScaler().fit(learning[self._columns])
        self._model = LogisticRegression(max_iter=500)
        self._model.fit(self._scaler.transform(learning[self._columns]), learning["label"] == TRUE)

    def __call__(self, after: pd.DataFrame) -> Numbers:
        x = self._scaler.transform(after[self._columns])
        return np.asarray(self._model.predict_proba(x))[:, 1]


class _Again:
    """A logistic regression trained again for a viewer, genres weighted by their preference."""

    def __init__(
        self,
        learning: pd.DataFrame,
        columns: Sequence[str],
        preferences: Mapping[str, Mapping[str, float]],
        seed: int,
    ) -> None:
        self._columns = list(columns)
        rows = learning.sample(min(RETRAINING_ROWS, len(learning)), random_state=seed)
        self._scaler = StandardScaler().fit(rows[self._columns])
        self._x = self._scaler.transform(rows[self._columns])
        self._y, self._task = (rows["label"] == TRUE).to_numpy(), rows["task"].to_numpy()
        self._sizes = rows["task"].value_counts()
        self._preferences = preferences

    def __call__(self, name: str, after: pd.DataFrame) -> Numbers:
        # Each genre counts as its preference says, however many ratings it has.
        preference = self._preferences[name]
        each = {task: preference[str(task)] / size for task, size in self._sizes.items()}
        weights = len(self._x) * np.array([each[task] for task in self._task])
        model = LogisticRegression(max_iter=200)
        model.fit(self._x, self._y, sample_weight=weights)
        x = self._scaler.transform(after[self._columns])
        return np.asarray(model.predict_proba(x))[:, 1]


class _Recommender:
    """Matrix factorisation, and how its ratings become probabilities of a like."""

    def __init__(self, ratings: Ratings, seed: int) -> None:
        learning = ratings.learning
        cut = int((1 - CALIBRATION_PART) * len(learning))
        early, late = learning.iloc[:cut], learning.iloc[cut:]
        trial = _factorised(early, seed)
        expected, liked = [], []
        for user, rows in late.groupby("user"):
            # The same as later: the first half of what they rated then is their history.
            half = len(rows) // 2
            past = pd.concat([early[early["user"] == user], rows.iloc[:half]])
            expected.append(_running(trial, past, rows.iloc[half:]))
            liked.append((rows["label"] == TRUE).to_numpy()[half:])
        self._calibration = LogisticRegression()
        self._calibration.fit(np.concatenate(expected)[:, None], np.concatenate(liked))
        times = ratings.frame["time"]
        later = times[times >= ratings.split]
        moments = [int(later.iloc[k * len(later) // REFITS]) for k in range(REFITS)]
        self._fitted = [(m, _factorised(ratings.frame[times < m], seed)) for m in moments]

    def __call__(self, history: pd.DataFrame, after: pd.DataFrame) -> Numbers:
        moment = int(after["time"].iloc[0])
        factors = [fitted for when, fitted in self._fitted if when <= moment][-1]
        expected = _running(factors, history, after)
        return np.asarray(self._calibration.predict_proba(expected[:, None]))[:, 1]


def _factorised(rows: pd.DataFrame, seed: int) -> Factorisation:
    users, films = rows["user"].to_numpy(), rows["movie"].to_numpy()
    return factorise(users, films, rows["rating"].to_numpy(), seed=seed)


def _running(factors: Factorisation, history: pd.DataFrame, after: pd.DataFrame) -> Numbers:
    """Expected ratings, with the viewer folded in anew at every moment."""
    own = pd.concat([history, after])
    films, given, times = (own[name].to_numpy() for name in ("movie", "rating", "time"))
    expected = []
    for moment in after["time"].unique():
        past = times < moment
        viewer = factors.fold_in(films[past], given[past])
        expected.append(factors.predict(viewer, films[times == moment]))
    return np.concatenate(expected)

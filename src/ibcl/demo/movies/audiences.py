r"""Audiences: groups of early viewers who rate alike, found by expectation maximisation.

Viewer u belongs to one audience k, with probability π_k before their ratings are known, and likes a
film x with the probability p_k(x) of that audience, a logistic regression on the film's features:

    E   ρ_uk ∝ π_k Π_i p_k(x_i)^{y_i} (1 − p_k(x_i))^{1 − y_i},
    M   π_k = mean_u ρ_uk,   p_k from all ratings, those of viewer u weighted by ρ_uk.

It starts from k-means of what matrix factorisation makes of each viewer.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_expit, softmax
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ibcl.demo.movies.ratings import TRUE, Ratings

Numbers = NDArray[np.float64]

AUDIENCES = 10
ROUNDS = 8
FEWEST_VIEWERS = 3
"""An audience has at least so many viewers; those of a smaller one go where they fit next."""


def find_audiences(
    ratings: Ratings, number: int = AUDIENCES, rounds: int = ROUNDS, seed: int = 0
) -> pd.Series[str]:
    """Return the name of each early viewer's audience, by viewer."""
    early = ratings.early
    users, row_user = np.unique(early["user"].to_numpy(), return_inverse=True)
    number = min(number, max(1, len(users) // (2 * FEWEST_VIEWERS)))
    x = StandardScaler().fit_transform(early[list(ratings.features)])
    liked = (early["label"] == TRUE).to_numpy()
    groups = KMeans(number, n_init=4, random_state=seed).fit_predict(_tastes(ratings, users))
    shares = np.eye(number)[groups]
    for _ in range(rounds):
        likelihoods = _log_likelihoods(x, liked, row_user, shares)
        prior = np.log(np.maximum(shares.mean(0), 1e-12))
        shares = softmax(prior + likelihoods, axis=1)
    chosen = _large_enough(likelihoods + prior)
    names = _names(ratings, pd.Series(chosen, index=users))
    return pd.Series([names[group] for group in chosen], index=users)


def _tastes(ratings: Ratings, users: NDArray[np.int64]) -> Numbers:
    """What matrix factorisation makes of each viewer."""
    by_user = dict(tuple(ratings.early.groupby("user")))
    return np.stack(
        [
            ratings.factors.fold_in(own["movie"].to_numpy(), own["rating"].to_numpy())
            for own in (by_user[int(user)] for user in users)
        ]
    )


def _log_likelihoods(
    x: Numbers, liked: NDArray[np.bool_], row_user: NDArray[np.int64], shares: Numbers
) -> Numbers:
    """Fit every audience's regression; return log p(ratings of u | audience k)."""
    found = np.zeros_like(shares)
    for k in range(shares.shape[1]):
        weights = shares[row_user, k]
        rows = weights > 1e-3
        if len(np.unique(liked[rows])) < 2:
            found[:, k] = -np.inf
            continue
        model = LogisticRegression(C=0.1, max_iter=50, tol=1e-3)
        model.fit(x[rows], liked[rows], sample_weight=weights[rows])
        score = model.decision_function(x)
        found[:, k] = np.bincount(row_user, log_expit(np.where(liked, score, -score)))
    return found


def _large_enough(scores: Numbers) -> NDArray[np.int64]:
    """Assign each viewer to the best audience, and dissolve audiences that are too small."""
    scores = scores.copy()
    while True:
        chosen: NDArray[np.int64] = scores.argmax(1)
        counts = np.bincount(chosen, minlength=scores.shape[1])
        small = np.flatnonzero((counts > 0) & (counts < FEWEST_VIEWERS))
        if not len(small) or (counts > 0).sum() == 1:
            return chosen
        scores[:, small[counts[small].argmin()]] = -np.inf


def _names(ratings: Ratings, groups: pd.Series[int]) -> dict[int, str]:
    """Name audiences by the two genres they like most above what everybody likes."""
    early = ratings.early
    liked = (early["label"] == TRUE).to_numpy(dtype=float)
    group = early["user"].map(groups).to_numpy()
    flags = {genre: early[f"is {genre}"].to_numpy(dtype=bool) for genre in ratings.genres}
    names = {}
    for number, k in enumerate(sorted(groups.unique()), start=1):
        own = group == k
        lift = {
            genre: (liked[own & flag].sum() + 5 * liked[flag].mean()) / ((own & flag).sum() + 5)
            - liked[flag].mean()
            for genre, flag in flags.items()
        }
        best = sorted(lift, key=lambda genre: -lift[genre])[:2]
        names[int(k)] = f"{number}: more {' and '.join(best)}"
    return names

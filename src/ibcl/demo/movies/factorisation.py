r"""Matrix factorisation by alternating least squares, the usual recommender.

A rating is r_ui ≈ μ + b_u + b_i + p_uᵀq_i; films' and viewers' factors are found in turn by ridge
regressions, each exact given the other. A viewer who comes later is folded in: one ridge regression
on their own past, with the films as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Factorisation:
    """Films' biases and factors, and how viewers are folded in."""

    mean: float
    films: dict[int, int]
    """Row of each film."""
    factors: Numbers
    """With a column of ones in front (for b_u), of shape (films, 1 + rank)."""
    biases: Numbers
    ridge: float

    def fold_in(self, films: Whole, ratings: Numbers) -> Numbers:
        """Return a viewer's bias and factors from their own past."""
        known = np.array([self.films.get(int(film), -1) for film in films])
        seen = known >= 0
        if not seen.any():
            return np.zeros(self.factors.shape[1])
        x = self.factors[known[seen]]
        residual = ratings[seen] - self.mean - self.biases[known[seen]]
        return _ridge(x, residual, self.ridge)

    def predict(self, viewer: Numbers, films: Whole) -> Numbers:
        """Return the ratings expected; an unrated film is an average one."""
        known = np.array([self.films.get(int(film), -1) for film in films])
        found = self.factors[known] @ viewer + self.biases[known]
        expected: Numbers = self.mean + np.where(known >= 0, found, viewer[0])
        return expected


def factorise(
    users: Whole,
    films: Whole,
    ratings: Numbers,
    rank: int = 8,
    ridge: float = 4.0,
    rounds: int = 8,
    seed: int = 0,
) -> Factorisation:
    """Factorise ratings.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> u, f = np.divmod(np.arange(600), 20)
    >>> taste = generator.normal(size=30)[u] * generator.normal(size=20)[f]
    >>> found = factorise(u, f, 3 + taste, rank=1, ridge=0.1, rounds=20)
    >>> viewer = found.fold_in(f[:15], 3 + taste[:15])
    >>> bool(np.abs(found.predict(viewer, f[15:20]) - 3 - taste[15:20]).max() < 0.2)
    True
    """
    generator = np.random.default_rng(seed)
    user_names, user = np.unique(users, return_inverse=True)
    film_names, film = np.unique(films, return_inverse=True)
    mean = float(ratings.mean())
    centred = ratings - mean
    viewers = _with_ones(generator.normal(scale=0.1, size=(len(user_names), rank)))
    viewers[:, 0] = 0.0
    items = _with_ones(generator.normal(scale=0.1, size=(len(film_names), rank)))
    biases = np.zeros(len(film_names))
    by_user, by_film = _groups(user, len(user_names)), _groups(film, len(film_names))
    for _ in range(rounds):
        for number, rows in enumerate(by_user):
            x = items[film[rows]]
            viewers[number] = _ridge(x, centred[rows] - biases[film[rows]], ridge)
        for number, rows in enumerate(by_film):
            x = _with_ones(viewers[user[rows], 1:])
            solution = _ridge(x, centred[rows] - viewers[user[rows], 0], ridge)
            biases[number], items[number, 1:] = solution[0], solution[1:]
    places = {int(name): position for position, name in enumerate(film_names)}
    return Factorisation(mean, places, items, biases, ridge)


def _ridge(x: Numbers, y: Numbers, ridge: float) -> Numbers:
    solution = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y)
    return np.asarray(solution, dtype=np.float64)


def _with_ones(factors: Numbers) -> Numbers:
    return np.column_stack([np.ones(len(factors)), factors])


def _groups(which: Whole, count: int) -> list[Whole]:
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=count))
    return np.split(order, ends[:-1])

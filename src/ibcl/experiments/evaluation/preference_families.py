"""Families of preferences: which ones a comparison asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ibcl.preference import preference_grid, sample_preferences

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """A family of preferences.

    Parameters
    ----------
    draw
        From the number of tasks, how many preferences and a seed to a matrix with one row each.
    tasks
        How many tasks it is laid over; ``None`` for any number.
    """

    draw: Callable[[int, int, int], Matrix]
    tasks: int | None = None


def uniform(tasks: int, n: int, seed: int) -> Matrix:
    """Draw the paper's: uniform numbers divided by their sum."""
    return sample_preferences(tasks, n, seed)


def sparse(tasks: int, n: int, seed: int) -> Matrix:
    """Draw from the Dirichlet distribution of concentration 0.2: a few tasks have most weight."""
    return sample_preferences(tasks, n, seed, 0.2)


def vertices(tasks: int, n: int, seed: int) -> Matrix:
    """Give 0.9 to one task, in turn and in random order, and share the rest between the others.

    Examples
    --------
    >>> vertices(3, 2, seed=0).sum(1)
    array([1., 1.])
    >>> sorted(vertices(3, 3, seed=0).argmax(1).tolist())
    [0, 1, 2]
    """
    order = np.random.default_rng(seed).permutation(tasks)
    matrix = np.full((n, tasks), 0.1 / (tasks - 1))
    matrix[np.arange(n), order[np.arange(n) % tasks]] = 0.9
    return matrix


def grid(tasks: int, n: int, seed: int) -> Matrix:
    """Lay 21 preferences in steps of 1/20 along the simplex of two tasks."""
    del n, seed
    return preference_grid(tasks, 20)


def five(tasks: int, n: int, seed: int) -> Matrix:
    """The paper's five preferences over two tasks."""
    del tasks, n, seed
    first = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    return np.stack([first, first[::-1]], 1)


FAMILIES: dict[str, Family] = {
    "uniform": Family(uniform),
    "sparse": Family(sparse),
    "grid": Family(grid, tasks=2),
    "five": Family(five, tasks=2),
    "vertices": Family(vertices),
}
"""All families by name. Their order is part of the seeds: new ones come last."""

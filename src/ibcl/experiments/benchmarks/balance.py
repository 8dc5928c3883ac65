"""Equal classes: training data in which every class is as frequent as any other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def equal_classes(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Choose as many rows as there are, the same number of each class (one more where odd).

    Larger classes lose rows at random. Smaller ones keep all of theirs and repeat them, each row
    equally often but for a random remainder. A loss averaged over these rows is, but for the draw,
    the average of the classes' losses: what balanced accuracy asks for.

    Returns the chosen rows in ascending order.

    Examples
    --------
    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> np.bincount(labels[equal_classes(labels, seed=0)])
    array([3, 3])
    """
    generator = np.random.default_rng(seed)
    classes = np.unique(labels)
    chosen = []
    for position, label in enumerate(classes):
        members = np.flatnonzero(labels == label)
        wanted = len(labels) // len(classes) + (position < len(labels) % len(classes))
        repeats, remainder = divmod(wanted, len(members))
        chosen += [np.tile(members, repeats), generator.permutation(members)[:remainder]]
    return np.sort(np.concatenate(chosen))

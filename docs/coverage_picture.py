"""The picture of the page on coverage, ``docs/images/coverage.png``.

A simulation with known truth: an easy and a hard task, 100 calibration samples each; the
preference moves from one to the other.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from ibcl.conformal import joint_threshold, label_scores, task_thresholds
from ibcl.experiments.evaluation.style import DASHES, PALETTE, SETTINGS

ALPHA, SAMPLES, CALIBRATIONS, INPUTS, CLASSES = 0.1, 100, 1000, 50_000, 10
CONCENTRATIONS = (0.03, 0.3)
TASK = np.repeat([0, 1], SAMPLES)
Array = NDArray[np.float64]


def drawn(concentration: float, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Right probabilities of a task's inputs, and the scores of their right answers."""
    p = rng.dirichlet(np.full(CLASSES, concentration), size=count)
    labels = (p.cumsum(1) > rng.random((count, 1))).argmax(1)
    return p, label_scores(p, labels)


def main(path: Path) -> None:
    """Draw it."""
    rng = np.random.default_rng(0)
    come = [drawn(concentration, INPUTS, rng) for concentration in CONCENTRATIONS]
    calibrations = np.concatenate(
        [
            drawn(concentration, CALIBRATIONS * SAMPLES, rng)[1].reshape(CALIBRATIONS, SAMPLES)
            for concentration in CONCENTRATIONS
        ],
        axis=1,
    )
    weights = np.linspace(0, 1, 21)
    once = task_thresholds(calibrations, np.zeros(2 * SAMPLES, int), 1, ALPHA)[:, 0]
    curves = {"one threshold for all data": [once] * len(weights)}
    for guarantee in ("mixture", "task", "uniform"):
        curves[f'guarantee="{guarantee}"'] = [
            joint_threshold(calibrations, TASK, [1 - w, w], ALPHA, guarantee) for w in weights
        ]
    plt.rcParams.update(SETTINGS)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.8), layout="constrained")
    for position, (name, thresholds) in enumerate(curves.items()):
        look = {"color": PALETTE[position], "linestyle": DASHES[position], "label": name}
        covers, sizes = [], []
        for w, tau in zip(weights, thresholds, strict=True):
            held = [1 - np.searchsorted(np.sort(s), tau).mean() / INPUTS for _, s in come]
            size = [
                CLASSES * (1 - np.searchsorted(np.sort(p.ravel()), tau).mean() / p.size)
                for p, _ in come
            ]
            covers.append((1 - w) * held[0] + w * held[1])
            sizes.append((1 - w) * size[0] + w * size[1])
        left.plot(weights, covers, **look)
        right.plot(weights, sizes, **look)
    left.axhline(1 - ALPHA, color="grey", linewidth=0.6)
    left.set(xlabel="weight of the hard task", ylabel="coverage, 0.9 promised")
    right.set(xlabel="weight of the hard task", ylabel="classes in a set, of 10")
    right.legend(frameon=False)
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    here = Path(__file__).parent / "images" / "coverage.png"
    main(Path(sys.argv[1]) if sys.argv[1:] else here)

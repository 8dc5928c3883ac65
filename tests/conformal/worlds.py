"""Worlds with known truth: every task is a table of probabilities of inputs and answers.

An input is a whole number x, an answer a class y, and a cell the pair (x, y) as one number. The
model of a world is a gate and an expert per task, right or wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from ibcl.conformal import CLASS_SCORES, ClassScore

Array = NDArray[np.float64]
DRAWS = 10_000
# A test fails by chance less often than once in a million runs.
FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class World:
    """What is true, and what the model believes."""

    inputs: Array
    """p_k(x), shape (tasks, inputs)."""
    answers: Array
    """p_k(y | x), shape (tasks, inputs, classes)."""
    gate: Array
    """What the model takes p_k(x) for."""
    experts: Array
    """What the model takes p_k(y | x) for."""
    digits: int | None = None
    """Scores are rounded to so many digits, which ties them."""

    @property
    def tasks(self) -> int:
        return len(self.inputs)

    @property
    def cells(self) -> Array:
        """P_k of all cells, shape (tasks, cells)."""
        return (self.inputs[:, :, None] * self.answers).reshape(self.tasks, -1)

    def served_scores(self, weights: Array, score: ClassScore = "probability") -> Array:
        """Scores of all cells by the routed model at w, shape (cells,)."""
        joint = weights[:, None] * self.gate
        shares = joint / np.maximum(joint.sum(0), 1e-300)
        probabilities = np.einsum("kx,kxy->xy", shares, self.experts)
        return self._rounded(CLASS_SCORES[score](probabilities)).ravel()

    def own_scores(self) -> Array:
        """Logarithms of share times head, each task's among those known when it was learnt."""
        known = np.cumsum(self.gate, axis=0)
        with np.errstate(divide="ignore"):
            logs = np.log(self.gate / np.maximum(known, 1e-300))[:, :, None] + np.log(self.experts)
        return self._rounded(logs).reshape(self.tasks, -1)

    def _rounded(self, scores: Array) -> Array:
        return scores if self.digits is None else np.round(scores, self.digits)

    def draws(self, counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Cells of calibration samples, all tasks' one after another, shape (DRAWS, samples)."""
        return np.concatenate(
            [sampled(p, (DRAWS, n), rng) for p, n in zip(self.cells, counts, strict=True)], axis=1
        )

    def inputs_to_come(
        self, weights: Array, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One task and one cell of it for every draw of the calibration samples."""
        task = sampled(weights, (DRAWS,), rng)
        cell = np.empty(DRAWS, dtype=np.int64)
        for k in range(self.tasks):
            cell[task == k] = sampled(self.cells[k], (int((task == k).sum()),), rng)
        return task, cell


def sampled(
    probabilities: Array, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Numbers drawn with these probabilities."""
    edges = np.cumsum(probabilities)
    found: NDArray[np.int64] = np.searchsorted(edges / edges[-1], rng.random(shape), side="right")
    return found


def world(
    seed: int, tasks: int, inputs: int = 60, classes: int = 3, sharpness: float = 3.0
) -> World:
    """Tasks with their inputs around places of their own and rules of their own; a right model."""
    rng = np.random.default_rng(seed)
    line = np.linspace(-1, 1, inputs)
    centres = rng.uniform(-1, 1, size=(tasks, 1))
    density = np.exp(-0.5 * ((line - centres) / 0.4) ** 2)
    density /= density.sum(1, keepdims=True)
    slopes = sharpness * rng.normal(size=(tasks, 1, classes))
    logits = slopes * line[:, None] + rng.normal(size=(tasks, 1, classes))
    answers = np.exp(logits - logits.max(-1, keepdims=True))
    answers /= answers.sum(-1, keepdims=True)
    return World(density, answers, density, answers)


def assert_covers(hits: NDArray[np.bool_], alpha: float) -> None:
    """The share of hits is no less than 1 − α, by the exact binomial test."""
    test = binomtest(int(hits.sum()), len(hits), 1 - alpha, alternative="less")
    assert test.pvalue > FALSE_ALARM, f"{hits.mean():.4f} of {len(hits)} for {1 - alpha}"

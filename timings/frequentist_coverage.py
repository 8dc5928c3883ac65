"""How often the highest density region holds the truth, on simulated tasks where it is known.

    python timings/frequentist_coverage.py --repetitions 400

Credibility is a statement about q_w itself: the region holds 1 − α of its mass. This measures the
frequentist question instead. Data are simulated again and again from known parameters, and each
time it is noted whether the region holds them:

* one task, all weight on it, truth drawn from the prior: exact Bayesian inference covers 1 − α on
  average. Linear-Gaussian posteriors are exact; logistic ones are Gaussian approximations.
* one task, one truth fixed for all repetitions: the prior pulls the posterior towards zero, so
  that coverage may be less where the truth is far from it.
* two tasks that share their truth, equal weights, pooled evidence: the posterior of all data.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

import ibcl

NOISE, PRIOR, SAMPLES, INPUTS = 0.5, 1.0, 60, 3
LIKELIHOODS: dict[str, ibcl.Normal | ibcl.Bernoulli] = {
    "linear-Gaussian": ibcl.Normal(NOISE),
    "logistic": ibcl.Bernoulli(),
}


class Coverage(NamedTuple):
    """Share of repetitions whose region held the truth, and its standard error."""

    share: float
    error: float


def simulate(kind: str, theta: np.ndarray, rng: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """Draw one task's data from the parameters θ = (weights, bias)."""
    x = rng.normal(size=(SAMPLES, INPUTS))
    f = x @ theta[:-1] + theta[-1]
    if kind == "linear-Gaussian":
        y = f + NOISE * rng.normal(size=SAMPLES)
    else:
        y = (rng.random(SAMPLES) < 1 / (1 + np.exp(-f))).astype(float)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def coverage(
    kind: str,
    alpha: float,
    repetitions: int,
    seed: int = 0,
    tasks: int = 1,
    truth: Callable[[np.random.Generator], np.ndarray] | None = None,
) -> Coverage:
    """Measure how often the region with credibility 1 − α holds the parameters.

    Parameters
    ----------
    tasks
        How many tasks share the parameters, with equal weights and pooled evidence.
    truth
        Draws the parameters of a repetition; from the prior where None.
    """
    rng = np.random.default_rng(seed)
    held = []
    for _ in range(repetitions):
        theta = PRIOR * rng.normal(size=INPUTS + 1) if truth is None else truth(rng)
        learner = ibcl.IBCL(
            ibcl.networks.linear(INPUTS),
            [PRIOR],
            ibcl.DenseVI(),
            "evidence",
            alpha=alpha,
            independent=True,
            d=0,
            likelihood=LIKELIHOODS[kind],
        )
        for _ in range(tasks):
            learner.learn(*simulate(kind, theta, rng))
        region = learner.model(np.full(tasks, 1 / tasks)).region
        held.append(bool(region.contains(torch.tensor(theta))))
    share = float(np.mean(held))
    return Coverage(share, float(np.sqrt(share * (1 - share) / repetitions)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    fixed = {
        "drawn from the prior": None,
        "fixed at one": lambda _: np.ones(INPUTS + 1),
        "fixed at three": lambda _: np.full(INPUTS + 1, 3.0),
    }
    print(f"{SAMPLES} samples per task, {arguments.repetitions} repetitions, seed {arguments.seed}")
    print(f"{'model':16} {'truth':21} tasks  1 - alpha  covered")
    for kind in LIKELIHOODS:
        for name, truth in fixed.items():
            for tasks in (1, 2):
                for alpha in (0.1, 0.01):
                    found = coverage(
                        kind, alpha, arguments.repetitions, arguments.seed, tasks, truth
                    )
                    print(
                        f"{kind:16} {name:21} {tasks:5}  {1 - alpha:9.2f}  "
                        f"{found.share:.3f} ± {found.error:.3f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()

"""How the knowledge base grows: posteriors stored after each task, by the threshold d."""

from __future__ import annotations

import ibcl
from ibcl import networks
from ibcl.demo.tasks import PIXELS, DigitTasks

PRIORS = (2.0, 2.5, 3.0)
THRESHOLDS = (0.0, 0.05, 0.1)


def growth(digits: DigitTasks, seed: int = 0) -> dict[float, list[int]]:
    """Learn a small linear head from three priors, once for every threshold.

    Returns, for each threshold, the number of posteriors stored after each task.
    """
    stored = {}
    for threshold in THRESHOLDS:
        learner = ibcl.IBCL.as_in_paper(
            networks.linear(PIXELS),
            priors=PRIORS,
            inference=ibcl.MeanFieldVI(epochs=5, learning_rate=0.01),
            d=threshold,
            seed=seed,
        )
        for task in digits.tasks:
            learner.learn(task.train.x, task.train.y, task=task.name)
        stored[threshold] = [row.stored for row in learner.knowledge.report()]
    return stored

"""What a model says it does not know, on digits it has learnt and on images that are no digits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import ibcl
from ibcl.demo.tasks import PIXELS, DigitTasks

IMAGES = 72
SAMPLES = 100


class Doubt(NamedTuple):
    """Average uncertainty over a group of images, in nats."""

    group: str
    known: bool
    aleatoric: float
    epistemic: float


def doubts(learner: ibcl.IBCL, digits: DigitTasks, seed: int = 0) -> list[Doubt]:
    """Measure the uncertainty of the uniform preference's model on several groups of images."""
    model = learner.model(np.full(len(learner.tasks), 1 / len(learner.tasks)))
    groups = {task.name: task.test_pixels for task in digits.tasks}
    strange = _strange(np.concatenate(list(groups.values())), np.random.default_rng(seed))
    result = []
    for name, pixels in {**groups, **strange}.items():
        parts = model.uncertainty(digits.scaling(pixels), SAMPLES)
        result.append(
            Doubt(
                name, name in groups, float(parts.aleatoric.mean()), float(parts.epistemic.mean())
            )
        )
    return result


def _strange(
    pixels: NDArray[np.float32], generator: np.random.Generator
) -> dict[str, NDArray[np.float32]]:
    """Images unlike any that were learnt."""
    chosen = pixels[generator.choice(len(pixels), IMAGES, replace=False)]
    return {
        "digits, negative": 1 - chosen,
        "digits, shuffled pixels": generator.permuted(chosen, axis=1),
        "random noise": generator.random((IMAGES, PIXELS), dtype=np.float32),
    }

r"""What the page needs to make models by itself: gate and heads on the test images.

Heads do not depend on the preference w, so in the browser a model is its K weights:

    p(odd | x, w) = Σ_k w_k e_k(x) p_k(odd | x) / Σ_k w_k e_k(x).

At a vertex, where one task has all the weight, it is that task's own model.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

import ibcl
from ibcl.demo.tasks import LEVELS, DigitTasks


def explorer_data(learner: ibcl.IBCL, digits: DigitTasks) -> dict[str, Any]:
    """Return everything ``embedded.js`` computes with, ready for JSON."""
    state = learner.state
    count = len(learner.tasks)
    vertices = [learner.model(np.eye(count)[task]) for task in range(count)]
    scores, heads, alone = [], [], []
    for task in digits.tasks:
        x = task.test.x
        answers = state.predictives.task_answers(state.features(x))
        assert answers is not None
        found = answers.densities
        scores.append(_floats(found - found.amax(1, keepdim=True)))
        heads.append(_floats(answers.of_tasks[:, :, 1].T))
        alone.append(_floats(torch.stack([model.predict_proba(x)[:, 1] for model in vertices], 1)))
    return {
        "tasks": list(learner.tasks),
        "levels": LEVELS,
        # Of every test image and task, row by row: log e_k, p_k(odd), and the same at the vertex.
        "scores": scores,
        "heads": heads,
        "vertices": alone,
        "images": [_bytes(task.test_pixels * LEVELS) for task in digits.tasks],
        "odd": [_bytes(task.test.y.numpy()) for task in digits.tasks],
    }


def _floats(values: torch.Tensor) -> str:
    return base64.b64encode(values.numpy().astype("<f4").tobytes()).decode()


def _bytes(values: ArrayLike) -> str:
    return base64.b64encode(np.rint(values).astype(np.uint8).tobytes()).decode()

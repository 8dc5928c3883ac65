"""What a knowledge base answers, through every question that can be asked of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

import ibcl


def probes(name: str) -> Any:
    """Rows to ask about: a table where the base reads tables, else three numbers each."""
    if name.startswith("table"):
        return pd.DataFrame(
            {
                "age": [31.0, 48.5, None, 40.0],
                "town": ["Rome", "Oslo", "Pisa", None],
                "member": [True, False, True, False],
            }
        )
    generator = torch.Generator().manual_seed(1)
    return 2 * torch.randn(5, 3, generator=generator)


def preferences(tasks: int) -> list[list[float]]:
    """A preference inside, one on the boundary, and a vertex."""
    if tasks == 2:
        return [[0.7, 0.3], [0.05, 0.95], [0.0, 1.0]]
    return [[0.5, 0.3, 0.2], [0.9, 0.1, 0.0], [0.0, 1.0, 0.0]]


def answers(learner: ibcl.IBCL, x: Any) -> dict[str, Any]:
    """Return every answer, as plain numbers, by the question."""
    told = learner.task_incremental is not None
    task = learner.tasks[0] if told else None
    matrix = preferences(len(learner.tasks))
    found: dict[str, Any] = {"many": _plain(learner.predict_many(x, matrix, task=task))}
    for number, preference in enumerate(matrix):
        model = learner.model(preference)
        mean = model.outputs(x, task=task)
        found[f"{number} outputs"] = _plain(mean)
        found[f"{number} predict"] = _plain(model.predict(x, task=task))
        found[f"{number} bounds"] = [_plain(b) for b in model.credal_bounds(x, task=task)]
        found[f"{number} theta"] = _plain(model.theta)
        if not isinstance(model.distribution, ibcl.Mixture):
            found[f"{number} threshold"] = model.region.threshold
        if learner.pooling in ("routed", "routed1"):
            found[f"{number} routing"] = _plain(model.routing(x))
            found[f"{number} novelty"] = _plain(model.novelty(x))
        found[f"{number} sampled"] = _plain(model.outputs(x, samples=3, task=task))
    return found


def _plain(values: Any) -> Any:
    array = np.asarray(values)
    return array.tolist() if array.dtype.kind in "OUb" else array.astype(float).tolist()

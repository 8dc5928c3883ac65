"""Which depths of the base all contenders read: chosen on validation rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from ibcl.backbones import FrozenBackbone
from ibcl.experiments.benchmarks.benchmark import BenchmarkTask

# Of the trial's heads, for features of unit mean square length.
_INVERSE_REGULARISATION = 10.0
_STEPS = 200
_ROWS = 256


def choose(
    base: nn.Module, sets: Sequence[Sequence[str]], tasks: Sequence[BenchmarkTask]
) -> tuple[str, ...]:
    """Return the depths from which linear heads say best which task and class a row is of.

    The head of the first task alone would not say what the gate between tasks needs. A logistic
    regression over all tasks' classes, learnt on training rows, is judged by the likelihood it
    gives to validation rows.

    Parameters
    ----------
    sets
        Of layers.
    """
    names = list(dict.fromkeys(name for layers in sets for name in layers))
    frozen = FrozenBackbone(base, names)

    def read(x: np.ndarray) -> list[np.ndarray]:
        with torch.no_grad():
            parts = [frozen.depths(part) for part in torch.split(torch.as_tensor(x), _ROWS)]
        return [torch.cat(list(each)).numpy() for each in zip(*parts, strict=True)]

    learnt = [read(task.train.x) for task in tasks]
    held_out = [read(task.validation.x) for task in tasks]
    labels = np.concatenate([2 * k + task.train.y for k, task in enumerate(tasks)])
    expected = np.concatenate([2 * k + task.validation.y for k, task in enumerate(tasks)])
    losses = []
    for layers in sets:
        places = [names.index(name) for name in layers]
        x, unseen = (
            np.concatenate([np.concatenate([rows[p] for p in places], 1) for rows in parts])
            for parts in (learnt, held_out)
        )
        scale = np.sqrt(np.square(x).sum(1).mean())
        head = LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=_STEPS)
        found = head.fit(x / scale, labels).predict_log_proba(unseen / scale)
        losses.append(-found[np.arange(len(expected)), expected].mean())
    return tuple(sets[int(np.argmin(losses))])

"""What a learner answers: the model of one preference, and the answers of many at once.

Every function takes the `State` it answers from, so that one answer never mixes what was known
before and after a task was learnt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl import store
from ibcl.conformal import Guarantee
from ibcl.coverage import Coverage
from ibcl.learning import read
from ibcl.model import Model
from ibcl.pooling import split_weights
from ibcl.preference import InferredPreference, Preference, infer_proportions, preference_matrix
from ibcl.state import State


class ModelBlock(NamedTuple):
    """Mean models of a block of preferences, row by row."""

    preferences: NDArray[np.float64]
    thetas: Tensor


def model(
    coverage: Coverage,
    preference: Any,
    split: Mapping[str, Sequence[float]] | None,
    metadata: dict[str, Any],
) -> Model:
    """Turn a preference into a model; see `IBCL.model`.

    Parameters
    ----------
    coverage
        The calibration of what is known, with its state.
    metadata
        Of the learner, said where the model comes from.
    """
    state = coverage.state
    parsed = Preference.parse(preference, state.tasks)
    vector = torch.as_tensor(parsed.vector())
    if split is None:
        predictive = state.predictives.at(vector)
    else:
        predictive = state.predictives.of(split_weights(state.knowledge, vector, split))
    return Model(
        predictive,
        parsed,
        encoder=state.encoder,
        task_incremental=state.given.task_incremental,
        alpha=float(state.given.alpha),
        seed=int(state.given.seed),
        provenance=partial(store.provenance, state, metadata),
        coverage=coverage,
    )


def mean_models(state: State, preferences: Any, block: int) -> Iterator[ModelBlock]:
    """Generate the mean models of many preferences in blocks; see `IBCL.models`."""
    if not isinstance(block, int | np.integer) or block < 1:
        raise ValueError(f"block must be a positive whole number, not {block!r}.")
    matrix = preference_matrix(preferences, state.tasks)
    for begin in range(0, len(matrix), block):
        rows = matrix[begin : begin + block]
        yield ModelBlock(rows, state.predictives.parameters(torch.as_tensor(rows)))


def predict_blocks(
    state: State, x: Any, preferences: Any, task: str | None, numbers: int | None
) -> Iterator[Tensor]:
    """Return the answers of many preferences block by block; see `IBCL.predict_blocks`."""
    matrix = torch.as_tensor(preference_matrix(preferences, state.tasks))
    blocks = state.predictives.answers(state.features(x, task)).blocks(matrix, numbers)
    if state.encoder is None or state.likelihood.classification:
        return blocks
    decode = state.encoder.decode
    return (torch.as_tensor(decode(block)).to(block.dtype) for block in blocks)


def predict_sets(
    coverage: Coverage,
    x: Any,
    preferences: Any,
    alpha: float,
    guarantee: Guarantee,
    task: str | None,
) -> NDArray[np.bool_]:
    """Return the prediction sets of many preferences; see `IBCL.predict_sets`."""
    state = coverage.state
    matrix = preference_matrix(preferences, state.tasks)
    return coverage.sets_of_many(state.features(x, task), matrix, alpha, guarantee)


def infer_preference(
    state: State, x: Any, y: Any, concentration: float | None, sample_weight: Any
) -> InferredPreference:
    """Infer the shares of the tasks that inputs come from; see `IBCL.infer_preference`."""
    if state.settings.task_incremental is not None:
        raise ValueError(
            "This learner's network is told the task of every input (task_incremental), so it "
            "cannot infer which tasks inputs come from; learn without task ids for that."
        )
    if y is None:
        table = state.log_densities(state.features(x))
    else:
        data = read(state, x, y, state.tasks[-1] if state.tasks else "")
        table = state.log_densities(data.x, data.y)
    return infer_proportions(table.cpu().numpy(), state.tasks, concentration, sample_weight)

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
from ibcl.ram import bytes_per_row, check_memory, rows_at_once
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


def predict_many(state: State, x: Any, preferences: Any, task: str | None) -> Tensor:
    """Return the answers of many preferences; see `IBCL.predict_many`."""
    matrix = torch.as_tensor(preference_matrix(preferences, state.tasks))
    features = state.features(x, task)
    rows, columns = len(features), state.predictives.columns(features)
    check_memory(
        4 * len(matrix) * rows * columns,
        f"The answers of {len(matrix):,} preferences to {rows:,} rows",
        "ask for fewer of them at once, as predict_blocks(numbers=...) does",
    )
    parts = torch.split(features, rows_at_once(bytes_per_row(len(state.tasks), columns)))
    if len(parts) <= 1:
        return _decoded(state, state.predictives.answers(features).crossed(matrix))
    result = torch.empty(len(matrix), rows, columns)
    begin = 0
    for part in parts:
        answers = _decoded(state, state.predictives.answers(part).crossed(matrix))
        result[:, begin : begin + len(part)] = answers
        begin += len(part)
    return result


def predict_blocks(
    state: State, x: Any, preferences: Any, task: str | None, numbers: int | None
) -> Iterator[Tensor]:
    """Return the answers of many preferences block by block; see `IBCL.predict_blocks`."""
    matrix = torch.as_tensor(preference_matrix(preferences, state.tasks))
    features = state.features(x, task)
    rows, columns = len(features), state.predictives.columns(features)
    together = len(matrix) if numbers is None else numbers // max(1, rows * columns)
    check_memory(
        rows * bytes_per_row(len(state.tasks), columns) + 4 * together * rows * columns,
        f"The answers of {len(state.tasks):,} tasks to {rows:,} rows",
        "ask for fewer rows at once",
    )
    blocks = state.predictives.answers(features).blocks(matrix, numbers)
    return (_decoded(state, block) for block in blocks)


def _decoded(state: State, answers: Tensor) -> Tensor:
    """Answers in the user's units."""
    if state.encoder is None or state.likelihood.classification:
        return answers
    return torch.as_tensor(state.encoder.decode(answers)).to(answers.dtype)


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
            "This learner's inputs carry a task id (task_incremental), so it cannot "
            "infer which tasks inputs come from; learn without task ids for that."
        )
    labels = None
    if y is None:
        features = state.features(x)
    else:
        features, labels, _ = read(state, x, y, state.tasks[-1] if state.tasks else "")
    rows, tasks = len(features), len(state.tasks)
    # The densities, and the shares that are inferred from them.
    check_memory(32 * rows * tasks, f"Densities of {rows:,} rows in {tasks:,} tasks", "give fewer")
    size = rows_at_once(bytes_per_row(tasks, state.predictives.columns(features)))
    table = torch.cat(
        [
            state.log_densities(part, None if labels is None else labels[begin : begin + size])
            for begin, part in zip(
                range(0, max(1, rows), size), torch.split(features, size), strict=True
            )
        ]
    )
    return infer_proportions(table.cpu().numpy(), state.tasks, concentration, sample_weight)

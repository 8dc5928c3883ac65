"""A preference: a point on the simplex, one weight per task.

Weights off the simplex are rejected and not rescaled: a user who writes 0.8 and 0.3 made a mistake
that silently dividing by 1.1 would hide. Only what rounding to four digits does is undone: a sum
from 0.9999 to 1.0001 becomes 1. Who wants weights divided by their sum says so: ``normalise=True``.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcl.names import listed

TOLERANCE = 1e-6
"""How far a sum may be from 1 that is kept as it is: what single precision does to it."""
ROUNDING = 1e-4
"""How far a sum may be from 1 that is divided out: what rounding to four digits does to it."""
# The sum 1.0001 itself, in double precision, is a little farther away than the tolerance.
_SLACK = 1e-12


class Preference(Mapping[str, float]):
    """An immutable mapping from task names to weights that are non-negative and sum to 1.

    Examples
    --------
    >>> preference = Preference({"sci-fi": 0.8, "documentary": 0.2})
    >>> preference["sci-fi"]
    0.8
    >>> print(preference)
    sci-fi=0.8,documentary=0.2
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        checked: dict[str, float] = {}
        for task, weight in weights.items():
            try:
                value = float(weight)
            except (TypeError, ValueError):
                raise ValueError(
                    f"The weight of task {task!r} must be a number, not {weight!r}."
                ) from None
            if not math.isfinite(value) or value < 0:
                raise ValueError(
                    f"The weight of task {task!r} must be finite and not negative, not {value}."
                )
            # Without the sign of a zero.
            checked[str(task)] = value + 0.0
        for task, value in checked.items():
            if value > 1 + ROUNDING + _SLACK:
                raise ValueError(
                    "The weights of a preference must sum to 1, but that of task "
                    f"{task!r} alone is {value:.6g}."
                )
        total = math.fsum(checked.values())
        if abs(total - 1) > ROUNDING + _SLACK:
            raise ValueError(
                "The weights of a preference must sum to 1 (from 0.9999 to 1.0001), but these "
                f"sum to {total:.6g}; correct them, or divide each by their sum."
            )
        if abs(total - 1) > TOLERANCE:
            checked = {task: value / total for task, value in checked.items()}
        self._weights = checked

    def __getitem__(self, task: str) -> float:
        return self._weights[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def __hash__(self) -> int:
        return hash(frozenset(self._weights.items()))

    def __str__(self) -> str:
        return ",".join(f"{task}={weight:g}" for task, weight in self._weights.items())

    def __repr__(self) -> str:
        return f"Preference({self._weights!r})"

    @classmethod
    def parse(cls, value: Any, tasks: Sequence[str], *, normalise: bool = False) -> Preference:
        """Read a preference over the given tasks, and check it against them.

        Parameters
        ----------
        value
            A mapping or a string ``"sci-fi=0.8,documentary=0.2"`` that names every task (the number
            2020 names the task "2020"), or a vector (or string of numbers) in the order of the
            tasks. A single task's name is its vertex: weight 1 for it and 0 for all others.
        normalise
            Divide the weights by their sum, whatever it is; they must not be negative.

        Examples
        --------
        >>> str(Preference.parse("0.8, 0.2", ["sci-fi", "documentary"]))
        'sci-fi=0.8,documentary=0.2'
        >>> str(Preference.parse("documentary", ["sci-fi", "documentary"]))
        'sci-fi=0,documentary=1'
        >>> str(Preference.parse("4, 1", ["sci-fi", "documentary"], normalise=True))
        'sci-fi=0.8,documentary=0.2'
        """
        if not tasks:
            raise ValueError("There is no task yet: learn one before giving a preference.")
        if isinstance(value, str):
            value = _from_string(value, tasks)
        value = _plain(value, tasks)
        if isinstance(value, Mapping):
            return cls._made(_in_order(value, tasks), normalise)
        try:
            vector = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                "A preference is a mapping, a vector of numbers or a string such as "
                f"'a=0.8,b=0.2', not {value!r}."
            ) from None
        if vector.ndim == 0:
            vector = vector[None]
        if vector.ndim > 1:
            raise ValueError(
                f"A preference is one vector of weights, but these have the shape {vector.shape}; "
                "predict_many and models take many preferences."
            )
        if vector.shape != (len(tasks),):
            raise ValueError(
                f"The preference has {vector.size} weights, but there are {len(tasks)} tasks: "
                f"{listed(tasks)}."
            )
        return cls._made(dict(zip(tasks, vector.tolist(), strict=True)), normalise)

    @classmethod
    def _made(cls, weights: Mapping[str, Any], normalise: bool) -> Preference:
        return cls(_normalised(weights) if normalise else weights)

    def vector(self) -> NDArray[np.float64]:
        """Return the weights in the order of the tasks."""
        return np.array(list(self._weights.values()))


def _normalised(weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """Divide weights by their sum; what is no weight at all is left to be refused."""
    try:
        values = {task: float(weight) for task, weight in weights.items()}
    except (TypeError, ValueError):
        return weights
    largest = max(values.values(), default=0.0)
    if min(values.values(), default=0.0) < 0 or not math.isfinite(largest):
        return values
    if not largest > 0:
        raise ValueError("The weights of a preference are all zero; give some task a weight.")
    # By the largest first, so that no sum is too large for a number.
    shares = {task: value / largest for task, value in values.items()}
    total = math.fsum(shares.values())
    return {task: share / total for task, share in shares.items()}


def _plain(value: Any, tasks: Sequence[str]) -> Any:
    """Turn tensors into arrays, and what pandas knows names of into mappings by these names.

    What pandas only counts, 0, 1, ..., is in the order of the tasks, unless they are called so.
    """
    # Whoever holds one of these has imported the package it comes from.
    torch, pandas = sys.modules.get("torch"), sys.modules.get("pandas")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().cpu().double().numpy()
    if pandas is not None and isinstance(value, pandas.Series | pandas.DataFrame):
        names = value.index if isinstance(value, pandas.Series) else value.columns
        if not names.is_unique:
            raise ValueError("The preference names a task more than once.")
        counted = names.equals(pandas.RangeIndex(len(names)))
        return value.to_numpy() if counted and set(map(str, names)) != set(tasks) else dict(value)
    return value


def _in_order(value: Mapping[Any, Any], tasks: Sequence[str]) -> dict[str, Any]:
    # A task's name is text: one that was given as the number 2020 is found as such again.
    named = {str(task): weight for task, weight in value.items()}
    if len(named) < len(value):
        raise ValueError("The preference names a task more than once.")
    known = set(tasks)
    unknown = [task for task in named if task not in known]
    if unknown:
        raise ValueError(f"Unknown task {listed(unknown)}; known tasks are {listed(tasks)}.")
    missing = [task for task in tasks if task not in named]
    if missing:
        raise ValueError(
            f"The preference leaves out {listed(missing)}; give every task a weight (0 for no "
            "interest)."
        )
    return {task: named[task] for task in tasks}


def _from_string(text: str, tasks: Sequence[str]) -> Any:
    if text.strip() in tasks:
        return {task: float(task == text.strip()) for task in tasks}
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if parts and all("=" in part for part in parts):
        # The last '=' separates, so that a task's name may hold one itself.
        pairs = [part.rsplit("=", 1) for part in parts]
        names = [name.strip() for name, _ in pairs]
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise ValueError(f"The preference names {listed(sorted(repeated))} more than once.")
        return {name: weight.strip() for name, (_, weight) in zip(names, pairs, strict=True)}
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise ValueError(
            f"Cannot read the preference {text!r}; write it as 'a=0.8,b=0.2', as '0.8,0.2' in the "
            f"order of the tasks, or as one task's name; known tasks are {', '.join(tasks)}."
        ) from None


def sample_preferences(
    tasks: int, n: int, seed: int = 0, concentration: float | None = None
) -> NDArray[np.float64]:
    """Draw n preferences over so many tasks; the result has shape (n, tasks).

    By default the paper's: uniform numbers divided by their sum. With a concentration they come
    from a symmetric Dirichlet distribution instead; small ones (0.2) give sparse preferences.

    Examples
    --------
    >>> sample_preferences(1, 2).tolist()
    [[1.0], [1.0]]
    """
    if not _whole(tasks, n) or tasks < 1 or n < 0:
        raise ValueError(f"Cannot draw {n} preferences over {tasks} tasks.")
    if not _whole(seed) or seed < 0:
        raise ValueError(f"The seed must be a whole number from 0 up, not {seed!r}.")
    generator = np.random.default_rng(seed)
    if concentration is not None:
        if (
            not isinstance(concentration, int | float | np.floating)
            or not 0 < concentration < np.inf
        ):
            raise ValueError(f"The concentration must be positive, not {concentration!r}.")
        return generator.dirichlet(np.full(tasks, concentration), n)
    draws = 1 - generator.random((n, tasks))
    weights: NDArray[np.float64] = draws / draws.sum(1, keepdims=True)
    return weights


def _whole(*numbers: object) -> bool:
    return all(isinstance(number, int | np.integer) for number in numbers)


def preference_grid(tasks: int, steps: int) -> NDArray[np.float64]:
    """All preferences whose weights are multiples of 1/steps, in lexicographic order.

    Examples
    --------
    >>> preference_grid(2, 2).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    """
    if not _whole(tasks, steps) or tasks < 1 or steps < 1:
        raise ValueError(f"Cannot lay a grid of {steps} steps over {tasks} tasks.")
    if tasks == 1:
        return np.ones((1, 1))
    rows = [
        [first, *rest]
        for first in range(steps + 1)
        for rest in _compositions(steps - first, tasks - 1)
    ]
    return np.array(rows) / steps


def _compositions(total: int, parts: int) -> Iterator[list[int]]:
    if parts == 1:
        yield [total]
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield [first, *rest]


def preference_matrix(
    values: Any,
    tasks: Sequence[str],
    *,
    normalise: bool = False,
    users: Sequence[Any] | None = None,
) -> NDArray[Any]:
    """Read many preferences at once; the result has shape (n, tasks).

    Parameters
    ----------
    normalise
        Divide the weights of each by their sum, whatever it is.
    users
        Whose they are, to be named where one is refused.

    Examples
    --------
    >>> preference_matrix([[3, 1], "b"], ["a", "b"], normalise=True).tolist()
    [[0.75, 0.25], [0.0, 1.0]]
    >>> preference_matrix([[0.8, 0.3]], ["a", "b"], users=["ann"])
    Traceback (most recent call last):
    ...
    ValueError: Row 1, user 'ann': The weights of a preference must sum to 1 (from 0.9999 to \
1.0001), but these sum to 1.1; correct them, or divide each by their sum.
    """
    pandas = sys.modules.get("pandas")
    table = pandas is not None and isinstance(values, pandas.DataFrame)
    values = _plain(values, tasks)
    if table and isinstance(values, Mapping):
        columns = _in_order(values, tasks).values()
        values = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    listed = isinstance(values, Iterable) and getattr(values, "ndim", 1) > 0
    if not listed or isinstance(values, str | Mapping):
        raise ValueError(f"Give preferences as a list or a matrix, not {values!r}.")

    def read(row: int, value: Any) -> NDArray[np.float64]:
        try:
            return Preference.parse(value, tasks, normalise=normalise).vector()
        except ValueError as error:
            whose = "" if users is None else f", user {users[row]!r}"
            raise ValueError(f"Row {row + 1}{whose}: {error}") from None

    matrix = values if isinstance(values, np.ndarray) else None
    if matrix is None or matrix.ndim != 2 or matrix.shape[1] != len(tasks):
        rows = [read(row, value) for row, value in enumerate(values)]
        return np.stack(rows) if rows else np.zeros((0, len(tasks)))
    result = matrix.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        off = abs(result.sum(1) - 1)
    certain = off <= (0 if normalise else TOLERANCE)
    # Whole columns of small rows are compared far faster than row by row.
    if not result.min(initial=0) >= 0:
        certain &= (result >= 0).all(1)
    for row in np.flatnonzero(~certain):
        result[row] = read(int(row), result[row])
    return result

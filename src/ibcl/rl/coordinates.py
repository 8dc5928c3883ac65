r"""From a preference between objectives to weights of the tasks that were learnt.

A task is itself a preference w_k over the objectives, usually but not always an extreme one. A new
preference w is written as the convex combination of learnt tasks that lie closest to it,

    min_λ Σ_k λ_k ‖w_k − w‖²   subject to   Σ_k λ_k w_k = w,  λ on the simplex,

a linear programme whose solution is the Delaunay cell around w. With two objectives that is the
two neighbours on the line between the extremes, weighted by nearness; with only the extremes
learnt it is λ = w, the paper's combination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from ibcl.preference import Preference


def task_weights(tasks: Mapping[str, Sequence[float]], preference: ArrayLike) -> Preference:
    """Weights over tasks, given each task's preference over objectives.

    Examples
    --------
    >>> tasks = {"energy": (0.0, 1.0), "jog": (0.4, 0.6), "speed": (1.0, 0.0)}
    >>> str(task_weights(tasks, [0.7, 0.3]))
    'energy=0,jog=0.5,speed=0.5'
    """
    wanted = np.asarray(preference, dtype=np.float64)
    known = np.array([list(weights) for weights in tasks.values()], dtype=np.float64)
    solution = linprog(
        np.square(known - wanted).sum(1),
        A_eq=np.vstack([known.T, np.ones(len(known))]),
        b_eq=np.append(wanted, 1.0),
        method="highs",
    )
    if solution.x is None:
        names = ", ".join(f"{name} {tuple(weights)}" for name, weights in tasks.items())
        raise ValueError(
            f"The preference {wanted.tolist()} lies outside the tasks to combine ({names}); "
            "learn the extreme it leans to first."
        )
    weights = np.clip(solution.x, 0, None).round(12)
    return Preference(dict(zip(tasks, (weights / weights.sum()).tolist(), strict=True)))

"""How a preference over some tasks is read when the knowledge base has others.

A preference may be older than the knowledge base: tasks learnt since get weight zero, or a share
the user (or the service) chose, taken evenly from the others; the weight of tasks that are gone is
given back to those that remain. Whatever is changed is said.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ibcl.preference import Preference
from ibcl.serve.errors import ApiError


class Fitted(NamedTuple):
    """A preference over all tasks, and what had to be done for it."""

    weights: dict[str, float]
    filled: dict[str, float]
    """Tasks it did not name, and the weight they got."""
    dropped: dict[str, float]
    """Tasks that are gone, and the weight they had."""


def given(weights: Mapping[str, float], tasks: Sequence[str]) -> Fitted:
    """Read the preference of a request: known tasks only, those left out get zero.

    Examples
    --------
    >>> given({"sci-fi": 1.0}, ["sci-fi", "horror"]).filled
    {'horror': 0.0}
    >>> given({"sci-fi": 0.49995, "horror": 0.49995}, ["sci-fi", "horror"]).weights
    {'sci-fi': 0.5, 'horror': 0.5}
    """
    filled = {task: 0.0 for task in tasks if task not in weights}
    if len(filled) + len(weights) > len(tasks):
        unknown = next(task for task in weights if task not in tasks)
        raise ApiError(
            409,
            f"The preference names {unknown!r}, which is no task of the knowledge base; its "
            f"tasks are {', '.join(tasks)}.",
        )
    try:
        exact = Preference(weights)
    except ValueError as error:
        raise ApiError(422, str(error)) from None
    return Fitted({task: exact.get(task, 0.0) for task in tasks}, filled, {})


def stored(
    weights: Mapping[str, float],
    tasks: Sequence[str],
    share: float = 0.0,
    others: Collection[str] = (),
) -> Fitted:
    """Read a stored preference, whatever the knowledge base has learnt or forgotten since.

    Parameters
    ----------
    others
        Tasks that the preference does not know, although it knows tasks of the same names.

    Examples
    --------
    >>> stored({"sci-fi": 1.0}, ["sci-fi", "horror"], share=0.2).weights
    {'sci-fi': 0.8, 'horror': 0.2}
    >>> stored({"sci-fi": 0.5, "war": 0.5}, ["sci-fi"]).dropped
    {'war': 0.5}
    >>> stored({"sci-fi": 0.5, "war": 0.5}, ["sci-fi", "war"], others={"war"}).weights
    {'sci-fi': 1.0, 'war': 0.0}
    """
    known = set(tasks) - set(others)
    dropped = {task: weight for task, weight in weights.items() if task not in known}
    remaining = math.fsum(weight for task, weight in weights.items() if task in known)
    new = [task for task in tasks if task not in weights or task not in known]
    # New tasks never take more than all of them would have under equal weights.
    each = min(share, 1 / len(tasks)) if new else 0.0
    if remaining <= 0:
        if not each:
            raise ApiError(
                409,
                "All tasks that the stored preference gives weight to are gone; store another one.",
            )
        each = 1 / len(new)
    factor = (1 - each * len(new)) / remaining if remaining > 0 else 0.0
    if not dropped and not each:
        factor = 1.0
    unknown = set(new)
    fitted = {task: each if task in unknown else weights[task] * factor for task in tasks}
    return Fitted(fitted, dict.fromkeys(new, each), dropped)

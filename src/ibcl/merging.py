"""Uniting learners: what two of them learnt independently, as if one had learnt all of it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from ibcl.encoding import same_encoder
from ibcl.growth import grown_together
from ibcl.knowledge import KnowledgeBase, merged, same_gaussians
from ibcl.knowledge.revision import check_approximation
from ibcl.learner import IBCL
from ibcl.state import State


def merge(a: IBCL, b: IBCL, approximation: str | None = None) -> IBCL:
    """Unite what two learners learnt independently, with one network; a's tasks come first.

    Exact for independent tasks: one learner of all the tasks would know the same. Tables may have
    brought categories or classes to the one that the other has not. Everything
    that does not concern the posteriors (seed, alpha, inference) is a's.

    Parameters
    ----------
    approximation
        ``"rebase"`` accepts, for chains, that b's posteriors are moved on top of a's last ones.

    Examples
    --------
    >>> import ibcl, torch
    >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> def site(column, task):
    ...     learner = ibcl.IBCL(ibcl.networks.linear(2), priors=[3.0])
    ...     _ = learner.learn(x, x[:, column] > 0, task=task)
    ...     return learner
    >>> merge(site(0, "north"), site(1, "south")).tasks
    ('north', 'south')
    """
    check_approximation(approximation)
    _check_learners(a, b)
    a, b = _in_one_space(a, b)
    _check_mergeable(a, b, approximation)
    if not a.tasks or not b.tasks:
        source = a if a.tasks else b
        return _learner(a, b, source, copy.copy(source.knowledge))
    return _learner(a, b, a, merged(a.knowledge, b.knowledge, approximation))


def _in_one_space(a: IBCL, b: IBCL) -> tuple[IBCL, IBCL]:
    """Return learners with room for the categories and classes of both; these if they have."""
    found = []
    for learner, state in zip((a, b), grown_together(a.state, b.state), strict=True):
        if state is not learner.state:
            larger = IBCL.from_state(state)
            larger.metadata, larger.storage = learner.metadata, learner.storage
            learner = larger
        found.append(learner)
    return found[0], found[1]


def _learner(a: IBCL, b: IBCL, source: IBCL, knowledge: KnowledgeBase) -> IBCL:
    """Return a learner that knows this, with a's settings as far as the source settled them."""
    known = source.state
    settled = known.settled
    if settled is not None:
        settled = replace(settled, alpha=a.alpha, seed=a.seed)
    state = State(a.network, knowledge, a.given, settled, known.reasons, known.encoder)
    united = IBCL.from_state(state)
    united.metadata = {**b.metadata, **a.metadata}
    united.storage = a.storage
    return united


def _check_learners(*learners: IBCL) -> None:
    """Refuse what is no learner, such as the path of one."""
    for learner in learners:
        if not isinstance(learner, IBCL):
            raise ValueError(f"Only learners can be united, not {type(learner).__name__}.")


def _check_mergeable(a: IBCL, b: IBCL, approximation: str | None) -> None:
    """Refuse learners whose posteriors do not mean the same, and say what differs."""
    if a.task_incremental is not None or b.task_incremental is not None:
        raise ValueError(
            "Learners that append a task id to their inputs cannot be merged: both have used the "
            "same ids."
        )
    if a.network.fingerprint != b.network.fingerprint:
        raise ValueError("The learners cannot be merged: their networks differ.")
    settings: dict[str, tuple[Any, Any]] = {
        f"metadata[{key!r}]": (a.metadata[key], b.metadata[key])
        for key in a.metadata.keys() & b.metadata.keys()
    }
    if not same_encoder(a.encoder, b.encoder):
        raise ValueError(
            "The learners cannot be merged: they read their inputs or classes differently."
        )
    if a.tasks and b.tasks:
        ours, theirs = a.knowledge.priors, b.knowledge.priors
        movable = approximation is not None and len(ours) == len(theirs)
        if not same_gaussians(ours, theirs) and not movable:
            raise ValueError(
                "The learners cannot be merged exactly: their priors differ; make both with the "
                "same priors=, or accept approximation='rebase', which moves the second's "
                "evidence onto the first's priors."
            )
        settings |= {
            "likelihood": (a.state.settings.likelihood, b.state.settings.likelihood),
            "pooling": (a.state.rule, b.state.rule),
            "d": (a.knowledge.d, b.knowledge.d),
            "distance": (a.knowledge.distance, b.knowledge.distance),
            "independent": (a.knowledge.independent, b.knowledge.independent),
        }
    for name, (ours, theirs) in settings.items():
        if ours != theirs:
            raise ValueError(
                f"The learners cannot be merged: their {name} differs ({ours!r} and {theirs!r})."
            )
    common = [task for task in a.tasks if task in b.tasks]
    if common:
        raise ValueError(f"The learners cannot be merged: both have learnt {', '.join(common)}.")

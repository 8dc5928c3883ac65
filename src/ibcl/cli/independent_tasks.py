"""Independent tasks, each learnt by a worker of its own, and united as if one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import ibcl
from ibcl.engines import Engine
from ibcl.store import packed, unpacked

Reader = Callable[[ibcl.IBCL, Path], tuple[Any, Any, Any]]
"""Reads a file for a learner: its table, labels and weights."""


@dataclass(frozen=True)
class Site:
    """What every worker begins with: a learner of no tasks, and how files are read."""

    contents: dict[str, bytes]
    read: Reader
    threads: int
    """As many as here, since sums of other orders have other last bits."""


def learn_independently(
    learner: ibcl.IBCL, files: Sequence[Path], read: Reader, engine: Engine
) -> list[str]:
    """Learn one task per file with a learner that has settled its settings; return the new tasks.

    Not for tasks that judge those learnt before (`ibcl.experts.Expert.judges_others`).

    Bit for bit what learning one file after another gives; only where posteriors are kept rounded
    do distances between them differ, since here they are measured before that. Where one fails, the
    others are not added either.
    """
    if not learner.knowledge.independent:
        raise ValueError(
            "Each task of this knowledge base is learnt from the one before, so they cannot be "
            "learnt at the same time: give one file after another, or make it with --independent"
        )
    names = [file.stem for file in files]
    for name in names:
        learner.knowledge.check_new(name)
    nothing = replace(learner.state, knowledge=learner.knowledge.empty())
    site = Site(packed(nothing), read, torch.get_num_threads())
    absolute = [file.absolute() for file in files]
    found, failed = {}, []
    for outcome in engine.run(partial(_learn_one, site), absolute):
        if outcome.result is None:
            failed.append(f"{outcome.item}: {outcome.error}")
        else:
            found[outcome.item] = outcome.result
    if failed:
        raise ValueError("Nothing is added, since these failed: " + "; ".join(sorted(failed)))
    for file in absolute:
        learner.adopt(_copy(found[file]))
    return names


def _learn_one(site: Site, file: Path) -> dict[str, bytes]:
    torch.set_num_threads(site.threads)
    learner = _copy(site.contents)
    frame, y, weights = site.read(learner, file)
    learner.learn(frame, y, task=file.stem, sample_weight=weights)
    return packed(learner.state)


def _copy(contents: dict[str, bytes]) -> ibcl.IBCL:
    return ibcl.IBCL.from_state(unpacked(contents).state)

"""Write small knowledge bases of every kind, and what they answer, with the version that runs this.

``python tests/golden/write.py FOLDER`` was run once with version 0.2, and so was ``write_module``;
every later version must open what they wrote and answer the same (`test_golden.py`). Run them again
only to add the bases of another version beside these.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from answers import answers, probes

import ibcl

QUICK = ibcl.MeanFieldVI(epochs=3, learning_rate=0.02, batch_size=32)
CENTRES = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 1.0, 0.0], [0.0, -2.0, 1.0]])
SIZE = 60


def _inputs(task: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(task)
    return CENTRES[task] + torch.randn(SIZE, 3, generator=generator)


def _labels(kind: str, task: int, x: torch.Tensor) -> torch.Tensor:
    local = x - CENTRES[task]
    signal = local[:, task] - 0.5 * local[:, (task + 1) % 3]
    if kind == "binary":
        return (signal > 0).long()
    if kind == "shared":
        return local.argmax(1)
    if kind == "different":
        return torch.tensor([0, 1, 3])[task] + (signal > 0).long()
    if kind == "regression":
        return signal + 0.3 * local[:, 0].sin()
    generator = torch.Generator().manual_seed(7 + task)
    return torch.poisson(torch.exp(0.5 * signal.clamp(max=2)), generator=generator).long()


def _learner(kind: str, network: torch.nn.Module, tasks: int = 3, **settings: Any) -> ibcl.IBCL:
    learner = ibcl.IBCL(network, **settings)
    for task in range(tasks):
        x = _inputs(task)
        learner.learn(x, _labels(kind, task, x), task="abc"[task])
    return learner


def learners() -> Iterator[tuple[str, ibcl.IBCL]]:
    """Yield learners by name."""
    linear, mlp = ibcl.networks.linear, ibcl.networks.mlp
    for rule in ("routed", "evidence", "wasserstein", "mixture"):
        yield f"binary-{rule}", _learner("binary", linear(3), pooling=rule)
        yield (
            f"network-{rule}",
            _learner("binary", mlp(3, hidden=4), pooling=rule, inference=QUICK, priors=[1.0]),
        )
    yield "defaults", _learner("binary", ibcl.networks.random_features(3, 16, skip=True))
    yield "shared-classes", _learner("shared", linear(3, 3))
    yield "categorical", _learner("shared", linear(3, 3), likelihood="categorical")
    yield "different-classes", _learner("different", linear(3, 5))
    yield "regression", _learner("regression", ibcl.networks.random_features(3, 8))
    yield "counts", _learner("counts", linear(3), likelihood="poisson")
    yield "told-tasks", _learner("binary", linear(6), task_incremental=3)
    paper = ibcl.IBCL.as_in_paper(mlp(3, hidden=4), inference=QUICK, priors=[2.0, 2.5])
    for task in range(3):
        x = _inputs(task)
        paper.learn(x, _labels("binary", task, x), task="abc"[task])
    yield "paper", paper
    for name, rule in {
        "preference-heads": ibcl.Routed(heads="preference", support=0.6),
        "evidence-gate": ibcl.Routed(gate="evidence", temperature=2.0),
        "one-covariance": ibcl.Routed(gate="moments"),
        "own-covariances": ibcl.Routed(gate="classes"),
    }.items():
        yield name, _learner("binary", linear(3), pooling=rule)
    yield "low-rank", _learner("binary", linear(3), inference=ibcl.DenseVI(rank=2), priors=[2.0])
    table = _table(0)
    classifier = ibcl.IBCLClassifier(width=12)
    classifier.partial_fit(table, _words(table), task="a")
    later = _table(1)
    classifier.partial_fit(later, _words(later, 1), task="b")
    yield "table-classes", classifier.learner_
    regressor = ibcl.IBCLRegressor(width=12).partial_fit(table, _values(table), task="a")
    yield "table-values", regressor.partial_fit(later, _values(later) + 1, task="b").learner_


def _table(task: int) -> pd.DataFrame:
    rng = np.random.default_rng(task)
    age = np.where(rng.random(80) < 0.1, np.nan, rng.normal(40 + 10 * task, 8, 80))
    town = rng.choice(np.array(["Rome", "Oslo", "Pisa", None], dtype=object), 80)
    return pd.DataFrame({"age": age, "town": town, "member": rng.random(80) < 0.5})


def _words(table: pd.DataFrame, shift: int = 0) -> np.ndarray:
    low = table["age"].fillna(40) < 40 + 10 * shift
    return np.where(low ^ (table["town"] == "Oslo"), "yes", "no")


def _values(table: pd.DataFrame) -> np.ndarray:
    return (table["age"].fillna(40) / 10 + (table["town"] == "Rome")).to_numpy(dtype=float)


def own_module() -> torch.nn.Module:
    """A module that no version of ibcl built, with weights of its own."""
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in layers.parameters():
            value.copy_(torch.randn(value.shape, generator=generator))
    return layers


def further(learner: ibcl.IBCL) -> ibcl.IBCL:
    """Learn one more task than the two that were saved."""
    x = _inputs(2)
    learner.learn(x, _labels("binary", 2, x), task="c")
    return learner


def write_module(folder: Path) -> None:
    """Write the base of a module of one's own, and what it answers after a further task."""
    _learner("binary", own_module(), tasks=2, inference=QUICK).save(folder / "module")
    opened = further(ibcl.load(folder / "module", network=own_module()))
    found = answers(opened, probes("module"))
    (folder / "module.json").write_text(json.dumps(found, indent=None) + "\n")


def main(folder: Path) -> None:
    """Write all bases, some of their models, and the answers of all."""
    found = {}
    for name, learner in learners():
        storage = {"evidence-gate": "float16", "own-covariances": "eigenvectors:2"}.get(name)
        learner.save(folder / name, storage=storage)
        opened = ibcl.load(folder / name)
        model = opened.model([0.7, 0.3] if len(opened.tasks) == 2 else [0.5, 0.3, 0.2])
        model.save(folder / f"{name}.safetensors")
        found[name] = answers(opened, probes(name))
    (folder / "answers.json").write_text(json.dumps(found, indent=None) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Small tasks of every kind, and learners taught on them with every rule.

Tasks lie in different places of the features' space, as tasks that can be routed do.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import ibcl

INPUTS = 3
SIZE = 60
# Where each task's inputs lie.
CENTRES = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 1.0, 0.0], [0.0, -2.0, 1.0]])
TASKS = ("a", "b", "c")


class Task(NamedTuple):
    x: Tensor
    y: Tensor


def inputs(task: int, size: int = SIZE, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(100 * seed + task)
    spread = torch.tensor([1.0, 0.5 + 0.25 * task, 1.0])
    return CENTRES[task] + spread * torch.randn(size, INPUTS, generator=generator)


def labels(kind: str, task: int, x: Tensor, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(7 + 100 * seed + task)
    local = x - CENTRES[task]
    signal = local[:, task] - 0.5 * local[:, (task + 1) % INPUTS]
    noise = torch.randn(len(x), generator=generator)
    if kind in ("binary", "random features", "mlp", "module"):
        return (signal + 0.5 * noise > 0).long()
    if kind == "shared classes":
        return local.argmax(1)
    if kind == "different classes":
        # Tasks 0 and 1 share class 1, and nobody has ever seen class 5.
        return torch.tensor([0, 1, 3])[task] + (signal > 0).long()
    if kind == "regression":
        return signal + 0.3 * noise
    if kind == "two outputs":
        return torch.stack([signal, local[:, 0]], 1) + 0.3 * noise[:, None]
    assert kind == "counts"
    rates = torch.exp(0.5 * signal + 0.3).double()
    return torch.poisson(rates, generator=generator).long()


class Convolution(nn.Module):
    """A module of somebody's own, trained throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(1, 2, 2)
        self.head = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(torch.tanh(self.convolution(x[:, None])).mean(2))
        return output


QUICK = ibcl.MeanFieldVI(epochs=4, learning_rate=0.02, batch_size=32)
KINDS = {
    "binary": {"outputs": 1},
    # What estimators and the command line put before a head by default.
    "random features": {
        "network": ibcl.networks.random_features(INPUTS, width=8, skip=True),
        "priors": [3.0],
    },
    "shared classes": {"outputs": 3},
    "different classes": {"outputs": 6},
    "regression": {"outputs": 1, "likelihood": ibcl.Normal(0.3)},
    "two outputs": {"outputs": 2, "likelihood": ibcl.Normal(0.3)},
    "counts": {"outputs": 1, "likelihood": "poisson"},
    "mlp": {"network": ibcl.networks.mlp(INPUTS, hidden=4), "inference": QUICK, "priors": [1.0]},
    "module": {"network": Convolution(), "inference": QUICK, "priors": [1.0]},
}
CLASSES = ("binary", "random features", "shared classes", "different classes", "mlp", "module")
RULES: dict[str, str | ibcl.Routed] = {
    "routed": "routed",
    "routed1": "routed1",
    "routed by preference": ibcl.Routed(heads="preference"),
    "routed by moments": ibcl.Routed(gate="moments"),
    "routed by evidence": ibcl.Routed(gate="evidence"),
    "evidence": "evidence",
    "wasserstein": "wasserstein",
    "mixture": "mixture",
}
# Mean-field evidence is cut back with a warning, and says nothing of moments.
CASES = [
    (kind, rule)
    for kind in KINDS
    for rule in RULES
    if not (kind in ("mlp", "module") and rule in ("evidence", "routed by evidence"))
]
ROUTED_CASES = [(kind, rule) for kind, rule in CASES if rule.startswith("routed")]
IDS = [f"{kind}-{rule}" for kind, rule in CASES]
ROUTED_IDS = [f"{kind}-{rule}" for kind, rule in ROUTED_CASES]


def learner(kind: str, rule: str = "routed", **changes: object) -> ibcl.IBCL:
    settings = dict(KINDS[kind])
    outputs = settings.pop("outputs", None)
    if outputs is not None:
        settings["network"] = ibcl.networks.linear(INPUTS, outputs)
        settings["priors"] = [3.0]
    common = {"pooling": RULES[rule], "d": 0, "independent": True, "seed": 3}
    return ibcl.IBCL(**{**common, **settings, **changes})


def task(kind: str, number: int, size: int = SIZE, seed: int = 0) -> Task:
    x = inputs(number, size, seed)
    return Task(x, labels(kind, number, x, seed))


def teach(made: ibcl.IBCL, kind: str, tasks: str = "abc") -> ibcl.IBCL:
    for name in tasks:
        made.learn(*task(kind, TASKS.index(name)), task=name)
    return made


@cache
def taught(kind: str, rule: str = "routed") -> ibcl.IBCL:
    """A learner of three tasks, made once; nobody may change it."""
    return teach(learner(kind, rule), kind)


def probes(size: int = 40) -> Tensor:
    """Inputs like the tasks', between them, and far from all of them."""
    parts = [inputs(number, size // 4, seed=5) for number in range(3)]
    generator = torch.Generator().manual_seed(11)
    far = 15 * torch.randn(size - 3 * (size // 4), INPUTS, generator=generator)
    return torch.cat([*parts, far])


def preferences() -> np.ndarray:
    """Interior ones, edges with a weight of exactly zero, and vertices."""
    return np.vstack(
        [
            ibcl.sample_preferences(3, 4, seed=1),
            [[0.5, 0.5, 0.0], [0.0, 0.3, 0.7], [1 / 3, 1 / 3, 1 / 3], [1 - 1e-9, 1e-9, 0.0]],
            np.eye(3),
        ]
    )

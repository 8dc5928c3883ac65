"""Learners of every kind that can be saved, and what it means that two are the same."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ibcl
from ibcl.gaussians import Gaussian

TASKS = ("a", "b", "c")
Contents = dict[str, Any]
SAVE = re.compile(r"-[0-9a-f]{16}(?=\.safetensors$)")
"""What tells the files of one save from those of another."""


def inputs(n: int = 40, features: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, features, generator=torch.Generator().manual_seed(seed))


class Normalised(nn.Module):
    """A module the library did not build, with buffers and a parameter that is not trained."""

    def __init__(self, shift: float = 0.5) -> None:
        super().__init__()
        self.register_buffer("shift", torch.full((4,), shift))
        self.scale = nn.Parameter(torch.full((4,), 2.0), requires_grad=False)
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer((x - self.shift) * self.scale)


def labels(kind: str, x: Tensor, task: int) -> Tensor:
    if kind == "regression":
        return x[:, task] - 0.5 * x[:, 3]
    if kind.endswith("classes"):
        return x[:, task : task + 3].argmax(1) if task < 2 else x[:, :3].argmax(1)
    return x[:, task] > 0


def make(kind: str, **changes: object) -> ibcl.IBCL:
    quick = ibcl.MeanFieldVI(epochs=2, batch_size=16)
    settings = {
        "dense": {"network": ibcl.networks.linear(4), "inference": ibcl.DenseVI(), "d": 0},
        "independent tasks": {
            "network": ibcl.networks.linear(4),
            "inference": ibcl.DenseVI(),
            "d": 0,
            "independent": True,
        },
        "routed": {"network": ibcl.networks.linear(4), "pooling": "routed"},
        "routed classes": {"network": ibcl.networks.linear(4, outputs=3), "pooling": None},
        "routed mlp": {
            "network": ibcl.networks.mlp(4, hidden=3),
            "inference": quick,
            "pooling": ibcl.Routed(support=0.6, temperature=1.25),
        },
        "regression": {
            "network": ibcl.networks.random_features(4, width=6, seed=3),
            "inference": ibcl.DenseVI(),
            "likelihood": ibcl.Normal(0.3),
            "priors": [1.0, 4.0],
        },
        "classes": {"network": ibcl.networks.linear(4, outputs=3), "inference": ibcl.DenseVI()},
        "mean-field": {
            "network": ibcl.networks.mlp(4, hidden=[3], activation="tanh"),
            "inference": quick,
            "priors": [0.5, 2.5],
            "pooling": "wasserstein",
            # So wide that later tasks become pointers to the posteriors of the first.
            "d": 0.3,
        },
        "task ids": {
            "network": ibcl.networks.linear(7),
            "inference": ibcl.DenseVI(),
            "task_incremental": 3,
        },
        "own module": {
            "network": ibcl.networks.redrawn(Normalised()),
            "inference": quick,
            "pooling": "mixture",
        },
    }[kind]
    return ibcl.IBCL(**{"pooling": "evidence", "seed": 5, **settings, **changes})


KINDS = (
    "dense",
    "independent tasks",
    "routed",
    "routed classes",
    "routed mlp",
    "regression",
    "classes",
    "mean-field",
    "task ids",
    "own module",
)


def learn(learner: ibcl.IBCL, kind: str, tasks: str = "abc") -> ibcl.IBCL:
    for name in tasks:
        number = TASKS.index(name)
        x = inputs(seed=number)
        learner.learn(x, labels(kind, x, number), task=name)
    return learner


def load(path: Path, kind: str = "", **arguments: bool) -> ibcl.IBCL:
    network = Normalised(shift=0.0) if kind == "own module" else None
    return ibcl.load(path, network=network, **arguments)


def assert_same_gaussians(ours: tuple[Gaussian, ...], theirs: tuple[Gaussian, ...]) -> None:
    """The same families, types and bits."""
    assert [type(q) for q in ours] == [type(q) for q in theirs]
    for q, p in zip(ours, theirs, strict=True):
        assert q.equal(p)


def assert_same_learner(a: ibcl.IBCL, b: ibcl.IBCL, predictions: bool = True) -> None:
    """Everything that is known, every setting and every prediction agree bit for bit."""
    assert_same_gaussians(a.knowledge.priors, b.knowledge.priors)
    assert_same_gaussians(a.knowledge.stored, b.knowledge.stored)
    assert a.knowledge.records == b.knowledge.records
    for name in ("inference", "likelihood", "pooling", "alpha", "seed", "task_incremental"):
        assert getattr(a, name) == getattr(b, name)
    assert (a.knowledge.d, a.knowledge.independent) == (b.knowledge.d, b.knowledge.independent)
    assert a.metadata == b.metadata
    assert a.network.fingerprint == b.network.fingerprint
    if predictions and a.tasks:
        x = inputs(10, seed=9)
        for weights in ibcl.sample_preferences(len(a.tasks), 3, seed=1):
            first, second = a.model(weights), b.model(weights)
            task = a.tasks[0]
            assert torch.equal(first.outputs(x, task=task), second.outputs(x, task=task))
            assert torch.equal(first.outputs(x, 3, task), second.outputs(x, 3, task))


def rewrite(folder: Path, change: Callable[[Contents], Any]) -> None:
    """Change a manifest as somebody who can compute checksums would."""
    contents = json.loads((folder / "manifest.json").read_text())
    contents.pop("checksum")
    change(contents)
    with suppress(TypeError, KeyError, AttributeError):
        contents["files"] = placed(contents)
    said = {name: value for name, value in contents.items() if name not in ("save", "files")}
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
    contents["checksum"] = hashlib.sha256(canonical.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(contents))


def placed(contents: Contents) -> list[str]:
    """Name the files of the entries, in their save where it is known and else in the last one."""
    known = {SAVE.sub("", name): name for name in contents["files"]}
    groups = {
        "posteriors": [*(contents["priors"] or ()), *contents["posteriors"]],
        "network": [contents["network"]["frozen"]],
        "moments": contents["moments"],
    }
    names = {
        f"{subfolder}/{entry['sha256']}": None
        for subfolder, entries in groups.items()
        for entry in entries
        if entry is not None
    }
    return [
        known.get(f"{name}.safetensors", f"{name}-{contents['save']}.safetensors") for name in names
    ]


def files(folder: Path) -> dict[str, bytes]:
    """All contents of a folder except its lock, whichever save wrote each of them."""
    return {
        SAVE.sub("", str(path.relative_to(folder))): said(path.name, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def said(name: str, text: bytes) -> bytes:
    """What a file says, apart from the names of saves."""
    if name != "manifest.json" or not text.startswith(b"{\n"):
        return text
    contents = json.loads(text)
    assert len(set(contents["files"])) == len(contents["files"])
    contents["files"] = sorted(SAVE.sub("", name) for name in contents["files"])
    contents["save"] = "x" * 16
    return json.dumps(contents).encode()

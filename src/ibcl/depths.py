r"""Which depths of a frozen backbone to read, where its user leaves it open (``layers="auto"``).

A few sets of layers are tried on the first task: the backbone's output, its last block, the last
two and the last three, and one from the middle beside the last. Of each, a quick linear head is
fitted on three quarters of the task's rows, and the set whose head gives the held-out rows the
largest likelihood is taken. Later tasks read what the first one chose, so that all tasks' heads and
densities are of the same features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ibcl.backbones import FrozenBackbone, with_layers
from ibcl.conformal import held_out
from ibcl.likelihoods import Likelihood, choose
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

Layers = tuple[str, ...]
Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
# Rows to choose by: fewer say too little, and more cost time for nothing.
_FEWEST, _MOST = 40, 2000
_HELD_OUT = 0.25
# Columns whose full covariances are still cheap.
_WIDEST = 2048
_INVERSE_REGULARISATION = 10.0
_SMALLEST_PROBABILITY = 1e-6


def blocks(backbone: nn.Module) -> Layers:
    """Return the names of a backbone's blocks: the children of its longest chain of layers.

    Examples
    --------
    >>> blocks(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3)))
    ('0', '2')
    """
    chains = [
        tuple(
            f"{name}.{child}" if name else child
            for child, layer in module.named_children()
            if any(True for _ in layer.parameters())
        )
        for name, module in backbone.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
    ]
    return max(chains, key=len, default=())


def candidates(backbone: nn.Module) -> list[Layers]:
    """Return the sets of layers to try; the empty one is the backbone's output.

    Examples
    --------
    >>> candidates(nn.Sequential(*(nn.Linear(2, 2) for _ in range(6))))
    [(), ('5',), ('4', '5'), ('3', '4', '5'), ('3', '5')]
    """
    names = blocks(backbone)
    sets: list[Layers] = [(), names[-1:], names[-2:], names[-3:]]
    if len(names) > 3:
        sets.append((names[len(names) // 2], names[-1]))
    return list(dict.fromkeys(sets))


def choose_depths(
    network: FlatNetwork, data: TaskData, likelihood: str | Likelihood
) -> tuple[FlatNetwork, str]:
    """Return the network with the depths that suit a task best, and why.

    Parameters
    ----------
    network
        Begins with a backbone whose depths are open.
    data
        The task's inputs and labels.
    """
    frozen = network.backbone
    assert frozen is not None
    if data.size < _FEWEST:
        reason = f"the backbone's output, since the first task has only {data.size} rows"
        return _as_it_is(network), reason
    rows = np.random.default_rng(0).permutation(data.size)[:_MOST]
    few = TaskData(data.x[rows], data.y[rows])
    learnt, kept = held_out(few.size, _HELD_OUT, 0)
    y = few.y.cpu().numpy()
    outputs = network.linear_head().layer.out_features
    classification = choose(likelihood, few.y, outputs).classification
    if classification:
        y = np.unique(y, return_inverse=True)[1]
        if len(np.unique(y[learnt])) < 2:
            reason = "the backbone's output, since the first task has one class"
            return _as_it_is(network), reason
    losses: dict[Layers, tuple[float, int]] = {}
    for layers, features in _all_features(frozen, few.x, candidates(frozen.backbone)).items():
        if features.shape[1] <= _WIDEST or not layers:
            loss = _loss(features.double().cpu().numpy(), y, learnt, kept, classification)
            losses[layers] = loss, features.shape[1]
    best = min(losses, key=lambda layers: losses[layers])
    said = ", ".join(
        f"{' + '.join(layers) or 'output'} {loss:.4g}" for layers, (loss, _) in losses.items()
    )
    name = " + ".join(best) or "the backbone's output"
    return _reading(network, best, losses[best][1]), f"{name}, of held-out losses {said}"


def _as_it_is(network: FlatNetwork) -> FlatNetwork:
    assert network.columns is not None
    return _reading(network, (), network.columns)


def _reading(network: FlatNetwork, layers: Layers, columns: int) -> FlatNetwork:
    """Return the network with a backbone that reads these layers, and a head as wide."""
    return FlatNetwork(with_layers(network.template, layers, columns), network.device)


def _all_features(
    frozen: FrozenBackbone, x: Tensor, sets: Sequence[Layers]
) -> dict[Layers, Tensor]:
    """Features of every set, of one pass for the output and one for all layers."""
    names = list(dict.fromkeys(name for layers in sets for name in layers))
    reader = FrozenBackbone(frozen.backbone, names, frozen.pool)
    output = FrozenBackbone(frozen.backbone, (), frozen.pool)
    with torch.no_grad():
        parts = torch.split(x, frozen.rows_at_once)
        last = torch.cat([output.read(part) for part in parts])
        read = [reader.depths(part) for part in parts] if names else []
    depths = dict(zip(names, map(torch.cat, zip(*read, strict=True)), strict=True))
    return {
        layers: torch.cat([depths[name] for name in layers], 1) if layers else last
        for layers in sets
    }


def _loss(x: Numbers, y: Numbers, learnt: Places, kept: Places, classification: bool) -> float:
    """Average −log p(y | x) of held-out rows, or their mean square, of a quick linear head."""
    # Few learners choose depths, and scikit-learn takes long to import.
    from sklearn.linear_model import LogisticRegression, Ridge

    x = x / (np.sqrt(np.square(x).sum(1).mean()) or 1.0)
    if not classification:
        ridge = Ridge(alpha=1 / _INVERSE_REGULARISATION).fit(x[learnt], y[learnt])
        return float(np.square(ridge.predict(x[kept]) - y[kept]).mean())
    head = LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=200).fit(x[learnt], y[learnt])
    places = np.searchsorted(head.classes_, y[kept])
    known = np.isin(y[kept], head.classes_)
    found = head.predict_proba(x[kept])[np.arange(len(kept)), np.where(known, places, 0)]
    return float(-np.log(np.where(known, found, 0).clip(_SMALLEST_PROBABILITY)).mean())

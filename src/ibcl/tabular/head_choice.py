"""Which network a table gets by default: by the table's size, then by its data.

Where a table is not too wide, its columns stand beside random features of them, so that a linear
answer is among those that can be learnt. Where it is, there is room for one of them only, and held
out rows of the first task decide: ridge regressions on the columns and on random features of
several widths are compared, and the columns are kept unless others predict better by more than two
standard errors of the difference.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ibcl import networks
from ibcl.tabular.heads import (
    DEFAULT_HEAD,
    DEFAULT_WIDTH,
    LARGEST_DIMENSION,
    outputs_for,
    reads_only_random,
)

WIDTHS = (256, 1024)
"""Numbers of random features that are compared, as far as there is room for them."""
MOST_LINEAR = 6000
"""Columns above which a full covariance of a linear head would take more than a gigabyte."""
_MOST_ROWS, _FEWEST_ROWS, _HELD_OUT = 4096, 40, 0.25
_RIDGES = (0.01, 0.1, 1.0, 10.0, 100.0)


class HeadChoice(NamedTuple):
    """A network's name, its width where that means something, and why it was chosen."""

    name: str
    width: int | None
    reason: str


def choose_head_by_size(
    columns: int, classes: int | None, width: int | None = None
) -> HeadChoice | None:
    """Choose the network where the size of a table settles it, before any row is encoded.

    Parameters
    ----------
    columns : of the encoded table.
    classes, width : as in `choose_head`.

    Examples
    --------
    >>> choose_head_by_size(9, 2).name
    'random_features'
    >>> choose_head_by_size(1600, 2) is None
    True
    """
    if not reads_only_random(columns, outputs_for(classes)):
        return HeadChoice(DEFAULT_HEAD, width, "the columns stand beside random features of them")
    if columns > MOST_LINEAR:
        return HeadChoice(
            DEFAULT_HEAD, width, f"{columns:,} columns are too many for a linear head"
        )
    return None


def choose_head(
    x: Tensor, y: Tensor, classes: int | None, *, width: int | None = None, seed: int = 0
) -> HeadChoice:
    """Choose the network for the first task of a table.

    Parameters
    ----------
    x : its inputs, shape (n, inputs).
    y : class numbers, or values.
    classes : how many there are; None for values.
    width : the number of random features, where that is given.

    Examples
    --------
    >>> x = torch.randn(300, 1600, generator=torch.Generator().manual_seed(0))
    >>> choose_head(x[:, :9], (x[:, 0] > 0).long(), 2).name
    'random_features'
    >>> choose_head(x, (x[:, :20].sum(1) > 0).long(), 2).name
    'linear'
    """
    columns, outputs = x.shape[1], outputs_for(classes)
    settled = choose_head_by_size(columns, classes, width)
    if settled is not None:
        return settled
    usual = DEFAULT_WIDTH if width is None else width
    if len(x) < _FEWEST_ROWS:
        return HeadChoice("linear", None, f"{len(x)} rows are too few to compare others on")
    room = max(1, LARGEST_DIMENSION // outputs - 1)
    widths = sorted({min(each, room) for each in ((*WIDTHS,) if width is None else (usual,))})
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_MOST_ROWS]
    rows, targets = x[order].double(), y[order]
    plain = _held_out_losses(rows, targets, classes)
    best, losses = None, plain
    for each in widths:
        net = networks.random_features(columns, each, outputs, seed=seed, skip=False, exact=True)
        with torch.no_grad():
            features = nn.Sequential(*list(net)[:-1])(x[order]).double()
        found = _held_out_losses(features, targets, classes)
        better = losses - found
        if float(better.mean()) > 2 * float(better.std()) / len(better) ** 0.5:
            best, losses = each, found
    what = "error" if classes is not None else "squared error"
    said = f"held-out {what} {float(plain.mean()):.3g} of the columns themselves"
    if best is None:
        return HeadChoice("linear", None, f"{said}, no less of random features")
    return HeadChoice(
        DEFAULT_HEAD, best, f"{said}, {float(losses.mean()):.3g} of {best} random features"
    )


def _held_out_losses(features: Tensor, y: Tensor, classes: int | None) -> Tensor:
    """Return each held-out row's loss under a ridge regression on the others."""
    targets = (
        y.reshape(len(y), -1).double()
        if classes is None
        else nn.functional.one_hot(y.long(), classes).double()
    )
    held = max(1, int(_HELD_OUT * len(features)))
    known, centre, middle = features[held:], features[held:].mean(0), targets[held:].mean(0)
    scale = known.std(0).clamp(min=1e-6)
    known, asked = (known - centre) / scale, (features[:held] - centre) / scale
    # In the space of rows or of columns, whichever is smaller.
    few_rows = len(known) < known.shape[1]
    gram = known @ known.T if few_rows else known.T @ known
    size = gram.diagonal().mean()
    identity = torch.eye(len(gram), dtype=torch.float64)
    losses = []
    for ridge in _RIDGES:
        factor = torch.linalg.cholesky(gram + ridge * size * identity)
        wanted = targets[held:] - middle
        if few_rows:
            weights = known.T @ torch.cholesky_solve(wanted, factor)
        else:
            weights = torch.cholesky_solve(known.T @ wanted, factor)
        answers = asked @ weights + middle
        if classes is None:
            losses.append((answers - targets[:held]).square().sum(1))
        else:
            losses.append((answers.argmax(1) != y[:held].long()).double())
    return min(losses, key=lambda each: float(each.mean()))

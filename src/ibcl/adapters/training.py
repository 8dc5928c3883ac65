"""How an adapter is learnt: a linear probe of the frozen features, then adapter and head."""

from __future__ import annotations

import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor, nn
from torch.nn import functional

from ibcl.adapters.adapted import Adapted

# Of the probe, for features of unit mean square length.
_INVERSE_REGULARISATION = 10.0
_STEPS = 300


def targets(y: Tensor, classification: bool) -> tuple[Tensor | None, Tensor]:
    """Return which classes a task has seen, and its labels numbered among these; or values.

    Examples
    --------
    >>> targets(torch.tensor([4.0, 2.0, 4.0]), classification=True)
    (tensor([2, 4]), tensor([1, 0, 1]))
    """
    if classification:
        seen, numbers = torch.unique(y.long(), return_inverse=True)
        return seen, numbers
    return None, y.reshape(len(y), -1).float()


def probe(features: Tensor, y: Tensor, weights: Tensor | None, classification: bool) -> nn.Linear:
    """Return a head fitted on frozen features: logistic regression, or ridge regression.

    Parameters
    ----------
    y
        Class numbers from 0, or values of shape (n, outputs).
    """
    scale = float(features.double().square().sum(1).mean().sqrt()) or 1.0
    x = (features.double() / scale).cpu().numpy()
    counts = None if weights is None else weights.cpu().numpy()
    if classification:
        outputs = int(y.max()) + 1
        found = LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=_STEPS)
        found.fit(x, y.cpu().numpy(), sample_weight=counts)
        rows, offsets = torch.as_tensor(found.coef_), torch.as_tensor(found.intercept_)
        if outputs == 2:
            # One logistic output is half a softmax on either side.
            rows, offsets = torch.cat([-rows, rows]) / 2, torch.cat([-offsets, offsets]) / 2
    else:
        ridge = Ridge(alpha=1 / _INVERSE_REGULARISATION)
        ridge.fit(x, y.double().cpu().numpy(), sample_weight=counts)
        rows = torch.as_tensor(ridge.coef_).reshape(y.shape[1], -1)
        offsets = torch.as_tensor(ridge.intercept_).reshape(-1)
    # Not drawn, so that nobody's random numbers are used up.
    head = nn.Linear(features.shape[1], len(rows), device="meta").to_empty(device=features.device)
    with torch.no_grad():
        head.weight.copy_(rows / scale)
        head.bias.copy_(offsets)
    return head


def train(
    adapted: Adapted,
    head: nn.Linear,
    read: Tensor,
    carried: Tensor,
    y: Tensor,
    weights: Tensor | None,
    *,
    epochs: int,
    rate: float,
    batch: int,
    seed: int,
) -> None:
    """Learn adapter and head by Adam, with a rate that falls to zero; the base stays as it is.

    Parameters
    ----------
    read, carried
        Features of the frozen base, and the inputs and state that they carry.
    """
    generator = torch.Generator().manual_seed(abs(seed) % 2**63)
    learnt = [*adapted.learnable(), *head.parameters()]
    optimiser = torch.optim.Adam(learnt, lr=rate)
    steps = epochs * -(-len(y) // batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    counts = torch.ones(len(y), device=y.device) if weights is None else weights.to(y.device)
    counts = (counts / counts.mean()).float()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(y), generator=generator).to(y.device), batch):
            outputs = head(adapted(read[rows], carried[rows]))
            if y.is_floating_point():
                losses = (outputs - y[rows]).square().sum(1)
            else:
                losses = functional.cross_entropy(outputs, y[rows], reduction="none")
            optimiser.zero_grad()
            (counts[rows] * losses).mean().backward()
            optimiser.step()
            schedule.step()

"""What full-covariance inference sees of a network that is linear in its parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ibcl.gaussians import Gaussian
from ibcl.networks import LinearHead

# Standard deviations beyond these have squares that leave no digits to compute with.
_SMALLEST_STD, _LARGEST_STD = 1e-15, 1e15


def head_features(head: LinearHead, x: Tensor) -> Tensor:
    """Features φ of shape (n, columns), the last one 1 where the head has a bias."""
    with torch.no_grad():
        features = head.features(x).reshape(len(x), -1)
    if not bool(torch.isfinite(features).all()):
        raise ValueError(
            "The features before the head are not finite; scale the inputs, for example to unit "
            "variance, or remove outliers."
        )
    if head.layer.bias is None:
        return features
    return torch.cat([features, features.new_ones(len(x), 1)], 1)


def parameter_positions(layer: nn.Linear, device: torch.device) -> Tensor:
    """Positions in θ = (weight, bias) of each output's parameters (w, b), one row an output.

    Examples
    --------
    >>> parameter_positions(nn.Linear(2, 3), torch.device("cpu"))
    tensor([[0, 1, 6],
            [2, 3, 7],
            [4, 5, 8]])
    """
    outputs, columns = layer.out_features, layer.in_features
    weight = torch.arange(outputs * columns, device=device).reshape(outputs, columns)
    if layer.bias is None:
        return weight
    offset = outputs * columns + torch.arange(outputs, device=device)[:, None]
    return torch.cat([weight, offset], 1)


def check_prior(prior: Gaussian, dimension: int) -> None:
    """Refuse a prior too wide or too narrow for its precision to be computed with."""
    if prior.dimension != dimension:
        raise ValueError(
            f"The prior has {prior.dimension} parameters, but the network has {dimension}."
        )
    deviations = prior.natural_parameters().precision_diagonal().rsqrt()
    narrow = not bool((deviations >= _SMALLEST_STD).all())
    if narrow or not bool((deviations <= _LARGEST_STD).all()):
        raise ValueError(
            f"The prior's standard deviations must lie between {_SMALLEST_STD:g} and "
            f"{_LARGEST_STD:g} to be computed with, but one is {'smaller' if narrow else 'larger'}."
        )

"""What full-covariance inference sees of a network that is linear in its parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ibcl.gaussians import Gaussian
from ibcl.networks import FlatNetwork

# Standard deviations beyond these have squares that leave no digits to compute with.
_SMALLEST_STD, _LARGEST_STD = 1e-15, 1e15


def head_features(network: FlatNetwork, x: Tensor) -> Tensor:
    """Features φ of shape (n, columns), in blocks, so that a backbone never sees all rows at once.

    Examples
    --------
    >>> from ibcl.networks import linear
    >>> head_features(FlatNetwork(linear(2)), torch.ones(3, 2)).shape
    torch.Size([3, 2])
    """
    fixed = network.linear_head().features
    identity = isinstance(fixed, nn.Sequential) and not len(fixed)
    features = x.flatten(1) if identity else network.features(x)
    check_finite(features)
    return features


def check_finite(features: Tensor) -> None:
    """Refuse features that hold what is not a number."""
    # The extremes are found without a second matrix of the features' size.
    if features.numel() and not all(bool(torch.isfinite(end)) for end in features.aminmax()):
        raise ValueError(
            "The features before the head are not finite; scale the inputs, for example to unit "
            "variance, or remove outliers."
        )


def parameter_positions(layer: nn.Linear, device: torch.device) -> Tensor:
    """Positions in θ = (weight, bias) of each output's parameters (w, b), one row per output.

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

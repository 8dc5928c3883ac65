r"""Predictive variances without sampling, where the network is linear in its parameters.

With outputs f = Φθ and θ ~ N(μ, Σ), the variance of an output is φᵀΣφ. Of a mixture of Gaussians,
or of heads behind a gate with shares r_k, it follows from the law of total variance:

    Var[f] = Σ_k r_k (φᵀΣ_kφ + (φᵀμ_k)²) − (Σ_k r_k φᵀμ_k)².

It is that of the whole distribution, not of its highest density region alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.gaussians import Distribution, Gaussian, IndependentGaussian
from ibcl.likelihoods import Normal
from ibcl.mixture import Mixture
from ibcl.predictors import Predictor, RoutedNetworks
from ibcl.uncertainty import Uncertainty

# Covariances are D×D; beyond this, models are sampled instead.
LARGEST_DIMENSION = 4000


def has_closed_form(predictor: Predictor) -> bool:
    """Say whether a predictor's uncertainty can be computed instead of sampled."""
    network = predictor.network
    small = network.dimension <= LARGEST_DIMENSION
    return network.is_linear and isinstance(predictor.likelihood, Normal) and small


def regression_uncertainty(
    predictor: Predictor, distribution: Distribution, x: Tensor
) -> Uncertainty:
    """Noise, disagreement of the models, and their sum, as variances of each sample."""
    assert isinstance(predictor.likelihood, Normal)
    network = predictor.network
    features = network.features(x).double()
    positions = network.linear_head().positions
    if positions.shape[1] > features.shape[1]:
        features = torch.cat([features, features.new_ones(len(features), 1)], 1)
    components, shares = _members(predictor, distribution, x)
    disagreement = features.new_zeros(len(features))
    parts = [component.dense() for component in components]
    for rows in positions:
        factors = [part.covariance_factor[rows].double() for part in parts]
        within = torch.stack([(features @ factor).square().sum(1) for factor in factors])
        means = torch.stack([features @ part.mean[rows].double() for part in parts])
        average = (shares * means).sum(0)
        disagreement = disagreement + (shares * (within + (means - average).square())).sum(0)
    noise = torch.full_like(disagreement, len(positions) * predictor.likelihood.noise**2)
    return Uncertainty(noise + disagreement, noise, disagreement)


def _members(
    predictor: Predictor, distribution: Distribution, x: Tensor
) -> tuple[tuple[Gaussian, ...], Tensor]:
    """Gaussians, and the share of each in the answer to each sample, (members, n or 1)."""
    if isinstance(predictor, RoutedNetworks):
        shares = predictor.routing(x)[:, predictor.active.to(x.device)].T.double()
        if isinstance(distribution, IndependentGaussian):
            return tuple(distribution.components), shares
        assert isinstance(distribution, Gaussian)
        return (distribution,), shares
    if isinstance(distribution, Mixture):
        return tuple(distribution.components), distribution.weights.double()[:, None].to(x.device)
    assert isinstance(distribution, Gaussian)
    return (distribution,), x.new_ones(1, 1, dtype=torch.float64)

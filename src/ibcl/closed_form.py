r"""Predictive variances without sampling, where the network is linear in its parameters.

With outputs f = Φθ and θ ~ N(μ, Σ), an output is Gaussian with variance φᵀΣφ, and the likelihood
says what that means for y: its mean e, and the parts a and v of its variance that the noise and the
models' disagreement make up. Of a mixture of Gaussians, or of heads behind a gate with shares r_k,
they follow from the law of total variance:

    E[y] = Σ_k r_k e_k,   Var[y] = Σ_k r_k a_k + Σ_k r_k (v_k + (e_k − E[y])²).

It is that of the whole distribution, not of its highest density region alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.gaussians import Distribution, Gaussian, IndependentGaussian
from ibcl.mixture import Mixture
from ibcl.predictors import Predictor, RoutedNetworks
from ibcl.uncertainty import Uncertainty

# Covariances are D×D; beyond this, models are sampled instead.
LARGEST_DIMENSION = 4000


def has_closed_form(predictor: Predictor) -> bool:
    """Say whether a predictor's uncertainty can be computed instead of sampled."""
    network, likelihood = predictor.network, predictor.likelihood
    if likelihood.classification or network.dimension > LARGEST_DIMENSION:
        return False
    probe = torch.ones(1, dtype=torch.float64, device=network.device)
    return network.is_linear and likelihood.predictive(probe, probe) is not None


def regression_uncertainty(
    predictor: Predictor, distribution: Distribution, x: Tensor
) -> Uncertainty:
    """Noise, disagreement of the models, and their sum, as variances of each sample."""
    network = predictor.network
    features = network.features(x).double()
    positions = network.linear_head().positions
    if positions.shape[1] > features.shape[1]:
        features = torch.cat([features, features.new_ones(len(features), 1)], 1)
    components, shares = _members(predictor, distribution, x)
    noise = disagreement = features.new_zeros(len(features))
    parts = [component.dense() for component in components]
    for rows in positions:
        factors = [part.covariance_factor[rows].double() for part in parts]
        variances = torch.stack([(features @ factor).square().sum(1) for factor in factors])
        means = torch.stack([features @ part.mean[rows].double() for part in parts])
        found = predictor.likelihood.predictive(means, variances)
        assert found is not None
        average = (shares * found.mean).sum(0)
        spread = found.epistemic + (found.mean - average).square()
        noise = noise + (shares * found.aleatoric).sum(0)
        disagreement = disagreement + (shares * spread).sum(0)
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

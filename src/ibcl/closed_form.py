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

from ibcl.predictive import Predictive
from ibcl.uncertainty import Uncertainty

# Covariances are D×D; beyond this, models are sampled instead.
LARGEST_DIMENSION = 4000


def has_closed_form(predictive: Predictive) -> bool:
    """Say whether a predictive's uncertainty can be computed instead of sampled."""
    network, likelihood = predictive.network, predictive.likelihood
    if predictive.has_experts or likelihood.classification or network.dimension > LARGEST_DIMENSION:
        return False
    probe = torch.ones(1, dtype=torch.float64, device=network.device)
    return network.is_linear and likelihood.predictive(probe, probe) is not None


def regression_uncertainty(predictive: Predictive, features: Tensor) -> Uncertainty:
    """Noise, disagreement of the models, and their sum, as variances of each sample."""
    members = predictive.members(features)
    shares = members.shares
    head = predictive.network.head
    features = head.features(features).double()
    positions = head.linear_head().positions
    if positions.shape[1] > features.shape[1]:
        features = torch.cat([features, features.new_ones(len(features), 1)], 1)
    noise = disagreement = features.new_zeros(len(features))
    parts = [gaussian.dense() for gaussian in members.gaussians]
    for rows in positions:
        factors = [part.covariance_factor[rows].double() for part in parts]
        variances = torch.stack([(features @ factor).square().sum(1) for factor in factors])
        means = torch.stack([features @ part.mean[rows].double() for part in parts])
        found = predictive.likelihood.predictive(means, variances)
        assert found is not None
        average = (shares * found.mean).sum(0)
        spread = found.epistemic + (found.mean - average).square()
        noise = noise + (shares * found.aleatoric).sum(0)
        disagreement = disagreement + (shares * spread).sum(0)
    return Uncertainty(noise + disagreement, noise, disagreement)

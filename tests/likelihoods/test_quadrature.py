"""Integrals against a Gaussian, next to scipy's adaptive integration and to simulation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from ibcl.likelihoods import Categorical
from ibcl.likelihoods.quadrature import logistic_moments


@given(mean=st.floats(-80, 80), log_std=st.floats(-7, 6))
def test_logistic_moments_match_numerical_integration(mean, log_std):
    std = float(np.exp(log_std))
    measured = logistic_moments(torch.tensor([mean]).double(), torch.tensor([std]).double())
    low, high = mean - 12 * std, mean + 12 * std
    kinks = sorted({p for p in (-40.0, -5.0, 0.0, 5.0, 40.0, mean) if low < p < high})
    functions = (
        lambda z: np.logaddexp(0, z),
        lambda z: 0.5 * (1 + np.tanh(z / 2)),
        lambda z: 0.25 * (1 - np.tanh(z / 2) ** 2),
    )
    for value, function in zip(measured, functions, strict=True):
        expected, _ = quad(
            lambda z, f=function: f(z) * norm.pdf(z, mean, std),
            low,
            high,
            points=kinks,
            limit=400,
            epsabs=1e-11,
            epsrel=1e-11,
        )
        assert float(value) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_softmax_expectations_match_monte_carlo_and_the_binary_case():
    mean = torch.tensor([[0.5, -1.0, 0.2]]).double()
    root = torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.8, 0.0], [-0.3, 0.2, 0.5]]).double()
    covariance = (root @ root.T)[None]
    ours = Categorical().expectations(mean, covariance, torch.tensor([1]))
    noise = torch.randn(400_000, 3, generator=torch.Generator().manual_seed(0)).double()
    p = torch.softmax(mean + noise @ root.T, -1)
    torch.testing.assert_close(
        ours.residual[0] + p.mean(0), torch.tensor([0.0, 1, 0]).double(), atol=0.01, rtol=0
    )
    curvature = torch.diag(p.mean(0)) - p.T @ p / len(p)
    torch.testing.assert_close(ours.curvature[0], curvature, atol=0.01, rtol=0)

"""No tensor is made on another device than its data's.

There is no second device here to compute on. Instead every call that makes a tensor out of nothing
must say where, or the computation stops.
"""

import sys

import pytest
import torch
from torch.overrides import TorchFunctionMode

from ibcl import DenseVI, DiagonalGaussian, MeanFieldVI, OneVsRestVI
from ibcl.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Likelihood,
    Normal,
    OneVsRest,
    Poisson,
)
from ibcl.networks import FlatNetwork, linear, mlp
from ibcl.tasks import TaskData, as_task

X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
CLASSES = X.argmax(1)
CASES = {
    "bernoulli": (DenseVI(), Bernoulli(), linear(3), (X[:, 0] > 0).float()),
    "categorical": (DenseVI(), Categorical(), linear(3, 3), CLASSES),
    "gaussian": (DenseVI(rank=2), Normal(), linear(3, 2), X[:, :2]),
    "poisson": (DenseVI(), Poisson(), linear(3), X[:, :1].exp().round()),
    "one class against the rest": (OneVsRestVI(), OneVsRest(), linear(3, 3), CLASSES),
    "mean field": (MeanFieldVI(epochs=2), Bernoulli(), mlp(3, hidden=2), (X[:, 0] > 0).float()),
    "any module": (
        MeanFieldVI(epochs=2),
        Bernoulli(),
        torch.nn.Sequential(linear(3)),
        (X[:, 0] > 0).float(),
    ),
}
MAKERS = {
    torch.arange,
    torch.as_tensor,
    torch.empty,
    torch.eye,
    torch.full,
    torch.linspace,
    torch.ones,
    torch.rand,
    torch.randn,
    torch.randperm,
    torch.tensor,
    torch.tril_indices,
    torch.zeros,
}


class DevicesAreNamed(TorchFunctionMode):
    """Stops where the modules under test make a tensor without saying on which device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        caller = sys._getframe(1).f_globals["__name__"]
        moved = any(isinstance(value, torch.Tensor) for value in args)
        if caller.startswith(("ibcl.inference", "ibcl.likelihoods")):
            assert func not in MAKERS or moved or kwargs.get("device") is not None, func
        return func(*args, **kwargs)


def test_the_watch_sees_what_is_made():
    code = compile("torch.zeros(2)", "made", "eval")
    with DevicesAreNamed(), pytest.raises(AssertionError):
        eval(code, {"torch": torch, "__name__": "ibcl.inference.made"})


@pytest.mark.parametrize(("method", "likelihood", "module", "y"), CASES.values(), ids=CASES)
def test_inference_keeps_to_the_device_of_the_data(method, likelihood, module, y):
    network = FlatNetwork(module)
    zero = torch.zeros(network.dimension)
    prior = DiagonalGaussian(zero, torch.ones_like(zero))
    weights = torch.linspace(0.5, 2, 30).double()
    data = TaskData(X, y, weights)
    with DevicesAreNamed():
        result = method.infer(network, likelihood, [prior], data, validation=data)
    assert result.posteriors[0].mean.device == prior.mean.device


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods_keep_to_the_device_of_the_outputs(name):
    likelihood = LIKELIHOODS[name]()
    outputs = 3 if name in ("categorical", "one_vs_rest") else 1
    with DevicesAreNamed():
        y = likelihood.check((CLASSES > 0).to(CLASSES), outputs)
        f = X[:, :outputs].double()
        mean = likelihood.mean(f)
        covariance = torch.diag_embed(torch.ones_like(f))
        made = [
            y,
            mean,
            likelihood.negative_log(f, y),
            likelihood.decide(mean),
            likelihood.outputs_of(mean),
            likelihood.likely_outputs(y, outputs),
            *(part.y for part in likelihood.separate(y, outputs) or ()),
            likelihood.variance(f),
            *likelihood.uncertainty(f[None]),
            *likelihood.expectations(f, covariance, y),
            *Likelihood.expectations(likelihood, f, covariance, y),
        ]
        assert likelihood.columns(outputs) == mean.shape[1]
    assert {value.device for value in made if value is not None} == {X.device}


def test_labels_and_weights_follow_the_inputs():
    data = as_task(X[:2], [0, 1], weights=[1.0, 2.0])
    assert data.y.device == data.weights.device == X.device

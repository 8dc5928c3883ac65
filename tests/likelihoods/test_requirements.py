"""What cannot be learnt with is refused in a sentence; what can, however sharp, is not."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibcl import DenseVI, DiagonalGaussian, MeanFieldVI
from ibcl.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Likelihood,
    Normal,
    OneVsRest,
    Poisson,
    canonical,
    choose,
    from_description,
)
from ibcl.likelihoods.requirements import require_likelihood, require_log_concave
from ibcl.networks import FlatNetwork, linear
from ibcl.tasks import TaskData


@dataclass(frozen=True)
class Regression(Likelihood):
    """−log p of y − f, which the cases below say."""

    scale: float = 1.0
    name: ClassVar[str] = "a regression"

    def check(self, y, outputs):
        return y.reshape(len(y), outputs).float()

    def negative_log(self, outputs, y):
        return self.loss((y.to(outputs.dtype) - outputs) / self.scale).sum(-1)

    def loss(self, r):
        raise NotImplementedError

    def mean(self, outputs):
        return outputs

    def outputs_of(self, mean):
        return mean


class Laplace(Regression):
    def loss(self, r):
        return r.abs()


class EpsilonInsensitive(Regression):
    def loss(self, r):
        return torch.relu(r.abs() - 0.7)


class Quantile(Regression):
    def loss(self, r):
        return torch.maximum(0.9 * r, -0.1 * r) + 0.05 * r.square()


class StudentT(Regression):
    def loss(self, r):
        return 2 * torch.log1p(r.square() / 3)


class Logistic(Regression):
    def loss(self, r):
        return r + 2 * torch.nn.functional.softplus(-r)


class Huberish(Regression):
    """Smooth once everywhere, and its curvature jumps, which leaves it integrable."""

    def loss(self, r):
        return torch.nn.functional.huber_loss(r, torch.zeros_like(r), reduction="none")


LABELS = torch.tensor([[0.3], [-1.2], [40.0], [7.123]])


@pytest.mark.parametrize("likelihood", [Laplace(), EpsilonInsensitive(), Quantile()])
@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_kinks_are_found_wherever_they_are(likelihood, scale):
    with pytest.raises(ValueError, match=r"not twice differentiable: .* use MeanFieldVI"):
        require_log_concave(type(likelihood)(scale), LABELS, 1)


@given(label=st.floats(-50, 50), scale=st.floats(0.01, 10))
def test_a_kink_is_found_at_any_label_and_smooth_losses_pass_at_any_scale(label, scale):
    y = torch.tensor([[label]])
    with pytest.raises(ValueError, match="twice differentiable"):
        require_log_concave(Laplace(scale), y, 1)
    require_log_concave(Logistic(scale), y, 1)
    require_log_concave(Normal(scale), y, 1)


@pytest.mark.parametrize("scale", [0.02, 1.0, 30.0])
def test_a_curvature_that_jumps_is_no_kink(scale):
    require_log_concave(Huberish(scale), LABELS, 1)


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_losses_that_are_not_convex_are_left_to_mean_field_inference(scale):
    with pytest.raises(ValueError, match=r"not log-concave: .* use MeanFieldVI"):
        require_log_concave(StudentT(scale), LABELS, 1)
    require_likelihood(StudentT(scale), LABELS, 1)


def test_inference_refuses_or_learns_accordingly():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 1, generator=generator)
    data = TaskData(x, 2 * x + 1 + 0.1 * torch.randn(100, 1, generator=generator))
    prior = DiagonalGaussian(torch.zeros(2), torch.ones(2))
    network = FlatNetwork(linear(1))
    for likelihood, reason in ((Laplace(0.1), "twice diff"), (StudentT(0.1), "log-concave")):
        with pytest.raises(ValueError, match=reason):
            DenseVI().infer(network, likelihood, [prior], data)
        method = MeanFieldVI(epochs=60, learning_rate=0.05)
        (q,) = method.infer(network, likelihood, [prior], data).posteriors
        torch.testing.assert_close(q.mean, torch.tensor([2.0, 1.0]), atol=0.1, rtol=0)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "y"),
    [
        (Bernoulli(), 1, torch.tensor([0.0, 1.0])),
        (Categorical(), 4, torch.tensor([0, 3, 1])),
        (OneVsRest(), 4, torch.tensor([0, 3, 1])),
        (Normal(1e-3), 2, torch.tensor([[1.0, -50.0]])),
        (Poisson(), 2, torch.tensor([[0.0, 400.0]])),
    ],
)
def test_the_librarys_own_likelihoods_satisfy_what_is_asked(likelihood, outputs, y):
    require_log_concave(likelihood, y, outputs)


class NoLink(Regression):
    """An exponential variable whose rate is the output itself, negative ones included."""

    def negative_log(self, outputs, y):
        return (y.to(outputs.dtype) * outputs - outputs.log()).sum(-1)


class SumOverSamples(Regression):
    def negative_log(self, outputs, y):
        return super().negative_log(outputs, y).sum(-1)

    def loss(self, r):
        return r.square()


class Detached(Regression):
    def loss(self, r):
        return r.detach().square()


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, r):
        ctx.save_for_backward(r)
        return r.square()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class WrongGradient(Regression):
    """Half of what it should be."""

    def loss(self, r):
        return _Square.apply(r)


class OfOnePrecision(Regression):
    def negative_log(self, outputs, y):
        return torch.nn.functional.huber_loss(outputs, y.expand_as(outputs), reduction="none").sum(
            -1
        )


class FlatMean(Logistic):
    def mean(self, outputs):
        return outputs.squeeze(-1)


class OneColumn(Bernoulli):
    def mean(self, outputs):
        return torch.sigmoid(outputs)


@pytest.mark.parametrize(
    ("likelihood", "y", "reason"),
    [
        (NoLink(), LABELS, "not finite at every output .* give it a link"),
        (SumOverSamples(), LABELS, "one loss per sample"),
        (WrongGradient(), LABELS, "gradient is not its derivative"),
        (OfOnePrecision(), LABELS, "cannot compute its negative_log of outputs in float64"),
        (Detached(), LABELS, "cannot differentiate"),
        (FlatMean(), LABELS, "a row of means per sample"),
        (OneColumn(), torch.tensor([0.0, 1.0]), "probabilities that sum to 1"),
    ],
)
def test_what_no_inference_can_learn_with_is_refused(likelihood, y, reason):
    with pytest.raises(ValueError, match=reason):
        require_likelihood(likelihood, y, 1)


def test_normal_is_the_name_of_normal_and_its_earlier_name_is_still_read():
    assert Normal.name == "normal"
    assert canonical("gaussian") == "normal"
    assert LIKELIHOODS["gaussian"] is LIKELIHOODS["normal"] is LIKELIHOODS.get("gaussian") is Normal
    assert "gaussian" in LIKELIHOODS
    assert "gaussian" not in list(LIKELIHOODS)
    assert "nothing" not in LIKELIHOODS
    assert choose("gaussian", torch.tensor([0, 1]), 1) == Normal()
    assert from_description({"name": "gaussian", "noise": 0.5}) == Normal(0.5)


@pytest.mark.parametrize("name", list(LIKELIHOODS))
def test_the_class_and_the_name_of_a_likelihood_agree(name):
    assert LIKELIHOODS[name].__name__.lower() == name.replace("_", "")

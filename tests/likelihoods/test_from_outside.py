"""A likelihood written outside the library, with three methods and a name, works everywhere."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import nbinom, norm

from ibcl import DenseVI, DiagonalGaussian, MeanFieldVI
from ibcl.likelihoods import LIKELIHOODS, Likelihood, choose, from_description, register
from ibcl.networks import FlatNetwork, linear
from ibcl.tasks import TaskData


@dataclass(frozen=True)
class NegativeBinomial(Likelihood):
    """Counts with mean μ = exp f and variance μ + μ²/size."""

    size: float = 2.0
    name: ClassVar[str] = "negative_binomial"

    def check(self, y, outputs):
        assert outputs == 1
        return y.reshape(-1, 1).float()

    def negative_log(self, outputs, y):
        y, size = y.to(outputs.dtype), torch.tensor(self.size, dtype=outputs.dtype)
        coefficient = torch.lgamma(y + size) - torch.lgamma(size) - torch.lgamma(y + 1)
        log_total = torch.logaddexp(outputs, size.log())
        return -(coefficient + size * (size.log() - log_total) + y * (outputs - log_total)).sum(-1)

    def mean(self, outputs):
        return outputs.exp()


@dataclass(frozen=True)
class Probit(Likelihood):
    """p(y=1 | f) = Φ(f)."""

    name: ClassVar[str] = "probit"
    classification: ClassVar[bool] = True

    def check(self, y, outputs):
        assert outputs == 1
        return y.reshape(-1).float()

    def negative_log(self, outputs, y):
        signs = 2 * y.to(outputs.dtype) - 1
        return -torch.special.log_ndtr(signs * outputs.squeeze(-1))

    def mean(self, outputs):
        return torch.special.ndtr(torch.cat([-outputs, outputs], -1))


@pytest.fixture
def _registered():
    for likelihood in (NegativeBinomial, Probit):
        register(likelihood)
    yield
    for likelihood in (NegativeBinomial, Probit):
        del LIKELIHOODS[likelihood.name]


def simulated(likelihood: Likelihood, n: int = 150) -> TaskData:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1))
    f = 1.2 * x[:, 0] + 0.4
    if isinstance(likelihood, Probit):
        y = rng.random(n) < norm.cdf(f)
    else:
        y = rng.negative_binomial(2, 2 / (2 + np.exp(f)))
    labels = likelihood.check(torch.as_tensor(y), 1)
    return TaskData(torch.tensor(x, dtype=torch.float32), labels)


def log_probability(likelihood: Likelihood, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """By scipy, which shares no code with the classes above."""
    if isinstance(likelihood, Probit):
        return np.where(y > 0, norm.logcdf(f), norm.logcdf(-f))
    return nbinom.logpmf(y, 2, 2 / (2 + np.exp(f)))


both = pytest.mark.parametrize(
    "likelihood", [NegativeBinomial(), Probit()], ids=["counts", "probit"]
)
PRIOR = DiagonalGaussian(torch.zeros(2).double(), torch.full((2,), 3.0).double())


@both
def test_dense_inference_maximises_its_evidence_lower_bound(likelihood):
    data = simulated(likelihood)
    result = DenseVI(1e-6).infer(FlatNetwork(linear(1)), likelihood, [PRIOR], data)
    x, y = data.x[:, 0].numpy().astype(float), data.y.reshape(-1).numpy().astype(int)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / np.sqrt(2 * np.pi)

    def negative_bound(parameters):
        mean, root = parameters[:2], np.array([[parameters[2], 0], parameters[3:]])
        design = np.column_stack([x, np.ones(len(x))])
        m, s = design @ mean, np.linalg.norm(design @ root, axis=1)
        f = m[:, None] + s[:, None] * nodes
        expected = log_probability(likelihood, f, y[:, None]) @ weights
        kl = 0.5 * ((root**2).sum() + mean @ mean) / 9 - 1 + 2 * np.log(3)
        return -expected.sum() + kl - np.log(abs(parameters[2] * parameters[4]))

    best = minimize(
        negative_bound,
        [0, 0, 0.3, 0, 0.3],
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 4000},
    )
    root = np.array([[best.x[2], 0], best.x[3:]])
    (posterior,) = result.posteriors
    assert result.converged
    np.testing.assert_allclose(posterior.mean.numpy(), best.x[:2], atol=1e-4)
    np.testing.assert_allclose(posterior.covariance.numpy(), root @ root.T, atol=1e-5)
    assert result.objectives[0] == pytest.approx(-best.fun, abs=1e-5)


@both
def test_mean_field_inference_finds_nearly_the_same_mean(likelihood):
    data = simulated(likelihood)
    (dense,) = DenseVI().infer(FlatNetwork(linear(1)), likelihood, [PRIOR], data).posteriors
    start = DiagonalGaussian(torch.zeros(2), torch.full((2,), 3.0))
    (sampled,) = (
        MeanFieldVI(epochs=60, learning_rate=0.05)
        .infer(FlatNetwork(linear(1)), likelihood, [start], data)
        .posteriors
    )
    torch.testing.assert_close(sampled.mean.double(), dense.mean, atol=0.1, rtol=0)


@both
def test_its_predictions_bounds_and_inverse_follow_from_its_mean(likelihood):
    outputs = torch.linspace(-2, 2, 6)[:, None]
    mean = likelihood.mean(outputs)
    torch.testing.assert_close(likelihood.outputs_of(mean), outputs, atol=1e-4, rtol=1e-4)
    decided = likelihood.decide(mean)
    if likelihood.classification:
        assert decided.tolist() == [0, 0, 0, 1, 1, 1]
    else:
        torch.testing.assert_close(decided, outputs.exp()[:, 0])
    assert likelihood.columns(1) == mean.shape[1]


def test_its_uncertainty_says_what_it_knows():
    outputs = torch.tensor([[[0.0]], [[1.0]]])
    classes = Probit().uncertainty(outputs)
    assert float(classes.total) == pytest.approx(float(classes.aleatoric + classes.epistemic))
    counts = NegativeBinomial().uncertainty(outputs)
    assert float(counts.epistemic) == pytest.approx(((np.e - 1) / 2) ** 2)
    # Nothing said how the counts vary around their mean: unknown, which is not zero.
    assert bool(torch.isnan(counts.aleatoric).all())
    assert bool(torch.isnan(counts.total).all())


@pytest.mark.usefixtures("_registered")
def test_registered_it_is_chosen_and_stored_by_name():
    y = torch.tensor([0, 3])
    assert choose("negative_binomial", y, 1) == NegativeBinomial()
    assert from_description(NegativeBinomial(5.0).description()) == NegativeBinomial(5.0)
    with pytest.raises(ValueError, match="must be of type float, not 5"):
        from_description({"name": "negative_binomial", "size": 5})
    assert choose("probit", y, 1) == Probit()


def test_the_library_forgets_it_with_its_registration():
    with pytest.raises(ValueError, match="not 'probit'"):
        choose("probit", torch.tensor([0, 1]), 1)


def test_several_outputs_are_integrated_too():
    class Pair(NegativeBinomial):
        """Two counts a sample."""

    mean = torch.tensor([[0.3, -0.5]]).double()
    covariance = torch.tensor([[[0.5, 0.2], [0.2, 0.3]]]).double()
    y = torch.tensor([[2.0, 1.0]])
    found = Pair().expectations(mean, covariance, y)
    expected = sum(
        quad(
            lambda f, m=float(m), v=float(v), count=int(count): (
                -nbinom.logpmf(count, 2, 2 / (2 + np.exp(f))) * norm.pdf(f, m, v**0.5)
            ),
            -8,
            8,
        )[0]
        for m, v, count in zip(mean[0], covariance[0].diagonal(), y[0], strict=True)
    )
    assert float(found.loss) == pytest.approx(expected, abs=0.01)
    assert found.residual.shape == (1, 2)
    # The two counts are independent given their outputs, so that nothing mixes them.
    assert float(found.curvature[0, 0, 1]) == float(found.curvature[0, 1, 0]) == 0
    assert bool((found.curvature[0].diagonal() > 0).all())

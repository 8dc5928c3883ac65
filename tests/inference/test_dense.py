"""DenseVI against closed forms, numerical integration and direct optimisation."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import gammaln
from torch import nn

from ibcl import DenseGaussian, DenseVI, DiagonalGaussian, MeanFieldVI
from ibcl.gaussians import LowRankGaussian
from ibcl.inference.sites import Natural, SiteProblem
from ibcl.likelihoods import Bernoulli, Categorical, Normal, Poisson
from ibcl.networks import FlatNetwork, linear, mlp, random_features
from ibcl.tasks import TaskData
from theorems import assert_same_gaussian, random_gaussian


def isotropic(dimension: int, std: float) -> DiagonalGaussian:
    return DiagonalGaussian(torch.zeros(dimension).double(), torch.full((dimension,), std).double())


def infer(network, likelihood, prior, x, y, **settings):
    data = TaskData(x.float(), y)
    return DenseVI(**settings).infer(FlatNetwork(network), likelihood, [prior], data)


def logistic_data(n: int, columns: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, columns, generator=generator)
    logits = 2 * x[:, 0] - 1
    return x, (torch.rand(n, generator=generator) < torch.sigmoid(logits)).float()


def evaluations(monkeypatch) -> list[torch.dtype]:
    """Return the precisions of all evaluations from now on, as they come."""
    seen: list[torch.dtype] = []
    evaluate = SiteProblem.evaluate

    def watched(problem, natural):
        seen.append(problem.dtype)
        return evaluate(problem, natural)

    monkeypatch.setattr(SiteProblem, "evaluate", watched)
    return seen


@given(seed=st.integers(0, 500), outputs=st.integers(1, 3), noise=st.floats(0.1, 3))
def test_exact_for_linear_gaussian_models(seed, outputs, noise):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(7, 2, generator=generator)
    y = torch.randn(7, outputs, generator=generator)
    prior = random_gaussian("dense", 3 * outputs, seed)
    (posterior,) = infer(linear(2, outputs), Normal(noise), prior, x, y).posteriors
    # Row (s, c) of the design maps θ = (weight, bias) to output c of sample s.
    design = torch.zeros(7, outputs, 3 * outputs).double()
    for c in range(outputs):
        design[:, c, 2 * c : 2 * c + 2] = x.double()
        design[:, c, 2 * outputs + c] = 1
    design = design.reshape(-1, 3 * outputs)
    precision = prior.precision + design.T @ design / noise**2
    shift = prior.natural_parameters().linear + design.T @ y.double().flatten() / noise**2
    exact = DenseGaussian(torch.linalg.solve(precision, shift), precision)
    assert_same_gaussian(posterior, exact, tolerance=1e-6)


def test_learning_in_two_parts_equals_learning_at_once_for_linear_gaussian_models():
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(20, 3, generator=generator), torch.randn(20, 1, generator=generator)
    prior = isotropic(4, 2.0)
    (whole,) = infer(linear(3), Normal(0.5), prior, x, y).posteriors
    (first,) = infer(linear(3), Normal(0.5), prior, x[:8], y[:8]).posteriors
    (second,) = infer(linear(3), Normal(0.5), first, x[8:], y[8:]).posteriors
    assert_same_gaussian(whole, second, tolerance=1e-7)


def bernoulli_bound(parameters, x, y, prior_std):
    """The ELBO of a two-parameter logistic head, written out with one-dimensional integrals."""
    mean, root = parameters[:2], np.array([[parameters[2], 0], [parameters[3], parameters[4]]])
    design = np.column_stack([x, np.ones(len(x))])
    m, s = design @ mean, np.linalg.norm(design @ root, axis=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = m[:, None] + s[:, None] * nodes
    loss = (np.logaddexp(0, z) @ weights / np.sqrt(2 * np.pi) - y * m).sum()
    kl = 0.5 * ((root**2).sum() + mean @ mean) / prior_std**2 - 1 + 2 * np.log(prior_std)
    return loss + kl - np.log(abs(parameters[2] * parameters[4]))


@pytest.mark.parametrize("prior_std", [0.5, 3.0])
def test_logistic_posterior_maximises_the_elbo(prior_std):
    x, y = logistic_data(40, 1)
    result = infer(linear(1), Bernoulli(), isotropic(2, prior_std), x, y, tolerance=1e-6)
    best = minimize(
        bernoulli_bound,
        [0, 0, 0.5, 0, 0.5],
        args=(x[:, 0].numpy(), y.numpy(), prior_std),
        method="BFGS",
        options={"gtol": 1e-8},
    )
    root = np.array([[best.x[2], 0], [best.x[3], best.x[4]]])
    (posterior,) = result.posteriors
    np.testing.assert_allclose(posterior.mean.numpy(), best.x[:2], atol=1e-4)
    np.testing.assert_allclose(posterior.covariance.numpy(), root @ root.T, atol=1e-4)
    assert result.objectives[0] == pytest.approx(-best.fun, abs=1e-5)


def test_two_class_softmax_agrees_with_the_logistic_head():
    x, y = logistic_data(60, 2)
    (binary,) = infer(linear(2), Bernoulli(), isotropic(3, 2.0), x, y).posteriors
    # The difference of two independent weights of std s is one weight of std s·√2.
    prior = isotropic(6, 2.0 / np.sqrt(2))
    (softmax,) = infer(linear(2, 2), Categorical(), prior, x, y.long()).posteriors
    weight, bias = softmax.mean[:4].reshape(2, 2), softmax.mean[4:]
    difference = torch.cat([weight[1] - weight[0], bias[1:] - bias[:1]])
    torch.testing.assert_close(difference, binary.mean, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("prior_std", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("columns", [1, 30])
def test_stable_on_separable_data_and_wide_priors(prior_std, columns):
    x = torch.randn(25, columns, generator=torch.Generator().manual_seed(3))
    y = (x[:, 0] > 0).float()
    result = infer(linear(columns), Bernoulli(), isotropic(columns + 1, prior_std), x, y)
    (posterior,) = result.posteriors
    assert result.converged
    assert bool(torch.isfinite(posterior.mean).all())
    logits = x.double() @ posterior.mean[:-1] + posterior.mean[-1]
    assert float(((logits > 0) == (y > 0)).double().mean()) > 0.9
    # Data can only sharpen a Gaussian that maximises a log-concave likelihood's ELBO.
    added = posterior.precision - torch.eye(columns + 1).double() / prior_std**2
    assert float(torch.linalg.eigvalsh(added).min()) > -1e-6 * float(added.abs().max())


def test_deterministic_and_blind_to_the_order_of_samples():
    x, y = logistic_data(50, 4)
    prior = isotropic(5, 2.5)
    (one,), (two,) = (infer(linear(4), Bernoulli(), prior, x, y).posteriors for _ in range(2))
    assert torch.equal(one.mean, two.mean)
    assert torch.equal(one.precision, two.precision)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    (shuffled,) = infer(linear(4), Bernoulli(), prior, x[order], y[order]).posteriors
    assert_same_gaussian(one, shuffled, tolerance=1e-3)


def test_random_features_and_a_head_without_bias():
    x, y = logistic_data(60, 3)
    result = infer(random_features(3, width=20), Bernoulli(), isotropic(21, 5.0), x, y)
    assert result.converged
    head = nn.Sequential(nn.Linear(3, 1, bias=False))
    (posterior,) = infer(head, Normal(1.0), isotropic(3, 1.0), x, y[:, None]).posteriors
    exact = torch.linalg.solve(torch.eye(3) + x.T @ x, x.T @ y)
    torch.testing.assert_close(posterior.mean.float(), exact, rtol=1e-4, atol=1e-5)


def test_very_many_samples_are_left_to_single_precision_with_the_same_posterior(monkeypatch):
    x, y = logistic_data(4000, 5)
    prior = isotropic(6, 1.0)
    (expected,) = infer(linear(5), Bernoulli(), prior, x, y, tolerance=1e-8).posteriors
    monkeypatch.setattr("ibcl.inference.sites.LARGE", 0)
    monkeypatch.setattr("ibcl.inference.sites._VERY_LARGE", 0)
    evaluated = evaluations(monkeypatch)
    (found,) = infer(linear(5), Bernoulli(), prior, x, y).posteriors
    assert set(evaluated) == {torch.float32}
    deviations = (found.mean - expected.mean) * expected.precision.diagonal().sqrt()
    assert float(deviations.abs().max()) < 0.002
    torch.testing.assert_close(found.precision, expected.precision, rtol=2e-3, atol=0.2)


def test_large_problems_start_in_single_precision_and_end_at_the_same_posterior(monkeypatch):
    x, y = logistic_data(300, 60)
    prior = isotropic(61, 1.0)
    (double,) = infer(linear(60), Bernoulli(), prior, x, y, tolerance=1e-5).posteriors
    monkeypatch.setattr("ibcl.inference.sites.LARGE", 0)
    (mixed,) = infer(linear(60), Bernoulli(), prior, x, y, tolerance=1e-5).posteriors
    assert_same_gaussian(double, mixed, tolerance=1e-4)


def poisson_bound(parameters, x, y, prior_std):
    """−ELBO of counts with log rate a + b x, with E[exp z] in closed form."""
    mean, root = parameters[:2], np.array([[parameters[2], 0], [parameters[3], parameters[4]]])
    design = np.column_stack([x, np.ones(len(x))])
    m, v = design @ mean, ((design @ root) ** 2).sum(1)
    loss = (np.exp(m + v / 2) - y * m + gammaln(y + 1)).sum()
    kl = 0.5 * ((root**2).sum() + mean @ mean) / prior_std**2 - 1 + 2 * np.log(prior_std)
    return loss + kl - np.log(abs(parameters[2] * parameters[4]))


@pytest.mark.parametrize(("offset", "prior_std"), [(0.5, 1.0), (4.0, 10.0)])
def test_poisson_posterior_maximises_the_elbo(offset, prior_std):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = rng.poisson(np.exp(0.8 * x + offset))
    result = infer(
        linear(1),
        Poisson(),
        isotropic(2, prior_std),
        torch.tensor(x)[:, None],
        torch.tensor(y)[:, None].float(),
        tolerance=1e-6,
    )
    best = minimize(
        poisson_bound,
        [0.8, offset, 0.1, 0, 0.1],
        args=(x.astype(np.float32).astype(float), y, prior_std),
        method="BFGS",
        options={"gtol": 1e-7},
    )
    root = np.array([[best.x[2], 0], [best.x[3], best.x[4]]])
    (posterior,) = result.posteriors
    assert result.converged
    np.testing.assert_allclose(posterior.mean.numpy(), best.x[:2], atol=1e-4)
    np.testing.assert_allclose(posterior.covariance.numpy(), root @ root.T, atol=1e-5)
    assert result.objectives[0] == pytest.approx(-best.fun, abs=1e-4)


@pytest.mark.parametrize(
    ("offset", "prior_std", "columns"),
    [(0, 2.5, 50), (0, 10.0, 50), (-6, 10.0, 3), (2, 1e4, 3), (12, 100.0, 3)],
)
def test_counts_under_wide_priors_converge_without_overflow(offset, prior_std, columns):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, columns, generator=generator)
    y = torch.poisson(torch.exp(x[:, :1] + offset), generator=generator)
    result = infer(linear(columns), Poisson(), isotropic(columns + 1, prior_std), x, y)
    assert result.converged
    rates = torch.exp(x.double() @ result.posteriors[0].mean[:-1] + result.posteriors[0].mean[-1])
    # At the maximum the rates' sum is about the counts': the score of the bias is nearly zero.
    assert float(rates.sum()) <= 1.05 * float(y.sum()) + 1


def test_counts_that_leave_most_to_a_very_wide_prior_are_finite_and_said_to_be_unfinished():
    """Counts of zero want their log rate at −∞, which a prior this wide hardly holds back."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 50, generator=generator)
    y = torch.poisson(torch.exp(x[:, :1]), generator=generator)
    with pytest.warns(UserWarning, match="did not reach its tolerance"):
        result = infer(linear(50), Poisson(), isotropic(51, 100.0), x, y, max_iterations=20)
    assert not result.converged
    assert bool(torch.isfinite(result.posteriors[0].mean).all())
    # Rows that were counted are fitted all the same.
    logs = x.double() @ result.posteriors[0].mean[:-1] + result.posteriors[0].mean[-1]
    counted = y[:, 0] > 0
    assert float((logs[counted] - y[counted, 0].double().log()).abs().max()) < 1


def test_mean_field_counts_agree_with_the_dense_posterior():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 2, generator=generator)
    y = torch.poisson(torch.exp(x[:, :1] + 1), generator=generator)
    data, network = TaskData(x, y), FlatNetwork(linear(2))
    (dense,) = DenseVI().infer(network, Poisson(), [isotropic(3, 2.0)], data).posteriors
    wide = DiagonalGaussian(torch.zeros(3), torch.full((3,), 2.0))
    sampled = MeanFieldVI(epochs=40, learning_rate=0.05).infer(network, Poisson(), [wide], data)
    torch.testing.assert_close(sampled.posteriors[0].mean.double(), dense.mean, atol=0.05, rtol=0)


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_a_posterior_of_low_rank_keeps_the_mean_and_the_leading_evidence(rank):
    x, y = logistic_data(80, 20)
    prior = isotropic(21, 2.0)
    (full,) = infer(linear(20), Bernoulli(), prior, x, y).posteriors
    (narrow,) = infer(linear(20), Bernoulli(), prior, x, y, rank=rank).posteriors
    assert isinstance(narrow, LowRankGaussian)
    assert narrow.factor.shape == (21, rank)
    torch.testing.assert_close(narrow.mean, full.mean, rtol=0, atol=0)
    # The diagonal of the precision stays, and what lies beside it is closest in so many directions.
    precision = narrow.dense().precision
    torch.testing.assert_close(precision.diagonal(), full.precision.diagonal())
    unit = full.precision.diagonal().rsqrt()
    evidence = unit[:, None] * (full.precision - torch.eye(21).double() / 4) * unit
    values, vectors = torch.linalg.eigh(evidence)
    leading = vectors[:, -rank:] * values[-rank:] @ vectors[:, -rank:].T
    beside = unit[:, None] * precision * unit
    mask = ~torch.eye(21).bool()
    torch.testing.assert_close(beside[mask], leading[mask], rtol=1e-6, atol=1e-9)


def test_a_rank_as_large_as_the_parameters_loses_nothing():
    x, y = logistic_data(80, 5)
    (full,) = infer(linear(5), Bernoulli(), isotropic(6, 2.0), x, y).posteriors
    (whole,) = infer(linear(5), Bernoulli(), isotropic(6, 2.0), x, y, rank=6).posteriors
    assert_same_gaussian(full, whole, tolerance=1e-8)


@pytest.mark.parametrize("settings", [{"rank": 0}, {"tolerance": 0.0}, {"max_iterations": 0}])
def test_settings_must_make_sense(settings):
    with pytest.raises(ValueError, match="must be"):
        DenseVI(**settings)


@pytest.mark.parametrize(
    ("std", "side"), [(1e200, "larger"), (2e15, "larger"), (5e-16, "smaller"), (1e-200, "smaller")]
)
def test_priors_that_cannot_be_computed_with_are_refused(std, side):
    x, y = logistic_data(10, 2)
    prior = DiagonalGaussian(
        torch.zeros(3).double(), torch.tensor([1.0, std, 1.0], dtype=torch.float64)
    )
    with pytest.raises(ValueError, match=f"between 1e-15 and 1e\\+15 .* one is {side}"):
        infer(linear(2), Bernoulli(), prior, x, y)


def test_the_widest_and_narrowest_priors_are_computed_with():
    x, y = logistic_data(10, 2)
    for std in (1.01e-15, 0.99e15):
        prior = DiagonalGaussian(
            torch.zeros(3).double(), torch.full((3,), std, dtype=torch.float64)
        )
        (posterior,) = infer(linear(2), Normal(1.0), prior, x, y[:, None]).posteriors
        assert bool(torch.isfinite(posterior.mean).all())


def test_a_prior_of_another_size_is_refused():
    x, y = logistic_data(10, 2)
    with pytest.raises(ValueError, match="prior has 5 parameters, but the network has 3"):
        infer(linear(2), Bernoulli(), isotropic(5, 1.0), x, y)


@pytest.mark.parametrize("large", [0, float("inf")], ids=["single precision", "double precision"])
@pytest.mark.parametrize("outlier", [1e8, 1e20, 1e30])
def test_outliers_do_not_break_it(outlier, large, monkeypatch):
    """What single precision cannot hold is begun in double precision."""
    monkeypatch.setattr("ibcl.inference.sites.LARGE", large)
    x, y = logistic_data(50, 3)
    x[0, 0] = outlier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (posterior,) = infer(linear(3), Bernoulli(), isotropic(4, 1.0), x, y).posteriors
    assert bool(torch.isfinite(posterior.mean).all())


def test_where_no_gaussian_can_be_computed_a_sentence_says_why():
    """More parameters than samples, and a prior below the rounding of what the samples say."""
    x, y = logistic_data(5, 20)
    prior = isotropic(21, 1e12)
    with pytest.raises(ValueError, match=r"features reach .* standard deviations 1e\+12; scale"):
        infer(linear(20), Normal(1e-6), prior, 1e6 * x, y[:, None])


def test_features_that_are_not_finite_are_refused():
    network = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1))
    network[0].weight.data[:] = 1e30
    network[0].requires_grad_(False)
    with pytest.raises(ValueError, match="features before the head are not finite"):
        infer(network, Normal(), isotropic(3, 1.0), torch.tensor([[1.0], [1e10]]), torch.ones(2, 1))


def test_what_does_not_fit_into_memory_is_refused_before_it_is_tried():
    network = linear(20_000, 200)
    with pytest.raises(ValueError, match=r"4000200 parameters needs about .* GiB .* regression"):
        DenseVI().infer(
            FlatNetwork(network),
            Categorical(),
            [DiagonalGaussian(torch.zeros(4_000_200), torch.ones(4_000_200))],
            TaskData(torch.zeros(2, 20_000), torch.tensor([0, 1])),
        )


def test_networks_that_are_not_linear_in_their_parameters_are_refused():
    x, y = logistic_data(10, 2)
    with pytest.raises(ValueError, match="linear in its parameters"):
        infer(mlp(2, hidden=3), Bernoulli(), isotropic(13, 1.0), x, y)


def test_running_out_of_iterations_is_said():
    x, y = logistic_data(50, 20)
    with pytest.warns(UserWarning, match="did not reach its tolerance"):
        infer(linear(20), Bernoulli(), isotropic(21, 50.0), x, y, max_iterations=1)


def test_progress_counts_priors_and_says_the_loss_of_a_sample():
    x, y = logistic_data(20, 2)
    weights = torch.full((20,), 2.0)
    seen = []
    result = DenseVI().infer(
        FlatNetwork(linear(2)),
        Bernoulli(),
        [isotropic(3, 1.0), isotropic(3, 2.0)],
        TaskData(x, y, weights),
        progress=seen.append,
    )
    assert [(step.done, step.total) for step in seen] == [(1, 2), (2, 2)]
    expected = [-bound / 40 for bound in result.objectives]
    assert [step.objective for step in seen] == pytest.approx(expected)


@pytest.mark.parametrize(("n", "columns"), [(300, 60), (50, 60), (20, 60)])
def test_the_ways_of_very_wide_heads_end_at_the_same_posterior(n, columns, monkeypatch):
    """Estimated sizes, inverses by halves, means moved first, few samples in their span."""
    x, y = logistic_data(n, columns)
    prior = isotropic(columns + 1, 0.5)
    (expected,) = infer(linear(columns), Bernoulli(), prior, x, y, tolerance=1e-6).posteriors
    monkeypatch.setattr("ibcl.inference.sites.LARGE", 0)
    monkeypatch.setattr("ibcl.inference.large_matrices._MANY_PARAMETERS", 8)
    (found,) = infer(linear(columns), Bernoulli(), prior, x, y, tolerance=1e-4).posteriors
    deviations = (found.mean - expected.mean) * expected.precision.diagonal().sqrt()
    assert float(deviations.abs().max()) < 1e-3
    torch.testing.assert_close(found.precision, expected.precision, rtol=1e-3, atol=1e-2)


def test_known_evidence_is_a_place_to_begin_at_and_changes_nothing_else(monkeypatch):
    x, y = logistic_data(400, 20)
    prior = isotropic(21, 3.0)
    network, data = FlatNetwork(linear(20)), TaskData(x, y)
    seen = evaluations(monkeypatch)
    (afresh,) = DenseVI(tolerance=1e-6).infer(network, Bernoulli(), [prior], data).posteriors
    steps = len(seen)
    near = afresh.natural_parameters() - prior.natural_parameters()
    evidence = Natural(1.1 * near.linear, 1.1 * near.precision)
    seen.clear()
    (begun,) = (
        DenseVI(tolerance=1e-6)
        .infer(network, Bernoulli(), [prior], data, evidence=[evidence])
        .posteriors
    )
    assert_same_gaussian(begun, afresh, tolerance=1e-5)
    assert len(seen) < steps
    # What is far off, or no Gaussian at all, is a worse place to begin at and no other answer.
    for wrong in (-5.0, 1e4):
        evidence = Natural(wrong * near.linear, wrong * near.precision)
        (found,) = (
            DenseVI(tolerance=1e-6)
            .infer(network, Bernoulli(), [prior], data, evidence=[evidence])
            .posteriors
        )
        assert_same_gaussian(found, afresh, tolerance=1e-5)

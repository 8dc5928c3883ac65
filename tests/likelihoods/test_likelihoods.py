"""Every likelihood is a probability, and its parts agree with each other and with simulation."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from ibcl.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Likelihood,
    Normal,
    OneVsRest,
    Poisson,
    choose,
    from_description,
    register,
)

CASES = {
    "bernoulli": (Bernoulli(), 1, torch.tensor([0, 1, 1, 0])),
    "categorical": (Categorical(), 3, torch.tensor([0, 2, 1, 2])),
    "one_vs_rest": (OneVsRest(), 3, torch.tensor([0, 2, 1, 2])),
    "gaussian": (Normal(0.7), 1, torch.tensor([0.3, -1.0, 2.0, 0.0])),
    "two gaussians": (
        Normal(0.7),
        2,
        torch.randn(4, 2, generator=torch.Generator().manual_seed(3)),
    ),
    "poisson": (Poisson(), 1, torch.tensor([0, 3, 12, 1])),
    "two poissons": (Poisson(), 2, torch.tensor([[0, 3], [12, 1], [2, 2], [0, 0]])),
}
every = pytest.mark.parametrize(("likelihood", "outputs", "y"), CASES.values(), ids=CASES)
every_link = pytest.mark.parametrize(
    ("likelihood", "outputs"), [case[:2] for case in CASES.values()], ids=CASES
)


def gaussians(outputs: int, n: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(outputs)
    mean = torch.randn(n, outputs, generator=generator).double()
    root = torch.randn(n, outputs, outputs, generator=generator).double()
    return mean, root @ root.transpose(1, 2) / 3


@every
def test_expectations_are_those_of_the_loss(likelihood, outputs, y):
    """Against plain Monte Carlo, within five standard errors of it."""
    labels = likelihood.check(y, outputs)
    mean, covariance = gaussians(outputs)
    ours = likelihood.expectations(mean, covariance, labels)
    noise = torch.randn(200_000, 4, outputs, generator=torch.Generator().manual_seed(0)).double()
    root = torch.linalg.cholesky(covariance)
    z = (mean + torch.einsum("nij,snj->sni", root, noise)).requires_grad_()
    loss = likelihood.negative_log(z, labels)
    (slope,) = torch.autograd.grad(loss.sum(), z, create_graph=True)
    curvature = torch.stack(
        [torch.autograd.grad(slope[..., c].sum(), z, retain_graph=True)[0] for c in range(outputs)],
        2,
    )
    for found, draws in zip(ours, (loss, -slope, curvature), strict=True):
        error = draws.detach().std(0) / 200_000**0.5
        slack = 5 * error + 0.01 * (likelihood.quadrature_error > 0) + 1e-9
        assert bool(((found - draws.detach().mean(0)).abs() <= slack).all())


@every
def test_the_generic_expectations_agree_with_the_closed_form(likelihood, outputs, y):
    labels = likelihood.check(y, outputs)
    mean, covariance = gaussians(outputs)
    exact = likelihood.expectations(mean, covariance, labels)
    generic = Likelihood.expectations(likelihood, mean, covariance, labels)
    tolerance = 1e-7 if outputs == 1 or likelihood == Categorical() else 0.05
    for ours, theirs in zip(exact, generic, strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


@every
def test_without_variance_expectations_are_the_plain_loss(likelihood, outputs, y):
    labels = likelihood.check(y, outputs)
    mean, covariance = gaussians(outputs)
    plain = likelihood.expectations(mean, torch.zeros_like(covariance), labels)
    torch.testing.assert_close(plain.loss, likelihood.negative_log(mean, labels))


@every
def test_slopes_are_the_difference_quotients_of_the_loss(likelihood, outputs, y):
    labels = likelihood.check(y, outputs)
    models = torch.randn(3, 4, outputs, generator=torch.Generator().manual_seed(5)).double()
    slopes = likelihood.slope(models, labels)
    for output in range(outputs):
        step = 1e-5 * torch.eye(outputs).double()[output]
        above, below = (likelihood.negative_log(models + s * step, labels) for s in (1, -1))
        torch.testing.assert_close(
            slopes[..., output], (above - below) / 2e-5, atol=1e-6, rtol=1e-6
        )


@pytest.mark.parametrize("count", [0, 1, 40])
@pytest.mark.parametrize(("mean", "variance"), [(-3.0, 0.1), (0.5, 2.0), (2.0, 0.0625)])
def test_poisson_expectations_match_numerical_integration(count, mean, variance):
    std = variance**0.5
    found = Poisson().expectations(
        torch.tensor([[mean]]).double(),
        torch.tensor([[[variance]]]).double(),
        torch.tensor([[count]]),
    )

    def expect(function):
        return quad(
            lambda z: function(z) * stats.norm.pdf(z, mean, std),
            mean - 14 * std,
            mean + 14 * std,
            epsabs=1e-12,
            epsrel=1e-12,
        )[0]

    assert float(found.loss) == pytest.approx(
        expect(lambda z: -stats.poisson.logpmf(count, math.exp(z))), rel=1e-8
    )
    assert float(found.residual) == pytest.approx(count - expect(math.exp), rel=1e-8)
    assert float(found.curvature) == pytest.approx(expect(math.exp), rel=1e-8)


def test_losses_are_the_negative_logarithms_of_the_distributions():
    f = torch.tensor([[-1.5], [0.0], [2.5]]).double()
    rates, counts = np.exp(f.numpy()[:, 0]), np.array([3, 0, 20])
    np.testing.assert_allclose(
        Poisson().negative_log(f, torch.tensor(counts)[:, None]),
        -stats.poisson.logpmf(counts, rates),
    )
    targets = np.array([0.4, -2.0, 2.0])
    np.testing.assert_allclose(
        Normal(0.3).negative_log(f, torch.tensor(targets)[:, None]),
        -stats.norm.logpdf(targets, f.numpy()[:, 0], 0.3),
    )
    for likelihood, outputs in (
        (Bernoulli(), f),
        (Categorical(), f.expand(3, 3) * torch.arange(3)),
    ):
        classes = likelihood.columns(outputs.shape[1])
        losses = torch.stack(
            [likelihood.negative_log(outputs, torch.full((3,), c)) for c in range(classes)], 1
        )
        torch.testing.assert_close(torch.exp(-losses), likelihood.mean(outputs))


def test_log_rates_too_large_for_single_precision_still_have_a_gradient():
    f = torch.tensor([[29.0], [31.0], [500.0]], requires_grad=True)
    loss = Poisson().negative_log(f, torch.ones(3, 1))
    (slope,) = torch.autograd.grad(loss.sum(), f)
    loss = loss.detach()
    assert bool(torch.isfinite(loss).all())
    assert float(slope[0]) == pytest.approx(math.exp(29), rel=1e-5)
    # A straight line from e^30 on: the same slope at 31 and at 500, and losses along it.
    assert float(slope[1]) == float(slope[2]) == pytest.approx(math.exp(30), rel=1e-5)
    assert float(loss[2] - loss[1]) == pytest.approx(469 * math.exp(30), rel=1e-5)
    assert bool(torch.isfinite(Poisson().mean(f)).all())


@every_link
def test_outputs_of_a_mean_have_that_mean(likelihood, outputs):
    f = torch.linspace(-4, 4, 6 * outputs).reshape(6, outputs).double()
    mean = likelihood.mean(f)
    torch.testing.assert_close(likelihood.mean(likelihood.outputs_of(mean)), mean)
    if outputs == 1:
        torch.testing.assert_close(likelihood.outputs_of(mean), f)
        torch.testing.assert_close(Likelihood.outputs_of(likelihood, mean), f)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(), OneVsRest()])
def test_a_sure_class_has_finite_outputs(likelihood):
    mean = torch.tensor([[0.0, 1.0]])
    outputs = likelihood.outputs_of(mean)
    assert bool(torch.isfinite(outputs).all())
    torch.testing.assert_close(likelihood.mean(outputs), mean)


def test_outputs_of_one_class_against_the_rest_are_logits_of_half_the_probabilities():
    """Where classes claim a sample with halves of p, they claim it as if it were in doubt once."""
    mean = torch.tensor([[0.2, 0.3, 0.5]]).double()
    torch.testing.assert_close(torch.sigmoid(OneVsRest().outputs_of(mean)), mean / 2)


def test_a_rate_of_zero_has_finite_outputs():
    outputs = Poisson().outputs_of(torch.tensor([[0.0]]))
    assert bool(torch.isfinite(outputs).all())
    assert float(Poisson().mean(outputs)) < 1e-30


def test_bisection_also_inverts_a_falling_mean_and_refuses_several_outputs():
    class Falling(Normal):
        def mean(self, outputs):
            return -outputs

    mean = torch.tensor([[-3.5], [2.0]]).double()
    torch.testing.assert_close(Likelihood.outputs_of(Falling(), mean), -mean)
    with pytest.raises(ValueError, match="give it a method outputs_of"):
        Likelihood.outputs_of(Categorical(), torch.tensor([[0.2, 0.3, 0.5]]))


def test_decisions_are_classes_or_expected_values():
    assert Bernoulli().decide(torch.tensor([[0.4, 0.6], [0.9, 0.1]])).tolist() == [1, 0]
    assert Categorical().decide(torch.tensor([[0.1, 0.2, 0.7]])).tolist() == [2]
    assert Poisson().decide(torch.tensor([[2.5], [0.0]])).tolist() == [2.5, 0.0]
    assert Normal().decide(torch.tensor([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]


@every_link
def test_columns_are_the_means(likelihood, outputs):
    assert likelihood.columns(outputs) == likelihood.mean(torch.zeros(1, outputs)).shape[1]


def test_classes_have_probabilities_and_regressions_do_not():
    assert Bernoulli().columns(1) == 2
    torch.testing.assert_close(
        OneVsRest().probabilities(torch.tensor([[3.0, 3.0]])), torch.tensor([[0.5, 0.5]])
    )
    for likelihood in (Normal(), Poisson()):
        with pytest.raises(ValueError, match="no class probabilities; use predict"):
            likelihood.probabilities(torch.zeros(1, 1))


@pytest.mark.parametrize(
    ("likelihood", "draw"),
    [
        (Normal(0.7), lambda f, g: f + 0.7 * torch.randn(f.shape, generator=g)),
        (Poisson(), lambda f, g: torch.poisson(f.exp(), generator=g)),
    ],
)
def test_uncertainty_is_the_variance_of_what_the_models_predict(likelihood, draw):
    generator = torch.Generator().manual_seed(0)
    outputs = 0.5 * torch.randn(7, 3, 2, generator=generator)
    parts = likelihood.uncertainty(outputs)
    draws = torch.stack([draw(outputs, generator) for _ in range(40_000)])
    total = draws.transpose(0, 1).reshape(-1, 3, 2).var(0).sum(-1)
    noise = draws.var(0).mean(0).sum(-1)
    torch.testing.assert_close(parts.total, total, rtol=0.03, atol=0)
    torch.testing.assert_close(parts.aleatoric, noise, rtol=0.03, atol=0)
    torch.testing.assert_close(parts.epistemic, parts.total - parts.aleatoric)


@pytest.mark.parametrize("likelihood", [Normal(0.7), Poisson()])
@pytest.mark.parametrize(("mean", "variance"), [(0.5, 0.3), (-1.0, 1.0), (2.0, 0.0)])
def test_predictive_moments_are_those_of_outputs_drawn(likelihood, mean, variance):
    """By Gauss–Hermite quadrature, from the likelihood's own mean and variance."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f = torch.as_tensor(mean + variance**0.5 * nodes)[:, None]
    p = torch.as_tensor(weights / weights.sum())[:, None]
    expected = (p * likelihood.mean(f)).sum()
    found = likelihood.predictive(*(torch.tensor([it]).double() for it in (mean, variance)))
    torch.testing.assert_close(found.mean, expected[None])
    torch.testing.assert_close(found.aleatoric, (p * likelihood.variance(f)).sum(0))
    spread = (p * (likelihood.mean(f) - expected).square()).sum(0)
    torch.testing.assert_close(found.epistemic, spread)


def test_predictive_moments_of_counts_stay_finite_far_from_the_data():
    far = torch.tensor([3.0, 500.0, -3000.0, 0.0]).double()
    found = Poisson().predictive(far, torch.tensor([2000.0, 0.1, 2000.0, 0.0]).double())
    assert all(bool(torch.isfinite(part.float()).all()) for part in found)
    assert float(found.epistemic[3]) == 0


def test_uncertainty_of_classes_is_their_entropy():
    parts = Bernoulli().uncertainty(torch.tensor([[[-50.0]], [[50.0]]]))
    assert float(parts.total) == pytest.approx(math.log(2))
    assert float(parts.aleatoric) == pytest.approx(0, abs=1e-9)
    assert float(parts.epistemic) == pytest.approx(math.log(2))


@pytest.mark.parametrize("likelihood", [case[0] for case in CASES.values()], ids=CASES)
def test_a_description_gives_the_likelihood_back(likelihood):
    description = likelihood.description()
    assert from_description(description) == likelihood
    assert description["name"] == likelihood.name
    assert LIKELIHOODS[likelihood.name] is type(likelihood)


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ({"name": "gaussian", "noise": "1.0"}, "must be of type float, not '1.0'"),
        ({"name": "gaussian", "noise": 1}, "must be of type float, not 1"),
        ({"name": "gaussian", "noise": True}, "must be of type float, not True"),
        ({"name": "gaussian"}, r"has the settings \['noise'\], but the description has \[\]"),
        ({"name": "poisson", "noise": 1.0}, r"has the settings \[\]"),
        ({"name": "gaussian", "noise": -1.0}, "must be positive, not -1.0"),
        ({"name": "gaussian", "noise": math.nan}, "must be positive, not nan"),
        ({"name": "gaussian", "noise": math.inf}, "must be positive, not inf"),
        ({"name": "gaussian", "noise": 1e-200}, "cannot be computed with"),
        ({"name": "gaussian", "noise": 1e200}, "cannot be computed with"),
        ({"name": "cauchy"}, "one of bernoulli, .*, not 'cauchy'"),
        ({"name": None}, "not None"),
        ({}, "not None"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(description, reason):
    with pytest.raises(ValueError, match=reason):
        from_description(description)


def test_a_name_is_given_once():
    class Other(Normal):
        name = "poisson"

    with pytest.raises(ValueError, match="belongs to the likelihood Poisson already"):
        register(Other)
    assert LIKELIHOODS["poisson"] is Poisson
    Other.name = "auto"
    with pytest.raises(ValueError, match="other than 'auto'"):
        register(Other)
    assert register(Poisson) is Poisson


@pytest.mark.parametrize(
    ("name", "y", "outputs", "chosen"),
    [
        ("auto", torch.tensor([0, 1]), 1, Bernoulli()),
        ("auto", torch.tensor([0.0, 1.0]), 1, Bernoulli()),
        ("auto", torch.tensor([[0], [1]]), 1, Bernoulli()),
        ("auto", torch.tensor([0, 2, 1]), 3, Categorical()),
        ("auto", torch.tensor([0.5, 1.0]), 1, Normal()),
        ("auto", torch.tensor([[1, 2], [3, 4]]), 2, Normal()),
        ("poisson", torch.tensor([0, 1]), 1, Poisson()),
        ("one_vs_rest", torch.tensor([0, 1]), 2, OneVsRest()),
        (Normal(0.2), torch.tensor([0, 1]), 1, Normal(0.2)),
    ],
)
def test_choice_by_labels_and_outputs(name, y, outputs, chosen):
    assert choose(name, y, outputs) == chosen


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'auto' or one of bernoulli, .*poisson.*, not 'counts'"):
        choose("counts", torch.tensor([1]), 1)


@pytest.mark.parametrize(
    ("likelihood", "y", "outputs", "reason"),
    [
        (Bernoulli(), [0, 2], 1, "classifies into 0 and 1 .* hold 0, 2"),
        (Bernoulli(), [0, 1], 2, "needs one output, not 2"),
        (Categorical(), [0, 3], 3, "0 to 2, but the labels hold 0, 3"),
        (Categorical(), [0, -1], 3, "hold -1, 0"),
        (Categorical(), [0.5, 1], 3, "hold 0.5, 1.0"),
        (OneVsRest(), [0, 3], 3, "0 to 2"),
        (OneVsRest(), [0, 0], 1, "at least two outputs"),
        (Normal(), [[1.0, 2.0]], 1, "2 columns, but the network has 1"),
        (Poisson(), [1, -1], 1, "needs counts 0, 1, 2, ..., but the labels hold -1, 1"),
        (Poisson(), [1, 0.5], 1, "needs counts"),
        (Poisson(), [[1, 2]], 3, "2 columns, but the network has 3"),
    ],
)
def test_labels_that_do_not_fit_are_refused(likelihood, y, outputs, reason):
    with pytest.raises(ValueError, match=reason):
        likelihood.check(torch.tensor(y), outputs)


def test_labels_that_fit_come_in_the_dtype_of_the_loss():
    assert Bernoulli().check(torch.tensor([True, False]), 1).tolist() == [1.0, 0.0]
    assert Categorical().check(torch.tensor([0.0, 2.0]), 3).tolist() == [0, 2]
    assert Poisson().check(torch.tensor([0, 7]), 1).tolist() == [[0.0], [7.0]]


def test_one_against_the_rest_separates_into_its_classes():
    y = torch.tensor([0, 3, 3])
    alone = OneVsRest().separate(y, 4)
    assert [part.y.sum().item() for part in alone] == [1.0, 0.0, 0.0, 2.0]
    assert alone[3].y.tolist() == [0.0, 1.0, 1.0]
    assert alone[0].likelihood == Bernoulli()
    assert Categorical().separate(y, 4) is None


def test_the_noise_may_be_as_small_as_its_precision_can_be_computed_with():
    assert Normal(1e-150).noise == 1e-150
    with pytest.raises(ValueError, match="has a square that cannot be computed with"):
        Normal(1e-155)

"""Models: what they answer with, in whose numbers, and what they refuse."""

import numpy as np
import pytest
import torch

from kinds import learner, probes, task, taught
from theorems import answer

X = probes(12)


def test_answers_come_in_the_precision_of_the_question():
    model = taught("binary").model([0.2, 0.3, 0.5])
    for dtype in (torch.float32, torch.float64):
        assert model.predict_proba(X.to(dtype)).dtype == dtype
        assert model.routing(X.to(dtype)).dtype == dtype
        assert all(bound.dtype == dtype for bound in model.credal_bounds(X.to(dtype)))
    whole = X.round().long()
    assert model.predict_proba(whole).dtype == torch.float32
    assert model.predict(whole).dtype == torch.int64
    assert model.outputs(X.double()).dtype == torch.float32
    assert isinstance(model.routing(X.numpy()), np.ndarray)
    assert isinstance(model.novelty(X.numpy()), np.ndarray)
    assert all(isinstance(part, np.ndarray) for part in model.uncertainty(X.numpy(), samples=2))


def test_fewer_than_no_samples_are_refused():
    model = taught("binary").model([0.2, 0.3, 0.5])
    for act in (model.predict, model.predict_proba, model.credal_bounds):
        with pytest.raises(ValueError, match="must not be negative, not -1"):
            act(X, samples=-1)


def test_a_number_of_samples_is_whole_and_fits_into_memory():
    model = taught("binary").model([0.2, 0.3, 0.5])
    for act in (model.predict, model.credal_bounds, model.uncertainty):
        with pytest.raises(ValueError, match=r"samples must be a whole number, not 2\.5"):
            act(X, samples=2.5)
        with pytest.raises(ValueError, match=r"Drawing .* models needs about .* GiB"):
            act(X, samples=10**15)
    assert torch.equal(model.predict(X, samples=np.int64(2)), model.predict(X, samples=2))


def test_uncertainty_is_over_as_many_models_as_asked_for():
    model = taught("binary").model([0.2, 0.3, 0.5])
    usual = model.uncertainty(X)
    for part, same in zip(usual, model.uncertainty(X, samples=64), strict=True):
        assert torch.equal(part, same)
    # One model is sure of itself, whatever it says.
    assert float(model.uncertainty(X, samples=1).epistemic.abs().max()) < 1e-6
    assert torch.equal(model.uncertainty(X, samples=0).total, model.uncertainty(X, samples=1).total)


@pytest.mark.parametrize("kind", ["regression", "counts"])
def test_models_are_drawn_where_asked_for_also_where_a_closed_form_is_known(kind):
    model = taught(kind).model([0.2, 0.3, 0.5])
    drawn = model.uncertainty(X.double(), samples=5)
    expected = model.likelihood.uncertainty(model.outputs(X.double(), samples=5).double())
    torch.testing.assert_close(drawn.total, expected.total, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(drawn.total, model.uncertainty(X.double()).total, rtol=1e-3)


@pytest.mark.parametrize("rule", ["routed", "evidence", "mixture", "routed by preference"])
@pytest.mark.parametrize("weights", [[0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])
def test_a_regressions_uncertainty_is_the_total_variance_of_its_members(rule, weights):
    """Σ_k r_k (φᵀΣ_kφ + (φᵀμ_k)²) − (Σ_k r_k φᵀμ_k)², by plain matrix products."""
    model = taught("regression", rule).model(weights)
    exact = model.uncertainty(X.double())
    members = getattr(model.distribution, "components", (model.distribution,))
    shares = torch.ones(len(X), 1).double()
    if len(members) > 1:
        own = rule.startswith("routed")
        shares = model.routing(X.double()) if own else torch.tensor([weights]).double()
    phi = torch.cat([X, torch.ones(len(X), 1)], 1).double()
    means = torch.stack([phi @ q.mean.double() for q in members], 1)
    spreads = torch.stack([((phi @ q.dense().covariance) * phi).sum(1) for q in members], 1)
    average = (shares * means).sum(1)
    expected = (shares * (spreads + means.square())).sum(1) - average.square()
    torch.testing.assert_close(exact.epistemic, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(exact.aleatoric, torch.full((12,), 0.09).double())
    torch.testing.assert_close(exact.total, exact.aleatoric + exact.epistemic)


def test_the_variances_of_several_outputs_are_summed():
    model = taught("two outputs", "evidence").model([0.2, 0.3, 0.5])
    exact = model.uncertainty(X.double())
    draws = model.distribution.sample(4000, torch.Generator().manual_seed(0))
    spread = model.predictive.outputs(X, draws).double().var(0).sum(-1)
    torch.testing.assert_close(exact.epistemic, spread, rtol=0.15, atol=1e-3)
    torch.testing.assert_close(exact.aleatoric, torch.full((12,), 0.18).double())


def test_models_say_whom_they_are_for():
    model = taught("binary").model("a=0.5,b=0.5,c=0")
    assert repr(model) == "Model(a=0.5,b=0.5,c=0)"
    assert model.preference["b"] == 0.5
    assert model.alpha == 0.01
    assert model.seed == 3
    assert model.region.alpha == 0.01


def test_counts_and_values_have_no_class_probabilities():
    for kind in ("counts", "regression"):
        model = taught(kind).model([0.2, 0.3, 0.5])
        with pytest.raises(ValueError, match="no class probabilities"):
            model.predict_proba(X)
        assert model.predict(X).shape == (12,)
    assert taught("two outputs").model([0.2, 0.3, 0.5]).predict(X).shape == (12, 2)
    assert float(taught("counts").model([0.2, 0.3, 0.5]).predict(X).min()) >= 0


def test_the_sampled_answer_follows_the_seed():
    one, other = (learner("binary", seed=seed, alpha=0.2) for seed in (1, 2))
    for made in (one, other):
        made.learn(*task("binary", 0), task="a")
    assert torch.equal(answer(one.model([1.0]), X, 3), answer(one.model([1.0]), X, 3))
    assert not torch.equal(answer(one.model([1.0]), X, 3), answer(other.model([1.0]), X, 3))
    assert one.model([1.0]).region.alpha == 0.2

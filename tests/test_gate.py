"""Gates against torch's own densities, and against the raw data evidence was made of."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

import ibcl
from ibcl.routing import Moments
from ibcl.routing.gate import (
    GATE_TENSORS,
    LINEAR_FROM_EVIDENCE,
    Gate,
    GateSettings,
    evidence_components,
    linear_gate,
    moment_components,
    quadratic_gate,
)
from kinds import TASKS, inputs, labels, learner, probes, task, taught, teach


def features_and_labels(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tasks of different sizes, which say nothing of how probable each task is."""
    x = inputs(number, size=40 + 20 * number)
    return x.double(), labels("different classes", number, x)


def moments() -> list[Moments]:
    return [Moments.of(*features_and_labels(number)) for number in range(3)]


def class_covariances(settings: GateSettings) -> dict[tuple[int, int], torch.Tensor]:
    """C_c = (1 − b)(a S̄ + (1 − a) S_c) + b v I, from the raw data."""
    own, counts = {}, {}
    for number in range(3):
        x, y = features_and_labels(number)
        for label in y.unique().tolist():
            part = x[y == label].numpy()
            own[number, label] = np.cov(part.T, bias=True)
            counts[number, label] = len(part)
    pooled = sum(counts[key] * own[key] for key in own) / sum(counts.values())
    size = np.trace(pooled) / len(pooled)
    mixed = {
        key: (1 - settings.own) * pooled + settings.own * covariance
        for key, covariance in own.items()
    }
    return {
        key: torch.tensor(
            (1 - settings.ridge) * covariance + settings.ridge * size * np.eye(len(pooled))
        )
        for key, covariance in mixed.items()
    }


def expected_scores(settings: GateSettings, x: torch.Tensor) -> torch.Tensor:
    """Log Σ_c π_{c|k} N(x; μ_c, C_c)^{1/t} of every task, by torch.distributions."""
    covariances = class_covariances(settings)
    columns = []
    for number in range(3):
        features, y = features_and_labels(number)
        terms = []
        for label in y.unique().tolist():
            own = features[y == label]
            density = MultivariateNormal(own.mean(0), covariances[number, label])
            share = np.log(len(own) / len(features))
            terms.append(density.log_prob(x) / settings.temperature + share)
        columns.append(torch.logsumexp(torch.stack(terms), 0))
    return torch.stack(columns, 1)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (linear_gate, GateSettings(temperature=1.0, ridge=0.0)),
        (linear_gate, GateSettings(temperature=2.5, ridge=0.2)),
        (quadratic_gate, GateSettings(temperature=1.0, ridge=0.0, own=1.0)),
        (quadratic_gate, GateSettings(temperature=3.0, ridge=0.05, own=0.3)),
    ],
)
def test_routing_is_bayes_rule_among_class_gaussians(make, settings):
    gate = make(moment_components(moments()), settings)
    x = probes().double()
    # Scatters are kept in single precision.
    expected = torch.softmax(expected_scores(settings, x), 1)
    torch.testing.assert_close(torch.softmax(gate(x), 1), expected, rtol=1e-4, atol=1e-6)
    assert gate.is_linear == (make is linear_gate)


@pytest.mark.parametrize("make", [linear_gate, quadratic_gate])
def test_novelty_is_the_distance_to_the_nearest_class(make):
    settings = GateSettings(temperature=1.7, ridge=0.1, own=0.4 if make is quadratic_gate else 0.0)
    gate = make(moment_components(moments()), settings)
    x = probes().double()
    distances = []
    for (number, label), covariance in class_covariances(settings).items():
        features, y = features_and_labels(number)
        offsets = x - features[y == label].mean(0)
        distances.append((offsets @ torch.linalg.inv(covariance) * offsets).sum(1))
    torch.testing.assert_close(gate.novelty(x), torch.stack(distances).amin(0) / 3)
    directions = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    rays = [gate.novelty(scale * directions) for scale in (20, 40, 80)]
    assert bool((rays[0] < rays[1]).all() and (rays[1] < rays[2]).all())
    near = gate.novelty(torch.cat([features_and_labels(k)[0] for k in range(3)]))
    assert 0.5 < float(near.mean()) < 1.5


def test_rows_beyond_a_block_are_answered_as_if_alone(monkeypatch):
    gate = quadratic_gate(moment_components(moments()), GateSettings(2.0, 0.1, own=0.3))
    x = probes().double()
    whole = gate(x)
    monkeypatch.setattr("ibcl.routing.gate._BLOCK", 2 * gate.means.numel() + 1)
    torch.testing.assert_close(gate(x), whole)
    torch.testing.assert_close(gate(x[-1:]), whole[-1:])


def test_far_from_the_origin_distances_keep_their_digits():
    """Features of size 1e4 with a spread of 1, in single precision, as exported modules have it."""
    shifted = [
        Moments.of(features_and_labels(k)[0] + 1e4, features_and_labels(k)[1]) for k in range(3)
    ]
    settings = GateSettings(2.0, 0.1, own=0.3)
    gate = quadratic_gate(moment_components(moments()), settings)
    far = quadratic_gate(moment_components(shifted), settings).float()
    x = probes().double()
    torch.testing.assert_close(far((x + 1e4).float()).double(), gate(x), rtol=0.02, atol=0.05)


@pytest.mark.parametrize("independent", [True, False])
def test_the_gate_from_evidence_holds_the_moments_of_the_raw_data(independent):
    """For a linear-Gaussian task every sample has the same curvature, so they are plain moments."""
    learnt = teach(
        learner("regression", "routed by evidence", independent=independent, priors=[0.5, 3.0]),
        "regression",
    )
    assert all(kept is None for kept in learnt.knowledge.moments)
    means = [inputs(number).double().mean(0) for number in range(3)]
    pooled = sum(np.cov(inputs(number).double().numpy().T, bias=True) for number in range(3)) / 3
    ridged = 0.9 * pooled + 0.1 * np.trace(pooled) / 3 * np.eye(3)
    x = probes().double()
    logits = [MultivariateNormal(mean, torch.tensor(ridged)).log_prob(x) / 1.5 for mean in means]
    weights = torch.tensor([0.2, 0.3, 0.5]).double()
    expected = torch.softmax(torch.stack(logits, 1) + weights.log(), 1)
    found = learnt.model(weights.numpy()).routing(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_evidence_of_several_outputs_is_summed():
    """Of counts, whose outputs have different curvatures: Λ = Σ_o Σ_s λ_so φφᵀ."""
    learnt = teach(learner("different classes", "routed by evidence"), "different classes")
    positions = learnt.network.linear_head().positions
    evidence = [learnt.knowledge.task_evidence(name) for name in TASKS]
    found = evidence_components(evidence, positions)
    assert found.task.tolist() == [0, 1, 2]
    assert found.share.tolist() == [1, 1, 1]
    total, scatter = 0.0, torch.zeros(3, 3).double()
    for number, factor in enumerate(evidence):
        whole = sum(factor.dense().precision[own][:, own] for own in positions)
        count = float(whole[3, 3])
        torch.testing.assert_close(found.means[number], whole[:3, 3] / count)
        scatter += whole[:3, :3] - torch.outer(whole[:3, 3], whole[:3, 3]) / count
        total += count
    torch.testing.assert_close(found.within, scatter / total)


def test_a_task_without_evidence_is_left_where_the_bias_is_known_by_nothing():
    """A count of zero divides nothing by nothing; the tasks beside it are still told apart."""
    zero = learner("regression")
    known = taught("regression").knowledge.task_evidence("a")
    nothing = 0.0 * known
    components = evidence_components([known, nothing], zero.network.linear_head().positions)
    gate = linear_gate(components, LINEAR_FROM_EVIDENCE)
    assert bool(torch.isfinite(gate(probes().double())).all())


def test_the_same_feature_everywhere_leaves_the_others_to_route_by():
    rows = [torch.tensor([[k + 0.5, 1.0], [k - 0.5, 1.0]]).double() for k in (0.0, 9.0)]
    gate = linear_gate(moment_components([Moments.of(x) for x in rows]), GateSettings(1.0, 0.1))
    assert torch.softmax(gate(rows[0]), 1)[:, 0].min() > 0.99


def test_features_without_any_spread_are_refused_in_a_sentence():
    rows = [torch.zeros(2, 2).double() for _ in range(2)]
    with pytest.raises(ValueError, match="no positive definite covariance"):
        linear_gate(moment_components([Moments.of(x) for x in rows]), GateSettings(1.0, 0.0))
    # With a ridge there is at least something to divide by.
    gate = linear_gate(moment_components([Moments.of(x) for x in rows]), GateSettings(1.0, 0.1))
    assert bool(torch.isfinite(gate(rows[0])).all())


def test_covariances_of_their_own_need_scatters_of_their_own():
    components = moment_components(moments())._replace(own=None)
    with pytest.raises(ValueError, match="own scatter"):
        quadratic_gate(components, GateSettings(1.0, 0.1))


def changed(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    gate = linear_gate(moment_components(moments()), GateSettings(1.0, 0.1))
    return {**{name: getattr(gate, name) for name in GATE_TENSORS}, **tensors}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "cannot consist of nothing"),
        (changed(task=torch.zeros(5).long()), "one task for each of its 6"),
        (changed(log_share=torch.zeros(7)), "one log_share"),
        (changed(means=torch.zeros(6)), "for each of its 0"),
        (changed(whitening=torch.zeros(2, 2)), "does not fit"),
        (changed(whitening=torch.zeros(5, 3, 3)), "does not fit"),
        (changed(task=torch.zeros(6)), "whole numbers from 0"),
        (changed(label=torch.full((6,), -1)), "whole numbers from 0"),
        (changed(means=torch.full((6, 3), torch.nan)), "not finite"),
    ],
)
def test_what_is_no_gate_is_refused(tensors, message):
    with pytest.raises(ValueError, match=message):
        Gate(tensors, 1.0)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_gate_needs_a_positive_temperature(temperature):
    with pytest.raises(ValueError, match="temperature"):
        Gate(changed(), temperature)


def test_a_gate_may_have_one_task_of_many_components():
    gate = linear_gate(moment_components(moments()[:1]), GateSettings(1.0, 0.1))
    assert gate.tasks == 1
    assert gate(probes().double()).shape == (40, 1)


@pytest.mark.parametrize("kind", ["binary", "different classes", "mlp"])
def test_defaults_route_new_inputs_to_their_task(kind):
    model = taught(kind).model([1 / 3, 1 / 3, 1 / 3])
    for number in range(3):
        fresh = task(kind, number, size=50, seed=8).x
        assert float((model.routing(fresh).argmax(1) == number).float().mean()) > 0.8


def test_only_routed_models_have_a_gate():
    model = taught("binary", "wasserstein").model([0.2, 0.3, 0.5])
    for act in (model.routing, model.novelty):
        with pytest.raises(ValueError, match="Only routed models have a gate"):
            act(probes())
    assert ibcl.Routed().gate == "auto"


@pytest.mark.parametrize("whitening", [(0, 0), (1, 0, 0), (1, 1), (3, 3)])
def test_means_of_one_dimension_are_no_gate(whitening):
    gate = linear_gate(moment_components(moments()[:1]), GateSettings(1.0, 0.1))
    tensors = {name: getattr(gate, name)[:1] for name in GATE_TENSORS}
    tensors |= {"means": torch.zeros(3), "whitening": torch.zeros(whitening)}
    with pytest.raises(ValueError, match="for each of its 0 components"):
        Gate(tensors, 1.0)

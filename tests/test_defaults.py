"""What a learner chooses where its user leaves it open, and that it says so."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import ibcl
from ibcl.defaults import MEAN_FIELD_PRIOR_STD, PRIOR_SCALES
from kinds import task

OPEN = {"priors", "inference", "pooling", "independent", "d"}
BINARY, CLASSES, VALUES = (
    task(kind, 0, size=80) for kind in ("binary", "shared classes", "regression")
)
QUICK = ibcl.MeanFieldVI(epochs=1)


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())


def learnt(network: nn.Module, data=BINARY, **settings: object) -> ibcl.IBCL:
    made = ibcl.IBCL(network, **settings)
    assert made.choices == {}
    made.learn(*data)
    return made


@pytest.mark.parametrize(
    "network",
    [
        ibcl.networks.linear(3),
        ibcl.networks.random_features(3, 16),
        nn.Linear(3, 1),
        ibcl.networks.with_backbone(nn.Tanh(), 3),
    ],
    ids=["linear", "random features", "layer", "backbone"],
)
def test_heads_linear_in_their_parameters_get_independent_dense_evidence(network):
    found = learnt(network)
    assert found.inference == ibcl.DenseVI()
    assert found.pooling == "routed"
    assert found.knowledge.independent is True
    assert found.knowledge.d == 0
    assert found.likelihood == ibcl.Bernoulli()
    assert set(found.choices) == OPEN
    assert found.choices["inference"].startswith("DenseVI(")
    assert "linear in its parameters" in found.choices["inference"]
    assert "independent" in found.choices["independent"]
    assert "'routed'" in found.choices["pooling"]


def test_other_networks_get_independent_mean_field_posteriors():
    found = learnt(ibcl.networks.mlp(3, hidden=4))
    assert isinstance(found.inference, ibcl.MeanFieldVI)
    assert found.pooling == "routed"
    assert found.knowledge.independent is True
    assert found.knowledge.d == 0
    assert found.knowledge.priors[0].std.unique().tolist() == [MEAN_FIELD_PRIOR_STD]
    assert set(found.choices) == OPEN
    assert "not linear" in found.choices["inference"]


def test_several_classes_are_learnt_one_against_the_rest():
    found = learnt(ibcl.networks.linear(3, 3), CLASSES)
    assert found.likelihood == ibcl.OneVsRest()
    assert found.inference == ibcl.OneVsRestVI()
    assert learnt(ibcl.networks.linear(3, 3), CLASSES, likelihood="categorical").inference == (
        ibcl.DenseVI()
    )
    # Somebody who wants DenseVI gets the likelihood that it knows.
    assert learnt(ibcl.networks.linear(3, 3), CLASSES, inference=ibcl.DenseVI()).likelihood == (
        ibcl.Categorical()
    )
    assert learnt(ibcl.networks.mlp(3, 2, 3), CLASSES, inference=QUICK).likelihood == (
        ibcl.Categorical()
    )


def test_the_prior_is_that_of_the_largest_evidence():
    found = learnt(ibcl.networks.linear(3))
    chosen = float(found.knowledge.prior_of(found.tasks[0], 0).std[0])

    def evidence(std: float) -> float:
        flat = found.network
        zero = torch.zeros(flat.dimension)
        prior = ibcl.DiagonalGaussian(zero, torch.full_like(zero, std))
        data = ibcl.tasks.TaskData(BINARY.x, BINARY.y.float())
        return ibcl.DenseVI().infer(flat, ibcl.Bernoulli(), [prior], data).objectives[0]

    size = float(BINARY.x.square().sum(1).mean().sqrt())
    tried = [10 ** (round(2 * np.log10(std / size)) / 2) for std in PRIOR_SCALES]
    best = max(tried, key=evidence)
    assert chosen == pytest.approx(best, rel=0.06)  # 3 stands for the root of ten.


def test_larger_features_get_a_smaller_prior():
    stds = []
    for scale in (100.0, 1.0, 0.01):
        found = learnt(ibcl.networks.linear(3), (BINARY.x * scale, BINARY.y))
        stds.append(float(found.knowledge.prior_of(found.tasks[0], 0).std[0]))
    # The bias has the same prior and does not grow with the features: not quite by the scale.
    assert stds[1] > 10 * stds[0]
    assert stds[2] > 10 * stds[1]


@pytest.mark.parametrize("noise", [0.1, 1.0])
@pytest.mark.parametrize("network", [ibcl.networks.linear(3), ibcl.networks.mlp(3, 4)])
def test_a_regressions_noise_is_found(network, noise):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 3, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5]) + noise * torch.randn(300, generator=generator)
    found = learnt(network, (x, y))
    assert found.likelihood.noise == pytest.approx(noise, rel=0.25)
    given = learnt(network, (x, y), likelihood=ibcl.Normal(0.7), inference=None)
    assert given.likelihood == ibcl.Normal(0.7)
    assert "noise" not in given.choices


def test_what_is_given_is_respected():
    given = {
        "priors": [0.5, 2.0],
        "inference": ibcl.DenseVI(tolerance=1e-3),
        "pooling": "mixture",
        "d": 0.05,
        "independent": False,
    }
    found = learnt(ibcl.networks.linear(3), **given)
    assert found.choices == {}
    assert [float(q.std[0]) for q in found.knowledge.priors] == [0.5, 2.0]
    assert found.inference is given["inference"]
    assert found.pooling == "mixture"
    assert (found.knowledge.d, found.knowledge.independent) == (0.05, False)
    for name, value in given.items():
        alone = learnt(ibcl.networks.linear(3), **{name: value})
        assert name not in alone.choices
        assert set(alone.choices) == OPEN - {name}


@pytest.mark.parametrize(
    ("pooling", "d"), [("wasserstein", 0.012), ("mixture", 0.012), ("evidence", 0), ("routed", 0)]
)
def test_the_threshold_follows_the_rule(pooling, d):
    found = learnt(ibcl.networks.linear(3), pooling=pooling)
    assert found.knowledge.d == d
    assert found.knowledge.independent is (pooling == "routed")
    assert found.choices["d"].startswith(f"{d:g}")


def test_tasks_that_are_told_need_no_gate():
    told = ibcl.IBCL(ibcl.networks.linear(5), task_incremental=2)
    told.learn(*BINARY, task="a")
    assert told.pooling == "evidence"
    assert "told apart" in told.choices["pooling"]
    deep = ibcl.IBCL(ibcl.networks.mlp(5, 2), task_incremental=2, inference=QUICK)
    deep.learn(*BINARY, task="a")
    assert deep.pooling == "wasserstein"


def test_too_many_inputs_for_a_gate_are_pooled_by_the_barycentre():
    wide = ibcl.IBCL(ibcl.networks.mlp(4097, 1), inference=QUICK)
    wide.learn(torch.zeros(4, 4097), [0, 1, 0, 1])
    assert wide.pooling == "wasserstein"
    assert "4097 features are too many" in wide.choices["pooling"]


def test_the_papers_setting_is_one_line():
    paper = ibcl.IBCL.as_in_paper(ibcl.networks.mlp(3, 4), seed=7)
    assert paper.pooling == "wasserstein"
    assert paper.inference == ibcl.MeanFieldVI()
    assert paper.seed == 7
    assert (paper.knowledge.d, paper.knowledge.independent) == (0.012, False)
    assert paper.knowledge.priors[0].std.unique().tolist() == [2.5]
    paper.learn(*BINARY)
    assert paper.choices == {}
    assert ibcl.IBCL.as_in_paper(ibcl.networks.mlp(3, 4), d=0).knowledge.d == 0


def digits() -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Five tasks of two digits each: odd or even?"""
    x, y = load_digits(return_X_y=True)
    tasks = []
    for pair in range(5):
        own = (y // 2) == pair
        parts = train_test_split(x[own] / 16, y[own] % 2, test_size=0.4, random_state=0)
        tasks.append((parts[0], parts[2], parts[1], parts[3]))
    return tasks


def own_scores(learner: ibcl.IBCL, tasks) -> list[float]:
    """Accuracy on every task of the model that prefers it (0.9, the others alike)."""
    scores = []
    for position, (*_, x, y) in enumerate(tasks):
        weights = np.full(5, 0.025)
        weights[position] = 0.9
        scores.append(float((learner.model(weights).predict(x) == y).mean()))
    return scores


def test_with_nothing_set_a_network_learns_five_tasks_of_digits():
    """Unrouted mean-field posteriors in a chain score 0.98, 0.59, 0.75, 0.93 and 0.46."""
    tasks = digits()
    learner = ibcl.IBCL(ibcl.networks.mlp(64))
    for x, y, _, _ in tasks:
        learner.learn(x, y)
    middle = learner.model(np.full(5, 0.2))
    together = [float((middle.predict(x) == y).mean()) for *_, x, y in tasks]
    assert min(own_scores(learner, tasks)) > 0.8
    assert min(together) > 0.8


def test_a_dense_head_on_a_frozen_backbone_learns_pictures():
    """A random convolution with a linear head, as any trained one would be used."""
    tasks = [
        (x.reshape(-1, 1, 8, 8), y, test.reshape(-1, 1, 8, 8), answers)
        for x, y, test, answers in digits()
    ]
    backbone = convolutions()
    learner = ibcl.IBCL(ibcl.networks.with_backbone(backbone, 36))
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    for x, y, _, _ in tasks:
        learner.learn(x, y)
    assert learner.inference == ibcl.DenseVI()
    assert learner.pooling == "routed"
    assert learner.network.dimension == 37
    assert min(own_scores(learner, tasks)) > 0.85
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert all(value.requires_grad for value in backbone.parameters())


class Pooled:
    """What models of `transformers` return."""

    def __init__(self, **outputs: torch.Tensor) -> None:
        vars(self).update(outputs)


class Encoder(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layer = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> Pooled:
        hidden = self.layer(x)[:, None].repeat(1, 2, 1)
        hidden[:, 1] += 1
        given = {"last_hidden_state": hidden, "logits": self.layer(x) - 5}
        if self.kind == "pooler_output":
            return Pooled(pooler_output=self.layer(x) * 2, **given)
        if self.kind == "last_hidden_state":
            return Pooled(pooler_output=None, **given)
        return Pooled(logits=given["logits"])


@pytest.mark.parametrize("kind", ["pooler_output", "last_hidden_state", "logits"])
def test_outputs_of_language_models_become_one_row_a_sample(kind):
    backbone = Encoder(kind)
    network = ibcl.networks.FlatNetwork(ibcl.networks.with_backbone(backbone, 4, outputs=2))
    plain = backbone.layer(BINARY.x)
    expected = {
        # A pooler that was trained for another purpose costs accuracy, so the states come first.
        "pooler_output": plain + 0.5,
        "last_hidden_state": plain + 0.5,
        "logits": plain - 5,
    }[kind]
    torch.testing.assert_close(network.features(BINARY.x), expected.detach())
    assert network.is_linear
    assert network.dimension == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"priors": 1.0}, r"priors must be a list .*, not 1\.0"),
        ({"priors": "2.5"}, "priors must be a list"),
        ({"inference": "dense"}, r"inference must be an object such as ibcl\.DenseVI\(\)"),
        ({"inference": ibcl.DenseVI}, "inference must be an object"),
        ({"alpha": "small"}, "alpha must be between 0 and 1"),
        ({"alpha": float("nan")}, "alpha must be between 0 and 1"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": 2**64}, "seed must be a whole number of at most 64 bits"),
        ({"task_incremental": 1.5}, "task_incremental must be at least 1"),
        ({"device": "cuda:99"}, "Nothing can be computed on the device 'cuda:99'|cuda"),
    ],
    ids=str,
)
def test_settings_of_a_wrong_kind_are_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        ibcl.IBCL(ibcl.networks.linear(2), **settings)


def test_numbers_of_numpy_are_numbers():
    made = ibcl.IBCL(
        ibcl.networks.linear(2), np.array([1.5]), alpha=np.float32(0.25), seed=np.int64(-3)
    )
    assert (made.alpha, made.seed, made.given.priors) == (0.25, -3, (1.5,))


def test_validation_of_too_many_parts_and_a_task_left_out_are_refused():
    x = torch.randn(10, 2)
    made = ibcl.IBCL(ibcl.networks.linear(2), [1.0])
    with pytest.raises(ValueError, match="validation must be a pair"):
        made.learn(x, x[:, 0] > 0, validation=(x, x[:, 0] > 0, None, None))
    with pytest.raises(ValueError, match="Say with task= which task"):
        made.replace(x, x[:, 0] > 0)
    assert made.tasks == ()


def test_features_that_are_all_zero_have_a_prior_too():
    learner = ibcl.IBCL(ibcl.networks.linear(2))
    learner.learn(torch.zeros(12, 2), torch.arange(12) % 3 == 0, task="nothing to see")
    probabilities = learner.model([1.0]).predict_proba(torch.zeros(1, 2))
    # Between what was seen and what the prior says.
    assert 1 / 3 < float(probabilities[0, 1]) < 1 / 2

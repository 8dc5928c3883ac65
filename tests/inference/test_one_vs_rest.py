"""One class against the rest: the product of the binary posteriors, and nothing else."""

import pytest
import torch
from torch import nn

import ibcl
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData
from theorems import assert_same_gaussian

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 4, generator=GENERATOR)
LABELS = X[:, :3].argmax(1)


def coupled_within_classes(classes: int, size: int) -> torch.Tensor:
    """A precision with full blocks, in the order of one class after the other."""
    blocks = torch.randn(classes, size, size, generator=GENERATOR).double()
    return torch.block_diag(*(block @ block.T + torch.eye(size) for block in blocks))


@pytest.mark.parametrize("bias", [True, False])
def test_each_class_has_the_posterior_of_its_own_binary_problem(bias):
    network = FlatNetwork(nn.Linear(4, 3, bias=bias))
    size = 4 + bias
    # In θ the weights of all classes come before all biases.
    position = torch.tensor(
        [[*range(4 * c, 4 * c + 4), *([12 + c] if bias else [])] for c in range(3)]
    )
    order = position.flatten()
    precision = torch.zeros(3 * size, 3 * size).double()
    precision[order[:, None], order] = coupled_within_classes(3, size)
    prior = ibcl.DenseGaussian(torch.randn(3 * size, generator=GENERATOR).double(), precision)
    result = ibcl.OneVsRestVI(1e-6).infer(network, ibcl.OneVsRest(), [prior], TaskData(X, LABELS))
    (posterior,) = result.posteriors
    bound = 0.0
    for c, own in enumerate(position):
        alone = ibcl.DenseVI(1e-6).infer(
            FlatNetwork(nn.Linear(4, 1, bias=bias)),
            ibcl.Bernoulli(),
            [ibcl.DenseGaussian(prior.mean[own], precision[own][:, own])],
            TaskData(X, LABELS.eq(c).float()),
        )
        torch.testing.assert_close(posterior.mean[own], alone.posteriors[0].mean)
        block = posterior.dense().precision[own[:, None], own]
        torch.testing.assert_close(block, alone.posteriors[0].precision)
        bound += alone.objectives[0]
    assert result.objectives[0] == pytest.approx(bound)
    inside = torch.zeros_like(precision, dtype=torch.bool)
    for own in position:
        inside[own[:, None], own] = True
    assert not posterior.dense().precision[~inside].any()


def test_it_agrees_with_full_covariance_inference_and_takes_less_memory():
    """Under this likelihood classes stay independent, so the dense answer has nothing between."""
    network = FlatNetwork(ibcl.networks.linear(4, 3))
    prior = ibcl.DiagonalGaussian(torch.zeros(15).double(), torch.full((15,), 2.0).double())
    arguments = (network, ibcl.OneVsRest(), [prior], TaskData(X, LABELS))
    apart, dense = (method(1e-6).infer(*arguments) for method in (ibcl.OneVsRestVI, ibcl.DenseVI))
    assert_same_gaussian(apart.posteriors[0], dense.posteriors[0], tolerance=1e-6)
    assert apart.objectives[0] == pytest.approx(dense.objectives[0], rel=1e-8)
    assert apart.posteriors[0].nbytes < dense.posteriors[0].nbytes


def test_a_posterior_is_the_next_tasks_prior():
    """Blocks, a diagonal and a matrix without correlations between classes are all the same."""
    network = FlatNetwork(ibcl.networks.linear(4, 3))
    start = ibcl.DiagonalGaussian(torch.zeros(15).double(), torch.ones(15).double())
    half = TaskData(X[:30], LABELS[:30]), TaskData(X[30:], LABELS[30:])
    method = ibcl.OneVsRestVI(1e-6)
    (first,) = method.infer(network, ibcl.OneVsRest(), [start], half[0]).posteriors
    chained, dense = (
        method.infer(network, ibcl.OneVsRest(), [q], half[1]).posteriors[0]
        for q in (first, first.dense())
    )
    assert_same_gaussian(chained, dense, tolerance=1e-9)


def test_progress_counts_priors_and_classes():
    network = FlatNetwork(ibcl.networks.linear(4, 3))
    priors = [ibcl.DiagonalGaussian(torch.zeros(15), torch.full((15,), s)) for s in (1.0, 2.0)]
    seen = []
    ibcl.OneVsRestVI().infer(
        network, ibcl.OneVsRest(), priors, TaskData(X, LABELS), progress=seen.append
    )
    assert [step.done for step in seen] == [1, 2, 3, 4, 5, 6]
    assert {step.total for step in seen} == {6}


def test_the_fast_posterior_is_where_sampling_finds_it():
    """Mean-field inference uses the same likelihood and shares no code with the solver."""
    network = FlatNetwork(ibcl.networks.linear(4, 3))
    prior = ibcl.DiagonalGaussian(torch.zeros(15), torch.ones(15))
    arguments = (network, ibcl.OneVsRest(), [prior], TaskData(X, LABELS))
    exact = ibcl.OneVsRestVI().infer(*arguments).posteriors[0]
    sampled = ibcl.MeanFieldVI(epochs=200, learning_rate=0.05).infer(*arguments).posteriors[0]
    outputs = [network(q.mean.float(), X) for q in (exact, sampled)]
    assert float((outputs[0] - outputs[1]).abs().mean()) < 0.15


def test_probabilities_sum_to_one_even_where_no_class_claims_a_sample():
    outputs = torch.tensor([[-200.0, -201.0, -300.0], [5.0, 5.0, -5.0]])
    probabilities = ibcl.OneVsRest().probabilities(outputs)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(2))
    assert probabilities[0].argmax() == 0
    assert probabilities[1, 0] == probabilities[1, 1]


def test_what_it_cannot_do_it_refuses():
    network = FlatNetwork(ibcl.networks.linear(4, 3))
    plain = ibcl.DiagonalGaussian(torch.zeros(15), torch.ones(15))
    tied = ibcl.DenseGaussian(torch.zeros(15), torch.eye(15) + 0.5)
    with pytest.raises(ValueError, match="needs likelihood='one_vs_rest', not 'categorical'"):
        ibcl.OneVsRestVI().infer(network, ibcl.Categorical(), [plain], TaskData(X, LABELS))
    wide = FlatNetwork(ibcl.networks.linear(3000, 3000))
    with pytest.raises(ValueError, match=r"3000 classes .* GiB of memory, .* fewer features"):
        ibcl.OneVsRestVI().infer(
            wide,
            ibcl.OneVsRest(),
            [ibcl.DiagonalGaussian(*(torch.ones(wide.dimension) for _ in range(2)))],
            TaskData(torch.zeros(1, 3000), torch.tensor([0])),
        )
    with pytest.raises(ValueError, match="correlates parameters of different classes"):
        ibcl.OneVsRestVI().infer(network, ibcl.OneVsRest(), [tied], TaskData(X, LABELS))


def test_a_learner_chooses_it_by_name():
    learner = ibcl.IBCL(
        ibcl.networks.linear(4, 3),
        inference=ibcl.OneVsRestVI(),
        likelihood="one_vs_rest",
        pooling="evidence",
    )
    learner.learn(X, LABELS, task="a")
    assert float((learner.model([1.0]).predict(X) == LABELS).float().mean()) > 0.9


def test_a_rank_is_refused_rather_than_ignored():
    with pytest.raises(ValueError, match=r"has no rank.*DenseVI\(rank=8\)"):
        ibcl.OneVsRestVI(rank=8)

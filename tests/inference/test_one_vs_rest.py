"""One class against the rest: the product of the binary posteriors, and nothing else."""

import pytest
import torch
from torch import nn

import ibcl
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

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

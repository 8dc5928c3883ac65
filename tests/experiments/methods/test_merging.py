"""Merging and regularised methods on cases that can be computed by hand."""

import numpy as np
import pytest
import torch

from ibcl import networks
from ibcl.experiments.methods import create
from ibcl.experiments.methods.curvature import fisher_diagonal, fisher_matrix
from ibcl.likelihoods import Bernoulli, Categorical
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

HALVES = np.array([[0.5, 0.5], [0.8, 0.2], [1.0, 0.0]])
MERGING = ["fisher_merging", "regmean", "mats", "ties"]


def learnt(name, tasks, network=None, preferences=HALVES, **settings):
    settings = {"epochs": 3, "batch_size": 16, **settings}
    method = create(name, network or networks.linear(3), **settings)
    method.learn("first", tasks[0], None, [[1.0]])
    method.learn("second", tasks[1], None, preferences)
    return method


@pytest.mark.parametrize("name", ["fisher_merging", "regmean", "mats"])
def test_a_vertex_gives_back_the_tasks_own_model(name, three_tasks):
    settings = {"steps": 200} if name == "mats" else {}
    method = learnt(name, three_tasks, preferences=np.eye(2), **settings)
    x = three_tasks[2].x
    own = method.models(method.task_models, x)
    torch.testing.assert_close(method.predict_logits(x), own, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", MERGING)
def test_merging_a_model_with_itself_changes_nothing(name, three_tasks):
    settings = {"kept": 1.0} if name == "ties" else {}
    method = learnt(
        name, [three_tasks[0], three_tasks[0]], batch_size=48, learning_rate=0.05, **settings
    )
    # Whole batches from a shared start: both tasks' models are the same.
    torch.testing.assert_close(method.task_models[0], method.task_models[1])
    expected = method.task_models[:1].expand(3, -1)
    torch.testing.assert_close(method.thetas, expected, rtol=1e-3, atol=1e-4)


def test_fisher_merging_is_the_weighted_average_of_the_paper(three_tasks):
    method = learnt("fisher_merging", three_tasks, floor=1e-12)
    f, theta = method.fishers.double(), method.task_models.double()
    for weights, found in zip(HALVES[:2], method.thetas, strict=False):
        w = torch.tensor(weights)[:, None]
        expected = (w * f * theta).sum(0) / (w * f).sum(0)
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_mats_solves_its_linear_system(three_tasks):
    method = learnt("mats", three_tasks, steps=500)
    f, theta = torch.stack(method.fishers), method.task_models.double()
    for weights, found in zip(HALVES[:2], method.thetas, strict=False):
        w = torch.tensor(weights)
        left = (w[:, None, None] * f).sum(0)
        right = (w[:, None] * torch.einsum("kij,kj->ki", f, theta)).sum(0)
        torch.testing.assert_close(
            found.double(), torch.linalg.solve(left, right), rtol=1e-3, atol=1e-3
        )


def test_regmean_is_the_least_squares_compromise(three_tasks):
    """Its layer minimises Σ_k w_k mean ‖x(W − W_k)‖², with nothing of the Gram matrix dropped."""
    method = learnt("regmean", three_tasks, kept=1.0)
    for weights, found in zip(HALVES[:2], method.thetas, strict=False):
        rows, targets = [], []
        for w, task, model in zip(weights, three_tasks, method.task_models, strict=False):
            scaled = task.x * np.sqrt(w / task.size)
            rows.append(scaled)
            targets.append(scaled @ model[:3])
        expected = np.linalg.lstsq(torch.cat(rows).numpy(), torch.cat(targets).numpy(), rcond=None)[
            0
        ]
        np.testing.assert_allclose(found[:3].numpy(), expected, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(
            found[3], torch.tensor(weights).float() @ method.task_models[:, 3]
        )


def test_ties_trims_elects_and_merges_by_hand():
    method = create("ties", networks.linear(3), kept=0.5, scale=2.0)
    method.start = torch.zeros(4)
    method.task_models = torch.tensor([[4.0, -1.0, 3.0, 0.5], [-2.0, -5.0, 1.0, 0.0]])
    # Trimmed: (4, 0, 3, 0) and (−2, −5, 0, 0); signs by Σ w τ: (+, −, +, 0).
    merged = method.merge(torch.tensor([[0.5, 0.5]]))
    torch.testing.assert_close(merged, 2 * torch.tensor([[4.0, -5.0, 3.0, 0.0]]))
    # With little weight on the first task its first entry loses the election.
    merged = method.merge(torch.tensor([[0.2, 0.8]]))
    torch.testing.assert_close(merged, 2 * torch.tensor([[-2.0, -5.0, 3.0, 0.0]]))


def test_ewc_without_strength_is_fine_tuning_and_with_much_stays(three_tasks):
    loose = learnt("online_ewc", three_tasks, strength=0.0)
    plain = learnt("fine_tuning", three_tasks)
    torch.testing.assert_close(loose.thetas, plain.thetas)
    first = create("online_ewc", networks.linear(3), epochs=3, batch_size=16)
    first.learn("first", three_tasks[0], None, [[1.0]])
    held = learnt("online_ewc", three_tasks, strength=1e6, learning_rate=1e-4)
    moved = float((plain.thetas[0] - first.thetas[0]).norm())
    stayed = learnt("online_ewc", three_tasks, strength=10.0)
    assert float((stayed.thetas[0] - first.thetas[0]).norm()) < moved
    assert bool(torch.isfinite(held.thetas).all())


@pytest.mark.parametrize(("likelihood", "outputs"), [(Bernoulli(), 1), (Categorical(), 3)])
def test_fisher_is_the_expected_square_of_the_score(likelihood, outputs):
    """Against its definition: E over the model's own labels of the squared score."""
    generator = torch.Generator().manual_seed(0)
    network = FlatNetwork(networks.mlp(2, hidden=3, outputs=outputs))
    theta = network.initial_parameters(generator)
    x = torch.randn(7, 2, generator=generator)
    f = network(theta, x)
    p = torch.sigmoid(f) if outputs == 1 else f.softmax(-1)
    p = torch.cat([1 - p, p], 1) if outputs == 1 else p
    expected = torch.zeros(network.dimension, network.dimension, dtype=torch.float64)
    for s in range(7):
        for label in range(p.shape[1]):
            probe = theta.clone().requires_grad_()
            y = torch.tensor([label]).to(torch.float32 if outputs == 1 else torch.long)
            loss = likelihood.negative_log(network(probe, x[s : s + 1]), y).sum()
            (score,) = torch.autograd.grad(loss, probe)
            expected += (p[s, label].detach() * torch.outer(score, score)).double() / 7
    data = TaskData(x, torch.zeros(7) if outputs == 1 else torch.zeros(7, dtype=torch.long))
    found = fisher_matrix(network, likelihood, theta, data)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    diagonal = fisher_diagonal(network, likelihood, theta, data)
    torch.testing.assert_close(diagonal.double(), expected.diagonal(), rtol=1e-4, atol=1e-6)


def test_large_networks_are_refused_where_matrices_are_kept():
    for name in ("mats", "online_laplace"):
        with pytest.raises(ValueError, match="at most 5000 parameters"):
            create(name, networks.mlp(100, hidden=100))
    with pytest.raises(ValueError, match="linear layers only"):
        create("regmean", networks.random_features(3, width=4))

"""The oracle against scikit-learn, and the methods that train one model per task."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import nn

from ibcl import networks
from ibcl.experiments.methods import create
from ibcl.likelihoods import Normal
from ibcl.tasks import as_task

PREFERENCES = np.array([[0.5, 0.5], [0.9, 0.1], [0.25, 0.75], [1.0, 0.0], [0.0, 1.0]])


def everything(tasks):
    x = np.concatenate([task.x.numpy() for task in tasks])
    y = np.concatenate([task.y.numpy() for task in tasks])
    return x, y, [task.size for task in tasks]


def test_oracle_is_weighted_logistic_regression(noisy_task):
    tasks = [noisy_task([1.0, 0.5, 0.0], n=60, seed=0), noisy_task([-0.5, 1.0, 0.0], 90, seed=1)]
    oracle = create("oracle", networks.linear(3), epochs=600, batch_size=1000, learning_rate=0.05)
    oracle.learn("first", tasks[0], None, [[1.0]])
    oracle.learn("second", tasks[1], None, PREFERENCES)
    x, y, sizes = everything(tasks)
    for weights, theta in zip(PREFERENCES, oracle.thetas, strict=True):
        reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
        reference.fit(x, y, sample_weight=np.repeat(weights / sizes, sizes))
        expected = [*reference.coef_[0], reference.intercept_[0]]
        np.testing.assert_allclose(theta.numpy(), expected, atol=2e-3)


def test_oracle_is_weighted_ridge_regression():
    rng = np.random.default_rng(0)
    tasks = []
    for slope, n in (([1.0, -1.0], 30), ([0.5, 2.0], 50)):
        x = rng.normal(size=(n, 2))
        tasks.append(as_task(x, x @ slope + 0.3 * rng.normal(size=n)))
    oracle = create(
        "oracle",
        nn.Linear(2, 1, bias=False),
        epochs=600,
        batch_size=1000,
        learning_rate=0.05,
        weight_decay=0.3,
        likelihood=Normal(1.0),
    )
    oracle.learn("first", tasks[0], None, [[1.0]])
    oracle.learn("second", tasks[1], None, PREFERENCES)
    x, y, sizes = everything(tasks)
    for weights, theta in zip(PREFERENCES, oracle.thetas, strict=True):
        reference = Ridge(alpha=0.3, fit_intercept=False)
        reference.fit(x, y, sample_weight=np.repeat(weights / sizes, sizes))
        np.testing.assert_allclose(theta.numpy(), reference.coef_, atol=1e-3)


def test_fine_tuning_gives_one_model_whatever_the_preference(three_tasks):
    method = create("fine_tuning", networks.linear(3), epochs=3)
    method.learn("first", three_tasks[0], None, [[1.0]])
    method.learn("second", three_tasks[1], None, [[1.0, 0.0], [0.0, 1.0]])
    assert torch.equal(*method.predict_logits(three_tasks[0].x))


def test_fine_tuning_forgets_where_the_oracle_does_not(noisy_task):
    old, new = noisy_task([3.0, 0.0], seed=0, noise=0.1), noisy_task([0.0, 3.0], seed=1, noise=0.1)
    accuracy = {}
    for name in ("fine_tuning", "oracle"):
        method = create(name, networks.linear(2), epochs=100, learning_rate=0.05)
        method.learn("old", old, None, [[1.0]])
        method.learn("new", new, None, [[0.8, 0.2]])
        answers = method.predict_logits(old.x)[0, :, 0] > 0
        accuracy[name] = float((answers == old.y.bool()).float().mean())
    assert accuracy["oracle"] > 0.85
    assert accuracy["fine_tuning"] < accuracy["oracle"] - 0.15


@pytest.mark.parametrize("name", ["convex_combination", "convex_combination_shared_start"])
def test_convex_combination_is_linear_in_the_preference(three_tasks, name):
    method = create(name, networks.mlp(3, hidden=4), epochs=3)
    for k in range(3):
        method.learn(f"task {k}", three_tasks[k], None, np.eye(k + 1))
    vertices = method.thetas.clone()
    assert torch.equal(vertices, method.task_models)
    again = create(name, networks.mlp(3, hidden=4), epochs=3)
    for k in range(2):
        again.learn(f"task {k}", three_tasks[k], None, np.eye(k + 1))
    again.learn("task 2", three_tasks[2], None, [[0.2, 0.3, 0.5]])
    expected = torch.tensor([0.2, 0.3, 0.5]) @ vertices
    torch.testing.assert_close(again.thetas[0], expected)


def test_starts_are_shared_or_independent(three_tasks):
    # A learning rate this small leaves the models at their starts.
    settings = {"epochs": 1, "learning_rate": 1e-12}
    shared = create("convex_combination_shared_start", networks.mlp(3, hidden=4), **settings)
    independent = create("convex_combination", networks.mlp(3, hidden=4), **settings)
    for method in (shared, independent):
        method.learn("first", three_tasks[0], None, [[1.0]])
        method.learn("second", three_tasks[1], None, [[0.5, 0.5]])
    torch.testing.assert_close(shared.task_models[0], shared.task_models[1])
    assert float((independent.task_models[0] - independent.task_models[1]).abs().max()) > 0.1

"""Closed forms and linear solvers against scikit-learn and scipy."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import NearestCentroid

from ibcl import networks
from ibcl.experiments.methods import create
from ibcl.experiments.methods.ranpac import RIDGES, best_ridge
from ibcl.tasks import TaskData, as_task

PREFERENCES = np.array([[0.5, 0.5], [0.9, 0.1], [0.25, 0.75], [1.0, 0.0]])


@pytest.fixture
def two_tasks():
    """Four Gaussian classes, two per task, of different sizes."""
    rng = np.random.default_rng(0)
    tasks = []
    for k, sizes in enumerate([(40, 60), (70, 30)]):
        x = [rng.normal(size=(n, 3)) @ np.diag([1, 2, 0.5]) + rng.normal(size=3) * 2 for n in sizes]
        y = np.repeat([0, 1], sizes)
        tasks.append(as_task(np.concatenate(x) + k, y))
    return tasks


def learnt(name, tasks, preferences=PREFERENCES, network=None, **settings):
    method = create(name, network or networks.linear(3), **settings)
    method.learn("first", tasks[0], None, [[1.0]])
    method.learn("second", tasks[1], None, preferences)
    return method


def everything(tasks):
    """Inputs, the number of each sample's class among all tasks, and the classes' numbers."""
    x = np.concatenate([task.x.numpy() for task in tasks])
    column = np.concatenate([2 * k + task.y.numpy() for k, task in enumerate(tasks)]).astype(int)
    return x, column


def priors_of(column, weights):
    """w_k π_{c|k} of the four classes."""
    counts = np.bincount(column)
    within = counts / np.repeat([counts[:2].sum(), counts[2:].sum()], 2)
    return np.repeat(weights, 2) * within


def labels(joint):
    return joint[:, 1::2].sum(1)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_streaming_lda_is_scikit_learns(two_tasks, shrinkage):
    method = learnt("streaming_lda", two_tasks, shrinkage=shrinkage, temperature=1.0)
    x, column = everything(two_tasks)
    counts = np.bincount(column)
    for k, weights in enumerate(PREFERENCES[:3]):
        reference = LinearDiscriminantAnalysis(
            solver="lsqr", shrinkage=shrinkage, priors=counts / counts.sum()
        ).fit(x, column)
        scores = x @ reference.coef_.T + reference.intercept_ - np.log(counts / counts.sum())
        scores += np.log(priors_of(column, weights))
        expected = np.exp(scores - scores.max(1, keepdims=True))
        expected /= expected.sum(1, keepdims=True)
        found = method.predict_classes(x)[k].exp().numpy()
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5)
        answers = torch.sigmoid(method.predict_logits(x)[k, :, 0]).numpy()
        np.testing.assert_allclose(answers, labels(expected), rtol=2e-3, atol=1e-5)


def test_class_gaussians_are_multivariate_normals(two_tasks):
    """With a = 0, b = 0 and t = 1 the scores are the classes' own Gaussians and Bayes' rule."""
    method = learnt("class_gaussians", two_tasks, pooled=0.0, shrinkage=0.0, temperature=1.0)
    x, column = everything(two_tasks)
    densities = np.stack(
        [
            multivariate_normal(x[column == c].mean(0), np.cov(x[column == c].T, bias=True)).pdf(x)
            for c in range(4)
        ],
        1,
    )
    for k, weights in enumerate(PREFERENCES):
        expected = densities * priors_of(column, weights)
        expected /= expected.sum(1, keepdims=True)
        found = method.predict_classes(x)[k].exp().numpy()
        np.testing.assert_allclose(found, expected, rtol=5e-3, atol=1e-5)


def test_class_gaussians_with_one_covariance_are_streaming_lda(two_tasks):
    settings = {"shrinkage": 0.2, "temperature": 2.0}
    quadratic = learnt("class_gaussians", two_tasks, pooled=1.0, **settings)
    linear = learnt("streaming_lda", two_tasks, **settings)
    x, _ = everything(two_tasks)
    torch.testing.assert_close(
        quadratic.predict_classes(x), linear.predict_classes(x), rtol=1e-3, atol=1e-4
    )


def test_nearest_class_mean_is_scikit_learns(two_tasks):
    """A flat preference over equally frequent classes asks for nothing but the nearest mean."""
    y = torch.tensor([0, 1]).repeat_interleave(30)
    tasks = [TaskData(torch.cat([t.x[t.y == c][:30] for c in (0, 1)]), y) for t in two_tasks]
    method = learnt("nearest_class_mean", tasks)
    x, column = everything(tasks)
    reference = NearestCentroid().fit(x, column)
    found = method.predict_classes(x)[0].argmax(-1).numpy()
    np.testing.assert_array_equal(found, reference.predict(x))


def test_pooled_ridge_is_weighted_ridge_regression(two_tasks):
    method = learnt("pooled_ridge", two_tasks, ridge=0.1, temperature=1.0)
    x = np.concatenate([task.x.numpy() for task in two_tasks])
    y = np.concatenate([2 * task.y.numpy() - 1 for task in two_tasks])
    sizes = [task.size for task in two_tasks]
    wide = np.column_stack([x, np.ones(len(x))])
    for k, weights in enumerate(PREFERENCES):
        reference = Ridge(alpha=0.1, fit_intercept=False)
        reference.fit(wide, y, sample_weight=np.repeat(weights / sizes, sizes))
        np.testing.assert_allclose(
            method.predict_logits(x)[k, :, 0].numpy(), reference.predict(wide), atol=1e-4
        )


def test_ranpac_is_ridge_regression_on_all_data(two_tasks):
    """What was added up task by task is what all data at once would give."""
    method = learnt("ranpac", two_tasks, width=20, temperature=1.0)
    x, column = everything(two_tasks)
    h = np.maximum(x @ method.projection.numpy(), 0)
    reference = Ridge(alpha=method.ridge, fit_intercept=False).fit(h, np.eye(4)[column])
    scores = method.scores(torch.tensor(x, dtype=torch.float32))
    np.testing.assert_allclose(scores.numpy(), reference.predict(h), atol=2e-3)
    assert method.ridge in RIDGES


@pytest.mark.parametrize("shape", [(60, 8), (30, 80)])
def test_best_ridge_has_the_least_error_on_the_last_fifth(shape):
    rng = np.random.default_rng(1)
    h = rng.normal(size=shape)
    y = h[:, :3] @ np.ones((3, 1)) + rng.normal(size=(shape[0], 1))
    n = int(0.8 * shape[0])
    errors = {}
    for ridge in RIDGES:
        fitted = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(h[:n], y[:n])
        errors[ridge] = np.square(fitted.predict(h[n:]).reshape(-1, 1) - y[n:]).mean()
    chosen = best_ridge(torch.tensor(h), torch.tensor(y))
    assert errors[chosen] <= min(errors.values()) * (1 + 1e-6)


def test_map_oracle_is_scikit_learns_weighted_logistic_regression(noisy_task):
    tasks = [noisy_task([1.0, 0.5, 0.0], n=60, seed=0), noisy_task([-0.5, 1.0, 0.0], 90, seed=1)]
    method = learnt("map_oracle", tasks, weight_decay=0.02)
    x = np.concatenate([task.x.numpy() for task in tasks])
    y = np.concatenate([task.y.numpy() for task in tasks])
    sizes = [task.size for task in tasks]
    wide = np.column_stack([x, np.ones(len(x))])
    for k, weights in enumerate(PREFERENCES):
        # scikit-learn minimises C Σ loss + ½ ‖θ‖², and Σ_k w_k L_k is Σ_s loss_s w_k / n_k.
        reference = LogisticRegression(C=1 / 0.02, fit_intercept=False, tol=1e-10, max_iter=10_000)
        reference.fit(wide, y, sample_weight=np.repeat(weights / sizes, sizes))
        np.testing.assert_allclose(
            method.weights[k, 0].numpy(), reference.coef_[0], rtol=2e-3, atol=2e-3
        )


def test_map_oracle_solves_several_classes():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 3)), rng.integers(0, 3, 90)
    method = create("map_oracle", networks.linear(3, outputs=3), weight_decay=0.05)
    method.learn("only", as_task(x, y), None, [[1.0]])
    wide = np.column_stack([x, np.ones(len(x))])
    reference = LogisticRegression(C=1 / 0.05, fit_intercept=False, tol=1e-10, max_iter=10_000)
    reference.fit(wide, y, sample_weight=np.full(90, 1 / 90))
    np.testing.assert_allclose(method.weights[0].numpy(), reference.coef_, rtol=5e-3, atol=5e-3)


def test_online_laplace_of_one_task_is_map_and_its_precision_the_hessian(noisy_task):
    task = noisy_task([1.0, -1.0, 0.5], n=80)
    method = create("online_laplace", networks.linear(3), prior_std=2.0)
    method.learn("only", task, None, [[1.0]])
    wide = np.column_stack([task.x.numpy(), np.ones(80)])
    reference = LogisticRegression(C=4.0, fit_intercept=False, tol=1e-10, max_iter=10_000)
    reference.fit(wide, task.y.numpy())
    np.testing.assert_allclose(method.theta.numpy(), reference.coef_[0], rtol=1e-3, atol=1e-3)
    p = reference.predict_proba(wide)[:, 1]
    hessian = wide.T @ (wide * (p * (1 - p))[:, None]) + np.eye(4) / 4
    np.testing.assert_allclose(method.precision.numpy(), hessian, rtol=1e-3, atol=1e-3)


def test_online_laplace_is_sequential_bayes_for_linear_regression():
    """With a Gaussian likelihood the quadratic prior is exact: all data at once gives the same."""
    from ibcl.likelihoods import Normal

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=60)
    method = create("online_laplace", networks.linear(3), prior_std=1.5, likelihood=Normal(1.0))
    method.learn("a", as_task(x[:25], y[:25]), None, [[1.0]])
    method.learn("b", as_task(x[25:], y[25:]), None, [[0.5, 0.5]])
    wide = np.column_stack([x, np.ones(60)])
    reference = Ridge(alpha=1 / 1.5**2, fit_intercept=False).fit(wide, y)
    np.testing.assert_allclose(method.theta.numpy(), reference.coef_, atol=1e-4)


@pytest.mark.parametrize("name", ["streaming_lda", "class_gaussians", "ranpac", "routed_oracle"])
def test_real_values_and_foreign_networks_are_refused(name):
    method = create(name, networks.linear(3))
    with pytest.raises(ValueError, match="tells classes apart"):
        method.learn("only", as_task(np.zeros((6, 3)), np.linspace(0, 1, 6)), None, [[1.0]])
    if name == "routed_oracle":
        with pytest.raises(ValueError, match=r"needs a network of ibcl\.networks"):
            create(name, torch.nn.Linear(3, 1))

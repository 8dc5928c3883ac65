"""The strongest rivals against scikit-learn, numpy, and what their papers prove."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.svm import SVC

from ibcl import networks
from ibcl.experiments.methods import create
from ibcl.experiments.methods.anacp import separated
from ibcl.tasks import as_task

PREFERENCES = np.array([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]])


@pytest.fixture
def two_tasks():
    """Four Gaussian classes, two per task, of different sizes."""
    rng = np.random.default_rng(0)
    tasks = []
    for k, sizes in enumerate([(40, 60), (70, 30)]):
        x = [rng.normal(size=(n, 3)) + rng.normal(size=3) * 2 for n in sizes]
        tasks.append(as_task(np.concatenate(x) + k, np.repeat([0, 1], sizes)))
    return tasks


def learnt(name, tasks, **options):
    method = create(name, networks.linear(3), **options)
    method.learn("first", tasks[0], None, [[1.0]])
    method.learn("second", tasks[1], None, PREFERENCES)
    return method


def everything(tasks):
    x = np.concatenate([task.x.numpy() for task in tasks])
    column = np.concatenate([2 * k + task.y.numpy() for k, task in enumerate(tasks)]).astype(int)
    return x, column


def test_kldas_features_approximate_the_kernel(two_tasks):
    method = learnt("klda", two_tasks, width=4000, bandwidth=0.3, shrinkage=0.5)
    x = two_tasks[0].x[:20]
    phi = method.features(x)
    kernel = torch.exp(-0.3 * torch.cdist(x, x).square())
    torch.testing.assert_close(phi @ phi.T, kernel, atol=0.08, rtol=0)


def test_klda_is_scikit_learns_lda_of_its_features(two_tasks):
    method = learnt("klda", two_tasks, width=20, shrinkage=0.3, temperature=1.0)
    x, column = everything(two_tasks)
    phi = method.features(torch.tensor(x)).numpy().astype(np.float64)
    scatter = sum(
        np.cov(phi[column == c].T, bias=True) * (column == c).sum() for c in range(4)
    ) / len(phi)
    shrunk = 0.7 * scatter + 0.3 * np.diag(scatter).mean() * np.eye(20)
    reference = LinearDiscriminantAnalysis(solver="lsqr", priors=[0.25] * 4).fit(phi, column)
    reference.coef_ = np.linalg.solve(shrunk, reference.means_.T).T
    reference.intercept_ = -0.5 * (reference.means_ * reference.coef_).sum(1)
    counts = np.bincount(column)
    within = counts / np.repeat([counts[:2].sum(), counts[2:].sum()], 2)
    for k, weights in enumerate(PREFERENCES[:2]):
        logits = reference.decision_function(phi) + np.log(within * np.repeat(weights, 2))
        wanted = torch.tensor(logits).softmax(-1).numpy()
        found = method.predict_classes(torch.tensor(x))[k].exp().numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-3)


def test_loranpac_without_truncation_is_least_squares_on_all_data(two_tasks):
    method = learnt("loranpac", two_tasks, width=12, truncated=0.0, temperature=1.0)
    x, column = everything(two_tasks)
    h = np.maximum(x @ method.projection.numpy(), 0).astype(np.float64)
    wanted = h @ np.linalg.lstsq(h, np.eye(4)[column], rcond=1e-6)[0]
    np.testing.assert_allclose(method.scores(torch.tensor(x)).numpy(), wanted, atol=1e-3)


def test_loranpac_of_one_task_is_the_truncated_pseudo_inverse(two_tasks):
    method = create("loranpac", networks.linear(3), width=12, truncated=0.5, temperature=1.0)
    method.learn("first", two_tasks[0], None, [[1.0]])
    x, y = two_tasks[0].x, two_tasks[0].y.long().numpy()
    h = np.maximum(x.numpy() @ method.projection.numpy(), 0).astype(np.float64)
    u, s, vt = np.linalg.svd(h, full_matrices=False)
    weights = vt[:6].T @ np.diag(1 / s[:6]) @ u[:, :6].T @ np.eye(2)[y]
    np.testing.assert_allclose(method.scores(x).numpy(), h @ weights, atol=1e-4)
    assert method.basis.shape == (12, 6)


def cosines(means):
    unit = means / means.norm(dim=1, keepdim=True)
    return float((unit @ unit.T).abs().sum())


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.integers(2, 6))
def test_anacps_targets_are_further_apart_in_the_metric_of_the_covariance(seed, classes):
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(classes, 8, generator=generator, dtype=torch.float64)
    factor = torch.randn(8, 8, generator=generator, dtype=torch.float64)
    covariance = factor @ factor.T + 0.1 * torch.eye(8, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(covariance)
    whiten = (vectors / values.sqrt()) @ vectors.T
    torch.testing.assert_close(separated(means, covariance, 0.0), means)
    moved = separated(means, covariance, 1e-4)
    assert cosines(moved @ whiten) <= cosines(means @ whiten) + 1e-9


def test_anacps_projection_is_ridge_regression_on_the_targets(two_tasks):
    options = {"width": 15, "heads": 1, "ridge": 2.0, "repulsion": 0.5}
    method = learnt("anacp", two_tasks, **options)
    x, column = everything(two_tasks)
    z = np.maximum(x @ method.projections[0].numpy(), 0).astype(np.float64)
    targets = separated(method.means, method.covariance(), 0.5).numpy()
    reference = Ridge(alpha=2.0, fit_intercept=False).fit(z, targets[column])
    np.testing.assert_allclose(method.contrastive[0].numpy(), reference.coef_.T, atol=1e-4)
    right = method.scores(torch.tensor(x)).argmax(1).numpy() == column
    assert right.mean() > 0.5


def test_the_rbf_oracle_is_scikit_learns_weighted_machine(two_tasks):
    method = learnt("rbf_oracle", two_tasks, penalty=2.0, bandwidth=0.2, temperature=0.5)
    x = np.concatenate([task.x.numpy() for task in two_tasks])
    y = np.concatenate([task.y.numpy() for task in two_tasks])
    for k, weights in enumerate(PREFERENCES):
        own = np.repeat(weights * len(x) / 100, 100)
        machine = SVC(C=2.0, gamma=0.2).fit(x[own > 0], y[own > 0], sample_weight=own[own > 0])
        found = method.predict_logits(x)[k, :, 0].numpy()
        # Both stop at libsvm's tolerance of 1e-3, here divided by the temperature.
        np.testing.assert_allclose(found, machine.decision_function(x) / 0.5, atol=5e-3)
    with pytest.raises(ValueError, match="whole numbers as labels"):
        create("rbf_oracle", networks.linear(1)).learn(
            "a", as_task([[0.0], [1.0]], [0.5, 1.5]), None, [[1.0]]
        )


def test_an_ensembles_probabilities_are_its_members_average(two_tasks):
    options = {"epochs": 3, "batch_size": 20, "seed": 4}
    method = learnt("routed_oracle_ensemble", two_tasks, members=3, **options)
    x = two_tasks[0].x
    members = method.member_scores(x).exp()
    torch.testing.assert_close(members.sum(-1), torch.ones(3, len(x)))
    torch.testing.assert_close(method.scores(x).exp(), members.mean(0))
    assert not torch.allclose(members[0], members[1], atol=1e-3)
    alone = learnt("routed_oracle_ensemble", two_tasks, members=1, **options)
    single = learnt("routed_oracle", two_tasks, **options)
    torch.testing.assert_close(alone.predict_logits(x), single.predict_logits(x))

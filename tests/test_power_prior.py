"""Heads that borrow from other tasks, by a power prior."""

import numpy as np
import torch
from scipy.stats import multivariate_normal

import ibcl
from ibcl.gaussians import DenseGaussian
from ibcl.knowledge import KnowledgeBase
from ibcl.pooling import RoutedEvidence
from ibcl.pooling.power_prior import POWERS, borrowed


def _base(means, precisions, prior=0.5):
    size = len(means[0])
    knowledge = KnowledgeBase(
        [DenseGaussian(np.zeros(size), prior * np.eye(size))], d=0, independent=True
    )
    for number, (mean, precision) in enumerate(zip(means, precisions, strict=True)):
        knowledge.add(f"task {number}", [DenseGaussian(mean, precision)])
    return knowledge


def _random_base(seed, tasks=3, size=2, spread=0.3):
    generator = np.random.default_rng(seed)
    roots = generator.normal(size=(tasks, size, size))
    precisions = [root @ root.T + 3 * np.eye(size) for root in roots]
    centre = generator.normal(size=size)
    means = centre + spread * generator.normal(size=(tasks, size))
    return _base(means, precisions)


def test_the_power_maximises_the_probability_of_the_tasks_own_evidence():
    """Against scipy: ℓ_k is the density of its maximiser around θ, and π_c has it around μ_c."""
    for seed in range(6):
        knowledge = _random_base(seed, spread=0.1 + 0.4 * seed)
        prior = knowledge.priors[0].precision.double().numpy()
        sites = []
        for task in knowledge.tasks:
            q = knowledge.extremes(task)[0]
            own, linear = q.precision.double().numpy() - prior, q.precision @ q.mean.double()
            sites.append((own, linear.numpy()))
        for number, found in enumerate(borrowed(knowledge)):
            own, linear = sites[number]
            best = np.linalg.solve(own, linear)
            scores = []
            for power in POWERS:
                others = [site for place, site in enumerate(sites) if place != number]
                precision = prior + power * sum(site[0] for site in others)
                centre = np.linalg.solve(precision, power * sum(site[1] for site in others))
                spread = np.linalg.inv(own) + np.linalg.inv(precision)
                scores.append(multivariate_normal.logpdf(best, centre, spread))
            assert found.power == POWERS[int(np.argmax(scores))]


def test_a_task_unlike_the_others_keeps_its_own_posterior():
    knowledge = _base([[1.0], [1.1], [-40.0]], [[[20.0]]] * 3)
    alone = borrowed(knowledge)[2]
    assert alone.power == 0
    assert alone.posterior is knowledge.extremes("task 2")[0]
    assert borrowed(knowledge)[0].power < 1


def _tasks(seed=0, rows=60):
    generator = torch.Generator().manual_seed(seed)
    for number in range(3):
        x = torch.randn(rows, 4, generator=generator)
        chance = torch.sigmoid(x @ torch.tensor([1.0, -1.0, 0.5, 0.0]))
        yield f"task {number}", x, torch.bernoulli(chance, generator=generator)


def _learner(names=(0, 1, 2)):
    learner = ibcl.IBCL(ibcl.networks.linear(4), pooling=RoutedEvidence(head_share=1, borrow=True))
    known = list(_tasks())
    for number in names:
        learner.learn(*known[number][1:], task=known[number][0])
    return learner


def test_a_forgotten_task_leaves_nothing_in_the_heads_that_borrowed():
    forgetful, never = _learner(), _learner((2, 0))
    forgetful.forget("task 1")
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    wanted = {"task 0": 0.3, "task 2": 0.7}
    for a, b in ((0.3, 0.7), (1.0, 0.0)):
        preference = {"task 0": a, "task 2": b}
        found = forgetful.model(preference).predict_proba(x)
        np.testing.assert_array_equal(found, never.model(preference).predict_proba(x))
    assert not np.allclose(
        _learner().model({**wanted, "task 1": 0.0}).predict_proba(x),
        never.model(wanted).predict_proba(x),
        atol=1e-6,
    )


def test_few_rows_of_alike_tasks_come_closer_to_the_truth_together():
    learner, alone = _learner(), ibcl.IBCL(ibcl.networks.linear(4), pooling="routed")
    for task, x, y in _tasks():
        alone.learn(x, y, task=task)
    x = torch.randn(2000, 4, generator=torch.Generator().manual_seed(5))
    truth = torch.sigmoid(x @ torch.tensor([1.0, -1.0, 0.5, 0.0])).numpy()

    def error(model):
        return float(np.square(np.asarray(model.predict_proba(x))[:, 1] - truth).mean())

    for task in learner.tasks:
        assert error(learner.model(task)) < error(alone.model(task))


def test_what_borrowed_answers_alike_by_every_way_and_after_saving(tmp_path):
    learner = _learner()
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(2))
    preference = [0.2, 0.5, 0.3]
    model = learner.model(preference)
    expected = model.predict_proba(x)
    many = np.asarray(learner.predict_many(x, [preference]))[0]
    np.testing.assert_allclose(many.reshape(len(x), -1)[:, -1], expected[:, 1], atol=1e-6)
    learner.save(tmp_path / "base.ibcl")
    again = ibcl.load(tmp_path / "base.ibcl").model(preference)
    np.testing.assert_allclose(again.predict_proba(x), expected, atol=1e-6)
    np.testing.assert_allclose(model.distribution.mean, model.theta, atol=1e-6)
    assert model.region.contains(model.theta)


def test_a_task_of_mere_noise_beside_a_clear_one_is_answered():
    """Its prior is so narrow that its rounding is more than the whole prior of the other task."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 2))
    model = ibcl.IBCLRegressor()
    model.partial_fit(x, 0.1 * generator.normal(size=200), task="noise")
    model.partial_fit(x, 10 + 0.1 * generator.normal(size=200), task="ten")
    found = [model.predict(x, preference=[1 - w, w]).mean() for w in (0.0, 0.01, 0.99, 1.0)]
    np.testing.assert_allclose(found, [0, 0.1, 9.9, 10], atol=0.05)

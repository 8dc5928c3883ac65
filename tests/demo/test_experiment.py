from __future__ import annotations

import json

import numpy as np
import pytest

from ibcl.demo.experiment import COVERAGE_DRAWS, FRONT_STEPS, between, named_preferences
from ibcl.demo.growth import PRIORS, growth
from ibcl.demo.summary import tables
from ibcl.demo.tasks import digit_tasks
from ibcl.demo.uncertainty import doubts


def test_the_tasks_do_not_share_images_between_training_and_test():
    for task in digit_tasks(seed=3).tasks:
        train = {row.tobytes() for row in task.train.x.numpy()}
        # Two images of scikit-learn's digits are equal by chance at most.
        assert sum(row.tobytes() in train for row in task.test.x.numpy()) <= 1
        assert set(task.test.y.tolist()) == {0, 1}


def test_the_scaling_is_the_first_tasks():
    first = digit_tasks(seed=0).tasks[0].train.x
    assert np.allclose(first.mean(0), 0, atol=1e-5)
    assert float(first.std()) == pytest.approx(1, abs=1e-3)


def test_preferences_lie_on_the_simplex():
    weights = np.stack(list(named_preferences(["a", "b", "c"], seed=1).values()))
    assert np.allclose(weights.sum(1), 1)
    assert (weights >= 0).all()
    line = between(0, 2, 3)
    assert len(line) == FRONT_STEPS
    assert np.allclose(line.sum(1), 1)
    assert line[0].tolist() == [1, 0, 0]
    assert line[-1].tolist() == [0, 0, 1]


def test_all_alike_is_the_plain_average(results):
    for result in results.ways:
        assert results.weighted(result.accuracy)[0] == pytest.approx(result.accuracy[0].mean())


def test_each_end_of_the_front_is_good_at_its_own_task(results):
    for result in results.ways:
        for accuracy in (result.front, result.retrained_front):
            assert accuracy[0, 0] > 0.95
            assert accuracy[-1, 1] > 0.9


def test_regions_hold_what_they_promise(results):
    for result in results.ways:
        alpha = result.learner.alpha
        five_standard_errors = 5 * np.sqrt(alpha * (1 - alpha) / COVERAGE_DRAWS)
        assert result.coverage == pytest.approx(1 - alpha, abs=five_standard_errors)


def test_retraining_counts_the_updates_of_one_model(results, digits):
    samples = sum(task.train.size for task in digits.tasks)
    for result in results.ways:
        settings = result.way.retraining
        batches = -(-samples // settings["batch_size"])
        assert result.retraining_updates == settings["epochs"] * batches


def test_figures_are_plain_json(results):
    figures = json.loads(json.dumps(results.figures(), allow_nan=False))
    assert set(figures["ways"]) == {result.way.name for result in results.ways}
    assert len(list(tables(results))) == len(results.ways) + 1


def test_without_a_threshold_every_posterior_is_kept(digits):
    stored = growth(digits)
    assert stored[0.0] == [len(PRIORS), 2 * len(PRIORS)]
    for counts in stored.values():
        assert counts == sorted(counts)
        assert max(counts) <= stored[0.0][-1]


def test_what_is_no_digit_is_known_less(results, digits):
    found = doubts(results.ways[0].learner, digits)
    known = max(doubt.epistemic for doubt in found if doubt.known)
    assert all(doubt.epistemic > known for doubt in found if not doubt.known)

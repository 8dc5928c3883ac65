"""The comparison of adapters, on a tiny random model: every contender answers what it is asked."""

import numpy as np
import pytest
import torch

pytest.importorskip("peft")
pytest.importorskip("transformers")

from worlds import NAMES, base, task

import ibcl
from ibcl.experiments.adapters import CONTENDERS
from ibcl.experiments.adapters.contenders import Scene
from ibcl.experiments.adapters.contenders.merged import folded
from ibcl.experiments.adapters.study import weighted_accuracy
from ibcl.experiments.benchmarks.benchmark import BenchmarkTask, Split


@pytest.fixture(scope="module")
def scene() -> Scene:
    def split(number: int, rows: int, seed: int) -> Split:
        x, y = task(number, rows, seed)
        return Split(x[:, 0].astype(np.float32), y)

    tasks = [
        BenchmarkTask(name, split(k, 40, 0), split(k, 10, 1), split(k, 20, 2))
        for k, name in enumerate(NAMES)
    ]
    expert = ibcl.adapters.LoRA(rank=2, epochs=1)
    preferences = np.array([[1.0, 0.0], [0.4, 0.6], [0.0, 1.0]])
    return Scene(base(), tasks, preferences, 2, expert, ["encoder.layer.1"])


@pytest.mark.parametrize("title", CONTENDERS)
def test_a_contender_answers_every_row_with_probabilities(scene, title):
    outcome = CONTENDERS[title](scene)
    answered, rows, classes = outcome.probabilities.shape
    assert answered >= scene.few
    assert (rows, classes) == (40, 2)
    assert np.allclose(outcome.probabilities.sum(2), 1, atol=1e-5)
    assert outcome.nbytes > 0


def test_at_a_vertex_soup_and_routing_are_the_same_adapter(scene):
    routed = CONTENDERS["routed adapters, no heads beside them"](scene).probabilities
    soup = CONTENDERS["soup"](scene).probabilities
    assert np.allclose(routed[0], soup[0], atol=1e-5)


def test_a_change_inside_the_weights_is_the_change_beside_them(scene):
    adapter, network = scene.adapted.adapters[0], scene.untaught.network
    beside = adapter.on(network).answers(scene.test_features)
    inside = folded(adapter.on(network)).answers(scene.test_features)
    assert torch.allclose(inside, beside, atol=1e-5)
    # The base, which all share, has not changed.
    assert torch.equal(adapter.on(network).answers(scene.test_features), beside)


def test_accuracy_is_weighted_by_the_preference(scene):
    """A model that is right on the first task and wrong on the second has the first's weight."""
    y = np.concatenate([each.test.y for each in scene.tasks])
    y[20:] = 1 - y[20:]
    answers = np.eye(2)[y][None].repeat(3, 0)
    assert np.allclose(weighted_accuracy(answers, scene), 100 * scene.preferences[:, 0])

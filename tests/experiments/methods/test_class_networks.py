"""Networks over the classes of all tasks: what they are trained on, and how they grow."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from ibcl import networks
from ibcl.experiments.methods import create
from ibcl.experiments.methods.class_scores import bayes_rule, label_logits


def test_routed_oracle_is_softmax_regression_on_task_and_label(noisy_task):
    tasks = [noisy_task([1.0, 0.5, 0.0], n=60, seed=0), noisy_task([-0.5, 1.0, 0.0], 90, seed=1)]
    method = create(
        "routed_oracle",
        networks.linear(3),
        epochs=800,
        batch_size=1000,
        learning_rate=0.05,
        weight_decay=0.01,
    )
    method.keep("first", tasks[0])
    method.learn("second", tasks[1], None, [[0.5, 0.5], [0.9, 0.1]])
    x = np.concatenate([task.x.numpy() for task in tasks])
    column = np.concatenate([2 * k + task.y.numpy() for k, task in enumerate(tasks)])
    weights = np.repeat([1 / 120, 1 / 180], [60, 90])
    wide = np.column_stack([x, np.ones(len(x))])
    reference = LogisticRegression(C=100, fit_intercept=False, tol=1e-10, max_iter=10_000)
    joint = reference.fit(wide, column, sample_weight=weights).predict_proba(wide)
    for k, w in enumerate(([0.5, 0.5], [0.9, 0.1])):
        expected = joint * np.repeat(w, 2)
        expected /= expected.sum(1, keepdims=True)
        found = method.predict_classes(x)[k].exp().numpy()
        np.testing.assert_allclose(found, expected, atol=2e-3)
        answers = torch.sigmoid(method.predict_logits(x)[k, :, 0]).numpy()
        np.testing.assert_allclose(answers, expected[:, 1::2].sum(1), atol=2e-3)


def test_keeping_data_first_trains_what_learning_it_trains(three_tasks):
    kept, learnt = (
        create("routed_oracle", networks.mlp(3, hidden=4), epochs=2, batch_size=16) for _ in "ab"
    )
    kept.keep("first", three_tasks[0])
    learnt.learn("first", three_tasks[0], None, [[1.0]])
    for method in (kept, learnt):
        method.learn("second", three_tasks[1], None, [[0.3, 0.7]])
    x = three_tasks[2].x
    assert torch.equal(kept.predict_logits(x), learnt.predict_logits(x))
    assert kept.updates < learnt.updates


@pytest.mark.parametrize("name", ["oracle", "map_oracle"])
def test_oracles_need_not_train_when_nobody_asks(name, three_tasks):
    settings = {"epochs": 2} if name == "oracle" else {}
    kept, learnt = (create(name, networks.linear(3), **settings) for _ in "ab")
    kept.keep("first", three_tasks[0])
    learnt.learn("first", three_tasks[0], None, [[1.0]])
    for method in (kept, learnt):
        method.learn("second", three_tasks[1], None, [[0.3, 0.7]])
    x = three_tasks[2].x
    torch.testing.assert_close(kept.predict_logits(x), learnt.predict_logits(x))
    with pytest.raises(ValueError, match="has been learnt already"):
        kept.keep("first", three_tasks[0])


def test_class_rehearsal_sees_memories_and_the_present_task_only(three_tasks):
    method = create(
        "class_rehearsal", networks.mlp(3, hidden=4), memory=10, epochs=3, batch_size=16
    )
    for i, task in enumerate(three_tasks, 1):
        before = method.updates
        method.learn(f"task {i}", task, None, np.full((4, i), 1 / i))
        # One model, however many preferences.
        assert method.updates - before == 3 * np.ceil((48 + (i - 1) * 10) / 16)
    for (x, column), task, k in zip(method.memories, three_tasks, range(3), strict=True):
        rows = [int((task.x == row).all(1).nonzero()[0, 0]) for row in x]
        assert len(set(rows)) == 10
        assert torch.equal(column, 2 * k + task.y[rows])


def test_a_vertex_ignores_the_other_tasks_classes():
    scores, tasks = (
        torch.randn(5, 4, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 0, 1, 1]),
    )
    joint = bayes_rule(scores, tasks, torch.tensor([[0.0, 1.0]]))
    assert bool((joint[..., :2] == -torch.inf).all())
    torch.testing.assert_close(joint[0, :, 2:], scores[:, 2:].log_softmax(-1))
    logits = label_logits(joint, torch.tensor([0, 1, 0, 1]), 1)
    torch.testing.assert_close(logits[0, :, 0], scores[:, 3] - scores[:, 2])


def test_several_labels_stay_several():
    joint = torch.tensor([[[0.2, 0.3, 0.1, 0.4]]]).log()
    logits = label_logits(joint, torch.tensor([0, 1, 2, 0]), outputs=3)
    torch.testing.assert_close(logits.exp(), torch.tensor([[[0.6, 0.3, 0.1]]]))

"""All tasks' data at once: what a preference costs, and gains, if a model is trained for it."""

from __future__ import annotations

import time

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from ibcl.experiments.adapters.contenders.scene import Matrix, Outcome, Scene, contender
from ibcl.tasks import TaskData

# Of the head, for features of unit mean square length; as LoRA's own head begins.
_INVERSE_REGULARISATION = 10.0
_STEPS = 300


def all_data(scene: Scene, shares: NDArray[np.float64]) -> TaskData:
    """All tasks' training data, each task weighted to its share; the mean weight is 1."""
    chosen = [k for k, share in enumerate(shares) if share > 0]
    rows = [scene.train_features[k] for k in chosen]
    labels = [torch.as_tensor(scene.tasks[k].train.y) for k in chosen]
    weight = torch.cat(
        [torch.full((len(y),), shares[k] / len(y)) for k, y in zip(chosen, labels, strict=True)]
    )
    return TaskData(torch.cat(rows), torch.cat(labels), weight / weight.mean())


def _kept(scene: Scene) -> float:
    """Bytes per task of the data, which must be kept."""
    return float(np.mean([task.train.x.nbytes + task.train.y.nbytes for task in scene.tasks]))


@contender("head on all data per preference", dear=True)
def heads(scene: Scene) -> Outcome:
    """One logistic regression per preference, on depths of the frozen base."""
    columns = scene.untaught.network.columns
    test = scene.test_features[:, :columns].double().numpy()
    answers, seconds = [], 0.0
    for row in scene.preferences:
        data = all_data(scene, row)
        begin = time.process_time()
        x = data.x[:, :columns].double().numpy()
        scale = np.sqrt(np.square(x).sum(1).mean())
        head = LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=_STEPS)
        assert data.weights is not None
        head.fit(x / scale, data.y.numpy(), sample_weight=data.weights.numpy())
        seconds += (time.process_time() - begin) / len(scene.preferences)
        answers.append(head.predict_proba(test / scale))
    return Outcome(np.stack(answers).astype(np.float32), 0.0, _kept(scene), 0.0, seconds)


def _trained(scene: Scene, preferences: Matrix) -> tuple[NDArray[np.float32], float]:
    """Answers of a LoRA for each preference, and its seconds."""
    learner, answers, seconds = scene.untaught, [], 0.0
    for row in preferences:
        data = all_data(scene, row)
        begin = time.process_time()
        adapter = scene.expert.fit_on(learner.network, data, 2, learner.seed)
        seconds += (time.process_time() - begin) / len(preferences)
        answers.append(adapter.on(learner.network).answers(scene.test_features).numpy())
    return np.stack(answers).astype(np.float32), seconds


@contender("LoRA on all data, one for all preferences", dear=True)
def once(scene: Scene) -> Outcome:
    """One LoRA on all tasks' data at once, which knows no preference."""
    tasks = len(scene.tasks)
    found, seconds = _trained(scene, np.full((1, tasks), 1 / tasks))
    return Outcome(found.repeat(len(scene.preferences), 0), seconds / tasks, _kept(scene), 1.0, 0.0)


@contender("LoRA on all data per preference", dear=True)
def retrained(scene: Scene) -> Outcome:
    """One LoRA per preference, on all tasks' data weighted by it."""
    found, seconds = _trained(scene, scene.preferences[: scene.few])
    return Outcome(found, 0.0, _kept(scene), 1.0, seconds)

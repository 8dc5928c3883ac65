"""Small tasks the baselines are tried on."""

import numpy as np
import pytest
import torch

from ibcl.tasks import TaskData


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def noisy_task(direction, n=64, seed=0, noise=1.0):
    """Labels by the sign of a noisy projection: learnable, and not separable."""
    rng = np.random.default_rng(seed)
    direction = np.asarray(direction, dtype=np.float64)
    x = rng.normal(size=(n, len(direction)))
    y = (x @ direction + noise * rng.normal(size=n) > 0).astype(np.int64)
    return TaskData(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


@pytest.fixture(name="noisy_task")
def _noisy_task():
    return noisy_task


@pytest.fixture
def three_tasks():
    directions = [[2.0, 0.0, 1.0], [0.0, 2.0, 1.0], [-1.0, 1.0, 2.0]]
    return [noisy_task(d, n=48, seed=k) for k, d in enumerate(directions)]

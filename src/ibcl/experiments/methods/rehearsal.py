"""Rehearsal: a few samples of every past task, and the preference-weighted loss over all of them.

At task i a rehearsal method sees the data of task i and at most `memory` samples of each earlier
task. Preferences weight the tasks' losses,

    L_w(θ) = Σ_j w_j L_j(θ),     L_j(θ) = mean over the samples of task j at hand,

and an epoch is one pass over all samples at hand, so that a model takes
(n_i + (i−1) n_mem) · e / b updates, the count of the paper's Table 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.checked import at_least
from ibcl.experiments.methods.descent import Gradient
from ibcl.tasks import TaskData


class Pool:
    """The samples of several tasks in one table, each knowing its task.

    Examples
    --------
    >>> one, three = (TaskData(torch.zeros(n, 2), torch.zeros(n)) for n in (1, 3))
    >>> Pool([one, three]).importance(torch.tensor([[0.5, 0.5]]))
    tensor([[2.0000, 0.6667, 0.6667, 0.6667]])
    """

    def __init__(self, tasks: Sequence[TaskData]) -> None:
        self.data = TaskData(torch.cat([t.x for t in tasks]), torch.cat([t.y for t in tasks]))
        self.sizes = torch.tensor([task.size for task in tasks])
        self.task = torch.repeat_interleave(torch.arange(len(tasks)), self.sizes)

    @property
    def size(self) -> int:
        """N, the number of samples at hand."""
        return self.data.size

    @property
    def current(self) -> Tensor:
        """Which samples belong to the present task, the last one."""
        return self.task == len(self.sizes) - 1

    def importance(self, preferences: Tensor) -> Tensor:
        """w_j N / n_j of every sample: its mean times the losses is Σ_j w_j L_j; shape (P, N)."""
        return (preferences * self.size / self.sizes)[:, self.task]


def choose_samples(task: TaskData, n: int, generator: torch.Generator) -> TaskData:
    """Choose n samples of a task at random, without replacement (all, if it has fewer).

    Examples
    --------
    >>> task = TaskData(torch.zeros(5, 2), torch.zeros(5))
    >>> choose_samples(task, 3, torch.Generator()).size
    3
    """
    rows = torch.randperm(task.size, generator=generator)[:n]
    return TaskData(task.x[rows], task.y[rows])


class Rehearsal(Baseline):
    """A baseline with an episodic memory.

    The models of all preferences start from what the last task left: the average of its models.
    They were trained from one start on the same minibatches, so their average is a good model of
    the average preference, which is nearly the uniform one; it costs no extra training.

    Parameters
    ----------
    memory
        Samples kept of each task. Which ones: a random choice, unless the method says otherwise.
    """

    def __init__(self, network: nn.Module, *, memory: int = 50, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.memory = at_least("memory", memory, 1)
        self.memories: list[TaskData] = []
        self.carried: Tensor | None = None

    @abstractmethod
    def direction(self, pool: Pool, preferences: Tensor, generator: torch.Generator) -> Gradient:
        """Return the method's rule: from a minibatch's rows in the pool to the step's gradient."""

    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Train every preference's model on current data and memory, then remember some data."""
        generator = self.generator()
        pool = Pool([*self.memories, current])
        if self.carried is None:
            self.carried = self.network.initial_parameters(generator)
        thetas = self.carried.repeat(len(preferences), 1)
        direction = self.direction(pool, preferences, generator)
        self.descend(thetas, pool.size, direction, generator)
        self.memories.append(self.remember(current, generator))
        self.carried = thetas.mean(0)
        return thetas

    def remember(self, current: TaskData, generator: torch.Generator) -> TaskData:
        """Choose what to keep of the present task."""
        return choose_samples(current, self.memory, generator)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the samples kept and of the model the next task starts from."""
        samples = sum(task.x.nbytes + task.y.nbytes for task in self.memories)
        return samples + (0 if self.carried is None else self.carried.nbytes)

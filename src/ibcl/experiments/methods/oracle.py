"""The oracle: all data of all tasks, for every preference anew. The upper bound."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.registration import ALL_DATA, Registration, register
from ibcl.experiments.methods.rehearsal import Pool
from ibcl.tasks import TaskData


class Oracle(Baseline):
    r"""For every preference w, retrain on the whole of every task: min_θ Σ_k w_k L_k(θ).

    It may keep **all the data of all tasks**, which continual learning forbids, and so shows what
    the preference-weighted problem allows. The models of all preferences start from one seeded
    random point, not from the last task's models.

    Updates at task i: n_prefs · Σ_{k≤i} n_k · e / b.
    """

    name = "oracle"

    def __init__(self, network: nn.Module, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.seen: list[TaskData] = []

    def keep(self, task: str, train: TaskData) -> None:
        """Keep a task's data without training: the next task retrains on everything anyway."""
        self._check_new(task)
        self.seen.append(self._checked(train))
        self.tasks.append(task)

    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Train every preference's model on everything seen so far."""
        self.seen.append(current)
        pool = Pool(self.seen)
        generator = self.generator()
        start = self.network.initial_parameters(generator)
        return self.minimise(start, pool.data, pool.importance(preferences), generator)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all data seen."""
        return sum(task.x.nbytes + task.y.nbytes for task in self.seen)


register(Registration("oracle", "oracle", Oracle, ALL_DATA, MLP, 10.0, GRADIENT, DECAYED))

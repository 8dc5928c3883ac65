"""The kernel oracle: a support vector machine on all data for every preference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.svm import SVC
from torch import Tensor, nn

from ibcl.experiments.methods.checked import CheckedMethod, positive
from ibcl.experiments.methods.common_settings import LINEAR, NORM
from ibcl.experiments.methods.registration import ALL_DATA, Range, Registration, register
from ibcl.experiments.methods.rehearsal import Pool
from ibcl.tasks import TaskData, as_inputs


class RBFOracle(CheckedMethod):
    r"""For every preference w, scikit-learn's `SVC` with samples of task k weighted by w_k / n_k.

    The kernel is exp(−γ ‖x − x'‖²). It keeps **all data of all tasks**, and is retrained for every
    preference. Signed distances from the boundary, divided by a temperature, stand for logits.

    Parameters
    ----------
    penalty
        C.
    bandwidth
        γ.
    temperature
        What the machine's answers are divided by.
    """

    name = "rbf_oracle"

    def __init__(
        self,
        network: nn.Module,
        *,
        penalty: float = 3.0,
        bandwidth: float = 1.0,
        temperature: float = 0.5,
        **settings: Any,
    ) -> None:
        super().__init__(network, **settings)
        self.penalty = positive("penalty", penalty)
        self.bandwidth = positive("bandwidth", bandwidth)
        self.temperature = positive("temperature", temperature)
        self.seen: list[TaskData] = []
        self.machines: list[SVC] = []
        self.outputs = 1

    def keep(self, task: str, train: TaskData) -> None:
        """Keep a task's data without training: the next task trains on everything anyway."""
        self._check_new(task)
        self.seen.append(self._checked(train))
        self.tasks.append(task)

    def absorb(self, current: TaskData, preferences: Tensor) -> None:
        """Train a machine for every preference on everything seen so far."""
        if current.y.ndim != 1 or bool((current.y != current.y.round()).any()):
            raise ValueError(
                f"{self.name} tells classes apart: give whole numbers as labels, not real values."
            )
        self.seen.append(current)
        self.outputs = self.network.template(current.x[:1]).reshape(1, -1).shape[1]
        pool = Pool(self.seen)
        x, y = pool.data.x.flatten(1).numpy(), pool.data.y.long().numpy()
        self.machines = []
        for weights in pool.importance(preferences).numpy():
            rows = weights > 0
            machine = SVC(C=self.penalty, gamma=self.bandwidth, cache_size=500)
            self.machines.append(machine.fit(x[rows], y[rows], sample_weight=weights[rows]))

    def predict_logits(self, x: Any) -> Tensor:
        """Return the machines' answers over the temperature, (preferences, n, outputs)."""
        if not self.machines:
            raise ValueError(f"{self.name} has not learnt a task yet: call learn first.")
        rows = as_inputs(x).flatten(1).numpy()
        return torch.stack([self._answers(machine, rows) for machine in self.machines])

    def _answers(self, machine: SVC, rows: np.ndarray[Any, Any]) -> Tensor:
        found = torch.from_numpy(np.atleast_1d(machine.decision_function(rows))).float()
        found = found / self.temperature
        if self.outputs == 1:
            return found[:, None]
        if found.ndim == 1:
            found = torch.stack([-found / 2, found / 2], 1)
        answers = torch.full((len(rows), self.outputs), -1e4)
        answers[:, torch.from_numpy(machine.classes_)] = found
        return answers

    @property
    def stored_bytes(self) -> int:
        """Bytes of all data seen."""
        return sum(task.x.nbytes + task.y.nbytes for task in self.seen)


register(
    Registration(
        "rbf_oracle",
        "oracle, RBF machine",
        RBFOracle,
        ALL_DATA,
        LINEAR,
        1.0,
        {"penalty": 3.0, "bandwidth": 1.0, "temperature": 0.5},
        {
            **NORM,
            "penalty": Range(0.1, 100.0),
            "bandwidth": Range(0.01, 10.0),
            "temperature": Range(0.1, 2.0),
        },
    )
)

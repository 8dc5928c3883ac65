"""What classifier and regressor share: tasks, preference, and the model between them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ibcl import networks
from ibcl.inference import Inference
from ibcl.learner import IBCL
from ibcl.likelihoods import Likelihood
from ibcl.model import Model
from ibcl.networks import FlatNetwork
from ibcl.preference import Preference
from ibcl.tasks import TaskData

HEADS = ("random_features", "linear", "mlp")
# Used for the mlp, where no evidence is at hand to choose one by.
MLP_PRIOR_STD = 1.0
# Matrices are D×D. Where D would become larger than this, many classes get fewer random features,
# and many inputs do not join the random features made of them.
LARGEST_DIMENSION = 1500
# Models kept for preferences used before.
CACHED_MODELS = 32


def default_head(inputs: int, width: int, outputs: int, seed: int) -> networks.SpecifiedNetwork:
    """Build the default head: x beside random features of it, as far as matrices stay small."""
    room = LARGEST_DIMENSION // outputs - 1
    skip = 2 * inputs <= room
    if outputs > 1:
        width = min(width, max(1, room - inputs * skip))
    return networks.random_features(inputs, width, outputs, seed=seed, skip=skip)


class Predictor(NamedTuple):
    """A model and its mean model as a module in double precision, for exact batching."""

    model: Model
    module: nn.Module

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return f(x) of the mean model, shape (n, outputs)."""
        with torch.no_grad():
            outputs: Tensor = self.module(inputs)
        return outputs


class IBCLEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: tasks, preference, and the model between them."""

    learner_: IBCL

    def __init__(
        self,
        head: str = "random_features",
        *,
        width: int = 256,
        priors: Sequence[float] | None = None,
        inference: Inference | None = None,
        pooling: str | None = None,
        preference: Any = None,
        continual: bool | None = None,
        d: float = 0.0,
        alpha: float = 0.01,
        random_state: Any = 0,
    ) -> None:
        self.head = head
        self.width = width
        self.priors = priors
        self.inference = inference
        self.pooling = pooling
        self.preference = preference
        self.continual = continual
        self.d = d
        self.alpha = alpha
        self.random_state = random_state

    @property
    def tasks_(self) -> tuple[str, ...]:
        """Names of the tasks learnt, in order."""
        check_is_fitted(self, "learner_")
        return self.learner_.tasks

    def set_preference(self, preference: Any) -> Self:
        """Choose the preference of all predictions from now on; None weighs all tasks equally."""
        if preference is not None and hasattr(self, "learner_"):
            Preference.parse(preference, self.tasks_)
        self.preference = preference
        return self

    def _make_network(self, inputs: int, outputs: int, seed: int) -> networks.SpecifiedNetwork:
        if self.head == "linear":
            return networks.linear(inputs, outputs)
        if self.head == "mlp":
            return networks.mlp(inputs, self.width, outputs)
        if self.head == "random_features":
            return default_head(inputs, self.width, outputs, seed)
        raise ValueError(f"head must be one of {', '.join(HEADS)}, not {self.head!r}.")

    def _start(self, X: NDArray[np.float64], y: Tensor, outputs: int) -> None:
        """Make the learner, deciding on the first task what the user left open."""
        state = self.random_state
        seed = state if isinstance(state, int) else check_random_state(state).randint(2**31 - 1)
        self.scaler_ = StandardScaler().fit(X)
        network = self._make_network(X.shape[1], outputs, seed)
        priors, likelihood, inference = self._decide(
            FlatNetwork(network), TaskData(self._inputs(X).float(), y)
        )
        deep = self.head == "mlp"
        self.learner_ = IBCL(
            network,
            priors,
            inference,
            # Averaging networks only makes sense where one was started from the other.
            pooling=("wasserstein" if deep else "evidence")
            if self.pooling is None
            else self.pooling,
            continual=deep if self.continual is None else self.continual,
            d=self.d,
            alpha=self.alpha,
            seed=seed,
            likelihood=likelihood,
        )

    def _decide(
        self, network: FlatNetwork, data: TaskData
    ) -> tuple[Sequence[float], Likelihood, Inference]:
        raise NotImplementedError

    def _learn(
        self, X: NDArray[np.float64], y: Tensor, tasks: dict[str, Any], outputs: int
    ) -> Self:
        first = next(iter(tasks.values()))
        if not hasattr(self, "learner_"):
            self._start(X[first], y[first], outputs)
        for name in tasks:
            self.learner_.knowledge.check_new(name)
        for name, rows in tasks.items():
            self.learner_.learn(self._inputs(X[rows]), y[rows], task=name)
        self._predictors: OrderedDict[Preference, Predictor] = OrderedDict()
        return self

    def _split(self, task: Any, samples: int) -> dict[str, NDArray[np.intp]]:
        """Rows of each task, in the order of first appearance."""
        rows = np.arange(samples)
        if task is None:
            learnt = len(self.learner_.tasks) if hasattr(self, "learner_") else 0
            return {f"task {learnt + 1}": rows}
        names = np.asarray(task, dtype=object)
        if names.ndim == 0:
            return {str(task): rows}
        if names.shape != (samples,):
            raise ValueError(
                f"task must be one name or one name a sample ({samples}), but its shape is "
                f"{names.shape}."
            )
        texts = np.array([str(name) for name in names])
        return {str(name): rows[texts == name] for name in dict.fromkeys(texts)}

    def _forget(self) -> None:
        for name in ("learner_", "_predictors"):
            self.__dict__.pop(name, None)

    def _inputs(self, X: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(self.scaler_.transform(X))

    def _checked(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self, "learner_")
        return self._inputs(validate_data(self, X, reset=False, dtype=np.float64))

    def _predictor(self) -> Predictor:
        """Return the current preference's model; made once and kept."""
        count = len(self.tasks_)
        wanted = np.full(count, 1 / count) if self.preference is None else self.preference
        preference = Preference.parse(wanted, self.tasks_)
        kept = self._predictors
        if preference not in kept:
            model = self.learner_.model(preference)
            kept[preference] = Predictor(model, model.module().double())
            if len(kept) > CACHED_MODELS:
                kept.popitem(last=False)
        return kept[preference]

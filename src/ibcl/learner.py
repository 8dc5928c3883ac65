"""IBCL itself (Algorithm 3): learn tasks one by one, and turn any preference into a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ibcl.gaussians import DiagonalGaussian, Gaussian
from ibcl.inference import Inference, MeanFieldVI, Progress
from ibcl.knowledge import KnowledgeBase, TaskRecord
from ibcl.likelihoods import Likelihood, choose
from ibcl.model import Model
from ibcl.networks import FlatNetwork
from ibcl.pooling import pooling_rule, split_weights
from ibcl.preference import Preference, preference_matrix
from ibcl.tasks import TaskData, as_task


class ModelBlock(NamedTuple):
    """Mean models of a block of preferences, row by row."""

    preferences: NDArray[np.float64]
    thetas: Tensor


class IBCL:
    """Imprecise Bayesian continual learning.

    Parameters
    ----------
    network
        Any `torch.nn.Module`, or a head of `ibcl.networks`.
    priors
        The m priors: standard deviations of zero-mean Gaussians, or Gaussians.
    inference
        `MeanFieldVI` for any network, `DenseVI` for heads linear in their parameters.
    pooling
        ``"wasserstein"`` (the paper's), ``"mixture"`` or ``"evidence"``.
    d
        Posteriors within this distance (W2/√D) of a stored one are not stored again.
    alpha
        The highest density region holds the right parameters with probability 1 − alpha.
    seed
        Fixes everything random.
    likelihood
        ``"auto"`` chooses by the first task's labels; or ``"bernoulli"``, ``"categorical"``,
        ``"gaussian"``, or an object of `ibcl.likelihoods`, such as ``Normal(noise=0.1)``.
    continual
        False learns every task from the initial priors, not from the previous task's posteriors.
    task_incremental
        The largest number of tasks, if the network is to be told which task an input is from: a
        one-hot task id is appended to x, so the network needs as many inputs more.
    autosave
        A folder to save to whenever a task has been learnt or forgotten.

    Examples
    --------
    >>> import ibcl
    >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> learner = ibcl.IBCL(ibcl.networks.linear(3), inference=ibcl.DenseVI(), pooling="evidence")
    >>> _ = learner.learn(x, x[:, 0] > 0, task="first")
    >>> _ = learner.learn(x, x[:, 1] > 0, task="second")
    >>> model = learner.model({"first": 1.0, "second": 0.0})
    >>> float((model.predict(x) == (x[:, 0] > 0)).float().mean()) > 0.95
    True
    """

    def __init__(
        self,
        network: nn.Module,
        priors: Sequence[float | Gaussian] = (2.5,),
        inference: Inference | None = None,
        pooling: str = "wasserstein",
        d: float = 0.012,
        alpha: float = 0.01,
        seed: int = 0,
        *,
        likelihood: str | Likelihood = "auto",
        continual: bool = True,
        task_incremental: int | None = None,
        autosave: str | PathLike[str] | None = None,
    ) -> None:
        self.network = FlatNetwork(network)
        self.inference: Inference = MeanFieldVI() if inference is None else inference
        pooling_rule(pooling)
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, not {alpha!r}.")
        if task_incremental is not None and task_incremental < 1:
            raise ValueError(f"task_incremental must be at least 1, not {task_incremental!r}.")
        self.pooling, self.alpha, self.seed = pooling, alpha, seed
        self.likelihood = likelihood
        self.task_incremental = task_incremental
        self.knowledge = KnowledgeBase(
            [_prior(value, self.network.dimension) for value in priors], d, continual
        )
        self.metadata: dict[str, Any] = {}
        """Anything JSON can hold, kept with the learner on disk."""
        self.storage = "exact"
        """How dense posteriors are kept on disk; see `save`."""
        self.revisions: dict[Path, str] = {}
        """The revision last read from or written to each folder; see `ibcl.store`."""
        self.autosave = None if autosave is None else Path(autosave)
        self._check_autosave()

    def __repr__(self) -> str:
        return f"IBCL({self.knowledge!r}, pooling={self.pooling!r})"

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks learnt so far."""
        return self.knowledge.tasks

    def learn(
        self,
        x: Any,
        y: Any = None,
        task: str | None = None,
        validation: Any = None,
        progress: Callable[[Progress], Any] | None = None,
    ) -> TaskRecord:
        """Learn one task (Algorithm 1); nothing changes if it fails.

        Parameters
        ----------
        x, y
            Arrays, tensors or data frames; or a torch `Dataset` or `DataLoader` as x alone.
        task
            Its name; ``"task 1"``, ``"task 2"``, ... without one.
        validation
            A pair (x, y) or a `Dataset`, for early stopping.
        progress
            Called with a `Progress` as inference goes on.
        """
        name = self._next_name() if task is None else task
        self.knowledge.check_new(name)
        self._check_autosave()
        data = self._encoded(as_task(x, y), name)
        with torch.no_grad():
            outputs = self._try_network(data.x[:1])
        likelihood = choose(self.likelihood, data.y, outputs)
        data = TaskData(data.x, likelihood.check(data.y, outputs))
        if validation is not None:
            pair = validation if isinstance(validation, tuple | list) else (validation,)
            checked = self._encoded(as_task(*pair), name)
            validation = TaskData(checked.x, likelihood.check(checked.y, outputs))
        result = self.inference.infer(
            self.network,
            likelihood,
            self.knowledge.next_priors(),
            data,
            validation=validation,
            start_from_prior=self.knowledge.continual and bool(self.tasks),
            seed=self.seed,
            progress=progress,
        )
        with self._saved_or_undone():
            record = self.knowledge.add(
                name, result.posteriors, samples=data.size, updates=result.updates
            )
            self.likelihood = likelihood
        return record

    def forget(self, task: str, approximation: str | None = None) -> None:
        """Remove a task and its evidence; see `ibcl.revision.forget`.

        Parameters
        ----------
        approximation
            ``"rebase"`` accepts an approximation where later tasks were learnt from this one.
        """
        from ibcl import revision

        if self.task_incremental is not None and task in self.tasks[:-1]:
            raise ValueError(
                f"Task {task!r} cannot be forgotten: the ids of the tasks after it, which the "
                "network was told, would change; only the last task can be."
            )
        self._check_autosave()
        with self._saved_or_undone():
            revision.forget(self.knowledge, task, approximation)

    def save(
        self, path: str | PathLike[str], overwrite: bool = False, storage: str | None = None
    ) -> None:
        """Save to a folder, for `ibcl.load`; only new posteriors are written.

        Parameters
        ----------
        overwrite
            True replaces a knowledge base that this learner was not loaded from.
        storage
            How dense posteriors are kept: ``"exact"``, ``"float16"`` or ``"eigenvectors:64"`` (any
            number); as before without one.
        """
        from ibcl import store

        store.save(self, path, overwrite, storage)

    def _check_autosave(self) -> None:
        """Refuse before the work, not after it, to save over what somebody else saved."""
        if self.autosave is not None:
            from ibcl import store

            store.check_writable(self, self.autosave)

    @contextmanager
    def _saved_or_undone(self) -> Iterator[None]:
        """Save what is changed inside, where asked to; undo it if that fails."""
        before = self.knowledge.stored, self.knowledge.records, self.likelihood
        try:
            yield
            if self.autosave is not None:
                self.save(self.autosave)
        except BaseException:
            self.knowledge.restore(*before[:2])
            self.likelihood = before[2]
            raise

    def _next_name(self) -> str:
        """``"task 1"``, ``"task 2"``, ..., the first one free."""
        number = len(self.tasks) + 1
        while f"task {number}" in self.tasks:
            number += 1
        return f"task {number}"

    def model(self, preference: Any, split: Mapping[str, Sequence[float]] | None = None) -> Model:
        """Turn a preference into a model (Algorithm 2), with no data and no training.

        Parameters
        ----------
        preference
            A mapping, vector, string or `Preference` over all tasks learnt.
        split
            How tasks' weights are split over their m extremes; equally where not given.
        """
        parsed = Preference.parse(preference, self.tasks)
        weights = split_weights(self.knowledge, torch.as_tensor(parsed.vector()), split)
        rule = pooling_rule(self.pooling)
        theta = rule.means(self.knowledge, weights.unsqueeze(0))[0]
        return self._wrap(parsed, theta, weights)

    def models(self, preferences: Any, block: int = 256) -> Iterator[ModelBlock]:
        """Generate the mean models of many preferences, in blocks so that memory stays bounded."""
        matrix = preference_matrix(preferences, self.tasks)
        rule = pooling_rule(self.pooling)
        for begin in range(0, len(matrix), block):
            rows = matrix[begin : begin + block]
            weights = split_weights(self.knowledge, torch.as_tensor(rows))
            yield ModelBlock(rows, rule.means(self.knowledge, weights))

    def _wrap(self, preference: Preference, theta: Tensor, weights: Tensor) -> Model:
        assert not isinstance(self.likelihood, str)
        # What is learnt later must not change a model that exists already.
        knowledge = copy.copy(self.knowledge)
        return Model(
            self.network,
            self.likelihood,
            preference,
            theta,
            distribution=partial(pooling_rule(self.pooling).pool, knowledge, weights),
            extremes=knowledge.extremes(),
            encode=partial(append_task_id, tasks=self.tasks, size=self.task_incremental),
            alpha=self.alpha,
            seed=self.seed,
            provenance=partial(self._provenance, knowledge),
        )

    def _provenance(self, knowledge: KnowledgeBase) -> dict[str, Any]:
        """Where a model made from this knowledge comes from."""
        from ibcl import store

        return {
            "pooling": self.pooling,
            "task_incremental": self.task_incremental,
            "knowledge": store.digest(self, knowledge),
            "metadata": self.metadata,
        }

    def _try_network(self, x: Tensor) -> int:
        """Run the network once, to refuse inputs of a wrong shape with a clear sentence."""
        theta = self.network.initial_parameters(torch.Generator().manual_seed(0))
        try:
            return self.network(theta, x).shape[1]
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"The network cannot take inputs of shape {tuple(x.shape[1:])}: {reason}."
            ) from None

    def _encoded(self, data: TaskData, task: str) -> TaskData:
        """Tell the network the task, which may be the one about to be learnt."""
        names = self.tasks if task in self.tasks else (*self.tasks, task)
        return TaskData(append_task_id(data.x, task, names, self.task_incremental), data.y)


def append_task_id(x: Tensor, task: str | None, tasks: Sequence[str], size: int | None) -> Tensor:
    """Append the one-hot id of a task to x, where tasks are told apart (size is not None)."""
    if size is None:
        return x
    if x.ndim != 2:
        raise ValueError("Task ids can only be appended to inputs that are plain vectors.")
    if task is None:
        raise ValueError("This learner tells tasks apart: say which task the inputs are from.")
    if task not in tasks:
        raise ValueError(f"Unknown task {task!r}; known tasks are {', '.join(tasks)}.")
    position = tasks.index(task)
    if position >= size:
        raise ValueError(f"The learner was made for {size} tasks and has learnt them all.")
    identity = torch.zeros(len(x), size)
    identity[:, position] = 1
    return torch.cat([x, identity], 1)


def _prior(value: float | Gaussian, dimension: int) -> Gaussian:
    if isinstance(value, Gaussian):
        if value.dimension != dimension:
            raise ValueError(
                f"A prior has {value.dimension} parameters, but the network has {dimension}."
            )
        return value
    try:
        std = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"A prior is a standard deviation or a Gaussian, not {value!r}.") from None
    if not 0 < std < float("inf"):
        raise ValueError(f"A prior's standard deviation must be positive, not {value!r}.")
    return DiagonalGaussian(torch.zeros(dimension), torch.full((dimension,), std))

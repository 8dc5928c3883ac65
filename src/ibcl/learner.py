"""IBCL itself (Algorithm 3): learn tasks one by one, and turn any preference into a model."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ibcl.choices import Choices, Given, as_priors, as_rule, as_tuple
from ibcl.encoding import Encoder
from ibcl.errors import StoreError
from ibcl.files import path_text
from ibcl.gaussians import Gaussian
from ibcl.generation import make_model
from ibcl.inference import Inference, InferenceResult, MeanFieldVI, Progress
from ibcl.inferred_preference import InferredPreference, infer_proportions
from ibcl.knowledge import KnowledgeBase, TaskRecord
from ibcl.learning import infer, moments_of, read, settle
from ibcl.likelihoods import LIKELIHOODS, Likelihood
from ibcl.many import predict_blocks
from ibcl.model import Model
from ibcl.moments import Moments
from ibcl.names import printable
from ibcl.networks import FlatNetwork
from ibcl.pooling import Routed, split_weights
from ibcl.preference import preference_matrix
from ibcl.snapshot import Snapshot
from ibcl.tasks import TaskData
from ibcl.view import View

log = logging.getLogger("ibcl")


class ModelBlock(NamedTuple):
    """Mean models of a block of preferences, row by row."""

    preferences: NDArray[np.float64]
    thetas: Tensor


class _State(NamedTuple):
    """What is published at once, so that no thread sees half of it."""

    view: View
    choices: Choices | None


class IBCL:
    """Imprecise Bayesian continual learning.

    Everything may be used from any number of threads at once: models, and whatever only reads,
    never wait; whatever changes the learner waits for its turn.

    What is None is chosen when the first task is learnt, for the network and the data it is given
    (`ibcl.choices`); `choices` then says what and why. `as_in_paper` is the paper's setting.

    Parameters
    ----------
    network
        Any `torch.nn.Module`, or a head of `ibcl.networks`.
    priors
        The m priors: standard deviations of zero-mean Gaussians, or Gaussians.
    inference
        `MeanFieldVI` for any network, `DenseVI` for heads linear in their parameters.
    pooling
        ``"routed"`` (the most accurate), ``"evidence"``, ``"wasserstein"`` (the paper's) or
        ``"mixture"``; or `Routed` with settings of its own.
    d
        Posteriors within this distance (W2/√D) of a stored one are not stored again.
    alpha
        The highest density region has the credibility 1 − alpha: that mass of q_w.
    seed
        Fixes everything random.
    likelihood
        ``"auto"`` chooses by the first task's labels; or ``"bernoulli"``, ``"categorical"``,
        ``"one_vs_rest"``, ``"gaussian"``, ``"poisson"``, or an object of `ibcl.likelihoods`, such
        as ``Normal(noise=0.1)``.
    continual
        False learns every task from the initial priors, not from the previous task's posteriors.
    task_incremental
        The largest number of tasks, if the network is to be told which task an input is from: a
        one-hot task id is appended to x, so the network needs as many inputs more.
    autosave
        A folder to save to whenever a task has been learnt or forgotten.
    encoder
        Turns a user's rows into the network's inputs and its answers into the user's classes and
        units, such as `ibcl.tabular.Schema`; kept with the learner on disk.
    device
        Where to compute, such as ``"cuda"``; where the network is, without one.

    Examples
    --------
    >>> import ibcl
    >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> learner = ibcl.IBCL(ibcl.networks.linear(3))
    >>> _ = learner.learn(x, x[:, 0] > 0, task="first")
    >>> _ = learner.learn(x, x[:, 1] > 0, task="second")
    >>> model = learner.model({"first": 1.0, "second": 0.0})
    >>> float((model.predict(x) == (x[:, 0] > 0)).float().mean()) > 0.95
    True
    >>> learner.choices["inference"]
    'DenseVI(...), since the network is linear in its parameters'
    """

    def __init__(
        self,
        network: nn.Module,
        priors: Sequence[float | Gaussian] | None = None,
        inference: Inference | None = None,
        pooling: str | Routed | None = None,
        d: float | None = None,
        alpha: float = 0.01,
        seed: int = 0,
        *,
        likelihood: str | Likelihood = "auto",
        continual: bool | None = None,
        task_incremental: int | None = None,
        autosave: str | PathLike[str] | None = None,
        encoder: Encoder | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        if not isinstance(alpha, int | float | np.number) or not 0 < alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, not {alpha!r}.")
        if not isinstance(seed, int | np.integer) or not -(2**63) <= seed < 2**64:
            raise ValueError(f"seed must be a whole number of at most 64 bits, not {seed!r}.")
        named = isinstance(likelihood, str) and likelihood in ("auto", *LIKELIHOODS)
        if not named and not isinstance(likelihood, Likelihood):
            raise ValueError(
                f"likelihood must be 'auto' or one of {', '.join(LIKELIHOODS)}, not {likelihood!r}."
            )
        if encoder is not None and not isinstance(encoder, Encoder):
            raise ValueError(
                f"encoder must be one such as ibcl.tabular.Schema, not {type(encoder).__name__}."
            )
        flat = FlatNetwork(network, device)
        self.given = Given(
            as_tuple(priors),
            inference,
            pooling,
            d,
            continual,
            likelihood,
            task_incremental,
        )
        """What the user settled; None where it was left open."""
        self.metadata: dict[str, Any] = {}
        """Anything JSON can hold, kept with the learner on disk."""
        self.storage = "exact"
        """How dense posteriors are kept on disk; see `save`."""
        self.revisions: dict[Path, str] = {}
        """The revision last read from or written to each folder; see `ibcl.store`."""
        self._writing = threading.RLock()
        rule, name = as_rule(Routed() if pooling is None else pooling)
        knowledge = KnowledgeBase(
            as_priors(self.given.priors or (1.0,), flat),
            0.0 if d is None else d,
            bool(continual),
        )
        view = View(
            flat, knowledge, None, rule, name, float(alpha), int(seed), task_incremental, encoder
        )
        self._state = _State(view, None)
        self.autosave = None if autosave is None else Path(path_text(autosave))
        self._check_autosave()

    @classmethod
    def as_in_paper(cls, network: nn.Module, seed: int = 0, **settings: Any) -> Self:
        """Make a learner with the paper's setting: mean field, one prior, barycentre, d = 0.012.

        Examples
        --------
        >>> import ibcl
        >>> ibcl.IBCL.as_in_paper(ibcl.networks.mlp(512, hidden=64)).pooling
        'wasserstein'
        """
        paper: dict[str, Any] = {
            "priors": [2.5],
            "inference": MeanFieldVI(),
            "pooling": "wasserstein",
            "d": 0.012,
            "continual": True,
        }
        return cls(network, seed=seed, **(paper | settings))

    def __repr__(self) -> str:
        return f"IBCL({self.knowledge!r}, pooling={self.pooling!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_writing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._writing = threading.RLock()

    @property
    def view(self) -> View:
        """All that models are made from, as it is now; it never changes."""
        return self._state.view

    @property
    def network(self) -> FlatNetwork:
        """The network, as a function of its flat parameters."""
        return self.view.network

    @property
    def knowledge(self) -> KnowledgeBase:
        """What is known of the tasks learnt so far; a later task makes another one."""
        return self.view.knowledge

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks learnt so far."""
        return self.knowledge.tasks

    @property
    def likelihood(self) -> str | Likelihood:
        """The likelihood, or what it will be chosen by."""
        return self.view.likelihood or self.given.likelihood

    @property
    def inference(self) -> Inference | None:
        """The inference method; None while it is open."""
        choices = self._state.choices
        return self.given.inference if choices is None else choices.inference

    @property
    def pooling(self) -> str | None:
        """Name of the pooling rule; None while it is open."""
        settled = self._state.choices is not None or self.given.pooling is not None
        return self.view.pooling_name if settled else None

    @property
    def alpha(self) -> float:
        """1 − the credibility of regions."""
        return self.view.alpha

    @property
    def seed(self) -> int:
        """Seed of everything random."""
        return self.view.seed

    @property
    def task_incremental(self) -> int | None:
        """The largest number of tasks, if the network is told them."""
        return self.view.task_incremental

    @property
    def encoder(self) -> Encoder | None:
        """What turns a user's rows into inputs."""
        return self.view.encoder

    @property
    def choices(self) -> dict[str, str]:
        """What was left open: what was chosen for it, and why; empty before the first task."""
        choices = self._state.choices
        return {} if choices is None else dict(choices.reasons)

    def learn(
        self,
        x: Any,
        y: Any = None,
        task: str | None = None,
        validation: Any = None,
        progress: Callable[[Progress], Any] | None = None,
        *,
        sample_weight: Any = None,
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
        sample_weight
            What each sample counts for: 2 is the same sample twice.
        """
        with self._writing:
            name = self._next_name() if task is None else task
            self.knowledge.check_new(name)
            self._check_autosave()
            choices, data = self._prepared(x, y, name, sample_weight)
            knowledge = copy.copy(self.knowledge)
            if not knowledge.records:
                knowledge = KnowledgeBase(choices.priors, choices.d, choices.continual)
            chained = knowledge.continual and bool(knowledge.records)
            priors = knowledge.next_priors()
            result = infer(self.view, choices, priors, data, name, validation, chained, progress)
            record = knowledge.add(
                name,
                result.posteriors,
                samples=data.size,
                updates=result.updates,
                moments=moments_of(self.network, choices, data, result),
            )
            self._publish(knowledge, choices)
        _log_learnt(record)
        return record

    def extend(
        self,
        x: Any,
        y: Any = None,
        task: str | None = None,
        progress: Callable[[Progress], Any] | None = None,
        *,
        sample_weight: Any = None,
    ) -> TaskRecord:
        """Learn another batch of a task: its posterior so far is the prior of what is new.

        Exact for linear-Gaussian models; the task's moments are those of all batches together.

        Parameters
        ----------
        task
            Its name; the last task's without one. It must be one that no later task was learnt
            from: any task where tasks are learnt apart, else the last.
        """
        with self._writing:
            name = self.tasks[-1] if task is None and self.tasks else str(task)
            before = self.knowledge.record(name)
            choices, data = self._prepared(x, y, name, sample_weight)
            priors = self.knowledge.extremes(name)
            result = infer(self.view, choices, priors, data, name, None, True, progress)
            kept = self.knowledge.moments[self.tasks.index(name)]
            both = None if kept is None else moments_of(self.network, choices, data, result, kept)
            return self._replace(name, result, before.samples + data.size, both, before.updates)

    def replace(
        self,
        x: Any,
        y: Any = None,
        task: str | None = None,
        validation: Any = None,
        progress: Callable[[Progress], Any] | None = None,
        *,
        sample_weight: Any = None,
    ) -> TaskRecord:
        """Learn a task anew, in its place, as if what it was learnt from had never been seen.

        Parameters
        ----------
        task
            Its name; it must be one that no later task was learnt from, as for `forget`.
        """
        if task is None:
            raise ValueError("Say with task= which task to learn anew.")
        with self._writing:
            record = self.knowledge.record(str(task))
            choices, data = self._prepared(x, y, record.name, sample_weight)
            priors = tuple(
                self.knowledge.prior_of(record.name, index)
                for index in range(len(self.knowledge.priors))
            )
            chained = any(prior is not None for prior in record.priors)
            result = infer(
                self.view, choices, priors, data, record.name, validation, chained, progress
            )
            moments = moments_of(self.network, choices, data, result)
            return self._replace(record.name, result, data.size, moments)

    def _replace(
        self,
        task: str,
        result: InferenceResult,
        samples: int,
        moments: Moments | None,
        updates: int = 0,
    ) -> TaskRecord:
        from ibcl import revision

        self._check_autosave()
        knowledge = copy.copy(self.knowledge)
        record = revision.replace_task(
            knowledge, task, result.posteriors, samples, updates + result.updates, moments
        )
        self._publish(knowledge, self._state.choices)
        _log_learnt(record)
        return record

    def _prepared(self, x: Any, y: Any, task: str, sample_weight: Any) -> tuple[Choices, TaskData]:
        """Read a user's samples, and settle on the first task's what is open."""
        data = read(self.view, x, y, task, sample_weight)
        return settle(self.view, data, self.given, self._state.choices)

    def adopt(self, other: IBCL) -> None:
        """Add the tasks that another learner of the same settings learnt apart, as if learnt here.

        Bit for bit what learning them here gives; `ibcl.merge` unites learners of other settings.

        Parameters
        ----------
        other
            A learner with the same network, priors, inference, likelihood and encoder.

        Examples
        --------
        >>> import ibcl, torch
        >>> x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        >>> def site():
        ...     return IBCL(ibcl.networks.linear(2), priors=[2.0], continual=False)
        >>> here, there = site(), site()
        >>> _ = here.learn(x, x[:, 0] > 0, task="north")
        >>> _ = there.learn(x, x[:, 1] > 0, task="south")
        >>> here.adopt(there)
        >>> here.tasks
        ('north', 'south')
        """
        from ibcl import revision

        with self._writing:
            revision.check_adoptable(self, other)
            self._check_autosave()
            self._publish(revision.adopted(self.knowledge, other.knowledge), self._state.choices)

    def forget(self, task: str, approximation: str | None = None) -> None:
        """Remove a task and its evidence; see `ibcl.revision.forget`.

        Parameters
        ----------
        approximation
            ``"rebase"`` accepts an approximation where later tasks were learnt from this one.
        """
        from ibcl import revision

        with self._writing:
            if self.task_incremental is not None and task in self.tasks[:-1]:
                raise ValueError(
                    f"Task {task!r} cannot be forgotten: the ids of the tasks after it, which the "
                    "network was told, would change; only the last task can be."
                )
            self._check_autosave()
            knowledge = copy.copy(self.knowledge)
            revision.forget(knowledge, task, approximation)
            self._publish(knowledge, self._state.choices)
        log.info("forgot %s", printable(task))

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

        with self._writing:
            store.save(self, path, overwrite, storage)

    def restore(
        self,
        knowledge: KnowledgeBase,
        likelihood: Likelihood | None,
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        """Take over what was learnt elsewhere with these settings, such as what was on disk.

        Every setting must have been given where any task has been learnt.

        Parameters
        ----------
        reasons
            What had been left open: what was chosen for it, and why; as it was where None.
        """
        given = replace(self.given, likelihood=likelihood or self.given.likelihood)
        choices = None
        if knowledge.records:
            if likelihood is None or given.inference is None or given.pooling is None:
                raise ValueError("What was learnt says neither how nor with which likelihood.")
            choices = Choices(
                knowledge.priors,
                given.inference,
                *as_rule(given.pooling),
                knowledge.d,
                knowledge.continual,
                likelihood,
                self.choices if reasons is None else dict(reasons),
            )
        with self._writing:
            view = replace(self.view, knowledge=knowledge, likelihood=likelihood)
            self._state = _State(view, choices)

    def _publish(self, knowledge: KnowledgeBase, choices: Choices | None) -> None:
        """Make what was learnt known to all, once it is saved where that is asked for."""
        before = self._state
        view = before.view
        if choices is not None:
            view = replace(
                view,
                likelihood=choices.likelihood,
                pooling=choices.pooling,
                pooling_name=choices.pooling_name,
            )
        self._state = _State(replace(view, knowledge=knowledge), choices)
        if self.autosave is not None:
            try:
                self.save(self.autosave)
            except BaseException:
                self._state = before
                raise

    def _check_autosave(self) -> None:
        """Refuse before the work, not after it, to save over what somebody else saved."""
        if self.autosave is not None:
            from ibcl import store

            store.check_writable(self, self.autosave)

    def _next_name(self) -> str:
        """``"task 1"``, ``"task 2"``, ..., the first one free."""
        number = len(self.tasks) + 1
        while f"task {number}" in self.tasks:
            number += 1
        return f"task {number}"

    def snapshot(self) -> Snapshot:
        """Return all that is kept on disk, as it is now."""
        state = self._state
        inference = self.given.inference if state.choices is None else state.choices.inference
        reasons = {} if state.choices is None else dict(state.choices.reasons)
        try:
            metadata = copy.deepcopy(self.metadata)
        except (RecursionError, TypeError):
            raise StoreError(
                "The learner's metadata cannot be saved: it must be what JSON can hold, text, "
                "finite numbers, and lists and mappings of them that are not nested deeply."
            ) from None
        return Snapshot(state.view, self.given, inference, metadata, reasons)

    def card(self) -> str:
        """Say what was learnt, from how many samples and with which settings, as Markdown.

        It is written with every saved knowledge base. ``learner.metadata["measured"]`` (figures by
        name) and ``learner.metadata["licence"]`` are shown in it.

        Examples
        --------
        >>> import ibcl
        >>> print(ibcl.IBCL(ibcl.networks.linear(4)).card().splitlines()[2])
        # Knowledge base of 0 tasks
        """
        from ibcl import cards

        return cards.knowledge_card(self.snapshot())

    def model(self, preference: Any, split: Mapping[str, Sequence[float]] | None = None) -> Model:
        """Turn a preference into a model (Algorithm 2), with no data and no training.

        Parameters
        ----------
        preference
            A mapping, vector, string or `Preference` over all tasks learnt.
        split
            How tasks' weights are split over their m extremes; equally where not given.
        """
        snapshot = self.snapshot()
        return make_model(snapshot.view, preference, split, snapshot.provenance)

    def models(self, preferences: Any, block: int = 256) -> Iterator[ModelBlock]:
        """Generate the mean models of many preferences, in blocks so that memory stays bounded."""
        view = self.view
        if isinstance(view.pooling, Routed):
            raise ValueError(
                "Routed models share their heads and differ in K numbers only; use predict_many, "
                "or model for one preference."
            )
        if not isinstance(block, int | np.integer) or block < 1:
            raise ValueError(f"block must be a positive whole number, not {block!r}.")
        matrix = preference_matrix(preferences, view.knowledge.tasks)
        for begin in range(0, len(matrix), block):
            rows = matrix[begin : begin + block]
            weights = split_weights(view.knowledge, torch.as_tensor(rows))
            yield ModelBlock(rows, view.pooling.means(view.knowledge, weights))

    def predict_many(self, x: Any, preferences: Any, task: str | None = None) -> Any:
        """Return what the mean models of many preferences answer, in single precision.

        Parameters
        ----------
        preferences
            A matrix with one row a preference, or a sequence of preferences of any kind.

        Returns
        -------
        Class probabilities, or expected values: shape (preferences, rows, columns).
        """
        blocks = list(self.predict_blocks(x, preferences, task))
        result = blocks[0] if len(blocks) == 1 else torch.cat(blocks)
        return result if isinstance(x, Tensor) else result.cpu().numpy()

    def predict_blocks(
        self, x: Any, preferences: Any, task: str | None = None, numbers: int | None = None
    ) -> Iterator[Tensor]:
        """Yield the rows of `predict_many` block by block, so that memory stays bounded.

        Parameters
        ----------
        numbers
            How many numbers a block may hold; all of them in one where None.
        """
        view = self.view
        matrix = preference_matrix(preferences, view.knowledge.tasks)
        blocks = predict_blocks(view, view.encode(x, task), matrix, numbers)
        if view.encoder is None or view.answers.classification:
            return blocks
        decode = view.encoder.decode
        return (torch.as_tensor(decode(block)).to(block.dtype) for block in blocks)

    def infer_preference(
        self,
        x: Any,
        y: Any = None,
        *,
        concentration: float | None = None,
        sample_weight: Any = None,
    ) -> InferredPreference:
        """Infer a preference from inputs: the shares of the tasks they come from.

        Parameters
        ----------
        x, y
            A few inputs, and their labels where known.
        concentration
            How many examples of every task the prior is worth; one in all where None.
        sample_weight
            What each example counts for.
        """
        view = self.view
        inputs = view.encode(x)
        scores = view.input_scores(inputs)
        if y is not None:
            labels = read(view, x, y, view.knowledge.tasks[-1]).y
            scores = scores + view.label_scores(inputs, labels)
        table = scores.cpu().numpy()
        return infer_proportions(table, view.knowledge.tasks, concentration, sample_weight)


def _log_learnt(record: TaskRecord) -> None:
    name = printable(record.name)
    log.info("learnt %s from %d samples with %d updates", name, record.samples, record.updates)

"""IBCL itself (Algorithm 3): learn tasks one by one, and turn any preference into a model."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ibcl import answering, cards, hub, revising, store
from ibcl.answering import ModelBlock
from ibcl.bases import NetworkSource, base_model
from ibcl.conformal import CalibrationRows, Guarantee
from ibcl.coverage import Coverage
from ibcl.deprecation import independent_from
from ibcl.encoding import Encoder
from ibcl.errors import StoreError
from ibcl.experts import as_expert
from ibcl.files import path_text
from ibcl.gaussians import Gaussian
from ibcl.growth import grown_for
from ibcl.inference import Inference, MeanFieldVI, Progress
from ibcl.knowledge import KnowledgeBase, TaskRecord
from ibcl.learning import initial_state
from ibcl.likelihoods import Likelihood
from ibcl.model import Model
from ibcl.names import printable
from ibcl.networks import FlatNetwork
from ibcl.pooling import PoolingRule, with_memory
from ibcl.preference import InferredPreference, Preference, preference_matrix
from ibcl.revising import Revised
from ibcl.settings import Settings, check_setting
from ibcl.state import State

log = logging.getLogger("ibcl")


class IBCL:
    """Imprecise Bayesian continual learning.

    Everything may be used from any number of threads at once: models, and whatever only reads,
    never wait; whatever changes the learner waits for its turn.

    What is None is chosen when the first task is learnt, for the network and the data it is given
    (`ibcl.defaults`); `choices` then says what and why. `as_in_paper` is the paper's setting.

    Parameters
    ----------
    network
        Any `torch.nn.Module`, or a head of `ibcl.networks`.
    priors
        The m priors: standard deviations of Gaussians around zero (of a trained
        module, around its weights), or Gaussians.
    inference
        `MeanFieldVI` for any network, `DenseVI` for heads linear in their parameters.
    pooling
        ``"routed"`` (the most accurate), ``"evidence"``, ``"wasserstein"`` (the paper's) or
        ``"mixture"``; or a rule with settings of its own, such as `RoutedEvidence`.
    d
        The distance threshold: posteriors within it of a stored one are not stored again.
    distance
        What d is compared with: ``"rms"``, W2/√D, or ``"norms"``, (‖Δμ‖ + ‖Δσ‖)/D.
    alpha
        The highest density region has the credibility 1 − alpha: that mass of q_w.
    seed
        Fixes everything random.
    likelihood
        ``"auto"`` chooses by the first task's labels; or ``"bernoulli"``, ``"categorical"``,
        ``"one_vs_rest"``, ``"normal"``, ``"poisson"``, or an object of `ibcl.likelihoods`, such
        as ``Normal(noise=0.1)``.
    independent
        True learns every task from the initial priors, not from the previous task's posteriors.
    task_incremental
        The largest number of tasks, where a one-hot task id is to be appended to x; the network
        needs as many inputs more.
    calibration
        How many rows of every task (or which share, below 1) to hold out for prediction sets
        (`Model.predict_set`); none where None.
    calibration_rows
        What is kept of these: ``"kept"``, their features in half precision and their answers, for
        the smallest sets; or ``"scores"``, one number for each and no row.
    memory
        What is kept of a task: ``"compact"``, ``"exact"``, a number of bytes, or ``"shared"``:
        one covariance for all tasks, and little more of each than its means; see `RoutedEvidence`.
    expert
        What answers for a task in place of its head, behind the same gate: an estimator of
        scikit-learn, `ibcl.adapters.LoRA` of a base model, any `ibcl.experts.Expert`, or
        ``"auto"``: gradient boosting beside each task's head, with the share that held-out rows
        give it.
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

    autosave: Path | None

    def __init__(
        self,
        network: nn.Module,
        priors: Sequence[float | Gaussian] | None = None,
        inference: Inference | None = None,
        pooling: str | PoolingRule | None = None,
        d: float | None = None,
        alpha: float = 0.01,
        seed: int = 0,
        *,
        likelihood: str | Likelihood = "auto",
        independent: bool | None = None,
        task_incremental: int | None = None,
        calibration: float | None = None,
        calibration_rows: CalibrationRows = "kept",
        expert: Any = None,
        autosave: str | PathLike[str] | None = None,
        encoder: Encoder | None = None,
        memory: str | int | None = None,
        distance: str = "rms",
        device: str | torch.device | None = None,
        continual: bool | None = None,
    ) -> None:
        independent = independent_from(continual, independent)
        check_setting(Settings, "memory", memory)
        if memory is not None:
            pooling = with_memory(pooling, memory)
        given = Settings(
            priors=priors,  # type: ignore[arg-type]
            inference=inference,
            pooling=pooling,
            d=d,
            alpha=alpha,
            seed=seed,
            likelihood=likelihood,
            independent=independent,
            task_incremental=task_incremental,
            calibration=calibration,
            calibration_rows=calibration_rows,
            memory=memory,
            distance=distance,
            expert=None if expert is None else as_expert(expert),
        )
        self._begin(initial_state(network, given, encoder, device))
        if autosave is not None:
            self.autosave = Path(path_text(autosave))
            self._check_autosave()

    def _begin(self, state: State) -> None:
        self.metadata: dict[str, Any] = {}
        """Anything JSON can hold, kept with the learner on disk."""
        self.storage = "exact"
        """How dense posteriors are kept on disk; see `save`."""
        self.revisions: dict[Path, str] = {}
        """The revision last read from or written to each folder; see `ibcl.store`."""
        self._writing = threading.RLock()
        self._state = state
        self._calibration: Coverage | None = None
        self.autosave = None

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
            "independent": False,
        }
        return cls(network, seed=seed, **(paper | settings))

    def __repr__(self) -> str:
        return f"IBCL({self.knowledge!r}, pooling={self.pooling!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_writing": None, "_calibration": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._writing = threading.RLock()

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Make a learner that knows and does what another one did at one moment."""
        learner = cls.__new__(cls)
        learner._begin(state)
        return learner

    @property
    def state(self) -> State:
        """All that it knows and how it answers, as it is now; it never changes."""
        return self._state

    @property
    def given(self) -> Settings:
        """What the user settled; None where it was left open."""
        return self._state.given

    @property
    def network(self) -> FlatNetwork:
        """The network, as a function of its flat parameters."""
        return self._state.network

    @property
    def knowledge(self) -> KnowledgeBase:
        """What is known of the tasks learnt so far; a later task makes another one."""
        return self._state.knowledge

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks learnt so far."""
        return self.knowledge.tasks

    @property
    def likelihood(self) -> str | Likelihood:
        """The likelihood, or what it will be chosen by."""
        return self._state.likelihood if self._state.learnt else self._state.settings.likelihood

    @property
    def inference(self) -> Inference | None:
        """The inference method; None while it is open."""
        return self._state.inference

    @property
    def pooling(self) -> str | None:
        """Name of the pooling rule; None while it is open."""
        rule = self._state.rule
        return None if rule is None else rule.name

    @property
    def alpha(self) -> float:
        """1 − the credibility of regions."""
        return float(self.given.alpha)

    @property
    def seed(self) -> int:
        """Seed of everything random."""
        return int(self.given.seed)

    @property
    def task_incremental(self) -> int | None:
        """The largest number of tasks, if inputs carry a task id."""
        return self.given.task_incremental

    @property
    def encoder(self) -> Encoder | None:
        """What turns a user's rows into inputs."""
        return self._state.encoder

    @property
    def choices(self) -> dict[str, str]:
        """What was left open: what was chosen for it, and why; empty before the first task."""
        return dict(self._state.reasons)

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
            name = revising.next_name(self.tasks) if task is None else task
            self.knowledge.check_new(name)
            self._check_autosave()
            return self._publish_task(
                revising.learn(self._state, x, y, name, validation, progress, sample_weight)
            )

    def add_adapter(
        self, task: str, folder: str | PathLike[str], moments_from: Any, y: Any = None
    ) -> TaskRecord:
        """Add a task whose adapter was trained elsewhere, taken as it is from a folder of peft.

        The gate learns from a few hundred inputs of the task what such inputs look like. Their
        classes, where no labels are given, are those the adapter itself finds.

        Parameters
        ----------
        folder
            With ``adapter_config.json`` and ``adapter_model.safetensors``; its head is the base
            model's classification layer if the adapter brings that, or what `export_adapter` wrote.
            An adapter without a head gets one from labels; without them, as a language model's,
            it is only routed to.
        moments_from
            Inputs of the task.
        y
            Their labels, where known.
        """
        with self._writing:
            self.knowledge.check_new(task)
            self._check_autosave()
            return self._publish_task(
                revising.add_adapter(self._state, task, folder, moments_from, y)
            )

    def export_adapter(
        self,
        preference: Any,
        folder: str | PathLike[str],
        base_model: str | None = None,
    ) -> None:
        """Write a task's adapter as a folder of peft; of several tasks, their weighted average.

        The average of a preference is one ordinary LoRA of all its tasks' ranks together. It is a
        merge, which loses points that the adapters behind their gate have.

        Parameters
        ----------
        preference
            A task's name, or any preference.
        base_model
            Name or path of the base model for other tools; what the model itself says, without.
        """
        from ibcl.adapters import export

        export(self._state, Preference.parse(preference, self.tasks), folder, base_model)

    def make_room(self, x: Any, y: Any = None) -> None:
        """Make room for the categories and classes of a task to come; `learn` does so by itself.

        Where nothing is new, or the knowledge base cannot grow, nothing happens.

        Parameters
        ----------
        x, y
            A table like those learnt, and its labels where classes are to be found in them.
        """
        with self._writing:
            state = grown_for(self._state, x, y)
            if state is not self._state:
                self._check_autosave()
                self._publish(state)

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
            from: any task where tasks are independent, else the last.
        """
        with self._writing:
            name = self.tasks[-1] if task is None and self.tasks else str(task)
            self._check_autosave()
            return self._publish_task(
                revising.extend(self._state, x, y, name, progress, sample_weight)
            )

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
            self._check_autosave()
            return self._publish_task(
                revising.relearn(self._state, x, y, str(task), validation, progress, sample_weight)
            )

    def adopt(self, other: IBCL) -> None:
        """Add the independent tasks of another learner of the same settings, as if learnt here.

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
        ...     return IBCL(ibcl.networks.linear(2), priors=[2.0], independent=True)
        >>> here, there = site(), site()
        >>> _ = here.learn(x, x[:, 0] > 0, task="north")
        >>> _ = there.learn(x, x[:, 1] > 0, task="south")
        >>> here.adopt(there)
        >>> here.tasks
        ('north', 'south')
        """
        if not isinstance(other, IBCL):
            raise ValueError(f"Only learners can be united, not {type(other).__name__}.")
        with self._writing:
            united = revising.adopt(self._state, other.state)
            self._check_autosave()
            self._publish(united)

    def restore(
        self,
        knowledge: KnowledgeBase,
        likelihood: Likelihood,
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        """Take over what was learnt elsewhere with these settings.

        Parameters
        ----------
        reasons
            What had been left open: what was chosen for it, and why; as it was where None.
        """
        with self._writing:
            self._state = revising.restored(self._state, knowledge, likelihood, reasons)

    def calibrate(self, task: str, x: Any, y: Any) -> None:
        """Calibrate a task with fresh samples, in place of those it had.

        Parameters
        ----------
        x, y
            Samples of the task that nothing was learnt from.

        Examples
        --------
        >>> import ibcl
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> learner = ibcl.IBCL(ibcl.networks.linear(3))
        >>> _ = learner.learn(x[:100], x[:100, 0] > 0, task="first")
        >>> learner.calibrate("first", x[100:], x[100:, 0] > 0)
        >>> learner.model("first").predict_set(x[:1], alpha=0.1).shape
        (1, 2)
        """
        with self._writing:
            self._check_autosave()
            self._publish(revising.calibrate(self._state, task, x, y))

    def predict_sets(
        self,
        x: Any,
        preferences: Any,
        alpha: float = 0.1,
        guarantee: Guarantee = "mixture",
        task: str | None = None,
    ) -> NDArray[np.bool_]:
        """Return the prediction sets of many preferences; see `Model.predict_set`.

        Returns
        -------
        Which classes are in the sets: shape (preferences, rows, classes).
        """
        return answering.predict_sets(self._coverage(), x, preferences, alpha, guarantee, task)

    def predict_intervals(
        self,
        x: Any,
        preferences: Any,
        alpha: float = 0.1,
        guarantee: Guarantee = "mixture",
        task: str | None = None,
    ) -> NDArray[np.float64]:
        """Return the intervals of many preferences; see `Model.predict_interval`.

        Returns
        -------
        Lower and upper ends: shape (preferences, rows, 2).
        """
        return np.stack(
            [
                self.model(row).predict_interval(x, alpha, guarantee, task=task)
                for row in preference_matrix(preferences, self.tasks)
            ]
        )

    def _coverage(self) -> Coverage:
        """Return the calibration of what is known now, made once for all models."""
        known, state = self._calibration, self._state
        if known is None or known.state is not state:
            known = self._calibration = Coverage(state)
        return known

    def take_over(self, other: IBCL) -> None:
        """Know from now on what another learner knows that began where this one is.

        Parameters
        ----------
        other
            Made by `from_state` of this one's state, and taught since.
        """
        with self._writing:
            self._check_autosave()
            self._publish(other.state)

    def forget(
        self,
        task: str,
        approximation: str | None = None,
        *,
        x: Any = None,
        y: Any = None,
        sample_weight: Any = None,
    ) -> None:
        """Remove a task and its evidence; see `ibcl.knowledge.forget`.

        With ``memory="shared"`` posterior and means go at once, while the covariance that all tasks
        share remains an average over this task as well, with a `ForgettingWarning`. Given the
        task's data again, it is taken out of that too, up to rounding.

        Parameters
        ----------
        approximation
            ``"rebase"`` accepts an approximation where later tasks were learnt from this one.
        x, y, sample_weight
            All rows the task was learnt from, as they were given to `learn`.
        """
        with self._writing:
            self._check_autosave()
            self._publish(revising.forgotten(self._state, task, approximation, x, y, sample_weight))
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
        with self._writing:
            how = self.storage if storage is None else storage
            place = store.storage_at(path)
            before = self.revisions.get(place.place)
            saved = store.save(self._state, self._metadata(), place, how, before, overwrite)
            self.storage, self.revisions[place.place] = how, saved

    def save_pretrained(self, folder: str | PathLike[str], overwrite: bool = False) -> None:
        """Save as a folder for the Hugging Face hub, for `ibcl.from_pretrained`; see `ibcl.hub`.

        Parameters
        ----------
        overwrite
            True replaces a knowledge base that this learner was not loaded from.
        """
        about = hub.about_knowledge(self._state, self._metadata())
        hub.write(about, folder, lambda path: self.save(path, overwrite))

    def push_to_hub(self, repo_id: str, **settings: Any) -> str:
        """Upload what is known to the Hugging Face hub, and return where it is.

        Parameters
        ----------
        settings
            ``private``, ``token`` and ``commit_message``, as in ``huggingface_hub``.
        """
        return hub.push(self.save_pretrained, repo_id, **settings)

    def _metadata(self) -> dict[str, Any]:
        """Return the metadata as it is now."""
        try:
            return copy.deepcopy(self.metadata)
        except (RecursionError, TypeError):
            raise StoreError(
                "The learner's metadata cannot be saved: it must be what JSON can hold, text, "
                "finite numbers, and lists and mappings of them that are not nested deeply."
            ) from None

    def _publish(self, state: State) -> None:
        """Make what was learnt known to all, once it is saved where that is asked for."""
        before, self._state = self._state, state
        if self.autosave is not None:
            try:
                self.save(self.autosave)
            except BaseException:
                self._state = before
                raise

    def _check_autosave(self) -> None:
        """Refuse before the work, not after it, to save over what another writer saved."""
        if self.autosave is not None:
            place = store.storage_at(self.autosave)
            store.check_writable(place, self.revisions.get(place.place))

    def _publish_task(self, revised: Revised) -> TaskRecord:
        """Make a task known, and tell."""
        self._publish(revised.state)
        record = revised.record
        name = printable(record.name)
        log.info("learnt %s from %d samples with %d updates", name, record.samples, record.updates)
        return record

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
        return cards.knowledge_card(self._state, self._metadata())

    def model(self, preference: Any, split: Mapping[str, Sequence[float]] | None = None) -> Model:
        """Turn a preference into a model (Algorithm 2), with no data and no training.

        Parameters
        ----------
        preference
            A mapping, vector, string or `Preference` over all tasks learnt.
        split
            How tasks' weights are split over their m extremes; equally where not given.
        """
        return answering.model(self._coverage(), preference, split, self._metadata())

    def models(self, preferences: Any, block: int = 256) -> Iterator[ModelBlock]:
        """Generate the mean models of many preferences, in blocks so that memory stays bounded."""
        return answering.mean_models(self._state, preferences, block)

    def predict_many(self, x: Any, preferences: Any, task: str | None = None) -> Any:
        """Return what the mean models of many preferences answer, in single precision.

        Parameters
        ----------
        preferences
            A matrix with one row per preference, or a sequence of preferences of any kind.

        Returns
        -------
        Class probabilities, or expected values: shape (preferences, rows, columns).
        """
        result = answering.predict_many(self._state, x, preferences, task)
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
        return answering.predict_blocks(self._state, x, preferences, task, numbers)

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
        return answering.infer_preference(self._state, x, y, concentration, sample_weight)


def load(
    path: str | PathLike[str],
    network: NetworkSource | None = None,
    autosave: bool = False,
    device: str | torch.device | None = None,
) -> IBCL:
    """Load a learner; what it predicts, and what it goes on to learn, is as if it had never left.

    Parameters
    ----------
    network
        The module the learner was made with, where `ibcl.networks` did not build it, or its base
        model alone; or where that is: a folder that `transformers` saved, or ``"module:function"``.
    autosave
        True saves to the same folder whenever a task has been learnt or forgotten.
    device
        Where to compute, such as ``"cuda"``; where the network is, without one.
    """
    place = store.storage_at(path)
    stored = store.load(place, base_model(network), device)
    learner = IBCL.from_state(stored.state)
    learner.storage, learner.metadata = stored.storage, dict(stored.metadata)
    learner.revisions[place.place] = stored.revision
    learner.autosave = Path(path) if autosave else None
    return learner

"""Models: what a preference turns into, ready to predict."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ibcl import cards, hub, store
from ibcl.bases import NetworkSource, base_model
from ibcl.closed_form import has_closed_form, regression_uncertainty
from ibcl.conformal import Guarantee, disjoint, hull, in_words
from ibcl.coverage import Coverage, ServedScores, TaskUnion, check_classes, check_values
from ibcl.encoding import Encoder
from ibcl.files import path_text
from ibcl.gaussians import Distribution
from ibcl.networks import FlatNetwork
from ibcl.onnx import Graph, ToldTask, onnx_bytes
from ibcl.predictive import Predictive
from ibcl.preference import Preference
from ibcl.ram import bytes_per_row, check_memory, rows_at_once
from ibcl.region import HighestDensityRegion
from ibcl.routing.top_k import kept_shares
from ibcl.tasks import append_task_id, as_inputs
from ibcl.uncertainty import Bounds, Uncertainty

# Models averaged where a caller asks for uncertainty without saying how many.
DEFAULT_SAMPLES = 64
# Numbers that a call computes without asking how much memory there is.
_SMALL_CALL = 2**11
# Those whose thresholds an exported file tells.
_USUAL_ALPHAS = (0.01, 0.05, 0.1, 0.2)


@dataclass(frozen=True, eq=False)
class Features:
    """φ(x) of some rows, computed once: every method of a model takes it in place of x.

    Parameters
    ----------
    values
        φ(x).
    dtype
        Of the tensors to answer with; numpy arrays where None.
    """

    values: Tensor
    dtype: torch.dtype | None


class Model:
    """The model of one preference: its mean model, and the region it was taken from.

    Made by `IBCL.model`. Predictions come as tensors where x is a tensor, as numpy arrays
    otherwise, and in the user's own classes and units where the learner has an encoder. With
    ``samples=n`` they average n models drawn from the highest density region; without, they are the
    mean model's. A model never changes, and any number of threads may use it at once.

    Parameters
    ----------
    predictive
        What it answers to features, and the distribution that is taken from.
    encoder
        Turns a user's rows into inputs, and class numbers and scaled values into the user's own;
        None leaves them as they are.
    task_incremental
        The largest number of tasks, if inputs carry a task id.
    provenance
        Where it comes from, said when it is saved.
    coverage
        What prediction sets are calibrated with: of a knowledge base, or of this model alone where
        it was read from a file; None of a file without any.
    """

    def __init__(
        self,
        predictive: Predictive,
        preference: Preference,
        *,
        encoder: Encoder | None,
        task_incremental: int | None,
        alpha: float,
        seed: int,
        provenance: Callable[[], dict[str, Any]],
        coverage: Coverage | ServedScores | None = None,
    ) -> None:
        self.predictive, self.preference = predictive, preference
        self.likelihood, self.encoder = predictive.likelihood, encoder
        self.task_incremental = task_incremental
        self.alpha, self.seed = alpha, seed
        self.provenance = provenance
        self._coverage, self._tasks = coverage, len(preference)

    def __repr__(self) -> str:
        return f"Model({self.preference})"

    @property
    def network(self) -> FlatNetwork:
        """The network whose parameters it has."""
        return self.predictive.network

    @property
    def theta(self) -> Tensor:
        """Parameters of the mean model; of all heads with weight, one after another, if routed."""
        return self.predictive.theta

    @property
    def distribution(self) -> Distribution:
        """q_w, the distribution over parameters that the preference selects."""
        return self.predictive.distribution

    @cached_property
    def region(self) -> HighestDensityRegion:
        """The highest density region of q_w with mass 1 − α."""
        return HighestDensityRegion(self.distribution, self.alpha, self.seed)

    def module(self) -> nn.Module:
        """Return the mean model as a plain `torch.nn.Module` of its own."""
        return self.predictive.module()

    def save(self, path: str | PathLike[str], overwrite: bool = True) -> None:
        """Save the mean model as one safetensors file, for `ibcl.load_model` and other tools."""
        if path_text(path).lower().endswith(".onnx"):
            raise ValueError(f"ONNX files are made by export(); {path} would be of safetensors.")
        store.save_model(self.file(), path, overwrite)

    def export(
        self,
        path: str | PathLike[str],
        example: Any = None,
        task: str | None = None,
        overwrite: bool = True,
    ) -> None:
        """Write the mean model as an ONNX file, for runtimes without Python; see `ibcl.onnx`.

        Its input ``x`` has any number of rows: of a table of numbers the columns as they are, of a
        table with categories or dates what ``model.encoder.inputs(frame)`` returns, and without an
        encoder what the network takes. It gives ``probabilities`` of the classes, or ``values``.

        Parameters
        ----------
        example
            A few rows, where `ibcl.networks` did not build the network, so that nothing else says
            what it takes, such as images or token ids; all but the number of rows stays as here.
        task
            The task that the file answers for, where inputs carry a task id.
        overwrite
            False refuses a file that is there already.
        """
        module, size = self.predictive.module(), self.task_incremental
        inputs = (self.network.specification or {}).get("inputs")
        if example is not None:
            rows = as_inputs(example) if self.encoder is None else self.encoder.inputs(example)
        elif isinstance(inputs, int):
            rows = torch.zeros(2, inputs - (size or 0))
        elif self.network.backbone is not None and self.network.backbone.input_shape is not None:
            rows = torch.zeros(2, *self.network.backbone.input_shape)
        else:
            raise ValueError(
                "Nothing says what inputs this network takes: give a few rows as example=."
            )
        if size is not None:
            told = append_task_id(rows[:1], task, tuple(self.preference), size)
            module = ToldTask(module, told[:, -size:])
        metadata = {"preference": json.dumps(dict(self.preference)), "card": self.card()}
        thresholds = self._thresholds()
        if thresholds:
            metadata["thresholds"] = json.dumps(thresholds)
        graph = Graph(module, self.likelihood, rows, self.encoder, metadata)
        store.write_file(path, onnx_bytes(graph), overwrite)

    def save_pretrained(self, folder: str | PathLike[str], overwrite: bool = False) -> None:
        """Save the model as a folder for the Hugging Face hub, with its card; see `ibcl.hub`.

        Parameters
        ----------
        overwrite
            True replaces a model that is there.
        """
        known = self.provenance()
        config = {
            "tasks": list(self.preference),
            "preference": dict(self.preference),
            "likelihood": self.likelihood.name,
            "pooling": known["pooling"],
            "network": self.network.specification,
        }
        about = hub.About("model", config, self.card(), known["metadata"], self._pipeline())
        hub.write(about, folder, lambda path: self.save(path, overwrite))

    def push_to_hub(self, repo_id: str, **settings: Any) -> str:
        """Upload the model to the Hugging Face hub, and return where it is.

        Parameters
        ----------
        settings
            ``private``, ``token`` and ``commit_message``, as in ``huggingface_hub``.
        """
        return hub.push(self.save_pretrained, repo_id, **settings)

    def _pipeline(self) -> str | None:
        return hub.pipeline(self.encoder, self.likelihood.classification)

    def file(self) -> store.ModelFile:
        """Return all that a file keeps of it."""
        return store.ModelFile(
            self.predictive,
            self.preference,
            self.encoder,
            self.alpha,
            self.seed,
            self.provenance(),
            self._portable_calibration(),
        )

    def _portable_calibration(self) -> store.CalibrationScores | None:
        """Return what a file keeps of its calibration: the scores, and whose they are."""
        known = self._coverage
        if isinstance(known, Coverage):
            known = known.portable(self.predictive, self._weights)
        if known is None:
            return None
        return store.CalibrationScores(torch.as_tensor(known.scores), torch.as_tensor(known.task))

    def card(self) -> str:
        """Say what the model was made from, as Markdown; an exported model holds it too."""
        return cards.model_card(self.preference, self.provenance())

    def features(self, x: Any, task: str | None = None) -> Features:
        """Turn a user's x into φ(x), to ask several questions about the same rows.

        Examples
        --------
        >>> import ibcl
        >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
        >>> learner = ibcl.IBCL(ibcl.networks.linear(2))
        >>> _ = learner.learn(x, x[:, 0] > 0, task="first")
        >>> model = learner.model("first")
        >>> rows = model.features(x)
        >>> model.predict(rows).shape, model.credal_bounds(rows).lower.shape
        (torch.Size([50]), torch.Size([50, 2]))
        """
        if isinstance(x, Features):
            return x
        inputs = as_inputs(x) if self.encoder is None else self.encoder.inputs(x)
        inputs = inputs.to(self.network.device)
        if self.task_incremental is not None:
            tasks = tuple(self.preference)
            inputs = append_task_id(inputs, task, tasks, self.task_incremental)
        self.network.check_width(inputs)
        dtype = None
        if isinstance(x, Tensor):
            dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        return Features(self.network.features(inputs), dtype)

    def _checked(self, samples: int) -> int:
        if not isinstance(samples, int | np.integer):
            raise ValueError(f"samples must be a whole number, not {samples!r}.")
        if samples < 0:
            raise ValueError(f"samples must not be negative, not {samples}.")
        if samples:
            # Draws, and these once more in double precision.
            needed = 16 * int(samples) * self.theta.numel()
            check_memory(needed, f"Drawing {samples:,} models", "draw fewer")
        return int(samples)

    def _thetas(self, samples: int) -> Tensor | None:
        count = self._checked(samples)
        return self.region.sample(count) if count else None

    def outputs(self, x: Any, samples: int = 0, task: str | None = None) -> Tensor:
        """Return the network's outputs, of shape (models, n, outputs), as a tensor."""
        features = self.features(x, task).values
        self._check_outputs(features, samples)
        outputs = self.predictive.outputs(features, self._thetas(samples))
        return outputs.to(torch.get_default_dtype())

    def _check_outputs(self, features: Tensor, samples: int) -> None:
        models = max(1, self._checked(samples))
        outputs = self.network.head.output_count(features)
        check_memory(
            16 * models * len(features) * outputs,
            f"The outputs of {models:,} models for {len(features):,} rows",
            "ask for fewer rows or samples at once",
        )

    def _mean(self, features: Tensor, samples: int) -> Tensor:
        thetas = self._thetas(samples)
        parts = self._blocks(features, max(1, samples))
        return torch.cat([self.predictive.means(part, thetas).mean(0) for part in parts])

    def _blocks(self, features: Tensor, models: int = 1) -> Sequence[Tensor]:
        """Split rows so that what so many models answer to a block stays within memory."""
        columns = 1 + self.network.head.output_count(features)
        if len(features) * columns * models * self._tasks <= _SMALL_CALL:
            return (features,)
        needed = bytes_per_row(self._tasks, columns) + 32 * models * columns
        return torch.split(features, rows_at_once(needed))

    def predict(self, x: Any, samples: int = 0, task: str | None = None) -> Any:
        """Return class labels, or expected values for regression and counts."""
        rows = self.features(x, task)
        decision = self.likelihood.decide(self._mean(rows.values, samples))
        return _like(rows, decision) if self.encoder is None else self.encoder.decode(decision)

    def predict_proba(self, x: Any, samples: int = 0, task: str | None = None) -> Any:
        """Return class probabilities of shape (n, classes)."""
        if not self.likelihood.classification:
            raise ValueError("A regression model has no class probabilities; use predict.")
        rows = self.features(x, task)
        return _like(rows, self._mean(rows.values, samples))

    def credal_bounds(self, x: Any, samples: int = 0, task: str | None = None) -> Bounds:
        """Return lower and upper probabilities over the credal set, each of shape (n, classes).

        The credal set is the convex hull of the tasks' predictives and of this model's own: the
        extreme elements' (of the tasks' heads, if routed) and the served one's. A probability is
        linear in the density, so it is smallest and largest at one of those; and the prediction
        lies between the bounds, whatever the pooling rule. Each element is represented by its mean
        model, or with ``samples=n`` by the average of n models drawn from it. For regression the
        bounds are on the expected value.
        """
        rows = self.features(x, task)
        blocks = self._blocks(rows.values, self._checked(samples))
        parts = [self._bounds(part, samples) for part in blocks]
        bounds = [torch.cat(each) for each in zip(*parts, strict=True)]
        if self.encoder is not None and not self.likelihood.classification:
            return Bounds(*(self.encoder.decode(bound) for bound in bounds))
        return Bounds(*(_like(rows, bound) for bound in bounds))

    def _bounds(self, features: Tensor, samples: int) -> tuple[Tensor, Tensor]:
        lower = upper = self._mean(features, samples)
        for member in self.predictive.credal_members(features, samples, self.seed):
            value = member.to(lower.dtype)
            lower, upper = torch.minimum(lower, value), torch.maximum(upper, value)
        return lower, upper

    def uncertainty(
        self, x: Any, samples: int | None = None, task: str | None = None
    ) -> Uncertainty:
        """Return total, aleatoric and epistemic uncertainty.

        Parameters
        ----------
        samples
            How many models of the region to take it over. Where None, a regression whose network is
            linear in its parameters has it in closed form over all models, exactly; otherwise over
            64 models. Where experts answer for tasks, what the tasks disagree in is epistemic.
        """
        rows = self.features(x, task)
        features = rows.values
        if samples is None and self.predictive.has_experts:
            parts = self.predictive.spread(features)
        elif samples is None and has_closed_form(self.predictive):
            parts = regression_uncertainty(self.predictive, features)
        else:
            count = DEFAULT_SAMPLES if samples is None else max(1, samples)
            self._check_outputs(features, count)
            outputs = self.predictive.outputs(features, self._thetas(count))
            parts = self.likelihood.uncertainty(outputs)
        if self.encoder is not None and not self.likelihood.classification:
            parts = Uncertainty(*(part * self.encoder.scale**2 for part in parts))
        return Uncertainty(*(_like(rows, part) for part in parts))

    def predict_set(
        self, x: Any, alpha: float = 0.1, guarantee: Guarantee = "mixture", task: str | None = None
    ) -> NDArray[np.bool_]:
        """Return sets of classes that hold the right one with probability 1 − alpha.

        Whatever the faults of the model, as long as inputs come from the tasks; `ibcl.conformal`
        says what exactly is promised. The tasks must have been calibrated (``calibration=``).

        Parameters
        ----------
        guarantee
            ``"mixture"``: for inputs that come from the tasks as the preference says. ``"task"``:
            in every task, so also where the preference is wrong. ``"uniform"``: in all tasks at
            once, for all but a share 0.05 of calibrations.

        Returns
        -------
        Which classes are in the sets: shape (n, classes). An empty one says that no answer fits as
        well as right ones did. `describe_sets` says it in words.
        """
        check_classes(self.likelihood)
        return self._calibrated.sets(self.features(x, task).values, alpha, guarantee)

    def describe_sets(
        self, x: Any, alpha: float = 0.1, guarantee: Guarantee = "mixture", task: str | None = None
    ) -> list[str]:
        """Return what `predict_set` does in words, one line per row.

        Examples
        --------
        >>> import ibcl
        >>> x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
        >>> learner = ibcl.IBCL(ibcl.networks.linear(2), calibration=100)
        >>> _ = learner.learn(x, x[:, 0] > 0, task="first")
        >>> learner.model("first").describe_sets([[2.0, 0.0], [-2.0, 0.0]])
        ['1', '0']
        """
        members = self.predict_set(x, alpha, guarantee, task)
        known = None if self.encoder is None else self.encoder.classes
        return in_words(members, range(members.shape[1]) if known is None else known)

    def predict_interval(
        self,
        x: Any,
        alpha: float = 0.1,
        guarantee: Guarantee = "mixture",
        union: bool = False,
        task: str | None = None,
    ) -> Any:
        """Return intervals that hold the right value with probability 1 − alpha.

        Parameters
        ----------
        guarantee
            As in `predict_set`.
        union
            True gives the intervals around the tasks' own predictions as such, which are shorter
            where tasks contradict each other: lists of pairs (lower, upper), one list per row.

        Returns
        -------
        Lower and upper ends, shape (n, 2); of a union of intervals, those of its hull. An empty
        interval, (nan, nan), says that no value fits as well as right ones did.
        """
        check_values(self.likelihood)
        features = self.features(x, task).values
        if not union:
            return self._decoded(hull(self._calibrated.intervals(features, alpha, guarantee)))
        coverage = self._coverage
        if not isinstance(coverage, Coverage):
            raise ValueError(
                "A model file holds one interval per row; for a union of the tasks' intervals make "
                "the model from its knowledge base."
            )
        weights = self._weights
        found = coverage.component_intervals(features, weights, alpha, guarantee)
        return disjoint(self._decoded(found))

    def _decoded(self, intervals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ends of intervals, shape (…, 2), in the user's units."""
        if self.encoder is None:
            return intervals
        ends = torch.as_tensor(intervals.reshape(-1))
        return np.asarray(self.encoder.decode(ends), np.float64).reshape(intervals.shape)

    def threshold(self, alpha: float = 0.1, guarantee: Guarantee = "mixture") -> float:
        """Return the probability from which on a class is in the set of `predict_set`.

        For regression, minus the number of standard deviations that an interval reaches to both
        sides. With it the same sets can be made wherever the exported model runs.
        """
        return self._calibrated.threshold(alpha, guarantee)

    def _thresholds(self) -> dict[str, float]:
        """Thresholds of usual α that the calibration can prove, for files that others run."""
        found = {}
        for alpha in _USUAL_ALPHAS:
            try:
                found[str(alpha)] = self.threshold(alpha)
            except ValueError:
                continue
        return found if self.likelihood.classification else {}

    @property
    def _weights(self) -> NDArray[np.float64]:
        return np.array([*self.preference.values()])

    @cached_property
    def _calibrated(self) -> ServedScores | TaskUnion:
        if self._coverage is None:
            raise ValueError(
                "This model file holds no calibration; for prediction sets make the model from a "
                "knowledge base whose tasks keep calibration rows."
            )
        if isinstance(self._coverage, ServedScores):
            return self._coverage
        return self._coverage.of(self.predictive, self._weights)

    def routing(self, x: Any, task: str | None = None) -> Any:
        """Return the share of each task in the answer to each input, of shape (n, tasks)."""
        rows = self.features(x, task)
        check_memory(
            16 * len(rows.values) * self._tasks,
            f"The shares of {self._tasks:,} tasks in {len(rows.values):,} rows",
            "ask for fewer rows at once",
        )
        parts = self._blocks(rows.values)
        return _like(rows, torch.cat([self.predictive.routing(part) for part in parts]))

    def routing_table(
        self, x: Any, tolerance: float = 0.01, task: str | None = None
    ) -> list[dict[str, float]]:
        """Return for each input which tasks answer it and with which weight, the largest first.

        With one adapter per task this is what a server of adapters needs for each request: the
        adapters' names and weights.

        Parameters
        ----------
        tolerance
            Tasks whose shares sum to at most this are left out.

        Examples
        --------
        >>> import ibcl
        >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
        >>> learner = ibcl.IBCL(ibcl.networks.linear(2))
        >>> _ = learner.learn(x, x[:, 0] > 0, task="near")
        >>> _ = learner.learn(x + 50, x[:, 0] > 0, task="far")
        >>> learner.model([0.5, 0.5]).routing_table([[50.0, 50.0]])
        [{'far': 1.0}]
        """
        if not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must be at least 0 and below 1, not {tolerance!r}.")
        features = self.features(x, task).values
        shares = self.predictive.routing(features)
        everywhere = torch.ones(shares.shape[1], dtype=torch.bool, device=shares.device)
        kept = kept_shares(shares, everywhere, tolerance)
        names = tuple(self.preference)
        rows = [dict(zip(names, row, strict=True)) for row in kept.cpu().tolist()]
        return [
            {name: row[name] for name in sorted(row, key=lambda name: -row[name]) if row[name] > 0}
            for row in rows
        ]

    def novelty(self, x: Any, task: str | None = None) -> Any:
        """Return how far each input is from every task: about 1 for inputs like those learnt.

        It is the squared Mahalanobis distance to the nearest task (or class), divided by the number
        of features.
        """
        rows = self.features(x, task)
        parts = self._blocks(rows.values)
        return _like(rows, torch.cat([self.predictive.novelty(part) for part in parts]))


def load_model(
    path: str | PathLike[str],
    network: NetworkSource | None = None,
    device: str | torch.device | None = None,
) -> Model:
    """Load a model that `Model.save` wrote; it predicts the same, from the same kind of table.

    Parameters
    ----------
    network
        The module it was made with, where `ibcl.networks` did not build it, or its base model
        alone; or where that is, as `ibcl.bases.base_model` takes it.
    device
        Where to compute, such as ``"cuda"``; where the network is, without one.
    """
    file = store.load_model(path, base_model(network), device)
    coverage = None
    if file.calibration is not None:
        coverage = ServedScores(
            file.predictive,
            np.asarray(file.preference.vector()),
            tuple(file.preference),
            file.calibration.scores.numpy(),
            file.calibration.task.numpy(),
            portable=True,
        )
    return Model(
        file.predictive,
        file.preference,
        encoder=file.encoder,
        task_incremental=file.provenance["task_incremental"],
        alpha=file.alpha,
        seed=file.seed,
        provenance=lambda: file.provenance,
        coverage=coverage,
    )


def _like(rows: Features, result: Tensor) -> Any:
    """Give the caller the kind of array they came with, and tensors in their own precision."""
    if rows.dtype is None:
        return np.asarray(result.cpu())
    return result.to(rows.dtype) if result.is_floating_point() else result

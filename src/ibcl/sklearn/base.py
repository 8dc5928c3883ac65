"""What classifier and regressor share: tasks, preference, and the model between them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from ibcl.conformal import CalibrationRows, held_out
from ibcl.deprecation import independent_from, renamed_setting
from ibcl.inference import Inference
from ibcl.learner import IBCL
from ibcl.likelihoods import Likelihood
from ibcl.model import Model
from ibcl.pooling import PoolingRule
from ibcl.preference import Preference
from ibcl.settings import TableSettings, declared
from ibcl.tabular import (
    DEFAULT_HEAD,
    DEFAULT_WIDTH,
    HeadChoice,
    Numbers,
    Schema,
    choose_head,
    choose_head_by_size,
    head_names,
    in_scaled_units,
    make_head,
    numbers_as_texts,
    outputs_for,
    plain,
    readable_by_experts,
    scales,
    table_pooling,
    text_of,
    usable_columns,
)


def setting(name: str) -> Any:
    """Declare a parameter of an estimator as the setting of that name, with its default."""
    return field(default=declared(TableSettings)[name][0], kw_only=True)


@dataclass(eq=False, repr=False)
class IBCLEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: tasks, preference, and the model between them.

    The parameters are settings as `ibcl.settings` declares them; a dataclass's constructor stores
    them and does nothing else, as scikit-learn wants.
    """

    network: str | None = declared(TableSettings)["network"][0]
    width: int = setting("width")
    priors: Sequence[float] | None = setting("priors")
    inference: Inference | None = setting("inference")
    pooling: str | PoolingRule | None = setting("pooling")
    preference: Any = field(default=None, kw_only=True)
    independent: bool | None = setting("independent")
    d: float | None = setting("d")
    distance: str = setting("distance")
    memory: str | int | None = setting("memory")
    alpha: float = setting("alpha")
    calibration: float | None = setting("calibration")
    calibration_rows: CalibrationRows = setting("calibration_rows")
    expert: Any = setting("expert")
    random_state: Any = field(default=0, kw_only=True)
    head: str | None = field(default=None, kw_only=True)
    continual: bool | None = field(default=None, kw_only=True)

    learner_: ClassVar[IBCL]
    network_choice_: ClassVar[HeadChoice]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def tasks_(self) -> tuple[str, ...]:
        """Names of the tasks learnt, in order."""
        check_is_fitted(self, "learner_")
        return self.learner_.tasks

    @property
    def schema_(self) -> Schema:
        """How tables are read: as the first task settled it, with all categories learnt since."""
        check_is_fitted(self, "learner_")
        schema = self.learner_.encoder
        assert isinstance(schema, Schema)
        return schema

    def set_preference(self, preference: Any) -> Self:
        """Choose the preference of all predictions from now on; None weighs all tasks equally."""
        if preference is not None and hasattr(self, "learner_"):
            Preference.parse(preference, self.tasks_)
        self.preference = preference
        return self

    def _checked(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        """Check a table as scikit-learn does, and leave a frame a frame.

        An estimator refuses a frame whose columns are others, or in another order, than those it
        was fitted on, as all of scikit-learn does. Frames of other libraries become pandas' own.
        """
        X, y = plain(X), plain(y)
        if isinstance(X, np.ndarray) and X.dtype.names is not None:
            X = pd.DataFrame(X)
        elif not isinstance(X, pd.DataFrame) and hasattr(X, "to_pandas"):
            X = X.to_pandas()
        first = y is not None and not hasattr(self, "learner_")
        if isinstance(X, pd.DataFrame):
            repeated = X.columns[X.columns.duplicated()]
            if len(repeated):
                raise ValueError(f"X has more than one column named {repeated[0]!r}.")
            if y is not None and not len(X):
                raise ValueError("X has no rows to learn from.")
            validate_data(self, X, reset=first, skip_check_array=True)
            if y is not None:
                check_consistent_length(X, y)
            return X, y
        settings = {
            "reset": first,
            "accept_sparse": True,
            "dtype": np.float64,
            "ensure_all_finite": "allow-nan",
        }
        if y is None:
            return validate_data(self, X, **settings), None
        table, labels = validate_data(self, X, y, **settings)
        return table, labels

    def _learn(
        self,
        X: Any,
        y: NDArray[Any],
        task: Any,
        weights: Numbers | None,
        *,
        classes: Iterable[Any] | None,
        likelihood: str | Likelihood = "auto",
    ) -> Self:
        """Learn tasks, or further batches of tasks learnt before; all of them or none.

        Parameters
        ----------
        classes : None for a regression.
        likelihood : in units of y.
        """
        if weights is not None and not weights.all():
            # A sample of weight zero is none.
            kept = np.flatnonzero(weights)
            X, y, weights = _rows(X, kept), y[kept], weights[kept]
            task = task if np.ndim(task) == 0 else np.asarray(plain(task), dtype=object)[kept]
        tasks = self._split(task, len(y))
        first = next(iter(tasks.values()))
        learner = getattr(self, "learner_", None)
        if learner is None:
            seed = self._seed()
            learnt = None
            if self.calibration is not None:
                learnt, _ = held_out(len(first), self.calibration, seed)
            table = _rows(X, first)
            schema = Schema.fit(
                table,
                y[first],
                features=_features(table if learnt is None else _rows(table, learnt)),
                classes=classes,
                regression=classes is None,
                scale_target=scales(likelihood),
                sample_weight=None if weights is None else weights[first],
                rows=learnt,
            )
            used = np.arange(len(first)) if learnt is None else np.asarray(learnt)
            choice = self._chosen_head(schema, _rows(table, used), y[first][used], seed)
            scaled = in_scaled_units(likelihood, schema.scale)
            learner = self._make_learner(schema, choice, scaled, seed)
            self.network_choice_ = choice  # type: ignore[misc]
        # All tasks are learnt, or none: a learner of its own takes over where it began.
        learning = IBCL.from_state(learner.state)
        for name, rows in tasks.items():
            action = learning.extend if name in learning.tasks else learning.learn
            part = None if weights is None else weights[rows]
            action(_rows(X, rows), y[rows], task=name, sample_weight=part)
        learner.take_over(learning)
        self.learner_ = learner  # type: ignore[misc]
        return self

    def _seed(self) -> int:
        state = self.random_state
        if isinstance(state, bool):
            raise ValueError(f"random_state must be a seed, a RandomState or None, not {state!r}.")
        whole = isinstance(state, Integral)
        return int(state) if whole else check_random_state(state).randint(2**31 - 1)

    def _chosen_head(self, schema: Schema, table: Any, y: NDArray[Any], seed: int) -> HeadChoice:
        """Return the network that is asked for, or the one that the first task chooses."""
        kind = self.network
        if self.head is not None:
            renamed_setting("head", self.head, "network")
            kind = self.head
        if kind is not None and kind not in head_names():
            raise ValueError(f"network must be one of {', '.join(head_names())}, not {kind!r}.")
        classes = None if schema.classes is None else len(schema.classes)
        outputs = outputs_for(classes)
        wanted = DEFAULT_HEAD if kind is None else kind
        readable = readable_by_experts(wanted, schema.width, outputs)
        if self.expert is not None and readable != wanted:
            return HeadChoice(readable, None, "experts read the columns themselves")
        if kind is not None:
            return HeadChoice(kind, self.width, "it was asked for")
        width = None if self.width == DEFAULT_WIDTH else self.width
        settled = choose_head_by_size(schema.width, classes, width)
        if settled is not None:
            return settled
        return choose_head(schema.inputs(table), schema.labels(y), classes, width=width, seed=seed)

    def _make_learner(
        self, schema: Schema, choice: HeadChoice, likelihood: str | Likelihood, seed: int
    ) -> IBCL:
        sizes: dict[str, Any] = {"random_features": {"width": choice.width}}.get(
            choice.name, {"hidden": (self.width,)} if choice.name == "mlp" else {}
        )
        outputs = outputs_for(None if schema.classes is None else len(schema.classes))
        network = make_head(choice.name, schema.width, outputs, seed=seed, **sizes)
        pooling = self.pooling
        if pooling is None:
            pooling = table_pooling(network, schema.width, outputs)
        return IBCL(
            network,
            self.priors,
            self.inference,
            pooling,
            self.d,
            self.alpha,
            seed,
            likelihood=likelihood,
            independent=independent_from(self.continual, self.independent),
            calibration=self.calibration,
            calibration_rows=self.calibration_rows,
            distance=self.distance,
            memory=self.memory,
            expert=self.expert,
            encoder=schema,
        )

    def _split(self, task: Any, samples: int) -> dict[str, NDArray[np.intp]]:
        """Rows of each task, in the order of first appearance."""
        rows = np.arange(samples)
        if task is None:
            learnt = self.learner_.tasks if hasattr(self, "learner_") else ()
            # Not that of a task which is there: its samples would be counted as another batch.
            numbered = (f"task {number}" for number in count(len(learnt) + 1))
            return {next(name for name in numbered if name not in learnt): rows}
        names = np.asarray(plain(task), dtype=object)
        if pd.isna(names).any():
            raise ValueError(
                "Some samples have no task: task holds None or NaN; name a task for each of them, "
                "or leave them out."
            )
        if names.ndim == 0:
            return {_task_name(task): rows}
        if names.shape != (samples,):
            raise ValueError(
                f"task must be one name or one name per sample ({samples}), but its shape is "
                f"{names.shape}."
            )
        texts = [_task_name(name) for name in names]
        each = np.array(texts, dtype=object)
        return {name: rows[each == name] for name in dict.fromkeys(texts)}

    @contextmanager
    def _all_or_nothing(self, *forgotten: str) -> Iterator[None]:
        """Forget some attributes, and restore all of them if what follows is refused."""
        before = dict(self.__dict__)
        for name in forgotten:
            self.__dict__.pop(name, None)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _model(self, preference: Any = None) -> Model:
        """Return the model of a preference, or of the estimator's own."""
        tasks = self.tasks_
        wanted = self.preference if preference is None else preference
        if not tasks:
            raise ValueError("There is no task to predict with: all of them were forgotten.")
        if wanted is None:
            wanted = np.full(len(tasks), 1 / len(tasks))
        return self.learner_.model(wanted)


def _task_name(value: Any) -> str:
    """Return a task's name as text, the same for a whole number however pandas holds it."""
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return text_of(value, "column of tasks")
    if isinstance(value, Iterable) and not isinstance(value, str):
        raise ValueError(
            f"A task is named by text or by a number, not by a value of kind "
            f"{type(value).__name__}."
        )
    return str(value)


def _features(table: Any) -> list[str] | None:
    """Return the columns to learn from, and say which are left out; all of an array."""
    if not isinstance(table, pd.DataFrame) or not all(isinstance(c, str) for c in table.columns):
        return None
    used, left_out = usable_columns(table)
    if left_out and used:
        said = ", ".join(f"{name} ({reason})" for name, reason in left_out.items())
        warnings.warn(f"Columns that are not learnt from: {said}.", stacklevel=5)
    for name, text in numbers_as_texts(table, used).items():
        warnings.warn(
            f"Column {name!r} is learnt as categories, since it holds texts such as {text!r}; "
            "write them as Python does (1234.5) if they are meant as numbers, and leave cells "
            "empty where there is none.",
            stacklevel=5,
        )
    return used or None


def _rows(table: Any, rows: NDArray[np.intp]) -> Any:
    """Return these rows; the table itself where they are all of it, since it may be large."""
    if np.array_equal(rows, np.arange(table.shape[0])):
        return table
    if isinstance(table, pd.DataFrame):
        return table.iloc[rows]
    sparse_table = isinstance(table, sparse.sparray | sparse.spmatrix)
    return table.tocsr()[rows] if sparse_table else table[rows]

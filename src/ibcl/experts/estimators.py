"""Estimators of scikit-learn as experts, stored with skops: nothing is ever unpickled.

What is served is what was stored: a fitted estimator is turned into bytes at once
(`ibcl.experts.skops_files`), and answers after it was read back from them.
"""

from __future__ import annotations

import base64
import binascii
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone, is_regressor
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from ibcl.experts.expert import Expert, Fitted
from ibcl.experts.skops_files import TRUSTED, read_estimator, write_estimator
from ibcl.tasks import TaskData

__all__ = ["TRUSTED", "Estimator", "FittedEstimator", "in_all_classes"]

# Trees say 0 of what their leaves have not met; nothing that a task has seen is impossible.
_SMALLEST = 1e-6


class Estimator(Expert):
    """Any classifier with probabilities, or any regressor, of scikit-learn.

    Parameters
    ----------
    estimator
        As it is before it is fitted; every task fits a clone. Where it has a ``random_state`` that
        is None, the learner's seed is used.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> Estimator(DecisionTreeRegressor(max_depth=2))
    Estimator(DecisionTreeRegressor(max_depth=2))
    """

    name: ClassVar[str] = "scikit-learn"

    def __init__(self, estimator: Any) -> None:
        self.estimator = clone(estimator)

    def __repr__(self) -> str:
        return f"Estimator({self.estimator!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Estimator) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def fit(self, data: TaskData, classes: int | None, seed: int) -> FittedEstimator:
        """Fit a clone on a task; refused now if it could not be read back later."""
        estimator = self.fitted(data, classes, seed)
        columns = 0 if classes is None else classes
        try:
            return self.decode(columns.to_bytes(4, "little") + write_estimator(estimator))
        except ValueError as error:
            kind, said = type(self.estimator).__name__, str(error).rstrip(".")
            raise ValueError(f"{kind} cannot be kept: {said}.") from None

    def fit_known(self, data: TaskData, classes: int | None, seed: int) -> FittedEstimator:
        """Fit a clone of a kind that is known to be read back, so that none is written yet."""
        return FittedEstimator.of(self.fitted(data, classes, seed), classes or 0)

    def fitted(
        self, data: TaskData, classes: int | None, seed: int, validation: TaskData | None = None
    ) -> Any:
        """Return a clone that has learnt a task.

        Parameters
        ----------
        validation
            Rows to stop by, of an estimator that takes some.
        """
        kind = type(self.estimator).__name__
        if classes is None and not is_regressor(self.estimator):
            raise ValueError(f"Values need a regressor as expert, not {kind}.")
        if classes is not None and not hasattr(self.estimator, "predict_proba"):
            raise ValueError(
                f"Classes need an expert with probabilities (predict_proba), which {kind} has not."
            )
        estimator = clone(self.estimator)
        if estimator.get_params().get("random_state", seed) is None:
            estimator.set_params(random_state=abs(seed) % 2**32)
        given = {}
        if data.weights is not None:
            if not has_fit_parameter(estimator, "sample_weight"):
                raise ValueError(f"{kind} takes no sample weights; leave them out.")
            given["sample_weight"] = data.weights.cpu().numpy()
        if validation is not None:
            given["X_val"], given["y_val"] = _arrays(validation, classes)
            if validation.weights is not None:
                given["sample_weight_val"] = validation.weights.cpu().numpy()
        x, y = _arrays(data, classes)
        try:
            estimator.fit(x, y, **given)
        except (ValueError, TypeError) as error:
            said = str(error).splitlines()[0].rstrip(".")
            raise ValueError(f"{kind} cannot learn this task: {said}.") from None
        return estimator

    def description(self) -> dict[str, Any]:
        """Return the estimator as skops writes it."""
        return {"estimator": base64.b64encode(write_estimator(self.estimator)).decode()}

    @classmethod
    def from_description(cls, description: Any) -> Self:
        """Return the estimator that was described."""
        try:
            return cls(read_estimator(base64.b64decode(description["estimator"], validate=True)))
        except (KeyError, TypeError, binascii.Error) as error:
            raise ValueError(f"This describes no estimator: {error}.") from None

    @classmethod
    def decode(cls, data: bytes) -> FittedEstimator:
        """Return a fitted estimator, read at once so that what is not trusted is refused now."""
        fitted = FittedEstimator(data)
        _ = fitted.estimator
        return fitted


class FittedEstimator(Fitted):
    """An estimator that has learnt a task, as the bytes it is stored as.

    Parameters
    ----------
    data
        The number of classes (0 for values) in four bytes, then what skops wrote.
    """

    name: ClassVar[str] = Estimator.name

    def __init__(self, data: bytes) -> None:
        self.__dict__["data"] = bytes(data)

    @classmethod
    def of(cls, estimator: Any, classes: int) -> Self:
        """Return a fitted estimator that becomes bytes when they are asked for."""
        found = cls.__new__(cls)
        found.__dict__.update(estimator=estimator, classes=classes)
        return found

    @cached_property
    def data(self) -> bytes:
        """The bytes."""
        return self.classes.to_bytes(4, "little") + write_estimator(self.estimator)

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data}

    @cached_property
    def estimator(self) -> Any:
        """The estimator, read from the bytes."""
        found = read_estimator(self.data[4:])
        wanted = "predict_proba" if self.classes else "predict"
        if not hasattr(found, wanted):
            raise ValueError(f"the estimator has no method {wanted}")
        return found

    @cached_property
    def classes(self) -> int:
        """How many classes all tasks have; 0 for values."""
        return int.from_bytes(self.data[:4], "little")

    def answers(self, x: Tensor) -> Tensor:
        """Probabilities of all classes, zero for those the task has not seen; or values."""
        return _answers(self.estimator, self.classes, x)

    def encode(self) -> bytes:
        """Return the bytes."""
        return self.data


def _arrays(data: TaskData, classes: int | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs, and class numbers or values, as estimators take them."""
    y = data.y.cpu().double().numpy() if classes is None else data.y.long().cpu().numpy()
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    return data.x.cpu().numpy(), y


def _answers(estimator: Any, classes: int, x: Tensor) -> Tensor:
    """Probabilities of so many classes; values where there are none."""
    rows = x.detach().float().cpu().numpy()
    if not len(rows):
        return x.new_zeros(0, classes or 1, dtype=torch.float64)
    found = estimator.predict_proba(rows) if classes else estimator.predict(rows)
    return in_all_classes(found, estimator, classes).to(x.device)


def in_all_classes(answers: Any, estimator: Any, classes: int | None) -> Tensor:
    """Return an estimator's answers with a column for every class; values as they are.

    Parameters
    ----------
    answers
        Probabilities of the classes that the estimator knows, or values.
    """
    given = torch.as_tensor(np.asarray(answers, dtype=np.float64))
    if not classes:
        return given.reshape(len(given), -1)
    found = torch.zeros(len(given), classes, dtype=torch.float64)
    seen = torch.as_tensor(np.asarray(estimator.classes_), dtype=torch.long)
    found[:, seen] = (1 - len(seen) * _SMALLEST) * given + _SMALLEST
    return found

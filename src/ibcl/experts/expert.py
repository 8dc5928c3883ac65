"""What an expert is, how it is chosen, and how one is read back from a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

EXPERTS: dict[str, str] = {
    "auto": "ibcl.experts.auto:Auto",
    "lora": "ibcl.adapters.lora:LoRA",
    "scikit-learn": "ibcl.experts.estimators:Estimator",
}
"""Where the expert of each name lives, as ``"module:class"``; imported when it is needed."""


class Fitted(ABC):
    """An expert that has learnt a task."""

    name: ClassVar[str]
    """The key of `EXPERTS` whose expert it was fitted by."""
    costly: bool = False
    """Whether to run it only on rows whose answer depends on it (`ibcl.routing.top_k`)."""

    @abstractmethod
    def answers(self, x: Tensor) -> Tensor:
        """Return p(y | x): class probabilities or expected values, shape (n, columns)."""

    def on(self, network: FlatNetwork) -> Fitted:
        """Return what answers behind a learner's network: itself, unless it needs the network."""
        return self

    @abstractmethod
    def encode(self) -> bytes:
        """Return it as bytes without pickle, the same ones whenever it is the same."""


class Expert(ABC):
    """A way to learn a task otherwise than by a head."""

    name: ClassVar[str]
    """Its key in `EXPERTS`."""
    reads_inputs: ClassVar[bool] = False
    """Whether it reads all of φ, with the inputs that the network carries along in it."""
    share: float | None = 1.0
    """How much of a task's answer is its, and not the head's; None leaves it to held-out rows."""
    judges_others: ClassVar[bool] = False
    """Whether a task asks the experts of tasks learnt before, so that tasks are learnt in order."""

    def network(self, module: nn.Module) -> nn.Module:
        """Return the network to learn with where a user gave this one; the same by default."""
        return module

    def fit_on(
        self, network: FlatNetwork, data: TaskData, classes: int | None, seed: int
    ) -> Fitted:
        """Learn a task behind a learner's network; see `fit`."""
        return self.fit(data, classes, seed)

    @abstractmethod
    def fit(self, data: TaskData, classes: int | None, seed: int) -> Fitted:
        """Learn a task.

        Parameters
        ----------
        data
            Inputs of shape (n, columns), and class numbers or values.
        classes
            How many classes all tasks have; None for values.
        """

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Return it as plain JSON, as it was before it was fitted."""

    @classmethod
    @abstractmethod
    def from_description(cls, description: Any) -> Self:
        """Return what `description` described; a ValueError for anything else."""

    @classmethod
    @abstractmethod
    def decode(cls, data: bytes) -> Fitted:
        """Return what `Fitted.encode` wrote; a ValueError for anything else."""


def expert_of(name: str) -> type[Expert]:
    """Return the class of experts of a name.

    Examples
    --------
    >>> expert_of("oracle")
    Traceback (most recent call last):
    ...
    ValueError: 'oracle' is no known expert: expected one of auto, lora, scikit-learn.
    """
    if name not in EXPERTS:
        raise ValueError(
            f"{name!r} is no known expert: expected one of {', '.join(sorted(EXPERTS))}."
        )
    module, _, attribute = EXPERTS[name].partition(":")
    found: type[Expert] = getattr(import_module(module), attribute)
    return found


def as_expert(value: Any) -> Expert:
    """Return the expert that a user named: itself, ``"auto"``, or an estimator of scikit-learn.

    Examples
    --------
    >>> as_expert("auto")
    Auto(held_out=0.25)
    """
    from ibcl.experts.auto import Auto

    if isinstance(value, Expert):
        return value
    if value == Auto.name:
        return Auto()
    if hasattr(value, "fit") and hasattr(value, "get_params") and not isinstance(value, type):
        from ibcl.experts.estimators import Estimator

        return Estimator(value)
    raise ValueError(
        f"expert must be 'auto', an estimator of scikit-learn such as "
        f"HistGradientBoostingClassifier(), or an ibcl.experts.Expert such as "
        f"ibcl.adapters.LoRA(), not {value!r}."
    )

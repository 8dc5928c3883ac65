"""The settings of a learner: each declared once, with its type, default, bounds and meaning.

`ibcl.IBCL`, the scikit-learn estimators and the command line take the same settings, by the names,
with the defaults and within the bounds declared here; help texts and checks derive from this file.
What is None is open: `ibcl.defaults` settles it on the first task.

Nothing here imports torch, so that ``ibcl --help`` need not wait for it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from ibcl.gaussians import Gaussian
    from ibcl.inference import Inference
    from ibcl.likelihoods import Likelihood
    from ibcl.pooling import PoolingRule


class Declared(NamedTuple):
    """What is known of a setting beside its name, type and default."""

    help: str
    """What it means, in one sentence."""
    left_open: str | None
    """What it becomes where it is None."""
    check: Callable[[Any], bool] | None
    """Whether a value is one of the setting's."""
    expected: str
    """What a value must be, for the sentence that refuses another."""
    option: type | None
    """How the command line reads it; None where it has no such option."""


_KEY = "declared"


def declare(
    default: Any,
    help: str,
    *,
    left_open: str | None = None,
    check: Callable[[Any], bool] | None = None,
    expected: str = "",
    option: type | None = None,
) -> Any:
    """Declare a setting, as a field of a dataclass."""
    known = Declared(help, left_open, check, expected, option)
    return dataclasses.field(default=default, metadata={_KEY: known})


def declared(settings: type) -> dict[str, tuple[Any, Declared]]:
    """Return the default and the declaration of every setting, by name, in order.

    Examples
    --------
    >>> default, alpha = declared(Settings)["alpha"]
    >>> default, alpha.expected
    (0.01, 'between 0 and 1')
    """
    fields = dataclasses.fields(settings)
    return {field.name: (field.default, field.metadata[_KEY]) for field in fields}


def check_setting(settings: type, name: str, value: Any) -> None:
    """Refuse a value that is none of the setting's, in one sentence."""
    _, known = declared(settings)[name]
    optional = value is None and known.left_open is not None
    if known.check is not None and not optional and not known.check(value):
        raise ValueError(f"{name} must be {known.expected}, not {value!r}.")


def _is_seed(value: Any) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and -(2**63) <= int(value) < 2**64


def _between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Real) and low < float(value) < high


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _is_calibration(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
        return False
    return float(value) < 1 or float(value).is_integer()


def _is_memory(value: Any) -> bool:
    return value in ("compact", "exact", "shared") or _is_positive_integer(value)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How tasks are learnt, and how preferences become models."""

    priors: tuple[float | Gaussian, ...] | None = declare(
        None,
        "The m priors: standard deviations of Gaussians around zero (of a trained module, "
        "around its weights), or Gaussians.",
        left_open="each task's own, by its evidence",
        check=lambda value: isinstance(value, Iterable) and not isinstance(value, str),
        expected="a list of standard deviations or Gaussians, such as [2.5]",
        option=str,
    )
    inference: Inference | None = declare(
        None,
        "How posteriors are found: DenseVI for heads linear in their parameters, MeanFieldVI for "
        "any network.",
        left_open="the best for the network",
        check=lambda value: not isinstance(value, type) and hasattr(value, "infer"),
        expected="an object such as ibcl.DenseVI()",
        option=str,
    )
    pooling: str | PoolingRule | None = declare(
        None,
        "How posteriors of several tasks become one model: a rule by its name, or with settings of "
        "its own such as ibcl.RoutedEvidence(temperature=2.0).",
        left_open="the best for the network",
        option=str,
    )
    d: float | None = declare(
        None,
        "Distance threshold: posteriors closer than this to a stored one are not stored again.",
        left_open="by the pooling",
        check=lambda value: isinstance(value, Real) and 0 <= float(value) < math.inf,
        expected="finite and not negative",
        option=float,
    )
    alpha: float = declare(
        0.01,
        "Regions have credibility 1 − alpha: they hold that share of the model's distribution.",
        check=_between(0, 1),
        expected="between 0 and 1",
        option=float,
    )
    seed: int = declare(
        0,
        "Fixes everything random.",
        check=_is_seed,
        expected="a whole number of at most 64 bits",
        option=int,
    )
    likelihood: str | Likelihood = declare(
        "auto",
        "How outputs give labels a probability: a likelihood by its name, or an object of "
        "ibcl.likelihoods; 'auto' chooses by the first task's labels.",
        option=str,
    )
    independent: bool | None = declare(
        None,
        "Learn every task from the priors (independent), or from the task before it.",
        left_open="the best for the network and the pooling",
        check=_is_truth,
        expected="True, False or None",
        option=bool,
    )
    task_incremental: int | None = declare(
        None,
        "The largest number of tasks, where a one-hot task id is to be appended to inputs.",
        left_open="no task id",
        check=_is_positive_integer,
        expected="at least 1, a whole number",
    )

    calibration: float | int | None = declare(
        None,
        "How many rows of every task (or which share) to hold out and keep for prediction sets "
        "with a guarantee.",
        left_open="none, so that there are no prediction sets",
        check=_is_calibration,
        expected="a positive number of rows, or a share between 0 and 1",
        option=float,
    )
    calibration_rows: Literal["kept", "scores"] = declare(
        "kept",
        "What is kept of the rows held out: 'kept', their features in half precision, for the "
        "smallest sets; or 'scores', one number each and no row.",
        check=lambda value: value in ("kept", "scores"),
        expected="'kept' or 'scores'",
        option=str,
    )
    memory: str | int | None = declare(
        None,
        "What is kept of a task beside its posterior's mean: 'compact' (low ranks in eight bits), "
        "'exact' (whole covariances), a number of bytes per task, or 'shared' (one covariance for "
        "all tasks).",
        left_open="compact, with the pooling 'routed'",
        check=_is_memory,
        expected="'compact', 'exact', 'shared' or a number of bytes",
        option=str,
    )

    distance: str = declare(
        "rms",
        "What the threshold d is compared with: 'rms', W2/√D, the root-mean-square move of a "
        "parameter; or 'norms', (‖Δμ‖ + ‖Δσ‖)/D, as the public code of the paper's authors has it.",
        check=lambda value: value in ("rms", "norms"),
        expected="'rms' or 'norms'",
        option=str,
    )

    expert: Any = declare(
        None,
        "What answers for a task in place of its head: an estimator of scikit-learn, an "
        "ibcl.experts.Expert, or 'auto', gradient boosting beside each task's head.",
        left_open="every task's own head",
        option=str,
    )

    def __post_init__(self) -> None:
        for name in declared(Settings):
            check_setting(Settings, name, getattr(self, name))
        if self.priors is not None:
            object.__setattr__(self, "priors", tuple(self.priors))
            if not self.priors:
                raise ValueError("A knowledge base needs at least one prior.")


@dataclasses.dataclass(frozen=True)
class TableSettings(Settings):
    """What estimators and the command line set besides: the network that stands behind a table."""

    network: str | None = declare(
        None,
        "The network behind the table, by its name: random_features (x itself beside random "
        "functions of it: non-linear, and still learnt without sampling), linear, mlp, or another "
        "one of ibcl.networks.BUILDERS.",
        left_open="random_features; of tables too wide for both, the better on held-out rows",
        option=str,
    )
    width: int | None = declare(
        256,
        "Number of random features (or hidden units of an estimator's mlp); fewer with very many "
        "classes.",
        check=_is_positive_integer,
        expected="a positive whole number",
        option=int,
    )
    hidden: tuple[int, ...] | None = declare(
        None,
        "Hidden units of an mlp; 64,32 for two layers.",
        left_open="64",
        option=str,
    )
    epochs: int | None = declare(
        None,
        "Passes over the data (mean-field only).",
        left_open="the method's own",
        check=_is_positive_integer,
        expected="a positive whole number",
        option=int,
    )
    noise: float | None = declare(
        None,
        "Standard deviation of a regression's noise, in units of the target.",
        left_open="each task's own, by its marginal likelihood",
        check=_between(0, math.inf),
        expected="positive",
        option=float,
    )

"""Where figures of long runs go besides the terminal: TensorBoard, MLflow, or what you write.

``ibcl bench --log tensorboard:folder`` and ``ibcl rl --log mlflow:address`` tell a `RunLog` every
figure as it becomes known. Neither package is a dependency; a log is any object with the one method
of `RunLog`. Where runs are spread over processes a log is pickled, so it opens what it writes to
at its first figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Protocol


class RunLog(Protocol):
    """Logs the figures of runs as they become known."""

    def log(self, run: str, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures of a run at a step, such as the number of a task or an iteration."""


@dataclass
class TensorBoardLog:
    """Writes event files that ``tensorboard --logdir`` shows, one folder per run.

    Parameters
    ----------
    folder
        Where the runs' folders are made.
    """

    folder: str
    _writers: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require("tensorboard")

    def log(self, run: str, step: int, figures: Mapping[str, float]) -> None:
        """Write the figures, and let them be seen at once."""
        from torch.utils.tensorboard import SummaryWriter

        if run not in self._writers:
            self._writers[run] = SummaryWriter(f"{self.folder}/{run}")
        for name, value in figures.items():
            self._writers[run].add_scalar(name, value, step)
        self._writers[run].flush()

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "_writers": {}}


@dataclass
class MLflowLog:
    """Sends figures to MLflow, one of its runs each.

    Parameters
    ----------
    address
        Of the tracking server, or of a database such as ``sqlite:///runs.db``; MLflow's own
        default where empty.
    """

    address: str = ""
    _runs: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _require("mlflow")
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            MlflowClient(self.address or None).get_experiment_by_name("ibcl")
        except MlflowException as error:
            what = str(error).split(". ")[0]
            raise ValueError(
                f"MLflow does not take the address {self.address!r}: {what}. Give that of a "
                "tracking server, or of a database such as sqlite:///runs.db."
            ) from None

    def log(self, run: str, step: int, figures: Mapping[str, float]) -> None:
        """Send the figures."""
        from mlflow import MlflowClient

        client = MlflowClient(self.address or None)
        if run not in self._runs:
            known = client.get_experiment_by_name("ibcl")
            experiment = client.create_experiment("ibcl") if known is None else known.experiment_id
            self._runs[run] = client.create_run(experiment, run_name=run).info.run_id
        for name, value in figures.items():
            client.log_metric(self._runs[run], name, value, step=step)


def _require(package: str) -> None:
    """Refuse before a long run, not at its first figure."""
    if find_spec(package) is None:
        raise ImportError(f"This log needs a package that is not here: pip install {package}.")


LOGS: dict[str, Callable[[str], RunLog]] = {
    "tensorboard": lambda address: TensorBoardLog(address or "tensorboard"),
    "mlflow": MLflowLog,
}
"""Logs by name, made from an address, which is what follows a colon."""


def run_log(name: str | None) -> RunLog | None:
    """Make a log by its name; what follows a colon is its folder or address.

    Examples
    --------
    >>> run_log("paper")
    Traceback (most recent call last):
    ...
    ValueError: Unknown log 'paper'; known are tensorboard, mlflow.
    """
    if name is None:
        return None
    kind, _, address = name.partition(":")
    if kind not in LOGS:
        raise ValueError(f"Unknown log {name!r}; known are {', '.join(LOGS)}.")
    return LOGS[kind](address)

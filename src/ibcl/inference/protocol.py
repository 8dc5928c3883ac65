"""The one method every inference method has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ibcl.gaussians import Gaussian
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData


class Progress(NamedTuple):
    """How far inference has come: steps done, steps planned, and the objective now."""

    done: int
    total: int
    objective: float


ProgressCallback = Callable[[Progress], Any]


@dataclass(frozen=True)
class InferenceResult:
    """One posterior per prior, and what they cost."""

    posteriors: tuple[Gaussian, ...]
    updates: int
    """Batch updates, counted once per prior as the paper does; 0 where nothing is sampled."""
    objectives: tuple[float, ...]
    """The evidence lower bound reached, a prior."""
    converged: bool = True


class Inference(Protocol):
    """variational_inference(q_{i−1}, x_i, y_i) of Algorithm 1, for all m priors at once."""

    def infer(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        priors: Sequence[Gaussian],
        data: TaskData,
        *,
        validation: TaskData | None,
        start_from_prior: bool,
        seed: int,
        progress: ProgressCallback | None,
    ) -> InferenceResult:
        """Return the posterior of each prior.

        Parameters
        ----------
        start_from_prior
            True when the priors are posteriors of an earlier task, and so a good place to start.
        seed
            Fixes everything random; equal seeds give equal starts.
        """

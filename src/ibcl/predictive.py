r"""The predictive of a preference: what a knowledge base answers to features φ, and from what.

An answer is the likelihood's mean: class probabilities, or expected values. A pooling rule gives
one `Predictives` per knowledge base, which has

* the `Predictive` of one preference w: p(y | φ, w) of its mean model or of any draws, with its
  distribution q_w over parameters and the members of the credal set around it;
* the `Answers` of many preferences to the same rows, which share all that no preference changes.

Everything here starts from features. Whoever has inputs x computes φ(x) first, once
(`ibcl.networks.FlatNetwork.features`); models, many users, the service and exported files all come
this way. `SingleNetwork` is the predictive of rules that give one parameter vector per preference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor, nn

from ibcl.gaussians import Distribution, Gaussian
from ibcl.likelihoods import Likelihood
from ibcl.mixture import Mixture
from ibcl.networks import FlatNetwork
from ibcl.networks import head_outputs as head_outputs
from ibcl.uncertainty import Uncertainty

# Predictives of a knowledge base that are remembered, since users come back.
_REMEMBERED = 64
# Numbers that the outputs of a block of rows or models may take.
_BLOCK_NUMBERS = 2**24


class Members(NamedTuple):
    """Gaussians over the head's parameters, and the share of each in the answer to each row."""

    gaussians: tuple[Gaussian, ...]
    shares: Tensor
    """Shape (members, n), or (members, 1) where all rows have the same."""


@dataclass(frozen=True)
class CredalSet:
    """The distribution a predictive's parameters were taken from, and the extreme elements.

    Parameters
    ----------
    distribution
        Called once, when q_w itself is first needed.
    extremes
        Called once, when bounds are first asked for: the task (or position) and the Gaussian of
        each extreme element.
    """

    distribution: Callable[[], Distribution]
    extremes: Callable[[], Sequence[tuple[int, Gaussian]]]


class Predictive(ABC):
    """p(y | φ, w) for one preference w.

    Parameters
    ----------
    network
        The network over x, whose `head` starts from φ.
    theta
        Parameters of the mean model, flat.
    credal
        The credal set around it; None for what was read from a file, which has left it behind.
    """

    has_experts: bool = False
    """Whether experts answer for some tasks, which have no distribution over parameters."""

    def __init__(
        self, network: FlatNetwork, likelihood: Likelihood, theta: Tensor, credal: CredalSet | None
    ) -> None:
        self.network, self.likelihood, self.theta = network, likelihood, theta
        self._credal = credal

    @abstractmethod
    def means(self, features: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Return what every model answers, shape (models, n, columns).

        Parameters
        ----------
        thetas
            Other parameters than the mean model's, one row per model, such as draws from q_w.
        """

    @abstractmethod
    def outputs(self, features: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Return the outputs of every model, shape (models, n, outputs)."""

    @abstractmethod
    def extreme_means(self, features: Tensor, position: int, thetas: Tensor) -> Tensor:
        """Return the average answer of models drawn from one extreme element, (n, columns)."""

    @abstractmethod
    def module(self) -> nn.Module:
        """Return a plain module from x to outputs."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return what it consists of beside the network's fixed part, by name."""

    @cached_property
    def distribution(self) -> Distribution:
        """q_w, the distribution over parameters that the preference selects."""
        return self._known().distribution()

    @cached_property
    def extremes(self) -> Sequence[tuple[int, Gaussian]]:
        """The extreme elements of the credal set."""
        return self._known().extremes()

    def _known(self) -> CredalSet:
        if self._credal is None:
            raise ValueError(
                "A model file holds the mean model only; for regions, samples, bounds and "
                "uncertainty make the model from its knowledge base."
            )
        return self._credal

    def credal_members(self, features: Tensor, samples: int, seed: int) -> Iterator[Tensor]:
        """Yield the answer of every extreme element, (n, columns) each.

        Parameters
        ----------
        samples
            How many models drawn from an element to average; its mean model where 0.
        """
        for position, extreme in self.extremes:
            generator = torch.Generator().manual_seed(seed + position)
            thetas = extreme.sample(samples, generator) if samples else extreme.mean[None]
            yield self.extreme_means(features, position, thetas)

    def members(self, features: Tensor) -> Members:
        """Return the Gaussians that q_w is made of, with their shares in each row's answer."""
        q = self.distribution
        if isinstance(q, Mixture):
            return Members(tuple(q.components), q.weights.double()[:, None].to(features.device))
        assert isinstance(q, Gaussian)
        return Members((q,), features.new_ones(1, 1, dtype=torch.float64))

    def spread(self, features: Tensor) -> Uncertainty:
        """Return the uncertainty that the spread between the tasks' own answers makes up."""
        _refuse_routing()

    def routing(self, features: Tensor) -> Tensor:
        """Return each task's share in the answer to each row, shape (n, tasks)."""
        _refuse_routing()

    def novelty(self, features: Tensor) -> Tensor:
        """Return how far each row is from every task; about 1 for rows like those learnt."""
        _refuse_routing()


def _refuse_routing() -> NoReturn:
    raise ValueError("Only routed models have a gate: learn with pooling='routed'.")


class SingleNetwork(Predictive):
    """One network with one parameter vector θ: E[y | f(θ, φ)]."""

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        theta: Tensor,
        credal: CredalSet | None = None,
    ) -> None:
        super().__init__(network, likelihood, theta, credal)

    def outputs(self, features: Tensor, thetas: Tensor | None = None) -> Tensor:
        """f(θ, φ)."""
        rows = self.theta[None] if thetas is None else thetas
        return head_outputs(self.network.head, rows, features)

    def means(self, features: Tensor, thetas: Tensor | None = None) -> Tensor:
        """E[y | f(θ, φ)]."""
        return self.likelihood.mean(self.outputs(features, thetas))

    def extreme_means(self, features: Tensor, position: int, thetas: Tensor) -> Tensor:
        """Average of the extreme element's own models."""
        return self.means(features, thetas).mean(0)

    def module(self) -> nn.Module:
        """Return the network with parameters θ."""
        return self.network.module(self.theta)

    def tensors(self) -> dict[str, Tensor]:
        """Return θ by the names of the network's parameters."""
        return dict(self.network.unflatten(self.theta))


class Answers(ABC):
    """What the models of any preferences answer to the same rows.

    Parameters
    ----------
    features
        φ of the rows.
    columns
        Of an answer: classes, or values.
    """

    def __init__(self, features: Tensor, columns: int) -> None:
        self.features, self.columns = features, columns

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.features)

    @property
    def densities(self) -> Tensor | None:
        """Log density of every row under every task, where the rule has a gate: (rows, tasks)."""
        return None

    @abstractmethod
    def crossed(self, preferences: Tensor) -> Tensor:
        """Return every preference's answer to every row: (preferences, rows, columns), single.

        Parameters
        ----------
        preferences
            Shape (preferences, tasks).
        """

    @abstractmethod
    def paired(self, preferences: Tensor) -> Tensor:
        """Return the answer to each row under a preference of its own: (rows, columns), double.

        Parameters
        ----------
        preferences
            Shape (rows, tasks).
        """

    def blocks(self, preferences: Tensor, numbers: int | None = None) -> Iterator[Tensor]:
        """Yield what `crossed` gives, block by block.

        Parameters
        ----------
        numbers
            How many numbers a block may hold; all preferences are one block where None.
        """
        width = max(1, self.rows * self.columns)
        size = max(1, len(preferences)) if numbers is None else max(1, numbers // width)
        for block in torch.split(preferences, size):
            yield self.crossed(block)


class TaskAnswers(Protocol):
    """What every task says of the same rows, whatever the preference."""

    @property
    def densities(self) -> Tensor:
        """Log p_k(φ) up to a term that all tasks share: shape (rows, tasks)."""

    @property
    def of_tasks(self) -> Tensor:
        """p_k(y | φ), the answer of every task alone: shape (tasks, rows, columns)."""


class AnswersByPreference(Answers):
    """Answers of rules that need a predictive of its own for every preference."""

    def __init__(self, predictives: Predictives, features: Tensor, columns: int) -> None:
        super().__init__(features, columns)
        self.predictives = predictives

    def crossed(self, preferences: Tensor) -> Tensor:
        """One predictive after another."""
        empty = torch.empty(0, self.rows, self.columns, device=self.features.device)
        found = [self.predictives.at(row).means(self.features)[0].float() for row in preferences]
        return torch.stack(found) if found else empty

    def paired(self, preferences: Tensor) -> Tensor:
        """One predictive for all rows of the same preference."""
        unique, which = torch.unique(preferences, dim=0, return_inverse=True)
        shape = self.rows, self.columns
        result = torch.empty(shape, dtype=torch.float64, device=self.features.device)
        for number, preference in enumerate(unique):
            chosen = torch.nonzero(which == number).flatten().to(self.features.device)
            means = self.predictives.at(preference).means(self.features[chosen])
            result[chosen] = means[0].double()
        return result


class AnswersByParameters(AnswersByPreference):
    """Answers of rules with one parameter vector per preference, many of them at once."""

    def __init__(
        self,
        predictives: Predictives,
        features: Tensor,
        columns: int,
        means: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__(predictives, features, columns)
        self._means = means

    def crossed(self, preferences: Tensor) -> Tensor:
        """Parameters of a block of preferences, then their answers."""
        known = self.predictives
        size = max(1, _BLOCK_NUMBERS // max(known.network.dimension, 2 * self.rows))
        found = [torch.empty(0, self.rows, self.columns, device=self.features.device)]
        for block in torch.split(preferences, size):
            if len(block):
                thetas = self._means(block)
                single = SingleNetwork(known.network, known.likelihood, thetas[0])
                found.append(single.means(self.features, thetas).float())
        return torch.cat(found)


class Predictives(ABC):
    """The predictives of all preferences over the tasks of one knowledge base.

    Parameters
    ----------
    network
        The network over x.
    """

    shares_parameters: bool = False
    """Whether all preferences share their parameters, so that none costs any computation."""

    def __init__(self, network: FlatNetwork, likelihood: Likelihood) -> None:
        self.network, self.likelihood = network, likelihood
        self._remembered = lru_cache(_REMEMBERED)(self._from_bytes)

    @abstractmethod
    def of(self, weights: Tensor) -> Predictive:
        """Return the predictive of one preference.

        Parameters
        ----------
        weights
            β of shape (tasks, m): the weight of each task, split over its extreme elements.
        """

    @abstractmethod
    def split(self, preferences: Tensor) -> Tensor:
        """Split preferences (..., tasks) equally over each task's extremes: β (..., tasks, m)."""

    @abstractmethod
    def answers(self, features: Tensor) -> Answers:
        """Compute what no preference changes of the answers to these rows."""

    @abstractmethod
    def parameters(self, preferences: Tensor) -> Tensor:
        """Return the mean models' parameters of many preferences, shape (preferences, D)."""

    def task_answers(self, features: Tensor) -> TaskAnswers | None:
        """Return densities and answers of all tasks, where the rule has a gate.

        Preferences are inferred from them; without any, from a gate made of what the tasks keep.
        """
        return None

    def at(self, preference: Tensor) -> Predictive:
        """Return the predictive of a preference of shape (tasks,), remembered for a while."""
        return self._remembered(preference.cpu().double().numpy().tobytes())

    def _from_bytes(self, preference: bytes) -> Predictive:
        row = torch.frombuffer(bytearray(preference), dtype=torch.float64)
        return self.of(self.split(row))

    def columns(self, features: Tensor) -> int:
        """Return how many columns an answer to such features has."""
        return self.likelihood.columns(self.network.head.output_count(features))

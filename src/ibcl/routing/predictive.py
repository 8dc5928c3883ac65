r"""The answer of all tasks behind a gate: p(y | φ, w) = Σ_k r_k(φ, w) p_k(y | φ).

r(φ, w) = softmax(log e(φ) + log w) comes from the gate. p_k comes from task k's own head, and where
the gate knows densities of classes, from those too (`ibcl.routing.densities`). A task that brought
an expert of its own (`ibcl.experts`) answers with that, or with a share of it beside the head.

Where neither heads nor gate depend on w, the answer is a ratio of linear functions of w, and at a
vertex, w = e_k, there is nothing to route: it is p_k.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ibcl.gaussians import Distribution, Gaussian, IndependentGaussian
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.predictive import CredalSet, Members, Predictive, head_outputs
from ibcl.routing.gate import TaskGate
from ibcl.routing.top_k import are_run
from ibcl.uncertainty import Uncertainty, entropy

# Numbers that all tasks' outputs for a block of rows may take.
_BLOCK_NUMBERS = 2**23


def mixed(shares: Tensor, answers: Tensor) -> Tensor:
    """Σ_k r_k p_k: shares (n, tasks) and answers (tasks, n, columns) make (n, columns)."""
    return (shares.T[:, :, None].to(answers) * answers).sum(0)


def row_blocks(features: Tensor, tasks: int, outputs: int) -> Iterator[Tensor]:
    """Yield features in blocks of rows, so that all tasks' answers to a block stay bounded."""
    return iter(torch.split(features, max(1, _BLOCK_NUMBERS // max(1, tasks * outputs))))


class TaskExpert(Protocol):
    """What answers for a task in place of its head, or beside it."""

    @property
    def costly(self) -> bool:
        """Whether to run it only where its share matters (`ibcl.routing.top_k`)."""

    @property
    def share(self) -> float:
        """How much of the task's answer is its; the rest is the head's."""

    def answers(self, features: Tensor) -> Tensor:
        """p_k(y | φ), shape (n, columns)."""


@dataclass(frozen=True, eq=False)
class TaskHeads:
    """How parameters of tasks' heads, and a gate, become shares r_k and answers p_k(y | φ).

    Parameters
    ----------
    head
        From features to outputs.
    experts
        What answers in place of a task's head or beside it, by the tasks' numbers.
    tolerance
        τ of `ibcl.routing.top_k`; where None, experts are run on all rows.
    """

    head: FlatNetwork
    likelihood: Likelihood
    gate: TaskGate
    experts: Mapping[int, TaskExpert] = field(default_factory=dict)
    tolerance: float | None = None

    def read(self, features: Tensor) -> Tensor:
        """Return what the gate sees of φ: its columns, as flat rows in double precision."""
        return self.gate.read(features.flatten(1)).double()

    def joint(self, features: Tensor) -> Tensor:
        """J of the gate, shape (n, components)."""
        with torch.no_grad():
            return self.gate.joint(self.read(features))

    def shares(self, densities: Tensor, weights: Tensor) -> Tensor:
        """r_k(φ, w), shape (n, tasks).

        Parameters
        ----------
        densities
            Log e_k(φ).
        weights
            One preference, or one per row.
        """
        return torch.softmax(densities + weights.to(densities).log(), 1)

    def runs(self, shares: Tensor) -> Tensor | None:
        """Which tasks' experts answer a row with these shares, shape (n, tasks); None for all."""
        if not self.costly:
            return None
        costly = torch.zeros(shares.shape[1], dtype=torch.bool, device=shares.device)
        costly[[task for task, expert in self.experts.items() if expert.costly]] = True
        return are_run(shares, costly, self.tolerance or 0.0)

    @property
    def costly(self) -> bool:
        """Whether any task has an expert that is not run on all rows."""
        return self.tolerance is not None and any(e.costly for e in self.experts.values())

    def answers(
        self,
        thetas: Tensor,
        features: Tensor,
        joint: Tensor,
        tasks: Tensor,
        run: Tensor | None = None,
    ) -> Tensor:
        """Return p_k(y | φ) of these tasks, whose parameters are rows: (tasks, n, columns).

        Parameters
        ----------
        joint
            J of the same rows.
        run
            Shape (n, all tasks): elsewhere costly experts are not run, and the task's head answers.
        """
        means = self.likelihood.mean(head_outputs(self.head, thetas, features))
        if self.likelihood.classification:
            means = self.gate.answers(means, joint, tasks)
        if not self.experts:
            return means
        for task in sorted({*tasks.cpu().tolist()} & self.experts.keys()):
            expert, places = self.experts[task], torch.nonzero(tasks == task)
            rows, asked = torch.arange(len(features), device=features.device), features
            if run is not None and expert.costly:
                rows = torch.nonzero(run[:, task]).flatten()
                asked = features[rows]
            if len(rows):
                answers = in_range(self.likelihood, expert.answers(asked).to(means))
                means[places, rows] = beside(means[places, rows], answers, expert.share)
        return means


def in_range(likelihood: Likelihood, answers: Tensor) -> Tensor:
    """What an expert answers, as the nearest mean that the likelihood can have: counts above 0."""
    if likelihood.classification:
        return answers
    return likelihood.mean(likelihood.outputs_of(answers))


def beside(head: Tensor, expert: Tensor, share: float) -> Tensor:
    """λ expert + (1 − λ) head, and the expert itself where λ is 1."""
    return expert.expand_as(head) if share == 1 else share * expert + (1 - share) * head


class RoutedNetworks(Predictive):
    r"""One head for every task with any weight, and the gate between them.

    Parameters
    ----------
    heads
        Parameters of the heads of the tasks with weight, shape (heads, D).
    weights
        The preference w, one number per task.
    experts, tolerance
        As in `TaskHeads`.
    """

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        heads: Tensor,
        gate: TaskGate,
        weights: Tensor,
        credal: CredalSet | None = None,
        experts: Mapping[int, TaskExpert] | None = None,
        tolerance: float | None = None,
    ) -> None:
        super().__init__(network, likelihood, heads.flatten(), credal)
        self.heads, self.gate = heads, gate
        self.task_heads = TaskHeads(network.head, likelihood, gate, experts or {}, tolerance)
        self.weights = weights.double().to(heads.device)
        self.active = torch.nonzero(self.weights > 0).flatten()
        active = self.active.cpu().tolist()
        self.has_experts = not self.task_heads.experts.keys().isdisjoint(active)

    def routing(self, features: Tensor) -> Tensor:
        """r_k(φ, w), shape (n, tasks)."""
        with torch.no_grad():
            densities = self.gate(self.task_heads.read(features))
            return torch.softmax(densities + self.weights.log().to(densities), 1)

    def novelty(self, features: Tensor) -> Tensor:
        """How far φ is from every task; about 1 for inputs like those learnt."""
        with torch.no_grad():
            return self.gate.novelty(self.task_heads.read(features))

    def means(self, features: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Σ_k r_k(φ, w) p_k(y | φ)."""
        if thetas is not None:
            self._refuse_experts("samples of parameters")
        rows = self.theta[None] if thetas is None else thetas
        heads = [row.reshape(len(self.active), -1) for row in rows]
        outputs = self.network.head.output_count(features)
        blocks = row_blocks(features, len(self.active), outputs)
        return torch.cat([self._block_means(part, heads) for part in blocks], 1)

    def _block_means(self, features: Tensor, models: list[Tensor]) -> Tensor:
        shares, answers = self._shares_and_answers(features, models)
        return torch.stack([mixed(shares, answer) for answer in answers])

    def _shares_and_answers(
        self, features: Tensor, models: list[Tensor]
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return r_k, shape (n, heads), and each model's p_k, shape (heads, n, columns)."""
        known, active = self.task_heads, self.active.to(features.device)
        joint = known.joint(features)
        shares = known.shares(self.gate.of_joint(joint), self.weights)
        run = known.runs(shares)
        answers = (known.answers(each, features, joint, active, run) for each in models)
        return shares[:, active], answers

    def _refuse_experts(self, what: str) -> None:
        if self.has_experts:
            raise ValueError(
                f"Experts answer for some of these tasks, and experts have no {what}; learn "
                "without an expert for that."
            )

    @property
    def distribution(self) -> Distribution:
        """q_w over the heads' parameters; refused where experts answer."""
        self._refuse_experts("region over parameters")
        return super().distribution

    def spread(self, features: Tensor) -> Uncertainty:
        """Uncertainty within the tasks' answers, and epistemic what they disagree in.

        With shares r_k: entropies H(Σ r p) and Σ r H(p) of classes, and of values the law of total
        variance over tasks.
        """
        found, models = self._shares_and_answers(features, [self.heads])
        shares, answers = found.double().T, next(models).double()
        average = (shares[:, :, None] * answers).sum(0)
        if self.likelihood.classification:
            total, within = entropy(average), (shares * entropy(answers)).sum(0)
            return Uncertainty(total, within, (total - within).clamp(min=0))
        noise = self.likelihood.variance(self.likelihood.outputs_of(answers)).sum(-1)
        within = (shares * noise).sum(0)
        between = (shares * (answers - average).square().sum(-1)).sum(0)
        return Uncertainty(within + between, within, between)

    def outputs(self, features: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Outputs of one network that would answer the same."""
        return self.likelihood.outputs_of(self.means(features, thetas))

    def extreme_means(self, features: Tensor, position: int, thetas: Tensor) -> Tensor:
        """Average of a task's answer."""
        tasks = torch.full((len(thetas),), position, device=thetas.device)
        joint = self.task_heads.joint(features)
        return self.task_heads.answers(thetas, features, joint, tasks).mean(0)

    def credal_members(self, features: Tensor, samples: int, seed: int) -> Iterator[Tensor]:
        """Yield the answer of every task's own posterior, with densities of classes and without."""
        known, joint = self.task_heads, self.task_heads.joint(features)
        for position, extreme in self.extremes:
            generator = torch.Generator().manual_seed(seed + position)
            thetas = extreme.sample(samples, generator) if samples else extreme.mean[None]
            tasks = torch.full((len(thetas),), position, device=thetas.device)
            yield known.answers(thetas, features, joint, tasks).mean(0)
            own = position not in known.experts and self.gate.head_share < 1
            if own and self.likelihood.classification:
                outputs = head_outputs(known.head, thetas, features)
                yield self.likelihood.mean(outputs).mean(0)

    def members(self, features: Tensor) -> Members:
        """The heads, with their shares."""
        shares = self.routing(features)[:, self.active.to(features.device)].T.double()
        q = self.distribution
        if isinstance(q, IndependentGaussian):
            return Members(tuple(q.components), shares)
        assert isinstance(q, Gaussian)
        return Members((q,), shares)

    def module(self) -> nn.Module:
        """Return features, heads and gate as one plain module."""
        self._refuse_experts("module of their own")
        return RoutedModule(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return heads, weights and gate."""
        self._refuse_experts("tensors to write as one file (save the learner)")
        return {"heads": self.heads, "weights": self.weights, **self.gate.tensors()}


class RoutedModule(nn.Module):
    """A routed model as a plain module in single precision: x to outputs, as one network would."""

    log_weights: Tensor
    active: Tensor

    def __init__(self, predictive: RoutedNetworks) -> None:
        super().__init__()
        network = predictive.network
        self.likelihood = predictive.likelihood
        self.features = network.fixed_part()
        self.flat = network.is_linear
        self.heads = nn.ModuleList([network.head.module(theta) for theta in predictive.heads])
        self.gate = copy.deepcopy(predictive.gate).float()
        self.register_buffer("log_weights", predictive.weights.log().float())
        self.register_buffer("active", predictive.active.clone())

    def forward(self, x: Tensor) -> Any:
        """Outputs whose mean is Σ_k r_k(φ, w) p_k(y | φ)."""
        features = self.features(x)
        flat = features.flatten(1)
        joint = self.gate.joint(self.gate.read(flat))
        shares = torch.softmax(self.gate.of_joint(joint) + self.log_weights, 1)[:, self.active]
        inputs = flat if self.flat else features
        means = torch.stack([self.likelihood.mean(head(inputs).flatten(1)) for head in self.heads])
        if self.likelihood.classification:
            means = self.gate.answers(means, joint, self.active)
        return self.likelihood.outputs_of(mixed(shares, means))

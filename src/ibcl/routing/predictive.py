r"""The answer of all tasks behind a gate: p(y | φ, w) = Σ_k r_k(φ, w) p_k(y | φ).

r(φ, w) = softmax(log e(φ) + log w) comes from the gate, p_k from task k's own head. For rows ×
preferences there is not even a softmax. With e shifted by its largest for safety, the answers to
all preferences W are

    (W (e ∘ p)ᵀ) / (W eᵀ),

two matrix products and a division, with W of shape (preferences, tasks), e and p of (rows, tasks).

At a vertex, w = e_k, there is nothing to route: the answer is that of task k's own posterior.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ibcl.gaussians import Distribution, Gaussian, IndependentGaussian
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.predictive import Answers, CredalSet, Members, Predictive, Predictives, head_outputs
from ibcl.routing.gate import GATE_TENSORS, Gate, TaskGate
from ibcl.uncertainty import Uncertainty, entropy

# Numbers that all tasks' answers to a block of rows may take.
_BLOCK_NUMBERS = 2**23
# Preferences whose answers are divided while they are still in the processor's cache.
_CACHED_NUMBERS = 2**19
# Columns up to which every number has a denominator of its own.
_FEW_COLUMNS = 4
# Below this, single precision has lost too much of Σ_k w_k e_k: those answers are computed again.
_SMALLEST_SHARE = 1e-25


def mixed(shares: Tensor, answers: Tensor) -> Tensor:
    """Σ_k r_k p_k: shares (n, tasks) and answers (tasks, n, columns) make (n, columns)."""
    return (shares.T[:, :, None].to(answers) * answers).sum(0)


def gate_features(features: Tensor, gate: TaskGate) -> Tensor:
    """What a gate sees of φ: the columns it knows, one flat row per sample, in double precision."""
    return gate.read(features.flatten(1)).double()


def row_blocks(features: Tensor, tasks: int, columns: int) -> Iterator[Tensor]:
    """Yield features in blocks of rows, so that all tasks' answers to a block stay bounded."""
    return iter(torch.split(features, max(1, _BLOCK_NUMBERS // max(1, tasks * columns))))


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
    """How parameters of tasks' heads become their answers p_k(y | φ).

    Parameters
    ----------
    head
        From features to outputs.
    seen
        Which classes each task has seen, shape (tasks, classes), where tasks have different ones;
        p_k is then Bayes' rule among those only.
    experts
        What answers in place of a task's head or beside it, by the tasks' numbers.
    """

    head: FlatNetwork
    likelihood: Likelihood
    seen: Tensor | None = None
    experts: Mapping[int, TaskExpert] = field(default_factory=dict)

    def answers(self, thetas: Tensor, features: Tensor, tasks: Tensor) -> Tensor:
        """Return p_k(y | φ) of these tasks, whose parameters are rows: (tasks, n, columns)."""
        means = self.likelihood.mean(head_outputs(self.head, thetas, features))
        if self.seen is not None:
            means = among_seen(means, self.seen[tasks])
        for task in {*tasks.cpu().tolist()} & self.experts.keys():
            expert, places = self.experts[task], tasks == task
            answers = in_range(self.likelihood, expert.answers(features).to(means))
            means[places] = beside(means[places], answers, expert.share)
        return means


def in_range(likelihood: Likelihood, answers: Tensor) -> Tensor:
    """What an expert answers, as the nearest mean that the likelihood can have: counts above 0."""
    if likelihood.classification:
        return answers
    return likelihood.mean(likelihood.outputs_of(answers))


def beside(head: Tensor, expert: Tensor, share: float) -> Tensor:
    """λ expert + (1 − λ) head, and the expert itself where λ is 1."""
    return expert.expand_as(head) if share == 1 else share * expert + (1 - share) * head


def among_seen(means: Tensor, seen: Tensor) -> Tensor:
    """Bayes' rule among the classes each task has seen; means are (tasks, n, columns)."""
    kept = means[..., : seen.shape[1]] * seen[:, None, :].to(means)
    kept = kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(means.dtype).tiny)
    return torch.cat([kept, torch.zeros_like(means[..., seen.shape[1] :])], -1)


class RoutedNetworks(Predictive):
    r"""One head for every task with any weight, and the gate between them.

    Parameters
    ----------
    heads
        Parameters of the heads of the tasks with weight, shape (heads, D).
    weights
        The preference w, one number per task.
    seen, experts
        As in `TaskHeads`.
    """

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        heads: Tensor,
        gate: TaskGate,
        weights: Tensor,
        seen: Tensor | None = None,
        credal: CredalSet | None = None,
        experts: Mapping[int, TaskExpert] | None = None,
    ) -> None:
        super().__init__(network, likelihood, heads.flatten(), credal)
        self.heads, self.gate, self.seen = heads, gate, seen
        self.task_heads = TaskHeads(network.head, likelihood, seen, experts or {})
        self.weights = weights.double().to(heads.device)
        self.active = torch.nonzero(self.weights > 0).flatten()
        active = self.active.cpu().tolist()
        self.has_experts = not self.task_heads.experts.keys().isdisjoint(active)

    def routing(self, features: Tensor) -> Tensor:
        """r_k(φ, w), shape (n, tasks)."""
        with torch.no_grad():
            scores = self.gate(gate_features(features, self.gate))
            return torch.softmax(scores + self.weights.log().to(scores), 1)

    def novelty(self, features: Tensor) -> Tensor:
        """How far φ is from every task; about 1 for inputs like those learnt."""
        with torch.no_grad():
            return self.gate.novelty(gate_features(features, self.gate))

    def means(self, features: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Σ_k r_k(φ, w) p_k(y | φ)."""
        if thetas is not None:
            self._refuse_experts("samples of parameters")
        rows = self.theta[None] if thetas is None else thetas
        heads = [row.reshape(len(self.active), -1) for row in rows]
        columns = self.likelihood.columns(self.network.head.output_count(features))
        blocks = row_blocks(features, len(self.active), columns)
        return torch.cat([self._block_means(part, heads) for part in blocks], 1)

    def _block_means(self, features: Tensor, models: list[Tensor]) -> Tensor:
        shares, answers = self._shares_and_answers(features, models)
        return torch.stack([mixed(shares, answer) for answer in answers])

    def _shares_and_answers(
        self, features: Tensor, models: list[Tensor]
    ) -> tuple[Tensor, Iterator[Tensor]]:
        """Return r_k, shape (n, heads), and each model's p_k, shape (heads, n, columns)."""
        shares = self.routing(features)[:, self.active.to(features.device)]
        return shares, (self.task_heads.answers(each, features, self.active) for each in models)

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
        """Average of a task's head."""
        tasks = torch.full((len(thetas),), position, device=thetas.device)
        return self.task_heads.answers(thetas, features, tasks).mean(0)

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
        """Return heads, weights, gate and what the tasks have seen."""
        self._refuse_experts("tensors to write as one file (save the learner)")
        gate = {f"gate.{name}": getattr(self.gate, name) for name in GATE_TENSORS}
        seen = {} if self.seen is None else {"seen": self.seen}
        return {"heads": self.heads, "weights": self.weights, **gate, **seen}


def gate_from_tensors(tensors: dict[str, Tensor], temperature: float) -> Gate:
    """Return the gate among the tensors of a `RoutedNetworks`, and take it out of them."""
    parts = {name: tensors.pop(name) for name in [*tensors] if name.startswith("gate.")}
    return Gate({name.removeprefix("gate."): value for name, value in parts.items()}, temperature)


class RoutedModule(nn.Module):
    """A routed model as a plain module in single precision: x to outputs, as one network would."""

    log_weights: Tensor
    active: Tensor
    seen: Tensor | None

    def __init__(self, predictive: RoutedNetworks) -> None:
        super().__init__()
        network = predictive.network
        self.likelihood = predictive.likelihood
        self.features = network.fixed_part()
        self.flat = network.is_linear
        self.heads = nn.ModuleList([network.head.module(theta) for theta in predictive.heads])
        gate = predictive.gate
        tensors = {name: getattr(gate, name).clone() for name in GATE_TENSORS}
        self.gate = Gate(tensors, gate.temperature).float()
        self.register_buffer("log_weights", predictive.weights.log().float())
        self.register_buffer("active", predictive.active.clone())
        self.register_buffer("seen", None if predictive.seen is None else predictive.seen.clone())

    def forward(self, x: Tensor) -> Any:
        """Outputs whose mean is Σ_k r_k(φ, w) p_k(y | φ)."""
        features = self.features(x)
        flat = features.flatten(1)
        scores = self.gate(flat[:, : self.gate.columns]) + self.log_weights
        shares = torch.softmax(scores, 1)[:, self.active]
        inputs = flat if self.flat else features
        means = torch.stack([self.likelihood.mean(head(inputs).flatten(1)) for head in self.heads])
        if self.seen is not None:
            means = among_seen(means, self.seen[self.active])
        return self.likelihood.outputs_of(mixed(shares, means))


class RoutedAnswers(Answers):
    """Answers of routed models whose heads are the same for all preferences.

    Parameters
    ----------
    heads
        Parameters of all tasks' heads, shape (tasks, D).
    posteriors
        Means of the tasks' own posteriors, which answer at the vertices.
    """

    def __init__(
        self,
        task_heads: TaskHeads | None,
        gate: TaskGate,
        heads: Tensor,
        posteriors: Tensor,
        features: Tensor,
        columns: int,
    ) -> None:
        super().__init__(features, columns)
        self._task_heads, self._gate = task_heads, gate
        self._heads, self._posteriors = heads, posteriors

    @cached_property
    def densities(self) -> Tensor:
        """Log e_k(φ) up to a term that all tasks share, of shape (rows, tasks)."""
        with torch.no_grad():
            densities: Tensor = self._gate(gate_features(self.features, self._gate))
        return densities

    def _of_tasks(self, thetas: Tensor, features: Tensor) -> Tensor:
        tasks = torch.arange(len(thetas), device=thetas.device)
        assert self._task_heads is not None
        return self._task_heads.answers(thetas, features, tasks)

    @cached_property
    def of_tasks(self) -> Tensor:
        """p_k(y | φ) of every task's head, of shape (tasks, rows, columns)."""
        return self._of_tasks(self._heads, self.features)

    @cached_property
    def _at_vertices(self) -> Tensor:
        return self._of_tasks(self._posteriors, self.features)

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor, int]:
        """(e ∘ p)ᵀ and eᵀ in single precision, and how often a row's e is repeated.

        Of few columns each has a denominator of its own, since dividing number by number is far
        faster than dividing pairs; of many, a row's is shared.
        """
        shifted = torch.exp(self.densities - self.densities.amax(1, keepdim=True)).T
        weighted = (shifted[:, :, None] * self.of_tasks).flatten(1).float()
        repeated = self.columns if self.columns <= _FEW_COLUMNS else 1
        return weighted, shifted.float().repeat_interleave(repeated, 1), repeated

    def crossed(self, preferences: Tensor) -> Tensor:
        """(W (e ∘ p)ᵀ) / (W eᵀ)."""
        numerator, denominator, repeated = self._factors
        users = preferences.to(numerator.device)
        result = _room_for(len(users), self.rows * self.columns, numerator.device)
        weights = users.to(numerator)
        # The largest e of a row is 1, so no denominator is below a user's smallest weight.
        doubtful = bool(len(users)) and float(weights.min()) < _SMALLEST_SHARE
        step = max(1, _CACHED_NUMBERS // max(1, self.rows * self.columns))
        room = denominator.new_empty(min(step, len(users)), denominator.shape[1])
        for begin in range(0, len(users), step):
            part = weights[begin : begin + step]
            answer = result[begin : begin + step]
            shares = room[: len(part)]
            torch.mm(part, numerator, out=answer)
            torch.mm(part, denominator, out=shares)
            divided = answer.view(len(part), shares.shape[1], self.columns // repeated)
            divided.div_(shares[:, :, None])
            if doubtful and shares.numel() and float(shares.min()) < _SMALLEST_SHARE:
                self._mend(users[begin : begin + step], shares[:, ::repeated], answer)
        answers = result.view(len(users), self.rows, self.columns)
        vertex = (users > 0).sum(1) == 1
        if bool(vertex.any()):
            answers[vertex] = self._at_vertices.float()[users[vertex].argmax(1)]
        return answers

    def _mend(self, users: Tensor, shares: Tensor, answer: Tensor) -> None:
        """Answer again, with a softmax, where a user's tasks are all far from a row's own."""
        user, row = torch.nonzero(shares < _SMALLEST_SHARE, as_tuple=True)
        routing = torch.softmax(self.densities[row] + users[user].to(self.densities).log(), 1)
        exact = mixed(routing, self.of_tasks[:, row])
        answer.view(len(users), self.rows, self.columns)[user, row] = exact.float()

    def paired(self, preferences: Tensor) -> Tensor:
        """Σ_k r_k(φ, w) p_k(y | φ), with each row's own w."""
        weights = preferences.to(self.features.device)
        shares = torch.softmax(self.densities + weights.to(self.densities).log(), 1)
        found = []
        begin = 0
        for part in row_blocks(self.features, len(self._heads), self.columns):
            answers = self._of_tasks(self._heads, part).double()
            found.append(mixed(shares[begin : begin + len(part)], answers))
            begin += len(part)
        result = torch.cat(found)
        alone = torch.nonzero((weights > 0).sum(1) == 1).flatten()
        if len(alone):
            own = self._of_tasks(self._posteriors, self.features[alone]).double()
            result[alone] = own[weights[alone].argmax(1), torch.arange(len(alone))]
        return result


class GatedPredictives(Predictives):
    """Predictives of rules that have one head per task behind a gate."""

    @abstractmethod
    def task_answers(self, features: Tensor) -> RoutedAnswers:
        """Return densities and answers of all tasks, whatever the preference."""


def _room_for(users: int, numbers: int, device: torch.device) -> Tensor:
    """Return a tensor that is not filled yet.

    Where it can, numpy asks for large arrays in huge pages, which torch does not. Touching the
    memory of millions of answers for the first time page by page takes as long as the products.
    """
    if device.type != "cpu":
        return torch.empty(users, numbers, device=device)
    return torch.from_numpy(np.empty((users, numbers), dtype=np.float32))

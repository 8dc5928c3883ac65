r"""Routed evidence: one head per task, and a gate that says which of them an input needs.

The score of a preference w is the accuracy on the mixture Σ_k w_k p_k(x, y) of the tasks'
distributions, and the best answer there is Bayes' rule,

    p(y | x, w) = Σ_k r_k(x, w) p_k(y | x),     r_k(x, w) ∝ w_k p_k(x):

the preference is the prior probability that the next input comes from task k. The gate
(`ibcl.routing.densities`) gives p_k(x), and the task's own posterior, together with the densities
of its classes, p_k(y | x) (`ibcl.routing.predictive`).

A knowledge base is a set of task records: a posterior, the prior it was learnt from, and the
densities of the task's classes. All that tasks share is computed from the set when a model is made,
in the order of their names. So forgetting drops a record, merging unites two sets, and the order of
learning does not matter, for the first task as for any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral
from typing import ClassVar

import torch
from torch import Tensor

from ibcl.gaussians import (
    BlockDiagonalGaussian,
    DenseGaussian,
    DenseNatural,
    DiagonalGaussian,
    Distribution,
    Gaussian,
    IndependentGaussian,
    LowRankGaussian,
    NaturalParameters,
    low_rank_blocks,
)
from ibcl.knowledge import KnowledgeBase, Part, Parts, register_part
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.pooling.barycentre import WassersteinPooling
from ibcl.pooling.gated import GatedPredictives
from ibcl.pooling.power_prior import borrowed, borrows
from ibcl.pooling.rule import PoolingRule, split_weights
from ibcl.predictive import CredalSet, Predictive
from ibcl.routing import (
    LARGEST_SUMMED,
    ClassDensities,
    DensityGate,
    DensitySettings,
    Ranks,
    RoutedAnswers,
    RoutedNetworks,
    RowSketch,
    SharedScatters,
    TaskHeads,
    classes_of,
    density_gate,
)
from ibcl.routing.densities import fourier_width
from ibcl.routing.scatters import keeps_whole

register_part(ClassDensities)
register_part(RowSketch)
register_part(SharedScatters)

COMPACT, EXACT, SHARED = "compact", "exact", "shared"
COMPACT_RANKS = Ranks(96, 128, 32)
"""Chosen on validation data of five benchmarks: the smallest that lost at most 0.2 points."""
RANKS_ALONE = Ranks(32, 32, 64)
"""The same where heads answer alone, so that densities only tell tasks apart."""
# There, full covariances of so few parameters of an output are kept as they are, and each of many
# outputs has at least so many directions.
_SMALL_ALONE, _FEWEST_OF_OUTPUT = 128, 32
MOST_SHARED_RANKS = 32
"""Eigenvectors that a task keeps of each scatter beside covariances that all tasks share."""
SHARED_GROWTH = 0.04
"""What a task may keep, as a share of those covariances, if that holds its classes' means."""
# Numbers that the class factors of one task may take; of very many classes each gets fewer.
_LARGEST_FACTORS = 2**22
_SMALLEST_RANK = 8
# Full covariances of so few parameters are kept as they are: there is little to gain.
_SMALL_POSTERIOR = 512
# Of a parameter's precision, what directions that were left out amount to, where there are any.
_LEFT = 1e-6
# The rule that gives back a task's posterior at its vertex.
_VERTEX = WassersteinPooling()


@dataclass(frozen=True)
class RoutedEvidence(PoolingRule):
    """The pooling rule ``"routed"``, with its settings.

    Parameters
    ----------
    temperature
        t of the gate's densities.
    head_share
        a between 0 and 1: a task answers with head^a · class densities^(1 − a); 1 is its head
        alone. Where None, ½ for heads linear in their parameters, and 1 for networks that find
        features of their own or were trained before, of which densities of inputs know nothing.
        Regression and counts have no classes, and use the head.
    contamination
        ε between 0 and 1, the share of a task's inputs that may look like any task's: preferences
        that differ by δ differ in their answers by at most δ K/ε.
    tolerance
        τ: of the tasks whose experts are costly to run, those whose shares in a row's answer sum to
        at most τ answer with their heads alone (`ibcl.routing.top_k`). The default was chosen on
        validation rows, where it moved probabilities by 0.003 on average.
    memory
        What is kept of a task: ``"compact"``, low ranks in eight bits; ``"exact"``, whole
        covariances; or a number of bytes per task, for the largest ranks that fit. With
        ``"shared"`` one covariance is kept for all tasks together, and a task adds little more
        than its classes' means: without its data it can then not be forgotten exactly
        (`ibcl.IBCL.forget`).
    borrow
        Whether a task's head borrows from the others, as far as its own evidence says that they
        are alike (`ibcl.pooling.power_prior`).
    adaptive
        Whether the temperature rises as far as few rows of many columns make densities tell tasks
        apart too surely (`ibcl.routing.overconfidence`). A task then keeps up to 16 random sums of
        its rows (`ibcl.routing.sketches`); with ``memory="shared"`` it does not.

    Examples
    --------
    >>> RoutedEvidence(head_share=1.0).settings()
    {'head_share': 1.0}
    """

    temperature: float = 3.0
    head_share: float | None = None
    contamination: float = 1e-3
    memory: str | int = COMPACT
    tolerance: float = 0.25
    borrow: bool = False
    adaptive: bool = False

    name: ClassVar[str] = "routed"
    independent: ClassVar[bool] = True
    takes_experts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be positive, not {self.temperature!r}.")
        if self.head_share is not None and not 0 <= self.head_share <= 1:
            raise ValueError(f"head_share must lie between 0 and 1, not {self.head_share!r}.")
        if not 0 <= self.contamination < 1:
            raise ValueError(
                f"contamination must be at least 0 and below 1, not {self.contamination!r}."
            )
        if not 0 <= self.tolerance < 0.5:
            raise ValueError(f"tolerance must be at least 0 and below 0.5, not {self.tolerance!r}.")
        if isinstance(self.memory, Integral) and not isinstance(self.memory, bool):
            object.__setattr__(self, "memory", int(self.memory))
        size = isinstance(self.memory, int) and not isinstance(self.memory, bool)
        named = self.memory in (COMPACT, EXACT, SHARED)
        if not named and not (size and int(self.memory) > 0):
            raise ValueError(
                "memory must be 'compact', 'exact', 'shared' or a number of bytes, not "
                f"{self.memory!r}."
            )

    def fits(self, columns: int) -> bool:
        """Tell whether a gate can be made for so many features."""
        return (columns + 1) ** 2 <= LARGEST_SUMMED

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the joint distribution of the posteriors that the preference gives any weight."""
        preference = weights.sum(-1)
        active = torch.nonzero(preference > 0).flatten().tolist()
        if self.borrows(knowledge):
            every = borrowed(knowledge)
            heads = [every[task].posterior for task in active]
        else:
            heads = [self._posterior(knowledge, weights, task) for task in active]
        return heads[0] if len(heads) == 1 else IndependentGaussian(heads)

    def borrows(self, knowledge: KnowledgeBase) -> bool:
        """Whether heads borrow from each other: where that is asked for, and can be done."""
        return self.borrow and borrows(knowledge)

    def _posterior(self, knowledge: KnowledgeBase, weights: Tensor, task: int) -> Gaussian:
        """Return a task's own posterior: of several extremes, their barycentre."""
        alone = torch.zeros_like(weights)
        alone[task] = weights[task] / weights[task].sum()
        posterior = _VERTEX.pool(knowledge, alone)
        assert isinstance(posterior, Gaussian)
        return posterior

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the parameters of all tasks' heads, one after another: shape (n, tasks · D)."""
        return self.head_means(knowledge).flatten().expand(len(weights), -1)

    def head_means(self, knowledge: KnowledgeBase) -> Tensor:
        """Return the means of all tasks' heads, shape (tasks, D)."""
        if self.borrows(knowledge):
            means = [each.posterior.mean for each in borrowed(knowledge)]
            return torch.stack(means).to(knowledge.stacked_means.dtype)
        return _own_means(knowledge, split_weights(knowledge, torch.ones(len(knowledge.tasks))))

    def predictives(
        self, knowledge: KnowledgeBase, network: FlatNetwork, likelihood: Likelihood
    ) -> RoutedEvidencePredictives:
        """Return heads and gate of all tasks, made once for all preferences."""
        return RoutedEvidencePredictives(self, knowledge, network, likelihood)

    def parts(
        self,
        features: Tensor,
        labels: Tensor | None,
        weights: Tensor | None,
        posteriors: Sequence[Gaussian],
        network: FlatNetwork,
        before: Parts | None = None,
    ) -> Parts:
        """Return the densities of a task's classes, of all its batches."""
        rows, reads = features.flatten(1), network.known_columns
        if reads is not None:
            rows = rows[:, reads]
        if not self.fits(rows.shape[1]):
            raise ValueError(
                f"{rows.shape[1]} features are too many for a gate; reduce them, or choose "
                "another pooling such as 'evidence'."
            )
        classes = 1 if labels is None else len(torch.unique(labels))
        ranks = self.ranks(rows.shape[1], classes, posteriors)
        centred = classes_of(rows, labels, weights)
        found = ClassDensities.of_classes(centred, ranks)
        common = {}
        if self.memory == SHARED:
            common[SharedScatters.kind] = SharedScatters.of(centred)
        known = (before or {}).get(ClassDensities.kind)
        assert known is None or isinstance(known, ClassDensities)
        own: dict[str, Part] = {}
        if self.adaptive and self.memory != SHARED:
            sketch = RowSketch.of(centred, known)
            if known is not None:
                earlier = (before or {})[RowSketch.kind]
                assert isinstance(earlier, RowSketch)
                sketch = earlier.plus(sketch, known, found)
            own[RowSketch.kind] = sketch
        if known is not None:
            common = {kind: part.moved(known, found) for kind, part in common.items()}
            found = known.plus(found, ranks)
        return {**(before or {}), ClassDensities.kind: found, **own, **common}

    def keep(self, posterior: Gaussian, prior: Gaussian) -> Gaussian:
        """Return a large full covariance as its evidence's leading directions and a diagonal.

        Where tasks share what is kept, heads are as mean-field inference has them.
        """
        if self.memory == SHARED:
            diagonal = posterior.natural_parameters().precision_diagonal()
            return DiagonalGaussian(posterior.mean.float(), diagonal.rsqrt().float())
        if self.memory == EXACT:
            return posterior
        if isinstance(posterior, DenseGaussian):
            small = self._fewer_directions(posterior, prior)
        elif isinstance(posterior, BlockDiagonalGaussian) and self._heads_alone:
            small = self._fewer_of_outputs(posterior, prior)
        else:
            return posterior
        return posterior if small is None or small.nbytes >= posterior.nbytes else small

    def _fewer_directions(self, posterior: DenseGaussian, prior: Gaussian) -> Gaussian | None:
        """Return a full covariance as directions: all of them if they are few, or the leading."""
        before = prior.natural_parameters()
        evidence = (posterior.natural_parameters() - before).dense()
        # In units of the posterior's own precision, so that features of any size count alike.
        unit = posterior.precision.diagonal().sqrt()
        whole = self.memory == COMPACT and posterior.dimension <= _SMALL_POSTERIOR
        if whole and not (self._heads_alone and posterior.dimension > _SMALL_ALONE):
            return _all_directions(posterior, before, evidence, unit)
        projected = evidence.low_rank(self._posterior_rank(posterior), unit=unit)
        kept = (before + projected).around(posterior.mean.float())
        # What has more directions than those kept takes more bytes than they do.
        left = bool((projected.diagonal > _LEFT * unit.square()).any())
        few = _all_directions(posterior, before, evidence, unit) if whole and not left else None
        if not isinstance(kept, LowRankGaussian):
            return few
        small = LowRankGaussian(kept.mean, kept.diagonal.float(), kept.factor.float())
        return small if few is None or small.nbytes < few.nbytes else few

    def _fewer_of_outputs(
        self, posterior: BlockDiagonalGaussian, prior: Gaussian
    ) -> LowRankGaussian | None:
        """Return the leading directions of every output; None where there is little to gain."""
        outputs, size = posterior.positions.shape
        if size <= _SMALL_ALONE:
            return None
        rank = max(_FEWEST_OF_OUTPUT, self._posterior_rank(posterior) // outputs)
        return low_rank_blocks(posterior, prior, rank)

    @property
    def _heads_alone(self) -> bool:
        """Whether densities only tell tasks apart, of which less will do, and heads answer."""
        return self.head_share == 1.0 and self.memory == COMPACT

    def _posterior_rank(self, posterior: Gaussian) -> int:
        """Return how many directions are kept of evidence; of bytes, a tenth pays for them."""
        if self.memory == COMPACT:
            kept = RANKS_ALONE if self._heads_alone else COMPACT_RANKS
            assert kept.posterior is not None
            return min(kept.posterior, posterior.dimension)
        return max(1, int(self.memory) // (40 * posterior.dimension) - 2)

    def ranks(self, columns: int, classes: int, posteriors: Sequence[Gaussian]) -> Ranks:
        """Return how many eigenvectors are kept of a task's scatters.

        Parameters
        ----------
        columns
            d, the number of features.
        posteriors
            The task's, as they are kept.
        """
        if self.memory == EXACT:
            return Ranks(None, None, None)
        width = fourier_width(columns)
        most = max(_SMALLEST_RANK, _LARGEST_FACTORS // (classes * (columns + 1)))
        if self._heads_alone:
            return RANKS_ALONE
        if self.memory == COMPACT:
            assert COMPACT_RANKS.classes is not None
            return COMPACT_RANKS._replace(classes=min(COMPACT_RANKS.classes, most))
        per_rank = classes * (columns + 1) + width + 4 * (classes + 1)
        # Means and diagonals of both maps, class numbers and counts.
        fixed = 8 * classes * (columns + 1) + 4 * (classes + 1) * width + 16 * classes
        fixed += sum(q.nbytes for q in posteriors)
        if self.memory == SHARED:
            if keeps_whole(columns + 1, MOST_SHARED_RANKS):
                fixed += 4 * classes * (columns + 1) ** 2
            triangles = 2 * (columns + 1) * (columns + 2) + 2 * width * (width + 1)
            rank = max(1, (int(SHARED_GROWTH * triangles) - fixed) // per_rank)
            return Ranks(min(rank, most, MOST_SHARED_RANKS), min(rank, MOST_SHARED_RANKS), None)
        rest = int(self.memory) - fixed
        rank = min(rest // per_rank, max(columns + 1, width))
        if rank < 1:
            raise ValueError(
                f"memory={self.memory} bytes do not hold a task of {classes} classes and {columns} "
                f"features; give at least {int(self.memory) - rest + per_rank:,}."
            )
        return Ranks(min(rank, columns + 1, most), min(rank, width), None)

    def exponent(self, network: FlatNetwork) -> float:
        """Return a, by default for this network."""
        if self.head_share is not None:
            return self.head_share
        head = network.head
        return 0.5 if head.is_linear and not head.pretrained else 1.0

    def make_gate(self, knowledge: KnowledgeBase, network: FlatNetwork) -> DensityGate:
        """Return the gate between all tasks of a knowledge base.

        Of a network that grew it reads what there was from the beginning: what came later was
        zero in the tasks before, so that tasks with it are told apart by what they lack.
        """
        records = {}
        for task, kept in zip(knowledge.tasks, knowledge.parts, strict=True):
            record = kept.get(ClassDensities.kind)
            if not isinstance(record, ClassDensities):
                raise ValueError(
                    "These tasks cannot be routed: the gate needs the densities of every task; "
                    "learn them with pooling='routed'."
                )
            records[task] = record
        exponent = self.exponent(network)
        settings = DensitySettings(self.temperature, self.contamination, exponent)
        shared = knowledge.common.get(SharedScatters.kind)
        assert shared is None or isinstance(shared, SharedScatters)
        sketches = {}
        for task, kept in zip(knowledge.tasks, knowledge.parts, strict=True):
            if isinstance(sketch := kept.get(RowSketch.kind), RowSketch):
                sketches[task] = sketch
        known = sketches if self.adaptive and len(sketches) == len(records) else None
        return density_gate(records, settings, network.known_columns, shared, known)


def _all_directions(
    posterior: DenseGaussian, before: NaturalParameters, evidence: DenseNatural, unit: Tensor
) -> Gaussian | None:
    """Return a full covariance as all its evidence's directions, where they take half the bytes."""
    found = evidence.few_directions(unit=unit)
    few = None if found is None else (before + found).around(posterior.mean)
    return few if few is not None and few.nbytes < posterior.nbytes / 2 else None


def _own_means(knowledge: KnowledgeBase, shares: Tensor) -> Tensor:
    """Return the mean of each task's own posteriors, shape (tasks, D).

    Parameters
    ----------
    shares
        Of a task's posteriors in its mean, shape (tasks, m); those of a task without weight are not
        to be used.
    """
    stacked = knowledge.stacked_means
    return (shares.to(stacked)[:, :, None] * stacked).sum(1)


class RoutedEvidencePredictives(GatedPredictives[RoutedEvidence]):
    """The tasks' own posteriors behind the gate of their densities."""

    shares_parameters = True

    def of(self, weights: Tensor) -> Predictive:
        """The experts of the tasks with any weight, behind the gate."""
        preference = weights.sum(-1)
        active = torch.nonzero(preference > 0).flatten()
        credal = CredalSet(partial(self.rule.pool, self.knowledge, weights), self._extremes)
        # With several priors, weights say how much each of a task's posteriors counts.
        means = (
            self.heads
            if self.rule.borrows(self.knowledge)
            else _own_means(self.knowledge, weights.double() / preference.double()[:, None])
        )
        heads = means[active.to(means.device)]
        return RoutedNetworks(
            self.network,
            self.likelihood,
            heads,
            self.gate,
            preference,
            credal,
            self.experts,
            self.rule.tolerance,
        )

    def _extremes(self) -> list[tuple[int, Gaussian]]:
        """Every task's own posteriors."""
        return [
            (number, posterior)
            for number, task in enumerate(self.knowledge.tasks)
            for posterior in self.knowledge.extremes(task)
        ]

    def answers(self, features: Tensor) -> RoutedAnswers:
        """Gate and heads on these rows, once for all preferences."""
        head, tolerance = self.network.head, self.rule.tolerance
        known = TaskHeads(head, self.likelihood, self.gate, self.experts, tolerance)
        return RoutedAnswers(known, self.heads, features, self.columns(features))

    task_answers = answers

    @cached_property
    def gate(self) -> DensityGate:
        """Densities of the tasks."""
        gate = self.rule.make_gate(self.knowledge, self.network)
        expected = self.network.gate_columns
        if expected is not None and gate.columns != expected:
            raise ValueError(
                f"The tasks' densities are of {gate.columns} features, the network has {expected}."
            )
        return gate.to(self.network.device)

    @cached_property
    def heads(self) -> Tensor:
        """Means of every task's head, shape (tasks, D)."""
        return self.rule.head_means(self.knowledge)

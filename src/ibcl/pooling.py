r"""Pooling: from knowledge base and preference to q_w (Algorithm 2, first half).

A preference w gives task k the weight w_k, split over its m extreme elements into β_kj with
Σ_j β_kj = w_k, equally unless told otherwise. Three rules turn these weights into one distribution:

* ``mixture``, the definition of a credal set's members: q_w(θ) = Σ_kj β_kj q_kj(θ).
* ``wasserstein``, the barycentre under the 2-Wasserstein distance, which is what averaging means
  and standard deviations of diagonal Gaussians is.
* ``evidence``, the posterior of the preference-weighted problem of K tasks:
  q_w(θ) ∝ q₀(θ) Π_kj ℓ_kj(θ)^(K β_kj), with each task's likelihood kept as the Gaussian factor
  ℓ_kj = q_kj / q_{k−1,j}.

To add a rule, write a class with the two methods of `PoolingRule` and `register_rule` it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ibcl.gaussians import (
    Distribution,
    Gaussian,
    ImproperError,
    NaturalParameters,
    barycentre,
    linear_combination,
)
from ibcl.knowledge import KnowledgeBase
from ibcl.mixture import Mixture
from ibcl.preference import Preference


class EvidenceWarning(UserWarning):
    """A task's evidence was not a proper likelihood and had to be cut back."""


class PoolingRule(Protocol):
    """A way to combine extreme elements; weights β have shape (..., tasks, m) and sum to 1."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return q_w for one set of weights."""

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the means of q_w for many sets of weights at once: shape (n, D)."""


def split_weights(
    knowledge: KnowledgeBase,
    preferences: Tensor,
    split: Mapping[str, Sequence[float]] | None = None,
) -> Tensor:
    """Split task weights (..., tasks) over each task's extremes: β of shape (..., tasks, m).

    Parameters
    ----------
    split
        For tasks whose extremes should not share equally: m non-negative shares that sum to 1.
    """
    m = len(knowledge.priors)
    shares = torch.full((len(knowledge.tasks), m), 1 / m, dtype=torch.float64)
    for task, values in (split or {}).items():
        row = torch.as_tensor(np.asarray(values, dtype=np.float64))
        if row.shape != (m,) or not bool((row >= 0).all()) or abs(float(row.sum()) - 1) > 1e-6:
            raise ValueError(
                f"The split of task {task!r} must be {m} non-negative shares that sum to 1, "
                f"not {list(values)}."
            )
        shares[knowledge.tasks.index(knowledge.record(task).name)] = row
    return preferences.to(torch.float64).unsqueeze(-1) * shares


def _weighted(knowledge: KnowledgeBase, weights: Tensor) -> tuple[list[float], list[Gaussian]]:
    """Extreme elements with their total weights, each stored posterior once."""
    totals: dict[int, float] = {}
    for record, row in zip(knowledge.records, weights.tolist(), strict=True):
        for position, weight in zip(record.posteriors, row, strict=True):
            if weight > 0:
                totals[position] = totals.get(position, 0.0) + weight
    return list(totals.values()), [knowledge.stored[position] for position in totals]


def _averaged_means(knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
    stacked = knowledge.stacked_means
    rows = weights.reshape(*weights.shape[:-2], -1).to(stacked.dtype)
    return rows @ stacked.reshape(-1, knowledge.dimension)


class MixturePooling:
    """The convex combination of densities."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the mixture, or the one component that has all the weight."""
        totals, components = _weighted(knowledge, weights)
        return components[0] if len(components) == 1 else Mixture(totals, components)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the weighted means."""
        return _averaged_means(knowledge, weights)


class WassersteinPooling:
    """The 2-Wasserstein barycentre."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the barycentre: a Gaussian with the weighted mean."""
        totals, components = _weighted(knowledge, weights)
        return components[0] if len(components) == 1 else barycentre(totals, components)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the weighted means."""
        return _averaged_means(knowledge, weights)


class EvidencePooling:
    """The posterior of the preference-weighted problem, from the tasks' evidence."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return q_w, with its precision and the mean that solves it."""
        with _saying_what_to_do():
            return self.natural(knowledge, weights).gaussian(knowledge.stacked_means.dtype)

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the means, one solve each."""
        with _saying_what_to_do():
            means = [self.natural(knowledge, row).mean() for row in weights]
        return torch.stack(means).to(knowledge.stacked_means.dtype)

    def natural(self, knowledge: KnowledgeBase, weights: Tensor) -> NaturalParameters:
        r"""Return the natural parameters of q_w: prior + K Σ β_kj · evidence_kj.

        That is P₀μ₀ + K Σ β_kj η_kj and P₀ + K Σ β_kj Λ_kj. With m > 1 priors, q₀ is their
        log-linear pool with weights Σ_k β_kj.

        Examples
        --------
        >>> from ibcl.gaussians import DiagonalGaussian
        >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], d=0)
        >>> _ = knowledge.add("a", [DiagonalGaussian([1.0], [0.5])])
        >>> EvidencePooling().natural(knowledge, torch.tensor([[1.0]])).precision.item()
        4.0
        """
        priors = zip(weights.sum(0).tolist(), knowledge.priors, strict=True)
        prior = [(share, q.natural_parameters()) for share, q in priors if share != 0]
        return linear_combination([*prior, *self._evidence(knowledge, weights)])

    @staticmethod
    def _evidence(
        knowledge: KnowledgeBase, weights: Tensor
    ) -> list[tuple[float, NaturalParameters]]:
        """Evidence with its exponents K β_kj, each a proper likelihood."""
        tasks = len(knowledge.tasks)
        factors = []
        worst = 0.0
        for task, row in zip(knowledge.tasks, weights.tolist(), strict=True):
            for index, weight in enumerate(row):
                if weight != 0:
                    factor, cut = knowledge.evidence(task, index).proper()
                    factors.append((tasks * weight, factor))
                    worst = max(worst, cut)
        if worst > 0:
            warnings.warn(
                f"Evidence was negative in up to {worst:.1%} of a task's parameters and is left "
                "out there; full covariances (DenseVI) do not have this problem.",
                EvidenceWarning,
                stacklevel=4,
            )
        return factors


@contextmanager
def _saying_what_to_do() -> Iterator[None]:
    try:
        yield
    except ImproperError:
        raise ImproperError(
            "The pooled evidence has no positive definite precision: posteriors replaced by "
            "pointers have left evidence that cancels. Learn with d=0 to pool evidence."
        ) from None


RULES: dict[str, PoolingRule] = {}
"""Rules by name, as `register_rule` made them known; the choices there are."""
TITLES: dict[str, str] = {}
"""What people read for each of them."""


def register_rule(name: str, rule: PoolingRule, *, title: str) -> None:
    """Make a rule known by its name to learners, files and the command line.

    Parameters
    ----------
    title
        A few words for tables and help texts.

    Examples
    --------
    >>> register_rule("mixture", RULES["mixture"], title=TITLES["mixture"])
    >>> TITLES["mixture"]
    'mixture of densities'
    """
    if not name.isidentifier():
        raise ValueError(f"A rule's name must be one plain word, not {name!r}.")
    if RULES.setdefault(name, rule) is not rule:
        raise ValueError(f"There is another rule {name!r} already; give this one its own name.")
    TITLES[name] = title


register_rule("wasserstein", WassersteinPooling(), title="Wasserstein barycentre")
register_rule("mixture", MixturePooling(), title="mixture of densities")
register_rule("evidence", EvidencePooling(), title="pooled evidence")


def pooling_rule(name: str) -> PoolingRule:
    """Return a rule by its name."""
    if name not in RULES:
        raise ValueError(f"pooling must be one of {', '.join(RULES)}, not {name!r}.")
    return RULES[name]


def pool(
    knowledge: KnowledgeBase,
    preference: Any,
    rule: str = "wasserstein",
    split: Mapping[str, Sequence[float]] | None = None,
) -> Distribution:
    """Return q_w, the distribution over parameters that a preference selects.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], d=0)
    >>> _ = knowledge.add("a", [DiagonalGaussian([1.0], [0.5])])
    >>> _ = knowledge.add("b", [DiagonalGaussian([3.0], [0.1])])
    >>> q = pool(knowledge, {"a": 0.5, "b": 0.5}, "wasserstein")
    >>> q.mean.item(), round(q.std.item(), 6)
    (2.0, 0.3)
    """
    vector = Preference.parse(preference, knowledge.tasks).vector()
    weights = split_weights(knowledge, torch.as_tensor(vector), split)
    return pooling_rule(rule).pool(knowledge, weights)

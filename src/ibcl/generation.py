"""Models of preferences (Algorithm 2): a preference and a view become a model, without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ibcl.gaussians import Distribution, Gaussian
from ibcl.knowledge import KnowledgeBase
from ibcl.model import CredalSet, Model
from ibcl.pooling import Routed, pooled, split_weights
from ibcl.predictors import Predictor, RoutedNetworks, SingleNetwork
from ibcl.preference import Preference
from ibcl.view import View


def make_model(
    view: View,
    preference: Any,
    split: Mapping[str, Sequence[float]] | None = None,
    provenance: Callable[[], dict[str, Any]] = dict,
) -> Model:
    """Make the model of a preference from a view: what is learnt later does not change it."""
    parsed = Preference.parse(preference, view.knowledge.tasks)
    vector = torch.as_tensor(parsed.vector())
    weights = split_weights(view.knowledge, vector, split)
    rule, knowledge = view.pooling, view.knowledge
    predictor: Predictor
    if isinstance(rule, Routed):
        routes = view.routes
        predictor = RoutedNetworks(
            view.network,
            view.answers,
            routes.means(weights),
            routes.gate,
            vector,
            routes.seen,
        )
        extremes = partial(_heads, rule, knowledge, vector)
        distribution: Callable[[], Distribution] = partial(rule.pool, knowledge, weights)
    else:
        q = pooled(rule, knowledge, weights)
        predictor = SingleNetwork(view.network, view.answers, q.mean)
        extremes = partial(_posteriors, knowledge)
        distribution = q.distribution
    return Model(
        predictor,
        parsed,
        encode=view.encode,
        encoder=view.encoder,
        credal=CredalSet(distribution, extremes),
        alpha=view.alpha,
        seed=view.seed,
        provenance=provenance,
    )


def _posteriors(knowledge: KnowledgeBase) -> Sequence[tuple[int, Gaussian]]:
    return list(enumerate(knowledge.extremes()))


def _heads(
    rule: Routed, knowledge: KnowledgeBase, preference: Tensor
) -> Sequence[tuple[int, Gaussian]]:
    """The heads of all tasks, with the position of each task."""
    return list(enumerate(rule.head_distributions(knowledge, preference)))

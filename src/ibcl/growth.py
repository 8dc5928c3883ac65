r"""Growth: later tasks bring categories and classes that no task had before.

A category is an input of the network, and a class one of its outputs. With the first task's inputs
at the positions π of the larger network, old rows are zero at all other inputs. So neither features
nor densities of earlier tasks change, and their posteriors are embedded exactly: the parameters of
what is new are as the prior has them (`ibcl.gaussians.embedding`). The third class makes two
outputs of one logit, each class against the other, with the same answers.

Experts read the inputs they have learnt and give classes they never saw nothing. Rows kept to
calibrate with are zero at all other inputs; scores stay, as their function has not changed.

A base grows where tasks are independent and routed, with heads linear in their parameters.
Elsewhere new categories have no say, with a warning, and new classes are refused.
"""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ibcl.conformal import Calibration
from ibcl.encoding import Encoder
from ibcl.experts import ExpertPart, Judgement
from ibcl.gaussians import DiagonalGaussian, Gaussian
from ibcl.gaussians.embedding import against_each_other, embedded, embedded_blocks
from ibcl.inference import DenseVI, OneVsRestVI
from ibcl.knowledge import Part
from ibcl.likelihoods import Bernoulli, OneVsRest
from ibcl.networks import FlatNetwork, build
from ibcl.pooling import RoutedEvidence
from ibcl.routing import ClassDensities, RowSketch
from ibcl.state import State
from ibcl.task_scores import TaskScore


@runtime_checkable
class GrowingEncoder(Protocol):
    """An encoder that can make room for what a later task brings."""

    def grown(self, x: Any, y: Any = None) -> tuple[Encoder, Any]:
        """Return a larger encoder, and where this one's inputs are in it; itself if none is new."""


@runtime_checkable
class UnitingEncoder(GrowingEncoder, Protocol):
    """A growing encoder that can become one with another that grew from the same."""

    def united(self, other: Any) -> tuple[Encoder, Any]:
        """Return an encoder with room for both, and where this one's inputs are in it."""

    def positions_in(self, larger: Any) -> Any:
        """Return where this encoder's inputs are in a larger one."""


def grown_together(a: State, b: State) -> tuple[State, State]:
    """Return two states that read tables alike, where each has categories the other has not.

    They are returned as they are where they agree already, where one of them cannot grow, or where
    their classes are known by different numbers.
    """
    ours, theirs = a.encoder, b.encoder
    if not isinstance(ours, UnitingEncoder) or type(ours) is not type(theirs) or ours == theirs:
        return a, b
    if a.settled is None or b.settled is None or not (_can_grow(a) and _can_grow(b)):
        return a, b
    assert isinstance(theirs, UnitingEncoder)
    try:
        larger, _ = ours.united(theirs)
    except ValueError:
        return a, b
    classes = larger.classes or ()
    states = []
    for state, encoder in ((a, ours), (b, theirs)):
        own = state.encoder.classes or () if state.encoder is not None else ()
        if own != classes[: len(own)]:
            return a, b
        same = encoder == larger
        positions = torch.as_tensor(encoder.positions_in(larger))
        states.append(state if same else grown(state, larger, positions))
    return states[0], states[1]


def grown_for(state: State, x: Any, y: Any) -> State:
    """Return a state with room for the categories and classes of a later task; itself if it has.

    Parameters
    ----------
    x, y
        The task's table and labels, as the encoder takes them.
    """
    encoder = state.encoder
    if state.settled is None or not isinstance(encoder, GrowingEncoder) or not _can_grow(state):
        return state
    larger, positions = encoder.grown(x, y)
    if larger is encoder:
        return state
    return grown(state, larger, torch.as_tensor(positions))


def _can_grow(state: State) -> bool:
    specification = state.network.specification or {}
    skips = specification.get("kind") == "linear" or specification.get("skip", False)
    kept = [part for parts in state.knowledge.parts for part in parts.values()]
    return (
        state.knowledge.independent
        and isinstance(state.rule, RoutedEvidence)
        and isinstance(state.inference, DenseVI)
        and skips
        and all(_part_grows(part) for part in kept)
        and state.settings.task_incremental is None
        and all(_plain(prior) for prior in state.knowledge.priors)
    )


def _part_grows(part: Part) -> bool:
    """Whether what a task keeps can be embedded in a larger space."""
    return isinstance(part, ClassDensities | RowSketch | Calibration | Judgement) or (
        isinstance(part, ExpertPart) and part.grows
    )


def _plain(prior: Gaussian) -> bool:
    """Whether all parameters are alike in a prior."""
    if not isinstance(prior, DiagonalGaussian):
        return False
    return bool((prior.mean == prior.mean[0]).all() and (prior.std == prior.std[0]).all())


def grown(state: State, encoder: Encoder, positions: Tensor) -> State:
    """Return a state that reads tables with a larger encoder, and knows what it knew.

    Parameters
    ----------
    positions
        Where the inputs of the state's own encoder are in the larger one.
    """
    old = state.network
    specification = dict(old.specification or {})
    known = specification.get("known", range(specification["inputs"]))
    classes = 0 if encoder.classes is None else len(encoder.classes)
    outputs = classes if classes > 2 else 1
    inputs = int(encoder.width)  # type: ignore[attr-defined]
    if inputs > specification["inputs"]:
        specification["known"] = [int(positions[place]) for place in known]
    specification |= {"inputs": inputs, "outputs": outputs}
    network = FlatNetwork(build(specification), old.device, old.pretrained)
    embedding = _Embedding(old, network, positions)
    knowledge = copy.copy(state.knowledge)
    knowledge.priors = tuple(_widened(q, network.dimension) for q in knowledge.priors)
    stored = list(knowledge.stored)
    for record in knowledge.records:
        for index, place in enumerate(record.posteriors):
            prior = _widened(state.knowledge.prior_of(record.name, index), network.dimension)
            stored[place] = embedding(state.knowledge.stored[place], prior)
    knowledge.restore(
        tuple(stored), knowledge.records, knowledge.moments, knowledge.parts, knowledge.common
    )
    settled = replace(state.settings, priors=knowledge.priors)
    given = state.given
    if given.priors is not None:
        given = replace(given, priors=knowledge.priors)
    if outputs > 1 and isinstance(settled.likelihood, Bernoulli):
        inference: Any = settled.inference
        values = {each.name: getattr(inference, each.name) for each in fields(inference)}
        settled = replace(settled, likelihood=OneVsRest(), inference=OneVsRestVI(**values))
    larger = replace(
        state, network=network, knowledge=knowledge, given=given, settled=settled, encoder=encoder
    )
    knowledge.parts = tuple(
        {kind: _embedded_part(part, embedding, classes) for kind, part in parts.items()}
        for parts in knowledge.parts
    )
    _take_scores_over(state, larger)
    return larger


def _embedded_part(part: Part, embedding: _Embedding, classes: int) -> Part:
    """Return what a task keeps, among the features of a larger network and so many classes."""
    if isinstance(part, ExpertPart):
        return part.grown(embedding.places, max(2, classes) if classes else None)
    if isinstance(part, Calibration) and part.rows == "kept":
        return part.grown(embedding.width, embedding.places[:-1])
    return part


def _take_scores_over(before: State, larger: State) -> None:
    """Sign calibration scores anew, where they are of the function that they were taken of."""
    parts = []
    for task, kept in zip(larger.tasks, larger.knowledge.parts, strict=True):
        known = kept.get(Calibration.kind)
        if isinstance(known, Calibration) and known.rows == "scores":
            signed = bytes(known.tensors()["fingerprint"].tolist())
            if TaskScore(before.only(task)).fingerprint == signed:
                again = TaskScore(larger.only(task)).fingerprint
                kept = {**kept, Calibration.kind: known.rescored(again)}
        parts.append(kept)
    larger.knowledge.parts = tuple(parts)


def _widened(prior: Gaussian, dimension: int) -> DiagonalGaussian:
    """Return the prior of more parameters, all alike."""
    diagonal = prior.as_diagonal()
    assert diagonal is not None
    return DiagonalGaussian(
        diagonal.mean[:1].expand(dimension).clone(), diagonal.std[:1].expand(dimension).clone()
    )


class _Embedding:
    """Posteriors of one network's parameters among those of a larger network."""

    def __init__(self, old: FlatNetwork, new: FlatNetwork, positions: Tensor) -> None:
        before, self.after = old.linear_head(), new.linear_head().positions
        self.sources = before.positions
        count, fewer = len(positions), before.layer.in_features
        self.width = more = self.after.shape[1] - 1
        # Inputs, the random features behind them, and the bias.
        behind = torch.arange(fewer - count) + more - (fewer - count)
        self.places = torch.cat([positions.long(), behind, torch.tensor([more])])

    def __call__(self, posterior: Gaussian, prior: DiagonalGaussian) -> Gaussian:
        """Return a posterior among the parameters of the larger network."""
        if len(self.after) == 1:
            return embedded(posterior, prior, self.after[0, self.places])
        if len(self.sources) > 1:
            return embedded_blocks(posterior, prior, self.sources, self.places, self.after)
        size = self.sources.shape[1]
        two = torch.arange(2 * size).reshape(2, size)
        pair = against_each_other(posterior, two)
        return embedded_blocks(pair, prior, two, self.places, self.after)

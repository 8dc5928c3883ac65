r"""The score of a task alone: fixed when it was learnt, whatever is learnt or forgotten later.

Where only scores are kept of the calibration rows, they must be those of a function that never
changes. Task k's is of the knowledge base that holds no other task (`State.only`):

    s_k(x, y) = log p_k(y | x) + log p_k(x)/(p_k(x) + b_k(x)),

the answer of that base, times the input's share against a background (`ibcl.routing.background`)
where the pooling rule keeps densities. Values have the density of N(f_k, σ_k²) at y, with the
variance σ_k² that the likelihood gives around the prediction f_k.

`fingerprint` tells whether the function is still the one that scores were taken of.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.conformal import Calibration, as_kept, component_scores, label_scores
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.routing import ClassDensities, log_background_share
from ibcl.state import State

Numbers = NDArray[np.float64]
# What a class that the task takes for impossible has as its probability.
_SMALLEST_PROBABILITY = 1e-300


@dataclass(frozen=True, eq=False)
class TaskScore:
    """s_k of one task.

    Parameters
    ----------
    state
        What is known of that task, and of no other.
    """

    state: State

    @cached_property
    def fingerprint(self) -> bytes:
        """Hash of all that the function depends on, in the precision that files have at least."""
        knowledge, digest = self.state.knowledge, hashlib.sha256()
        (record,), (parts,), (moments,) = knowledge.records, knowledge.parts, knowledge.moments
        digest.update(repr((record.noise, self.state.rule)).encode())
        tensors = [posterior.mean for posterior in knowledge.stored]
        if moments is not None:
            tensors += [moments.classes, moments.counts, moments.means]
        for tensor in tensors:
            digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
        for kind in sorted(parts.keys() - {Calibration.kind}):
            digest.update(parts[kind].encode())
        return digest.digest()

    def log_shares(self, features: Tensor) -> Numbers:
        """Log of the input's share against the background, shape (n,); 0 without densities."""
        (parts,) = self.state.knowledge.parts
        record = parts.get(ClassDensities.kind)
        if not isinstance(record, ClassDensities):
            return np.zeros(len(features))
        network = self.state.network
        rows, reads = network.head.features(features).flatten(1), network.known_columns
        return log_background_share(record, rows if reads is None else rows[:, reads]).numpy()

    def of_classes(self, features: Tensor) -> Numbers:
        """s_k of every class, shape (n, classes)."""
        probabilities = self._answers(features).clamp(min=_SMALLEST_PROBABILITY)
        scores: Numbers = self.log_shares(features)[:, None] + probabilities.log().cpu().numpy()
        return scores

    def predictions(self, features: Tensor) -> tuple[Numbers, Numbers]:
        """f_k and σ_k, shape (n,) each."""
        answers = self._answers(features)
        return centres_and_noise(self.state.likelihood, answers)

    def at(self, features: Tensor, answers: Tensor) -> Numbers:
        """s_k at given answers, shape (n,)."""
        if self.state.likelihood.classification:
            return label_scores(self.of_classes(features), answers.cpu().numpy())
        centre, noise = self.predictions(features)
        shares = self.log_shares(features)
        one_task = (part[:, None] for part in (shares, centre, noise))
        return component_scores(answers.cpu().numpy(), *one_task)

    def _answers(self, features: Tensor) -> Tensor:
        predictives = self.state.predictives
        return predictives.at(torch.ones(1, dtype=torch.float64)).means(features)[0].double()


def as_scored(features: Tensor, network: FlatNetwork) -> Tensor:
    """Return features as they are scored, those kept and those to come alike: rounded."""
    return as_kept(network.without_state(features), network.tokens_from).to(network.device)


def centres_and_noise(likelihood: Likelihood, answers: Tensor) -> tuple[Numbers, Numbers]:
    """Expected values, and the standard deviation around them that the likelihood knows of, else 1.

    Parameters
    ----------
    answers
        Expected values, shape (…, 1).
    """
    variance = likelihood.variance(likelihood.outputs_of(answers))
    known = torch.where(variance > 0, variance, 1.0).sqrt()
    return answers[..., 0].double().cpu().numpy(), known[..., 0].double().cpu().numpy()

"""AnaCP: an analytic projection that draws classes together and pushes their targets apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least, positive
from ibcl.experiments.methods.class_moments import ClassMoments
from ibcl.experiments.methods.common_settings import LINEAR, NORM
from ibcl.experiments.methods.registration import CLOSED_FORM, Range, Registration, register


class AnaCP(ClassMoments):
    r"""Momeni, Xiao and Liu, *AnaCP: Toward Upper-Bound Continual Learning*, NeurIPS 2025.

    1. *Targets.* Class means μ_c, whitened by the shared covariance Σ, are USVᵀ; column w_i of SVᵀ
       is moved by α δ_i along column e_i of Vᵀ, δ_i = ±1 the direction in which its cosines with
       the others shrink (the paper's lemma), and whitening is undone: the targets P.
    2. *Projection.* Each of several fixed random layers z = relu(x R) is regressed on the targets
       of its samples' classes, W = (G + λ I)⁻¹ Σ_c (Σ_{i ∈ c} z_i) p_cᵀ, from sums that add up over
       tasks. u(x) is the average of the layers' answers.
    3. *Classifier.* u changes as tasks arrive, so it is learnt anew at every task, from samples
       drawn from N(μ_c, Σ): ridge regression of class indicators on relu(u R').

    As printed, without the adaptation of the backbone in the first session, which stays frozen for
    all methods here. Scores divided by a temperature stand for log densities in Bayes' rule.

    Parameters
    ----------
    width
        Random features of each layer; the authors use 5,000.
    heads
        Random layers; the authors use 3.
    repulsion
        α; the authors use 1.
    ridge
        λ; the authors use 100.
    replayed
        Samples drawn of each class; the authors use 100.
    """

    name = "anacp"

    def __init__(
        self,
        network: nn.Module,
        *,
        width: int = 1000,
        heads: int = 3,
        repulsion: float = 1.0,
        ridge: float = 100.0,
        replayed: int = 100,
        temperature: float = 0.1,
        **settings: Any,
    ) -> None:
        super().__init__(network, temperature=temperature, **settings)
        self.width, self.heads = at_least("width", width, 1), at_least("heads", heads, 1)
        self.repulsion = positive("repulsion", repulsion, or_zero=True)
        self.ridge = positive("ridge", ridge)
        self.replayed = at_least("replayed", replayed, 1)
        self.projections = torch.empty(0, 0, 0)
        self.last_projection = torch.empty(0, 0)
        self.grams = torch.empty(0, 0, 0)
        self.sums = torch.empty(0, 0, 0)
        self.scatter = torch.empty(0, 0, dtype=torch.float64)
        self.contrastive: Tensor | None = None
        self.classifier: Tensor | None = None

    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Add to all sums, and learn projection and classifier from them."""
        generator = self.generator()
        features = x[0].numel()
        if not self.projections.numel():
            shape = (self.heads, features, self.width)
            self.projections = torch.randn(shape, generator=generator)
            self.last_projection = torch.randn(features, self.width, generator=generator)
            self.grams = torch.zeros(self.heads, self.width, self.width, dtype=torch.float64)
            self.sums = torch.zeros(self.heads, self.width, 0, dtype=torch.float64)
        super().learn_classes(x, column, new)
        z = self.hidden(x)
        indicators = (column[:, None] == new).double()
        self.grams = self.grams + z.mT @ z
        self.sums = torch.cat([self.sums, z.mT @ indicators], 2)
        covariance = self.covariance()
        targets = separated(self.means, covariance, self.repulsion)
        identity = torch.eye(self.width, dtype=torch.float64)
        self.contrastive = torch.linalg.solve(
            self.grams + self.ridge * identity, self.sums @ targets
        )
        classes = torch.arange(len(self.means)).repeat_interleave(self.replayed)
        noise = torch.randn(len(classes), features, generator=generator, dtype=torch.float64)
        drawn = self.means[classes] + noise @ torch.linalg.cholesky(covariance).T
        h = self.expanded(drawn.float())
        answers = nn.functional.one_hot(classes, len(self.means)).double()
        self.classifier = torch.linalg.solve(h.T @ h + self.ridge * identity, h.T @ answers)

    def add_scatter(self, scatter: Tensor, n: int) -> None:
        """Add up the scatters of all classes."""
        self.scatter = self.scatter + scatter if self.scatter.numel() else scatter

    def covariance(self) -> Tensor:
        """Σ, with 10⁻⁴ of its average variance on the diagonal, so that it can be inverted."""
        found = self.scatter / self.counts.sum()
        floor = 1e-4 * found.diagonal().mean().clamp(min=1e-12)
        return found + floor * torch.eye(len(found), dtype=torch.float64)

    def hidden(self, x: Tensor) -> Tensor:
        """relu(x R) of every layer, (heads, n, width)."""
        return torch.relu(x.flatten(1) @ self.projections).double()

    def expanded(self, x: Tensor) -> Tensor:
        """relu(u(x) R'), (n, width)."""
        assert self.contrastive is not None
        projected = (self.hidden(x) @ self.contrastive).mean(0)
        return torch.relu(projected @ self.last_projection.double())

    def scores(self, x: Tensor) -> Tensor:
        """The classifier's answers."""
        assert self.classifier is not None
        return (self.expanded(x) @ self.classifier / self.temperature).float()

    @property
    def stored_bytes(self) -> int:
        """Bytes of the random layers and of all sums."""
        kept = (self.projections, self.last_projection, self.grams, self.sums, self.scatter)
        return sum(part.nbytes for part in (*kept, self.means, self.counts))


def separated(means: Tensor, covariance: Tensor, repulsion: float) -> Tensor:
    """Move class means (C, d) apart by their whitened cosines; what the lemma of the paper does.

    Examples
    --------
    >>> means = torch.tensor([[2.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
    >>> moved = separated(means, torch.eye(2, dtype=torch.float64), 0.1)
    >>> cosine = torch.nn.functional.cosine_similarity
    >>> bool(cosine(*moved, dim=0) < cosine(*means, dim=0))
    True
    """
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.sqrt()) @ vectors.T
    whitened = (vectors / values.sqrt()) @ vectors.T @ means.T
    u, s, vt = torch.linalg.svd(whitened, full_matrices=False)
    w = s[:, None] * vt
    lengths = w.norm(dim=0).clamp(min=1e-12)
    inner, along = w.T @ w, vt.T @ w
    # The derivative of Σ_j |cos(w_i + α e_i, w_j)| at α = 0, times ‖w_i‖³.
    slopes = inner.sign() * along * lengths[:, None] ** 2 - along.diagonal()[:, None] * inner.abs()
    slopes = slopes / lengths
    slopes.fill_diagonal_(0.0)
    moved = w - repulsion * slopes.sum(1).sign() * vt
    targets: Tensor = (root @ u @ moved).T
    return targets


register(
    Registration(
        "anacp",
        "AnaCP",
        AnaCP,
        CLOSED_FORM,
        LINEAR,
        1.0,
        {"temperature": 0.1, "ridge": 100.0, "repulsion": 1.0, "width": 1000},
        {
            **NORM,
            "temperature": Range(0.02, 1.0),
            "ridge": Range(1e-2, 1e3),
            "repulsion": (0.0, 0.3, 1.0),
        },
    )
)

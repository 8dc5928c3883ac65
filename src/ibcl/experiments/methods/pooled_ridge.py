"""Pooled ridge regression: every task's sums, weighted by the preference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import positive
from ibcl.experiments.methods.class_scores import ClassScores, bayes_rule
from ibcl.experiments.methods.registration import CLOSED_FORM, Range, Registration, register
from ibcl.tasks import as_inputs


class PooledRidge(ClassScores):
    r"""Least squares on labels, solved anew for every preference without any data.

    With φ the fixed features and 1, and targets y = ±1 (or indicators of the classes), a task's
    sums G_k = Σ φ φᵀ / n_k and q_k = Σ φ yᵀ / n_k are all that the weighted problem needs:

        θ_w = argmin Σ_k w_k mean_k ‖y − θᵀφ‖² + λ ‖θ‖² = (Σ_k w_k G_k + λ I)⁻¹ Σ_k w_k q_k.

    What evidence pooling does for logistic regression, exact for squared error. Among the classes
    of all tasks it regresses on their indicators with equal weights, and Bayes' rule adds log w_k.

    Parameters
    ----------
    ridge
        λ.
    temperature
        t, which the regression's answers are divided by.
    """

    name = "pooled_ridge"

    def __init__(
        self,
        network: nn.Module,
        *,
        ridge: float = 1e-2,
        temperature: float = 0.2,
        **settings: Any,
    ) -> None:
        super().__init__(network, **settings)
        self.ridge = positive("ridge", ridge)
        self.temperature = positive("temperature", temperature)
        self.grams: list[Tensor] = []
        self.products: list[Tensor] = []
        self.sums: list[Tensor] = []

    def features(self, x: Tensor) -> Tensor:
        """φ(x): the network's fixed features, and 1."""
        with torch.no_grad():
            fixed = self.network.linear_head().features(x.flatten(1))
        return torch.cat([fixed, torch.ones(len(x), 1)], 1)

    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Keep the task's sums, of labels and of classes."""
        phi = self.features(x)
        labels = self.columns[column, 1]
        targets = torch.nn.functional.one_hot(labels, max(2, self.outputs)).float()
        if self.outputs == 1:
            targets = targets[:, 1:] - targets[:, :1]
        self.grams.append(phi.T @ phi / len(phi))
        self.products.append(phi.T @ targets / len(phi))
        self.sums.append(phi.T @ (column[:, None] == new).float() / len(phi))

    def predict_logits(self, x: Any) -> Tensor:
        """Return the answers of each preference's regression, (preferences, n, outputs)."""
        if not self.grams:
            raise ValueError(f"{self.name} has not learnt a task yet: call learn first.")
        phi = self.features(as_inputs(x)).double()
        answers = [phi @ self._solve(w, self.products) for w in self.preferences]
        return (torch.stack(answers) / self.temperature).float()

    def _solve(self, weights: Tensor, products: list[Tensor]) -> Tensor:
        gram = sum(w * g for w, g in zip(weights, self.grams, strict=True))
        right = sum(w * q for w, q in zip(weights, products, strict=True))
        assert isinstance(gram, Tensor)
        assert isinstance(right, Tensor)
        ridged = gram.double() + self.ridge * torch.eye(len(gram)).double()
        solution: Tensor = torch.linalg.solve(ridged, right.double())
        return solution

    def predict_classes(self, x: Any) -> Tensor:
        """Return log p(k, c | x, w) of each preference, of shape (preferences, n, C)."""
        scores = self.scores(as_inputs(x))
        return bayes_rule(scores, self.columns[:, 0], self.preferences)

    def scores(self, x: Tensor) -> Tensor:
        """Answers of the regression on classes, of which each task has its own."""
        products = []
        for k, part in enumerate(self.sums):
            wide = torch.zeros(len(part), len(self.columns))
            wide[:, self.columns[:, 0] == k] = part
            products.append(wide)
        equal = torch.full((len(self.grams),), 1 / len(self.grams))
        theta = self._solve(equal, products)
        return (self.features(x).double() @ theta / self.temperature).float()

    @property
    def stored_bytes(self) -> int:
        """Bytes of every task's sums."""
        return sum(part.nbytes for part in (*self.grams, *self.products, *self.sums))


register(
    Registration(
        "pooled_ridge",
        "pooled ridge",
        PooledRidge,
        CLOSED_FORM,
        "random:1500",
        10.0,
        {"ridge": 3e-4, "temperature": 0.2},
        {
            "feature_norm": (3.0, 10.0, 30.0),
            "ridge": Range(1e-6, 1e-1),
            "temperature": Range(0.02, 1.0),
        },
    )
)

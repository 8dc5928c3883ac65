"""RegMean: each linear layer is merged by the regression that its inputs define."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import share
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.many_models import affine
from ibcl.experiments.methods.merging import Merging
from ibcl.experiments.methods.registration import MERGING, Registration, register
from ibcl.tasks import TaskData


class RegMean(Merging):
    r"""Jin et al., *Dataless Knowledge Fusion by Merging Weights of Language Models*, ICLR 2023.

    With G_k the mean of a aᵀ over the inputs a of a layer in task k's own model, its off-diagonal
    entries multiplied by `kept`, the layer's merged weights are the least-squares compromise

        W_w = (Σ_k w_k G_k)⁻¹ Σ_k w_k G_k W_k        (as columns; biases are averaged by w).

    Parameters
    ----------
    kept
        The paper's α, 0.9 there: how much of the off-diagonal is kept.
    """

    name = "regmean"

    def __init__(self, network: nn.Module, *, kept: float = 0.9, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.kept = share("kept", kept)
        if self.models.layers is None:
            raise ValueError("regmean merges linear layers: give a network of linear layers only.")
        self.layers = self.models.layers
        self.grams: list[list[Tensor]] = []

    def describe(self, theta: Tensor, current: TaskData, generator: torch.Generator) -> None:
        """Keep the Gram matrix of every linear layer's inputs."""
        grams = []
        parameters = iter(self.network.unflatten(theta[None]).values())
        hidden = current.x[None]
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                a = hidden[0]
                gram = a.T @ a / len(a)
                diagonal = torch.diag(gram.diagonal())
                grams.append(self.kept * (gram - diagonal) + diagonal)
                bias = layer.bias is not None
                hidden = affine(hidden, next(parameters), next(parameters) if bias else None)
            else:
                hidden = layer(hidden)
        self.grams.append(grams)

    def merge(self, preferences: Tensor) -> Tensor:
        """Solve every layer's regression for every preference."""
        merged = preferences @ self.task_models
        models = self.network.unflatten(self.task_models)
        results = self.network.unflatten(merged)
        matrices = [name for name, values in models.items() if values.ndim == 3]
        for position, name in enumerate(matrices):
            grams = torch.stack([task[position] for task in self.grams]).double()
            right = grams @ models[name].double().mT
            left = torch.einsum("pk,kij->pij", preferences.double(), grams)
            # Inputs that no task uses (dead units) leave their weights undetermined.
            left.diagonal(dim1=1, dim2=2).add_(
                1e-6 * left.diagonal(dim1=1, dim2=2).mean(1)[:, None]
            )
            target = torch.einsum("pk,kio->pio", preferences.double(), right)
            results[name].copy_(torch.linalg.solve(left, target).mT)
        return torch.cat([part.flatten(1) for part in results.values()], 1)

    @property
    def stored_bytes(self) -> int:
        """Bytes of a model and its layers' Gram matrices per task."""
        return super().stored_bytes + sum(gram.nbytes for task in self.grams for gram in task)


register(
    Registration(
        "regmean",
        "RegMean",
        RegMean,
        MERGING,
        MLP,
        10.0,
        {**GRADIENT, "kept": 0.9},
        {**DECAYED, "kept": (0.7, 0.9, 1.0)},
    )
)

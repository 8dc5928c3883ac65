"""Training by minibatches, of many models at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

from ibcl.experiments.methods.checked import at_least, positive
from ibcl.experiments.methods.many_models import ManyModels
from ibcl.experiments.methods.per_sample import per_sample_gradients
from ibcl.tasks import TaskData

Gradient = Callable[[Tensor, Tensor, int], Tensor]
"""From parameters (P, D), the rows of a minibatch and the epoch to the gradient to descend on."""

Slope = Callable[[Tensor, Tensor], Tensor]
"""From outputs (P, n, outputs) and answers (n, ...) to the derivative of each loss by its outputs.
"""


@dataclass(frozen=True)
class Descent:
    """Adam with a learning rate that falls to zero along a cosine.

    Parameters
    ----------
    epochs, batch_size, learning_rate
        Of Adam, afresh at every descent. A minibatch is the same for all models.
    weight_decay
        λ of a penalty ½ λ ‖θ‖² on every model's loss.
    """

    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 5e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        at_least("epochs", self.epochs, 1)
        at_least("batch_size", self.batch_size, 1)
        positive("learning_rate", self.learning_rate)
        positive("weight_decay", self.weight_decay, or_zero=True)

    def run(
        self, thetas: Tensor, samples: int, gradient: Gradient, generator: torch.Generator
    ) -> int:
        """Train all models together, in place: `epochs` passes over so many samples.

        One fused Adam steps every model at once; Adam works coordinate by coordinate, so each model
        goes exactly where it would have gone alone. The networks are small: what an optimiser
        object does around a step would cost as much as the step.

        Returns
        -------
        Updates, counted per model.

        Examples
        --------
        >>> thetas = torch.tensor([[4.0], [-2.0]])
        >>> descent = Descent(epochs=100, batch_size=1, learning_rate=0.3)
        >>> descent.run(thetas, 1, lambda thetas, rows, epoch: 2 * (thetas - 1), torch.Generator())
        200
        >>> (thetas - 1).abs().max() < 0.1
        tensor(True)
        """
        mean, square = torch.zeros_like(thetas), torch.zeros_like(thetas)
        taken = torch.zeros(())
        thetas.grad = torch.zeros_like(thetas)
        steps = self.epochs * math.ceil(samples / self.batch_size)
        schedule = iter(0.5 * (1 + math.cos(math.pi * step / steps)) for step in range(steps))
        for epoch in range(self.epochs):
            for rows in torch.split(torch.randperm(samples, generator=generator), self.batch_size):
                direction = gradient(thetas, rows, epoch)
                adam(
                    [thetas],
                    [direction],
                    [mean],
                    [square],
                    [],
                    [taken],
                    fused=True,
                    amsgrad=False,
                    beta1=0.9,
                    beta2=0.999,
                    lr=self.learning_rate * next(schedule),
                    weight_decay=self.weight_decay,
                    eps=1e-8,
                    maximize=False,
                )
        thetas.grad = None
        return steps * len(thetas)


def of_weighted_loss(
    models: ManyModels, slope: Slope, data: TaskData, importance: Tensor
) -> Gradient:
    """The gradient of 1/n Σ_s importance_s · loss_s on a minibatch; importance has shape (P, N).

    Examples
    --------
    >>> from ibcl.networks import FlatNetwork, linear
    >>> models = ManyModels(FlatNetwork(linear(1)))
    >>> data = TaskData(torch.tensor([[1.0], [2.0]]), torch.zeros(2))
    >>> importance = torch.tensor([[1.0, 3.0]])
    >>> gradient = of_weighted_loss(models, lambda f, y: torch.ones_like(f), data, importance)
    >>> gradient(torch.zeros(1, 2), torch.tensor([0, 1]), 0)  # (1·1 + 3·2) / 2, (1 + 3) / 2
    tensor([[3.5000, 2.0000]])
    """

    def gradient(thetas: Tensor, rows: Tensor, _: int) -> Tensor:
        x, y = data.x[rows], data.y[rows]
        samples = per_sample_gradients(models, thetas, x, lambda outputs: slope(outputs, y))
        return samples.combine(importance[:, rows] / len(rows), out=thetas.grad)

    return gradient

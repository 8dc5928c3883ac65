"""One network over all classes of all tasks, trained once for all preferences."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ibcl import networks
from ibcl.experiments.methods.class_scores import ClassScores
from ibcl.experiments.methods.descent import Descent, of_weighted_loss
from ibcl.experiments.methods.many_models import ManyModels
from ibcl.likelihoods import Categorical
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData


class ClassNetwork(ClassScores):
    r"""A softmax over the classes (k, c) of all tasks; the training is the subclass's.

    All tasks count the same in training, whatever their sizes, so that the network's log
    probabilities are log p(x, c | k) + a term that all classes share, and Bayes' rule turns them
    into the answer to any preference.

    Parameters
    ----------
    network
        The hidden layers to use; it must come from `ibcl.networks`, which can rebuild it with as
        many outputs as there are classes.
    epochs, batch_size, learning_rate, weight_decay
        As in `Descent`.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        epochs: int = 20,
        batch_size: int = 32,
        learning_rate: float = 5e-3,
        weight_decay: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(network, **settings)
        if self.network.specification is None:
            raise ValueError(
                f"{self.name} needs a network of ibcl.networks, which it can rebuild with an "
                f"output for every class; a {type(network).__name__} cannot be."
            )
        self.descent = Descent(epochs, batch_size, learning_rate, weight_decay)
        self.over_classes: FlatNetwork | None = None
        self.thetas = torch.empty(0, 0)

    @abstractmethod
    def samples(self) -> list[tuple[Tensor, Tensor]]:
        """Inputs and columns of every task's samples at hand."""

    @abstractmethod
    def start(self, network: FlatNetwork, generator: torch.Generator) -> Tensor:
        """Where training of this network starts from, of shape (D,)."""

    def train(self) -> None:
        """Minimise the softmax's loss, all tasks counting the same."""
        network = FlatNetwork(self.resized(len(self.columns)))
        generator = self.generator()
        thetas = self.starts(network, generator)
        parts = self.samples()
        x, column = (torch.cat(part) for part in zip(*parts, strict=True))
        sizes = torch.tensor([len(rows) for rows, _ in parts])
        importance = (len(x) / (len(sizes) * sizes)).repeat_interleave(sizes)
        gradient = of_weighted_loss(
            ManyModels(network),
            Categorical().slope,
            TaskData(x, column),
            importance.expand(len(thetas), -1),
        )
        self.updates += self.descent.run(thetas, len(x), gradient, generator)
        self.over_classes, self.thetas = network, thetas

    def resized(self, outputs: int) -> nn.Module:
        """Build the same network with so many outputs."""
        specification = self.network.specification
        assert specification is not None
        return networks.build({**specification, "outputs": outputs})

    def starts(self, network: FlatNetwork, generator: torch.Generator) -> Tensor:
        """Where training starts from, (M, D): one network, unless the subclass has several."""
        return self.start(network, generator)[None]

    def scores(self, x: Tensor) -> Tensor:
        """The network's log probabilities."""
        return self.member_scores(x)[0]

    def member_scores(self, x: Tensor) -> Tensor:
        """Log probabilities of every network that was trained, (M, n, C)."""
        assert self.over_classes is not None
        return ManyModels(self.over_classes)(self.thetas, x).log_softmax(-1)


def grown(theta: Tensor, old: FlatNetwork, new: FlatNetwork, start: Tensor) -> Tensor:
    """Carry parameters over to a network with more outputs; new outputs keep those of `start`.

    Examples
    --------
    >>> old, new = (FlatNetwork(networks.linear(1, outputs)) for outputs in (1, 2))
    >>> grown(torch.tensor([5.0, 6.0]), old, new, torch.zeros(4))  # two weights, then two biases
    tensor([5., 0., 6., 0.])
    """
    result = start.clone()
    parts = new.unflatten(result)
    for name, value in old.unflatten(theta).items():
        parts[name][: len(value)] = value
    return torch.cat([part.flatten() for part in parts.values()])

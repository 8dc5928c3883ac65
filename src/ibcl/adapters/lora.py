"""LoRA as an expert: one adapter per task from the same base, with a head of its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import nn

from ibcl.adapters.adapted import default_targets, fresh
from ibcl.adapters.adapter import Adapter
from ibcl.adapters.configuration import Configuration
from ibcl.adapters.resuming import with_state
from ibcl.adapters.training import probe, targets, train
from ibcl.backbones import FrozenBackbone, carrying_inputs, with_backbone
from ibcl.experts.expert import Expert
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData


@dataclass(frozen=True)
class LoRA(Expert):
    """Fine-tunes a low-rank adapter of the base model for every task (LoRA, by peft).

    A linear head is fitted on the frozen features first, and then adapter and head are learnt
    together: an adapter that starts behind a random head first unlearns what the base knows.

    Parameters
    ----------
    rank
        Of the change ΔW = (alpha/rank) BA of a layer's weights.
    target_modules
        Layers to adapt, as peft takes them: names, ends of names, or a regular expression. Where
        None: peft's choice for architectures it knows, else every linear and convolutional layer.
        Layers near the output alone are much faster to learn and to run: what is below them is run
        once, for gate and adapters alike.
    alpha
        The scale of the change; twice the rank where None.
    share
        λ of a task's answer λ adapter + (1 − λ) evidence head, above 0 and at most 1; 1 is the
        adapter alone. Where None, a quarter of the task's rows says it, which an adapter and a head
        learnt from the others have not seen (`ibcl.experts.share`); both then learn all rows.

    Examples
    --------
    >>> LoRA(rank=4).description()["rank"]
    4
    """

    rank: int = 8
    target_modules: tuple[str, ...] | str | None = None
    alpha: float | None = None
    epochs: int = 3
    learning_rate: float = 1e-3
    batch_size: int = 32
    share: float | None = None

    name: ClassVar[str] = "lora"
    reads_inputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        targets = self.target_modules
        if targets is not None and not isinstance(targets, str):
            object.__setattr__(self, "target_modules", tuple(map(str, targets)))
        for name in ("rank", "epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive whole number, not {value!r}.")
        for name, value in (("learning_rate", self.learning_rate), ("alpha", self.alpha)):
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive, not {value!r}.")
        if self.share is not None and not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {self.share!r}.")

    def network(self, module: nn.Module) -> nn.Module:
        """Return the network with which to learn: heads on the frozen base, inputs carried along.

        Parameters
        ----------
        module
            The base model, or what `ibcl.networks.with_backbone` made of it.
        """
        if isinstance(module, nn.Sequential) and len(module) and hasattr(module[0], "takes_tokens"):
            return self._with_state(carrying_inputs(module))
        if hasattr(module, "specification"):
            raise ValueError(
                "LoRA adapts a base model, which a network of ibcl.networks has not: give the "
                "model, or ibcl.networks.with_backbone(model)."
            )
        return self._with_state(carrying_inputs(with_backbone(module)))

    def _with_state(self, network: nn.Sequential) -> nn.Sequential:
        """Let φ carry the state below the adapted layers, where there is any."""
        frozen = network[0]
        assert isinstance(frozen, FrozenBackbone)
        if frozen.state_of is not None:
            return network
        try:
            adapted = fresh(frozen, self.configuration(frozen.backbone), 0)
        except ValueError:
            # Refused when a task is learnt; adapters trained elsewhere need no such layers.
            return network
        carrying = with_state(frozen, adapted.layers())
        if carrying is not None:
            network[0] = carrying
        return network

    def configuration(self, backbone: nn.Module) -> Configuration:
        """Return peft's settings for a base model."""
        targets = self.target_modules
        chosen = default_targets(backbone) if targets is None else targets
        return {
            "r": self.rank,
            "lora_alpha": 2 * self.rank if self.alpha is None else self.alpha,
            "target_modules": list(chosen) if isinstance(chosen, tuple) else chosen,
        }

    def fit(self, data: TaskData, classes: int | None, seed: int) -> Adapter:
        """Refused: an adapter is learnt `fit_on` its base."""
        raise ValueError("An adapter is learnt on its base model: use fit_on.")

    def fit_on(
        self, network: FlatNetwork, data: TaskData, classes: int | None, seed: int
    ) -> Adapter:
        """Learn a task's adapter and head.

        Parameters
        ----------
        network
            Begins with the base model.
        data
            Features of the frozen base, with the inputs behind them.
        """
        frozen = network.backbone
        if frozen is None or not frozen.carries_inputs:
            raise ValueError("An adapter is learnt on its base model: make the learner with it.")
        columns = network.columns
        seen, y = targets(data.y, classes is not None)
        features = data.x.flatten(1)
        head = probe(features[:, :columns], y, data.weights, seen is not None)
        try:
            adapted = fresh(frozen, self.configuration(frozen.backbone), abs(seed) % 2**63)
        except ValueError as error:
            raise ValueError(f"No adapter can be learnt: {str(error).rstrip('.')}.") from None
        adapted.to(network.device)
        train(
            adapted,
            head,
            features[:, :columns],
            features[:, columns:],
            y,
            data.weights,
            epochs=self.epochs,
            rate=self.learning_rate,
            batch=self.batch_size,
            seed=seed,
        )
        kept = tuple(value.detach().cpu().clone() for value in (head.weight, head.bias))
        return Adapter(
            adapted.configuration(),
            adapted.tensors(),
            (kept[0], kept[1]),
            None if seen is None else seen.cpu(),
            y.shape[1] if classes is None else classes,
        )

    def description(self) -> dict[str, Any]:
        """Return its settings."""
        found = dataclasses.asdict(self)
        targets = found["target_modules"]
        found["target_modules"] = list(targets) if isinstance(targets, tuple) else targets
        return found

    @classmethod
    def from_description(cls, description: Any) -> Self:
        """Return it with its settings."""
        names = {each.name for each in dataclasses.fields(cls)}
        if not isinstance(description, dict) or set(description) != names:
            raise ValueError(f"LoRA is described by {', '.join(sorted(names))}.")
        try:
            return cls(**description)
        except TypeError as error:
            raise ValueError(f"This describes no LoRA: {error}.") from None

    @classmethod
    def decode(cls, data: bytes) -> Adapter:
        """Return a fitted adapter."""
        return Adapter.decode(data)

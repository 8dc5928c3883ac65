"""A base model with one adapter inside; the base's own weights are shared, and never changed."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ibcl.adapters.configuration import Configuration, lora_config, peft, understood
from ibcl.adapters.resuming import noise, resuming, skipped, within
from ibcl.backbones import FrozenBackbone

Tensors = Mapping[str, Tensor]


class Adapted(nn.Module):
    """A frozen backbone read as it always is, with an adapter of peft inside.

    Parameters
    ----------
    frozen
        The backbone; its structure is copied, its weights are shared.
    tensors
        The adapter's, by the names that peft writes; a fresh adapter, which changes no answer,
        where None.
    """

    def __init__(
        self, frozen: FrozenBackbone, configuration: Configuration, tensors: Tensors | None = None
    ) -> None:
        super().__init__()
        shared = {id(it): it for it in (*frozen.backbone.parameters(), *frozen.backbone.buffers())}
        base = copy.deepcopy(frozen.backbone, shared)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.peft = peft().get_peft_model(
                    base, lora_config(configuration), autocast_adapter_dtype=False
                )
        except (ValueError, TypeError, AttributeError, re.error) as error:
            said = str(error).splitlines()[0].rstrip(".")
            raise ValueError(f"the adapter does not fit the base model: {said}") from None
        self.own = [value for value in self.peft.parameters() if value.requires_grad]
        self.frozen = FrozenBackbone(
            self.peft.get_base_model(), frozen.layers, frozen.pool, input_shape=frozen.input_shape
        )
        self.frozen.state_shape = frozen.state_shape
        self.skipped = skipped(frozen)
        if any(within(name, self.skipped) for name in self.layers()):
            # Trained elsewhere, on lower layers too: run as a whole.
            self.skipped = ()
        self.known = _known(frozen, self.skipped)
        read = [name for name in frozen.layers if name not in self.known]
        self.upper = FrozenBackbone(self.frozen.backbone, read, frozen.pool)
        if tensors is not None:
            self._load(tensors)

    def layers(self) -> list[str]:
        """Return the names of the layers that are adapted."""
        layer = peft().tuners.tuners_utils.BaseTunerLayer
        base = self.peft.get_base_model()
        return [name for name, module in base.named_modules() if isinstance(module, layer)]

    def _load(self, tensors: Tensors) -> None:
        expected = self.tensors()
        lacking, unknown = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
        if lacking or unknown:
            name = min(lacking or unknown)
            what = "lacks" if lacking else "holds, and the base model has no place for,"
            raise ValueError(f"the adapter {what} {name}")
        for name, value in tensors.items():
            if value.shape != expected[name].shape:
                raise ValueError(
                    f"{name} has the shape {tuple(value.shape)}, but the base model needs "
                    f"{tuple(expected[name].shape)}"
                )
        peft().set_peft_model_state_dict(self.peft, dict(tensors))

    def tensors(self) -> dict[str, Tensor]:
        """Return the adapter's tensors by the names that peft writes."""
        found = peft().get_peft_model_state_dict(self.peft, save_embedding_layers=False)
        return {name: value.detach().cpu().clone().contiguous() for name, value in found.items()}

    def configuration(self) -> Configuration:
        """Return the configuration with all that peft has filled in."""
        return understood(self.peft.peft_config["default"].to_dict())

    def learnable(self) -> list[nn.Parameter]:
        """Return the adapter's parameters, made ready to be learnt."""
        return [value.requires_grad_(True) for value in self.own]

    def forward(self, read: Tensor, carried: Tensor) -> Tensor:
        """φ of the adapted base.

        Parameters
        ----------
        read
            φ of the frozen base, whose depths below the adapted layers are taken as they are.
        carried
            What φ carries: inputs, and their state where passes may begin behind it.
        """
        inputs, state = self.frozen.given(carried)
        if state is None or not self.skipped:
            return self.frozen.read(inputs)
        with resuming(self.frozen.backbone, self.skipped, state):
            if not self.known:
                return self.upper.read(inputs)
            depths = iter(self.upper.depths(inputs) if self.upper.layers else ())
        parts = [
            read[:, self.known[name]] if name in self.known else next(depths)
            for name in self.frozen.layers
        ]
        return torch.cat(parts, 1)

    def logits(self, carried: Tensor) -> Tensor:
        """What the base model's own classification layer returns."""
        inputs, state = self.frozen.given(carried)
        if state is None or not self.skipped:
            return self.frozen.logits(inputs)
        with resuming(self.frozen.backbone, self.skipped, state):
            return self.frozen.logits(inputs)


def _known(frozen: FrozenBackbone, skipped: Sequence[str]) -> dict[str, slice]:
    """Which columns of φ are depths of skipped blocks, by the depths' names."""
    inputs = noise(frozen) if any(within(name, skipped) for name in frozen.layers) else None
    if inputs is None:
        return {}
    parameter = next(frozen.parameters())
    with torch.no_grad():
        ends = np.cumsum([0, *(it.shape[1] for it in frozen.depths(inputs.to(parameter.device)))])
    columns = map(slice, ends[:-1].tolist(), ends[1:].tolist())
    places = dict(zip(frozen.layers, columns, strict=True))
    return {name: place for name, place in places.items() if within(name, skipped)}


def fresh(frozen: FrozenBackbone, configuration: Configuration, seed: int) -> Adapted:
    """Return a backbone with a new adapter, seeded."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Adapted(frozen, configuration)


def restored(frozen: FrozenBackbone, configuration: Configuration, tensors: Tensors) -> Adapted:
    """Return a backbone with a known adapter; nothing random is used up."""
    with torch.random.fork_rng(devices=[]):
        return Adapted(frozen, configuration, tensors)


def default_targets(backbone: nn.Module) -> list[str] | None:
    """Return which layers to adapt: None where peft knows the architecture, else all it can.

    Examples
    --------
    >>> default_targets(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Linear(4, 2)))
    ['0', '2']
    """
    known = peft().utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    if getattr(getattr(backbone, "config", None), "model_type", None) in known:
        return None
    found = [
        name
        for name, module in backbone.named_modules()
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
    ]
    if not found:
        raise ValueError(
            "The base model has no linear or convolutional layer to adapt: name others with "
            "target_modules=."
        )
    return found

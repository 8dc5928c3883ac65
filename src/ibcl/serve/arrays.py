"""Inputs that are no table: arrays of numbers such as images, and token ids of texts.

A knowledge base on a network of its user's own (`ibcl.networks.with_backbone`, adapters, any torch
module) has no columns. Its inputs come as nested lists, one entry per row, or as what a tokenizer
of `transformers` returns. Every row is checked before it shares a batch with other callers'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ibcl.networks import FlatNetwork
from ibcl.serve.errors import ApiError
from ibcl.serve.messages import Inputs, TokenIds

Array = NDArray[Any]
# More than this single precision does not hold.
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class ArrayInputs:
    """What a network takes that reads no table.

    Parameters
    ----------
    shape
        Of one row of numbers; None for token ids.
    vocabulary, longest
        How many token ids there are, and how many a text may have at most.
    padding
        The id that stands for no token, where no mask says so.

    Examples
    --------
    >>> pixels = ArrayInputs((2, 2))
    >>> pixels.stacked(pixels.rows([[[1, 2], [3, 4]]]))
    tensor([[[1., 2.],
             [3., 4.]]])
    >>> texts = ArrayInputs(None, vocabulary=100)
    >>> texts.stacked(texts.rows(TokenIds(input_ids=[[5, 7], [9]]))).shape
    torch.Size([2, 2, 2])
    """

    shape: tuple[int, ...] | None
    vocabulary: int | None = None
    longest: int | None = None
    padding: int | None = None

    @classmethod
    def of(cls, network: FlatNetwork) -> ArrayInputs:
        """Return what a network that ibcl did not build takes."""
        frozen = network.backbone
        module = network.template if frozen is None else frozen.backbone
        if frozen is not None and frozen.takes_tokens:
            config = getattr(module, "config", None)
            tables = (each for each in module.modules() if isinstance(each, nn.Embedding))
            return cls(
                None,
                getattr(config, "vocab_size", None) or next(tables).num_embeddings,
                getattr(config, "max_position_embeddings", None),
                getattr(config, "pad_token_id", None),
            )
        shape = None if frozen is None else frozen.input_shape
        if shape is None:
            leaves = [each for each in module.modules() if not any(each.children())]
            if leaves and isinstance(leaves[0], nn.Linear):
                shape = (leaves[0].in_features,)
        if shape is None:
            raise ValueError(
                "The shape of this network's inputs is not known, so it cannot be served: put "
                "it behind ibcl.networks.with_backbone(module, example=inputs)."
            )
        return cls(shape)

    def __str__(self) -> str:
        if self.shape is None:
            return "token ids"
        return f"arrays of numbers of the shape {self.shape}"

    @property
    def blank(self) -> Tensor:
        """One row without any meaning."""
        if self.shape is None:
            return torch.tensor([[[0.0], [1.0]]])
        return torch.zeros(1, *self.shape)

    def rows(self, inputs: Inputs) -> list[Array]:
        """Return the rows of a request; what does not fit is refused."""
        if self.shape is None:
            return self._texts(inputs)
        if isinstance(inputs, TokenIds):
            raise ApiError(409, f"This knowledge base reads {self}, not token ids.")
        values = numbers(inputs)
        if values.shape[1:] != self.shape:
            raise ApiError(
                409,
                f"This knowledge base reads {self}, but these inputs have {values.shape[1:]}; send "
                "a list with one entry per row.",
            )
        return [*values]

    def stacked(self, rows: Sequence[Array]) -> Tensor:
        """Return rows as the network's inputs; texts get the length of the longest of them."""
        if self.shape is not None:
            return torch.as_tensor(np.stack(rows))
        longest = max(row.shape[1] for row in rows)
        found = np.zeros((len(rows), 2, longest), dtype=np.int64)
        for place, row in zip(found, rows, strict=True):
            place[:, : row.shape[1]] = row
        return torch.as_tensor(found).float()

    def _texts(self, inputs: Inputs) -> list[Array]:
        """Every text as ids and mask, shape (2, tokens)."""
        if not isinstance(inputs, TokenIds):
            raise ApiError(
                409,
                "This knowledge base reads token ids: send inputs as a tokenizer returns them, "
                '{"input_ids": [[...]], "attention_mask": [[...]]}.',
            )
        masks = inputs.attention_mask
        if masks is None:
            masks = [[float(one != self.padding) for one in ids] for ids in inputs.input_ids]
        if [len(mask) for mask in masks] != [len(ids) for ids in inputs.input_ids]:
            raise ApiError(409, "The attention_mask must have one number for every token id.")
        longest = max(map(len, inputs.input_ids))
        if self.longest is not None and longest > self.longest:
            raise ApiError(
                409, f"A text has {longest} tokens, but the base model takes {self.longest}."
            )
        largest = int(max(max(ids) for ids in inputs.input_ids))
        if self.vocabulary is not None and largest >= self.vocabulary:
            raise ApiError(
                409,
                f"The token id {largest} is not one of the base model's, which are below "
                f"{self.vocabulary}.",
            )
        return [np.array(row, dtype=np.int64) for row in zip(inputs.input_ids, masks, strict=True)]


def numbers(inputs: Inputs) -> NDArray[np.float32]:
    """Return nested lists of finite numbers as an array with one entry per row."""
    if isinstance(inputs, TokenIds):
        raise ApiError(409, "This knowledge base reads numbers, not token ids.")
    try:
        values = np.array(inputs)
    except ValueError:
        raise ApiError(422, "inputs: The lists must have the same length throughout.") from None
    if values.dtype.kind not in "if" or not (np.abs(values) <= _LARGEST).all():
        raise ApiError(422, "inputs: Send lists of finite numbers and nothing else.")
    return values.astype(np.float32)

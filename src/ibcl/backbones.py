"""Frozen backbones: trained modules as fixed features φ(x), of their output or of inner layers.

A backbone is any torch module, also one of `transformers` or `timm`. Nothing of it is learnt, and
nothing is fitted to a task: every depth read is scaled to unit norm row by row, so that φ(x) is the
same whichever task comes first.

Text comes as token ids. They are whole numbers that single precision holds exactly (up to 2²⁴, far
above any vocabulary), so that they travel like all other inputs: ids alone, of shape (n, length),
or with their attention mask, of shape (n, 2, length), as `token_ids` makes them of what a
tokenizer returns.

Where something behind the gate reads the inputs themselves (`ibcl.adapters`), φ carries them along:
[features | inputs], one flat row per sample (`carrying_inputs`). Heads and gate read the first
columns only. Token ids are carried with -1 where the mask is zero, so that rows of different
lengths differ in nothing but -1s at their end.

Where only the upper layers are ever adapted, φ also carries what the last layer below them returns,
[features | inputs | state], so that the lower ones run once for all that stands behind the gate.
Whatever has no state (rows that are kept for later) is run from its inputs, to the same answer.
"""

from __future__ import annotations

import copy
import hashlib
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

POOLS = ("masked-mean", "first")
AUTO = "auto"
# Attribute of modules whose weights are no start of learning.
REDRAWN = "drawn_anew"
# Samples that go through a backbone at once.
_ROWS = 256
# What is carried along in place of a token that the attention mask leaves out.
NO_TOKEN = -1.0
# The last column behind tokens and their state; no token is as small.
_STATE_BEFORE = -2.0
# Hooks belong to a module, not to a pass through it: with two passes at once, one would read what
# the other computes.
ONE_PASS = threading.RLock()


def token_ids(tokens: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return what a tokenizer gave, ids and attention mask, as one array of shape (n, 2, length).

    Parameters
    ----------
    tokens
        A mapping with ``"input_ids"`` and, where there is padding, ``"attention_mask"``; all texts
        padded to the same length (``padding=True``).

    Examples
    --------
    >>> token_ids({"input_ids": [[5, 7, 0]], "attention_mask": [[1, 1, 0]]})
    array([[[5, 7, 0],
            [1, 1, 0]]])
    """
    if "input_ids" not in tokens:
        raise ValueError(
            "tokens must hold 'input_ids', as a tokenizer of transformers returns them, not "
            f"{', '.join(map(repr, tokens)) or 'nothing'}."
        )
    mask = tokens.get("attention_mask")
    try:
        ids = np.asarray(tokens["input_ids"]).astype(np.int64, casting="safe")
        known = np.ones_like(ids) if mask is None else np.asarray(mask).astype(np.int64)
    except (ValueError, TypeError):
        raise ValueError(
            "input_ids must be whole numbers in rows of the same length: tokenize with "
            "padding=True."
        ) from None
    if ids.ndim != 2 or known.shape != ids.shape:
        raise ValueError(
            f"input_ids of shape {ids.shape} and an attention_mask of shape {known.shape} do not "
            "fit: both must have one row per text and one column per token."
        )
    return np.stack([ids, known], 1)


class FirstColumns(nn.Module):
    """The first columns of φ, which heads read where inputs come behind them."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, features: Tensor) -> Tensor:
        """φ without what comes behind."""
        return features.flatten(1)[:, : self.columns]


class FrozenBackbone(nn.Module):
    """A trained module whose parameters stay as they are, as fixed features φ(x).

    Without `layers`, φ is what the module returns: a tensor, flat; or of a model of `transformers`,
    without the head it may have, the pooled last hidden states, else the pooler's output, else the
    logits. With `layers`, φ is what these inner modules return, pooled, each scaled to unit norm,
    one after another.

    Parameters
    ----------
    layers
        Names of inner modules, as in ``backbone.named_modules()``.
    pool
        How positions (of tokens, or of an image) become one row: ``"masked-mean"``, their mean
        without padding; ``"first"``, the first one.
    carries_inputs
        Whether the inputs come along behind the features.
    input_shape
        Of one sample, where inputs are not token ids; needed to give carried inputs back.
    state_of
        The inner layer whose output comes along behind the inputs, where there is one.
    """

    rows_at_once = _ROWS
    open_layers = False
    """Whether the first task is to choose the layers (`ibcl.depths`)."""
    state_shape: tuple[int, ...]
    """Of the state carried for a sample; of tokens, of one token."""

    def __init__(
        self,
        backbone: nn.Module,
        layers: Sequence[str] = (),
        pool: str = "masked-mean",
        carries_inputs: bool = False,
        input_shape: tuple[int, ...] | None = None,
        state_of: str | None = None,
    ) -> None:
        super().__init__()
        if pool not in POOLS:
            raise ValueError(f"pool must be one of {', '.join(POOLS)}, not {pool!r}.")
        if isinstance(layers, str):
            raise ValueError(f"layers must be a list of names, such as [{layers!r}], not a text.")
        known = [name for name, _ in backbone.named_modules() if name]
        for name in layers:
            if name not in known:
                raise ValueError(f"The backbone has no layer {name!r}; it has {_shortened(known)}.")
        self.backbone = backbone.requires_grad_(False).eval()
        self.layers, self.pool = tuple(layers), pool
        self.carries_inputs, self.input_shape = carries_inputs, input_shape
        self.state_of, self.state_shape = state_of, ()
        self.takes_tokens = _takes_tokens(backbone)
        self.takes_mask = "attention_mask" in signature(backbone.forward).parameters

    def train(self, mode: bool = True) -> FrozenBackbone:
        """Stay in evaluation mode, whatever becomes of the head behind it."""
        super().train(mode)
        self.backbone.eval()
        return self

    @property
    def reading(self) -> tuple[str, ...]:
        """What is read, beside what its parameters say; empty where it is the output's mean."""
        plain = self.pool == POOLS[0] and not self.layers and not self.carries_inputs
        return () if plain else (self.pool, *self.layers, *["inputs"] * self.carries_inputs)

    @property
    def fingerprint(self) -> str:
        """Hash of the backbone's weights and buffers, whatever is read of it."""
        digest = hashlib.sha256()
        for name, value in sorted(self.backbone.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def forward(self, x: Tensor) -> Tensor:
        """φ(x), one flat row per sample, with what is carried behind it."""
        states = () if self.state_of is None else (self.state_of,)
        with torch.no_grad(), self._reading(states) as read:
            features = self.read(x)
        if not self.carries_inputs:
            return features
        parts = [features, self.carried(x).to(features)]
        for name in states:
            parts.append(as_tensor(read[name]).flatten(1).to(features))
            if self.takes_tokens:
                parts.append(features.new_full((len(features), 1), _STATE_BEFORE))
        return torch.cat(parts, 1)

    def carried(self, x: Tensor) -> Tensor:
        """Inputs as φ carries them, one flat row per sample."""
        if not self.takes_tokens:
            return x.flatten(1)
        ids, mask = self._tokens(x)
        return ids.float().masked_fill(mask == 0, NO_TOKEN)

    def given(self, carried: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the inputs that were carried, and their state if it was carried too.

        Of tokens: with their mask, and without needless ends.
        """
        inputs, state = self._parted(carried)
        if not self.takes_tokens:
            assert self.input_shape is not None
            inputs = inputs.reshape(len(inputs), *self.input_shape)
            return inputs, None if state is None else state.reshape(len(state), *self.state_shape)
        known = torch.nonzero((inputs != NO_TOKEN).any(0)).flatten()
        length = int(known[-1]) + 1 if len(known) else 1
        if state is not None:
            state = state.reshape(*inputs.shape, *self.state_shape)[:, :length]
        ids = inputs[:, :length]
        return torch.stack([ids.clamp(min=0), (ids != NO_TOKEN).to(ids)], 1), state

    def without_state(self, carried: Tensor) -> Tensor:
        """Return the inputs that were carried, flat, without any state."""
        return self._parted(carried)[0]

    def _parted(self, carried: Tensor) -> tuple[Tensor, Tensor | None]:
        """Inputs and state, flat."""
        if self.takes_tokens:
            if not len(carried) or not carried.shape[1] or carried[0, -1] != _STATE_BEFORE:
                return carried, None
            length = (carried.shape[1] - 1) // (1 + math.prod(self.state_shape))
            return carried[:, :length], carried[:, length:-1]
        size = math.prod(self.input_shape or ())
        return carried[:, :size], carried[:, size:] if carried.shape[1] > size else None

    def read(self, x: Tensor) -> Tensor:
        """φ(x) alone; gradients pass to whatever in the backbone has them."""
        if self.layers:
            return torch.cat(self.depths(x), 1)
        x, mask, given = self._arguments(x)
        # The body of a model of `transformers`: a head that it may have is another task's.
        body = getattr(self.backbone, "base_model", None)
        output = (body if isinstance(body, nn.Module) else self.backbone)(x, **given)
        if isinstance(output, Tensor):
            return output.flatten(1)
        hidden = getattr(output, "last_hidden_state", None)
        if hidden is not None:
            return self._pooled(hidden, mask)
        pooled = getattr(output, "pooler_output", None)
        features: Tensor = (output.logits if pooled is None else pooled).flatten(1)
        return features

    def depths(self, x: Tensor) -> list[Tensor]:
        """What each of the layers returns, pooled and scaled to unit norm."""
        x, mask, given = self._arguments(x)
        with self._reading(self.layers) as read:
            self.backbone(x, **given)
        pooled = [self._pooled(as_tensor(read[name]), mask) for name in self.layers]
        return [functional.normalize(depth, dim=1) for depth in pooled]

    def logits(self, x: Tensor) -> Tensor:
        """What the backbone's own last layer returns."""
        x, _, given = self._arguments(x)
        output = self.backbone(x, **given)
        found: Tensor = output if isinstance(output, Tensor) else output.logits
        return found

    def _arguments(self, x: Tensor) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
        """Inputs, the mask of tokens, and what else to call the backbone with."""
        if not self.takes_tokens:
            return x, None, {}
        ids, mask = self._tokens(x)
        return ids, mask, {"attention_mask": mask} if self.takes_mask else {}

    def _tokens(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids and attention mask, as whole numbers."""
        if x.ndim not in (2, 3) or (x.ndim == 3 and x.shape[1] != 2):
            raise ValueError(
                "token ids must have the shape (n, length), or (n, 2, length) with their attention "
                f"mask (ibcl.networks.token_ids), not {tuple(x.shape)}"
            )
        whole = x.long()
        if x.is_floating_point() and not torch.compiler.is_compiling() and bool((whole != x).any()):
            raise ValueError("token ids must be whole numbers")
        if x.ndim == 3:
            return whole[:, 0], whole[:, 1]
        padding = getattr(getattr(self.backbone, "config", None), "pad_token_id", None)
        known = torch.ones_like(whole) if padding is None else (whole != padding).long()
        return whole, known

    @contextmanager
    def _reading(self, layers: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Collect what layers return while the backbone runs."""
        read: dict[str, Any] = {}
        if not layers:
            yield read
            return

        def keep(name: str) -> Any:
            return lambda _module, _inputs, output: read.__setitem__(name, output)

        modules = [self.backbone.get_submodule(name) for name in layers]
        with ONE_PASS:
            hooks = [
                module.register_forward_hook(keep(name))
                for name, module in zip(layers, modules, strict=True)
            ]
            try:
                yield read
            finally:
                for hook in hooks:
                    hook.remove()

    def _pooled(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """One row per sample of (n, columns), (n, tokens, columns) or (n, columns, height, ...)."""
        if hidden.ndim == 2:
            return hidden
        positions = hidden.flatten(2).transpose(1, 2) if hidden.ndim > 3 else hidden
        if self.pool == "first":
            return positions[:, 0]
        if mask is None or mask.shape != positions.shape[:2]:
            return positions.mean(1)
        # Of a text without any token, the mean is zero.
        shares = mask.to(positions)
        return (positions * shares[:, :, None]).sum(1) / shares.sum(1, keepdim=True).clamp(min=1)


def as_tensor(output: Any) -> Tensor:
    """Return the tensor among what a layer returned: itself, or the first of several."""
    while not isinstance(output, Tensor):
        output = output[0]
    return output


def _takes_tokens(backbone: nn.Module) -> bool:
    """Whether inputs are token ids: an embedding is the first thing that computes."""
    told = getattr(backbone, "main_input_name", None)
    if told is not None:
        return bool(told == "input_ids")
    leaves = (module for module in backbone.modules() if not any(module.children()))
    return isinstance(next(leaves, None), nn.Embedding)


def _shortened(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def with_backbone(
    backbone: nn.Module,
    features: int | None = None,
    outputs: int = 1,
    *,
    layers: Sequence[str] | str = (),
    pool: str = "masked-mean",
    example: Any = None,
) -> nn.Sequential:
    """Put a linear head on a frozen backbone: any torch module, or one of `transformers` or `timm`.

    Only the head is learnt, so `DenseVI` and routed evidence apply. The backbone is copied, and
    kept in evaluation mode.

    Parameters
    ----------
    features
        How many numbers φ has per sample; measured where None.
    layers
        Inner layers to read, by their names in ``backbone.named_modules()``; each is pooled and
        scaled to unit norm. Several depths are mostly better than the last one alone. The
        backbone's output where there are none. ``"auto"`` leaves the choice to held-out rows of the
        first task (`ibcl.depths`).
    pool
        How positions become one row: ``"masked-mean"`` (without padding) or ``"first"``.
    example
        Inputs to measure `features` with, where the backbone does not say what it takes.

    Examples
    --------
    >>> from ibcl.networks import FlatNetwork
    >>> convolutions = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3))
    >>> images = torch.zeros(2, 1, 8, 8)
    >>> network = FlatNetwork(with_backbone(convolutions, layers=["1", "2"], example=images))
    >>> network.features(images).shape
    torch.Size([2, 10])
    """
    frozen = FrozenBackbone(copy.deepcopy(backbone), () if layers == AUTO else layers, pool)
    frozen.open_layers = layers == AUTO
    blank = _blank(frozen, example)
    if blank is not None and not frozen.takes_tokens:
        frozen.input_shape = tuple(blank.shape[1:])
    if features is None:
        features = _measured(frozen, blank)
    for name, size in (("features", features), ("outputs", outputs)):
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be a positive whole number, not {size!r}.")
    network = nn.Sequential(frozen, nn.Linear(features, outputs))
    vars(network)[REDRAWN] = True
    return network


def begins_with_backbone(network: nn.Module) -> bool:
    """Whether a network is what `with_backbone` returned, and not a base model alone.

    Examples
    --------
    >>> base = nn.Linear(3, 4)
    >>> begins_with_backbone(base), begins_with_backbone(with_backbone(base, 4))
    (False, True)
    """
    layers = list(network) if isinstance(network, nn.Sequential) else []
    return bool(layers) and isinstance(layers[0], FrozenBackbone)


def carrying_inputs(network: nn.Module) -> nn.Sequential:
    """Return a network of `with_backbone` whose features carry its inputs along.

    Examples
    --------
    >>> network = with_backbone(nn.Linear(3, 4), example=torch.zeros(1, 3))
    >>> carrying_inputs(network)[0](torch.ones(2, 3)).shape
    torch.Size([2, 7])
    """
    if not begins_with_backbone(network):
        raise ValueError(
            "Inputs are carried behind a frozen backbone: make the network with "
            "ibcl.networks.with_backbone."
        )
    assert isinstance(network, nn.Sequential)
    frozen, last = network[0], network[-1]
    assert isinstance(frozen, FrozenBackbone)
    if frozen.carries_inputs:
        return network
    if not isinstance(last, nn.Linear) or len(network) != 2:
        raise ValueError("Behind a backbone whose inputs are carried stands one linear layer.")
    if not frozen.takes_tokens and frozen.input_shape is None:
        raise ValueError(
            "The shape of the inputs cannot be inferred from the backbone: give some of them to "
            "ibcl.networks.with_backbone as example=."
        )
    shape = frozen.input_shape
    carrying = FrozenBackbone(frozen.backbone, frozen.layers, frozen.pool, True, shape)
    carrying.open_layers = frozen.open_layers
    result = nn.Sequential(carrying, FirstColumns(last.in_features), last)
    vars(result).update({REDRAWN: True} if hasattr(network, REDRAWN) else {})
    return result


def with_layers(network: nn.Module, layers: Sequence[str], columns: int) -> nn.Sequential:
    """Return a network whose layers were open with these layers.

    Parameters
    ----------
    columns
        How many numbers they give together.
    """
    assert isinstance(network, nn.Sequential)
    frozen, last = network[0], network[-1]
    assert isinstance(frozen, FrozenBackbone)
    assert isinstance(last, nn.Linear)
    carries, shape = frozen.carries_inputs, frozen.input_shape
    chosen = FrozenBackbone(frozen.backbone, layers, frozen.pool, carries, shape, frozen.state_of)
    chosen.state_shape = frozen.state_shape
    head = nn.Linear(columns, last.out_features, last.bias is not None)
    reads = [FirstColumns(columns)] if carries else []
    result = nn.Sequential(chosen, *reads, head.to(last.weight.device))
    vars(result)[REDRAWN] = True
    return result


def with_chosen_layers(network: nn.Module, layers: Sequence[str], dimension: int) -> nn.Module:
    """Return a network with the layers that were chosen, if its own are open.

    Parameters
    ----------
    dimension
        Parameters of the head behind these layers.
    """
    if not isinstance(network, nn.Sequential) or not getattr(network[0], "open_layers", False):
        return network
    last = network[-1]
    assert isinstance(last, nn.Linear)
    columns = dimension // last.out_features - (last.bias is not None)
    return with_layers(network, layers, columns)


def _blank(frozen: FrozenBackbone, example: Any) -> Tensor | None:
    """Return an input to measure with: the example's first, or a blank one; None if unknown."""
    if example is not None:
        return torch.as_tensor(example)[:1].float()
    if frozen.takes_tokens:
        return torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])
    config = getattr(frozen.backbone, "config", None)
    size = getattr(config, "image_size", None)
    if isinstance(size, int):
        return torch.zeros(1, getattr(config, "num_channels", 3), size, size)
    return None


def _measured(frozen: FrozenBackbone, blank: Tensor | None) -> int:
    """How many numbers φ has, measured on an input."""
    if blank is None:
        raise ValueError(
            "How many features the backbone has cannot be inferred: give features=, or inputs to "
            "measure it with as example=, to ibcl.networks.with_backbone."
        )
    inputs = blank.to(next(frozen.parameters(), torch.zeros(0)).device)
    try:
        return int(frozen(inputs).shape[1])
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"The backbone cannot take inputs of shape {tuple(inputs.shape[1:])}: {said}."
        ) from None


def redrawn(module: nn.Module) -> nn.Module:
    """Return a copy of a module whose weights are no start: they are drawn anew, seeded.

    A module that `ibcl.networks` did not build is taken as trained: its weights are where learning
    starts and the centre of the prior. This says that they are not.

    Examples
    --------
    >>> from ibcl.networks import FlatNetwork
    >>> FlatNetwork(nn.Linear(2, 1)).pretrained, FlatNetwork(redrawn(nn.Linear(2, 1))).pretrained
    (True, False)
    """
    copied = copy.deepcopy(module)
    vars(copied)[REDRAWN] = True
    return copied

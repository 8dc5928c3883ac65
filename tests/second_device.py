"""A second device to compute on, where there is only a processor.

Tensors on it are ordinary ones that say they live elsewhere. Like those of a real device they
refuse to be mixed with others, except with numbers (tensors without dimensions), and to become
numpy arrays before they have been moved. The name is that of torch's device without values. A
generator belongs to one device, and only draws there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
HERE = torch.device("cpu")
aten = torch.ops.aten


class Elsewhere(Tensor):
    """A tensor on the second device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Elsewhere:
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
            requires_grad=inner.requires_grad,
        )
        made.inner = inner
        return made

    def __repr__(self) -> str:
        return f"Elsewhere({self.inner})"

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _compute(function, args, kwargs or {})


def _inner(value: Any) -> Any:
    if isinstance(value, Elsewhere):
        return value.inner
    return HERE if isinstance(value, torch.device) else value


def _compute(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
    moves = function in (aten._to_copy.default, aten.copy_.default)
    if there and not moves and any(t.ndim for t in tensors if not isinstance(t, Elsewhere)):
        raise RuntimeError(f"{function} was given tensors on two devices.")
    wanted = kwargs.get("device")
    stays = bool(there) if wanted is None else wanted == DEVICE
    if function is aten.copy_.default:
        stays = isinstance(args[0], Elsewhere)
    result = function(*tree_map(_inner, list(args)), **tree_map(_inner, dict(kwargs)))
    if not stays:
        return result
    if torch.Tag.inplace_view in function.tags:
        # The shape of the outer tensor changes too.
        with no_dispatch():
            function(*args, **kwargs)
    # What is changed in place is still the tensor that it was.
    known = {id(tensor.inner): tensor for tensor in there}

    def outer(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else Elsewhere(value)

    return tree_map(outer, result)


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _compute(function, args, kwargs or {})


_Generator = torch.Generator


class ElsewhereGenerator(_Generator):
    """A generator of the second device."""

    device = DEVICE

    def __new__(cls, device: Any = HERE) -> Any:
        there = torch.device(device) == DEVICE
        return _Generator.__new__(cls) if there else _Generator(device)


def _check_generator(generator: Any, args: Sequence[Any], wanted: Any) -> None:
    given = next((leaf.device for leaf in tree_leaves(args) if isinstance(leaf, Tensor)), HERE)
    place = given if wanted is None else torch.device(wanted)
    if generator is not None and generator.device != place:
        raise RuntimeError(f"A generator of {generator.device} was to draw on {place}.")


class _Numbers(TorchFunctionMode):
    """Numbers that become tensors do so without any operation."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        _check_generator(kwargs.get("generator"), args, kwargs.get("device"))
        if function in (torch.tensor, torch.as_tensor) and kwargs.get("device") == DEVICE:
            return function(*args, **{**kwargs, "device": HERE}).to(DEVICE)
        if function is Tensor.new_tensor and isinstance(args[0], Elsewhere):
            return torch.tensor(args[1], dtype=kwargs.get("dtype", args[0].dtype)).to(DEVICE)
        if function is Tensor.__getitem__ and isinstance(args[1], list):
            return args[0][torch.tensor(args[1]).to(args[0].device)]
        return function(*args, **kwargs)


@contextmanager
def second_device() -> Iterator[None]:
    """While this is entered, there is a second device."""
    with _Numbers(), _Operations(), patch.object(torch, "Generator", ElsewhereGenerator):
        yield

"""Where adapted passes may begin: behind the layers that no adapter changes.

A chain of blocks whose first ones are not adapted is run once, frozen, for gate and heads; adapters
go on from what the last of these returned. That holds only if nothing else reads what the skipped
blocks compute, so it is tried: a fresh adapter changes nothing, and the pass that goes on from the
state must give the same features as the whole one.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.backbones import ONE_PASS, FrozenBackbone, as_tensor
from ibcl.depths import blocks

# Of the trial: rows, tokens, and how far two passes may differ, as part of the largest number.
_ROWS, _TOKENS = 2, 5
CLOSE = 1e-4


def noise(frozen: FrozenBackbone) -> Tensor | None:
    """Return random inputs that a backbone can take; None where it does not say what it takes."""
    generator = torch.Generator().manual_seed(0)
    if frozen.takes_tokens:
        tables = (it for it in frozen.backbone.modules() if isinstance(it, nn.Embedding))
        words = max((it.num_embeddings for it in tables), default=2)
        ids = torch.randint(0, words, (_ROWS, _TOKENS), generator=generator)
        mask = torch.ones_like(ids)
        mask[-1, -2:] = 0
        return torch.stack([ids * mask, mask], 1).float()
    if frozen.input_shape is None:
        return None
    return torch.randn(_ROWS, *frozen.input_shape, generator=generator)


def last_before(frozen: FrozenBackbone, adapted: Collection[str], inputs: Tensor) -> str | None:
    """Return the last block of the backbone's chain that is done before any adapted layer begins.

    Parameters
    ----------
    adapted
        Names of the layers that are adapted.
    """
    begun: dict[str, int] = {}
    done: dict[str, int] = {}
    calls: dict[str, int] = {}
    clock = iter(range(10**9))

    def begin(name: str) -> Any:
        def note(_module: nn.Module, _given: Any) -> None:
            begun.setdefault(name, next(clock))
            calls[name] = calls.get(name, 0) + 1

        return note

    def end(name: str) -> Any:
        return lambda _module, _given, _output: done.__setitem__(name, next(clock))

    hooks = []
    for name, module in frozen.backbone.named_modules():
        hooks.append(module.register_forward_pre_hook(begin(name)))
        hooks.append(module.register_forward_hook(end(name)))
    try:
        with torch.no_grad():
            frozen.read(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    first = min((begun[name] for name in adapted if name in begun), default=0)
    chain = blocks(frozen.backbone)
    before = [name for name in chain if name in done and done[name] < first]
    in_order = before == list(chain[: len(before)]) and all(calls[name] == 1 for name in before)
    return before[-1] if before and in_order else None


def skipped(frozen: FrozenBackbone) -> tuple[str, ...]:
    """Return the blocks that need not be run where their state is carried."""
    chain = blocks(frozen.backbone)
    return () if frozen.state_of is None else chain[: chain.index(frozen.state_of) + 1]


def within(name: str, some: Sequence[str]) -> bool:
    """Whether a module is one of some modules, or inside of one.

    Examples
    --------
    >>> within("layer.1.query", ["layer.1"]), within("layer.10", ["layer.1"])
    (True, False)
    """
    return any(name == each or name.startswith(each + ".") for each in some)


@contextmanager
def resuming(backbone: nn.Module, names: Sequence[str], state: Tensor) -> Iterator[None]:
    """Let blocks return a state in place of what they would compute, for one pass at a time."""
    modules = [backbone.get_submodule(name) for name in names]
    with ONE_PASS:
        for module in modules:
            vars(module)["forward"] = lambda *_given, **_options: state
        try:
            yield
        finally:
            for module in modules:
                del vars(module)["forward"]


def with_state(frozen: FrozenBackbone, adapted: Collection[str]) -> FrozenBackbone | None:
    """Return a backbone that carries the state behind which adapters begin, if there is one.

    Parameters
    ----------
    frozen
        Carries its inputs.
    adapted
        Names of the layers that are adapted.
    """
    inputs = noise(frozen)
    if inputs is None:
        return None
    parameter = next(frozen.parameters(), None)
    inputs = inputs if parameter is None else inputs.to(parameter.device)
    try:
        block = last_before(frozen, adapted, inputs)
        if block is None:
            return None
        carrying = FrozenBackbone(
            frozen.backbone, frozen.layers, frozen.pool, True, frozen.input_shape, block
        )
        carrying.open_layers = frozen.open_layers
        state = _state(carrying, block, inputs)
        if state is None:
            return None
        carrying.state_shape = tuple(state.shape[2 if frozen.takes_tokens else 1 :])
        return carrying if _goes_on(carrying, state, inputs) else None
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError):
        # A model that cannot be run so is run as a whole.
        return None


def _state(frozen: FrozenBackbone, block: str, inputs: Tensor) -> Tensor | None:
    """What a block returns to inputs, where it is one tensor."""
    found: list[Any] = []
    hook = frozen.backbone.get_submodule(block).register_forward_hook(
        lambda _module, _given, output: found.append(output)
    )
    try:
        with torch.no_grad():
            frozen.read(inputs)
    finally:
        hook.remove()
    output = found[0]
    fits = isinstance(output, Tensor) and output.is_floating_point() and len(output) == len(inputs)
    if not fits or (frozen.takes_tokens and output.shape[1:2] != inputs.shape[2:3]):
        return None
    return as_tensor(output)


def _goes_on(frozen: FrozenBackbone, state: Tensor, inputs: Tensor) -> bool:
    """Whether the output is the same where the skipped blocks are not run at all."""
    shared = {id(it): it for it in (*frozen.backbone.parameters(), *frozen.backbone.buffers())}
    own = FrozenBackbone(copy.deepcopy(frozen.backbone, shared), (), frozen.pool)
    with torch.no_grad():
        expected = own.read(inputs)
        with resuming(own.backbone, skipped(frozen), state):
            found = own.read(inputs)
    return bool((found - expected).abs().max() <= CLOSE * expected.abs().max())

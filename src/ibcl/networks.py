"""Networks: three small heads, and any `torch.nn.Module` seen as one flat parameter vector θ.

`linear`, `mlp` and `random_features` build the heads used throughout; each remembers the
specification it was built from, so that a stored knowledge base can rebuild it without pickle.
`with_backbone` puts a linear head on a frozen backbone (`ibcl.backbones`), and `redrawn` says that
a module's weights are no start. `FlatNetwork` is the view the rest of the
library works with: f(θ, x) with θ in R^D. Its fixed part, such as a backbone, comes first and knows
no θ: x becomes features φ(x) once, and everything after that, the *head*, starts from φ.
"""

from __future__ import annotations

import copy
import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ibcl.backbones import (
    REDRAWN,
    FirstColumns,
    FrozenBackbone,
    begins_with_backbone,
    carrying_inputs,
    redrawn,
    token_ids,
    with_backbone,
    with_chosen_layers,
)
from ibcl.ram import check_memory

__all__ = [
    "ACTIVATIONS",
    "BUILDERS",
    "FlatNetwork",
    "FrozenBackbone",
    "LinearHead",
    "RandomReLUFeatures",
    "Specification",
    "SpecifiedNetwork",
    "begins_with_backbone",
    "build",
    "carrying_inputs",
    "linear",
    "mlp",
    "random_features",
    "redrawn",
    "token_ids",
    "with_backbone",
    "with_chosen_layers",
]

Specification = dict[str, Any]
# Samples whose fixed features are computed at once.
_FEATURE_ROWS = 4096

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


class SpecifiedNetwork(nn.Sequential):
    """A head that remembers how it was built."""

    def __init__(self, specification: Specification, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.specification = specification


class RandomReLUFeatures(nn.Module):
    """A fixed layer φ(x) = √(2/width) · relu(xW + b) with seeded random W and b.

    W is drawn from N(0, scale²/inputs) and b from N(0, 1). With `skip`, x itself comes before them:
    [x, φ(x)]. Nothing in it is ever trained, so a linear layer behind it stays linear in its
    parameters. With `exact`, products are in double precision, so that no row's features depend on
    the rows that they are computed with. Inputs that are not among those `known` when W was drawn
    have no weights in it, and are seen by what follows through `skip` alone.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        inputs: int,
        width: int,
        scale: float,
        seed: int,
        skip: bool = False,
        exact: bool = False,
        known: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.skip, self.exact = skip, exact
        generator = torch.Generator().manual_seed(seed)
        places = list(range(inputs) if known is None else known)
        drawn = torch.randn(len(places), width, generator=generator)
        weight = torch.zeros(inputs, width)
        weight[places] = drawn * scale / math.sqrt(len(places))
        self.register_buffer("weight", weight)
        self.register_buffer("bias", torch.randn(width, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        """φ(x), or [x, φ(x)]."""
        # In single precision a product's rounding depends on the rows it is computed with.
        double = self.exact and not torch.compiler.is_compiling()
        inputs = x.double() if double else x
        product = (inputs @ self.weight.to(inputs) + self.bias.to(inputs)).to(x)
        features = torch.relu(product) * math.sqrt(2 / self.weight.shape[1])
        return torch.cat([x, features], -1) if self.skip else features


def _sizes(**sizes: int) -> list[int]:
    """Return sizes as Python has them, whatever kind of whole number they came as."""
    for name, size in sizes.items():
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be a positive whole number, not {size!r}.")
    return [int(size) for size in sizes.values()]


def _affordable(*widths: int) -> None:
    """Refuse layers of these widths where the machine could not hold them."""
    numbers = sum((before + 1) * after for before, after in pairwise(widths))
    what = f"A network of layers of {', '.join(f'{width:,}' for width in widths)} numbers"
    # The module itself, the copy that is learnt from, and parameters with their deviations.
    check_memory(4 * 4 * numbers, what, "use narrower layers")


def _check_known(inputs: int, known: Sequence[int] | None) -> dict[str, list[int]]:
    """Return what a specification says of the inputs a network began with."""
    if known is None:
        return {}
    places = list(known)
    whole = all(isinstance(each, int) and 0 <= each < inputs for each in places)
    if not places or not whole or len(set(places)) < len(places):
        raise ValueError(f"known must be different positions below {inputs}, not {known!r}.")
    return {"known": places}


def linear(inputs: int, outputs: int = 1, known: Sequence[int] | None = None) -> SpecifiedNetwork:
    """Build logistic, softmax or linear regression on the features.

    Parameters
    ----------
    known
        Positions of the inputs that a network had before it grew; all where None.

    Examples
    --------
    >>> linear(512)(torch.zeros(2, 512)).shape
    torch.Size([2, 1])
    """
    inputs, outputs = _sizes(inputs=inputs, outputs=outputs)
    _affordable(inputs, outputs)
    grown = _check_known(inputs, known)
    specification = {"kind": "linear", "inputs": inputs, "outputs": outputs, **grown}
    return SpecifiedNetwork(specification, nn.Linear(inputs, outputs))


def mlp(
    inputs: int, hidden: int | Sequence[int] = 64, outputs: int = 1, activation: str = "relu"
) -> SpecifiedNetwork:
    """Build a feed-forward network; the paper's is ``mlp(512, hidden=64)``.

    Examples
    --------
    >>> FlatNetwork(mlp(512, hidden=64)).dimension
    32897
    """
    inputs, outputs = _sizes(inputs=inputs, outputs=outputs)
    several = hidden if isinstance(hidden, Iterable) else [hidden]
    widths = _sizes(**{f"hidden[{i}]": width for i, width in enumerate(several)})
    _affordable(inputs, *widths, outputs)
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, not {activation!r}.")
    layers: list[nn.Module] = []
    for before, after in zip([inputs, *widths], widths, strict=False):
        layers += [nn.Linear(before, after), ACTIVATIONS[activation]()]
    layers.append(nn.Linear([inputs, *widths][-1], outputs))
    specification = {
        "kind": "mlp",
        "inputs": inputs,
        "hidden": widths,
        "outputs": outputs,
        "activation": activation,
    }
    return SpecifiedNetwork(specification, *layers)


def random_features(
    inputs: int,
    width: int = 256,
    outputs: int = 1,
    scale: float = 2.0,
    seed: int = 0,
    skip: bool = False,
    exact: bool = False,
    known: Sequence[int] | None = None,
) -> SpecifiedNetwork:
    """Build a linear head behind a fixed, seeded layer of random ReLU features.

    Non-linear in x and still linear in its parameters, so `DenseVI` applies.

    Parameters
    ----------
    skip
        Give x itself to the head too, so that what is linear in x is never lost.
    exact
        Compute the features in double precision, so that no answer depends on the other rows of
        its batch.
    known
        Positions of the inputs that random features are of; all where None.

    Examples
    --------
    >>> FlatNetwork(random_features(64, width=256)).dimension
    257
    >>> FlatNetwork(random_features(64, width=256, skip=True)).dimension
    321
    """
    inputs, width, outputs = _sizes(inputs=inputs, width=width, outputs=outputs)
    _affordable(inputs, width, outputs)
    for name, value in {"skip": skip, "exact": exact}.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}.")
    if not isinstance(seed, Integral) or not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed must be a whole number of at most 64 bits, not {seed!r}.")
    seed = int(seed)
    specification = {
        "kind": "random_features",
        "inputs": inputs,
        "width": width,
        "outputs": outputs,
        "scale": scale,
        "seed": seed,
        "skip": skip,
    }
    if exact:
        # Heads of earlier versions are known by specifications without it.
        specification["exact"] = True
    specification |= _check_known(inputs, known)
    features = RandomReLUFeatures(inputs, width, scale, seed, skip, exact, known)
    return SpecifiedNetwork(specification, features, nn.Linear(inputs * skip + width, outputs))


BUILDERS: dict[str, Callable[..., SpecifiedNetwork]] = {
    "linear": linear,
    "mlp": mlp,
    "random_features": random_features,
}


def build(specification: Mapping[str, Any]) -> SpecifiedNetwork:
    """Rebuild a head from its specification.

    Examples
    --------
    >>> build(linear(3).specification)(torch.zeros(1, 3)).shape
    torch.Size([1, 1])
    """
    arguments = dict(specification)
    kind = arguments.pop("kind", None)
    if kind not in BUILDERS:
        raise ValueError(f"Unknown network kind {kind!r}; known are {', '.join(BUILDERS)}.")
    try:
        return BUILDERS[kind](**arguments)
    except TypeError as error:
        raise ValueError(f"The description of the {kind} network is not valid: {error}.") from None


def _count_fixed(layers: Sequence[nn.Module]) -> int:
    """Count the layers before the first one that is learnt, or that the head reads φ by."""
    of_head = [
        any(p.requires_grad for p in layer.parameters())
        or (position > 0 and isinstance(layer, FirstColumns))
        for position, layer in enumerate(layers)
    ]
    return of_head.index(True)


@contextmanager
def _refusing_shapes(x: Tensor) -> Iterator[None]:
    """Say in one sentence that a network does not take such inputs."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"The network cannot take inputs of shape {tuple(x.shape[1:])}: {reason}."
        ) from None


class LinearHead(NamedTuple):
    """A network that is linear in its parameters: fixed features φ, then one linear layer."""

    features: nn.Module
    layer: nn.Linear

    @property
    def positions(self) -> Tensor:
        """Positions in θ = (weight, bias) of each output's own parameters, one row per output.

        The last column is the bias, where there is one.
        """
        outputs, columns = self.layer.weight.shape
        device = self.layer.weight.device
        weight = torch.arange(outputs * columns, device=device).reshape(outputs, columns)
        if self.layer.bias is None:
            return weight
        bias = outputs * columns + torch.arange(outputs, device=device)
        return torch.cat([weight, bias[:, None]], 1)


class _LinearSizes(NamedTuple):
    """Of the last layer of a network that is linear in its parameters."""

    columns: int
    outputs: int


def _move(module: nn.Module, device: torch.device) -> None:
    try:
        module.to(device)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"Nothing can be computed on the device {str(device)!r}: {said}."
        ) from None


def _as_device(name: str | torch.device) -> torch.device:
    try:
        return torch.device(name)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device must be one that torch knows, such as 'cpu' or 'cuda', not {name!r}."
        ) from None


class FlatNetwork:
    """Any module as a function f(θ, x) of one flat vector of its trainable parameters.

    The module is copied and put into evaluation mode: the only noise is the distribution over θ.
    Safe to use from any number of threads at once: calling a module with other parameters than its
    own changes it for a moment, so every thread calls a copy of its own. Copies share all that is
    not trained.

    Parameters
    ----------
    device
        Where to put the copy; where the module is, without one.
    pretrained
        Whether the module's weights are where learning starts and the centre of the prior. Where
        None: of any module but the heads built here and what `redrawn` returns.

    Examples
    --------
    >>> network = FlatNetwork(linear(2))
    >>> network(torch.tensor([1.0, -1.0, 0.5]), torch.tensor([[3.0, 1.0]]))
    tensor([[2.5000]])
    """

    def __init__(
        self,
        module: nn.Module,
        device: str | torch.device | None = None,
        pretrained: bool | None = None,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise ValueError(f"network must be a torch.nn.Module, not {type(module).__name__}.")
        if hasattr(module, "main_input_name"):
            raise ValueError(
                "A model of transformers is read behind a head: give "
                "ibcl.networks.with_backbone(model), or the model itself with "
                "expert=ibcl.adapters.LoRA()."
            )
        self._original = copy.deepcopy(module).eval()
        if device is not None:
            _move(self._original, _as_device(device))
        self._of_thread = threading.local()
        trainable = [(n, p) for n, p in self._original.named_parameters() if p.requires_grad]
        if not trainable:
            raise ValueError("network has no trainable parameters.")
        self.names = [name for name, _ in trainable]
        self.shapes = [tuple(value.shape) for _, value in trainable]
        self.sizes = [value.numel() for _, value in trainable]
        self.dimension = sum(self.sizes)
        self.device = trainable[0][1].device
        if pretrained is None:
            pretrained = self.specification is None and not hasattr(self._original, REDRAWN)
        self.pretrained = pretrained
        self._counts: dict[tuple[int, ...], int] = {}
        self._fixed_count = _count_fixed(self._layers())
        try:
            last = self.linear_head().layer
            self._linear: _LinearSizes | None = _LinearSizes(last.in_features, last.out_features)
        except ValueError:
            self._linear = None

    def __getstate__(self) -> dict[str, Any]:
        made_when_asked = ("_of_thread", "head", "positions")
        return {name: value for name, value in vars(self).items() if name not in made_when_asked}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._of_thread = threading.local()

    @property
    def template(self) -> nn.Module:
        """The calling thread's own copy of the module."""
        known: nn.Module | None = getattr(self._of_thread, "template", None)
        if known is None:
            known = self._of_thread.template = self._copy()
        return known

    def _copy(self) -> nn.Module:
        """Copy what is trained, and share the rest."""
        shared = {
            id(tensor): tensor
            for tensor in (*self._original.parameters(), *self._original.buffers())
            if not tensor.requires_grad
        }
        return copy.deepcopy(self._original, shared)

    @property
    def is_linear(self) -> bool:
        """Whether the outputs are linear in θ: fixed features, then one linear layer."""
        return self._linear is not None

    @cached_property
    def positions(self) -> Tensor:
        """Of a network that is linear in θ, as `LinearHead.positions`."""
        return self.linear_head().positions

    @cached_property
    def head(self) -> FlatNetwork:
        """The network as a function of its features: f(θ, x) = head(θ, φ(x)), with the same θ."""
        if not self._fixed_count:
            return self
        layers = list(self._original) if isinstance(self._original, nn.Sequential) else []
        return FlatNetwork(nn.Sequential(*layers[self._fixed_count :]), pretrained=self.pretrained)

    @property
    def backbone(self) -> FrozenBackbone | None:
        """The frozen backbone it begins with, if it does."""
        first = self._layers()[0]
        return first if isinstance(first, FrozenBackbone) else None

    @property
    def has_open_layers(self) -> bool:
        """Whether the first task is to choose which layers of the backbone are read."""
        return self.backbone is not None and self.backbone.open_layers

    @property
    def tokens_from(self) -> int | None:
        """The first column of φ that is a token id, where φ carries those of its inputs."""
        backbone = self.backbone
        carried = backbone is not None and backbone.carries_inputs and backbone.takes_tokens
        return self.columns if carried else None

    def without_state(self, features: Tensor) -> Tensor:
        """φ without the inner state that a backbone may carry behind its inputs."""
        backbone = self.backbone
        if backbone is None or backbone.state_of is None:
            return features
        read, carried = features[:, : self.columns], features[:, self.columns :]
        return torch.cat([read, backbone.without_state(carried)], 1)

    @property
    def columns(self) -> int | None:
        """How many numbers heads and gate read of a sample's φ; None where only the input says."""
        if self._linear is not None:
            return self._linear.columns
        return (self.specification or {}).get("inputs")

    @property
    def known_columns(self) -> Tensor | None:
        """Positions in φ of what the network began with; None where it never grew."""
        specification = self.specification or {}
        known = specification.get("known")
        if known is None:
            return None
        begin = specification["inputs"]
        random = range(begin, begin + specification.get("width", 0))
        return torch.tensor([*known, *random])

    @property
    def gate_columns(self) -> int | None:
        """How many numbers a gate reads of a sample's φ; None where only the input says."""
        known = self.known_columns
        return self.columns if known is None else len(known)

    @property
    def specification(self) -> Specification | None:
        """How to rebuild the module, or None for a module this library did not build."""
        return getattr(self._original, "specification", None)

    @property
    def frozen_state(self) -> dict[str, Tensor]:
        """Buffers and untrained parameters, which θ does not cover."""
        state = self._original.state_dict()
        return {name: value.contiguous() for name, value in state.items() if name not in self.names}

    @property
    def fingerprint(self) -> str:
        """Hash of everything but θ: two networks with the same one mean the same by θ."""
        known: tuple[Any, ...] = (self.specification, self.names, self.shapes)
        backbone = self.backbone
        if backbone is not None and backbone.reading:
            known += (backbone.reading,)
        digest = hashlib.sha256(repr(known).encode())
        for name, value in sorted(self.frozen_state.items()):
            digest.update(name.encode() + str(value.dtype).encode())
            digest.update(value.cpu().numpy().tobytes())
        return digest.hexdigest()

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Split θ of shape (..., D) into named parameters."""
        lead = theta.shape[:-1]
        parts = torch.split(theta, self.sizes, dim=-1)
        return {
            name: part.reshape(*lead, *shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """f(θ, x) for one θ; the result has shape (n, outputs)."""
        output: Tensor = functional_call(self.template, self.unflatten(theta), (x,))
        return output.flatten(1) if output.ndim > 1 else output.unsqueeze(1)

    def features(self, x: Tensor) -> Tensor:
        """φ(x): what the fixed layers before the head make of x, shape (n, ...); else x itself.

        Of a linear head, φ has one flat row per sample. In blocks, lest a backbone's activations of
        all samples exist at once.
        """
        if not self._fixed_count:
            return x.flatten(1) if self.is_linear else x
        fixed = self._fixed
        rows = min(getattr(layer, "rows_at_once", _FEATURE_ROWS) for layer in fixed)
        # Not every module takes no rows at all.
        first = x[:rows] if len(x) else x.new_zeros(1, *x.shape[1:])
        with _refusing_shapes(x), torch.no_grad():
            blocks = [fixed(first)[: len(x)]]
        if len(x) > rows:
            # Once in blocks, and once put together.
            needed = 2 * len(x) * (blocks[0].nbytes // rows)
            check_memory(needed, f"The features of {len(x):,} rows", "give fewer rows at once")
        with _refusing_shapes(x), torch.no_grad():
            blocks += [fixed(x[begin : begin + rows]) for begin in range(rows, len(x), rows)]
        return torch.cat([block.flatten(1) for block in blocks] if self.is_linear else blocks)

    def fixed_part(self) -> nn.Module:
        """Return a plain copy of the layers that make φ of x."""
        return copy.deepcopy(self._fixed)

    @property
    def _fixed(self) -> nn.Sequential:
        """The calling thread's own copy of the layers that make φ of x."""
        return nn.Sequential(*self._layers()[: self._fixed_count])

    def outputs_of_many(self, thetas: Tensor, x: Tensor) -> Tensor:
        """f(θ, x) for many θ; the result has shape (models, n, outputs)."""
        if self.is_linear:
            features = self.head.features(self.features(x))
            return self.outputs_of_features(thetas, features.to(thetas.dtype))
        # Blocks keep the intermediate activations of all models from existing at once.
        block = max(1, 2**22 // max(1, len(x) * 64))
        return vmap(self, in_dims=(0, None), chunk_size=block)(thetas, x)

    def outputs_of_features(self, thetas: Tensor, features: Tensor) -> Tensor:
        """θᵀφ of a linear head for many θ; the result has shape (models, n, outputs)."""
        rows = thetas[:, self.positions.to(thetas.device)]
        columns = features.shape[1]
        outputs = features @ rows[..., :columns].transpose(1, 2)
        return outputs + rows[:, None, :, columns] if rows.shape[-1] > columns else outputs

    def module(self, theta: Tensor) -> nn.Module:
        """Return a plain copy of the module with parameters θ."""
        module = copy.deepcopy(self._original)
        with torch.no_grad():
            for name, value in self.unflatten(theta.to(torch.float32)).items():
                module.get_parameter(name).copy_(value)
        return module

    @property
    def own_parameters(self) -> Tensor:
        """θ as the module came."""
        values = [self._original.get_parameter(name).detach() for name in self.names]
        return torch.cat([value.flatten().float() for value in values])

    @property
    def centre(self) -> Tensor:
        """Where a prior given by its standard deviation is centred: the trained θ, or zero."""
        own = self.own_parameters
        return own if self.pretrained else torch.zeros_like(own)

    def initial_parameters(self, generator: torch.Generator) -> Tensor:
        """Return where learning starts: the trained θ, or a seeded draw that learns.

        Drawn are weights from N(0, 1/fan_in); biases are 0, and scales as built.
        """
        if self.pretrained:
            return self.own_parameters
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            if len(shape) >= 2:
                fan_in = math.prod(shape[1:])
                parts.append(torch.randn(shape, generator=generator) / math.sqrt(fan_in))
            elif name.endswith("bias"):
                parts.append(torch.zeros(shape))
            else:
                parts.append(self._original.get_parameter(name).detach().cpu().clone())
        return torch.cat([part.flatten() for part in parts]).to(self.device)

    def output_count(self, x: Tensor) -> int:
        """Return how many outputs it has for such inputs, or refuse their shape in a sentence."""
        self.check_width(x)
        known = self._linear
        if known is not None and self.head is self and x.shape[1:] == (known.columns,):
            return known.outputs
        shape = tuple(x.shape[1:])
        if shape not in self._counts:
            theta = self.initial_parameters(torch.Generator().manual_seed(0))
            with _refusing_shapes(x), torch.no_grad():
                self._counts[shape] = self(theta, x[:1]).shape[1]
        return self._counts[shape]

    def check_width(self, x: Tensor) -> None:
        """Refuse rows of another width than the network was built for, where it says one."""
        expected = (self.specification or {}).get("inputs")
        if expected is not None and x.shape[1:] != (expected,):
            raise ValueError(
                f"The network cannot take inputs of shape {tuple(x.shape[1:])}: it needs rows of "
                f"{expected} numbers."
            )

    def _layers(self) -> list[nn.Module]:
        template = self.template
        return list(template) if isinstance(template, nn.Sequential) else [template]

    def linear_layers(self) -> list[nn.Module] | None:
        """Return the chain of layers of a network of linear layers, else None.

        Such a network is a sequence of `nn.Linear` and layers without parameters or buffers.
        """
        layers = self._layers()
        for layer in layers:
            if isinstance(layer, nn.Linear):
                if not all(value.requires_grad for value in layer.parameters()):
                    return None
            elif layer.state_dict() or isinstance(layer, nn.Flatten):
                return None
        return layers

    def linear_head(self) -> LinearHead:
        """Return fixed features and the one trainable linear layer behind them."""
        layers = self._layers()
        features, last = nn.Sequential(*layers[:-1]), layers[-1]
        fixed = not any(value.requires_grad for value in features.parameters())
        trainable = all(value.requires_grad for value in last.parameters())
        if not (isinstance(last, nn.Linear) and fixed and trainable):
            raise ValueError(
                "DenseVI needs a network that is linear in its parameters: a trainable nn.Linear, "
                "alone or last in an nn.Sequential of fixed layers (ibcl.networks.linear, "
                "ibcl.networks.random_features or ibcl.networks.with_backbone); use MeanFieldVI "
                "for other networks."
            )
        return LinearHead(features, last)


def head_outputs(head: FlatNetwork, thetas: Tensor, features: Tensor) -> Tensor:
    """Outputs of many models, shape (models, n, outputs).

    Linear heads in double precision, so that no answer depends on the rows it is computed with.
    """
    if head.is_linear:
        return head.outputs_of_features(thetas.double(), head.features(features).double())
    with torch.no_grad():
        return head.outputs_of_many(thetas.to(features.dtype), features)

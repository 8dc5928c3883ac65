"""Networks: three small heads, and any `torch.nn.Module` seen as one flat parameter vector θ.

`linear`, `mlp` and `random_features` build the heads used throughout; each remembers the
specification it was built from, so that a stored knowledge base can rebuild it without pickle.
`FlatNetwork` is the view the rest of the library works with: f(θ, x) with θ in R^D.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

Specification = dict[str, Any]

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
    parameters.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self, inputs: int, width: int, scale: float, seed: int, skip: bool = False
    ) -> None:
        super().__init__()
        self.skip = skip
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(inputs, width, generator=generator) * scale / math.sqrt(inputs)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", torch.randn(width, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        """φ(x), or [x, φ(x)]."""
        features = torch.relu(x @ self.weight + self.bias) * math.sqrt(2 / self.weight.shape[1])
        return torch.cat([x, features], -1) if self.skip else features


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be a positive whole number, not {size!r}.")


def linear(inputs: int, outputs: int = 1) -> SpecifiedNetwork:
    """Build logistic, softmax or linear regression on the features.

    Examples
    --------
    >>> linear(512)(torch.zeros(2, 512)).shape
    torch.Size([2, 1])
    """
    _positive(inputs=inputs, outputs=outputs)
    specification = {"kind": "linear", "inputs": inputs, "outputs": outputs}
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
    widths = [hidden] if isinstance(hidden, int) else list(hidden)
    _positive(inputs=inputs, outputs=outputs, **{f"hidden[{i}]": w for i, w in enumerate(widths)})
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
) -> SpecifiedNetwork:
    """Build a linear head behind a fixed, seeded layer of random ReLU features.

    Non-linear in x and still linear in its parameters, so `DenseVI` applies.

    Parameters
    ----------
    skip
        Give x itself to the head too, so that what is linear in x is never lost.

    Examples
    --------
    >>> FlatNetwork(random_features(64, width=256)).dimension
    257
    >>> FlatNetwork(random_features(64, width=256, skip=True)).dimension
    321
    """
    _positive(inputs=inputs, width=width, outputs=outputs)
    if not isinstance(skip, bool):
        raise ValueError(f"skip must be True or False, not {skip!r}.")
    specification = {
        "kind": "random_features",
        "inputs": inputs,
        "width": width,
        "outputs": outputs,
        "scale": scale,
        "seed": seed,
        "skip": skip,
    }
    features = RandomReLUFeatures(inputs, width, scale, seed, skip)
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


class LinearHead(NamedTuple):
    """A network that is linear in its parameters: fixed features, then one linear layer."""

    features: nn.Module
    layer: nn.Linear


class FlatNetwork:
    """Any module as a function f(θ, x) of one flat vector of its trainable parameters.

    The module is copied and put into evaluation mode: the only noise is the distribution over θ.

    Examples
    --------
    >>> network = FlatNetwork(linear(2))
    >>> network(torch.tensor([1.0, -1.0, 0.5]), torch.tensor([[3.0, 1.0]]))
    tensor([[2.5000]])
    """

    def __init__(self, module: nn.Module) -> None:
        if not isinstance(module, nn.Module):
            raise ValueError(f"network must be a torch.nn.Module, not {type(module).__name__}.")
        self.template = copy.deepcopy(module).eval()
        trainable = [(n, p) for n, p in self.template.named_parameters() if p.requires_grad]
        if not trainable:
            raise ValueError("network has no trainable parameters.")
        self.names = [name for name, _ in trainable]
        self.shapes = [tuple(value.shape) for _, value in trainable]
        self.sizes = [value.numel() for _, value in trainable]
        self.dimension = sum(self.sizes)

    @property
    def specification(self) -> Specification | None:
        """How to rebuild the module, or None for a module this library did not build."""
        return getattr(self.template, "specification", None)

    @property
    def frozen_state(self) -> dict[str, Tensor]:
        """Buffers and untrained parameters, which θ does not cover."""
        state = self.template.state_dict()
        return {name: value.contiguous() for name, value in state.items() if name not in self.names}

    @property
    def fingerprint(self) -> str:
        """Hash of everything but θ: two networks with the same one mean the same by θ."""
        digest = hashlib.sha256(repr((self.specification, self.names, self.shapes)).encode())
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
        return output.reshape(len(x), -1)

    def outputs_of_many(self, thetas: Tensor, x: Tensor) -> Tensor:
        """f(θ, x) for many θ; the result has shape (models, n, outputs)."""
        # Blocks keep the intermediate activations of all models from existing at once.
        block = max(1, 2**22 // max(1, len(x) * 64))
        return vmap(self, in_dims=(0, None), chunk_size=block)(thetas, x)

    def module(self, theta: Tensor) -> nn.Module:
        """Return a plain copy of the module with parameters θ."""
        module = copy.deepcopy(self.template)
        with torch.no_grad():
            for name, value in self.unflatten(theta.to(torch.float32)).items():
                module.get_parameter(name).copy_(value)
        return module

    def initial_parameters(self, generator: torch.Generator) -> Tensor:
        """Draw a seeded start that learns: weights N(0, 1/fan_in), biases 0, scales as built."""
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            if len(shape) >= 2:
                fan_in = math.prod(shape[1:])
                parts.append(torch.randn(shape, generator=generator) / math.sqrt(fan_in))
            elif name.endswith("bias"):
                parts.append(torch.zeros(shape))
            else:
                parts.append(self.template.get_parameter(name).detach().clone())
        return torch.cat([part.flatten() for part in parts])

    def linear_layers(self) -> list[nn.Module] | None:
        """Return the chain of layers of a network of linear layers, else None.

        Such a network is a sequence of `nn.Linear` and layers without parameters or buffers.
        """
        template = self.template
        layers = list(template) if isinstance(template, nn.Sequential) else [template]
        for layer in layers:
            if isinstance(layer, nn.Linear):
                if not all(value.requires_grad for value in layer.parameters()):
                    return None
            elif layer.state_dict() or isinstance(layer, nn.Flatten):
                return None
        return layers

    def linear_head(self) -> LinearHead:
        """Return fixed features and the one trainable linear layer behind them."""
        template = self.template
        layers = list(template) if isinstance(template, nn.Sequential) else [template]
        features, last = nn.Sequential(*layers[:-1]), layers[-1]
        fixed = not any(value.requires_grad for value in features.parameters())
        trainable = all(value.requires_grad for value in last.parameters())
        if not (isinstance(last, nn.Linear) and fixed and trainable):
            raise ValueError(
                "DenseVI needs a network that is linear in its parameters: a trainable nn.Linear, "
                "alone or last in an nn.Sequential of fixed layers (ibcl.networks.linear or "
                "ibcl.networks.random_features); use MeanFieldVI for other networks."
            )
        return LinearHead(features, last)

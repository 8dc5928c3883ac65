r"""Arithmetic of small networks, compiled by Numba on first use: no compiler is needed.

For networks of some hundred units a library call costs as much as its arithmetic, and every
intermediate result is a walk through memory. Here only the matrix products are library calls;
biases, normalisation, nonlinearities and their gradients are one pass over each row. What is
compiled is kept beside this file, so that later processes begin at once.

Parameters are one flat vector, layer after layer: weights (in, out), then biases (out). Of several
networks side by side (``copies``), each layer holds the weights of all, then the biases of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

try:
    import numba
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError("Policies are run by numba: pip install 'ibcl[rl]'.") from error

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
Single = NDArray[np.float32]
Sizes = NDArray[np.int64]
"""Widths of a network's layers, from its inputs to its outputs."""

EPSILON = np.float32(1e-5)
"""Added to variances in layer normalisation, as in PyTorch."""
ONE = np.float32(1)
TANH_LIMIT = np.float32(8)
"""Beyond it tanh is taken for ±1."""


def compiled(function: Kernel) -> Kernel:
    """Compile a kernel; sums may be reordered, but infinities and NaN stay what they are."""
    rules = {"reassoc", "contract", "arcp", "nsz"}
    return cast(Kernel, numba.njit(cache=True, fastmath=rules, error_model="numpy")(function))


def lambert_fraction(terms: int) -> tuple[tuple[np.float32, ...], tuple[np.float32, ...]]:
    r"""Coefficients in x² of P and Q, where x P(x²) / Q(x²) approximates tanh x.

    tanh x = x / (1 + x² / (3 + x² / (5 + …))), cut off after so many terms and multiplied out from
    the inside. All coefficients are positive, so that nothing cancels.

    Examples
    --------
    >>> [[float(c) for c in part] for part in lambert_fraction(2)]
    [[1.0], [1.0, 0.3333333432674408]]
    """
    square = np.polynomial.Polynomial([0.0, 1.0])
    above, below = np.polynomial.Polynomial([1.0]), np.polynomial.Polynomial([2.0 * terms - 1])
    for odd in range(2 * terms - 3, 0, -2):
        above, below = below, odd * below + square * above
    scale = below.coef[0]
    return (
        tuple(np.float32(c / scale) for c in above.coef),
        tuple(np.float32(c / scale) for c in below.coef),
    )


# Twelve terms are right to 4e-7 within the limit.
_ABOVE, _BELOW = lambert_fraction(12)
_A0, _A1, _A2, _A3, _A4, _A5 = _ABOVE
_B0, _B1, _B2, _B3, _B4, _B5, _B6 = _BELOW


@compiled
def tanh_of_sum(values: Single, bias: Single) -> None:
    """Replace values by tanh(values + bias), in a form that runs on whole vector registers."""
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            x = min(max(values[row, column] + bias[column], -TANH_LIMIT), TANH_LIMIT)
            s = x * x
            above = _A0 + s * (_A1 + s * (_A2 + s * (_A3 + s * (_A4 + s * _A5))))
            below = _B0 + s * (_B1 + s * (_B2 + s * (_B3 + s * (_B4 + s * (_B5 + s * _B6)))))
            values[row, column] = x * above / below


@compiled
def add_rows(values: Single, total: Single) -> None:
    """Write the sum over rows into ``total``."""
    total[:] = 0
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            total[column] += values[row, column]


@compiled
def layer(sizes: Sizes, index: int, copies: int, copy: int) -> tuple[int, int]:
    """Where the weights and the biases of one network's layer begin in the flat vector."""
    start = 0
    for before in range(index):
        start += copies * (sizes[before] + 1) * sizes[before + 1]
    into, out = sizes[index], sizes[index + 1]
    return start + copy * into * out, start + copies * into * out + copy * out


@compiled
def weight(flat: Single, sizes: Sizes, index: int, copies: int = 1, copy: int = 0) -> Single:
    """View of a layer's weights."""
    start, _ = layer(sizes, index, copies, copy)
    into, out = sizes[index], sizes[index + 1]
    return flat[start : start + into * out].reshape(into, out)


@compiled
def bias(flat: Single, sizes: Sizes, index: int, copies: int = 1, copy: int = 0) -> Single:
    """View of a layer's biases."""
    _, start = layer(sizes, index, copies, copy)
    return flat[start : start + sizes[index + 1]]


@compiled
def adam(
    parameters: Single,
    gradient: Single,
    first: Single,
    second: Single,
    count: int,
    rate: float,
    first_decay: float,
    second_decay: float,
) -> None:
    """One step of Adam in place, the ``count``-th."""
    keep, keep_square = np.float32(first_decay), np.float32(second_decay)
    step = np.float32(rate / (1 - first_decay**count))
    shrink = np.float32(1 / np.sqrt(1 - second_decay**count))
    tiny = np.float32(1e-8)
    for i in range(parameters.size):
        slope = gradient[i]
        first[i] = keep * first[i] + (ONE - keep) * slope
        second[i] = keep_square * second[i] + (ONE - keep_square) * slope * slope
        parameters[i] -= step * first[i] / (np.sqrt(second[i]) * shrink + tiny)


# ---- a policy: tanh between affine layers, and after the last one if it is squashed


@compiled
def activation(work: Single, sizes: Sizes, rows: int, index: int) -> Single:
    """View of a layer's outputs (rows, out) in what `perceptron` returns."""
    start = 0
    for before in range(index):
        start += rows * sizes[before + 1]
    return work[start : start + rows * sizes[index + 1]].reshape(rows, sizes[index + 1])


@compiled
def perceptron(sizes: Sizes, squashed: bool, theta: Single, inputs: Single) -> Single:
    """Outputs of all layers for inputs (N, in), one after the other in a flat vector."""
    rows, last = inputs.shape[0], sizes.size - 2
    work = np.empty(rows * (sizes.sum() - sizes[0]), dtype=np.float32)
    below = inputs
    for index in range(last + 1):
        values = activation(work, sizes, rows, index)
        np.dot(below, weight(theta, sizes, index), values)
        if squashed or index < last:
            tanh_of_sum(values, bias(theta, sizes, index))
        else:
            values += bias(theta, sizes, index)
        below = values
    return work


@compiled
def back_through_tanh(gradient: Single, output: Single) -> None:
    """Multiply by the slope of tanh where it has this output, 1 − tanh²."""
    for row in range(gradient.shape[0]):
        for column in range(gradient.shape[1]):
            value = output[row, column]
            gradient[row, column] *= ONE - value * value


@compiled
def perceptron_gradient(
    sizes: Sizes, squashed: bool, theta: Single, inputs: Single, work: Single, upstream: Single
) -> Single:
    """∂L/∂θ from ∂L/∂output of shape (N, out), at inputs and what `perceptron` made of them."""
    result = np.empty_like(theta)
    gradient = upstream.copy()
    rows, last = inputs.shape[0], sizes.size - 2
    if squashed:
        back_through_tanh(gradient, activation(work, sizes, rows, last))
    for index in range(last, -1, -1):
        below = activation(work, sizes, rows, index - 1) if index else inputs
        np.dot(below.T, gradient, weight(result, sizes, index))
        add_rows(gradient, bias(result, sizes, index))
        if index:
            gradient = np.dot(gradient, weight(theta, sizes, index).T)
            back_through_tanh(gradient, below)
    return result


# ---- critics: layer normalisation and ReLU between affine layers, one output each


@compiled
def normalise(values: Single, bias: Single, output: Single, inverse_std: Single) -> None:
    """Replace values by layer-normalised values + bias, and write their ReLU into ``output``."""
    width = values.shape[1]
    share = ONE / np.float32(width)
    for row in range(values.shape[0]):
        total = np.float32(0)
        for column in range(width):
            values[row, column] += bias[column]
            total += values[row, column]
        mean = total * share
        squares = np.float32(0)
        for column in range(width):
            values[row, column] -= mean
            squares += values[row, column] * values[row, column]
        scale = ONE / np.sqrt(squares * share + EPSILON)
        inverse_std[row] = scale
        for column in range(width):
            normal = values[row, column] * scale
            values[row, column] = normal
            output[row, column] = max(normal, np.float32(0))


@compiled
def back_through_normalisation(gradient: Single, normal: Single, inverse_std: Single) -> None:
    r"""Take ∂L/∂output to ∂L/∂affine in place, back through ReLU and layer normalisation.

    With g = ∂L/∂output where the normalised x̂ is positive and 0 elsewhere, it is
    (g − mean g − x̂ mean(g x̂)) / std.
    """
    width = gradient.shape[1]
    share = ONE / np.float32(width)
    for row in range(gradient.shape[0]):
        total, along = np.float32(0), np.float32(0)
        for column in range(width):
            active = gradient[row, column] if normal[row, column] > 0 else np.float32(0)
            gradient[row, column] = active
            total += active
            along += active * normal[row, column]
        total, along, scale = total * share, along * share, inverse_std[row]
        for column in range(width):
            rest = gradient[row, column] - total - normal[row, column] * along
            gradient[row, column] = rest * scale


@compiled
def critic(
    sizes: Sizes, copies: int, copy: int, flat: Single, inputs: Single, normals: Single
) -> tuple[Single, Single, Single]:
    """Values (N,) of one of the critics, its hidden layers' ReLU outputs, and their 1/std.

    ``normals`` is given the normalised x̂ of the hidden layers, one after the other.
    """
    rows, hidden = inputs.shape[0], sizes.size - 2
    outputs = np.empty_like(normals)
    inverse_std = np.empty((hidden, rows), dtype=np.float32)
    below = inputs
    for index in range(hidden):
        values = activation(normals, sizes, rows, index)
        np.dot(below, weight(flat, sizes, index, copies, copy), values)
        below = activation(outputs, sizes, rows, index)
        normalise(values, bias(flat, sizes, index, copies, copy), below, inverse_std[index])
    last = np.dot(below, weight(flat, sizes, hidden, copies, copy)).reshape(rows)
    last += bias(flat, sizes, hidden, copies, copy)[0]
    return last, outputs, inverse_std


@compiled
def hidden_outputs(sizes: Sizes, rows: int) -> Single:
    """Room for the outputs of all hidden layers."""
    return np.empty(rows * (sizes.sum() - sizes[0] - 1), dtype=np.float32)


@compiled
def critic_values(sizes: Sizes, copies: int, flat: Single, inputs: Single, block: int) -> Single:
    """Values (copies, N) of all critics, in blocks of rows that stay in the cache."""
    rows = inputs.shape[0]
    values = np.empty((copies, rows), dtype=np.float32)
    for start in range(0, rows, block):
        part = inputs[start : start + block]
        for copy in range(copies):
            normals = hidden_outputs(sizes, part.shape[0])
            values[copy, start : start + block] = critic(sizes, copies, copy, flat, part, normals)[
                0
            ]
    return values


@compiled
def critics_gradient(
    sizes: Sizes, copies: int, flat: Single, inputs: Single, targets: Single, gradient: Single
) -> Single:
    """Write ∂/∂parameters of ½ Σ_i mean (Q_i − target)² into ``gradient``; returns the values."""
    rows, hidden = inputs.shape[0], sizes.size - 2
    values = np.empty((copies, rows), dtype=np.float32)
    normals = hidden_outputs(sizes, rows)
    for copy in range(copies):
        found, outputs, inverse_std = critic(sizes, copies, copy, flat, inputs, normals)
        values[copy] = found
        error = ((found - targets) / np.float32(rows)).reshape(rows, 1)
        below = activation(outputs, sizes, rows, hidden - 1)
        np.dot(below.T, error, weight(gradient, sizes, hidden, copies, copy))
        bias(gradient, sizes, hidden, copies, copy)[0] = error.sum()
        back = np.dot(error, weight(flat, sizes, hidden, copies, copy).T)
        for index in range(hidden - 1, -1, -1):
            normal = activation(normals, sizes, rows, index)
            back_through_normalisation(back, normal, inverse_std[index])
            below = activation(outputs, sizes, rows, index - 1) if index else inputs
            np.dot(below.T, back, weight(gradient, sizes, index, copies, copy))
            add_rows(back, bias(gradient, sizes, index, copies, copy))
            if index:
                back = np.dot(back, weight(flat, sizes, index, copies, copy).T)
    return values


@compiled
def critic_slope(sizes: Sizes, copies: int, flat: Single, inputs: Single, actions: int) -> Single:
    """∂Q₁/∂a of shape (N, actions), the last inputs, of the first of the critics."""
    rows, hidden = inputs.shape[0], sizes.size - 2
    normals = hidden_outputs(sizes, rows)
    _, _, inverse_std = critic(sizes, copies, 0, flat, inputs, normals)
    back = np.empty((rows, sizes[hidden]), dtype=np.float32)
    back[:] = weight(flat, sizes, hidden, copies, 0)[:, 0]
    for index in range(hidden - 1, -1, -1):
        normal = activation(normals, sizes, rows, index)
        back_through_normalisation(back, normal, inverse_std[index])
        into = weight(flat, sizes, index, copies, 0)
        back = np.dot(back, (into if index else into[sizes[0] - actions :]).T)
    return back

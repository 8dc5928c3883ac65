r"""What a likelihood must satisfy, checked when it is first used.

Every inference method needs a loss −log p(y | f) that is finite for every real f, one value per
sample, and differentiable, with its right gradient; and means E[y | f] of one row per sample,
which for classes are probabilities. Full-covariance inference replaces the loss by its expected
curvature, so it needs more: a loss that is twice differentiable and convex in f (p is
*log-concave*). A loss with a kink, such as |y − f|, has a curvature of zero wherever one looks and
all of it in one point, where nobody looks; it would be learnt wrongly. It is found by the
fundamental theorem of calculus,

    ∂loss(b) − ∂loss(a) = ∫ₐᵇ ∂²loss df,

which fails over every interval around a kink, however short.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ibcl.likelihoods.likelihood import Likelihood

# Outputs that are tried: so far from zero and from the labels, at so many points.
_REACH, _POINTS = 6.0, 193
# How many labels are tried, and how often an interval with a doubtful kink is divided.
_LABELS, _DIVISIONS = 8, 6
# What part of a slope's whole rise must not come from nowhere.
_JUMP = 1e-3
# How many times as far kinks are looked for.
_FURTHER = 20
# Curvatures below zero by less than this part of the largest are rounding.
_ROUNDING = 1e-6
# Step of the differences that slopes are compared with, by how much of the slope and of the loss
# they may differ, as kinks and single precision make them, and at what part of the outputs.
_DIFFERENCE, _OF_SLOPE, _OF_LOSS, _DIFFERENT = 1e-3, 0.02, 1e-3, 0.1
_KNOWN: set[Hashable] = set()


def require_likelihood(likelihood: Likelihood, y: Tensor, outputs: int) -> None:
    """Refuse a likelihood that no inference method can learn with, in one sentence.

    Parameters
    ----------
    y
        Labels as `check` returns them, some of which are tried.

    Examples
    --------
    >>> from ibcl.likelihoods import Bernoulli
    >>> require_likelihood(Bernoulli(), torch.tensor([0.0, 1.0]), outputs=1)
    """
    key = ("any", likelihood, outputs)
    if _seen(key):
        return
    labels, f = _probes(likelihood, y, outputs)
    who = f"The likelihood {likelihood.name!r}"
    loss = _loss(likelihood, f, labels)
    if loss.shape != f.shape[:-1]:
        raise ValueError(
            f"{who} must give one loss per sample, of shape {tuple(f.shape[:-1])} for outputs of "
            f"shape {tuple(f.shape)}, but its negative_log gives {tuple(loss.shape)}."
        )
    if not bool(torch.isfinite(loss).all()):
        raise ValueError(
            f"{who} has a negative_log that is not finite at every output between {-_REACH:g} and "
            f"{_REACH:g}; outputs may be any real number, so give it a link, such as exp for what "
            "is positive, and compute in logarithms."
        )
    slope = _slope(likelihood, f, labels)
    if not bool(torch.isfinite(slope).all()):
        raise ValueError(
            f"{who} has a negative_log whose derivative by the outputs is not finite everywhere; "
            "compute it in logarithms."
        )
    difference = _loss(likelihood, f + _DIFFERENCE, labels)
    difference = (difference - _loss(likelihood, f - _DIFFERENCE, labels)) / (2 * _DIFFERENCE)
    along = slope.sum(-1)
    allowed = _OF_SLOPE * (along.abs() + difference.abs()) + _OF_LOSS * (1 + loss.abs())
    if float(((along - difference).abs() > allowed).double().mean()) > _DIFFERENT:
        raise ValueError(
            f"{who} has a negative_log whose gradient is not its derivative: where it rises by "
            f"{float(difference.flatten()[-1]):.3g} per output, the gradient says "
            f"{float(along.flatten()[-1]):.3g}; mend its backward, or leave that to torch."
        )
    _require_means(likelihood, f, who)
    _remember(key)


def require_log_concave(likelihood: Likelihood, y: Tensor, outputs: int) -> None:
    """Refuse a likelihood that full-covariance inference would learn wrongly with.

    Examples
    --------
    >>> from ibcl.likelihoods import Poisson
    >>> require_log_concave(Poisson(), torch.tensor([[0.0], [7.0]]), outputs=1)
    """
    require_likelihood(likelihood, y, outputs)
    key = ("log-concave", likelihood, outputs)
    if _seen(key):
        return
    labels, f = _probes(likelihood, y, outputs)
    who = f"The likelihood {likelihood.name!r}"
    curvature = likelihood.expectations(
        f.reshape(-1, outputs),
        f.new_zeros(f.shape[0] * f.shape[1], outputs, outputs),
        labels.repeat(f.shape[0], *(1 for _ in labels.shape[1:])),
    ).curvature
    if not bool(torch.isfinite(curvature).all()):
        raise ValueError(
            f"{who} has a curvature that is not finite everywhere, which DenseVI cannot compute "
            "with; write its negative_log in logarithms, or use MeanFieldVI."
        )
    for output in range(min(outputs, 2)):
        if _has_a_kink(likelihood, f, labels, output):
            raise ValueError(
                f"{who} is not twice differentiable: its negative_log has a kink, where DenseVI "
                "sees no curvature and would learn wrongly; smooth it, as Huber's loss smooths "
                "|y − f|, or use MeanFieldVI."
            )
    values = torch.linalg.eigvalsh(curvature)
    if float(values.min()) < -_ROUNDING * float(values.abs().max()):
        raise ValueError(
            f"{who} is not log-concave: at some outputs its negative_log has the curvature "
            f"{float(values.min()):.3g}, from which DenseVI would make a precision that is not "
            "positive; use MeanFieldVI."
        )
    _remember(key)


def _seen(key: Hashable) -> bool:
    try:
        return key in _KNOWN
    except TypeError:
        # A likelihood that cannot be hashed is checked every time.
        return False


def _remember(key: Hashable) -> None:
    try:
        _KNOWN.add(key)
    except TypeError:
        return


def _probes(likelihood: Likelihood, y: Tensor, outputs: int) -> tuple[Tensor, Tensor]:
    """Some labels, and outputs (points, labels, outputs) around zero and around the labels."""
    some = torch.linspace(0, len(y) - 1, min(_LABELS, len(y)), device=y.device).long()
    labels = y[some]
    # Not symmetric, so that a kink at a label lies between two points.
    line = torch.linspace(-_REACH, 1.013 * _REACH, _POINTS, dtype=torch.float64, device=y.device)
    tilt = torch.linspace(0.3, -0.2, outputs, dtype=torch.float64, device=y.device)
    around_zero = line[:, None, None] + tilt[None, None] * (outputs > 1)
    f = around_zero.expand(-1, len(labels), -1)
    if not likelihood.classification and labels.ndim == 2 and labels.shape[1] == outputs:
        f = torch.cat([f, f + _outputs_at(likelihood, labels.double())])
    return labels, f


def _outputs_at(likelihood: Likelihood, labels: Tensor) -> Tensor:
    """Outputs whose mean is the label, where a kink would be; zero where there are none."""
    try:
        at = likelihood.outputs_of(labels)
    except (ValueError, NotImplementedError):
        return torch.zeros_like(labels)
    return torch.where(torch.isfinite(at) & (at.abs() < 1e3), at, torch.zeros_like(at)).double()


@contextmanager
def _explained(likelihood: Likelihood, f: Tensor, y: Tensor) -> Iterator[None]:
    """Say in a sentence why a loss or its gradient cannot be computed."""
    try:
        yield
    except (RuntimeError, TypeError, IndexError) as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"The likelihood {likelihood.name!r} cannot compute its negative_log of outputs in "
            f"{str(f.dtype).removeprefix('torch.')} of shape {tuple(f.shape)} and labels in "
            f"{str(y.dtype).removeprefix('torch.')} of shape {tuple(y.shape)} ({said}); it must "
            "take any leading dimensions and precision, as y.to(outputs.dtype) does."
        ) from None


def _loss(likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
    with _explained(likelihood, f, y):
        return likelihood.negative_log(f, y)


def _slope(likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
    leaf = f.detach().requires_grad_()
    with torch.enable_grad():
        loss = _loss(likelihood, leaf, y)
        if not loss.requires_grad:
            raise ValueError(
                f"The likelihood {likelihood.name!r} has a negative_log that torch cannot "
                "differentiate by the outputs; compute it with torch, without detach or numpy."
            )
        with _explained(likelihood, f, y):
            (slope,) = torch.autograd.grad(loss.sum(), leaf)
    return slope.detach()


def _slope_and_curvature(
    likelihood: Likelihood, f: Tensor, y: Tensor, output: int
) -> tuple[Tensor, Tensor]:
    """First and second derivatives by one output, of the shape of the losses."""
    leaf = f.detach().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(
            likelihood.negative_log(leaf, y).sum(), leaf, create_graph=True
        )
        if not slope.requires_grad:
            return slope.detach()[..., output], torch.zeros_like(f[..., output])
        (curvature,) = torch.autograd.grad(slope[..., output].sum(), leaf)
    return slope.detach()[..., output], curvature.detach()[..., output]


def _has_a_kink(likelihood: Likelihood, f: Tensor, y: Tensor, output: int) -> bool:
    """Whether a slope rises by what no curvature explains, however closely one looks."""
    for part in torch.split(f, _POINTS):
        middle = part[_POINTS // 2]
        for points in (part, middle + _FURTHER * (part - middle)):
            if _jumps(likelihood, points, y, output):
                return True
    return False


def _jumps(likelihood: Likelihood, f: Tensor, y: Tensor, output: int) -> bool:
    slope, curvature = _slope_and_curvature(likelihood, f, y, output)
    rise = slope.diff(dim=0).abs().nan_to_num(0, 0, 0).sum(0)
    low, high = f[:-1, :, output], f[1:, :, output]
    for _ in range(_DIVISIONS):
        missing = _unexplained(slope, curvature, torch.cat([low, high[-1:]]))
        worst = missing.argmax(0, keepdim=True)
        if not bool((missing.gather(0, worst)[0] > _JUMP * rise.clamp(min=1e-12)).any()):
            return False
        # The interval that is worst for each label, divided; a kink stays in one of its parts.
        begin, end = low.gather(0, worst)[0], high.gather(0, worst)[0]
        parts = torch.linspace(0, 1, 17, dtype=f.dtype, device=f.device)[:, None]
        points = begin + (end - begin) * parts
        finer = f[:1].expand(len(points), -1, -1).clone()
        finer[..., output] = points
        slope, curvature = _slope_and_curvature(likelihood, finer, y, output)
        low, high = points[:-1], points[1:]
    missing = _unexplained(slope, curvature, torch.cat([low, high[-1:]])).amax(0)
    return bool((missing > _JUMP * rise.clamp(min=1e-12)).any())


def _unexplained(slope: Tensor, curvature: Tensor, points: Tensor) -> Tensor:
    """|∂loss(b) − ∂loss(a) − ∫ₐᵇ ∂²loss| of each interval, by the trapezoidal rule."""
    integral = points.diff(dim=0) * (curvature[1:] + curvature[:-1]) / 2
    # What is not a number, as an overflow far away gives, is no kink.
    return (slope.diff(dim=0) - integral).abs().nan_to_num(0, 0, 0)


def _require_means(likelihood: Likelihood, f: Tensor, who: str) -> None:
    mean = likelihood.mean(f)
    if mean.ndim != f.ndim or mean.shape[:-1] != f.shape[:-1]:
        raise ValueError(
            f"{who} must give a row of means per sample, of shape {(*f.shape[:-1], 'columns')}, "
            f"but its mean gives {tuple(mean.shape)}."
        )
    if not bool(torch.isfinite(mean).all()):
        raise ValueError(f"{who} has a mean that is not finite at every output.")
    sums = mean.sum(-1)
    if likelihood.classification and not (
        bool((mean >= -1e-6).all()) and bool(((sums - 1).abs() < 1e-4).all())
    ):
        raise ValueError(
            f"{who} is a classification, so the columns of its mean must be probabilities that sum "
            f"to 1, but a row sums to {float(sums.flatten()[(sums - 1).abs().argmax()]):.4g}."
        )

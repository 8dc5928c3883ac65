r"""The Gaussian that maximises the ELBO of a head that is linear in its parameters.

With features φ_s of sample s, outputs z_s = θᵀφ_s and prior N(μ₀, P₀⁻¹), the Gaussian
q = N(μ, P⁻¹) that maximises the ELBO has the natural parameters

    P = P₀ + Σ_s w_s λ_s φ_s φ_sᵀ,     Pμ = P₀μ₀ + Σ_s w_s ν_s φ_s,
    λ_s = E_q[∂² −log p(y_s | z_s)],     ν_s = E_q[∂ log p(y_s | z_s)] + λ_s E_q[z_s],

with the weights w_s of the samples, 1 unless given: each sample's likelihood is replaced by a
Gaussian *site* (λ_s, ν_s), and the expectations over z_s are low-dimensional integrals, which the
likelihood knows. One pass over the samples, block by block, finds under a given q its ELBO and the
natural parameters that its sites define, the *target*; to go there is one natural-gradient step,
which at zero variance is Newton's. Steps are repeated until q is its own target, sped up by
Anderson's extrapolation and damped wherever the ELBO would fall. Nothing is sampled and there is no
learning rate; for linear-Gaussian models the first step is exact.

Large problems are solved in stages, each of which begins where the one before ended: on a part of
the samples, on all in single precision, on all in double precision. Their means are moved to where
the ELBO is largest under the precision at hand before the precision is moved again, since a step of
the mean costs n·D multiplications and one of the precision n·D². Very large ones, of many samples
per parameter, are left to single precision where it reached the tolerance: their sums are double,
so that what products are rounded by averages out. A problem of few samples for its columns is
solved in the span of its features (`_Span`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from ibcl.inference.large_matrices import (
    add_weighted_gram,
    copy_triangle,
    in_units_of,
    inverse_of_triangular,
    size_of_change,
    squared_lengths,
    unwhitened,
)
from ibcl.inference.samples import Block, HeldSamples, Samples, drawn, held
from ibcl.likelihoods import Likelihood

# How many earlier steps Anderson's extrapolation looks at, and how many bytes they may take.
_MEMORY, _MEMORY_BYTES = 10, 2**29
# Below this step length a direction that lowers the ELBO is rounding, not information.
_SMALLEST_STEP = 1e-3
# Where a step leaves a smaller part of the way than this, there is nothing to extrapolate.
_NEWTON = 0.2
# No step is trusted to leave less than this part of the way.
_SMALLEST_RATE = 0.05
# Problems above this many multiplications do their first steps in single precision.
LARGE = 2e7
# Problems above this many, with so many samples per parameter, are left to single precision.
_VERY_LARGE, _MANY_A_PARAMETER = 5e8, 16
# Of large problems only those with at most so many samples per column are solved in their span.
_SPAN_SHARE = 0.75
# A part of the samples to begin with: so many per parameter and at least so many, where all are so
# many times as many; and when it is solved well enough.
_PART_A_PARAMETER, _SMALLEST_PART, _WORTH_A_PART, _PART_TOLERANCE = 8, 2048, 3, 0.3
# How closely a mean is found for a precision of a part, in posterior standard deviations.
_MEAN_TOLERANCE, _MEAN_ITERATIONS = 0.03, 60
# Where single precision comes no closer in so many steps, double precision goes on.
_MOST_ROUGH = 40
# How many matrices of the posterior's size exist at once beside the extrapolation's.
_POSTERIORS = 7


def needed_bytes(samples: int, columns: int, outputs: int) -> int:
    """Bytes that `solve` takes, roughly: a few D×D matrices, the features and a block of sites.

    Examples
    --------
    >>> needed_bytes(samples=200, columns=257, outputs=140) / 2**30 > 50
    True
    """
    dimension = columns * outputs
    matrices = 8 * _POSTERIORS * dimension**2
    return matrices + 2 * _history(dimension) * 8 * dimension**2 + 4 * samples * (columns + outputs)


def _history(dimension: int) -> int:
    """How many steps to remember: each takes two D×D matrices."""
    return max(2, min(_MEMORY, _MEMORY_BYTES // (16 * max(1, dimension) ** 2)))


class Natural(NamedTuple):
    """Natural parameters (η, P) of a Gaussian, in double precision."""

    linear: Tensor
    precision: Tensor

    def plus(self, other: Natural, weight: float = 1.0) -> Natural:
        """Return self + weight · other."""
        return Natural(
            torch.add(self.linear, other.linear, alpha=weight),
            torch.add(self.precision, other.precision, alpha=weight),
        )

    def scaled(self, weight: float) -> Natural:
        """Return weight · self."""
        return self if weight == 1 else Natural(weight * self.linear, weight * self.precision)


class Approximation(NamedTuple):
    """A Gaussian q, and where its own sites would take it."""

    mean: Tensor
    precision: Tensor
    natural: Natural
    target: Natural
    """What the sites under q define: q itself, at the maximum of the ELBO."""
    bound: float
    mean_step: float
    """The next step of the mean, in posterior standard deviations per parameter."""
    precision_step: float
    """The next change of the precision in units of itself, a root mean square over directions."""
    uncertainty: float
    """Relative error that rounding and quadrature leave in the bound."""
    rate: float = 1.0
    """What part of the way a step leaves, where the last one was a whole one and showed it."""

    @property
    def size(self) -> float:
        """The next step, of the mean or of the precision, whichever is larger."""
        return max(self.mean_step, self.precision_step)

    def settled(self, tolerance: float) -> bool:
        """Whether what the next step leaves is within the tolerance: the step is still taken."""
        left = self.rate / (1 - self.rate) if self.rate < 0.5 else 1.0
        return left * self.size <= tolerance

    def after(self, before: Approximation | None) -> Approximation:
        """Return it with the rate of the whole step that led here."""
        if before is None or not before.size:
            return self
        return self._replace(rate=min(1.0, max(self.size / before.size, _SMALLEST_RATE)))

    def slower_than_newton(self, before: Approximation) -> bool:
        """Whether the last step left more than a small part of the way."""
        return (
            self.mean_step > _NEWTON * before.mean_step
            or self.precision_step > _NEWTON * before.precision_step
        )

    @property
    def reach(self) -> float:
        """What the bound may rise to: twice what steps of this size gain where it is quadratic."""
        return self.bound + len(self.mean) * (self.mean_step**2 + self.precision_step**2)

    def improves_on(self, other: Approximation) -> bool:
        """Whether the bound is as high as the other's, but for rounding and quadrature."""
        return self.bound >= other.bound - self.uncertainty * (1 + abs(other.bound))

    def stepped(self) -> Approximation:
        """Return the Gaussian at the target, whose bound is no lower; itself where there is none.

        The step that is left is known, and taking it costs nothing.
        """
        factor, failure = torch.linalg.cholesky_ex(self.target.precision)
        if int(failure):
            return self
        mean = torch.cholesky_solve(self.target.linear[:, None], factor)[:, 0]
        return self._replace(mean=mean, precision=self.target.precision)


def solve(
    problem: SiteProblem,
    tolerance: float,
    max_iterations: int,
    start: Natural | None = None,
    rival: float = -math.inf,
) -> Approximation:
    """Return the Gaussian that is its own target, or the best after so many iterations.

    Parameters
    ----------
    start
        Natural parameters to begin with, where some are known that are not far off.
    rival
        A bound to compare with: what cannot reach it any more is returned as it is.
    """
    span = _Span.of(problem)
    if span is not None:
        start = start and span.drop(start)
        return span.lift(solve(span.problem, tolerance, max_iterations, start, rival))
    *rough, last = problem.stages(tolerance, begun=start is not None)
    before = None
    if start is not None and rough:
        start = rough[0].problem.moved(start)
    single = problem.left_to_single_precision
    for stage, after in pairwise([*rough, last]):
        begin = stage.begin(start, before)
        if begin is not None:
            before = stage.iterate(begin, min(max_iterations, _MOST_ROUGH))
            start = before.target
            if stage.share < 1:
                start = after.problem.with_best_mean(problem.scaled(start, stage.share))
                before = None
            elif single and before.settled(tolerance):
                return before.stepped()
    begin = last.begin(start, before)
    if begin is None:
        raise ValueError(problem.why_none())
    found = last.iterate(begin, max_iterations, rival)
    return found.stepped() if found.settled(tolerance) else found


class Stage(NamedTuple):
    """A problem of some share of the samples, and how closely it is to be solved."""

    problem: SiteProblem
    tolerance: float
    share: float = 1.0

    def begin(self, start: Natural | None, before: Approximation | None) -> Approximation | None:
        """Evaluate the start, the target of an approximation before; or find one, or None."""
        found = None if start is None else self.problem.evaluate(start)
        if found is not None:
            return found.after(before)
        # What is solved roughly, or is large, begins wherever it can.
        return self.problem.start(self.share == 1 and self.problem.dtype == torch.float64)

    def iterate(
        self, current: Approximation, max_iterations: int, rival: float = -math.inf
    ) -> Approximation:
        """Go on until the next step is within the tolerance, or the rival's bound out of reach."""
        problem = self.problem
        history = [current]
        for _ in range(max_iterations):
            if current.settled(self.tolerance) or current.reach < rival:
                break
            proposal = None
            if len(history) > 1 and current.slower_than_newton(history[-2]):
                proposal = problem.evaluate(problem.moved(_extrapolate(history, problem)))
                if proposal is None or not proposal.improves_on(current):
                    proposal, history = None, [current]
            step = 1.0
            change = current.target.plus(current.natural, -1)
            while proposal is None:
                proposal = problem.evaluate(problem.moved(current.natural.plus(change, step)))
                if step > _SMALLEST_STEP and (
                    proposal is None or not proposal.improves_on(current)
                ):
                    proposal, step = None, step / 2
                elif proposal is None:
                    return current
                elif step == 1:
                    proposal = proposal.after(current)
            current = proposal
            history = [*history, current][-problem.history :]
        return current


def _extrapolate(history: list[Approximation], problem: SiteProblem) -> Natural:
    r"""Anderson's extrapolation: the combination of recent q whose change would be smallest.

    With changes c_i = target_i − natural_i it is target_k − Σ_i γ_i (target_{i+1} − target_i) where
    γ minimises ‖c_k − Σ_i γ_i (c_{i+1} − c_i)‖. Lengths are measured in units of the prior, so that
    they are the same in the span of few samples as in the whole space.
    """
    changes = torch.stack(
        [problem.in_units_of_the_prior(q.target.plus(q.natural, -1)) for q in history]
    )
    steps = changes.diff(dim=0)
    # The driver that copes with directions that repeat is only there on the CPU.
    shares = torch.linalg.lstsq(
        (steps @ steps.T).cpu(), (steps @ changes[-1])[:, None].cpu(), driver="gelsd"
    ).solution[:, 0]
    combined = history[-1].target
    for share, (before, after) in zip(shares.tolist(), pairwise(history), strict=True):
        combined = combined.plus(after.target, -share).plus(before.target, share)
    return combined


class SiteProblem:
    """Samples, likelihood and prior of parameters θ, one row of columns per output.

    Parameters
    ----------
    samples
        Features φ and labels; in the solver's coordinates a column of ones follows the features
        where the head has a bias.
    dtype
        What products of features are computed in; they are summed in double precision always.
    parameters
        How many there are in the whole space, whose average step the tolerance is about.
    """

    def __init__(
        self,
        samples: Samples,
        likelihood: Likelihood,
        prior_mean: Tensor,
        prior_precision: Tensor,
        *,
        bias: bool,
        dtype: torch.dtype = torch.float64,
        parameters: int | None = None,
    ) -> None:
        self.samples, self.likelihood = samples, likelihood
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.bias, self.dtype = bias, dtype
        self.columns = samples.columns + bias
        self.outputs = len(prior_mean) // self.columns
        self.multiplications = samples.size * len(prior_mean) ** 2
        self.parameters = parameters or len(prior_mean)
        self.history = _history(len(prior_mean))
        self._known: _Known | None = None

    @property
    def left_to_single_precision(self) -> bool:
        """Whether so many samples say so much of each parameter that single precision is enough."""
        many = self.samples.size > _MANY_A_PARAMETER * len(self.prior_mean)
        return many and self.multiplications > _VERY_LARGE

    def moved(self, natural: Natural) -> Natural:
        """Return it with its best mean, where a step of the mean is far cheaper than others."""
        cheap = self.outputs == 1 and self.multiplications > LARGE
        return self.with_best_mean(natural) if cheap and self.dtype == torch.float32 else natural

    def over(self, samples: Samples, dtype: torch.dtype) -> SiteProblem:
        """Return the problem of other samples in some precision, with the same prior."""
        changed = SiteProblem(
            samples,
            self.likelihood,
            self.prior_mean,
            self.prior_precision,
            bias=self.bias,
            dtype=dtype,
            parameters=self.parameters,
        )
        changed.prior_root = self.prior_root
        return changed

    def stages(self, tolerance: float, begun: bool) -> list[Stage]:
        """Problems to solve one after another, each from the solution of the one before."""
        stages = []
        if self.multiplications > LARGE:
            part = max(_SMALLEST_PART, _PART_A_PARAMETER * len(self.prior_mean))
            if not begun and self.samples.size > _WORTH_A_PART * part:
                some = drawn(self.samples, part)
                stages.append(
                    Stage(
                        self.over(some, torch.float32),
                        max(tolerance, _PART_TOLERANCE),
                        some.size / self.samples.size,
                    )
                )
            if self.dtype != torch.float32:
                whole = self.over(self.samples, torch.float32)
                stages.append(Stage(whole, tolerance))
        return [*stages, Stage(self, tolerance)]

    @property
    def prior(self) -> Natural:
        """Its natural parameters."""
        return Natural(self.prior_precision @ self.prior_mean, self.prior_precision)

    def scaled(self, natural: Natural, share: float) -> Natural:
        """Return the natural parameters that all samples would give, from those of some of them."""
        return self.prior.plus(natural.plus(self.prior, -1), 1 / share)

    @cached_property
    def prior_root(self) -> Tensor | None:
        """Cholesky factor of P₀, or its diagonal where that is all of it; None where none is."""
        diagonal = self.prior_precision.diagonal()
        if bool((diagonal > 0).all()) and not int(
            torch.count_nonzero(self.prior_precision) - len(diagonal)
        ):
            return diagonal.sqrt()
        factor, failure = torch.linalg.cholesky_ex(self.prior_precision)
        return None if int(failure) else factor

    def in_units_of_the_prior(self, natural: Natural) -> Tensor:
        """L₀⁻¹ P L₀⁻ᵀ and L₀⁻¹ η as one vector, of many parameters along some directions."""
        root = self.prior_root
        assert root is not None
        linear = unwhitened(root, natural.linear[:, None])
        precision = in_units_of(root, natural.precision)
        return torch.cat([precision.flatten(), linear[:, 0]])

    def start(self, best: bool = True) -> Approximation | None:
        """The best of a few first steps, or the first; None where none of them gives a Gaussian.

        From the prior's mean with its variance, and without (Newton), and from outputs under which
        the likelihood says the labels are likely.
        """
        points: list[_OutputsOf] = [self._known_outputs(self.prior_mean)]
        root = self.prior_root
        if root is not None:
            points.insert(0, self._prior_outputs(root))
        first = next(iter(self.samples.blocks()))
        if self.likelihood.likely_outputs(first.y[:1], self.outputs) is not None:
            points.append(self._likely_outputs)
        steps = (self.evaluate(self._pass(point)[0]) for point in points)
        starts = (q for q in steps if q is not None)
        return max(starts, key=lambda q: q.bound, default=None) if best else next(starts, None)

    def why_none(self) -> str:
        """Say what stands in the way of a first step."""
        deviations = self.prior_precision.diagonal().rsqrt()
        largest = max(float(block.features.abs().max()) for block in self.samples.blocks())
        return (
            f"The posterior cannot be computed in double precision: features reach {largest:.3g} "
            f"and the prior's standard deviations {float(deviations.max()):.3g}; scale the inputs, "
            "for example to unit variance, remove outliers, or use a narrower prior."
        )

    def evaluate(self, natural: Natural) -> Approximation | None:
        """Return the Gaussian of these natural parameters with its target, or None."""
        known, self._known = self._known, None
        if known is not None and known.precision is natural.precision:
            factor, inverse = known.factor, known.inverse
            mean = torch.cholesky_solve(natural.linear[:, None], factor)[:, 0]
            outputs_of = self._outputs_of_known(mean, known.variances)
        else:
            factor, failure = torch.linalg.cholesky_ex(natural.precision)
            if int(failure):
                return None
            inverse = inverse_of_triangular(factor)
            mean = torch.cholesky_solve(natural.linear[:, None], factor)[:, 0]
            outputs_of = self._gaussian_outputs(mean, inverse)
        target, loss = self._pass(outputs_of)
        bound = -loss - self._divergence(mean, factor, inverse)
        if not math.isfinite(bound) or not bool(
            torch.isfinite(target.linear).all() & torch.isfinite(target.precision).all()
        ):
            return None
        gradient = target.linear - target.precision @ mean
        change = size_of_change(inverse, target.precision, natural.precision)
        root = self.parameters**0.5
        rounding = 1e-9 if self.dtype == torch.float64 else 1e-6
        return Approximation(
            mean=mean,
            precision=natural.precision,
            natural=natural,
            target=target,
            bound=bound,
            mean_step=float((inverse @ gradient).norm()) / root,
            precision_step=change / root,
            uncertainty=max(self.likelihood.quadrature_error, rounding),
        )

    def with_best_mean(self, natural: Natural) -> Natural:
        r"""Return the natural parameters with the same precision and the mean that suits it best.

        It maximises the ELBO over μ with all variances as they are, by L-BFGS in the coordinates u
        of μ = μ₁ + L⁻ᵀu, in which the precision P = LLᵀ is the identity. A step costs n·D
        multiplications, where one that moves the precision too costs n·D².
        """
        factor, failure = torch.linalg.cholesky_ex(natural.precision)
        if int(failure) or self.outputs > 1:
            return natural
        mean = torch.cholesky_solve(natural.linear[:, None], factor)[:, 0]
        inverse = inverse_of_triangular(factor)
        outputs_of = self._gaussian_outputs(mean, inverse)
        covariances = [outputs_of(features, y)[1] for features, y, _ in self._blocks(ones=False)]
        self._known = _Known(natural.precision, factor, inverse, covariances)

        def loss_and_gradient(u: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            theta = mean + inverse.T @ torch.as_tensor(u).to(mean)
            shift = self.prior_precision @ (theta - self.prior_mean)
            loss = 0.5 * float(shift @ (theta - self.prior_mean))
            gradient = shift
            for (features, y, weights), covariance in zip(
                self._blocks(ones=False), covariances, strict=True
            ):
                assert weights is not None
                expected = self.likelihood.expectations(
                    self._outputs(theta, features), covariance, y
                )
                loss += float(weights @ expected.loss)
                gradient = gradient - self._pulled(features, weights, expected.residual)
            return loss, (inverse @ gradient).cpu().numpy()

        found = minimize(
            loss_and_gradient,
            np.zeros(len(mean)),
            jac=True,
            method="L-BFGS-B",
            options={"gtol": _MEAN_TOLERANCE, "maxiter": _MEAN_ITERATIONS},
        )
        if not np.isfinite(found.fun) or not np.isfinite(found.x).all():
            return natural
        better = mean + inverse.T @ torch.as_tensor(found.x).to(mean)
        return Natural(natural.precision @ better, natural.precision)

    def _pulled(self, features: Tensor, weights: Tensor, values: Tensor) -> Tensor:
        """Σ_s w_s values_s ⊗ φ_s in double precision, the column of ones given or not."""
        weighted = weights[:, None] * values
        pulled = (weighted.to(features.dtype).T @ features).double()
        if features.shape[1] < self.columns:
            pulled = torch.cat([pulled, weighted.sum(0)[:, None]], 1)
        return pulled.flatten()

    def _divergence(self, mean: Tensor, factor: Tensor, inverse: Tensor) -> float:
        """KL(q ‖ p) = ½ (‖L₀ᵀ(μ − μ₀)‖² + ‖L⁻¹L₀‖² − D + log |P| − log |P₀|)."""
        root = self.prior_root
        if root is None:
            return math.nan
        shift = mean - self.prior_mean
        if root.ndim == 1:
            scaled, spread, diagonal = root * shift, inverse * root, root
        else:
            scaled, spread, diagonal = root.T @ shift, inverse @ root, root.diagonal()
        logarithms = factor.diagonal().log().sum() - diagonal.log().sum()
        squares = scaled.square().sum() + spread.square().sum() - len(mean)
        return float(0.5 * squares + logarithms)

    def _blocks(self, ones: bool = True) -> Iterator[Block]:
        """Blocks in this precision with weights, and with the column of ones a bias needs."""
        for block in self.samples.blocks():
            features = block.features.to(self.dtype)
            if self.bias and ones:
                features = torch.cat([features, features.new_ones(len(features), 1)], 1)
            weights = features.new_ones(len(features), dtype=torch.float64)
            if block.weights is not None:
                weights = block.weights.to(weights)
            yield Block(features, block.y, weights)

    def _pass(self, outputs_of: _OutputsOf) -> tuple[Natural, float]:
        """Go over the samples: the natural parameters their sites define, and the expected loss."""
        dimension = len(self.prior_mean)
        linear = self.prior_precision @ self.prior_mean
        information = linear.new_zeros(self.outputs, self.columns, self.outputs, self.columns)
        loss = 0.0
        for features, y, weights in self._blocks(ones=self.outputs > 1):
            assert weights is not None
            mean, covariance = outputs_of(features, y)
            expected = self.likelihood.expectations(mean, covariance, y)
            values = expected.residual + (expected.curvature @ mean[:, :, None])[:, :, 0]
            linear = linear + self._pulled(features, weights, values)
            curvature = weights[:, None, None] * expected.curvature
            for row in range(self.outputs):
                for column in range(row, self.outputs):
                    own = curvature[:, row, column]
                    if bool(own.any()):
                        add_weighted_gram(information[row, :, column], features, own)
            loss += float(weights @ expected.loss)
        for row in range(self.outputs):
            copy_triangle(information[row, :, row])
            for column in range(row + 1, self.outputs):
                copy_triangle(information[row, :, column])
                information[column, :, row] = information[row, :, column]
        precision = information.reshape(dimension, dimension).add_(self.prior_precision)
        return Natural(linear, precision), loss

    def _outputs(self, theta: Tensor, features: Tensor) -> Tensor:
        """θᵀφ, with the column of ones or without it."""
        rows = theta.reshape(self.outputs, self.columns).to(features.dtype)
        given = features.shape[1]
        outputs = features @ rows[:, :given].T
        return (outputs + rows[:, given] if given < self.columns else outputs).double()

    def _known_outputs(self, theta: Tensor) -> _OutputsOf:
        """Outputs of θ, without variance."""

        def outputs_of(features: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
            mean = self._outputs(theta, features)
            return mean, mean.new_zeros(*mean.shape, self.outputs)

        return outputs_of

    def _prior_outputs(self, root: Tensor) -> _OutputsOf:
        """Means and covariances of outputs under the prior, with the root of its precision."""
        if root.ndim > 1:
            return self._gaussian_outputs(self.prior_mean, inverse_of_triangular(root))
        variances = root.square().reciprocal().reshape(self.outputs, self.columns).to(self.dtype)

        def outputs_of(features: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
            given = features.shape[1]
            spread = features.square() @ variances[:, :given].T
            spread = spread + variances[:, given:].sum(1)
            return self._outputs(self.prior_mean, features), torch.diag_embed(spread.double())

        return outputs_of

    def _outputs_of_known(self, mean: Tensor, variances: Sequence[Tensor]) -> _OutputsOf:
        """Means, with the variances of every block in turn."""
        blocks = iter(variances)
        return lambda features, _: (self._outputs(mean, features), next(blocks))

    def _likely_outputs(self, features: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs under which the labels are likely, without variance."""
        likely = self.likelihood.likely_outputs(y, self.outputs)
        assert likely is not None
        mean = likely.to(features.device, torch.float64)
        return mean, mean.new_zeros(*mean.shape, self.outputs)

    def _gaussian_outputs(self, mean: Tensor, inverse: Tensor) -> _OutputsOf:
        """Means and covariances S_s = (I ⊗ φ_sᵀ) P⁻¹ (I ⊗ φ_s), with the inverse factor of P."""
        if self.outputs == 1:
            whitening = inverse.T.to(self.dtype)
            return lambda features, _: (
                self._outputs(mean, features),
                squared_lengths(features, whitening)[:, None, None],
            )
        blocks = (inverse.T @ inverse).to(self.dtype)
        blocks = blocks.reshape(self.outputs, self.columns, self.outputs, self.columns)

        def outputs_of(features: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
            covariance = mean.new_empty(len(features), self.outputs, self.outputs)
            for row in range(self.outputs):
                for column in range(row, self.outputs):
                    values = ((features @ blocks[row, :, column]) * features).sum(1)
                    covariance[:, row, column] = values
                    covariance[:, column, row] = values
            return self._outputs(mean, features), covariance

        return outputs_of


# Means (n, outputs) and covariances (n, outputs, outputs) of a block's outputs, from its features
# and labels.
_OutputsOf = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class _Known(NamedTuple):
    """A precision with its factor, that one's inverse, and what outputs of all blocks vary by."""

    precision: Tensor
    factor: Tensor
    inverse: Tensor
    variances: Sequence[Tensor]


class _Span:
    r"""A problem with few samples for its columns, in the span of its whitened features.

    With P₀ = L₀L₀ᵀ, u = L₀ᵀθ and the rows ΦL₀⁻ᵀ = RᵀQᵀ, outputs depend on a = Qᵀu alone, of n
    numbers with the prior N(Qᵀ L₀ᵀμ₀, I); across the span u keeps its prior. So the same ELBO is
    maximised with the n×n features Rᵀ, and

        μ = μ₀ + L₀⁻ᵀ Q (E[a] − a₀),     P = P₀ + L₀ Q (P_a − I) Qᵀ L₀ᵀ.
    """

    def __init__(self, whole: SiteProblem, root: Tensor, samples: HeldSamples) -> None:
        self.whole, self.root = whole, root
        features = samples.features.double()
        if whole.bias:
            features = torch.cat([features, features.new_ones(len(features), 1)], 1)
        self.basis, triangle = torch.linalg.qr(unwhitened(root, features.T))
        prior = self.basis.T @ self._whitened(whole.prior_mean)
        identity = torch.eye(len(prior), dtype=torch.float64, device=prior.device)
        self.problem = SiteProblem(
            samples._replace(features=triangle.T.contiguous()),
            whole.likelihood,
            prior,
            identity,
            bias=False,
            parameters=len(whole.prior_mean),
        )

    @classmethod
    def of(cls, problem: SiteProblem) -> _Span | None:
        """Return the smaller problem, or None where there is none."""
        size, root = problem.samples.size, problem.prior_root
        most = problem.columns * (1.0 if problem.multiplications <= LARGE else _SPAN_SHARE)
        if problem.outputs > 1 or size >= most or root is None:
            return None
        return cls(problem, root, held(problem.samples.blocks()))

    def _whitened(self, theta: Tensor) -> Tensor:
        """L₀ᵀ θ."""
        return self.root * theta if self.root.ndim == 1 else self.root.T @ theta

    def drop(self, natural: Natural) -> Natural:
        """Natural parameters of a, where those of θ differ from the prior's in the span alone."""
        across = unwhitened(self.root, unwhitened(self.root, natural.precision).T)
        linear = unwhitened(self.root, natural.linear[:, None])[:, 0]
        return Natural(self.basis.T @ linear, self.basis.T @ across @ self.basis)

    def lift(self, found: Approximation) -> Approximation:
        """Return the Gaussian of θ; what it says of its steps stays in the coordinates of a."""
        root, basis, prior = self.root, self.basis, self.problem.prior_mean
        along = basis @ (found.mean - prior)
        if root.ndim == 1:
            mean, directions = along / root, root[:, None] * basis
        else:
            mean = torch.linalg.solve_triangular(root.T, along[:, None], upper=True)[:, 0]
            directions = root @ basis
        added = found.precision - self.problem.prior_precision
        precision = self.whole.prior_precision + directions @ (added @ directions.T)
        precision = (precision + precision.T) / 2
        return found._replace(mean=self.whole.prior_mean + mean, precision=precision)

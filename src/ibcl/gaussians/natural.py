r"""Natural parameters: the vector space in which evidence adds up.

A Gaussian q ∝ exp(ηᵀθ − ½ θᵀPθ) has the linear term η = Pμ and the precision P. Multiplying
densities adds them, dividing subtracts them, raising to a power scales them; so a task's likelihood
is a difference of two of them, and the posterior of a weighted problem a linear combination:

    (prior + Σ_k K w_k · (after_k − before_k)).gaussian()

Every family has a class of its own, and sums stay in the smallest family that holds both terms: one
of them `embed`s the other, or both become dense.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ibcl.gaussians.dense import DenseNatural
    from ibcl.gaussians.diagonal import DiagonalNatural
    from ibcl.gaussians.distribution import Gaussian
    from ibcl.gaussians.low_rank import LowRankNatural


LARGEST_DENSE = 2**15
"""Parameters up to which a family that needs no D×D matrix is turned into one that has it."""


class ImproperError(ValueError):
    """A precision is not positive definite, so that no Gaussian has it."""


class NaturalParameters(ABC):
    """Linear term η and precision P of one family, in float64; an element of a vector space.

    A family writes `plus`'s arithmetic (`_plus`, `scaled`), `embed`, `precision_times`, `mean` and
    `around`; the rest follows, and is worth overriding where the family can do better than D×D.
    """

    linear: Tensor

    @property
    def dimension(self) -> int:
        """D, the number of parameters."""
        return self.linear.numel()

    @property
    def nbytes(self) -> int:
        """Bytes its tensors take."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, Tensor))

    @abstractmethod
    def scaled(self, weight: float) -> Self:
        """Return weight · self: the natural parameters of a power of the density."""

    @abstractmethod
    def embed(self, other: NaturalParameters) -> NaturalParameters | None:
        """Return the same as `other` in the form of this one; None where that cannot hold it."""

    @abstractmethod
    def _plus(self, other: Any, weight: float) -> NaturalParameters:
        """Return self + weight · other, for an `other` that `embed` made."""

    @abstractmethod
    def precision_times(self, columns: Tensor) -> Tensor:
        """Return P times a float64 vector or matrix of D rows."""

    @abstractmethod
    def mean(self) -> Tensor:
        """Return the mean μ that solves Pμ = η; `ImproperError` where there is none."""

    @abstractmethod
    def around(self, mean: Tensor) -> Gaussian:
        """Return the Gaussian with this precision and that mean, kept in the mean's dtype."""

    def gaussian(self, dtype: torch.dtype = torch.float64) -> Gaussian:
        """Return the Gaussian with these natural parameters; `ImproperError` if there is none.

        Parameters
        ----------
        dtype
            Of its mean, and of what the family keeps beside it in the mean's precision.
        """
        return self.around(self.mean().to(dtype))

    def proper(self) -> tuple[NaturalParameters, float]:
        """Return these cut back to a proper likelihood, and the share of parameters that was cut.

        Families with correlations need no cut, because the evidence of their inference is positive
        semi-definite; where rounding or pointers left it otherwise, `gaussian` refuses.
        """
        return self, 0.0

    def plus(self, other: NaturalParameters, weight: float = 1.0) -> NaturalParameters:
        """Return self + weight · other, in the smallest of their families that holds both.

        Examples
        --------
        >>> from ibcl.gaussians import DenseGaussian, DiagonalGaussian
        >>> narrow = DiagonalGaussian([1.0], [0.5]).natural_parameters()
        >>> wide = DenseGaussian([0.0], [[1.0]]).natural_parameters()
        >>> product = narrow.plus(wide, weight=2.0).gaussian()
        >>> round(product.mean.item(), 4), product.precision.item()
        (0.6667, 6.0)
        """
        if other.dimension != self.dimension:
            raise ValueError(
                f"Natural parameters of different dimensions cannot be added: {self.dimension} "
                f"and {other.dimension}."
            )
        embedded = self.embed(other)
        if embedded is not None:
            return self._plus(embedded, weight)
        widened = other.embed(self)
        if widened is not None:
            return widened._plus(other, weight)
        return self.dense()._plus(other.dense(), weight)

    def __add__(self, other: NaturalParameters) -> NaturalParameters:
        return self.plus(other)

    def __sub__(self, other: NaturalParameters) -> NaturalParameters:
        return self.plus(other, -1.0)

    def __mul__(self, weight: float) -> Self:
        return self.scaled(float(weight))

    def __rmul__(self, weight: float) -> Self:
        return self.scaled(float(weight))

    def dense(self) -> DenseNatural:
        """Return the same with the precision as a matrix, where it is not too large for one."""
        from ibcl.gaussians.dense import DenseNatural

        if self.dimension > LARGEST_DENSE:
            raise ValueError(
                f"A matrix of {self.dimension} × {self.dimension} numbers is too large; stay in "
                "families that need none."
            )
        return DenseNatural(self.linear, self._matrix())

    def _matrix(self) -> Tensor:
        """P as a matrix."""
        return self.precision_times(
            torch.eye(self.dimension, dtype=torch.float64, device=self.linear.device)
        )

    def as_diagonal(self) -> DiagonalNatural | None:
        """Return the same with the precision as a vector; None where parameters correlate."""
        return None

    def precision_diagonal(self) -> Tensor:
        """Return the diagonal of P."""
        return self.dense().precision.diagonal()

    def precision_at(self, index: Tensor) -> Tensor:
        """Return the rows and columns of P at these positions, as a matrix."""
        return self.dense().precision[index[:, None], index]

    def low_rank(self, rank: int, unit: Tensor | None = None) -> LowRankNatural | None:
        """Return a projection onto so many directions and the diagonal; None where there is none.

        Parameters
        ----------
        unit
            Sizes in which directions are compared, one per parameter; the root of the precision's
            own diagonal without them.
        """
        return None

    def half(self, unit: Tensor) -> dict[str, Tensor] | None:
        """Return the precision rounded to float16, to keep; None where the family has no such form.

        Whatever is rounded, what `from_half` makes of it is positive semi-definite. None also where
        the precision is not.

        Parameters
        ----------
        unit
            One size a parameter, against which a negative eigenvalue counts as rounding.
        """
        return None

    @classmethod
    def from_half(cls, tensors: Mapping[str, Tensor], dimension: int) -> NaturalParameters:
        """Return what `half` kept: the precision, with a linear term of zero."""
        names = ", ".join(sorted(tensors))
        raise ValueError(
            f"{cls.__name__} of {dimension} parameters has no compact form; it holds {names}"
        )


def scale_rows(scales: Tensor, columns: Tensor) -> Tensor:
    """diag(scales) X, for a vector or a matrix X."""
    return scales.reshape(-1, *[1] * (columns.ndim - 1)) * columns


def linear_combination(
    terms: Iterable[tuple[float, NaturalParameters]],
) -> NaturalParameters:
    """Return Σ w · a over pairs (w, a), in the smallest family that holds all terms.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> a, b = (DiagonalGaussian([m], [1.0]).natural_parameters() for m in (1.0, 4.0))
    >>> linear_combination([(0.5, a), (0.25, b)]).gaussian().mean.item()
    2.0
    """
    total: NaturalParameters | None = None
    for weight, term in terms:
        total = term.scaled(weight) if total is None else total.plus(term, weight)
    if total is None:
        raise ValueError("A linear combination needs at least one term.")
    return total

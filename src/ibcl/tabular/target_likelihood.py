"""The likelihood of a table's target, in the target's own units or in scaled ones."""

from __future__ import annotations

from numbers import Real

from ibcl.likelihoods import LIKELIHOODS, Likelihood, Normal, canonical


def value_likelihood(
    likelihood: str | Likelihood = Normal.name, noise: float | None = None
) -> str | Likelihood:
    """Return the likelihood of a value that is to be predicted, in units of the target.

    Parameters
    ----------
    likelihood : a name of `ibcl.likelihoods.LIKELIHOODS`, or a likelihood itself.
    noise : standard deviation of a Gaussian one; found on the first task where None.

    Raises
    ------
    ValueError
        If it is one of classes, or none that is known, or if noise means nothing to it.

    Examples
    --------
    >>> value_likelihood("poisson"), value_likelihood(noise=2.0)
    ('poisson', Normal(noise=2.0))
    >>> value_likelihood("poisson", noise=2.0)
    Traceback (most recent call last):
    ...
    ValueError: noise= means nothing to likelihood='poisson'; leave it out.
    """
    kind = LIKELIHOODS.get(likelihood) if isinstance(likelihood, str) else type(likelihood)
    if kind is None or not issubclass(kind, Likelihood) or kind.classification:
        names = ", ".join(name for name, known in LIKELIHOODS.items() if not known.classification)
        raise ValueError(
            f"The likelihood of a value must be one of {names}, or such an object of "
            f"ibcl.likelihoods, not {likelihood!r}."
        )
    if noise is None:
        return likelihood
    if kind is not Normal or not isinstance(likelihood, str):
        called = likelihood if isinstance(likelihood, str) else kind.name
        raise ValueError(f"noise= means nothing to likelihood={called!r}; leave it out.")
    if not isinstance(noise, Real) or not 0 < float(noise) < float("inf"):
        raise ValueError(f"The noise must be positive, not {noise!r}.")
    return Normal(noise)


def scales(likelihood: str | Likelihood) -> bool:
    """Whether a target may be scaled: a Gaussian one is Gaussian in every unit, a count is not.

    Examples
    --------
    >>> scales("normal"), scales("poisson")
    (True, False)
    """
    if isinstance(likelihood, str):
        return canonical(likelihood) == Normal.name
    return isinstance(likelihood, Normal)


def in_scaled_units(likelihood: str | Likelihood, scale: float) -> str | Likelihood:
    """Return a likelihood of y as the one of y / scale.

    Examples
    --------
    >>> in_scaled_units(Normal(3.0), 2.0)
    Normal(noise=1.5)
    """
    return Normal(likelihood.noise / scale) if isinstance(likelihood, Normal) else likelihood

"""The network of a table, the same for every front door."""

from __future__ import annotations

from inspect import signature

from ibcl import networks
from ibcl.pooling import RoutedEvidence

DEFAULT_HEAD = "random_features"
DEFAULT_WIDTH = 256
# Matrices are D×D. Where D would become larger than this, many classes get fewer random features,
# and many inputs do not join the random features made of them.
LARGEST_DIMENSION = 1500


def head_names() -> tuple[str, ...]:
    """Names of the heads that can be made for a table: whatever `ibcl.networks.BUILDERS` has."""
    return tuple(
        name
        for name, builder in networks.BUILDERS.items()
        if {"inputs", "outputs"} <= set(signature(builder).parameters)
    )


def outputs_for(classes: int | None) -> int:
    """Number of outputs a network needs: one for a value or two classes, else one per class.

    Examples
    --------
    >>> outputs_for(None), outputs_for(2), outputs_for(5)
    (1, 1, 5)
    """
    return 1 if classes is None or classes == 2 else classes


def make_head(
    name: str,
    inputs: int,
    outputs: int,
    *,
    width: int | None = None,
    hidden: tuple[int, ...] | None = None,
    seed: int = 0,
) -> networks.SpecifiedNetwork:
    """Make a network for a table by its name.

    Parameters
    ----------
    name : a key of `ibcl.networks.BUILDERS`.
    width : number of random features, 256 where None; fewer if with many outputs the matrices of
        all parameters would have more than 1,500 rows.
    hidden : hidden units of an mlp, a layer.
    seed : draws the random features.

    Examples
    --------
    >>> make_head("random_features", 4, 1).specification["width"]
    256
    >>> make_head("linear", 4, 1, width=8)
    Traceback (most recent call last):
    ...
    ValueError: width= means nothing to a network of kind linear.
    """
    if name not in head_names():
        raise ValueError(f"network must be one of {', '.join(head_names())}, not {name!r}.")
    taken = signature(networks.BUILDERS[name]).parameters
    given = {"width": width, "hidden": None if hidden is None else list(hidden)}
    settings = {key: value for key, value in given.items() if value is not None}
    for key in settings:
        if key not in taken:
            raise ValueError(f"{key}= means nothing to a network of kind {name}.")
    if name == DEFAULT_HEAD:
        return _random_features(
            inputs, DEFAULT_WIDTH if width is None else width, outputs, seed=seed
        )
    if "seed" in taken:
        settings["seed"] = seed
    return networks.BUILDERS[name](inputs=inputs, outputs=outputs, **settings)


def table_pooling(
    network: networks.SpecifiedNetwork, inputs: int, outputs: int
) -> RoutedEvidence | None:
    """Return a table's default pooling rule; None for the usual one.

    Tasks of a table are mostly alike, so that heads borrow from each other, and rows are often few
    beside columns, so that the gate's temperature is found from them. Heads answer alone, but
    for tables too wide for random features beside the columns: there, densities of the classes
    stand beside the heads, as they do for features of a backbone.

    Parameters
    ----------
    inputs, outputs : of the network.

    Examples
    --------
    >>> table_pooling(make_head("linear", 4, 1), 4, 1).settings()
    {'head_share': 1.0, 'borrow': True, 'adaptive': True}
    >>> table_pooling(make_head("mlp", 4, 1), 4, 1) is None
    True
    """
    if network.specification["kind"] not in ("linear", DEFAULT_HEAD):
        return None
    wide = reads_only_random(inputs, outputs)
    rule = RoutedEvidence(head_share=None if wide else 1.0, borrow=True, adaptive=True)
    return rule if rule.fits(networks.FlatNetwork(network).columns or inputs) else None


def reads_only_random(inputs: int, outputs: int) -> bool:
    """Whether a table is so wide that its random features leave the table itself out."""
    return 2 * inputs > LARGEST_DIMENSION // outputs - 1


def readable_by_experts(kind: str, inputs: int, outputs: int) -> str:
    """Return the kind of network behind a table whose features hold the table itself.

    Experts read that; where random features leave it out, a linear head stands in for them.

    Examples
    --------
    >>> readable_by_experts("random_features", 10, 1), readable_by_experts("mlp", 1500, 1)
    ('random_features', 'mlp')
    >>> readable_by_experts("random_features", 1500, 1)
    'linear'
    """
    random = kind == "random_features"
    return "linear" if random and reads_only_random(inputs, outputs) else kind


def _random_features(inputs: int, width: int, outputs: int, seed: int) -> networks.SpecifiedNetwork:
    """Make x beside random features of it, as far as matrices stay small."""
    room = LARGEST_DIMENSION // outputs - 1
    skip = not reads_only_random(inputs, outputs)
    if outputs > 1:
        width = min(width, max(1, room - inputs * skip))
    return networks.random_features(inputs, width, outputs, seed=seed, skip=skip, exact=True)

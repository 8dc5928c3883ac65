"""Figures of other methods as they are printed, to stand beside ours."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A printed hypervolume, and the environment steps of training where they are known."""

    hypervolume: float
    steps: float | None = None


PUBLISHED: dict[str, dict[str, Published]] = {
    "mo-halfcheetah": {
        "PG-MORL": Published(5.75e6),
        "PD-MORL": Published(5.98e6),
        "Hyper-MORL": Published(5.53e6, 30e6),
        "PSL-MORL": Published(5.92e6),
        "IBCRL (paper)": Published(5.78e6),
    },
    "mo-ant": {
        "PG-MORL": Published(5.79e6),
        "PD-MORL": Published(7.05e6),
        "Hyper-MORL": Published(7.49e6, 48e6),
        "PSL-MORL": Published(8.63e6),
        "IBCRL (paper)": Published(7.67e6),
    },
}
"""As printed in the paper, which took the others from their own papers.

Hyper-MORL's steps are those of the arguments it released with its policies.
"""


PUBLISHED_POINTS: dict[str, list[tuple[float, float]]] = {
    "mo-halfcheetah": [(500.0, 2493.0), (2451.0, 2205.0), (2459.0, 1526.0)],
}
"""Points of PD-MORL's front as printed in its paper."""

"""How every figure looks: one palette, one set of markers and dashes, one size of text.

The colours are Okabe and Ito's, which people with any of the common colour deficiencies can tell
apart; markers and dashes say the same once more, for print without colour.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ibcl.experiments.evaluation.titles import place

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("solid", "dashed", "dashdot", "dotted")

MOST_LINES = 6
"""As many lines as one can follow in a panel."""

SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "savefig.dpi": 300,
    "svg.hashsalt": "ibcl",
}
"""For matplotlib."""

PLOTLY_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
PLOTLY_DASHES = ("solid", "dash", "dashdot", "dot")


class Look(NamedTuple):
    """Colour, marker and dashes of a line, by their positions above."""

    colour: int
    marker: int
    dashes: int

    @property
    def hue(self) -> str:
        """The colour itself."""
        return PALETTE[self.colour]


def look(position: int) -> Look:
    """Return the look of the n-th line; colours and markers change together, then dashes.

    Examples
    --------
    >>> look(0).hue != look(1).hue and look(0).marker != look(1).marker
    True
    >>> look(0).hue == look(7).hue and look(0).dashes != look(7).dashes
    True
    """
    turn = position // len(PALETTE)
    return Look(position % len(PALETTE), (position + turn) % len(MARKERS), turn % len(DASHES))


def looks_of(methods: list[str]) -> dict[str, Look]:
    """Give the methods of one panel looks of their own, in the order of tables.

    Examples
    --------
    >>> looks = looks_of(["gem", "ibcl"])
    >>> looks["ibcl"] == look(0), looks["gem"] == look(1)
    (True, True)
    """
    ordered = sorted(dict.fromkeys(methods), key=place)
    return {name: look(position) for position, name in enumerate(ordered)}

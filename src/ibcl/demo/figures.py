"""The page's pictures: one function a figure, from measurements to what ``charts.js`` draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ibcl.demo.disagreement import QUESTIONS, WEIGHTS, Disagreement
from ibcl.demo.experiment import Results, WayResult
from ibcl.demo.uncertainty import Doubt

# Shapes tell the ways apart without their colours.
SHAPES = ("circle", "triangle", "diamond", "square")


def _looks(position: int, hollow: bool) -> dict[str, Any]:
    return {
        "shape": SHAPES[position],
        "stroke": f"c{position}",
        "fill": f"f{position}",
        "hollow": hollow,
    }


def _series(results: Results) -> list[tuple[str, WayResult, dict[str, Any], bool]]:
    """List generated models of every way, and retrained ones once a network."""
    found, networks = [], set()
    for position, result in enumerate(results.ways):
        found.append((result.way.name, result, _looks(position, hollow=False), False))
        if result.way.network not in networks:
            networks.add(result.way.network)
            name = f"{result.way.name}: network trained again"
            found.append((name, result, _looks(position, hollow=True), True))
    return found


def accuracy_by_preference(results: Results) -> dict[str, Any]:
    """Weighted accuracy of each named preference, of generated and of retrained models."""
    return {
        "kind": "dots",
        "label": "weighted accuracy of every preference",
        "percent": True,
        "ceiling": 1,
        "xLabel": "weighted accuracy",
        "rows": list(results.preferences),
        "series": [
            {
                "name": name,
                "values": results.weighted(way.retrained if again else way.accuracy).tolist(),
                **looks,
            }
            for name, way, looks, again in _series(results)
        ],
    }


def trade_off(results: Results) -> dict[str, Any]:
    """Accuracy on one task against accuracy on another, as weight moves between them."""
    first, second = results.front_tasks
    names, weights = results.digits.names, results.front_weights

    def points(accuracy: Any) -> list[dict[str, Any]]:
        return [
            {
                "x": float(row[first]),
                "y": float(row[second]),
                "title": f"{names[first]} weighs {w[first]:.0%}, {names[second]} {w[second]:.0%}",
            }
            for row, w in zip(accuracy, weights, strict=True)
        ]

    return {
        "kind": "scatter",
        "label": f"trade-off between {names[first]} and {names[second]}",
        "percent": True,
        "ceiling": 1,
        "xLabel": f"accuracy on {names[first]}",
        "yLabel": f"accuracy on {names[second]}",
        "series": [
            {
                "name": name,
                "line": not again,
                "points": points(way.retrained_front if again else way.front),
                **looks,
            }
            for name, way, looks, again in _series(results)
        ],
    }


def contradiction(found: Disagreement) -> dict[str, Any]:
    """Accuracy on one question against accuracy on another that contradicts it."""

    def points(accuracy: Any) -> list[dict[str, Any]]:
        return [
            {"x": float(row[0]), "y": float(row[1]), "title": f"{QUESTIONS[1]} weighs {weight:.0%}"}
            for row, weight in zip(accuracy, WEIGHTS, strict=True)
        ]

    ways = {
        "its own model for every preference": (found.own, False),
        "the uniform preference's for everybody": (found.uniform[:1], False),
        "trained again for every preference": (found.retrained, True),
    }
    return {
        "kind": "scatter",
        "label": f"trade-off between questions about the same images: {' and '.join(QUESTIONS)}",
        "percent": True,
        "ceiling": 1,
        "xLabel": f"right on: {QUESTIONS[0]}",
        "yLabel": f"right on: {QUESTIONS[1]}",
        "series": [
            {
                "name": name,
                "line": len(accuracy) > 1 and not again,
                "points": points(accuracy)
                if len(accuracy) > 1
                else [{**points(found.uniform)[0], "title": name}],
                **_looks(position, hollow=again),
            }
            for position, (name, (accuracy, again)) in enumerate(ways.items())
        ],
    }


def stored_posteriors(
    stored: Mapping[float, Sequence[int]], tasks: Sequence[str]
) -> dict[str, Any]:
    """Posteriors stored after each task, by threshold."""
    return {
        "kind": "bars",
        "label": "distributions kept after each task, by threshold",
        "xLabel": "distributions kept",
        "rows": [f"after {task}" for task in tasks],
        "series": [
            {
                "name": f"d = {threshold:g}",
                "swatch": f"f{position}" if position else "hollow",
                "stroke": f"c{position}" if position else "ink",
                "values": list(counts),
            }
            for position, (threshold, counts) in enumerate(stored.items())
        ],
    }


def uncertainty_by_group(doubts: Sequence[Doubt]) -> dict[str, Any]:
    """Average uncertainty of groups of images, in its two parts."""
    return {
        "kind": "bars",
        "label": "uncertainty of digits, and of images that are none",
        "stacked": True,
        "xLabel": "uncertainty (coin toss: 0.69)",
        "rows": [doubt.group for doubt in doubts],
        "series": [
            {
                "name": "not learnt (epistemic)",
                "swatch": "f0",
                "stroke": "c0",
                "values": [doubt.epistemic for doubt in doubts],
            },
            {
                "name": "cannot be told (aleatoric)",
                "swatch": "hollow",
                "stroke": "ink",
                "values": [doubt.aleatoric for doubt in doubts],
            },
        ],
    }

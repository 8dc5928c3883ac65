"""The page's pictures: one function a figure, measurements in, a plotly figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from ibcl.demo.experiment import Results
from ibcl.demo.uncertainty import Doubt

# Okabe and Ito's colours, told apart with any colour vision.
COLOURS = ("#0072b2", "#009e73", "#d55e00")
SYMBOLS = ("circle", "diamond", "square")
_SECOND = "#e69f00"


def _layout(figure: go.Figure, height: int, **axes: Any) -> go.Figure:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "y": -0.18, "yanchor": "top", "x": 0},
        **axes,
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return figure


def accuracy_by_preference(results: Results) -> go.Figure:
    """Weighted accuracy of each named preference, of generated and of retrained models."""
    figure = go.Figure()
    names = list(results.preferences)
    weights = [
        ", ".join(
            f"{task} {weight:.0%}" for task, weight in zip(results.digits.names, row, strict=True)
        )
        for row in results.preferences.values()
    ]
    for colour, symbol, result in zip(COLOURS, SYMBOLS, results.ways, strict=True):
        for label, accuracy, hollow in (
            (result.way.name, result.accuracy, ""),
            (f"{result.way.name}: trained again", result.retrained, "-open"),
        ):
            figure.add_scatter(
                x=results.weighted(accuracy),
                y=names,
                customdata=weights,
                mode="markers",
                name=label,
                marker={"color": colour, "symbol": symbol + hollow, "size": 11},
                hovertemplate="%{y} (%{customdata})<br>%{x:.1%}",
            )
    figure.update_yaxes(autorange="reversed")
    return _layout(
        figure,
        520,
        xaxis={"title": "weighted accuracy", "tickformat": ".0%"},
    )


def trade_off(results: Results) -> go.Figure:
    """Accuracy on one task against accuracy on another, as weight moves between them."""
    figure = go.Figure()
    first, second = results.front_tasks
    names = results.digits.names
    weights = results.front_weights[:, [first, second]]
    for colour, symbol, result in zip(COLOURS, SYMBOLS, results.ways, strict=True):
        for label, accuracy, hollow in (
            (result.way.name, result.front, ""),
            (f"{result.way.name}: trained again", result.retrained_front, "-open"),
        ):
            figure.add_scatter(
                x=accuracy[:, first],
                y=accuracy[:, second],
                customdata=weights,
                mode="markers" if hollow else "lines+markers",
                name=label,
                line={"color": colour, "width": 1.5},
                marker={"color": colour, "symbol": symbol + hollow, "size": 9},
                hovertemplate=(
                    f"{names[first]} weighs %{{customdata[0]:.0%}}: %{{x:.1%}} right<br>"
                    f"{names[second]} weighs %{{customdata[1]:.0%}}: %{{y:.1%}} right"
                ),
            )
    return _layout(
        figure,
        560,
        xaxis={"title": f"accuracy on {names[first]}", "tickformat": ".0%"},
        yaxis={"title": f"accuracy on {names[second]}", "tickformat": ".0%"},
    )


def stored_posteriors(stored: Mapping[float, Sequence[int]], tasks: Sequence[str]) -> go.Figure:
    """Posteriors stored after each task, by threshold."""
    figure = go.Figure()
    for colour, (threshold, counts) in zip(COLOURS, stored.items(), strict=True):
        figure.add_bar(
            x=list(tasks),
            y=counts,
            name=f"d = {threshold:g}",
            marker_color=colour,
            text=counts,
            hovertemplate="%{y} kept",
        )
    return _layout(
        figure,
        380,
        xaxis={"title": "after task"},
        yaxis={"title": "distributions kept", "dtick": 3},
    )


def uncertainty_by_group(doubts: Sequence[Doubt]) -> go.Figure:
    """Average uncertainty of groups of images, in its two parts."""
    figure = go.Figure()
    groups = [doubt.group if doubt.known else f"<i>{doubt.group}</i>" for doubt in doubts]
    for name, colour, values in (
        ("not learnt (epistemic)", COLOURS[0], [doubt.epistemic for doubt in doubts]),
        ("cannot be told (aleatoric)", _SECOND, [doubt.aleatoric for doubt in doubts]),
    ):
        figure.add_bar(
            x=values,
            y=groups,
            name=name,
            orientation="h",
            marker_color=colour,
            hovertemplate="%{y}: %{x:.3f}",
        )
    figure.update_yaxes(autorange="reversed")
    return _layout(
        figure,
        420,
        barmode="stack",
        xaxis={"title": "uncertainty (coin toss: 0.69)"},
    )

"""One self-contained HTML page with everything the demo found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from ibcl.demo import figures
from ibcl.demo.experiment import COVERAGE_DRAWS, Results
from ibcl.demo.explorer import explorer_data
from ibcl.demo.growth import PRIORS
from ibcl.demo.uncertainty import Doubt


def page(results: Results, stored: Mapping[float, Sequence[int]], doubts: Sequence[Doubt]) -> str:
    """Return the page; it needs no other file and makes no request."""
    best = results.ways[0]
    tasks = results.digits.tasks
    return Template(_file("page.html")).substitute(
        style=_file("page.css"),
        plotly=get_plotlyjs(),
        facts=_facts(results),
        images=sum(task.test.size for task in tasks),
        train=f"{sum(task.train.size for task in tasks):,}",
        preferences=_figure(figures.accuracy_by_preference(results), "preferences"),
        costs=_costs(results),
        front=_figure(figures.trade_off(results), "front"),
        growth=_figure(figures.stored_posteriors(stored, results.digits.names), "growth"),
        priors=len(PRIORS),
        doubts=_figure(figures.uncertainty_by_group(doubts), "doubts"),
        mass=f"{1 - best.learner.alpha:.0%}",
        draws=f"{COVERAGE_DRAWS:,}",
        coverage=_table(
            ("way", "parameters", "inside the region"),
            [
                (r.way.name, f"{r.learner.network.dimension:,}", f"{r.coverage:.1%}")
                for r in results.ways
            ],
        ),
        seed=results.seed,
        explorer=_file("explorer.js"),
        data=json.dumps(explorer_data(best.learner, results.digits)),
    )


def _file(name: str) -> str:
    return files("ibcl.demo").joinpath(name).read_text(encoding="utf-8")


def _figure(figure: Any, name: str) -> str:
    html: str = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{name}",
        config={"responsive": True, "displayModeBar": False},
    )
    return html


def _facts(results: Results) -> str:
    best = results.ways[0]
    ours = results.weighted(best.accuracy).mean()
    theirs = results.weighted(best.retrained).mean()
    facts = (
        (f"{1000 * best.seconds_a_model:.0f} ms", "for a model of any preference"),
        (f"{best.retraining_updates:,}", "training steps for one preference otherwise"),
        (f"{ours:.1%}", f"right on average, weighted by preference (trained again: {theirs:.1%})"),
        (f"{best.learning_seconds:.1f} s", "to learn all five tasks, once"),
    )
    return "".join(f"<div><b>{value}</b><span>{text}</span></div>" for value, text in facts)


def _costs(results: Results) -> str:
    return _table(
        (
            "way",
            "average accuracy",
            "trained again",
            "training steps, all preferences",
            "trained again, each preference",
        ),
        [
            (
                result.way.name,
                f"{results.weighted(result.accuracy).mean():.1%}",
                f"{results.weighted(result.retrained).mean():.1%}",
                f"{result.updates:,}",
                f"{result.retraining_updates:,}",
            )
            for result in results.ways
        ],
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

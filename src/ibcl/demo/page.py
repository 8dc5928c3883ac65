"""One self-contained HTML page with everything the demo found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcl.demo import figures
from ibcl.demo.disagreement import Disagreement
from ibcl.demo.experiment import COVERAGE_DRAWS, Results
from ibcl.demo.explorer import explorer_data
from ibcl.demo.growth import PRIORS
from ibcl.demo.uncertainty import Doubt
from ibcl.serve.page_files import SHARED, page_file


def page(
    results: Results,
    stored: Mapping[float, Sequence[int]],
    doubts: Sequence[Doubt],
    disagreement: Disagreement,
) -> str:
    """Return the page; it needs no other file and makes no request."""
    best = results.ways[0]
    tasks = results.digits.tasks
    drawn = {
        "preferences": figures.accuracy_by_preference(results),
        "front": figures.trade_off(results),
        "contradiction": figures.contradiction(disagreement),
        "growth": figures.stored_posteriors(stored, results.digits.names),
        "doubts": figures.uncertainty_by_group(doubts),
    }
    return Template(_file("page.html")).substitute(
        style=page_file("page.css"),
        choose=page_file("choose.html"),
        facts=_facts(results),
        images=sum(task.test.size for task in tasks),
        train=f"{sum(task.train.size for task in tasks):,}",
        costs=_costs(results),
        own=_average(disagreement.own),
        uniform=_average(disagreement.uniform),
        retrained=_average(disagreement.retrained),
        priors=len(PRIORS),
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
        scripts="\n".join([*map(page_file, SHARED), _file("embedded.js")]),
        data=_script(explorer_data(best.learner, results.digits)),
        figures=_script(drawn),
    )


def _file(name: str) -> str:
    return files("ibcl.demo").joinpath(name).read_text(encoding="utf-8")


def _script(values: Any) -> str:
    """Return values as JSON that may stand inside a script."""
    return json.dumps(values).replace("<", "\\u003c")


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


def _average(accuracy: NDArray[np.float64]) -> str:
    return f"{Disagreement.weighted(accuracy).mean():.1%}"


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

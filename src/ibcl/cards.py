"""Cards: what a knowledge base or a model is, in words and tables, as Markdown.

A card says what was learnt, from how many samples, with which settings and choices, how it was
measured and under which licence. One is written with every saved knowledge base (``README.md``) and
every exported model (the metadata ``card`` of its file). It is made anew from what is known, never
read back: a card that was changed by hand changes nothing else.

Two entries of ``learner.metadata`` are the author's to fill in:

``"licence"`` (or ``"license"``)
    A text, such as ``"CC-BY-4.0"``.
``"measured"``
    Figures by name, and how they came about: ``{"accuracy on 300 held-out rows": 0.93}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from ibcl.conformal import Calibration
from ibcl.experts import ExpertPart
from ibcl.knowledge import Part
from ibcl.names import printable
from ibcl.state import State

MARK = "<!-- Written by ibcl whenever this is saved. Without this line it is left alone. -->"
LICENCE, MEASURED = "licence", "measured"
# Beyond these a card would no longer be read.
MOST_ROWS, MOST_ITEMS, LONGEST_CELL = 1000, 20, 500

_SPECIAL = str.maketrans(
    {
        **{character: f"\\{character}" for character in "\\`*_[]~"},
        "<": "&lt;",
        ">": "&gt;",
        "&": "&amp;",
        "|": "&#124;",
    }
)


def knowledge_card(state: State, metadata: Mapping[str, Any]) -> str:
    """Return the card of what a learner knows."""
    knowledge = state.knowledge
    tasks = [
        (
            record.name,
            record.samples,
            record.updates,
            f"{len(record.pointers) - sum(record.pointers)} of {len(record.pointers)}",
            _calibration(parts.get(Calibration.kind)),
        )
        for record, parts in zip(knowledge.records, knowledge.parts, strict=True)
    ]
    return _joined(
        MARK,
        f"# Knowledge base of {_count(len(tasks), 'task')}",
        "Learnt by imprecise Bayesian continual learning. Any preference between the tasks becomes "
        "a model with no data and no training: `ibcl.load(folder).model(preference)`. Written by "
        f"ibcl {version('ibcl')}.",
        "## What was learnt",
        _table(("task", "samples", "updates", "posteriors of its own", "calibration"), tasks),
        *_details(settings(state), state.reasons, metadata),
    )


def _calibration(part: Part | None) -> str | None:
    """Say what a task keeps of the rows that it is calibrated with; None where that is nothing."""
    if not isinstance(part, Calibration):
        return None
    kept = {"kept": "rows, half precision", "scores": "scores, no row"}
    return f"{part.n} {kept[part.rows]}"


def model_card(preference: Mapping[str, float], provenance: Mapping[str, Any]) -> str:
    """Return the card of one preference's model.

    Parameters
    ----------
    provenance
        What `Model.provenance` gives.
    """
    samples = provenance.get("samples", {})
    rows = [(task, weight, samples.get(task)) for task, weight in preference.items()]
    return _joined(
        f"# Model of a preference between {_count(len(rows), 'task')}",
        "Made from a knowledge base with no data and no training. "
        "`ibcl.load_model(file).predict(x)` answers as it did when it was exported.",
        "## Preference, and what was learnt",
        _table(("task", "weight", "samples"), rows),
        *_details(
            {**provenance.get("settings", {}), "knowledge base": provenance.get("knowledge")},
            provenance.get("choices", {}),
            provenance.get("metadata", {}),
        ),
    )


def settings(state: State) -> dict[str, Any]:
    """Return the settings of a learner by name, for people.

    Examples
    --------
    >>> import ibcl
    >>> learner = ibcl.IBCL(ibcl.networks.linear(4), seed=7)
    >>> found = settings(learner.state)
    >>> found["network kind"], found["parameters"], found["seed"], found["pooling"]
    ('linear', 5, 7, None)
    """
    knowledge, encoder, settled = state.knowledge, state.encoder, state.settings
    network = state.network.specification or {"kind": "custom"}
    facts: dict[str, Any] = {
        **{f"network {name}": value for name, value in network.items()},
        "parameters": knowledge.dimension,
        "inference": None if state.inference is None else repr(state.inference),
        "likelihood": repr(state.likelihood if state.learnt else settled.likelihood),
        "pooling": None if state.rule is None else state.rule.name,
        "priors": len(knowledge.priors),
        "tasks": "independent" if knowledge.independent else "each learnt from the one before",
        "d": knowledge.d,
        "distance": knowledge.distance,
        "alpha": settled.alpha,
        "seed": settled.seed,
    }
    if settled.expert is not None:
        facts["expert"] = settled.expert.name
        kept = [parts.get(ExpertPart.kind) for parts in knowledge.parts]
        shares = tuple(
            f"{task} {part.share:.2f}"
            for task, part in zip(knowledge.tasks, kept, strict=True)
            if isinstance(part, ExpertPart)
        )
        facts["shares of experts"] = shares or None
    if encoder is not None:
        columns = getattr(encoder, "columns", ())
        facts["features"] = getattr(encoder, "names", None) or len(columns) or None
        facts["inputs"] = getattr(encoder, "width", None)
        if encoder.classes is not None:
            facts["classes"] = encoder.classes
    return facts


def _details(
    facts: Mapping[str, Any], choices: Mapping[str, str], metadata: Mapping[str, Any]
) -> Iterable[str]:
    """Yield the sections that both kinds of cards end with."""
    yield "## Settings"
    yield _table(("setting", "value"), [*facts.items()])
    if choices:
        yield "## Left open, and chosen on the first task"
        yield _table(("setting", "choice"), [*choices.items()])
    yield "## Measured"
    figures = _figures(metadata.get(MEASURED))
    yield (
        _table(("figure", "value"), figures)
        if figures
        else (f'Nothing was recorded; `learner.metadata["{MEASURED}"]` takes figures by name.')
    )
    yield "## Licence"
    licence = metadata.get(LICENCE) or metadata.get("license")
    yield (
        _table(("licence",), [(licence,)])
        if licence
        else (f'Not stated; `learner.metadata["{LICENCE}"]` takes one.')
    )


def _figures(measured: Any, under: str = "") -> list[tuple[str, Any]]:
    """List figures; those of a mapping in a mapping under both names."""
    if not isinstance(measured, Mapping):
        return [] if measured is None else [(under or MEASURED, measured)]
    return [
        row
        for name, value in measured.items()
        for row in _figures(value, f"{under}, {name}" if under else str(name))
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return "Nothing yet."
    lines = [_row(heads), _row(["---"] * len(heads))]
    lines += [_row(escape(text(cell)) for cell in row) for row in rows[:MOST_ROWS]]
    left_out = len(rows) - MOST_ROWS
    if left_out > 0:
        lines += ["", f"And {left_out:,} more."]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(value: Any) -> str:
    """Write a value for people, in one line that is not too long.

    Examples
    --------
    >>> text(None), text(True), text(1234), text(0.1 + 0.2), text(("a", "b"))
    ('–', 'yes', '1,234', '0.3', 'a, b')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        shown = [str(item) for item in value[:MOST_ITEMS]]
        more = len(value) - MOST_ITEMS
        value = ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
    line = printable(value)
    return line if len(line) <= LONGEST_CELL else f"{line[:LONGEST_CELL]}…"


def escape(line: str) -> str:
    r"""Write any text so that Markdown shows it, and does nothing else.

    Examples
    --------
    >>> escape("<b>x</b> [a](b) 1|2 *c*")
    '&lt;b&gt;x&lt;/b&gt; \\[a\\](b) 1&#124;2 \\*c\\*'
    """
    return printable(line).translate(_SPECIAL)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _joined(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"

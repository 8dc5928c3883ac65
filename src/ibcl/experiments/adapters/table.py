"""The lines of one benchmark as a table in Markdown, for the results page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ibcl.experiments.adapters.merges import MERGES

Line = dict[str, Any]
_HEADINGS = (
    "",
    "accuracy",
    "first few",
    "seeds",
    "s per task",
    "kB per task",
    "adapters run",
    "passes",
    "s per preference",
    "chosen on held-out rows",
)
_ABSENT = "–"
_ROUTED, _HEADS = "routed adapters", "routed heads, inner depths"
_RETRAINED = "LoRA on all data per preference"


def read(file: Path) -> list[Line]:
    r"""Return the lines of a file, as `study` wrote them.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "lines").write_text('{"title": "soup"}\n')
    ...     read(Path(folder, "lines"))
    [{'title': 'soup'}]
    """
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def table(lines: Sequence[Line]) -> str:
    """Return a table: means over seeds, and behind ± half of their range.

    Contenders that did not answer all preferences have no figure for all of them.

    Examples
    --------
    >>> line = {"title": "soup", "seed": 0, "accuracy": 90.0, "accuracy_few": 91.0,
    ...         "seconds_per_task": 1.0, "bytes_per_task": 2000.0, "adapted": 1.0, "passes": 1.0,
    ...         "seconds_per_preference": 0.5, "settings": "", "answered_all": True}
    >>> print(table([line]).splitlines()[-1])
    | soup | 90.0 | 91.0 | 1 | 1.0 | 2 | 1.0 | 1.00 | 0.50 |  |
    """
    rows = ["| " + " | ".join(_HEADINGS) + " |", "|---" * len(_HEADINGS) + "|"]
    for title in dict.fromkeys(line["title"] for line in lines):
        some = [line for line in lines if line["title"] == title]
        cells = [
            title,
            _figure(some, "accuracy") if all(line["answered_all"] for line in some) else _ABSENT,
            _figure(some, "accuracy_few"),
            str(len(some)),
            _mean(some, "seconds_per_task", 1),
            _mean(some, "bytes_per_task", 0, 1000),
            _mean(some, "adapted", 1),
            _mean(some, "passes", 2),
            _mean(some, "seconds_per_preference", 2),
            "; ".join(dict.fromkeys(line["settings"] for line in some)),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def overview(parts: Mapping[str, Sequence[Line]]) -> str:
    """Return a table of what is routed, the merges and retraining, one line per part.

    Retraining answered the first few preferences of some seeds, and stands beside what is routed
    there.

    Examples
    --------
    >>> line = {"title": "soup", "seed": 0, "accuracy": 90.0, "accuracy_few": 91.0}
    >>> print(overview({"digits": [line]}).splitlines()[-1])
    | digits | – | – | soup 90.0 | – | – | – |
    """
    headings = (
        "",
        _ROUTED,
        "heads alone",
        "best merge",
        "other merges",
        f"first few: {_ROUTED}",
        f"first few: {_RETRAINED}",
    )
    rows = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for name, lines in parts.items():
        merged = {title: _of(lines, title, "accuracy") for title in ("soup", *MERGES)}
        known = sorted((value, title) for title, value in merged.items() if value is not None)
        few = [line for line in lines if line["title"] == _RETRAINED]
        seeds = {line["seed"] for line in few}
        beside = [line for line in lines if line["seed"] in seeds]
        others = [f"{value:.1f}" for value, _ in known[:-1]]
        shown = (
            _of(lines, _ROUTED, "accuracy"),
            _of(lines, _HEADS, "accuracy"),
            f"{known[-1][1]} {known[-1][0]:.1f}" if known else None,
            "–".join(dict.fromkeys((others[0], others[-1]))) if others else None,
            _of(beside, _ROUTED, "accuracy_few"),
            _of(few, _RETRAINED, "accuracy_few"),
        )
        cells = (f"{each:.1f}" if isinstance(each, float) else each or _ABSENT for each in shown)
        rows.append("| " + " | ".join((name, *cells)) + " |")
    return "\n".join(rows)


def _of(lines: Sequence[Line], title: str, name: str) -> float | None:
    """A contender's mean over seeds."""
    values = [line[name] for line in lines if line["title"] == title]
    return float(np.mean(values)) if values else None


def _mean(lines: Sequence[Line], name: str, digits: int, unit: float = 1) -> str:
    values = [line[name] for line in lines]
    return _ABSENT if None in values else f"{np.mean(values) / unit:.{digits}f}"


def _figure(lines: Sequence[Line], name: str) -> str:
    values = [line[name] for line in lines]
    spread = (max(values) - min(values)) / 2
    return f"{np.mean(values):.1f}" + (f" ± {spread:.1f}" if len(values) > 1 else "")

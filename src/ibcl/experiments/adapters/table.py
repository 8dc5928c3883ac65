"""``python -m ibcl.experiments.adapters.table FILE...``: the lines of several seeds as a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_HEADINGS = (
    "",
    "accuracy, all preferences",
    "accuracy, first few",
    "s per task",
    "kB per task",
    "adapted passes",
    "s per preference",
    "chosen on validation rows",
)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table in Markdown: means over seeds, and behind ± half of their range.

    Contenders that did not answer all preferences have no figure for all of them.

    Examples
    --------
    >>> row = {"title": "soup", "seed": 0, "accuracy": 90.0, "accuracy_few": 91.0,
    ...        "seconds_per_task": 1.0, "bytes_per_task": 2000.0, "adapted_passes": 1.0,
    ...        "seconds_per_preference": 0.5, "settings": "", "answered_all": True}
    >>> print(table([row]).splitlines()[-1])
    | soup | 90.0 | 91.0 | 1.0 | 2 | 1.0 | 0.50 |  |
    """
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|---" * len(_HEADINGS) + "|"]
    for title in dict.fromkeys(row["title"] for row in rows):
        some = [row for row in rows if row["title"] == title]
        cells = [
            title,
            _figure(some, "accuracy", 1) if all(row["answered_all"] for row in some) else "–",
            _figure(some, "accuracy_few", 1),
            f"{_mean(some, 'seconds_per_task'):.1f}",
            f"{_mean(some, 'bytes_per_task') / 1000:.0f}",
            f"{_mean(some, 'adapted_passes'):.1f}",
            f"{_mean(some, 'seconds_per_preference'):.2f}",
            "; ".join(dict.fromkeys(row["settings"] for row in some)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(rows: Sequence[dict[str, Any]], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def _figure(rows: Sequence[dict[str, Any]], name: str, digits: int) -> str:
    values = [row[name] for row in rows]
    spread = (max(values) - min(values)) / 2
    return f"{np.mean(values):.{digits}f}" + (f" ± {spread:.{digits}f}" if len(values) > 1 else "")


def main(files: Sequence[str]) -> None:
    """Print the table of some files of lines."""
    texts = [Path(name).read_text() for name in files]
    print(table([json.loads(line) for text in texts for line in text.splitlines()]))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The page on adapters says what the committed lines say, worked out again by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "results" / "adapters"
FILES = sorted(FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_page_says_what_the_lines_say(file):
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    pattern = rf"<!-- table adapters-{file.stem} -->\n(.*?)\n<!-- end -->"
    (inside,) = re.findall(pattern, page, re.S)
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in inside.split("\n")
    ]
    shown = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert {*shown} == {line["title"] for line in lines}
    for title, cells in shown.items():
        own = [line for line in lines if line["title"] == title]
        assert int(cells["seeds"]) == len({line["seed"] for line in own}) == len(own)
        few = float(cells["first few"].split(" ± ")[0])
        assert few == pytest.approx(np.mean([line["accuracy_few"] for line in own]), abs=0.051)
        if all(line["answered_all"] for line in own):
            said = float(cells["accuracy"].split(" ± ")[0])
            assert said == pytest.approx(np.mean([line["accuracy"] for line in own]), abs=0.051)
        else:
            assert cells["accuracy"] == "–"


def test_there_is_something_to_compare():
    assert FILES


def test_the_overview_says_what_the_lines_say():
    """By hand: means over seeds, and retraining beside what is routed in the same seeds."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    (inside,) = re.findall(r"<!-- table adapters -->\n(.*?)\n<!-- end -->", page, re.S)
    _, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in inside.split("\n")
    ]
    assert len(rows) == len(FILES)
    known = []
    for file in FILES:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        own = [line for line in lines if line["title"] == "routed adapters"]
        dear = {x["seed"]: x for x in lines if x["title"] == "LoRA on all data per preference"}
        beside = [line["accuracy_few"] for line in own if line["seed"] in dear]
        few = [line["accuracy_few"] for line in dear.values()]
        numbers = [[line["accuracy"] for line in own], beside, few]
        known.append(["–" if not each else f"{np.mean(each):.1f}" for each in numbers])
    assert sorted([row[1], row[5], row[6]] for row in rows) == sorted(known)

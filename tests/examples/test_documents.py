"""Every snippet of the documents runs, page by page and in order, as a reader would run them."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ibcl import gaussians, likelihoods, pooling
from ibcl.cli import app
from ibcl.experiments import methods
from ibcl.inference import METHODS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "howto").glob("*.md"))
# These describe long runs; their commands are tested where they are written.
ELSEWHERE = {"benchmarks.md", "rl.md", "ray.md"}
TABLES: tuple[dict[str, Any], ...] = (
    pooling.RULES,
    pooling.TITLES,
    likelihoods.LIKELIHOODS,
    gaussians.FAMILIES,
    METHODS,
    methods.METHODS,
)
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: Path) -> list[tuple[str, str]]:
    """Snippets of a page with their kinds, in lines of the page so that errors say where."""
    text = page.read_text(encoding="utf-8")
    return [
        (found[1], "\n" * text.count("\n", 0, found.start(2)) + found[2])
        for found in FENCE.finditer(text)
    ]


CASES = [page for page in PAGES if page.name not in ELSEWHERE and snippets(page)]


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """What a page registers is forgotten after it."""
    before = [dict(table) for table in TABLES]
    yield
    for table, known in zip(TABLES, before, strict=True):
        table.clear()
        table.update(known)


@pytest.mark.parametrize("page", CASES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    # Classes look for their module, so the page is one.
    module = ModuleType("snippets_of_a_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for kind, snippet in snippets(page):
        if kind == "python":
            exec(compile(snippet, str(page), "exec", dont_inherit=True), vars(module))
        else:
            for command in snippet.split("\n"):
                run_command(command, monkeypatch)


def run_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one line of the shell, which must begin with ibcl."""
    words = shlex.split(command, comments=True)
    if not words:
        return
    assert words[0] == "ibcl", f"{command!r} is no command of ours"
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        app()
    assert not end.value.code, f"{command!r} failed"


def test_every_page_has_its_snippets_found():
    """A fence that the pattern misses would never be run."""
    for page in CASES:
        text = page.read_text(encoding="utf-8")
        assert len(snippets(page)) == len(re.findall(r"^```(?:python|sh)$", text, re.MULTILINE))

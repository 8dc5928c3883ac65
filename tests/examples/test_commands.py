"""Every command line that a document shows is one that there is, and runs as it stands.

Commands stand in blocks of their own, and within sentences. All of them must name commands and
options that exist. Those in blocks are run, page by page and in order, on tables like those that
the page speaks of; what cannot be run here says why.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

from ibcl.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
    *sorted((ROOT / "docs" / "results").glob("*/README.md")),
]
INLINE = re.compile(r"`(ibcl [^`]+)`")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

NOT_RUN: dict[str, str] = {
    r"^ibcl serve": "serves until it is stopped; tests/serve/test_process.py starts and stops it",
    r"20news|cifar100|tinyimagenet|celeba": "needs data from the network",
    r"runs/(main|ablations)": "reports the runs on data from the network",
    r"^ibcl (bench|ablate) digits": "takes minutes; tests/experiments/evaluation run it in small",
    r"^ibcl rl compare": "needs policies of others; tests/rl/test_released.py scores some",
}
SMALLER: dict[str, tuple[str, ...]] = {
    "ibcl bench films.yaml": ("--seeds", "1", "--methods", "routed", "--samples", "0"),
}
"""Options that make a long command short, by how it begins."""


def in_blocks(page: Path) -> list[str]:
    """The commands of a page that stand alone, in order."""
    # A line that ends in a backslash goes on in the next one.
    text = re.sub(r"\\\n\s+", "", page.read_text(encoding="utf-8"))
    fenced = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in block.splitlines() if line.startswith("ibcl ")]
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return lines + re.findall(r"^ {4}(ibcl .*)$", outside, re.MULTILINE)


def everywhere(page: Path) -> list[str]:
    """All commands of a page."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [*in_blocks(page), *(" ".join(found.split()) for found in INLINE.findall(prose))]


def options_of(command: str, following: str) -> set[str]:
    group = typer.main.get_command(app)
    found = group.get_command(typer.Context(group), command)  # type: ignore[attr-defined]
    assert found is not None, f"there is no command {command!r}"
    if command == "rl" and not following.startswith("-"):
        # A group, whose benchmark is meant where nothing else is named.
        within = typer.Context(found)
        found = found.get_command(within, following) or found.get_command(within, "benchmark")
    names = {name for each in found.params for name in (*each.opts, *each.secondary_opts)}
    return {*names, "--help"}


SAID = [(page, command) for page in PAGES for command in everywhere(page)]


@pytest.mark.parametrize(
    ("page", "command"), SAID, ids=[f"{page.stem}: {command[:60]}" for page, command in SAID]
)
def test_a_command_and_its_options_exist(page: Path, command: str):
    words = shlex.split(command, comments=True)[1:]
    if words[0] == "--plugin":
        words = words[2:]
    if not words or words[0] in ("--help", "--version", "..."):
        return
    known = options_of(words[0], words[1] if len(words) > 1 else "-")
    for word in words[1:]:
        if word.startswith("-"):
            assert word.partition("=")[0] in known, f"{page.name}: {command}"


def films(seed: int, count: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "year": generator.integers(1950, 2026, count).astype(float),
            "minutes": generator.normal(110, 20, count),
            "mood": generator.choice(["grim", "merry"], count),
        }
    )
    taste = frame["year"] > 1990 if seed % 2 else frame["mood"] == "merry"
    return frame.assign(liked=np.where(taste, "yes", "no"))


def tables(_: Path) -> None:
    """Films of two genres, new ones, and some to test with."""
    for seed, name in enumerate(("documentary", "scifi", "test", "new")):
        frame = films(seed)
        (frame.drop(columns="liked") if name == "new" else frame).to_csv(f"{name}.csv", index=False)


def many_users(page: Path) -> None:
    """A knowledge base of two genres, and users."""
    tables(page)
    for name in ("scifi", "documentary"):
        run(f"ibcl learn films.ibcl {name}.csv --label liked")
    weights = np.random.default_rng(0).dirichlet(np.ones(2), 7)
    users = pd.DataFrame(weights, columns=["scifi", "documentary"])
    users.assign(user=[f"user {n}" for n in range(7)]).to_csv("users.csv", index=False)


def by_the_page(page: Path) -> None:
    """What the page's own Python writes."""
    names: dict[str, object] = {}
    for snippet in PYTHON.findall(page.read_text(encoding="utf-8")):
        exec(compile(snippet, str(page), "exec", dont_inherit=True), names)


PREPARED: dict[str, Callable[[Path], None]] = {
    "README.md": tables,
    "tabular.md": tables,
    "many-users.md": many_users,
    "own-benchmark.md": by_the_page,
    "start.md": by_the_page,
}


def reason_not_to_run(command: str) -> str | None:
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command)), None)


def run(command: str, added: tuple[str, ...] = ()) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", [*shlex.split(command, comments=True), *added])
        with pytest.raises(SystemExit) as end:
            app()
    assert not end.value.code, f"{command!r} failed"


SHOWN = [page for page in PAGES if in_blocks(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    commands = in_blocks(page)
    wanted = [command for command in commands if reason_not_to_run(command) is None]
    if not wanted:
        pytest.skip("; ".join(sorted({str(reason_not_to_run(command)) for command in commands})))
    monkeypatch.chdir(tmp_path)
    PREPARED[page.name](page)
    for command in wanted:
        added = next((more for start, more in SMALLER.items() if command.startswith(start)), ())
        run(command, added)


def test_what_is_not_run_is_on_some_page():
    """A reason that no command needs any more would hide the next one."""
    commands = [command for page in SHOWN for command in in_blocks(page)]
    for pattern in NOT_RUN:
        assert any(re.search(pattern, command) for command in commands), pattern
    for start in SMALLER:
        assert any(command.startswith(start) for command in commands), start


def test_the_targets_and_extras_that_pages_name_are_there():
    makefile = (ROOT / "Makefile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"(?:^ {4}|`)make ([a-z0-9]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), (page.name, target)
        for extras in re.findall(r"(?:ibcl|\.)\[([a-z,]+)\]", text):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), page.name

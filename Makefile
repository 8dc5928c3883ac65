# Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check docs speed format wheel clean

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

# The documentation, in build/docs: built without the network, every warning an error.
docs: .venv/docs
	$(BIN)/python docs/concept_pictures.py
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	$(BIN)/python docs/check_site.py build/docs

speed: .venv/complete
	$(BIN)/python timings/speed.py

wheel: .venv/complete
	$(BIN)/python -m build --wheel --no-isolation

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable .
	touch $@

.venv/complete: .venv/core
	$(INSTALL) --editable ".[bench,rl,dev]"
	touch $@

.venv/docs: .venv/complete
	$(INSTALL) --editable ".[serve,docs]"
	touch $@

clean:
	rm -rf .venv build dist src/*.egg-info

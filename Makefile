# Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check docs speed format wheel s3 clean

demo: .venv/core
	$(BIN)/ibcl demo

test: .venv/complete s3
	$(BIN)/python -m pytest -n auto --dist worksteal

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
	$(BIN)/python -m sphinx -W --keep-going --fresh-env -q docs build/docs
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
	$(INSTALL) --editable ".[parquet,bench,rl,serve,postgres,movies,remote,ray,tables,adapters,onnx,mlflow,hub,dev]"
	touch $@

# A real S3 server for the tests; apart, because it needs other versions than the project does.
s3: .venv-s3/complete

.venv-s3/complete: tests/store/s3_server.txt
	($(PYTHON) -m venv .venv-s3 && \
	    .venv-s3/bin/pip install --quiet --disable-pip-version-check --requirement $< && \
	    touch $@) || echo "Without an S3 server; its tests are skipped."

.venv/docs: .venv/complete
	$(INSTALL) --editable ".[docs]"
	touch $@

clean:
	rm -rf .venv .venv-s3 build dist src/*.egg-info

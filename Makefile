# Everything that people and machines do with this project.  All targets set up what they need in .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# One layer alone does the parallel work.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow check format bench docs policies wheel clean

demo: $(VENV)/.runtime
	$(BIN)/policyproof demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m bench.explicit

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet

# Train the bundled policies again; one alone: python -m policyproof.zoo.recipes NAME
policies: $(VENV)/.runtime
	$(BIN)/python -m policyproof.zoo.warehouse_policies
	$(BIN)/python -m policyproof.zoo.cruise_control_policies
	$(BIN)/python -m policyproof.zoo.verticalcas_policies
	$(BIN)/python -m policyproof.zoo.recipes

wheel: $(VENV)/.dev
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,keras]'
	touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

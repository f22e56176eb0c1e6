# make run, make test, make lint, make bench: each makes .venv and installs what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: run test lint bench gains clean

run: $(VENV)/warm
	$(BIN)/deferkit run synthetic

test: $(VENV)/warm lint
	$(BIN)/pytest -n 2

lint: $(VENV)/installed
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/warm $(VENV)/peers
	$(BIN)/python benchmarks/bulk.py
	$(BIN)/python benchmarks/single.py

# the table of the default's gains over budgets, regimes and feedbacks, on 20 seeds
gains: $(VENV)/warm
	$(BIN)/deferkit gains

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install -y python3-venv && $(PYTHON) -m venv --clear $(VENV); }

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/peers: $(VENV)/installed
	command -v gcc >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && apt-get install -y gcc libc6-dev; }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

# Compiling the steps takes one to two minutes, once: later processes load the machine code from the cache.
$(VENV)/warm: $(VENV)/installed $(wildcard src/deferkit/learn/*.py)
	$(BIN)/deferkit warm
	touch $@

clean:
	rm -rf $(VENV) results .mypy_cache .ruff_cache .pytest_cache .hypothesis

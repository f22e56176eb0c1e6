# make run, make test, …: each makes .venv and installs what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# as root, Debian's packages are installed when they are missing
APT = [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: run test lint reproduce real rivals bench bench-serve soak clean

# the paper's experiments and ours with few trials, in under a minute; the report is results/report.html
run: $(VENV)/warm
	$(BIN)/deferkit reproduce --quick

test: $(VENV)/warm $(VENV)/browser lint
	if command -v chromium >/dev/null; then $(BIN)/pytest -n 2; else $(BIN)/pytest -n 2 -m "not browser"; fi

# services that are killed, paused, stopped and left without room, again and again, and a million decisions: three quarters of an hour
soak: $(VENV)/warm
	DEFERKIT_SOAK=20 $(BIN)/pytest -s -q --durations=0 tests/serve/processes tests/serve/test_stateful.py tests/serve/api/test_openapi.py
	$(BIN)/python benchmarks/serve_memory.py

lint: $(VENV)/installed
	$(BIN)/ruff format --check src tests checks benchmarks
	$(BIN)/ruff check src tests checks benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

# the same at full size: a few minutes
reproduce: $(VENV)/warm
	$(BIN)/deferkit reproduce

# the paper's experiments with people, under an hour; two of them need data that others published (docs/data.md)
real: $(VENV)/warm
	@[ -z "$$DEFERKIT_DATA" ] || $(BIN)/pytest -q checks
	@[ -n "$$DEFERKIT_DATA" ] || echo "DEFERKIT_DATA is not set: without imagenet16h and mvh (docs/data.md says how to get the data)"
	$(BIN)/deferkit reproduce knapsack-reward knapsack-regret knapsack-bandit $${DEFERKIT_DATA:+imagenet16h mvh} --out results/real

# other libraries beside ours; they are slow
rivals: $(VENV)/warm
	$(BIN)/deferkit reproduce rivals --out results/rivals

bench: $(VENV)/warm $(VENV)/peers
	$(BIN)/python benchmarks/bulk.py
	$(BIN)/python benchmarks/single.py
	$(BIN)/python benchmarks/embeddings.py

# the decision service over HTTP, beside an empty endpoint, the disk, one commit for each call, PostgreSQL
bench-serve: $(VENV)/warm
	command -v wrk >/dev/null || { $(APT) wrk; }
	command -v gcc >/dev/null || { $(APT) gcc libc6-dev; }
	$(BIN)/python benchmarks/serve.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { $(APT) python3-venv && $(PYTHON) -m venv --clear $(VENV); }

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/peers: $(VENV)/installed
	command -v gcc >/dev/null || { $(APT) gcc libc6-dev; }
	$(PIP) -e '.[bench]'
	touch $@

# pages are tested in a real browser; without one, and without root to install it, those tests are left out
$(VENV)/browser: | $(VENV)/installed
	{ command -v chromium >/dev/null || { $(APT) chromium; }; } && touch $@ || echo "no chromium: the page is not tested"

# Compiling the steps takes one to two minutes, once: later processes load the machine code from the cache.
$(VENV)/warm: $(VENV)/installed $(wildcard src/deferkit/learn/*.py src/deferkit/learn/embed/training.py)
	$(BIN)/deferkit warm
	touch $@

clean:
	rm -rf $(VENV) results .mypy_cache .ruff_cache .pytest_cache .hypothesis

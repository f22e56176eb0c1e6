# make run, make test, …: each makes .venv and installs what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# as root, Debian's packages are installed when they are missing
APT = [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq
WEB_CHECKS := checks/web/node_modules/.package-lock.json
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1
# LiteLLM would fetch its list of prices when it is imported
export LITELLM_LOCAL_MODEL_COST_MAP := True
# tests start some hundred processes: without bytecode each of them compiles the package
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check walks lint sanitize test-arm64 test-label-studio check-alerts dist test-container reproduce real rivals bench bench-serve soak pictures clean docs

# the paper's experiments and ours with few trials, in under a minute; the report is results/report.html
run: $(VENV)/study
	$(BIN)/deferkit reproduce --quick

# three processes on two cores: tests that wait for a service, a page or the disk leave one idle
test: $(VENV)/built $(VENV)/browser lint
	if command -v chromium >/dev/null; then $(BIN)/pytest -n 3; else $(BIN)/pytest -n 3 -m "not browser"; fi

# for daily work: lint, types, and the tests that need no service, browser or long stream; two minutes
FAST := $(addprefix tests/learn/test_,budget_events.py decisions.py encode.py golden.py hats.py holds.py inputs.py links.py periods.py ranks.py save.py state.py) \
	$(addprefix tests/test_,docs.py moved_modules.py packaging.py walks.py wording.py) tests/study/test_registry.py
check: $(VENV)/built lint
	$(BIN)/pytest -n 2 -q $(FAST)

# how many files the usual operations cross
walks: $(VENV)/built
	$(BIN)/python -m checks.walks

# services that are killed, paused, stopped and left without room, again and again, and a million decisions: half an hour
# test by test in two processes; what each one counted is shown at the end
soak: $(VENV)/built
	DEFERKIT_SOAK=20 $(BIN)/pytest -n 2 --dist worksteal -q -rP --durations=20 tests/serve/faults/processes tests/serve/engine/test_stateful.py tests/serve/http/test_openapi.py tests/study/test_report.py
	$(BIN)/python benchmarks/serve_memory.py

lint: $(VENV)/built
	$(BIN)/ruff format --check src tests checks benchmarks examples setup.py
	$(BIN)/ruff check src tests checks benchmarks examples setup.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m checks.wording
	if command -v npm >/dev/null; then $(MAKE) --silent $(WEB_CHECKS) && npm --prefix checks/web run --silent types; else echo "no npm: the types of the pages are not checked"; fi

# The compiled code under the sanitizers for addresses and undefined behaviour, in a build of its own: five minutes.
# Leaks are not looked for: Python and its libraries keep much until a process ends, which all would be reported.
# Python's own allocator is off, so that each object has borders that are watched. libstdc++ comes early, so that the
# sanitizer finds how C++ libraries throw.
SANITIZERS := -fsanitize=address,undefined,float-cast-overflow
SANITIZED := $(addprefix tests/learn/test_,contract.py golden.py inputs.py encode.py passes.py estimates.py decisions.py)
sanitize: $(VENV)/built
	DEFERKIT_CFLAGS="-O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all $(SANITIZERS)" DEFERKIT_LDFLAGS="$(SANITIZERS)" \
		$(BIN)/python setup.py --quiet build --build-base build/sanitize --build-lib build/sanitize/lib
	PYTHONPATH=build/sanitize/lib PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so) $$(gcc -print-file-name=libstdc++.so)" \
		$(BIN)/python -m pytest -q -p no:cacheprovider -p tests.exact_arrays $(SANITIZED)

# the kernels for arm64, then the whole core in Debian's Python for arm64, under emulation: the same bits as here
test-arm64: $(VENV)/built
	{ command -v aarch64-linux-gnu-gcc && command -v qemu-aarch64-static; } >/dev/null || { $(APT) gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static; } \
		|| { echo "needs a compiler for arm64 and an emulator (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)" >&2; exit 1; }
	$(BIN)/pytest -q tests/learn/test_kernels.py -k arm64
	checks/arm64.sh $(CURDIR)/$(BIN)/python

# the bridge against a real Label Studio, installed into an environment of its own: some minutes, a gigabyte
LABEL_STUDIO := 1.23.2
STUDIO := build/label-studio-$(LABEL_STUDIO)
test-label-studio: $(VENV)/built $(STUDIO)/installed
	DEFERKIT_LABEL_STUDIO=$(CURDIR)/$(STUDIO)/bin/label-studio $(BIN)/pytest -n 0 -q -p no:cacheprovider checks/label_studio_server.py

$(STUDIO)/installed:
	$(PYTHON) -m venv $(STUDIO)
	$(STUDIO)/bin/pip install --quiet --disable-pip-version-check 'label-studio==$(LABEL_STUDIO)'
	touch $@

# alerts and the dashboard by promtool, with the alerts' own tests; `make test` does it too where promtool is there
check-alerts: $(VENV)/built
	command -v promtool >/dev/null || { $(APT) --no-install-recommends prometheus; } || { echo "needs promtool (Debian: prometheus)" >&2; exit 1; }
	$(BIN)/pytest -n 0 -q tests/serve/http/test_metrics_deploy.py

# wheel and sdist of a clean clone of the last commit, compared, checked, and tried in empty environments without a
# compiler, for each Python from 3.11 on that is on the PATH: five minutes
dist: $(VENV)/dist-tools
	$(BIN)/python checks/dist.py $(VENV)/dist-tools

# the Dockerfile built and run without a registry, on a base of Debian's packages; then the wheel in that Debian's Python
test-container: | $(BIN)/python
	{ command -v debootstrap && command -v buildah; } >/dev/null || { $(APT) --no-install-recommends debootstrap buildah; }
	$(BIN)/python checks/container.py

$(VENV)/dist-tools: checks/dist-tools.txt | $(BIN)/python
	$(BIN)/python -m venv --clear $@
	$@/bin/pip install --quiet --disable-pip-version-check -r checks/dist-tools.txt
	touch $@

# the same at full size: a few minutes
reproduce: $(VENV)/study
	$(BIN)/deferkit reproduce

# the paper's experiments with people, under an hour; two of them need data that others published (docs/data.md)
real: $(VENV)/built
	@[ -z "$$DEFERKIT_DATA" ] || $(BIN)/pytest -q checks
	@[ -n "$$DEFERKIT_DATA" ] || echo "DEFERKIT_DATA is not set: without imagenet16h and mvh (docs/data.md says how to get the data)"
	$(BIN)/deferkit reproduce knapsack-reward knapsack-regret knapsack-bandit $${DEFERKIT_DATA:+imagenet16h mvh} --out results/real

# other people's methods beside ours, on long, short and drifting streams; they are slow
rivals: $(VENV)/built
	$(BIN)/deferkit reproduce rivals --out results/rivals

bench: $(VENV)/built $(VENV)/peers
	$(BIN)/python benchmarks/bulk.py
	$(BIN)/python benchmarks/single.py
	$(BIN)/python benchmarks/mixture.py --million
	$(BIN)/python benchmarks/embeddings.py
	$(BIN)/python benchmarks/versions.py

# the decision service over HTTP, beside an empty endpoint, the disk, one commit for each call, PostgreSQL
bench-serve: $(VENV)/built
	command -v wrk >/dev/null || { $(APT) wrk; }
	command -v gcc >/dev/null || { $(APT) gcc libc6-dev; }
	$(BIN)/python benchmarks/serve.py

# the pictures in docs/: the console, taken of `deferkit demo --console`, and the diagrams (with npm): two minutes
pictures: $(VENV)/built $(VENV)/browser
	$(BIN)/python checks/console_pictures.py
	$(BIN)/python -m checks.diagrams

# the documentation as a site, site/index.html; a broken link is an error, and so is anything that another host would have to send
docs: $(VENV)/built
	$(BIN)/python -m checks.site_pages build/docs
	$(BIN)/zensical build --clean --strict
	$(BIN)/python -m checks.site_links site

# what extension modules are compiled from
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd' -not -name state.pxd -o -name '*.h') src/deferkit/learn/core/layout.py setup.py

# a C compiler and the headers of Python, for the extension modules
COMPILER = { command -v gcc >/dev/null && $(PYTHON) -c 'import pathlib, sysconfig; (pathlib.Path(sysconfig.get_path("include")) / "Python.h").stat()' 2>/dev/null; } \
	|| { $(APT) gcc libc6-dev python3-dev; } || { echo "deferkit is compiled: install gcc and the headers of Python (Debian: gcc libc6-dev python3-dev)" >&2; exit 1; }

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { $(APT) python3-venv && $(PYTHON) -m venv --clear $(VENV); }

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@$(COMPILER)
	$(PIP) -e '.[dev]'
	touch $@

# studies and demonstrations need no more than this
$(VENV)/study: pyproject.toml constraints.txt $(SOURCES) | $(BIN)/python
	@$(COMPILER)
	$(PIP) -e '.[study,serve]'
	touch $@

$(VENV)/peers: $(VENV)/installed
	command -v gcc >/dev/null || { $(APT) gcc libc6-dev; }
	$(PIP) -e '.[bench]'
	touch $@

# pages are tested in a real browser; without one, and without root to install it, those tests are left out
$(VENV)/browser: | $(VENV)/installed
	{ command -v chromium >/dev/null || { $(APT) chromium; }; } && touch $@ || echo "no chromium: the page is not tested"

# what checks the pages: a compiler of TypeScript that reads the types in comments, and rules of accessibility
$(WEB_CHECKS): checks/web/package.json checks/web/package-lock.json
	npm ci --prefix checks/web --silent --no-audit --no-fund
	touch $@

# extension modules, anew after a change of their sources; the first time they come with the installation
$(VENV)/built: $(VENV)/installed $(SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

clean:
	find src -name '*.so' -delete
	rm -rf $(VENV) checks/web/node_modules build dist results site .mypy_cache .ruff_cache .pytest_cache .hypothesis

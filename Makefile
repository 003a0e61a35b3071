# One command per gate, the same locally and in CI. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Touched when everything in the lock files is installed; `make setup` has nothing to do until an input changes.
STAMP := $(VENV)/.installed
# Touched when the native core was built, or could not be: `make native` tries again.
NATIVE_STAMP := $(VENV)/.native
# Touched when pytest has compiled the tests of a new clone.
COMPILED_STAMP := $(VENV)/.compiled
NATIVE_INPUTS := scripts/native.py native/Cargo.toml native/checksums $(wildcard native/src/*.rs native/src/*/*.rs)
PACKAGES := $(wildcard analytics bamboo_cli bench bymux fuzz gateways local_api logstore peer pyspark_bamboo scripts siege tests wire)
FUZZ_TARGETS := $(filter-out fuzz/__init__.py fuzz/harness.py %_samples.py,$(wildcard fuzz/*.py))
BENCHMARKS := $(filter-out bench/__init__.py,$(wildcard bench/*.py))
OF_THE_PAGE := bench/suite.py bench/curves.py bench/page.py
# Processes that run tests: one more than a small machine has cores, since many tests wait for others.
WORKERS ?= 3
# Tests start our commands hundreds of times: compiled once, and not each time anew.
unexport PYTHONDONTWRITEBYTECODE
# Arguments for the tool that is run: make test ARGS="tests/wire -k lipmaa"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup native java demo test check lint format types soak fuzz bench bench-quick bench-each curves siege coverage interop conformance lock screenshots clean

help:  ## lists the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) $(NATIVE_STAMP)  ## makes .venv with every extra, from the lock file, and the native core where cargo is

# What builds a package that comes as source only is pinned too, and there first: left to itself pip would
# take the newest of that day for each build.
$(STAMP): requirements-build.lock requirements-dev.lock pyproject.toml
	@echo "Setting up $(VENV) with every extra; the first time this takes a minute or two."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --require-hashes -r requirements-build.lock
	$(PIP_INSTALL) --require-hashes --no-build-isolation -r requirements-dev.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	touch $(STAMP)

$(NATIVE_STAMP): $(STAMP) $(NATIVE_INPUTS)
	@$(BIN)/python scripts/native.py
	@touch $(NATIVE_STAMP)

native: $(STAMP)  ## builds the native core, where `make setup` could not
	@$(BIN)/python scripts/native.py
	@touch $(NATIVE_STAMP)

# Spark needs Java; the scripts and tests that use it say so themselves, this one installs it if it can.
java: setup
	$(BIN)/python scripts/java.py

demo: setup java  ## two real nodes replicate, live; then a query with Spark
	$(BIN)/python scripts/demo.py

# pytest compiles the tests that it collects, and each of its workers collects them all: in a new clone
# the same work three times over. Not again for each test that is edited: to collect all costs more than
# to compile one. What cannot be collected is told by the run that follows.
$(COMPILED_STAMP): $(STAMP)
	@ls -d tests/*/ tests/test_*.py | xargs -n 7 -P 2 $(BIN)/pytest -qq --collect-only >/dev/null || true
	@touch $(COMPILED_STAMP)

test: setup java $(COMPILED_STAMP)  ## runs the default tests
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

lint: setup  ## formatting, lint rules, and that each rule of the protocol has its tests; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python scripts/native.py --lint
	$(BIN)/python scripts/conformance.py --check

types: setup  ## mypy, strict
	$(BIN)/mypy $(PACKAGES)

check: lint types test  ## every gate

format: setup  ## formats and fixes what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

soak: setup java  ## the long tests, and those on a Spark cluster
	$(BIN)/pytest -m "long or cluster" -o faulthandler_timeout=0 $(ARGS)

fuzz: setup  ## property tests with many more examples, then the fuzz targets
	$(BIN)/pytest --hypothesis-profile=long -o faulthandler_timeout=0 -n $(WORKERS)
	set -e; for target in $(basename $(notdir $(FUZZ_TARGETS))); do \
		$(BIN)/python -m fuzz.$$target $(ARGS); \
	done

bench: setup  ## what replication costs, beside hypercore and the machine's limits: bench/results.json
	$(BIN)/python bench/suite.py --out bench/results.json $(ARGS)

bench-quick: setup  ## the same with small sizes, in two minutes
	$(BIN)/python bench/suite.py --quick $(ARGS)

curves: setup  ## rates by length, logs, payload size and connections; the table and plots of docs/performance.md
	$(BIN)/python bench/curves.py --out bench/curves.json $(ARGS)
	$(BIN)/python bench/page.py

bench-each: setup  ## every other benchmark; each says at its top what it measures
	set -e; for benchmark in $(filter-out $(OF_THE_PAGE),$(BENCHMARKS)); do $(BIN)/python $$benchmark; done

siege: setup  ## attacks a node in every way there is, about ten minutes; docs/siege.md reads it
	$(BIN)/python -m siege $(ARGS)

coverage: setup java  ## the default tests with branch coverage
	$(BIN)/pytest -n $(WORKERS) --cov --cov-report=term --cov-report=html $(ARGS)

# Upstream's crate and what it needs, as its index has it on that day, upstream's Go source in the folder that
# CARDINAL_UPSTREAM names, and go-ethereum with what tests/interop/swarm/go.mod names: no other target needs
# them. Who has not all of it has what can be built.
interop: setup  ## programs of other systems against ours, built here: Ockam (Rust), Cardinal and Swarm (Go)
	if command -v cargo >/dev/null; then cd tests/interop/ockam-rust && cargo build --release; \
		else echo "Ockam's nodes are left out: there is no Rust here"; fi
	$(BIN)/python -m tests.interop.cardinal_go
	$(BIN)/python -m tests.interop.swarm_go
	$(BIN)/pytest tests/interop $(ARGS)

conformance: setup  ## writes docs/conformance.md from the catalogue and the tests
	$(BIN)/python scripts/conformance.py

# Extras stay in the names: pip resolves `coverage[toml]` apart from a pin of `coverage`.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-strip-extras --custom-compile-command 'make lock'

# For servers, where the first two are for developers; what is tested is what is installed there.
lock: setup  ## brings the lock files up to date with pyproject.toml
	$(LOCK) --group build --output-file requirements-build.lock
	$(LOCK) pyproject.toml --all-extras --output-file requirements-dev.lock
	$(LOCK) pyproject.toml --group install --constraint requirements-dev.lock --output-file requirements.lock

screenshots: setup  ## takes the pictures of the page that are in docs/
	BAMBOO_PEER_SCREENSHOTS=docs $(BIN)/pytest -q -p no:xdist tests/local_api/test_page_in_browser.py -k fits

clean:  ## removes what the tools left behind, not .venv
	rm -rf native/target native/Cargo.lock
	rm -rf build dist htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache

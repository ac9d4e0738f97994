# Everything runs in .venv, which `setup` makes once and again when the lock file changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.locked
export PATH := $(abspath $(BIN)):$(PATH)
export PYSPARK_PYTHON := $(abspath $(BIN))/python

# What is compiled once need not be compiled again by each of the hundreds of processes that tests and benchmarks start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check coverage bench soak docs schemas lock clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: $(STAMP) ## .venv with the exact versions of requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "reconciler needs Python 3.11 or newer; name one with: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

demo: setup ## the main job on real data: 336,776 flights mirrored between two clusters
	@$(BIN)/python examples/flights/demo.py

PYTEST = $(BIN)/python -m pytest -q -n 4 --dist loadgroup --no-loadscope-reorder

test: setup check ## what a change may break; five minutes on two cores
	@$(PYTEST) -m "not soak and not thorough"

test-all: setup ## the rest that must hold: brokers, Spark, races, processes that die; twenty minutes on two cores
	@$(PYTEST) -m "thorough and not soak"

check: setup ## formatting, lint, types, import contracts
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

coverage: setup ## which lines no test reaches; takes longer than the tests
	@$(BIN)/coverage erase
	@$(PYTEST) -m "not soak" --cov --cov-report=term-missing:skip-covered

bench: setup ## the benchmarks: ratios against a floor measured in the same run
	@$(BIN)/python tests/benchmarks/run.py

soak: setup ## long tests: crashes at random moments, scale
	@$(BIN)/python -m pytest -q -m soak

docs: .venv-docs/.locked ## the documentation as a site, in site/: open site/index.html
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict

.venv-docs/.locked: requirements-docs.lock
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

schemas: setup ## write schemas/*.json, docs/reference, docs/facts.md, docs/plan.svg and the list of messages anew
	@$(BIN)/reconciler schema --out schemas
	@$(BIN)/python -m tests.docs.reference
	@$(BIN)/python -m tests.docs.catalog
	@$(BIN)/python -m tests.docs.plan_picture
	@$(BIN)/python -m tests.docs.facts

lock: ## resolve requirements.lock anew (needs uv)
	@uv pip compile pyproject.toml --extra spark --extra kafka --group dev --universal --python-version 3.11 \
		--generate-hashes --no-strip-extras --no-emit-index-url --custom-compile-command "make lock" --quiet -o requirements.lock
	@uv pip compile --group docs --universal --python-version 3.11 \
		--generate-hashes --no-strip-extras --no-emit-index-url --custom-compile-command "make lock" --quiet -o requirements-docs.lock

clean: ## remove everything that was made
	@rm -rf $(VENV) .venv-docs site .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@rm -rf examples/*/.reconciler examples/*/.clusters examples/*/.workspace

# Everything runs in .venv, which `setup` makes once and again when the lock file changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.locked
COMPILED := $(VENV)/.compiled
export PATH := $(abspath $(BIN)):$(PATH)
export PYSPARK_PYTHON := $(abspath $(BIN))/python

# What is compiled once need not be compiled again by each of the hundreds of processes that tests and benchmarks start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all conformance check coverage bench lowest soak docs dist schemas lock clean

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

# Once after a clone: else each worker of pytest compiles every file of the tests, all of them the same ones.
$(COMPILED): | $(STAMP)
	@$(BIN)/python -m pytest -qq --collect-only > $@ || { cat $@; rm $@; exit 1; }

demo: setup ## the main job on real data: 336,776 flights mirrored between two clusters
	@$(BIN)/python examples/flights/demo.py

PYTEST = $(BIN)/python -m pytest -q -n 4 --dist loadgroup --no-loadscope-reorder

test: setup ## what a change may break
	@$(MAKE) --no-print-directory -j2 check $(COMPILED)
	@$(PYTEST) -m "not soak and not thorough"

test-all: setup ## the rest that must hold: brokers, Spark, races, processes that die
	@$(PYTEST) -m "thorough and not soak"

conformance: setup ## the tests of Redpanda or Confluent on test clusters of yours: REDPANDA=FILE or CONFLUENT=FILE has addresses and logins in JSON
	@test -n '$(REDPANDA)$(CONFLUENT)' || { echo "name the cluster: make conformance REDPANDA=FILE or CONFLUENT=FILE; see docs/guides/redpanda.md and confluent-conformance.md" >&2; exit 1; }
	@test -z '$(REDPANDA)' || CONFORMANCE_REDPANDA='$(REDPANDA)' $(BIN)/python -m pytest -q tests/contracts/test_provider.py tests/operations/redpanda
	@test -z '$(CONFLUENT)' || CONFORMANCE_CONFLUENT='$(CONFLUENT)' $(BIN)/python -m pytest -q tests/operations/confluent/test_confluent.py

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

# PySpark 4.0 writes no streams: tests/jobs/test_oldest_spark.py shows what it does.
lowest: setup ## tests of what a change may break, with the lowest versions that pyproject.toml declares (needs uv)
	@uv venv --quiet --clear --python $(BIN)/python .venv-lowest
	@uv pip install --quiet --python .venv-lowest/bin/python -r requirements.lock
	@uv pip compile pyproject.toml --extra records --extra spark --extra kafka --extra gcs --extra azure --resolution lowest-direct --python-version 3.11 \
		--quiet --no-header | sed 's/^pyspark==.*/pyspark==4.2.0/' | uv pip install --quiet --python .venv-lowest/bin/python -r -
	@uv pip install --quiet --python .venv-lowest/bin/python --no-build-isolation --no-deps -e .
	@PATH="$(abspath .venv-lowest/bin):$$PATH" .venv-lowest/bin/python -m pytest -q -n 4 --dist loadgroup --no-loadscope-reorder \
		-m "not soak and not thorough"

soak: setup ## long tests: crashes at random moments, scale
	@$(BIN)/python -m pytest -q -m soak

docs: .venv-docs/.locked ## the documentation as a site, in site/: open site/index.html
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict

.venv-docs/.locked: requirements-docs.lock
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

dist: .venv-release/.locked ## the package in dist/, tried in an empty environment, and what it is made of in build/
	@rm -rf dist build/tried build/shop
	@.venv-release/bin/python -m build --no-isolation --outdir dist . >/dev/null
	@.venv-release/bin/twine check --strict dist/*
	@$(PYTHON) -m venv --without-pip build/tried
	@.venv-release/bin/python -m pip --python build/tried/bin/python install --quiet --disable-pip-version-check dist/*.whl
	@build/tried/bin/reconciler --version
	@build/tried/bin/reconciler init build/shop
	@cd build/shop && ../tried/bin/reconciler apply --yes && ../tried/bin/reconciler plan --detailed-exitcode
	@.venv-release/bin/cyclonedx-py environment --output-reproducible --validate --output-file build/sbom.cdx.json build/tried

.venv-release/.locked: requirements-release.lock
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	@.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-release.lock
	@touch $@

schemas: setup ## write schemas/*.json, docs/reference, docs/facts.md, the pictures of the README and the list of messages again
	@$(BIN)/reconciler schema --out schemas
	@$(BIN)/python -m tests.docs.reference
	@$(BIN)/python -m tests.docs.catalog
	@$(BIN)/python -m tests.docs.plan_picture
	@$(BIN)/python -m tests.docs.facts

lock: ## resolve requirements.lock anew (needs uv)
	@uv pip compile pyproject.toml --extra records --extra spark --extra kafka --extra gcs --extra azure --group dev --universal --python-version 3.11 \
		--generate-hashes --no-strip-extras --no-emit-index-url --custom-compile-command "make lock" --quiet -o requirements.lock
	@uv pip compile --group docs --universal --python-version 3.11 \
		--generate-hashes --no-strip-extras --no-emit-index-url --custom-compile-command "make lock" --quiet -o requirements-docs.lock
	@uv pip compile --group release --universal --python-version 3.11 \
		--generate-hashes --no-strip-extras --no-emit-index-url --custom-compile-command "make lock" --quiet -o requirements-release.lock

clean: ## remove everything that was made
	@rm -rf $(VENV) .venv-docs .venv-lowest .venv-release site dist build .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@rm -rf examples/*/.reconciler examples/*/.clusters examples/*/.workspace

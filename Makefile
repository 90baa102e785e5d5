# Firn. `make` alone lists what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INFRA := $(VENV)/.infra-installed
PARTS := kafka trino spark s3 core

# Where compiled modules are not kept, every process of every run compiles all of its modules again.
export PYTHONDONTWRITEBYTECODE :=
# Of what is generated, a part in each run of the tests.
test-shared: export FIRN_ELASTIC_BODIES ?= 150

.DEFAULT_GOAL := help
.PHONY: help setup python debian parts demo demo-check test test-shared test-own test-plain test-fast check core-check style prove screenshots audit docs requirements clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A pip that dies half-way leaves no stamp, so the next run starts over. First comes what `python -m infra` needs.
$(INFRA): requirements/infra.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Firn needs Python 3.11 or newer; install it with: apt-get install python3.11 python3.11-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "error: Python's venv module is missing; install it with: apt-get install python3-venv" >&2; exit 1; }
	@echo "Python packages -> $(VENV) (about two minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/infra.txt
	@touch $@

$(STAMP): requirements/dev.txt $(INFRA)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

python: $(STAMP)

debian:
	@bash infra/debian.sh

parts: $(INFRA) debian
	@$(BIN)/python -m infra fetch $(PARTS)

# Packages and parts come side by side: most of the time the network is waited for.
setup: ## installs Python packages into .venv, JVM parts (with their classes as recorded) and the native core into the cache, missing Debian packages
	@$(MAKE) --no-print-directory --jobs=2 python parts PARTS="$(PARTS)"
	@$(BIN)/python -m infra fetch classes
	@$(BIN)/python -m compileall -q -j 2 infra lake ingest catalog optimize query ui tests

demo demo-check: PARTS := $(filter-out s3,$(PARTS)) # which only tests want
demo: setup ## the whole line on this machine: logs in, tables, counts; Ctrl-C stops it
	@$(BIN)/python -m infra.demo run

demo-check: setup ## the demo without staying; fails if the numbers do not add up
	@$(BIN)/python -m infra.demo run --check

# Much of the time is spent waiting for services, so seven processes share two cores. Three of them have a catalog each,
# which the tests of a file that need it share, and one Kafka and one Trino together; two run what starts services of its
# own, which needs none of these; what needs no service has what they leave, and both cores when they have ended.
test: setup ## everything CI runs, on the real services
	@$(BIN)/python -m pytest -q --collect-only > /dev/null # pytest compiles its modules once, not in each process
	@$(BIN)/python -m tests.pace $(MAKE) --no-print-directory --jobs=3 --output-sync=target test-shared test-own test-plain

test-shared: python # what needs Kafka, the catalog and Trino
	@$(BIN)/python -m pytest -q -m "stack and shared" -n 3 --dist loadfile --no-loadscope-reorder

test-own: python # what starts services of its own
	@$(BIN)/python -m pytest -q -m "stack and not shared" -n 2 --dist loadfile --no-loadscope-reorder

test-plain: python # what needs no service
	@nice -n 19 $(BIN)/python -m pytest -q -m "not stack" -n 2 --dist worksteal

test-fast: python ## the tests that need neither a service nor a second each
	@$(BIN)/python -m pytest -q -m "not stack and not long" -n 2 --dist worksteal

check: python core-check ## lint, format, types, import rules, and the native core where there is a cargo
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

core-check:
	@bash core/check.sh

style: python ## how dense the code is, in figures to look at; no gate
	@$(BIN)/python -m tests.style

prove: setup ## the long proofs: seeded, resumable, results kept with the commit they were made on
	@$(BIN)/python -m tests.prove

screenshots: setup ## the pictures of every page in docs/screenshots, taken anew of the demo's tenants
	@FIRN_PROVE=1 $(BIN)/python -m pytest -q tests/ui/test_screenshots.py

.venv-audit/.installed: requirements/audit.txt
	@$(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	@touch $@

# Never part of `check`: it asks an advisory service on the network, and fails where that does not answer.
audit: python .venv-audit/.installed ## compares the pinned Python packages with the known vulnerabilities (needs an advisory service)
	@$(BIN)/python -m tests.audit

.venv-docs/.installed: requirements/docs.txt
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

# MkDocs does not count its warnings, which --strict fails by, where it is told to be --quiet.
docs: python .venv-docs/.installed ## the documentation as a site in .site/html; broken links, unknown settings and commands fail it
	@$(BIN)/python -m tests.docs_check --pages .site/pages
	@.venv-docs/bin/mkdocs build --strict
	@echo "documentation: .site/html/index.html"

requirements: ## compiles the hashed requirement files anew from pyproject.toml (needs uv)
	@bash requirements/compile.sh

clean: ## removes state, the site and caches of the tools, not .venv and not the JVM parts
	@rm -rf state .site .mypy_cache .ruff_cache .pytest_cache .hypothesis

# On a fresh machine only python3 (3.11 or newer, with venv), make and a package index are needed.
# Everything is installed into .venv once; a stamp file makes the next run start at once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
BENCH_STAMP := $(VENV)/.installed-bench
NAME   ?= store
# loadfile keeps a module's tests in one process, so module-wide fixtures are made once.
PYTEST_ARGS ?= -n 3 --dist loadfile
DEMO_ARGS ?=
BENCH_ARGS ?=
MUTANTS_ARGS ?=
TESTS ?= tests

# Hundreds of processes are started by the tests.  Where the environment forbids to keep compiled
# modules, as images of containers like to, each would compile perkey and its libraries anew: more
# than a second a process.  They lie in VENV, so the sources stay clean.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

.DEFAULT_GOAL := help
.PHONY: help demo test lint types bench mutants docs clean install

help:
	@echo "make demo              six worker processes write one report through perkey, shown on a page"
	@echo "make demo DEMO_ARGS=--blind   the same workers without it, and what they lose"
	@echo "make test              the whole test suite (TESTS=tests/unit for a part)"
	@echo "make lint              ruff, its formatter, and the import contracts"
	@echo "make types             mypy --strict over the library"
	@echo "make bench NAME=store  one benchmark from benchmarks/; NAME=all runs them all into RESULTS.md"
	@echo "make mutants           changes flows/, locks/ and engine/ here and there; do their tests notice?"
	@echo "make docs              the documentation as HTML, into docs/_build/html"
	@echo "make clean             remove everything that was built, .venv included"

install: $(STAMP)

$(STAMP): pyproject.toml tools/install.sh
	@PYTHON="$(PYTHON)" sh tools/install.sh $(VENV) dev
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@PYTHON="$(PYTHON)" sh tools/install.sh $(VENV) docs
	@touch $@

$(BENCH_STAMP): $(STAMP)
	@PYTHON="$(PYTHON)" sh tools/install.sh $(VENV) bench
	@touch $@

demo: $(STAMP)
	@$(BIN)/perkey demo $(DEMO_ARGS)

test: $(STAMP)
	@sh tools/ready.sh $(VENV) $(TESTS)
	@$(BIN)/python -m pytest $(PYTEST_ARGS) $(TESTS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: $(STAMP)
	@$(BIN)/mypy

bench: $(BENCH_STAMP)
	@$(BIN)/python -m benchmarks.$(NAME) $(BENCH_ARGS)

mutants: $(STAMP)
	@$(BIN)/python -m tools.mutants $(MUTANTS_ARGS)

docs: $(DOCS_STAMP)
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf $(VENV) docs/_build build dist report .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

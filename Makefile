# The chores of this repository; `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What `make bench` measures: a range as git log takes it.
RANGE ?= HEAD~2..HEAD
# … and which series, e.g. make bench BENCH=linear: a regular expression. All of them take long on a CPU.
BENCH ?= .
# Further options of pytest, e.g. make test ARGS='-k linear -x'
ARGS ?=

MACHINE := $(if $(shell command -v nvidia-smi 2>/dev/null),cuda,cpu)
ifdef SYSTEM_TORCH
  KIND := system
  VENV_OPTIONS := --system-site-packages
  REQUIREMENTS := -e '.[dev]' -c constraints/common.txt
else
  KIND := $(MACHINE)
  REQUIREMENTS := -e '.[gpu,dev]' -c constraints/$(MACHINE).txt
endif
CREATED := $(VENV)/created-$(KIND)
INSTALLED := $(VENV)/installed-$(KIND)

# An environment may ask for no bytecode: every process would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv run check test test-all lint package docs bench system-deps

# What `make check` runs, for the loop of change and try: the tests that say most for their time. They cover measuring, the
# gate's verdicts, records, results, detection, attribution, the API, exit statuses and a family of kernels. Tests that start
# many processes, a browser, PostgreSQL or a compiler are left to `make test`.
CHECKED := timing/test_bound_arms timing/test_check timing/test_interleave timing/test_intervals timing/test_measure \
  kernels/test_linear suite/test_suite suite/test_thresholds suite/test_family_files record/test_record \
  record/test_provenance gate/test_gate_plan gate/test_same_sources gate/test_gate_pairing gate/test_gate_verdict \
  gate/test_gate_report machine_code/test_difference_sentences compare/test_verdicts compare/test_beyond_noise \
  detect/test_changes alerts/test_attribution alerts/test_stopped_series alerts/test_baseline_moved history/test_result_files \
  history/test_hostile_files history/test_snapshot dashboard/test_pages_overview dashboard/test_api commands/test_cli

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

venv: $(INSTALLED)  ## install everything into .venv (SYSTEM_TORCH=1: use the torch and Triton that python3 has)

run: bench  ## measure the last two commits, then show all results in the dashboard
	$(BIN)/lockstep dashboard

test: $(INSTALLED)  ## run every test; what the machine cannot run is listed as skipped
	$(BIN)/pytest -n 4 --dist worksteal -rs $(ARGS)

test-all: $(INSTALLED)  ## run the tests that take long as well: about an hour on two cores
	LOCKSTEP_TEST_ALL=1 $(BIN)/pytest -n 4 --dist worksteal -rs $(ARGS)

check: $(INSTALLED)  ## run the most telling tests: about a minute on two cores
	$(BIN)/pytest -n 2 --dist worksteal $(ARGS) $(CHECKED:%=tests/%.py)

lint: $(INSTALLED)  ## check style, layout and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

package: $(INSTALLED)  ## build the sdist and the wheel into dist/ and check them
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents --toplevel dashboard,lockstep dist/*.whl

docs: $(INSTALLED)  ## build the site of docs/ into .asv/docs
	$(BIN)/mkdocs build --strict --quiet

bench: $(INSTALLED)  ## measure the last two commits (RANGE=main~5..main BENCH=linear: others) and publish asv's site
	$(BIN)/lockstep run '$(RANGE)' --bench '$(BENCH)'
	$(BIN)/lockstep publish --no-pull

system-deps:  ## install what pip cannot: compilers, ninja, git, Chromium, PostgreSQL, nginx, bubblewrap (Debian, Ubuntu)
	@.ci/system-deps

# One file says how .venv was made, another that it is complete: an interrupted install goes on where it was,
# a .venv of another kind is made anew.
$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Lockstep needs Python 3.11 or newer: make venv PYTHON=python3.12 (or where yours is)"; exit 1; }
	@! ls $(VENV)/created-* >/dev/null 2>&1 || rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV_OPTIONS) $(VENV)
	@[ $(KIND) != system ] || $(BIN)/python -c 'import torch, triton' || \
	  { echo "SYSTEM_TORCH=1 needs torch and triton in $(PYTHON) itself; without it they are installed"; exit 1; }
	@touch $@

# pip would compile all of 12,000 modules to bytecode, one after another; Python compiles those that are imported.
$(INSTALLED): $(CREATED) pyproject.toml $(wildcard constraints/*.txt)
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile $(REQUIREMENTS)
	@touch $@

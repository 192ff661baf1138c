# Every target sets up what it needs: a virtual environment in .venv, nothing installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# Where `make run` keeps its instance; override with `make run FAIRLEAD_HOME=/some/where`.
FAIRLEAD_HOME ?= $(CURDIR)/.fairlead

.PHONY: help run test lint format bench proof coverage clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fairlead needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV), once: about a minute"
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "no venv module; on Debian and Ubuntu: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: export FAIRLEAD_HOME := $(FAIRLEAD_HOME)
run: $(STAMP) ## run daemon and watchdog in the foreground; Ctrl-C stops them
	@exec $(BIN)/fairlead up

test: $(STAMP) ## run the tests
	@$(BIN)/python -m pytest -n auto -q

lint: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(STAMP) ## let ruff format and fix
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

coverage: $(STAMP) ## the tests again, with branch coverage
	@tests/coverage.sh $(BIN)

bench: $(STAMP) ## benchmarks, as ratios against baselines of the same run
	@$(BIN)/python -m bench

proof: $(STAMP) ## the long proofs: random kills, power cuts
	@$(BIN)/python -m tests.proof

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*

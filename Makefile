# fluxqueue: see CONTRIBUTING.md for what each target is for.
# `make demo` and `make test` need Python >= 3.11 and make, and install everything else themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test lint bench bench-fluxion proto clean setup unit integration e2e conformance controlplane

setup:
	@$(PYTHON) local/bootstrap.py

demo: setup
	@$(BIN)/fluxqueue local demo

test: setup
	$(PYTEST) tests/unit tests/conformance
	$(PYTEST) tests/integration
	$(PYTEST) tests/e2e

unit: setup
	$(PYTEST) tests/unit

conformance: setup
	$(PYTEST) tests/conformance

integration: setup
	$(PYTEST) tests/integration

e2e: setup
	$(PYTEST) tests/e2e

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy api/fluxqueue certs/fluxqueue cli/fluxqueue fluxion/fluxqueue kube/fluxqueue local/fluxqueue queue/fluxqueue webhook/fluxqueue
	$(BIN)/mypy tests benchmarks
	$(BIN)/lint-imports
	git ls-files -z '*.sh' .ci/run | xargs -0 -r $(BIN)/shellcheck

bench: setup
	$(BIN)/python benchmarks/run.py

bench-fluxion: setup
	$(BIN)/python benchmarks/fluxion_matching.py

proto: setup
	$(BIN)/python proto/generate.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist benchmarks/results

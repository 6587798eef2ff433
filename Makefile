# fluxqueue: see CONTRIBUTING.md for what each target is for.
# `make demo` and `make test` need Python >= 3.11 and make, and install everything else themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test test-walk test-faults test-faults-long lint bench bench-fluxion proto clean setup unit integration e2e conformance controlplane

# The environment: .venv with everything pinned in constraints.txt, Postgres binaries only where the machine has none.
setup:
	@$(PYTHON) local/bootstrap.py

# The Kubernetes programs, found or built once (several minutes) and cached.
controlplane: setup
	@$(BIN)/fluxqueue local binaries --quiet

demo: controlplane
	@$(BIN)/fluxqueue local demo

test: controlplane
	$(PYTEST) -n 2 tests/unit tests/conformance
	$(PYTEST) tests/integration
	$(PYTEST) tests/e2e
	$(PYTEST) tests/faults

unit: controlplane
	$(PYTEST) -n 2 tests/unit

conformance: setup
	$(PYTEST) -n 2 tests/conformance

integration: controlplane
	$(PYTEST) tests/integration

e2e: controlplane
	$(PYTEST) tests/e2e

# Every crash point once; FLUXQUEUE_FAULT_SEED replays a run.
test-faults: controlplane
	FLUXQUEUE_FAULT_POINTS=all $(PYTEST) tests/faults

# A thousand gang starts, every crash point twenty times and more: two to three hours.
test-faults-long: controlplane
	PYTHONPATH=tests $(BIN)/python tests/faults/long_form.py --json build/faults.json --svg build/faults.svg

# Ten minutes of nodes, pods and work of all kinds that come and go; WALK_SEED walks one again.
test-walk: controlplane
	WALK_SECONDS=$${WALK_SECONDS:-600} $(PYTEST) -s --timeout 1200 tests/e2e/test_cluster_changes.py -k random_walk

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy api/fluxqueue certs/fluxqueue cli/fluxqueue fluxion/fluxqueue kube/fluxqueue local/fluxqueue minicluster/fluxqueue queue/fluxqueue rest/fluxqueue webhook/fluxqueue
	$(BIN)/mypy tests benchmarks
	$(BIN)/lint-imports
	git ls-files -z '*.sh' .ci/run | xargs -0 -r $(BIN)/shellcheck

bench: controlplane
	$(BIN)/python benchmarks/run.py

bench-fluxion: setup
	$(BIN)/python benchmarks/fluxion_matching.py
	$(BIN)/python benchmarks/fluxion_grpc.py

proto: setup
	$(BIN)/python proto/generate.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist benchmarks/results

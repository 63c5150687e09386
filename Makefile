# Every target makes the .venv it needs; nothing has to be activated or installed first.
# PYTHON=/path/to/python says which Python makes a new .venv.

.DEFAULT_GOAL := help
.PHONY: help run demo team-demo docs test quick e2e windows conformance lint fix bench prove truth proof smoke dist image constraints clean ready-run ready-dev

BIN := .venv/bin
export PYTHON

# The tests start hundreds of processes; without bytecode each would compile all of it anew.
unexport PYTHONDONTWRITEBYTECODE

# ONCE=1 asks for output that ends by itself.
ONCE ?=

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ready-run ## sweep, or made-up sessions if no agent has any, then the viewer (ONCE=1: print and end)
	@$(BIN)/thence demo --if-empty $(if $(ONCE),,--serve)

demo: ready-run ## look around on made-up sessions, then in the viewer (ONCE=1: print and end)
	@$(BIN)/thence demo $(if $(ONCE),,--serve)

team-demo: ready-dev ## a team to try: a Postgres, a bucket, three machines that push, the viewer (ONCE=1: print and end)
	@scripts/bucket || echo "no S3-compatible server can be had here: payloads lie in a folder"
	@$(BIN)/python scripts/team-demo $(if $(ONCE),--once)

test: ready-dev ## lint and all tests; make prove runs all cases of those that are sampled here
	@scripts/test

quick: ready-dev ## the everyday subset of the tests
	@THENCE_TEST=everyday $(BIN)/python -m pytest -q -n auto --maxprocesses=4 --dist worksteal -m "not slow"

e2e: ready-dev ## our hooks in the real clients, on loopback; fetches the clients
	@$(BIN)/python scripts/clients
	@$(BIN)/python -m pytest -n auto --maxprocesses=4 -m e2e tests/e2e

windows: ready-dev ## import, search and view on a Windows Python under Wine; fetches both (1 GB)
	@scripts/windows
	@$(BIN)/python -m pytest -m e2e tests/e2e/test_windows.py

conformance: ready-dev ## the owners' own tests of what we bridge to; fetches their SDKs (600 MB)
	@scripts/conformance $(SUITES)

lint: ready-dev ## ruff, mypy and the import contracts
	@scripts/step "ruff check" $(BIN)/ruff check .
	@scripts/step "ruff format" $(BIN)/ruff format --check .
	@scripts/step "mypy" $(BIN)/mypy
	@scripts/step "imports" $(BIN)/lint-imports --no-logo

fix: ready-dev ## let ruff mend and format what it can
	@$(BIN)/ruff check --fix --show-fixes . || true
	@$(BIN)/ruff format .

# NAMES="sweep growth" takes some, ROUNDS=3 gives medians and spreads, BENCH_BIG=1 goes to 1 GB.
bench: ready-run ## the benchmarks, as ratios within one run, our peers beside us
	@scripts/peers || echo "peers cannot be installed here: measured without them"
	@PATH="$(CURDIR)/.venv/agentsview/agentsview/bin:$$PATH" PYTHONPATH=.venv/peers \
		$(BIN)/python -m bench $(if $(ROUNDS),--rounds $(ROUNDS)) $(NAMES)

# ONLY=T3,T6 takes some trials, SCALE=0.1 a tenth of each; FRESH=1 forgets what has ended before.
prove: ready-dev ## T1 to T16 at the numbers of a release; goes on where it was stopped
	@scripts/provers || echo "not all tools can be installed here: their trials say so"
	@PATH="$$PATH:/usr/sbin:/sbin" PYTHONPATH=.venv/provers $(BIN)/python -m prove \
		$(if $(ONLY),--only $(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(FRESH),--fresh)

truth: ready-dev ## planted sessions with exact answers: thence and its peers, as one table
	@scripts/truth-peers || echo "peers cannot be installed here: left out of the table"
	@$(BIN)/python -m truth $(if $(ONLY),--only $(ONLY))

proof: ready-dev ## write the tables of docs/proof.md and docs/why.md from the last reports
	@$(BIN)/python -m prove.page

smoke: ready-run ## install as a user does, without dev tools, and run the command
	@scripts/smoke

dist: ready-dev ## build sdist and wheel into dist/, twice, and check them
	@scripts/dist

image: ## build the container image thence, where a docker engine answers
	@scripts/image

constraints: ready-run ## renew constraints.txt from the registry
	@scripts/constraints

docs: ready-run ## write docs/cli.md from the commands
	@$(BIN)/python scripts/cli_reference.py > docs/cli.md

clean: ## remove what the other targets made
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

ready-run:
	@scripts/setup run

ready-dev:
	@scripts/setup dev

# `make run` and `make test` are all one needs; the rest serves them.
.DEFAULT_GOAL := help
.PHONY: help run install test bench format lock clean
.NOTPARALLEL:

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq
PYTHONS ?= python3.13 python3.12 python3.11 python3
UV_VERSION := 0.13.9
UPGRADE ?=

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: install  ## start the proxy on http://127.0.0.1:8080 (ARGS="--port 9000" for options)
	@exec $(BIN)/sidemirror serve $(ARGS)

install: .venv/.ahead  ## make .venv with the locked dependencies and the sidemirror command

# The tests of a file share what they start, so one worker does them all.
test: .venv/.dev .venv/.ahead  ## everything CI checks
	$(BIN)/python tests/check_environment.py
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/sidemirror policy check policies
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

bench: .venv/.dev .venv/.ahead  ## measure, into bench/RESULTS.md
	$(BIN)/python -m bench $(ARGS)

format: .venv/.dev  ## put the code into shape, and write what is made from it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/sidemirror policy check policies
	$(BIN)/python -m proxy.policy.vetted policies
	$(BIN)/python -m proxy.reference > docs/configuration.md

lock: .venv/.uv-$(UV_VERSION)  ## refresh the lock files from pyproject.toml (UPGRADE=--upgrade for newest)
	$(LOCK) --group dev --output-file requirements-dev.lock
	$(LOCK) --constraints requirements-dev.lock --output-file requirements.lock

clean:  ## remove .venv, builds and caches; never data
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find proxy tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# The development lock is resolved first and constrains the other, so that both name the same versions.
LOCK = .venv/uv/bin/uv pip compile --no-config --quiet $(UPGRADE) --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command 'make lock' pyproject.toml --group build

# hatchling is in the lock: the editable install needs neither build isolation nor the network.
.venv/.runtime: requirements.lock pyproject.toml | .venv/bin/python
	@echo "installing the locked dependencies (about a minute) ..."
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.dev: requirements-dev.lock requirements.lock pyproject.toml | .venv/bin/python
	@echo "installing the locked dependencies and tools (about a minute) ..."
	@$(PIP) --require-hashes -r requirements-dev.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch .venv/.runtime $@

# Python compiles a module, and we a pattern, when it is first needed; done here, no start has to wait for it.
.venv/.ahead: .venv/.runtime $(shell find proxy -name '*.py')
	@$(BIN)/python -m compileall -q proxy
	@$(BIN)/python -m proxy.ahead
	@touch $@

.venv/.uv-$(UV_VERSION): | .venv/bin/python
	@$(BIN)/python -m venv .venv/uv
	@.venv/uv/bin/python -m pip --disable-pip-version-check install -qq uv==$(UV_VERSION)
	@touch $@

.venv/bin/python:
	@lacking=; \
	for python in $(PYTHONS); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
	  if "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	    echo "making .venv with $$("$$python" --version)"; \
	    exec "$$python" -m venv .venv; \
	  fi; \
	  lacking=$${lacking:-$$python}; \
	done; \
	if [ -n "$$lacking" ]; then \
	  echo "$$lacking cannot make virtual environments here: Debian and Ubuntu keep that in a package of its own." >&2; \
	  echo "Install it (apt install python3-venv), then repeat this command." >&2; \
	else \
	  echo "no Python 3.11 or newer among: $(PYTHONS)" >&2; \
	  echo "Install one, or name it: make PYTHONS=/path/to/python3 $(MAKECMDGOALS)" >&2; \
	fi; \
	exit 1

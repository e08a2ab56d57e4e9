# Everything a developer runs. `make demo` and `make test` do all set-up themselves.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo example test test-unit check test-airflow test-all bench lock pin-images clean

VENV := .venv
BIN := $(VENV)/bin
# Airflow pins versions that Tributary does not have, so its package has an environment of its own.
AIRFLOW := airflow/.venv
UV := 0.13.8
IMAGES := docker-compose.yml deploy/Dockerfile deploy/kubernetes/executors/tributary.yaml
# Two processes, each with servers and a Spark session of its own, take the files in order: those that
# take minutes first, and unit tests at the end.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
TEST_AIRFLOW := cd airflow && .venv/bin/ruff check . && .venv/bin/mypy && .venv/bin/python -m pytest tests
LOCKED := --universal --python-version 3.10 --generate-hashes --no-header --no-annotate --quiet

# One variable moves all downloads: Python packages here, Java artifacts in the program.
ifdef TRIBUTARY_CACHE
export UV_CACHE_DIR := $(TRIBUTARY_CACHE)/uv
export PIP_CACHE_DIR := $(TRIBUTARY_CACHE)/pip
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_LINK_MODE := copy
# Compiled here, since an environment with PYTHONDONTWRITEBYTECODE, as many images have, would compile
# all modules at each start of a command: that takes longer than everything else of a short command.
export UV_COMPILE_BYTECODE := 1

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## make .venv with everything, from the lock file

demo: setup ## replicate a database under writes to a verified lake, on this machine
	$(BIN)/tributary demo

example: setup ## a shop, a complete hour, and dbt's report of it (examples/shop)
	TRIBUTARY_BIN=$(abspath $(BIN)) examples/shop/run.sh

test: setup ## unit, Spark, integration and crash tests on a real stack
	$(BIN)/python -m pytest tests -m "not breadth" $(PARALLEL)

test-unit: setup ## tests without a JVM or a server
	$(BIN)/python -m pytest tests/unit

check: setup ## linters, types, import contracts, dependencies, sizes and names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/python -m pytest -q tests/unit/test_architecture.py

test-airflow: $(AIRFLOW)/.ready ## tests of airflow/ in its own environment, and one on a real stack
	$(TEST_AIRFLOW)
	$(BIN)/python -m pytest tests/integration/test_airflow.py

test-all: check $(AIRFLOW)/.ready ## check, and every test, also of airflow/
	$(TEST_AIRFLOW)
	$(BIN)/python -m pytest tests $(PARALLEL)

bench: setup ## compare with other ways to move the same rows
	$(BIN)/python -m benchmarks

lock: setup ## renew the lock files after a change of pyproject.toml or UV
	$(BIN)/uv pip compile pyproject.toml --extra stack --extra reader --extra ui --extra lineage --group dev --group readers $(LOCKED) \
	  --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra ui --extra lineage --constraint requirements.lock $(LOCKED) \
	  --output-file requirements-run.lock
	cd airflow && ../$(BIN)/uv pip compile pyproject.toml --group dev $(LOCKED) --output-file requirements.lock
	$(BIN)/uv pip compile examples/shop/requirements.in $(LOCKED) --output-file examples/shop/requirements.lock
	echo "uv==$(UV)" | $(BIN)/uv pip compile - $(LOCKED) --output-file requirements-uv.lock

pin-images: ## renew the images' digests in docker-compose.yml and deploy/, with docker buildx
	@set -eu; \
	for image in $$(sed -nE 's/^( *image: |ARG BASE=| *spark\.kubernetes\.container\.image: )([^@ ]*).*/\2/p' $(IMAGES) | sort -u); do \
	  digest=$$(docker buildx imagetools inspect --format '{{json .Manifest.Digest}}' "$$image" | tr -d '"'); \
	  if ! echo "$$digest" | grep -Eqx 'sha256:[0-9a-f]{64}'; then \
	    echo "$$image: its digest cannot be read. This and the later images were not changed." >&2; exit 1; \
	  fi; \
	  for file in $(IMAGES); do \
	    sed -E "s,^( *image: |ARG BASE=| *spark\.kubernetes\.container\.image: )$$image([@ ].*)?$$,\1$$image@$$digest," "$$file" > "$$file.new"; \
	    mv "$$file.new" "$$file"; \
	  done; \
	done

clean: ## remove all environments
	rm -rf $(VENV) $(AIRFLOW) examples/shop/.venv

$(AIRFLOW)/.ready: $(VENV)/.ready airflow/requirements.lock airflow/pyproject.toml
	@set -eu; \
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(AIRFLOW); \
	$(BIN)/uv pip sync --python $(AIRFLOW)/bin/python --require-hashes airflow/requirements.lock; \
	$(BIN)/uv pip install --python $(AIRFLOW)/bin/python --quiet --no-deps --no-build-isolation -e airflow; \
	touch $@

# The interpreter is chosen among those that Spark 3.5 supports, so that a machine whose python3 is
# newer or older still works when it has another one.
$(VENV)/.ready: requirements.lock requirements-uv.lock pyproject.toml
	@set -eu; \
	fits='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))'; \
	if ! $(BIN)/python -c "$$fits" 2>/dev/null; then \
	  chosen=; \
	  for python in $${PYTHON:-python3} python3.12 python3.11 python3.10; do \
	    if "$$python" -c "$$fits" 2>/dev/null; then chosen=$$python; break; fi; \
	  done; \
	  if [ -z "$$chosen" ]; then \
	    echo "Python 3.10, 3.11 or 3.12 is needed; $$(python3 --version 2>&1 || true) was found." >&2; \
	    echo "Install one of them, or name it: make setup PYTHON=/path/to/python3.12" >&2; \
	    exit 1; \
	  fi; \
	  echo "creating $(VENV) with $$("$$chosen" --version)"; \
	  rm -rf $(VENV); \
	  if ! "$$chosen" -m venv $(VENV); then \
	    rm -rf $(VENV); \
	    echo "$$chosen cannot create a virtual environment: install its venv module" >&2; \
	    echo "(on Debian and Ubuntu the package python3-venv)." >&2; \
	    exit 1; \
	  fi; \
	fi; \
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --only-binary :all: \
	  --requirement requirements-uv.lock; \
	$(BIN)/uv pip sync --python $(BIN)/python --require-hashes requirements.lock; \
	$(BIN)/uv pip install --python $(BIN)/python --quiet --no-deps --no-build-isolation -e .; \
	$(BIN)/python -m compileall -q bootstrap cdc operate schemas stack; \
	$(BIN)/python -c 'from cdc.runtime.java import find_java; java = find_java(); print("Java", java.version, "in", java.home)'; \
	touch $@

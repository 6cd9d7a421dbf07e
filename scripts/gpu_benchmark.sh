#!/usr/bin/env bash
# The trainer on a GPU, in at most eight minutes, on a machine with little installed and no network: builds what is not
# built, runs the tests that need a GPU, and prints a table that grows, its most important rows first. What the table
# has: benchmarks/gpu.py. Whenever it is cut, the results so far are in $OUT.
#
# Usage: scripts/gpu_benchmark.sh [cuda|cuda:N|cpu] [flags of benchmarks/gpu.py, such as --only shipped launches]
#   OUT=FOLDER         where gpu.json, precisions.json and gpu_tests.xml go; otherwise benchmarks/results
#   PYTHON=python3     the interpreter whose packages are used; it needs torch, numpy, psutil and safetensors,
#                      scikit-build-core and pybind11 to build, and pytest for the tests
#   WHEELS=FOLDER      wheels of what is missing there, which are installed beside it
#   LIMIT_SECONDS=480  for everything together;  TESTS_SECONDS=120 of them at most for the tests, 0: no tests
#   COMMIT=abc123      what is measured, where the files are a copy without their repository
# `cpu` is a dry run: it measures a few rows in small, and its figures mean nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
device=${1:-cuda}
if [ $# -gt 0 ]; then shift; fi
limit=${LIMIT_SECONDS:-480}
tests=${TESTS_SECONDS:-120}
python=${PYTHON:-python3}
if [ -x .venv/bin/python ] && [ -z "${PYTHON:-}" ]; then python=.venv/bin/python; fi
site=build/gpu-site # what is installed here: no virtual environment, which not every such machine can make

fail() { echo "error: $1" >&2; exit 2; }
left() { echo $((limit - SECONDS)); }
install() {
    timeout "$(left)" "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
        --disable-pip-version-check --upgrade --target "$site" "$@"
}

rm -rf "$site"
if [ -n "${WHEELS:-}" ]; then install "$WHEELS"/*.whl || fail "the wheels in $WHEELS cannot be installed"; fi
export PYTHONPATH="$PWD/$site${PYTHONPATH:+:$PYTHONPATH}"
state=$("$python" - <<'EOF'
import importlib.util as u

def lacks(*names):
    return [name for name in names if u.find_spec(name) is None]

if missing := lacks("torch", "numpy", "psutil", "safetensors"):
    print("lacks", *missing)
else:
    try:
        import protein.envs_c._native, protein.trainer.kernels._native
    except ImportError:
        print("unbuilt", *lacks("pip", "scikit_build_core", "pybind11"))
EOF
) || fail "$python does not run: name an interpreter that has torch with PYTHON=..."
case $state in
    "lacks "*) fail "$python lacks ${state#lacks }: name another one with PYTHON=..., or a folder of wheels with WHEELS=..." ;;
    "unbuilt "*) fail "to build, $python lacks ${state#unbuilt }: name a folder of wheels with WHEELS=..." ;;
    unbuilt) install --no-build-isolation . || fail "the build failed, or took longer than LIMIT_SECONDS=$limit" ;;
esac

out=${OUT:-benchmarks/results}
if [ "$device" = cpu ]; then
    out=${OUT:-$(mktemp -d)}
    export GPU_TESTS_ON=cpu
    set -- --tiny "$@"
fi
mkdir -p "$out"
failed=0
if [ "$tests" -gt 0 ]; then
    if [ "$tests" -gt "$(left)" ]; then tests=$(left); fi
    # Of the suite's plugins and settings it needs only the folder of helpers. PYTHONSAFEPATH: what is installed counts,
    # and not the folder `protein` here, which has nothing built in it.
    PYTHONSAFEPATH=1 timeout -s INT -k 10 "$tests" "$python" -m pytest tests/trainer/test_gpu.py --noconftest -q --tb=short \
        -p no:cacheprovider -W default -o pythonpath=tests/support --junitxml="$out/gpu_tests.xml" \
        ${GPU_TESTS_ON:+-k muon} || failed=1
    set -- --tests "$out/gpu_tests.xml" "$@"
fi
"$python" benchmarks/gpu.py --device "$device" --out "$out" --seconds "$(left)" "$@"
exit $failed

#!/usr/bin/env bash
# The trainer's benchmark on a GPU: builds with what is installed, downloads nothing, and prints one table in about ten
# minutes: environments x policies x precisions x compiled or not, acting and update apart, share of the device's peak.
# Usage: scripts/gpu_benchmark.sh [cuda|cuda:N|cpu] [further flags of benchmarks/gpu.py, such as --minutes 30]
# PYTHON=python3 names the interpreter whose packages are used. `cpu` is a dry run: it trains everything in small, and
# its figures mean nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
device=${1:-cuda}
if [ $# -gt 0 ]; then shift; fi
python=${PYTHON:-python3}
if [ -x .venv/bin/python ] && [ -z "${PYTHON:-}" ]; then python=.venv/bin/python; fi

fail() { echo "error: $1" >&2; exit 2; }
state=$("$python" - <<'EOF'
import importlib.util as u

if u.find_spec("torch") is None:
    print("no torch")
else:
    try:
        import protein.envs_c._native, protein.trainer.kernels._native
    except ImportError:
        print("unbuilt", *(name for name in ("scikit_build_core", "pybind11", "numpy", "safetensors", "tyro") if u.find_spec(name) is None))
EOF
) || fail "$python does not run: name an interpreter that has torch with PYTHON=..."
case $state in
    "no torch") fail "$python has no torch: name an interpreter that has it with PYTHON=..." ;;
    "unbuilt "*) fail "to build, $python lacks: ${state#unbuilt }" ;;
    unbuilt)
        packages=$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
        "$python" -m venv --system-site-packages .venv-gpu
        python=.venv-gpu/bin/python
        # Where $PYTHON is of a virtual environment, --system-site-packages does not give its packages.
        echo "$packages" > "$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")/packages.pth"
        "$python" -m pip install --quiet --no-index --no-deps --no-build-isolation -e . || fail "the build failed" ;;
esac

if [ "$device" = cpu ]; then set -- --tiny "$@"; fi
exec "$python" benchmarks/gpu.py --device "$device" "$@"

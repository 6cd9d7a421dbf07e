#!/usr/bin/env bash
# The trainer's benchmarks on a GPU: builds with what is installed, downloads nothing, and prints
#   1. benchmarks/trainer.py, as on a CPU;
#   2. the speed of pong with enough games for a GPU. The goal is 10 M steps/s;
#   3. benchmarks/solve.py: how soon breakout is solved. The goal is under 5 s.
# Usage: scripts/gpu_benchmark.sh [cuda|cuda:N|cpu]. PYTHON=python3 names the interpreter whose packages are used.
# `cpu` runs the same steps without a GPU, with fewer games.
set -euo pipefail
cd "$(dirname "$0")/.."
device=${1:-cuda}
python=${PYTHON:-python3}
if [ -x .venv/bin/python ] && [ -z "${PYTHON:-}" ]; then python=.venv/bin/python; fi

fail() { echo "error: $1" >&2; exit 2; }
"$python" -c "import torch" 2>/dev/null || fail "$python has no torch: name an interpreter that has it with PYTHON=..."
if [ "$device" != cpu ]; then
    "$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())" 2>/dev/null ||
        fail "no GPU was found ($("$python" -c 'import torch; print("torch", torch.__version__)') sees none); nothing was measured"
    "$python" -c "import torch; print(torch.cuda.get_device_name('$device'))"
fi

if ! "$python" -c "import protein.trainer.kernels, protein.envs_c" 2>/dev/null; then
    missing=$("$python" -c "
import importlib.util as u
need = 'scikit_build_core pybind11 numpy safetensors tyro'.split()
print(*[name for name in need if u.find_spec(name) is None])")
    [ -z "$missing" ] || fail "to build, $python lacks: $missing"
    "$python" -m venv --system-site-packages .venv-gpu
    python=.venv-gpu/bin/python
    "$python" -m pip install --quiet --no-index --no-deps --no-build-isolation -e . || fail "the build failed"
fi

games=16384 steps=200000000
if [ "$device" = cpu ]; then games=1024 steps=2000000; fi
"$python" benchmarks/trainer.py --no-result --runs 3 --threads "$("$python" -c 'import os; print(os.cpu_count())')"

for extra in "" "--train.overlap" "--train.compile" "--train.cpu-inference --train.overlap"; do
    # shellcheck disable=SC2086
    "$python" -m protein.trainer --config configs/default.toml --env.num-envs $games --train.minibatch-size $((games * 16)) \
        --train.device "$device" --train.total-timesteps $steps --eval.episodes 1 --eval.num-envs 1 $extra |
        "$python" -c "import json, sys; e = json.loads(sys.stdin.readlines()[-1])
print(f'pong, $games games {sys.argv[1]:<40}{e[\"steps\"] / e[\"elapsed_seconds\"] / 1e6:8.2f} M steps/s')" "$extra"
done
"$python" benchmarks/solve.py --no-result --envs breakout

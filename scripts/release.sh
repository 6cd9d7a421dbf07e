#!/usr/bin/env bash
# Builds the distributions, checks them, and installs the wheel into an empty environment where no program but Python's
# own is found, so no compiler either. There it runs what a new user runs first. It takes about five minutes.
#
# Usage: scripts/release.sh [FOLDER]   where they go if all is well: dist. `make release` installs what is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-dist}
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
function=$PWD/examples/function_sweep.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { echo "== $1"; }
fail() { echo "error: $1" >&2; exit 1; }
logged() { "$@" > "$work/log" 2>&1 || fail "$1 failed; it ended with:"$'\n'"$(tail -n 20 "$work/log")"; }

step "the source and the wheel"
logged "$python" -m build --sdist --no-isolation --outdir "$work/dist" .
logged scripts/wheel.sh "$work/dist"
wheel=$(echo "$work"/dist/*.whl)
[ "$(stat -c %s "$wheel")" -lt 12000000 ] || fail "$wheel has $(stat -c %s "$wheel") bytes; the limit is 12,000,000"
"$python" -m twine check --strict "$work"/dist/*
"$python" -m auditwheel show "$wheel"

step "an empty environment without a compiler"
"$python" -m venv "$work/env"
logged "$work/env/bin/python" -m pip --disable-pip-version-check install --only-binary :all: -c constraints.txt "$wheel"
(cd "$work"
export PATH=$work/env/bin HOME=$work
for name in cc c++ gcc g++ clang zig; do ! command -v $name || fail "$name is still found"; done
protein doctor
protein sweep --env pong --max-cost 30s --max-trial-cost 20s --max-trials 3
protein play pong -o game.html
python "$function"
python - << 'END'
import re, subprocess, urllib.request
from protein.trainer.kernels import _native
flags, sets = set(open("/proc/cpuinfo").read().split()), _native.instruction_sets()
assert ("avx2" in flags) == ("avx2" in sets) and ("avx512vl" in flags) == ("avx512" in sets), sets
with subprocess.Popen(["protein", "view"], stdout=subprocess.PIPE, text=True) as view:
    try:
        address = re.search(r"http://\S+", view.stdout.readline())[0]
        assert b"<title>" in urllib.request.urlopen(address).read()
    finally:
        view.terminate()
END
)
mkdir -p "$folder" && cp "$work"/dist/* "$folder"
step "all of it works: $folder/$(basename "$wheel") and the source beside it"

#!/usr/bin/env bash
# A wheel for Linux with glibc 2.28 or newer, without a container. The system's compiler compiles as in `make build`. The
# linker sees no symbol that is younger than glibc 2.28: Zig writes the lists of its symbols. The C++ library is linked
# in, since an old system has an old one. auditwheel then checks this and gives the wheel its name.
#
# Usage: scripts/wheel.sh [FOLDER]   FOLDER: dist. `make wheel` installs what is needed, and calls it.
#   PYTHON=.venv/bin/python          the wheel is for its version of CPython; the processor is this machine's
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-dist}
python=${PYTHON:-.venv/bin/python}
glibc=2.28
platform=manylinux_${glibc/./_}_$(uname -m)
symbols=$PWD/build/$platform
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT

fail() { echo "error: $1" >&2; exit 1; }
[ "$(uname -s)" = Linux ] || fail "$(uname -s) has no glibc, for which these wheels are; build with pip wheel ."
[ -f "$("${CXX:-c++}" -print-file-name=libstdc++.a)" ] ||
    fail "the C++ library to link in, libstdc++.a, is missing; install it (Fedora: sudo dnf install libstdc++-static)"

if [ ! -f "$symbols/libc.so" ]; then
    rm -rf "$symbols"
    mkdir -p "$symbols"
    echo 'int nothing;' > "$symbols/nothing.c"
    ZIG_GLOBAL_CACHE_DIR=$symbols/zig ZIG_LOCAL_CACHE_DIR=$symbols/zig "$python" -m ziglang cc \
        -target "$(uname -m)-linux-gnu.$glibc" -shared -o "$symbols/nothing.so" "$symbols/nothing.c"
    find "$symbols/zig" \( -name 'lib*.so.*' -o -name libc_nonshared.a \) -exec cp -t "$symbols" {} +
    rm -r "$symbols/zig"
    for library in pthread m; do ln -s "$(basename "$symbols"/lib$library.so.*)" "$symbols/lib$library.so"; done
    # What newer headers ask before they leave out a lock: no, threads may run.
    echo '__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;' |
        "${CXX:-c++}" -fPIC -x c++ -c -o "$symbols/threads.o" -
    echo 'INPUT(threads.o) GROUP(libc.so.6 libc_nonshared.a AS_NEEDED(libpthread.so.0))' > "$symbols/libc.so"
fi

# --gc-sections drops what nobody calls of the C++ library, some of which needs a newer glibc.
"$python" -m build --wheel --no-isolation --outdir "$plain" -C "build-dir=build/{wheel_tag}-$platform" -C \
    "cmake.define.CMAKE_MODULE_LINKER_FLAGS=-L$symbols -static-libstdc++ -Wl,--exclude-libs,ALL,--gc-sections" .

# A symbol that was found nowhere has no version, and auditwheel would not see that it needs a newer glibc.
"$python" -m zipfile -e "$plain"/*.whl "$plain/native"
if find "$plain/native" -name '*.so' -exec nm -D --undefined-only {} + | grep -E '^ +U ' |
    grep -vE '@| _?Py| __tls_get_addr$'; then
    fail "glibc $glibc lacks these symbols, which the compiled code needs; do without them"
fi
PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair --plat "$platform" --only-plat --wheel-dir "$folder" "$plain"/*.whl

"""Builds envs_c/worlds/: each C environment as WebAssembly, for the pages. Needs no compiler but `pip install ziglang`.

Each environment that CMakeLists.txt names is compiled as it is, with envs_c/binding/world.c.in around it. SHA256SUMS
has the hashes of the files and of what they were made from, so that a test sees where one is older than its header.
The bytes depend on the version of ziglang, which constraints.txt pins.
"""

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADERS = ROOT / "envs_c"
FRAME = HEADERS / "binding" / "world.c.in"
LEARNER = ROOT / "protein" / "web" / "learner.c"
LEARNERS_FILE = ROOT / "protein" / "web" / "static" / "play" / "learner.wasm"
LAYER = ROOT / "protein" / "web" / "layer.c"
LAYERS_FILE = LEARNERS_FILE.with_name("layer.js")
SUMS = "SHA256SUMS"
# Contraction into fused multiply-adds would make trajectories differ, as in CMakeLists.txt. There is no C library to
# link with, and so no sinf: a game that used one would not be the same game on every machine. What a hosted compiler
# may take for granted are memcpy and memset, which are instructions here.
FLAGS = ["-target", "wasm32-freestanding", "-std=c11", "-g0", "-DNDEBUG", "-fhosted"]
FLAGS += ["-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
FLAGS += ["-nostdlib", "-Wl,--no-entry", "-Wl,--strip-all"]
OF_WORLDS = ["-mcpu=generic+bulk_memory", "-O2"]
OF_LEARNER = ["-mcpu=generic+bulk_memory+simd128", "-O3", "-fno-math-errno"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="environments; none: all")
    parser.add_argument("--into", type=Path, default=HEADERS / "worlds", help="the folder (envs_c/worlds)")
    arguments = parser.parse_args()
    known = environments()
    if unknown := set(arguments.names) - set(known):
        parser.error(f"CMakeLists.txt names no environment {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    try:
        for name in arguments.names or known:
            print(f"{name}: {build(name, arguments.into / f'{name}.wasm'):,} bytes")
        print(f"learner: {build_learner(LEARNERS_FILE):,} bytes")
        print(f"layer: {build_layer(LAYERS_FILE):,} bytes")
    except (ImportError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    (arguments.into / SUMS).write_text(sums(arguments.into, list(known)))
    return 0


def environments() -> dict[str, tuple[str, list[str]]]:
    """Returns the environments in CMakeLists.txt, sorted: the header of each, and what is defined before it."""
    calls = re.findall(r"^protein_add_environment\((.+)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    found = {}
    for name, *rest in sorted(call.split() for call in calls):
        found[name] = (rest[0], rest[1:]) if rest else (name, [])
    return found


def sums(folder: Path, names: list[str]) -> str:
    """Returns the hashes of the worlds in a folder and of their sources, as `sha256sum` writes them."""
    worlds = [folder / f"{name}.wasm" for name in names]
    headers = sorted({header for header, _ in environments().values()})
    sources = [
        LEARNERS_FILE,
        LEARNER,
        LAYERS_FILE,
        LAYER,
        FRAME,
        HEADERS / "pcg32.h",
        *(HEADERS / f"{header}.h" for header in headers),
    ]
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name if path in worlds else path.relative_to(ROOT)}\n"
        for path in (*worlds, *sources)
        if path.exists()
    )


def build(name: str, target: Path, headers: Path = HEADERS) -> int:
    """Compiles an environment and returns the file's size in bytes.

    Raises:
        ImportError: there is no ziglang.
        RuntimeError: the compiler refuses the header.
    """
    header, definitions = environments().get(name, (name, []))
    text = FRAME.read_text().replace("@variant@", name).replace("@name@", header).replace("@NAME@", header.upper())
    return _compiled(name, text, target, [*OF_WORLDS, *(f"-D{one}" for one in definitions), f"-I{headers}"])


def build_learner(target: Path) -> int:
    """Compiles what learns in a page and returns the file's size in bytes. Raises as `build` does."""
    return _compiled("learner", LEARNER.read_text(), target, OF_LEARNER)


def build_layer(target: Path) -> int:
    """Compiles a policy's layers into a module of JavaScript, which needs no request. Else as `build`."""
    size = _compiled("layer", LAYER.read_text(), target, OF_LEARNER)
    text = base64.b64encode(target.read_bytes()).decode()
    target.write_text(f'// The bytes of protein/web/layer.c, by `make wasm`.\nexport const LAYER = "{text}";\n')
    return size


def _compiled(name: str, text: str, target: Path, flags: list[str]) -> int:
    try:
        import ziglang
    except ImportError as error:
        raise ImportError("the compiler is missing: pip install -c constraints.txt ziglang") from error

    libc = Path(ziglang.__file__).parent / "lib" / "libc" / "include"
    includes = [f"-isystem{libc / kind}" for kind in ("wasm-wasi-musl", "generic-musl")]  # assert.h and string.h
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{name}.c"
        source.write_text(text)
        command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *flags, *includes, f"-I{HEADERS}"]
        # A cache that may be shared would make this a race between two builds, and a build takes a second.
        caches = {"ZIG_GLOBAL_CACHE_DIR": f"{folder}/cache", "ZIG_LOCAL_CACHE_DIR": f"{folder}/cache"}
        done = subprocess.run(
            [*command, source.name, "-o", "made.wasm"],
            cwd=folder,
            env={**os.environ, **caches},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name} does not compile to WebAssembly:\n{done.stderr.strip()}")
        built = (Path(folder) / "made.wasm").read_bytes()
    target.write_bytes(built)
    return len(built)


if __name__ == "__main__":
    sys.exit(main())

"""The compiler, for the tests that look at the environments' headers as C and C++ programs do."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
HEADERS = ROOT / "envs_c"
STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", "-ffp-contract=off"]
C11, CXX17 = ["-x", "c", "-std=c11"], ["-x", "c++", "-std=c++17"]


def compiler(variable: str, *names: str) -> str:
    """The compiler that the environment names, or the first that is installed: there is one, or nothing was built."""
    found = os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)
    assert found, f"no compiler: set {variable}"
    return found


def run(command: list[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def compile_c(source: str, folder: Path) -> ctypes.CDLL:
    """Compiles C that includes headers of `envs_c` and loads it."""
    (folder / "source.c").write_text(source)
    flags = [*C11, *STRICT, "-O1", "-fPIC", "-shared", f"-I{HEADERS}"]
    run([compiler("CC", "cc", "gcc", "clang"), *flags, folder / "source.c", "-o", folder / "library.so"])
    return ctypes.CDLL(str(folder / "library.so"))

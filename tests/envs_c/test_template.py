"""The recipe for a new environment, followed to the letter; and that the fuzz program sees what is wrong in one."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pybind11
import pytest
from c_compiler import C11, HEADERS, ROOT, STRICT, compiler, run

TEMPLATE = HEADERS / "template" / "template.h"
SANITIZE = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def tool(name: str) -> str:
    """A program of this Python's environment, or else of the system."""
    found = shutil.which(name, path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    assert found, f"no {name}: pip install {name}"
    return found


def recipe() -> str:
    """The commands of the recipe's first step."""
    found = re.search(r"## A new environment.*?```sh\n(.*?)```", (HEADERS / "README.md").read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_recipe_makes_a_header_that_is_clean_c(tmp_path: Path) -> None:
    shutil.copytree(HEADERS, tmp_path / "envs_c", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "tests" / "envs_c").mkdir(parents=True)
    subprocess.run(["sh", "-e", "-c", recipe()], cwd=tmp_path, check=True)
    defines = ["-DENV=mygame", "-DENV_UPPER=MYGAME", '-DENV_HEADER="mygame.h"', f"-I{tmp_path / 'envs_c'}"]
    program = tmp_path / "fuzz"
    source = ROOT / "tests" / "assets" / "env_fuzz.c"
    run([compiler("CC", "cc", "gcc", "clang"), *C11, *SANITIZE, *STRICT, *defines, source, "-o", program, "-lm"])
    run([program, "0", "3", "2000"])


@pytest.mark.slow  # the compiler takes ten seconds for the binding
def test_the_recipe_makes_an_environment_that_passes_its_tests(tmp_path: Path) -> None:
    shutil.copytree(HEADERS, tmp_path / "envs_c", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(ROOT / "trainer" / "kernels" / "native", tmp_path / "trainer" / "kernels" / "native")
    (tmp_path / "protein").mkdir()
    for name in ("__init__.py", "spelling.py"):
        shutil.copy(ROOT / "protein" / name, tmp_path / "protein")
    (tmp_path / "protein" / "envs_c").symlink_to("../envs_c")
    for folder in ("golden", "support", "envs_c"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    for name in ("support/env_buffers.py", "envs_c/test_golden.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    subprocess.run(["sh", "-e", "-c", recipe()], cwd=tmp_path, check=True)
    # The new one alone, and unoptimised, also between files: to build all as they are built for use takes a minute.
    text = (ROOT / "CMakeLists.txt").read_text()
    text = re.sub(r"^(check_ipo_supported|set\(CMAKE_INTERPROCEDURAL).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(^protein_add_environment\(.*\n)+", "protein_add_environment(mygame)\n", text, flags=re.MULTILINE)
    (tmp_path / "CMakeLists.txt").write_text(text)
    build = tmp_path / "build"
    options = [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11.get_cmake_dir()}"]
    options.append(f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}")
    run([tool("cmake"), "-S", tmp_path, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", *options])
    run([tool("cmake"), "--build", build, "--target", "_native"])
    (module,) = build.glob("_native.*")
    shutil.copy(module, tmp_path / "envs_c")

    # Without `site`, whose hook for the editable install would bring in this checkout's own package.
    paths = [
        str(tmp_path),
        str(tmp_path / "tests" / "support"),
        sysconfig.get_path("platlib"),
        sysconfig.get_path("purelib"),
    ]
    start = f"import sys; sys.path[:0] = {paths!r}; "
    python = [sys.executable, "-S", "-c"]
    names = subprocess.run(
        [*python, start + "from protein import envs_c; print(envs_c.names(), envs_c.spec('mygame').description)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert names.stdout == "['mygame'] walk along a line of cells to a target\n"
    golden = (
        "import runpy; sys.argv[1:] = ['mygame']; runpy.run_path('tests/envs_c/test_golden.py', run_name='__main__')"
    )
    subprocess.run([*python, start + golden], cwd=tmp_path, check=True)
    tests = subprocess.run(
        [*python, start + "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests']))"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout
    assert "6 passed" in tests.stdout


WRONG = {
    "nothing": ("", ""),
    "an element that is not written": ("observation[1] =", "const float unused ="),
    "an output that one path leaves": ("*truncation = (uint8_t)", "if (over) *truncation = (uint8_t)"),
    "one element too many": ("observation[1] =", "observation[2] = observation[1] ="),
    "one element too early": ("*reward =", "reward[-1] = *reward ="),
    "an output where none should be": ("*terminal =", "terminal[1] = *terminal ="),
    "an action that is changed": ("env->decisions += 1;", "env->decisions += 1; *(int32_t *)(uintptr_t)action = 0;"),
    "an episode that both ends and is cut off": ("(!over && env->frames", "(env->frames"),
    "a score out of range": ("*score = (float)", "*score = 2.0f + (float)"),
}


@pytest.mark.parametrize("flags", [SANITIZE, ["-O3", "-DFENCE=0"], ["-O3", "-DFENCE=1"]], ids=["sanitized", "0", "1"])
@pytest.mark.parametrize("wrong", WRONG)
def test_the_fuzz_program_finds_what_is_wrong(wrong: str, flags: list[str], tmp_path: Path) -> None:
    old, new = WRONG[wrong]
    text = TEMPLATE.read_text()
    assert old in text
    (tmp_path / "template.h").write_text(text.replace(old, new))
    program = tmp_path / "fuzz"
    defines = ["-DENV=template", "-DENV_UPPER=TEMPLATE", '-DENV_HEADER="template.h"']
    source = ROOT / "tests" / "assets" / "env_fuzz.c"
    strict = STRICT if wrong == "nothing" else ["-w"]
    includes = [f"-I{tmp_path}", f"-I{HEADERS}"]
    cc = compiler("CC", "cc", "gcc", "clang")
    run([cc, *C11, *flags, *strict, *defines, *includes, source, "-o", program, "-lm"])
    for frame_skip in ("1", "3"):
        done = subprocess.run([program, "0", frame_skip, "5000"], capture_output=True, check=False)
        assert (done.returncode == 0) == (wrong == "nothing"), done

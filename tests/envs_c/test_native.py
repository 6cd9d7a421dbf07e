"""The headers as C and C++ see them: no warnings, no undefined behaviour, no stray access, no data race, one result."""

import ctypes
import signal
import subprocess
from pathlib import Path

import pytest
from c_compiler import C11, CXX17, HEADERS, STRICT, compile_c, compiler, run
from env_buffers import GAMES
from patience import PATIENCE_SECONDS

from protein import envs_c

BINDING = HEADERS / "binding"
ASSETS = Path(__file__).parents[1] / "assets"
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]

every_env = pytest.mark.parametrize("name", GAMES)


def build_fuzz(name: str, target: Path, flags: list[str]) -> Path:
    defines = [f"-DENV={name}", f"-DENV_UPPER={name.upper()}", f'-DENV_HEADER="{name}.h"']
    if envs_c.spec(name).continuous_actions:
        defines.append("-DENV_CONTINUOUS")
    if envs_c.spec(name).observation_dtype == "uint8":
        defines.append("-DENV_BYTES")
    text = (HEADERS / f"{name}.h").read_text()
    how = ("AGENTS_END_ALONE", "AGENTS_COME_AND_GO")
    defines += [f"-DENV_{each}" for each in how if f"#define {name.upper()}_{each}" in text]
    cc = compiler("CC", "cc", "gcc", "clang") if "c" in flags else compiler("CXX", "c++", "g++", "clang++")
    run([cc, *flags, *STRICT, *defines, f"-I{HEADERS}", ASSETS / "env_fuzz.c", "-o", target, "-lm"])
    return target


def build_binding(names: list[str], folder: Path, flags: list[str], main: Path, headers: Path = HEADERS) -> Path:
    """Compiles the binding's C++ for some environments, as CMake does but without Python, with a program over it."""
    generated = []
    for name in names:
        text = (BINDING / "environment.cpp.in").read_text().replace("@definitions@", "")
        for placeholder, word in (("@name@", name), ("@variant@", name), ("@NAME@", name.upper())):
            text = text.replace(placeholder, word)
        generated.append(folder / f"{name}.cpp")
        generated[-1].write_text(text)
    registry = (BINDING / "registry.cpp.in").read_text()
    registry = registry.replace(
        "@declarations@", "".join(f"extern const Environment {name}_environment;" for name in names)
    ).replace("@pointers@", ", ".join(f"&{name}_environment" for name in names))
    (folder / "registry.cpp").write_text(registry)
    cxx = compiler("CXX", "c++", "g++", "clang++")
    sources = [main, BINDING / "vec_env.cpp", folder / "registry.cpp", *generated]
    strict = ["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    run([cxx, *flags, *strict, f"-I{headers}", f"-I{HEADERS}", f"-I{BINDING}", *sources, "-o", folder / "program"])
    return folder / "program"


def steps(agents: int, frame_skip: int) -> int:
    """Worlds of several agents do not end, so that each frame of a step is played."""
    many = (40_000 // frame_skip + 1000) // agents
    return 20 + (many if agents == 1 else min(many, 4000 // frame_skip))


RUNS = [(0, 1), (1, 2), (2, 3), (2**64 - 1, 8), (7, 1024)]  # seed, frame skip
BUILDS = {
    "C11, sanitized": [*C11, *SANITIZE],
    "C++17, optimised, fenced behind": [*CXX17, "-O3", "-DFENCE=1"],
}
# Accesses before a block: `test_fenced.py` watches the optimised code of the module, and the sanitizers the rest.
ALL_BUILDS = BUILDS | {
    "C11, optimised, fenced before": [*C11, "-O3", "-DFENCE=0"],
    "C++17, sanitized": [*CXX17, *SANITIZE],
}


@pytest.mark.parametrize("builds", [BUILDS, pytest.param(ALL_BUILDS, marks=pytest.mark.slow)], ids=["usual", "all"])
@every_env
def test_random_play_is_clean_under_the_sanitizers_and_alike_in_c_and_cxx(
    name: str, builds: dict[str, list[str]], tmp_path: Path
) -> None:
    outputs = {}
    agents = envs_c.spec(name).agents_per_env
    for label, flags in builds.items():
        program = build_fuzz(name, tmp_path / label.replace(" ", "_"), flags)
        outputs[label] = [
            run([program, str(seed), str(frame_skip), str(steps(agents, frame_skip))]) for seed, frame_skip in RUNS
        ]
    first = outputs["C11, sanitized"]
    assert all(each == first for each in outputs.values()), outputs
    assert sum(int(line.split()[1]) for line in first) > 10


@every_env
def test_a_header_keeps_nothing_outside_its_struct(name: str, tmp_path: Path) -> None:
    """No variable of its own, so environments share nothing, whatever thread steps them, and a struct is all there is.

    Constants are in a section that cannot be written; the linker's names for sections of variables are b, c, d and s.
    """
    source = tmp_path / "all.c"
    functions = ["seed", "reset", "step", "episode"]
    pointers = ", ".join(f"(void (*)(void)){name}_{function}" for function in functions)
    source.write_text(f'#include "{name}.h"\nvoid (*const functions[])(void) = {{{pointers}}};\n')
    cc = compiler("CC", "cc", "gcc", "clang")
    run([cc, "-x", "c", "-std=c11", "-O0", f"-I{HEADERS}", "-c", source, "-o", tmp_path / "all.o"])
    symbols = [line.split() for line in run(["nm", tmp_path / "all.o"]).splitlines()]
    kinds = {symbol[-1]: symbol[-2] for symbol in symbols}
    assert kinds["functions"] != "U"
    assert kinds[f"{name}_step"] == "t"
    assert [symbol for symbol, kind in kinds.items() if kind in "bBcCdDsS" and symbol != "functions"] == []


def test_the_pool_has_no_data_race(tmp_path: Path) -> None:
    """Builds the binding's own sources, without Python, under the thread sanitizer."""
    program = build_binding(["pong"], tmp_path, ["-O1", "-fsanitize=thread"], ASSETS / "pool_race.cpp")
    counts = {run([program, "pong", threads]) for threads in ("1", "2", "4")}
    assert len(counts) == 1
    assert int(counts.pop()) > 500


def test_pcg32_is_the_published_generator(tmp_path: Path) -> None:
    """Against the reference library's check-oneseq-64-xsh-rr-32.out: one fixed stream, seed 42."""
    pcg = compile_c(
        '#include "pcg32.h"\n'
        "uint32_t next(uint64_t *state) { return pcg32_next(state); }\n"
        "float symmetric(uint32_t bits) { return pcg32_symmetric(bits); }\n"
        "uint64_t seed(uint64_t seed, uint64_t index) { return pcg32_seed(seed, index); }\n",
        tmp_path,
    )
    pcg.next.restype, pcg.symmetric.restype, pcg.seed.restype = ctypes.c_uint32, ctypes.c_float, ctypes.c_uint64
    pcg.seed.argtypes = [ctypes.c_uint64, ctypes.c_uint64]

    multiplier, increment = 6364136223846793005, 1442695040888963407
    state = ctypes.c_uint64((increment + 42) * multiplier + increment)  # how the reference seeds itself
    outputs = [pcg.next(ctypes.byref(state)) for _ in range(6)]
    assert outputs == [0xC2F57BD6, 0x6B07C4A9, 0x72B7B29B, 0x44215383, 0xF5AF5EAD, 0x68BEB632]
    assert [pcg.symmetric(bits) for bits in (0, 2**31, 2**32 - 1)] == [-1.0, 0.0, 1 - 2**-23]
    starts = {pcg.seed(seed, index) for seed in range(100) for index in range(100)}
    assert len(starts) == 100 * 100


@pytest.mark.parametrize(
    ("action", "frame_skip", "code"), [(2, 1, 0), (3, 1, -signal.SIGABRT), (0, 0, -signal.SIGABRT)]
)
def test_a_broken_contract_stops_a_debug_build(action: int, frame_skip: int, code: int, tmp_path: Path) -> None:
    source = tmp_path / "break.c"
    source.write_text(
        '#include "pong.h"\n'
        "int main(void) {\n"
        "    pong_t env;\n"
        "    float observation[PONG_OBSERVATION_SIZE], reward;\n"
        "    uint8_t terminal, truncation;\n"
        f"    const int32_t action = {action};\n"
        "    pong_seed(&env, 0, 0);\n"
        "    pong_reset(&env, observation);\n"
        f"    pong_step(&env, &action, {frame_skip}, observation, &reward, &terminal, &truncation);\n"
        "    return 0;\n"
        "}\n"
    )
    cc = compiler("CC", "cc", "gcc", "clang")
    run([cc, *C11, *STRICT, f"-I{HEADERS}", source, "-o", tmp_path / "break"])
    done = subprocess.run([tmp_path / "break"], capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == code

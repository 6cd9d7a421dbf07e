"""The environments' WebAssembly: it is of today's headers, and the compiler that we name makes these bytes again."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from c_compiler import HEADERS, ROOT
from env_buffers import GAMES

from protein import envs_c
from protein.envs_c import worlds

FOLDER = HEADERS / "worlds"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("worlds_script", ROOT / "scripts" / "worlds.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_each_environment_has_a_world_of_its_header_as_it_is() -> None:
    assert worlds.names() == envs_c.names()
    listed = {}
    for line in (FOLDER / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
        path = (ROOT if "/" in name else FOLDER) / name
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, f"{name} has changed: run make wasm"
    sources = ["envs_c/binding/world.c.in", "envs_c/pcg32.h", *(f"envs_c/{name}.h" for name in GAMES)]
    sources += ["protein/web/learner.c", "protein/web/static/play/learner.wasm"]
    sources += ["protein/web/layer.c", "protein/web/static/play/layer.js"]
    assert sorted(listed) == sorted([f"{name}.wasm" for name in envs_c.names()] + sources)


@pytest.mark.slow  # the compiler is large, and `make test` does not install it
def test_the_compiler_makes_the_same_bytes_again(script: ModuleType, tmp_path: Path) -> None:
    for name in envs_c.names():
        script.build(name, tmp_path / name)
        assert (tmp_path / name).read_bytes() == worlds.read(name), f"{name} is another file now: run make wasm"
    script.build_learner(tmp_path / "learner")
    assert (tmp_path / "learner").read_bytes() == script.LEARNERS_FILE.read_bytes(), "run make wasm"
    script.build_layer(tmp_path / "layer")
    assert (tmp_path / "layer").read_bytes() == script.LAYERS_FILE.read_bytes(), "run make wasm"


@pytest.mark.slow  # the compiler is large, and `make test` does not install it
def test_a_header_that_does_not_fit_is_refused_with_the_compilers_words(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("#include <math.h>\nstatic inline float mine(float x) { return sinf(x); }\n")
    with pytest.raises(RuntimeError, match=r"mine does not compile to WebAssembly:\n.*MINE_"):
        script.build("mine", tmp_path / "mine.wasm", headers=tmp_path)


def test_what_has_no_world_is_said_in_a_line() -> None:
    with pytest.raises(
        worlds.NoWorldError, match=r"'gym:CartPole-v1' cannot be played in a page: .* pong, .*snake, and"
    ):
        worlds.read("gym:CartPole-v1")

"""`make`: what is missing is reported before anything is downloaded, a step is one line, and a user gets no developers'
tools.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[1]


def make(*words: str, path: str | None = None, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    outer = ("CXX", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # these tests may run under `make test`
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    if path is not None:
        environment["PATH"] = path
    found = shutil.which("make")
    assert found is not None
    return subprocess.run(
        [found, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_without_a_compiler_one_line_names_the_package_to_install(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "printf", "test", "touch", "echo"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    done = make("build", f"VENV={tmp_path / 'venv'}", f"PYTHON={sys.executable}", path=str(tools))
    assert done.returncode == 2
    error, *of_make = done.stderr.splitlines()
    assert error.startswith("error: no working C++ compiler was found")
    assert all(word in error for word in ("apt install g++", "dnf install gcc-c++", "xcode-select --install"))
    assert len(of_make) == 1 and of_make[0].startswith("make: ***")
    assert done.stdout == "" and not (tmp_path / "venv").exists()


def test_a_folder_where_a_link_should_be_is_told_of(tmp_path: Path) -> None:
    """As a zip file or a checkout on Windows leaves them: a file that holds the link's target, or a copy."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "CMakeLists.txt").touch()
    (tmp_path / "protein").mkdir()
    (tmp_path / "protein" / "trainer").write_text("../trainer")
    done = make("build", folder=tmp_path)
    assert done.returncode == 2
    error = done.stderr.splitlines()[0]
    assert error.startswith("error: protein/trainer is no link") and "ln -s ../trainer protein/trainer" in error
    assert done.stdout == "" and not (tmp_path / ".venv").exists()


# Stands for Python: makes an environment that holds itself, as its pip prints 129 lines, and fails when it is asked to.
PYTHON = """#!/bin/sh
case "$*" in
  "-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; what=venv;;
  *--version*) exit 1;;
  *scikit-build-core*) what=tools;;
  *--no-deps*) what=native;;
  *--only-deps*) what=packages;;
esac
test -z "$what" || seq -f "$what prints %.0f" 129
test "$what" != "$FAILS"
"""


@pytest.mark.parametrize(("fails", "step"), [("nothing", 4), ("venv", 1), ("tools", 2), ("packages", 3), ("native", 3)])
def test_a_step_is_one_line_and_the_rest_is_in_a_log(
    tmp_path: Path, fails: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, environment = tmp_path / "python", tmp_path / "venv"
    python.write_text(PYTHON)
    python.chmod(0o755)
    monkeypatch.setenv("FAILS", fails)
    done = make("build", f"VENV={environment}", f"PYTHON={python}")
    log = environment / "setup.log"
    assert [line[:12] for line in done.stdout.splitlines()] == [f"step {k} of 3:" for k in range(1, min(step, 3) + 1)]
    kept = log.read_text().splitlines()
    printed = {"venv", "tools", "packages", "native"} if step > 2 else {"venv", "tools"} if step > 1 else {"venv"}
    printed -= {"native"} if fails == "packages" else set()  # it would hide what has failed
    assert {kind: [line.split()[0] for line in kept].count(kind) for kind in printed} == dict.fromkeys(printed, 129)
    if fails == "nothing":
        assert done.returncode == 0 and done.stderr == ""
        assert make("build", f"VENV={environment}", f"PYTHON={python}").stdout.startswith("make: Nothing to be done")
        return
    assert done.returncode == 2
    error, *end, of_make = done.stderr.splitlines()
    assert error.startswith(f"error: step {step} of 3: ") and str(log) in error
    assert end == kept[-20:] and end[-1] == f"{fails} prints 129" and of_make.startswith("make: ***")
    monkeypatch.setenv("FAILS", "nothing")
    assert make("build", f"VENV={environment}", f"PYTHON={python}").returncode == 0  # it goes on


def test_ctrl_c_ends_what_is_built_in_the_background_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, environment, running = tmp_path / "python", tmp_path / "venv", tmp_path / "running"
    python.write_text(
        PYTHON.replace("what=native", f'echo $$ > "{running}.native"; exec sleep 600').replace(
            "what=packages", f'touch "{running}"; exec sleep 600'
        )
    )
    python.chmod(0o755)
    monkeypatch.setenv("FAILS", "nothing")
    with subprocess.Popen(
        ["make", "build", f"VENV={environment}", f"PYTHON={python}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as made:
        native = Path(f"{running}.native")
        try:
            wait_until(lambda: running.exists() and native.exists() and native.read_text().endswith("\n"))
            os.killpg(made.pid, signal.SIGINT)  # as a terminal does
            assert made.wait(PATIENCE_SECONDS) != 0
            wait_until(lambda: not is_alive(int(native.read_text())))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)
    assert not (environment / "setup.log.native").exists()


def is_alive(process: int) -> bool:
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("target", "wanted"), [("build", False), ("sweep", False), ("test", True), ("check", True)])
def test_only_developers_get_their_tools(tmp_path: Path, target: str, wanted: bool) -> None:
    planned = make("-n", target, f"VENV={tmp_path / 'venv'}").stdout
    assert ("[dev]" in planned) == wanted
    assert "step 3 of 3: downloading" in planned
    assert planned.index("no working C++ compiler") < planned.index("pip")

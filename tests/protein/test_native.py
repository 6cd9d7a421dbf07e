"""Compiled code that cannot be loaded: one line with the value, the limit and the remedy."""

import importlib.machinery
import os
import subprocess
import sys
from pathlib import Path

import pytest

from protein import cli, native

GNU = "cpython-311-x86_64-linux-gnu"
OLD = "/lib64/libc.so.6: version `GLIBC_2.28' not found (required by /env/protein/envs_c/_native.so)"
MISSING = "cannot import name '_native' from partially initialized module 'protein.envs_c'"


def no_glibc(_: str) -> str:
    raise ValueError("unrecognized configuration name")


def found_glibc(_: str) -> str:
    return "glibc 2.17"


@pytest.mark.parametrize(
    ("raised", "built", "confstr", "words"),
    [
        (OLD, GNU, found_glibc, ["needs glibc 2.28 or newer", "has glibc 2.17", "use a newer system"]),
        (OLD.replace("GLIBC_2.28", "GLIBCXX_3.4.30"), GNU, found_glibc, ["GLIBCXX_3.4.30", "pip install ."]),
        (OLD.replace("2.28", "ABI_DT_RELR"), GNU, found_glibc, ["GLIBC_ABI_DT_RELR, which a library", "pip install ."]),
        (MISSING, GNU, no_glibc, ["needs glibc", "is musl", "a container with glibc"]),
        ("Error relocating _native.so: __memcpy_chk: symbol not found", GNU, no_glibc, ["is musl"]),
        (MISSING, GNU.replace("311", "309"), found_glibc, ["cpython-309", "this Python is cpython-3", "the wheel for"]),
        (MISSING, "", found_glibc, ["it is not there", "pip install ."]),
        (MISSING, "", no_glibc, ["it is not there", "pip install ."]),
        ("libgcc_s.so.1: cannot open shared object file", GNU, found_glibc, ["libgcc_s.so.1", "pip install ."]),
        ("", GNU, found_glibc, ["no reason is given"]),
    ],
)
def test_one_line_says_why(
    raised: str, built: str, confstr: object, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "confstr", confstr)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(importlib.machinery, "EXTENSION_SUFFIXES", [f".{GNU}.so", ".so"])
    if built:
        (tmp_path / f"_native.{built}.so").touch()
    error = native.not_loaded(ImportError(raised), "protein.envs_c", tmp_path)
    assert error.name == "protein.envs_c._native"
    assert str(error).startswith("the compiled code of protein.envs_c cannot be loaded: ") and "\n" not in str(error)
    assert [word for word in words if word not in str(error)] == []


BLOCKED = """
import importlib.abc, sys
class Old(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "protein.envs_c._native":
            raise ImportError("libc.so.6: version `GLIBC_9.9' not found")
sys.meta_path.insert(0, Old())
from protein.__main__ import main
sys.exit(main())
"""


def test_a_command_says_it_in_one_line_and_code_1() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED, "envs"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("error: the compiled code of protein.envs_c") and "glibc 9.9" in line


def test_other_errors_of_imports_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ImportError("a defect", name="protein.cli.doctor")

    monkeypatch.setattr("importlib.import_module", broken)
    with pytest.raises(ImportError, match="a defect"):
        cli.main(["envs"])

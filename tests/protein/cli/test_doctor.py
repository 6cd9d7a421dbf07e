"""`protein doctor`, and the machines that it measures."""

import importlib.metadata
import os
import platform
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from commands import Run

from protein.api import stores
from protein.cli import doctor, main
from protein.run import speed
from protein.types import Machine


def test_doctor_finds_this_machine_in_order(folder: Path, run: Run) -> None:
    checks = {check["name"]: check["state"] for check in run.json("doctor --json")}
    assert {
        "python",
        "package",
        "torch",
        "device",
        "envs",
        "gym",
        "threads",
        "memory",
        "compiler",
        "extras",
        "trackers",
        "machine",
        "store",
        "disk",
    } == set(checks)
    assert "broken" not in checks.values()
    assert list(folder.iterdir()) == []  # what it tried, it took away


def test_a_package_may_say_nothing_of_the_pythons_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    # A KeyError where nothing is said: as the package `importlib_metadata` gives it, once anything has imported that.
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: {"Name": name})
    assert doctor._extras().state == "ok"


def test_devices_are_compared_only_where_there_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    def faster(answer: str | Exception) -> list[tuple[str, str]]:
        def crossing(threads: int) -> str:
            if isinstance(answer, Exception):
                raise answer
            return f"{answer} with {threads} threads"

        monkeypatch.setattr("protein.trainer.ppo.device.crossing", crossing)
        return [(check.state, check.detail) for check in doctor._faster_device(3)]

    assert faster(AssertionError("nothing may be timed")) == []
    two = [torch.device("cuda"), torch.device("cpu")]
    monkeypatch.setattr("protein.trainer.machine.precision.found_devices", lambda: two)
    assert faster("cuda is faster") == [("ok", "cuda is faster with 3 threads")]
    gone = "the devices could not be compared, one failed while it was timed: CUDA error: unspecified launch failure"
    assert faster(RuntimeError("CUDA error: unspecified launch failure\nmore")) == [("note", gone)]


@pytest.mark.slow
def test_doctor_calibrates_this_machine_and_lists_it(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CALIBRATION_SECONDS", 0.01)  # two rounds
    lines = [line for line in run("doctor --calibrate --workers 2 --device cpu").splitlines() if "speed " in line]
    assert len(lines) == 1
    assert "1 threads a trial, cpu: the reference machine (" in lines[0]
    assert lines[0].endswith(", this machine")
    checks = [check for check in run.json("doctor --json --device cpu --workers 999") if check["name"] == "speed"]
    assert len(checks) == 1, "999 workers have one thread each, as two have on this machine, or it is another one"
    assert run.error("doctor --workers 0") == "--workers 0 is below the limit of 1; use 1 or more"


@pytest.mark.slow
def test_a_sweep_beside_a_known_machine_is_in_its_seconds(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "CALIBRATION_SECONDS", 0.01)
    facts = speed.machine_facts(threads=1, device="cpu") | {"host": "a machine a thousand times as fast"}
    with stores.opened(None, create=True) as store:
        store.add_machine(Machine(name="fast", facts=facts, calibration_seconds=1e-3, measured_at=datetime.now(UTC)))
    words = "sweep --env pong --max-trials 1 --train.total-timesteps 20000 --train.device cpu --train.threads 1"
    text = run(words + " --max-cost 10m")
    assert "measuring how fast this machine trains, once, about 0 s, so that costs of several machines can be" in text
    (factor,) = re.findall(r"this machine is (\d\.\d\d) times as fast as the reference machine", text)
    assert 0.0 <= float(factor) < 0.1
    (trial,) = run.json("show pong --json")["trials"]
    assert trial["cost_seconds"] < 0.1 * trial["timings"]["startup"] + 1.0


def test_doctor_and_the_package_ask_for_the_same_versions() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    [torch] = (line for line in project["dependencies"] if line.startswith("torch"))
    [gymnasium] = project["optional-dependencies"]["gymnasium"]
    assert torch == f"torch>={doctor.least_version('torch')}"
    assert gymnasium == f"gymnasium>={doctor.least_version('gymnasium')}"
    assert project["requires-python"] == f">={doctor.least_version('python')}"
    assert doctor.least_version("no-such-package") == ""


def test_doctor_finds_a_torch_that_is_too_old(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.__version__", "2.1.0+cpu")
    assert main(["doctor"]) == 1
    least = doctor.least_version("torch")
    assert re.search(
        rf"^broken torch +2\.1\.0\+cpu; {least} or newer is needed$", capsys.readouterr().out, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("requires", "installed", "pythons", "says"),
    [
        (
            "optuna>=5.0; extra == 'optuna'",
            "5.1",
            ">=99.1",
            "Python {} is too old for optuna 5.1 of the extra 'optuna'",
        ),
        ("optuna>=5.0; extra == 'optuna'", "5.1", "<3.9,>=3.1", "Python {} is too new for optuna 5.1 of the extra"),
        ("optuna>=5.0; extra == 'optuna'", "4.2", "", "optuna 4.2 does not fit the extra 'optuna', which needs >=5.0"),
        (
            "optuna>=5.0; python_version >= '99' and extra == 'optuna'",
            None,
            "",
            "Python {} does not fit the extra 'optuna': python_version >= '99' and extra == 'optuna'",
        ),
        ("optuna>=5.0; extra == 'optuna'", None, "", None),
        ("optuna>=5.0; extra == 'optuna'", "5.1rc1", ">=3.9", None),
        ("optuna>=5.0", "1.0", ">=99.1", None),
    ],
)
def test_doctor_names_a_python_that_is_too_old_for_an_extra(
    monkeypatch: pytest.MonkeyPatch, requires: str, installed: str | None, pythons: str, says: str | None
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [requires])
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: {"Requires-Python": pythons})
    found = doctor._extras()
    assert found.state == ("ok" if says is None else "note")
    if says is not None:
        assert says.format(platform.python_version()) in found.detail


def test_doctor_finds_a_broken_store(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "text.db").write_text("not a database" * 100)
    assert main(["doctor", "--store", "text.db"]) == 1
    assert re.search(r"^broken store +.*text.db is not a SQLite database", capsys.readouterr().out, re.MULTILINE)


def test_doctor_notes_a_store_in_which_no_sweep_can_run(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    [check] = [check for check in run.json("doctor --json") if check["name"] == "store"]
    assert check["state"] == "note"
    assert "1 sweep; it can only be read here: to sweep, get permission to write it" in check["detail"]

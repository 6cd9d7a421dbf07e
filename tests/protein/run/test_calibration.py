"""When a machine is calibrated, and what a store keeps of it."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from protein.errors import TrialFailed
from protein.ports import Store
from protein.run import calibration
from protein.run.speed import IDENTITY
from protein.storage import open_store
from protein.types import Machine

HERE = calibration.facts(threads=1, device="cpu")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/protein.db")
    yield opened
    opened.close()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """Calibrations that take no time, so that it is known when there is one. The real one has a test below."""
    found: list[Machine] = []

    def measure(here: dict[str, Any], **_: object) -> Machine:
        found.append(machine("here", 0.5, here))
        return found[-1]

    monkeypatch.setattr(calibration, "measure", measure)
    return found


def machine(name: str, seconds: float, facts: dict[str, Any]) -> Machine:
    return Machine(name=name, facts=facts, calibration_seconds=seconds, measured_at=datetime.now(UTC))


def of_here(store: Store, lines: list[str], *, shared: bool, threads: int = 1) -> calibration.Speed | None:
    return calibration.of_this_machine(store, threads=threads, device="cpu", shared=shared, log=lines.append)


def test_a_store_of_one_machine_needs_no_calibration(store: Store, measured: list[Machine]) -> None:
    lines: list[str] = []
    assert of_here(store, lines, shared=False) is None
    assert (measured, lines, store.machines()) == ([], [], [])


def test_the_first_machine_of_a_shared_store_becomes_the_reference(store: Store, measured: list[Machine]) -> None:
    lines: list[str] = []
    found = of_here(store, lines, shared=True)
    assert found is not None
    assert found.factor == 1.0
    assert len(lines) == len(measured) == 1
    assert [one.name for one in store.machines()] == ["here"]
    again = of_here(store, lines, shared=True)
    assert again is not None
    assert again.machine == found.machine
    assert len(measured) == 1, "once is enough"


def test_a_second_machine_is_calibrated_wherever_the_store_is(store: Store, measured: list[Machine]) -> None:
    store.add_machine(machine("other", 1.0, {**HERE, "host": "other"}))
    found = of_here(store, [], shared=False)
    assert found is not None
    assert found.factor == 2.0
    assert len(measured) == 1


def test_trials_with_other_threads_are_calibrated_anew(store: Store, measured: list[Machine]) -> None:
    of_here(store, [], shared=True)
    of_here(store, [], shared=True, threads=2)
    assert [one.facts["threads"] for one in measured] == [1, 2]


def test_facts_are_plain_and_complete() -> None:
    assert set(IDENTITY) == set(HERE)
    assert HERE["gpus"] == []
    assert HERE["torch"]


@pytest.mark.slow
def test_a_real_calibration_is_stored_and_found_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "MAX_SECONDS", 0.01)  # two rounds
    monkeypatch.setattr(calibration, "NOTABLE_SPREAD", -1.0)
    lines: list[str] = []
    added = calibration.add(store, HERE, log=lines.append)
    assert added.calibration_seconds > 0.0
    assert added.facts["rounds"] == 2
    assert lines[0].startswith("the calibration is uncertain: its rounds differ by ")
    (kept,) = store.machines()
    assert dataclasses.replace(kept, measured_at=added.measured_at) == added
    found = of_here(store, lines, shared=False)
    assert found is not None
    assert found.machine.name == added.name


def test_a_calibration_that_fails_is_one_line(store: Store) -> None:
    with pytest.raises(TrialFailed, match=r"^the calibration of this machine failed: train\.device 'cuda:99' is not"):
        calibration.add(store, {**HERE, "device": "cuda:99"}, log=print)
    assert store.machines() == []

"""The calibration of a machine: fixed work, timed."""

import dataclasses
import json
import math

import pytest

from protein.trainer import machine_speed
from protein.trainer.machine_speed import Progress, main, measure


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        name: (env, policy, dataclasses.replace(train, total_timesteps=train.horizon * env.num_envs))
        for name, (env, policy, train) in machine_speed.WORKLOADS.items()
    }
    monkeypatch.setattr(machine_speed, "WORKLOADS", small)


def test_the_figure_is_the_geometric_mean_of_the_fastest_rounds() -> None:
    told: list[Progress] = []
    found = measure(threads=1, device="cpu", max_seconds=0.0, report=told.append)
    assert set(found.parts) == set(machine_speed.WORKLOADS)
    assert math.prod(found.parts.values()) == pytest.approx(found.seconds**3)
    assert (found.device, found.threads, found.rounds) == ("cpu", 1, 2)
    assert [one.round for one in told] == [1, 2]
    assert told[0].spread == math.inf
    assert told[1].spread == found.spread >= 0.0


def test_it_ends_when_two_rounds_agree_or_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_speed, "STABLE", math.inf)
    assert measure(threads=1, device="cpu", max_seconds=3600.0).rounds == machine_speed.MIN_ROUNDS
    monkeypatch.setattr(machine_speed, "STABLE", -1.0)
    found = measure(threads=1, device="cpu", max_seconds=0.2)
    assert found.rounds >= machine_speed.MIN_ROUNDS


def test_the_command_line_gives_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--threads", "1", "--device", "cpu", "--max-seconds", "0"]) == 0
    first, _, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["round"] == 1
    assert first["spread"] is None
    assert last["seconds"] > 0.0


def test_a_device_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cuda:99"]) == 2
    assert capsys.readouterr().err.startswith("error: train.device 'cuda:99' is not available")

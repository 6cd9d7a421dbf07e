"""A checkpoint that will not fit on the disk is found before the training, in runs of both kinds."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import language_runs
import ppo_runs
import pytest
from full_disk import leave_free

from protein.trainer.errors import DiskError
from protein.trainer.events import Event
from protein.trainer.kinds import Config
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.run import run

Make = Callable[..., Config]
KINDS = ["ppo", "recurrent", "ppo with muon", "language"]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Returns a config of a kind of run; settings of its training can be given."""

    def made(**train: Any) -> Config:
        if request.param == "language":
            return language_runs.small(
                language_runs.write_corpus(tmp_path / "data"), train={"lr_schedule": "constant", **train}
            )
        if request.param == "recurrent":
            return ppo_runs.small(policy={"recurrence": "mingru"}, train=train)
        return ppo_runs.small(train={**train, **({"optimizer": "muon"} if "muon" in request.param else {})})

    return made


@pytest.mark.parametrize("make", KINDS, indirect=True)
def test_a_checkpoint_that_will_not_fit_is_found_before_the_training(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, config = tmp_path / "run" / checkpoints.FILE_NAME, make()
    run(config, directory=path.parent, report=lambda event: None)
    tensors = checkpoints.tensor_bytes(checkpoints.read(path).tensors.values())
    path.unlink()
    shutil.rmtree(path.parent)
    events: list[Event] = []
    leave_free(monkeypatch, round(0.98 * tensors))
    with pytest.raises(DiskError, match=r"checkpoints take about .* MiB, .* MiB free: free some space, give") as caught:
        run(config, directory=path.parent, report=events.append)
    assert "\n" not in str(caught.value)
    assert [event["event"] for event in events] == ["failed"]
    assert not path.parent.exists()
    leave_free(monkeypatch, tensors)
    run(config, directory=path.parent, report=events.append)
    assert path.exists()


@pytest.mark.parametrize("make", ["ppo", "language"], indirect=True)
def test_a_run_that_writes_no_checkpoint_needs_no_room(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_free(monkeypatch, 0)
    assert run(make(), directory=None, report=lambda event: None).score is not None


def test_a_second_checkpoint_needs_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ppo_runs.small(train={"lr_schedule": "wsd", "decay_fraction": 0.3})
    run(config, directory=tmp_path / "a", report=lambda event: None)
    files = sorted((tmp_path / "a").iterdir())
    assert [file.name for file in files] == [checkpoints.FILE_NAME, checkpoints.STABLE_FILE_NAME]
    leave_free(monkeypatch, round(1.5 * files[0].stat().st_size))
    with pytest.raises(DiskError, match="checkpoints take about"):
        run(config, directory=tmp_path / "b", report=lambda event: None)
    run(config, directory=tmp_path / "a", report=lambda event: None)  # both are there and will be replaced

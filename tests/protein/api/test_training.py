"""The folder of a training run: one process trains in it, and what cannot be written into it ends no training."""

import re
from pathlib import Path

import pytest
from sample_trials import stored_layers

from protein.api.training import Interrupted, Recorder, run_directory
from protein.errors import UsageError
from protein.trainer.events import Event, Measurement


def test_two_processes_never_train_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = stored_layers().run_config()

    def interrupted(folder: Path) -> Interrupted:
        file = folder / "checkpoint.safetensors"
        file.touch()
        return Interrupted(checkpoint=file, directory=folder, config=config.to_dict(), steps=1, elapsed_seconds=1.0)

    with run_directory(config, None) as folder:
        said = f"^{re.escape(str(folder))}: another process trains this run now; wait for its end, or end it$"
        with pytest.raises(UsageError, match=said), run_directory(config, interrupted(folder)):
            pass
    with run_directory(config, interrupted(folder)) as again:
        assert again == folder
        with pytest.raises(UsageError, match=said), run_directory(config, interrupted(folder)):
            pass
    assert folder.is_dir()


def test_measurements_that_cannot_be_written_do_not_end_the_training() -> None:
    seen: list[Event] = []
    with Recorder(Path("/dev/full"), seen.append) as recorder:
        for steps in range(3):
            recorder(Measurement(event="measurement", steps=steps, elapsed_seconds=1.0, score=None, metrics={}))
    assert [event["steps"] for event in seen] == [0, 1, 2]
    assert recorder.error is not None and recorder.error.strerror == "No space left on device"
    with Recorder(Path("/proc/none/measurements.jsonl"), seen.append, resumed_steps=1) as recorder:
        recorder(Measurement(event="measurement", steps=3, elapsed_seconds=1.0, score=None, metrics={}))
    assert seen[-1]["steps"] == 3
    assert recorder.error is not None and recorder.error.strerror == "No such file or directory"

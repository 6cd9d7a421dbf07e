"""What a slot gives its trials of the node; how it copies their files: `tests/protein/run/test_copies.py`."""

import dataclasses
import platform
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from protein.ports import Finished, Job
from protein.run import lease, slot
from protein.run.slot import Calibrating, Slot, SlotSettings
from protein.types import Machine, Outcome, Trial, TrialEnd


class Recorder:
    """A backend that keeps the jobs it is given."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def start(self, job: Job) -> None:
        self.jobs.append(job)


@pytest.mark.parametrize(("variable", "gpus"), [("2,3", ("2", "3")), (None, ())])
def test_a_trial_gets_the_gpus_of_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, gpus: tuple[str, ...]
) -> None:
    """Where Slurm gives GPUs without the variable, as those of AMD, the trial's is left unset: empty hides them all."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    recorder: Any = Recorder()
    slot = Slot(SlotSettings(make_backend=lambda: recorder, artifacts=tmp_path, probe="", gpus_per_trial=2))
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    slot.start(Job(trial=trial, config={}, directory=tmp_path, max_seconds=None, max_memory_bytes=None))
    assert recorder.jobs[0].resources.gpus == gpus


def test_the_reason_of_a_full_disk_says_whose_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "node-7")
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    ends = [
        Finished(trial=trial, outcome=Outcome(end=end, reason="no room; free some space"))
        for end in (TrialEnd.DISK, TrialEnd.FAILED)
    ]
    recorder: Any = Recorder()
    recorder.poll = lambda _: [ends.pop()]
    slot = Slot(SlotSettings(make_backend=lambda: recorder, artifacts=tmp_path, probe=""))
    reasons = [one.outcome.reason for _ in range(2) for one in slot.poll(0.0) if isinstance(one, Finished)]
    assert reasons == ["no room; free some space", "no room; free some space on node-7"]


def test_nodes_that_are_told_later_know_the_machines_that_were_measured_before(tmp_path: Path) -> None:
    recorder: Any = Recorder()
    calibrating = Calibrating(threads=1, device="cpu", known=())
    settings = SlotSettings(make_backend=lambda: recorder, artifacts=tmp_path, probe="", calibrating=calibrating)
    one, two = (Machine(name=name, facts={}, calibration_seconds=1.0, measured_at=datetime.now(UTC)) for name in "ab")
    later = settings.knowing(one).knowing(two).knowing(one)
    assert later.calibrating is not None and later.calibrating.known == (one, two)
    assert dataclasses.replace(settings, calibrating=None).knowing(one).calibrating is None


def test_folders_of_slots_that_were_killed_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = lease.current_owner()
    with subprocess.Popen(["sleep", "60"]) as other:
        theirs = lease.owner_of(other.pid)
        host, _, rest = theirs.split(":", 2)
        owners = {
            "killed": f"{host}:{2**22 + 1}:{rest}",
            "reused": f"{host}:{other.pid}:1.00@{theirs.partition('@')[2]}",  # an older process had this number
            "living": theirs,
            "mine": mine,
            "container": f"{host}:{2**22 + 1}:1.00@00000000-00000000-1",
            "begun": "",
            "half": f"{theirs}\n{host}:{2**22 + 1}:{rest}\n",  # one of its two owners lives
            "both": f"{host}:{2**22 + 1}:{rest}\n{host}:{2**22 + 2}:{rest}\n",
        }
        for name, owner in owners.items():
            (tmp_path / f"protein-trials-{name}").mkdir()
            (tmp_path / f"protein-trials-{name}" / "owner").write_text(owner)
        (tmp_path / "protein-trials-older").mkdir()
        made = slot.new_scratch()
        other.kill()
    left = {path.name.removeprefix("protein-trials-") for path in tmp_path.iterdir() if path != made}
    assert left == {"living", "mine", "container", "begun", "older", "half"}
    assert (made / "owner").read_text() == f"{mine}\n"

"""What Slurm's programs are asked, how their answers are read, and the files by which two sides exchange messages."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import wait_until
from slurm_jobs import job, slurm_backends, wait_for_slots  # noqa: F401 (a fixture)

from protein.errors import UsageError
from protein.run import slurm, slurm_commands, slurm_messages
from protein.run.mailbox import Inbox, Outbox
from protein.run.slurm import SlurmBackend
from protein.run.slurm_worker import parse_left


def test_without_slurm_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="needs Slurm's sbatch on this machine, and there is none"):
        slurm_commands.check([])


def test_options_that_are_no_words_are_one_line() -> None:
    with pytest.raises(UsageError, match=r"--slurm-options --time='1 cannot be read: No closing quotation"):
        slurm_commands.parse("--time='1")


@pytest.mark.parametrize("word", ["--array=0-3", "--array", "-a0-3", "-a", "--wait", "-W", "-Mall", "--clusters=all"])
def test_options_with_which_a_sweep_would_lose_its_jobs_are_one_line(word: str) -> None:
    """Of an array, two workers would answer in one file, and squeue would not know the job."""
    with pytest.raises(UsageError, match=rf"--slurm-options: {word} cannot be used, as .*; leave it out"):
        slurm_commands.parse(f"--time=1:00:00 {word} 1")


def test_options_that_only_begin_like_those_are_words() -> None:
    words = ["--wait-all-nodes=1", "--wckey=a", "-A", "me", "-w", "node1", "-m", "block", "--account=array"]
    assert slurm_commands.parse(" ".join(words)) == words


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (
            "sbatch: error: invalid partition specified: nowhere\nsbatch: error: Batch job submission failed: No\n",
            "invalid partition specified: nowhere; Batch job submission failed: No",
        ),
        (
            "sbatch: unrecognized option '--foo'\nTry \"sbatch --help\" for more information\n",
            "unrecognized option '--foo'",
        ),
        ("sbatch: fatal: no\n  such \t file\n\nsbatch: fatal: no\n", "no; such file"),
        ("", ""),
    ],
)
def test_what_slurm_says_on_several_lines_becomes_one_without_who_says_it(printed: str, line: str) -> None:
    assert slurm_commands.said(printed) == line


def test_a_filter_of_the_users_own_for_squeue_hides_no_job(
    start: Callable[..., SlurmBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = start()
    wait_for_slots(backend)
    monkeypatch.setenv("SQUEUE_PARTITION", "another")
    number = backend._workers[0].number
    assert slurm_commands.states([number]) == {number: "RUNNING"}


def test_a_job_that_slurm_has_forgotten_has_ended(slurm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for a single one, squeue fails as it does where it has no answer."""
    assert slurm_commands.states(["99999"]) == {}
    monkeypatch.setenv("SLURM_CONF", "/no/such/file")
    assert slurm_commands.states(["99999"]) is None


@pytest.mark.parametrize("state", ["SIGNALING", "SUSPENDED"])
def test_a_job_in_a_rare_state_lives(
    start: Callable[..., SlurmBackend], monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Slurm says SIGNALING while it tells a worker that its job is about to end: just when its trial saves."""
    backend = start()
    wait_for_slots(backend)
    looks: list[Sequence[str]] = []

    def states(numbers: Sequence[str]) -> dict[str, str]:
        looks.append(numbers)
        return dict.fromkeys(numbers, state)

    monkeypatch.setattr(slurm_commands, "states", states)
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0.0)
    wait_until(lambda: backend.num_slots() == 0 or len(looks) > 1)
    assert backend.num_slots() == 1


def test_a_job_is_tried_before_anything_is_made(slurm: None) -> None:
    """One that would only have to wait is taken. None of those that were tried stays in the queue."""
    slurm_commands.check(slurm_commands.resources(1, 0, ["--time=1:00:00"]))
    node = subprocess.run(["sinfo", "-h", "-o", "%n"], capture_output=True, text=True, check=True).stdout.strip()
    for state in ("drain", "resume"):  # where no node is up, it may wait
        change = ["scontrol", "update", f"nodename={node}", f"state={state}", "reason=test"]
        subprocess.run(change, check=True)
        slurm_commands.check(slurm_commands.resources(1, 0, []))
        with pytest.raises(UsageError, match=r"sbatch refused: .*nowhere.*; see --slurm-options"):
            slurm_commands.check(["--partition=nowhere"])
    names = subprocess.run(["squeue", "-h", "-o", "%j"], capture_output=True, text=True, check=True).stdout
    assert "protein-check" not in names


@pytest.mark.parametrize(("speed", "has_time"), [(1.0, True), (0.25, False)])
def test_a_trial_takes_longer_on_a_slower_node(tmp_path: Path, speed: float, has_time: bool) -> None:
    """Its cap is in seconds of the reference machine."""
    outbox = Outbox(tmp_path / "box")
    ends_at = time.monotonic() + 1000.0
    worker = slurm._Worker(
        folder=tmp_path, number="1", inbox=Inbox(tmp_path / "box"), outbox=outbox, speed=speed, ends_at=ends_at
    )
    assert worker.has_time_for(job(tmp_path, max_seconds=600.0)) == has_time
    outbox.close()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:09", 9.0), ("59:59", 3599.0), ("1:00:00", 3600.0), ("2-03:00:01", 183_601.0), ("UNLIMITED", None), ("", None)],
)
def test_the_rest_of_an_allocation_is_read_as_squeue_prints_it(text: str, seconds: float | None) -> None:
    assert parse_left(text) == seconds


def test_a_reader_takes_only_whole_messages(tmp_path: Path) -> None:
    file = tmp_path / "box"
    inbox, outbox = Inbox(file), Outbox(file)
    assert inbox.receive() == []
    outbox.send({"a": 1}, "two")
    assert inbox.receive() == [{"a": 1}, "two"]
    outbox.send("x" * 1000)
    outbox.close()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert inbox.receive() == []
    file.write_bytes(whole)
    assert inbox.receive() == ["x" * 1000]


def test_a_file_of_messages_that_cannot_be_read_now_has_none(tmp_path: Path) -> None:
    """Network file systems fail for moments, with errors of their own."""
    (tmp_path / "box").mkdir()
    inbox = Inbox(tmp_path / "box")
    assert inbox.receive() == []
    (tmp_path / "box").rmdir()
    outbox = Outbox(tmp_path / "box")
    outbox.send("here")
    outbox.close()
    assert inbox.receive() == ["here"]


def test_time_in_which_this_side_could_not_hear_the_other_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared file system hangs for ten minutes: no worker and no sweep has died of that."""
    now = [0.0]
    monkeypatch.setattr(slurm_messages, "time", SimpleNamespace(monotonic=lambda: now[0]))
    silence = slurm_messages.Silence()
    now[0] += 600.0
    silence.look(heard=False)
    assert not silence.is_death
    for _ in range(int(slurm_messages.DEAD_SECONDS) - 5):
        now[0] += 1.0
        silence.look(heard=False)
    assert not silence.is_death
    for _ in range(2):
        now[0] += 1.0
        silence.look(heard=False)
    assert silence.is_death
    silence.look(heard=True)
    assert not silence.is_death

"""GPUs: which there are and what they hold, with a reader that answers as NVML does, and where NVML is missing."""

import dataclasses
from pathlib import Path

import pytest

from protein.cli import main
from protein.errors import UsageError
from protein.run import gpus
from protein.run.gpus import Gpu

PLAIN = [Gpu(index=0, uuid="GPU-aa01"), Gpu(index=1, uuid="GPU-bb02")]
DIVIDED = [Gpu(index=0, uuid="GPU-aa01", instances=("MIG-c1", "MIG-c2")), Gpu(index=1, uuid="GPU-bb02")]


@dataclasses.dataclass
class Process:
    pid: int
    usedGpuMemory: int | None  # as NVML names it


class Nvml:
    """Two GPUs, of which the first may be divided into two instances."""

    class NVMLError(Exception):
        pass

    def __init__(self, processes: dict[str, list[Process]], *, divided: bool = False) -> None:
        self._processes, self._divided = processes, divided

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return ("GPU-aa01", "GPU-bb02")[index]

    def nvmlDeviceGetUUID(self, device: str) -> bytes:
        return device.encode()

    def nvmlDeviceGetMigMode(self, device: str) -> tuple[int, int]:
        if device != "GPU-aa01":
            raise self.NVMLError("not supported")
        return int(self._divided), 0

    def nvmlDeviceGetMaxMigDeviceCount(self, device: str) -> int:
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: str, index: int) -> str:
        if index == 1:
            raise self.NVMLError("not found")
        return "MIG-c1" if index == 0 else "MIG-c2"

    def nvmlDeviceGetComputeRunningProcesses(self, device: str) -> list[Process]:
        if device not in self._processes:
            raise self.NVMLError("the GPU is lost")
        return self._processes[device]


def test_memory_is_summed_over_gpus_and_over_the_processes_of_a_trial() -> None:
    nvml = Nvml({"GPU-aa01": [Process(1, 5), Process(2, 70), Process(9, 900)], "GPU-bb02": [Process(1, 6000)]})
    assert gpus.used_bytes([1, 2], nvml) == 6075
    assert gpus.used_bytes([3], nvml) == 0
    assert gpus.used_bytes([9], Nvml({"GPU-aa01": [Process(9, None)]})) == 0, "not told, and a GPU that is lost"


def test_a_gpu_that_has_fallen_off_the_bus_is_passed_over() -> None:
    class Loses(Nvml):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
            if index == 0:
                raise self.NVMLError("the GPU is lost")
            return super().nvmlDeviceGetHandleByIndex(index)

    nvml = Loses({"GPU-bb02": [Process(1, 6000)]})
    assert gpus.used_bytes([1], nvml) == 6000
    assert [one.index for one in gpus.installed(nvml) or []] == [1]


def test_memory_of_a_divided_gpu_is_counted_once() -> None:
    processes = {"GPU-aa01": [Process(1, 5)], "MIG-c1": [Process(1, 5)], "MIG-c2": [], "GPU-bb02": []}
    assert gpus.used_bytes([1], Nvml(processes, divided=True)) == 5


def test_gpus_and_their_instances_are_listed() -> None:
    assert gpus.installed(Nvml({})) == PLAIN
    assert gpus.installed(Nvml({}, divided=True)) == DIVIDED


@pytest.mark.parametrize(
    ("text", "listed", "found"),
    [
        ("0,1", PLAIN, ("0", "1")),
        (" 1 , 0", PLAIN, ("1", "0")),
        ("GPU-bb", PLAIN, ("GPU-bb",)),
        ("MIG-c2,1", DIVIDED, ("MIG-c2", "1")),
        ("MIG-GPU-aa01/3/0", DIVIDED, ("MIG-GPU-aa01/3/0",)),
        ("all", PLAIN, ("0", "1")),
        ("all", DIVIDED, ("MIG-c1", "MIG-c2", "1")),
        ("7", None, ("7",)),
    ],
)
def test_ids_are_taken_as_cuda_takes_them(text: str, listed: list[Gpu] | None, found: tuple[str, ...]) -> None:
    assert gpus.find(text, {}, listed) == found


def test_only_gpus_that_this_process_may_use_are_shared_out() -> None:
    assert gpus.find("all", {"CUDA_VISIBLE_DEVICES": "1"}, PLAIN) == ("1",)
    assert gpus.find("1", {"CUDA_VISIBLE_DEVICES": "3, 1"}, PLAIN) == ("1",)
    for text in ("0", "all"):
        with pytest.raises(UsageError, match=r"CUDA_VISIBLE_DEVICES=1; use those|this process sees no NVIDIA GPU"):
            gpus.find(text, {"CUDA_VISIBLE_DEVICES": "1" if text == "0" else ""}, PLAIN)


@pytest.mark.parametrize(
    ("text", "listed", "said"),
    [
        ("2", PLAIN, "--gpus 2: no GPU has the id 2; this machine has 0, 1$"),
        ("GPU-cc", DIVIDED, "no GPU has the id GPU-cc; this machine has MIG-c1, MIG-c2, 1$"),
        ("0", [], "no GPU has the id 0; this machine has no NVIDIA GPU: leave out --gpus$"),
        ("all", [], "--gpus all: this process sees no NVIDIA GPU; leave out --gpus to train on the CPU$"),
        ("all", None, "--gpus all needs NVML"),
        ("0,0", PLAIN, "--gpus 0,0: 0 is there twice; for several trials on one GPU use --trials-per-gpu"),
        ("0,", PLAIN, "'' is no id of a GPU; use numbers or UUIDs as nvidia-smi shows, or all"),
        ("cuda:0", PLAIN, "'cuda:0' is no id of a GPU"),
    ],
)
def test_an_id_that_no_gpu_has_is_one_line(text: str, listed: list[Gpu] | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        gpus.find(text, {}, listed)


@pytest.mark.parametrize(("driver", "known"), [(False, True), (True, False)])
def test_without_nvml_a_machine_without_a_driver_has_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool, known: bool
) -> None:
    monkeypatch.setattr(gpus, "_nvml", lambda: None)
    monkeypatch.setattr(gpus, "DRIVER", tmp_path / "driver")
    monkeypatch.setattr(gpus, "OTHER_DRIVER", tmp_path / "other")
    if driver:
        (tmp_path / "driver").write_text("NVRM version")
    assert gpus.installed() == ([] if known else None)
    assert gpus.used_bytes([1]) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--max-trial-gpu-memory 2GiB", "--max-trial-gpu-memory needs NVML to measure it"),
        ("--gpus 0", "--gpus 0: no GPU has the id 0; this machine has no NVIDIA GPU"),
        ("--trials-per-gpu 2", "--trials-per-gpu 2 needs the GPUs to share out"),
        ("--gpus-per-trial 0", "--gpus-per-trial = 0 is below the limit of 1"),
        ("--max-trial-gpu-memory many", "--max-trial-gpu-memory"),
    ],
)
def test_the_command_says_at_once_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpus, "_nvml", lambda: None)
    for name in ("DRIVER", "OTHER_DRIVER"):
        monkeypatch.setattr(gpus, name, tmp_path / name)
    assert main(["sweep", "--env", "pong", "--max-trials", "1", *flags.split()]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1
    assert not (tmp_path / "runs").exists(), "nothing was created"


def test_gpus_of_a_config_file_are_shared_out_to_as_many_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protein.cli.parse import parse
    from protein.cli.sweep_plan import define, make_slots
    from protein.view import tables

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "installed", lambda: PLAIN)
    (tmp_path / "own.toml").write_text('[sweep]\ngpus = "all"\ntrials_per_gpu = 2\npin_cores = false\n')
    words = ["sweep", "--env", "pong", "--config", str(tmp_path / "own.toml")]
    for more, workers in (([], 4), (["--workers", "3"], 3), (["--gpus", "1"], 2)):
        command = parse([*words, *more])
        slots = make_slots(command.arguments, define(command, tables.make_console())[1])
        assert (slots.workers, slots.trials_per_gpu, set(slots.cores)) == (workers, 2, {()})

"""Slots: what each trial gets of the machine's cores and GPUs."""

import dataclasses
import os
from pathlib import Path

import pytest

from protein.cli import main
from protein.errors import UsageError
from protein.run import devices
from protein.run.devices import Gpu, Slots
from protein.types import Resources


def topology(root: Path, siblings: dict[int, str], packages: dict[int, int]) -> Path:
    for cpu, text in siblings.items():
        directory = root / f"cpu{cpu}" / "topology"
        directory.mkdir(parents=True)
        (directory / "thread_siblings_list").write_text(text + "\n")
        (directory / "physical_package_id").write_text(f"{packages[cpu]}\n")
    return root


def test_hyperthreads_of_a_core_and_cores_of_a_package_stay_together(tmp_path: Path) -> None:
    """Processors 0 to 3 and 4 to 7 are the two threads of four cores, of which even ones are in package 0."""
    root = topology(tmp_path, {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}, {cpu: cpu % 2 for cpu in range(8)})
    groups = devices.core_groups(range(8), root)
    assert groups == [(0, 4), (2, 6), (1, 5), (3, 7)]
    assert devices.shares(2, groups) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert devices.shares(4, groups) == [(0, 4), (2, 6), (1, 5), (3, 7)]
    assert devices.shares(3, groups) == [(0, 4), (2, 6), (1, 5)], "even shares: one core is left over"
    assert devices.shares(8, groups) == [(0,), (4,), (2,), (6,), (1,), (5,), (3,), (7,)]
    assert devices.shares(9, groups) == [()] * 9, "more workers than processors: nobody is pinned"
    assert devices.shares(1, groups) == [()], "one worker may use all"


def test_only_processors_that_may_be_used_are_shared_out(tmp_path: Path) -> None:
    root = topology(
        tmp_path, {cpu: f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" for cpu in range(6)}, dict.fromkeys(range(6), 0)
    )
    assert devices.core_groups([1, 2, 3, 4], root) == [(1,), (2, 3), (4,)]


def test_a_processor_of_which_the_kernel_tells_nothing_is_a_core(tmp_path: Path) -> None:
    assert devices.core_groups([2, 0], tmp_path) == [(0,), (2,)]


@pytest.mark.parametrize(
    ("text", "can"), [("max 100000", True), ("400000 100000", True), ("150000 100000", False), ("odd", True)]
)
def test_nothing_is_pinned_in_a_container_with_a_share_of_its_processors(tmp_path: Path, text: str, can: bool) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert devices.can_pin(range(4), tmp_path / "cpu.max") is (can and hasattr(os, "sched_setaffinity"))


def test_workers_of_this_machine_never_share_a_processor() -> None:
    usable = devices.usable_cores()
    dealt = devices.worker_cores(2)
    if len(usable) < 2:
        assert dealt == [(), ()]
    else:
        assert len(dealt[0]) == len(dealt[1]) >= 1
        assert not set(dealt[0]) & set(dealt[1]) and set(dealt[0] + dealt[1]) <= set(usable)


def test_each_slot_is_taken_once_and_can_be_taken_again() -> None:
    slots = Slots(workers=2, cores=[(0, 1), (2, 3)], max_gpu_memory_bytes=5)
    first, second = slots.take(), slots.take()
    assert first == Resources(cores=(0, 1), max_gpu_memory_bytes=5) and second.cores == (2, 3)
    assert slots.num_free == 0
    slots.give_back(second)
    slots.give_back(first)
    assert slots.num_free == 2
    assert slots.take().cores == (0, 1)
    assert slots.threads(first) == 2
    assert Slots().take() == Resources()


def test_trials_go_to_the_gpu_with_the_fewest() -> None:
    slots = Slots(workers=4, gpus=("0", "MIG-1"), trials_per_gpu=2)
    taken = [slots.take() for _ in range(4)]
    assert [one.gpus for one in taken] == [("0",), ("MIG-1",), ("0",), ("MIG-1",)]
    slots.give_back(taken[1])
    assert slots.take().gpus == ("MIG-1",)


def test_a_trial_may_use_several_gpus() -> None:
    slots = Slots(workers=3, gpus=("0", "1", "2", "3"), gpus_per_trial=2, trials_per_gpu=2)
    assert [slots.take().gpus for _ in range(3)] == [("0", "1"), ("2", "3"), ("0", "1")]
    assert slots.text() == "GPU 0,1,2,3, 2 for a trial, up to 2 trials a GPU"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 0}, "workers = 0 is below the limit of 1"),
        (
            {"workers": 3, "gpus": ("0", "1")},
            "--workers 3 is more than the 2 that GPU 0,1 has room for; use --workers 2",
        ),
        ({"gpus": ("0",), "trials_per_gpu": 0}, "--trials-per-gpu 0 is below the limit of 1"),
        ({"gpus_per_trial": 2}, "--gpus-per-trial 2 needs the GPUs to share out; name them"),
        ({"gpus": ("0", "1", "2"), "gpus_per_trial": 2}, "3 GPUs cannot be shared out to trials of 2; name 4 or 2"),
        ({"gpus": ("0",), "gpus_per_trial": 2}, "1 GPUs cannot be shared out to trials of 2; name 2$"),
    ],
)
def test_shares_that_cannot_be_are_one_line(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Slots(**settings)  # type: ignore[arg-type]


def test_the_environment_confines_a_trial_and_keeps_what_the_user_has_set() -> None:
    share = Resources(cores=(2, 3), gpus=("1", "0"))
    assert devices.environment(share, {}) == {
        "CUDA_VISIBLE_DEVICES": "1,0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": "2",
    }
    own = {"OMP_NUM_THREADS": "7", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert devices.environment(share, own) == {"CUDA_VISIBLE_DEVICES": "1,0"}
    assert devices.environment(Resources(), {}) == {}


def test_lists_of_the_kernel_are_read_and_written() -> None:
    for text, numbers in (("0-2,8", [0, 1, 2, 8]), ("5", [5]), ("0,2", [0, 2])):
        assert devices.parse_cores(text + "\n") == numbers
        assert devices.format_cores(numbers) == text
    assert Slots(workers=2, cores=[(0, 1), (2, 4)]).text() == "2 workers, each pinned to its own cores (0-1 | 2,4)"


# GPUs: which there are and what they hold, with a reader that answers as NVML does, and where NVML is missing.

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
    assert devices.used_gpu_bytes([1, 2], nvml) == 6075
    assert devices.used_gpu_bytes([3], nvml) == 0
    assert devices.used_gpu_bytes([9], Nvml({"GPU-aa01": [Process(9, None)]})) == 0, "not told, and a GPU that is lost"


def test_a_gpu_that_has_fallen_off_the_bus_is_passed_over() -> None:
    class Loses(Nvml):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
            if index == 0:
                raise self.NVMLError("the GPU is lost")
            return super().nvmlDeviceGetHandleByIndex(index)

    nvml = Loses({"GPU-bb02": [Process(1, 6000)]})
    assert devices.used_gpu_bytes([1], nvml) == 6000
    assert [one.index for one in devices.installed_gpus(nvml) or []] == [1]


def test_memory_of_a_divided_gpu_is_counted_once() -> None:
    processes = {"GPU-aa01": [Process(1, 5)], "MIG-c1": [Process(1, 5)], "MIG-c2": [], "GPU-bb02": []}
    assert devices.used_gpu_bytes([1], Nvml(processes, divided=True)) == 5


def test_gpus_and_their_instances_are_listed() -> None:
    assert devices.installed_gpus(Nvml({})) == PLAIN
    assert devices.installed_gpus(Nvml({}, divided=True)) == DIVIDED


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
    assert devices.find_gpus(text, {}, listed) == found


def test_only_gpus_that_this_process_may_use_are_shared_out() -> None:
    assert devices.find_gpus("all", {"CUDA_VISIBLE_DEVICES": "1"}, PLAIN) == ("1",)
    assert devices.find_gpus("1", {"CUDA_VISIBLE_DEVICES": "3, 1"}, PLAIN) == ("1",)
    for text in ("0", "all"):
        with pytest.raises(UsageError, match=r"CUDA_VISIBLE_DEVICES=1; use those|this process sees no NVIDIA GPU"):
            devices.find_gpus(text, {"CUDA_VISIBLE_DEVICES": "1" if text == "0" else ""}, PLAIN)


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
        devices.find_gpus(text, {}, listed)


@pytest.mark.parametrize(("driver", "known"), [(False, True), (True, False)])
def test_without_nvml_a_machine_without_a_driver_has_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool, known: bool
) -> None:
    monkeypatch.setattr(devices, "_nvml", lambda: None)
    monkeypatch.setattr(devices, "DRIVER", tmp_path / "driver")
    monkeypatch.setattr(devices, "OTHER_DRIVER", tmp_path / "other")
    if driver:
        (tmp_path / "driver").write_text("NVRM version")
    assert devices.installed_gpus() == ([] if known else None)
    assert devices.used_gpu_bytes([1]) == 0


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
    monkeypatch.setattr(devices, "_nvml", lambda: None)
    for name in ("DRIVER", "OTHER_DRIVER"):
        monkeypatch.setattr(devices, name, tmp_path / name)
    assert main(["sweep", "--env", "pong", "--max-trials", "1", *flags.split()]) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1
    assert not (tmp_path / "runs").exists(), "nothing was created"


def test_gpus_of_a_config_file_are_shared_out_to_as_many_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protein.cli.parse import parse
    from protein.cli.sweep import define, make_slots
    from protein.view import tables

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "installed_gpus", lambda: PLAIN)
    (tmp_path / "own.toml").write_text('[sweep]\ngpus = "all"\ntrials_per_gpu = 2\npin_cores = false\n')
    words = ["sweep", "--env", "pong", "--config", str(tmp_path / "own.toml")]
    for more, workers in (([], 4), (["--workers", "3"], 3), (["--gpus", "1"], 2)):
        command = parse([*words, *more])
        slots = make_slots(define(command, tables.make_console())[1])
        assert (slots.workers, slots.trials_per_gpu, set(slots.cores)) == (workers, 2, {()})

"""This machine: what each trial gets of it, what its processes use, and what slows the machine down."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_sweep
from patience import wait_until

from protein.cli import main
from protein.errors import UsageError
from protein.ports import Finished, Job
from protein.run import machine
from protein.run.machine import Gpu, Slots, busy_seconds, family, over_limit
from protein.run.trainer import TrainerBackend
from protein.types import Resources, Trial


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
    groups = machine.core_groups(range(8), root)
    assert groups == [(0, 4), (2, 6), (1, 5), (3, 7)]
    assert machine.shares(2, groups) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert machine.shares(4, groups) == [(0, 4), (2, 6), (1, 5), (3, 7)]
    assert machine.shares(3, groups) == [(0, 4), (2, 6), (1, 5)], "even shares: one core is left over"
    assert machine.shares(8, groups) == [(0,), (4,), (2,), (6,), (1,), (5,), (3,), (7,)]
    assert machine.shares(9, groups) == [()] * 9, "more workers than processors: nobody is pinned"
    assert machine.shares(1, groups) == [()], "one worker may use all"


def test_only_processors_that_may_be_used_are_shared_out(tmp_path: Path) -> None:
    root = topology(
        tmp_path, {cpu: f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" for cpu in range(6)}, dict.fromkeys(range(6), 0)
    )
    assert machine.core_groups([1, 2, 3, 4], root) == [(1,), (2, 3), (4,)]


def test_a_processor_of_which_the_kernel_tells_nothing_is_a_core(tmp_path: Path) -> None:
    assert machine.core_groups([2, 0], tmp_path) == [(0,), (2,)]


@pytest.mark.parametrize(
    ("text", "can"), [("max 100000", True), ("400000 100000", True), ("150000 100000", False), ("odd", True)]
)
def test_nothing_is_pinned_in_a_container_with_a_share_of_its_processors(tmp_path: Path, text: str, can: bool) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert machine.can_pin(range(4), tmp_path / "cpu.max") is (can and hasattr(os, "sched_setaffinity"))


def test_workers_of_this_machine_never_share_a_processor() -> None:
    usable = machine.usable_processors()
    dealt = machine.worker_cores(2)
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
    assert machine.environment_of(share, {}) == {
        "CUDA_VISIBLE_DEVICES": "1,0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": "2",
    }
    own = {"OMP_NUM_THREADS": "7", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert machine.environment_of(share, own) == {"CUDA_VISIBLE_DEVICES": "1,0"}
    assert machine.environment_of(Resources(), {}) == {}


def test_lists_of_the_kernel_are_read_and_written() -> None:
    for text, numbers in (("0-2,8", [0, 1, 2, 8]), ("5", [5]), ("0,2", [0, 2])):
        assert machine.parse_cores(text + "\n") == numbers
        assert machine.format_cores(numbers) == text
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
    assert machine.used_gpu_bytes([1, 2], nvml) == 6075
    assert machine.used_gpu_bytes([3], nvml) == 0
    assert machine.used_gpu_bytes([9], Nvml({"GPU-aa01": [Process(9, None)]})) == 0, "not told, and a GPU that is lost"


def test_a_gpu_that_has_fallen_off_the_bus_is_passed_over() -> None:
    class Loses(Nvml):
        def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
            if index == 0:
                raise self.NVMLError("the GPU is lost")
            return super().nvmlDeviceGetHandleByIndex(index)

    nvml = Loses({"GPU-bb02": [Process(1, 6000)]})
    assert machine.used_gpu_bytes([1], nvml) == 6000
    assert [one.index for one in machine.installed_gpus(nvml) or []] == [1]


def test_memory_of_a_divided_gpu_is_counted_once() -> None:
    processes = {"GPU-aa01": [Process(1, 5)], "MIG-c1": [Process(1, 5)], "MIG-c2": [], "GPU-bb02": []}
    assert machine.used_gpu_bytes([1], Nvml(processes, divided=True)) == 5


def test_gpus_and_their_instances_are_listed() -> None:
    assert machine.installed_gpus(Nvml({})) == PLAIN
    assert machine.installed_gpus(Nvml({}, divided=True)) == DIVIDED


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
    assert machine.find_gpus(text, {}, listed) == found


def test_only_gpus_that_this_process_may_use_are_shared_out() -> None:
    assert machine.find_gpus("all", {"CUDA_VISIBLE_DEVICES": "1"}, PLAIN) == ("1",)
    assert machine.find_gpus("1", {"CUDA_VISIBLE_DEVICES": "3, 1"}, PLAIN) == ("1",)
    for text in ("0", "all"):
        with pytest.raises(UsageError, match=r"CUDA_VISIBLE_DEVICES=1; use those|this process sees no NVIDIA GPU"):
            machine.find_gpus(text, {"CUDA_VISIBLE_DEVICES": "1" if text == "0" else ""}, PLAIN)


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
        machine.find_gpus(text, {}, listed)


@pytest.mark.parametrize(("driver", "known"), [(False, True), (True, False)])
def test_without_nvml_a_machine_without_a_driver_has_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool, known: bool
) -> None:
    monkeypatch.setattr(machine, "_nvml", lambda: None)
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "driver")
    monkeypatch.setattr(machine, "OTHER_DRIVER", tmp_path / "other")
    if driver:
        (tmp_path / "driver").write_text("NVRM version")
    assert machine.installed_gpus() == ([] if known else None)
    assert machine.used_gpu_bytes([1]) == 0


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
    monkeypatch.setattr(machine, "_nvml", lambda: None)
    for name in ("DRIVER", "OTHER_DRIVER"):
        monkeypatch.setattr(machine, name, tmp_path / name)
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
    monkeypatch.setattr(machine, "installed_gpus", lambda: PLAIN)
    (tmp_path / "own.toml").write_text('[sweep]\ngpus = "all"\ntrials_per_gpu = 2\npin_cores = false\n')
    words = ["sweep", "--env", "pong", "--config", str(tmp_path / "own.toml")]
    for more, workers in (([], 4), (["--workers", "3"], 3), (["--gpus", "1"], 2)):
        command = parse([*words, *more])
        slots = make_slots(define(command, tables.make_console())[1])
        assert (slots.workers, slots.trials_per_gpu, set(slots.cores)) == (workers, 2, {()})


LINUX = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux counts it")


def trial_of_local_backend(directory: Path, *, speed: float, behaviour: str) -> Finished:
    """Runs the tests' trial in a process of its own."""
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    config = {"train": {"behaviour": behaviour, "max_seconds": 3.0}}
    job = Job(trial=trial, config=config, directory=directory, max_seconds=600.0, max_memory_bytes=None, speed=speed)
    backend = TrainerBackend(entry=small_sweep.TRIAL, preload=())
    try:
        backend.start(job)
        while True:
            for event in backend.poll(1.0):
                if isinstance(event, Finished):
                    return event
    finally:
        backend.close()


@LINUX
def test_every_trial_on_this_machine_tells_what_it_used(tmp_path: Path) -> None:
    ended = trial_of_local_backend(tmp_path, speed=1.0, behaviour="spend")
    timings = ended.outcome.timings
    assert {"startup", "wall", "cpu", "waited", "others"} <= set(timings)
    assert 0.0 <= timings["waited"] <= timings["wall"]
    assert ended.outcome.cost_seconds == 3.0, "what the trial says itself"


def test_the_machines_busy_seconds_grow() -> None:
    before = busy_seconds()
    assert before is not None
    while time.process_time() < 0.3:
        pass
    after = busy_seconds()
    assert after is not None
    assert after >= before > 0.0


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def troubles(root: Path) -> list[str]:
    """What the files tell, without what other programs do now."""
    return [trouble for trouble in machine.troubles(root) if "other programs" not in trouble]


def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    assert troubles(tmp_path) == []


def test_a_quota_below_the_cores_is_told(tmp_path: Path) -> None:
    write(tmp_path / "sys/fs/cgroup/cpu.max", "50000 100000\n")
    (line,) = troubles(tmp_path)
    assert line.startswith("a quota leaves this process 0.5 of ")
    assert "--workers 1" in line
    write(tmp_path / "sys/fs/cgroup/cpu.max", f"{100000 * (os.cpu_count() or 1)} 100000\n")
    assert troubles(tmp_path) == []


def test_a_clock_that_is_held_low_is_told(tmp_path: Path) -> None:
    policy = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    for name, text in (
        ("scaling_governor", "schedutil"),
        ("scaling_driver", "acpi-cpufreq"),
        ("scaling_max_freq", "1800000"),
        ("cpuinfo_max_freq", "3600000"),
    ):
        write(policy / name, text)
    assert troubles(tmp_path) == ["the clock rate is limited to 1.8 of 3.6 GHz (scaling_max_freq)"]
    write(policy / "scaling_governor", "powersave")
    assert "governor powersave" in troubles(tmp_path)[0]
    write(policy / "scaling_governor", "performance")
    write(policy / "scaling_max_freq", "3600000")
    assert troubles(tmp_path) == []


def test_heat_is_told_while_it_lasts(tmp_path: Path) -> None:
    write(tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "7")
    write(tmp_path / "sys/class/thermal/thermal_zone0/temp", "97000")
    assert troubles(tmp_path) == ["the processor is at 97 degrees and was slowed down by heat 7 times since the start"]
    write(tmp_path / "sys/class/thermal/thermal_zone0/temp", "45000")
    assert troubles(tmp_path) == []


def test_pressure_on_memory_is_told(tmp_path: Path) -> None:
    pressure = "some avg10=0.00 avg60=%s avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    write(tmp_path / "proc/pressure/memory", pressure % "12.5")
    (line,) = troubles(tmp_path)
    assert line.startswith("programs waited for memory in 12 % of the last minute")
    write(tmp_path / "proc/pressure/memory", pressure % "1.0")
    assert troubles(tmp_path) == []


@LINUX
def test_other_programs_are_noticed() -> None:
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        assert any(line.startswith("other programs use ") for line in machine.troubles())
    finally:
        for process in spinning:
            process.kill()
            process.communicate()


MIB = 2**20
# Holds 120 MiB, which its four forks share with it.
PARENT = """
import os, sys, time
data = b"x" * (120 << 20)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(120)
        os._exit(0)
open(sys.argv[1], "w").close()
time.sleep(120)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="this system does not tell what is shared")
def test_what_forks_share_counts_once(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", PARENT, str(tmp_path / "ready")], start_new_session=True)
    try:
        wait_until((tmp_path / "ready").exists)
        time.sleep(0.2)
        members = family(process.pid)
        assert len(members) == 5 and sum(one.memory_info().rss for one in members) > 500 * MIB
        trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="me")

        def job(limit: int) -> Job:
            return Job(trial=trial, config={}, directory=tmp_path, max_seconds=None, max_memory_bytes=limit)

        assert over_limit(job(300 * MIB), lambda: members, lambda pids: 0) is None
        words = over_limit(job(100 * MIB), lambda: members, lambda pids: 0)
        assert words is not None and words.startswith("killed at 0.1 GiB of memory")
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_workers_beyond_the_cores_are_told_what_that_costs_and_far_beyond_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    assert machine.crowded(2) is None
    assert (machine.crowded(5) or "").startswith("5 workers share 2 cores: a trial may take 2.5 times as long as alone")
    assert machine.slots_of_machine(8, pin_cores=False).workers == 8
    with pytest.raises(UsageError, match=r"^9 workers are too many for 2 cores: .*; use 2 workers, or 8 at most, or"):
        machine.slots_of_machine(9, pin_cores=False)

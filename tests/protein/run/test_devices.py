"""Slots: what each trial gets of the machine's cores and GPUs."""

import os
from pathlib import Path

import pytest

from protein.errors import UsageError
from protein.run import devices
from protein.run.devices import Slots
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

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from event_log import EventLog

from protein.trainer.config import RunConfig
from protein.trainer.errors import ConfigError
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine import measured
from protein.trainer.machine.graphs import standing_in
from protein.trainer.machine.precision import Choice
from protein.trainer.ppo import device as devices
from protein.trainer.ppo.device import MAX_SECONDS, Timing, choose, facts_of, least_seconds, measure, timing_of
from protein.trainer.run import run

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")
PAIR = [torch.device("cpu:0"), CPU]  # two names of one device: a machine with two, as far as a run can tell


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Clock:
    """Time goes only where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timing(rates: dict[str, float | Exception], seen: list[tuple[str, float]] | None = None) -> Callable[[], Timing]:
    def time_on(device: torch.device, seconds: float) -> float:
        if seen is not None:
            seen.append((str(device), seconds))
        rate = rates[str(device)]
        if isinstance(rate, Exception):
            raise rate
        return 1.0 / rate

    return lambda: time_on


def never() -> Timing:
    raise AssertionError("nothing may be timed")


def small(env: dict[str, Any] | None = None, policy: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    return RunConfig.from_dict(
        {
            "env": {"name": "pong", "num_envs": 8, "frame_skip": 40, **(env or {})},
            "policy": {"hidden_size": 8, **(policy or {})},
            "train": {"total_timesteps": 256, "threads": 1, "horizon": 16, "minibatch_size": 48, **train},
            "eval": {"episodes": 1, "num_envs": 1},
        }
    )


def test_the_faster_device_is_taken_said_and_remembered() -> None:
    facts = {"card": "A"}
    found = measure([CUDA, CPU], timing({"cuda": 180_123.0, "cpu": 548_321.0}), facts=facts)
    assert (found.device, found.notes) == (CPU, ("cpu: 548,000 steps a second, cuda: 180,000",))
    assert found.seconds is not None
    again = measure([CUDA, CPU], never, facts=facts)
    assert (again.device, again.seconds) == (CPU, 0.0)
    assert again.notes == ("cpu: 548,000 steps a second, cuda: 180,000, as measured earlier",)
    other = measure([MPS, CPU], timing({"mps": 99.6, "cpu": 0.25}), facts={"card": "B"})
    assert (other.device, other.notes) == (MPS, ("mps: 100 steps a second, cpu: 0",))


@pytest.mark.parametrize(
    "kept", [None, 7, [], {"cpu": 1.0}, {"cpu": 1.0, "cuda": "2"}, {"cpu": 1.0, "cuda": -2.0}, {"cpu": 1.0, "mps": 2.0}]
)
def test_what_was_kept_and_does_not_fit_is_measured_again(kept: Any) -> None:
    measured.keep({"card": "A"}, kept)
    found = measure([CUDA, CPU], timing({"cuda": 2.0, "cpu": 1.0}), facts={"card": "A"})
    assert found.device == CUDA
    assert measured.recall({"card": "A"}) == {"cuda": 2.0, "cpu": 1.0}


def test_a_device_that_fails_is_left_out_with_one_line_and_tried_again_next_time() -> None:
    vanished = RuntimeError("CUDA error: device is busy or unavailable\nCompile with TORCH_USE_CUDA_DSA\n")
    found = measure([CUDA, CPU], timing({"cuda": vanished, "cpu": 5.0}), facts={"card": "A"})
    assert found.device == CPU
    assert found.notes == (
        "cuda was left out, it failed while it was timed: CUDA error: device is busy or unavailable",
        "cpu: 5 steps a second",
    )
    assert measure([CUDA, CPU], timing({"cuda": 9.0, "cpu": 5.0}), facts={"card": "A"}).device == CUDA
    none = measure([MPS, CPU], timing({"mps": ValueError(), "cpu": MemoryError()}), facts={"card": "B"})
    assert none.device == CPU
    assert [note.rpartition(": ")[2] for note in none.notes] == ["ValueError", "MemoryError"]


def test_devices_have_equal_parts_of_the_time_however_long_one_takes_to_wake() -> None:
    clock, seen = Clock(), []

    def time_on(device: torch.device, seconds: float) -> float:
        seen.append(seconds)
        clock.now += 5.0
        return 1.0

    found = measure([CUDA, MPS, CPU], lambda: time_on, facts={}, clock=clock)
    assert seen == [MAX_SECONDS / 3] * 3
    assert found.seconds == pytest.approx(15.0)


def test_waking_is_not_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = Clock(), []

    def least(make: Callable[[int], Callable[[], None]], rows: int, until: float, clock: Clock) -> float:
        asked.append(until - clock())
        return 1.0

    def slow(device: torch.device) -> None:
        clock.now += 3.0

    monkeypatch.setattr(devices, "least_seconds", least)
    monkeypatch.setattr(devices, "wait_for", slow)
    timing_of(small(), 1, clock)(CPU, 0.5)
    assert asked == pytest.approx([0.25, 0.5])
    assert clock.now == pytest.approx(106.0)  # each part was woken


def test_no_piece_of_work_goes_beyond_the_time() -> None:
    chance = random.Random(0)
    largest = 0
    for _ in range(300):
        clock, rows = Clock(), chance.choice([1, 5, 16, 17, 1000, 10**6])
        fixed, each = 10 ** chance.uniform(-6, -2), 10 ** chance.uniform(-9, -2)
        until, record = clock.now + 10 ** chance.uniform(-3, 0), 10 ** chance.uniform(-6, -1)
        made: list[int] = []

        def make(size: int) -> Callable[[], None]:
            made.append(size)  # noqa: B023

            def work() -> None:
                clock.now += fixed + each * size  # noqa: B023

            for _ in range(devices.WORK_IN_MAKING - 1):
                work()
            clock.now += record  # noqa: B023
            return work

        # What the smallest piece takes cannot be predicted.
        first = record + (devices.WORK_IN_MAKING + 1) * (fixed + each * min(rows, devices.FIRST_ROWS))
        seconds = least_seconds(make, rows, until, clock)
        assert clock.now <= max(until, 100.0 + first) + 1e-9
        assert max(made) <= rows
        assert seconds == pytest.approx(each + fixed / made[-1], rel=1e-3)
        assert seconds >= each + fixed / rows - 1e-9  # never faster than the whole work
        largest += made[-1] == rows
    assert 50 < largest < 300  # both kinds were tried


def test_the_fastest_of_several_rounds_counts() -> None:
    clock, durations = Clock(), iter([9.0, 0.3, 0.2, 0.1, 0.4, 0.5, 0.6])

    def work() -> None:
        clock.now += next(durations)

    assert least_seconds(lambda _: work, 10, 200.0, clock) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("here", "config", "options"),
    [
        ([CPU], small(), {}),
        ([CUDA, CPU], small(), {"gpu_given": True}),
        ([CUDA, CPU], small(), {"processes": 2}),
        ([MPS, CPU], small(cpu_inference=True), {}),
    ],
)
def test_nothing_is_timed_where_there_is_no_choice(
    here: list[torch.device], config: RunConfig, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "found_devices", lambda: here)
    monkeypatch.setattr(devices, "timing_of", never)
    assert choose(config, threads=1, **options) == Choice(device=here[0])
    assert choose(small(device="cpu"), threads=1) == Choice(device=CPU)


def test_another_card_driver_torch_network_or_number_of_environments_is_measured_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "card A")
    here = [CUDA, CPU]
    facts = facts_of(small(), here, 1)
    assert facts == json.loads(json.dumps(facts))
    assert facts == facts_of(small(learning_rate=0.1, horizon=17, seed=3), here, 1)  # these do not change the speed
    others = [
        facts_of(small(policy={"hidden_size": 16}), here, 1),
        facts_of(small(env={"num_envs": 9}), here, 1),
        facts_of(small(minibatch_size=96), here, 1),
        facts_of(small(), here, 2),
        facts_of(small(), [CPU], 1),
    ]
    monkeypatch.setattr(torch.version, "cuda", "13.9")
    others.append(facts_of(small(), here, 1))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: (_ for _ in ()).throw(RuntimeError("it is gone")))
    others.append(facts_of(small(), here, 1))
    assert all(other != facts for other in others)


@pytest.mark.parametrize(
    "config",
    [
        small(),
        small(policy={"recurrence": "lstm"}),
        small({"name": "maze", "frame_skip": 1}, {"encoder": "cnn"}, accumulation_steps=2),
        small({"name": "pendulum", "frame_skip": 10}, {"recurrence": "mingru"}, optimizer="muon", overlap=True),
        small(policy={"hidden_size": 512}, learning_rate=1e6),  # with which the run itself would diverge
        small({"name": "entities", "num_envs": 2}, {"value_bins": 5}, train_fp16=True, target_kl=0.1),
    ],
    ids=["mlp", "lstm", "cnn", "continuous", "wide", "several actions"],
)
def test_the_parts_of_a_run_are_timed_and_change_nothing_else(config: RunConfig) -> None:
    before = torch.get_rng_state(), torch.get_num_threads(), torch.get_float32_matmul_precision()
    assert 0.0 < timing_of(config, 1)(CPU, 0.02) < 1.0
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before[1:]


def test_the_crossing_of_two_devices_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def time_with(config: RunConfig) -> Timing:
        envs, units = config.env.num_envs, config.policy.hidden_size
        asked.append((envs, units))
        return lambda device, _: 1.0 if device == CPU else 512 * 1024 / (envs * units)  # equal at 512 with 1,024

    assert devices.crossing(1, time_with) == ""
    monkeypatch.setattr(devices, "found_devices", lambda: [CUDA, CPU])
    assert devices.crossing(1, time_with) == (
        "cuda is faster than the CPU for pong, two hidden layers: with 256 environments at no size,"
        " with 1,024 environments from 1024 units on, with 4,096 environments from 256 units on,"
        " with 16,384 environments from 64 units on"
    )
    assert len(asked) == len(set(asked)) <= 12


def test_what_is_recorded_is_timed_as_it_is_recorded() -> None:
    with standing_in():
        assert timing_of(small(graphs="on"), 1)(CPU, 0.02) > 0.0
    with pytest.raises(ConfigError, match=r"train.graphs cannot be 'on'"):  # the CPU is left out, with this line
        timing_of(small(graphs="on"), 1)(CPU, 0.02)


def test_a_run_says_and_records_its_device_and_keeps_it_when_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(name: str, config: RunConfig, **options: Any) -> tuple[EventLog, checkpoints.Checkpoint]:
        events = EventLog()
        run(config, directory=tmp_path / name, report=events.record, **options)
        return events, checkpoints.read(tmp_path / name / checkpoints.FILE_NAME)

    alone, plain = go("one", small())
    assert (alone[0]["notes"], "device" in alone[-1]["timings"]) == ([], False)
    assert "on_gpu" not in alone[-1]["metrics"]
    for module in ("ppo.device", "run"):
        monkeypatch.setattr(f"protein.trainer.{module}.found_devices", lambda: PAIR)
    monkeypatch.setattr(devices, "timing_of", lambda *_: timing({"cpu:0": 2e6, "cpu": 1e6})())
    events, chosen = go("two", small())
    assert events[0]["device"] == "cpu:0"
    assert events[0]["notes"] == ["cpu:0: 2,000,000 steps a second, cpu: 1,000,000"]
    assert events[-1]["timings"]["device"] > 0.0
    assert events[-1]["metrics"]["on_gpu"] == 0.0
    assert all(torch.equal(tensor, chosen.tensors[name]) for name, tensor in plain.tensors.items())

    monkeypatch.setattr(devices, "timing_of", never)
    longer = small(total_timesteps=512, lr_schedule="constant")
    resumed, _ = go("three", longer, resume=tmp_path / "two" / checkpoints.FILE_NAME)
    assert (resumed[0]["device"], resumed[0]["notes"]) == ("cpu:0", [])
    monkeypatch.undo()
    # Of a GPU that is gone, whose generator of random numbers has a state of another form.
    drawn = {"rollout/actions_generator": torch.arange(16, dtype=torch.uint8)}
    elsewhere = dataclasses.replace(
        chosen, details={**chosen.details, "device": "cuda:1"}, tensors={**chosen.tensors, **drawn}
    )
    checkpoints.write(tmp_path / "elsewhere.safetensors", elsewhere)
    moved, _ = go("four", longer, resume=tmp_path / "elsewhere.safetensors")
    assert (moved[0]["device"], moved[-1]["event"]) == ("cpu", "result")
    assert moved[0]["notes"] == [
        "this run was on cuda:1, which is not here: it goes on elsewhere, so its results differ"
    ]

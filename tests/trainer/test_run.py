"""Whole runs, in this process: what is reported, what ends them, and that they repeat."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from event_log import ONE_MEASUREMENT, EventLog
from ppo_runs import BATCH, small
from whole_runs import go

from protein.trainer.config import RunConfig
from protein.trainer.errors import ConfigError, DiskError, DivergedError, OutOfMemoryError
from protein.trainer.events import Event
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.run import run


def test_a_run_reports_its_start_its_curve_and_its_result(tmp_path: Path) -> None:
    result, events = go(small(), tmp_path, speed=ONE_MEASUREMENT)
    assert [event["event"] for event in events] == ["start", "measurement", "result"]
    start, last, end = events
    assert (start["env"], start["device"], start["threads"]) == ("pong", "cpu", 2)
    assert start["parameters"] == (8 * 8 + 8) + (8 * 8 + 8) + (8 * 4 + 4)
    assert last["steps"] == end["steps"] == result.steps == 4000
    assert 0 < last["elapsed_seconds"] == end["elapsed_seconds"]
    assert {"startup", "evaluation"} <= end["timings"].keys()
    assert {"score_std", "episodes"} <= end["metrics"].keys()
    assert -21 <= end["score"] <= 21 and end["score"] == result.score
    assert Path(end["checkpoint"]) == tmp_path / checkpoints.FILE_NAME
    saved = checkpoints.read(tmp_path / checkpoints.FILE_NAME)
    assert (saved.kind, saved.steps, saved.config) == (checkpoints.PPO, 4000, small().to_dict())


@pytest.mark.parametrize(
    ("seconds", "after"),  # that an iteration takes, and the first iterations after which something is measured
    [
        (0.001, [100]),  # the end alone
        (0.0205, [25, 50, 75, 100]),  # half a second has passed, on top of a fiftieth of the run
        (0.3, [2, 4, 6]),  # a fiftieth of the run is done, on top of half a second
        (11.0, [1, 2, 3]),  # ten seconds have passed
    ],
)
def test_measurements_are_due_by_the_clock_and_by_the_part_that_is_done(
    seconds: float, after: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()  # the clock is asked twice in an iteration
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) * seconds)
    monkeypatch.setattr("protein.trainer.progress.time", clock)
    _, events = go(small(train={"total_timesteps": BATCH * 100, "minibatch_size": BATCH}))
    measured = [event["steps"] for event in events if event["event"] == "measurement"]
    assert measured[: len(after)] == [BATCH * iteration for iteration in after]
    assert len(measured) == len(after) or after[-1] < 100
    assert measured[-1] == BATCH * 100


def test_nothing_is_loaded_while_the_clock_runs() -> None:
    """What torch loads for a backward pass from a gradient takes .7 s, and would be most of a short trial's cost.

    Each run is a fork of a process that has loaded as much as a start of the trainer.
    """
    code = (
        "import json, os, sys\n"
        "from protein.trainer.config import RunConfig\n"
        "from protein.trainer.run import run\n"
        "loaded = {}\n"
        "report = lambda event: loaded.setdefault(event['event'], set(sys.modules))\n"
        "for given in sys.argv[1:]:\n"
        "    if fork := os.fork():\n"
        "        os.waitpid(fork, 0)\n"
        "        continue\n"
        "    run(RunConfig.from_dict(json.loads(given)), directory=None, report=report)\n"
        "    new = loaded['measurement'] - loaded['start']\n"
        "    print(sorted(name for name in new if not name.startswith('torch.profiler')))\n"  # one small module
        "    sys.exit()\n"
    )
    settings: list[dict[str, Any]] = [{}, {"policy": {"recurrence": "lstm"}}, {"train": {"optimizer": "muon"}}]
    configs = [json.dumps(small(**one).to_dict()) for one in settings]
    done = subprocess.run([sys.executable, "-c", code, *configs], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["[]", "[]", "[]", ""]


@pytest.mark.parametrize(
    ("total", "steps"),
    [(1, 16), (16, 16), (17, 32), (511, 512), (512, 512), (513, 528), (1100, 1104)],
)
def test_the_steps_are_the_total_rounded_up_to_whole_vectorised_steps(total: int, steps: int) -> None:
    result, events = go(small(train={"total_timesteps": total}))
    assert result.steps == steps
    assert events[-2]["event"] == "measurement" and events[-2]["steps"] == steps


@pytest.mark.parametrize(
    ("env", "train"),
    [
        ({"num_envs": 1}, {"horizon": 1, "minibatch_size": 1, "total_timesteps": 40}),
        ({"num_envs": 1}, {"horizon": 64, "minibatch_size": 64, "total_timesteps": 200}),
        ({"num_envs": 64}, {"horizon": 1, "minibatch_size": 64, "total_timesteps": 640}),
        ({"num_envs": 3}, {"horizon": 7, "minibatch_size": 10, "total_timesteps": 100, "threads": 4}),
    ],
)
def test_the_smallest_shapes_train(env: dict[str, Any], train: dict[str, Any]) -> None:
    result, _ = go(small(env=env, train=train, eval={"episodes": 1, "num_envs": 1}))
    assert result.score is not None and result.steps >= train["total_timesteps"]


def test_workers_that_no_environment_uses_are_told() -> None:
    short = {"total_timesteps": 64, "horizon": 4, "minibatch_size": 64}
    for workers, notes in ((0, []), (4, ["env.workers has no effect on 'pong': processes are for gym-async:ID alone"])):
        _, events = go(small(env={"workers": workers}, train=short))
        assert events[0]["notes"] == notes


def test_no_score_is_reported_before_an_episode_has_finished() -> None:
    short = {"total_timesteps": 64, "horizon": 4, "minibatch_size": 64}
    _, events = go(small(env={"frame_skip": 1}, train=short), speed=ONE_MEASUREMENT)
    assert events[1]["score"] is None
    assert "train_score" not in events[-1]["metrics"] and events[-1]["score"] is not None


def test_the_training_score_is_the_mean_of_the_last_episodes() -> None:
    """The same run with another window, so the same episodes. A window holds at least one episode of each agent."""
    small_run = {"num_envs": 3}
    short, _ = go(small(env=small_run, train={"score_window": 1, "total_timesteps": 4800, "minibatch_size": 96}))
    long, _ = go(small(env=small_run, train={"score_window": 7, "total_timesteps": 4800, "minibatch_size": 96}))
    never, _ = go(small(env=small_run, train={"score_window": 10**6, "total_timesteps": 4800, "minibatch_size": 96}))
    assert short.metrics["episodes"] == long.metrics["episodes"] == never.metrics["episodes"] >= 7
    assert float(round(3 * short.metrics["train_score"], 6)).is_integer(), "the mean of exactly three whole scores"
    assert float(round(7 * long.metrics["train_score"], 6)).is_integer()
    assert short.metrics["train_score"] != long.metrics["train_score"]
    assert "train_score" not in never.metrics


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    runs = [go(small(train={"seed": seed}), tmp_path / str(i))[0] for i, seed in enumerate((1, 1, 2))]
    tensors = [checkpoints.read(tmp_path / str(i) / checkpoints.FILE_NAME).tensors for i in range(3)]
    assert runs[0].score == runs[1].score
    assert all(tensors[0][name].equal(tensors[1][name]) for name in tensors[0])
    weights = [name for name in tensors[0] if name.startswith("policy/") and name.endswith("weight")]
    assert not any(tensors[0][name].equal(tensors[2][name]) for name in weights)


def test_a_time_limit_ends_training_normally() -> None:
    config = small(train={"total_timesteps": 10**12, "max_seconds": 0.2})
    result, events = go(config)
    assert result.score is not None and not result.interrupted
    assert events[-1]["event"] == "result" and events[-1]["stopped"] == "max_seconds"
    assert result.elapsed_seconds >= 0.2 and 0 < result.steps < 10**12


@pytest.mark.parametrize("train", [{}, {"overlap": True}])
def test_a_time_limit_holds_within_an_iteration(train: dict[str, Any], tmp_path: Path) -> None:
    """The limit is over before the first iteration is: the rollout is cut short, and no minibatch follows."""
    config = small(train={"total_timesteps": 10**12, "max_seconds": 1e-6, **train})
    agents = config.env.num_envs
    result, events = go(config, tmp_path)
    assert result.steps == agents and events[-1]["stopped"] == "max_seconds" and result.score is not None
    saved = checkpoints.read(tmp_path / checkpoints.FILE_NAME)
    fresh, _ = go(config, tmp_path / "again")
    again = checkpoints.read(tmp_path / "again" / checkpoints.FILE_NAME)
    assert fresh.score == result.score
    assert all(t.equal(again.tensors[name]) for name, t in saved.tensors.items() if name.startswith("policy/"))
    # What was cut short can go on.
    more, events = go(
        small(train={**train, "total_timesteps": 4 * agents}),
        tmp_path / "more",
        resume=tmp_path / checkpoints.FILE_NAME,
    )
    assert more.steps == 4 * agents and events[-1]["stopped"] == "steps"


def test_divergence_ends_as_failed_with_the_step(tmp_path: Path) -> None:
    events = EventLog()
    config = small(train={"learning_rate": 1e30, "lr_schedule": "constant"})
    with pytest.raises(DivergedError, match=r"diverged at step \d+: .* not finite: lower train.learning_rate"):
        run(config, directory=tmp_path, report=events.record)
    failed = events[-1]
    assert (failed["event"], failed["reason"]) == ("failed", "diverged")
    assert 0 < failed["steps"] <= 4000 and failed["elapsed_seconds"] > 0
    assert not (tmp_path / checkpoints.FILE_NAME).exists(), "weights that are not finite are not kept"


def test_a_full_disk_at_the_end_loses_no_measurement(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    events = EventLog()

    def report(event: Event) -> None:
        events.record(event)
        if event["event"] == "start":  # the folder could be made when the run began
            directory.write_text("in the way")

    with pytest.raises(DiskError, match="cannot write"):
        run(small(), directory=directory, report=report, speed=ONE_MEASUREMENT)
    assert [event["event"] for event in events] == ["start", "measurement", "failed"]
    assert (events[-1]["reason"], events[-1]["steps"]) == ("disk", 4000)
    assert events[-1]["elapsed_seconds"] == events[1]["elapsed_seconds"] > 0


def test_a_run_that_asks_for_too_much_memory_says_so() -> None:
    events = EventLog()
    with pytest.raises(OutOfMemoryError, match=r"out of memory: lower env\.num_envs"):  # a billion rows of 8 floats
        run(
            small(env={"num_envs": 2**12}, train={"horizon": 2**20, "minibatch_size": 2**20}),
            directory=None,
            report=events.record,
        )
    assert [(event["event"], event["reason"]) for event in events] == [("failed", "memory")]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"env": {"name": "pang"}}, "did you mean 'pong'"),
        ({"train": {"minibatch_size": 1024}}, r"minibatch_size \(1024\) is larger than the batch"),
        ({"train": {"device": "cuda:99"}}, "'cuda:99' is not available"),
    ],
)
def test_what_cannot_be_run_is_refused_before_training(sections: dict[str, Any], message: str) -> None:
    events = EventLog()
    with pytest.raises(ConfigError, match=message):
        run(small(**sections), directory=None, report=events.record)
    assert [(event["event"], event["reason"]) for event in events] == [("failed", "config")]


def test_compilation_that_fails_is_gone_on_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object, **options: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", fail)
    result, events = go(small(train={"compile": True}))
    assert result.score is not None and "compile" in result.timings
    assert events[0]["compiled"] is False
    assert "no compiler here" in caplog.text


def test_bf16_trains() -> None:
    result, _ = go(small(train={"precision": "bf16"}))
    assert result.score is not None


def test_it_learns_within_half_a_million_steps() -> None:
    """A real, short training: an untrained policy scores about -19."""
    config = RunConfig.from_dict(
        {
            "env": {"num_envs": 256, "frame_skip": 8},
            "train": {"total_timesteps": 500_000, "threads": 1, "minibatch_size": 2048, "learning_rate": 0.005},
            "eval": {"episodes": 128, "num_envs": 128},
        }
    )
    result, _ = go(config)
    assert result.score is not None and result.score > -5


def test_every_shape_of_a_compiled_run_is_tried_before_its_clock_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape that the clock meets first would be compiled on it."""
    seen: list[tuple[tuple[int, ...], bool]] = []
    compiled = False

    def watch(forward: Any, **_: object) -> Any:
        def watched(observations: torch.Tensor, *rest: Any) -> Any:
            seen.append((tuple(observations.shape), compiled))
            return forward(observations, *rest)

        return watched

    monkeypatch.setattr(torch, "compile", watch)
    # 6 agents, minibatches of 4 and 2 segments, accumulated in parts of 2 and 1; the last iteration has 3 steps of 8.
    train = {
        "compile": True,
        "total_timesteps": 6 * (8 + 3),
        "horizon": 8,
        "minibatch_size": 32,
        "accumulation_steps": 2,
    }
    events = EventLog()

    def note(event: Event) -> None:
        nonlocal compiled
        compiled = compiled or event["event"] == "start"
        events.record(event)

    run(small(env={"num_envs": 6}, train=train), directory=None, report=note)
    tried = {shape for shape, after in seen if not after}
    needed = {shape for shape, after in seen if after}
    assert events[0]["compiled"] is True and len(needed) > 2
    assert needed <= tried


def test_the_clock_goes_as_fast_as_it_is_told(tmp_path: Path) -> None:
    limit = {"total_timesteps": 50_000_000, "max_seconds": 5000.0}
    result, events = go(small(train=limit), tmp_path, speed=1e6)  # five thousandths of a second of this machine
    assert events[-1]["stopped"] == "max_seconds"
    assert result.elapsed_seconds >= 5000.0
    assert result.steps < 50_000_000
    assert checkpoints.read(tmp_path / checkpoints.FILE_NAME).elapsed_seconds == result.elapsed_seconds
    measured = [event for event in events if event["event"] == "measurement"][-1]
    own_seconds = measured["elapsed_seconds"] / 1e6
    assert measured["metrics"]["steps_per_second"] == pytest.approx(measured["steps"] / own_seconds)


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf"), float("nan")])
def test_a_clock_that_cannot_go_is_refused(speed: float) -> None:
    with pytest.raises(ConfigError, match="the speed of the clock must be above 0 and finite"):
        go(small(), speed=speed)

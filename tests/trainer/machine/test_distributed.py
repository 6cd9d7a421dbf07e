"""Two processes that train together: the same as one, and as they themselves after an interruption."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from event_log import ONE_MEASUREMENT, EventLog
from patience import PATIENCE_SECONDS

from protein.trainer.config import RunConfig, check_batch
from protein.trainer.errors import CheckpointError, ConfigError
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine.distributed import World
from protein.trainer.run import run

pytestmark = pytest.mark.usefixtures("warm")

ITERATION = 16 * 32  # samples: all of them are one minibatch, so that shuffling cannot matter
SMALL: dict[str, dict[str, Any]] = {
    "env": {"num_envs": 16, "frame_skip": 64},
    "policy": {"hidden_size": 8, "recurrence": "lstm"},
    "train": {
        "total_timesteps": 3 * ITERATION,
        "threads": 2,
        "device": "cpu",
        "horizon": 32,
        "minibatch_size": ITERATION,
        "lr_schedule": "constant",
        "learning_rate": 0.001,
        "score_window": 7,
    },
    "eval": {"episodes": 2, "num_envs": 2},
}


def small(**train: Any) -> dict[str, Any]:
    return SMALL | {"train": SMALL["train"] | train}


CONDITIONED = small(normalize_observations="on", reward_scaling="return", reward_clip=5.0)

IDLE = CONDITIONED | {"env": {"name": "python:idle_agents:Pairs", "num_envs": 8}}


def decaying(iterations: int) -> dict[str, Any]:
    return small(lr_schedule="wsd", decay_fraction=0.5, total_timesteps=iterations * ITERATION)


def run_ranks(jobs: list[dict[str, Any]]) -> None:
    names = {"WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo", "OMP_WAIT_POLICY": "PASSIVE"}
    script = str(Path(__file__).parents[2] / "support" / "rank_jobs.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, script, json.dumps(jobs)],
            env=os.environ | names | {"RANK": str(rank)},
            stderr=-1,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            _, err = rank.communicate(timeout=PATIENCE_SECONDS)
            assert rank.returncode == 0, err
    finally:
        for rank in ranks:
            rank.kill()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs of two ranks: `short`, `half`, `straight` (twice as long), `resumed` (from half on), others.

    `continued` is `longer`, begun as `decayed`.
    """
    folder = tmp_path_factory.mktemp("ranks")
    # Many minibatches, accumulation, batches collected during updates: whatever could part the ranks.
    busy = small(total_timesteps=6 * ITERATION, minibatch_size=128, accumulation_steps=2, overlap=True)
    half = small(minibatch_size=128, accumulation_steps=2)
    run_ranks(
        [
            {"config": small(), "directory": str(folder / "short")},
            {"config": half, "directory": str(folder / "half")},
            {"config": CONDITIONED, "directory": str(folder / "conditioned")},
            {
                "config": half | {"train": half["train"] | {"total_timesteps": 6 * ITERATION}},
                "directory": str(folder / "resumed"),
                "resume": str(folder / "half" / checkpoints.FILE_NAME),
            },
            {
                "config": half | {"train": half["train"] | {"total_timesteps": 6 * ITERATION}},
                "directory": str(folder / "straight"),
            },
            {"config": decaying(3), "directory": str(folder / "decayed")},
            {
                "config": decaying(6),
                "directory": str(folder / "continued"),
                "continue_from": str(folder / "decayed" / checkpoints.STABLE_FILE_NAME),
            },
            {"config": decaying(6), "directory": str(folder / "longer")},
            {"config": busy, "directory": str(folder / "busy")},
            {"config": IDLE, "directory": str(folder / "idle")},
            {"config": small(learning_rate=1e30), "directory": str(folder / "diverged")},
        ]
    )
    return folder


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return dict(checkpoints.read(folder / checkpoints.FILE_NAME).tensors)


def events_of(folder: Path, rank: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(folder.with_suffix(f".rank{rank}.json").read_text())
    return events


def test_two_ranks_leave_the_same_idle_agents_out_as_one_process(done: Path, tmp_path: Path) -> None:
    """Each rank has other numbers of them. They count in no mean, whether over ranks or not."""
    run(RunConfig.from_dict(IDLE), directory=tmp_path, report=EventLog().record)
    one, two = tensors(tmp_path), tensors(done / "idle")
    for name in one:
        if name.startswith(("policy/", "optimizer/")) and one[name].is_floating_point():
            torch.testing.assert_close(two[name], one[name], rtol=2e-4, atol=2e-6)
    for name in ("observations.mean", "observations.squares", "returns.squares"):
        torch.testing.assert_close(two[f"scaling/{name}"], one[f"scaling/{name}"])
    assert two["scaling/observations.count"].equal(one["scaling/observations.count"])
    assert one["scaling/observations.mean"].min() > 2, "idle rows are zeros, and the others have a mean near 3"


def test_two_ranks_take_the_same_steps_as_one_process(done: Path, tmp_path: Path) -> None:
    alone = EventLog()
    run(RunConfig.from_dict(small()), directory=tmp_path, report=alone.record, speed=ONE_MEASUREMENT)
    one, two = tensors(tmp_path), tensors(done / "short")
    for name in one:
        if name.startswith(("policy/", "optimizer/")) and one[name].is_floating_point():
            torch.testing.assert_close(two[name], one[name], rtol=2e-4, atol=2e-6)
    # The same games were played: their noise and their starts are those of one process, shared out.
    for name in ("observations", "resets"):
        both = torch.cat([two[f"rollout/{name}"], two[f"rollout1/{name}"]])
        torch.testing.assert_close(both, one[f"rollout/{name}"], rtol=1e-5, atol=1e-5)
    assert two["rollout1/actions_generator"].equal(one["rollout/actions_generator"])

    first, last = events_of(done / "short", 0), events_of(done / "short", 1)
    assert [event["event"] for event in first] == ["start", "measurement", "result"] and last == []
    assert (first[0]["processes"], alone[0]["processes"]) == (2, 1)
    ours, theirs = first[1], alone[1]
    assert ours["steps"] == theirs["steps"] == 3 * ITERATION
    assert ours["metrics"]["episodes"] == theirs["metrics"]["episodes"] > 7
    for name in ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance"):
        assert ours["metrics"][name] == pytest.approx(theirs["metrics"][name], rel=1e-3, abs=1e-6), name


def test_two_ranks_normalise_and_scale_by_what_both_have_seen(done: Path, tmp_path: Path) -> None:
    """Also the random play before the first step is one process's, shared out."""
    run(RunConfig.from_dict(CONDITIONED), directory=tmp_path, report=lambda _: None)
    one, two = tensors(tmp_path), tensors(done / "conditioned")
    assert sum(name.startswith("scaling/") for name in one) == 6
    for name in one:
        if name.startswith("scaling/"):
            torch.testing.assert_close(two[name], one[name], rtol=1e-9, atol=1e-12)
        if name.startswith("policy/"):
            torch.testing.assert_close(two[name], one[name], rtol=2e-4, atol=2e-6)
    both = torch.cat([two[f"rollout{rank}/discounted_returns"] for rank in ("", "1")])
    torch.testing.assert_close(both, one["rollout/discounted_returns"])


def test_the_window_of_scores_holds_the_last_ones_of_all_ranks(done: Path) -> None:
    scores = tensors(done / "short")["run/scores"]
    assert len(scores) == 16, "one for each agent, though the window asked for 7"
    (measured,) = (event["score"] for event in events_of(done / "short", 0) if event["event"] == "measurement")
    assert measured == pytest.approx(float(scores.mean()))


def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(done: Path) -> None:
    ours, theirs = tensors(done / "resumed"), tensors(done / "straight")
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    scores = [events_of(done / name, 0)[-1]["score"] for name in ("resumed", "straight")]
    assert scores[0] == scores[1] is not None


def test_a_continued_run_equals_the_longer_run_in_one_go(done: Path) -> None:
    ours, theirs = tensors(done / "continued"), tensors(done / "longer")
    assert all(ours[name].equal(theirs[name]) for name in ours)
    assert events_of(done / "continued", 0)[0]["steps"] == 2 * ITERATION


def test_accumulation_and_overlapping_run_on_ranks(done: Path) -> None:
    assert events_of(done / "busy", 0)[-1]["event"] == "result"


def test_divergence_ends_both_and_is_reported_once(done: Path) -> None:
    first, last = events_of(done / "diverged", 0), events_of(done / "diverged", 1)
    assert [(event["event"], event.get("reason")) for event in first[-2:]] == [("failed", "diverged"), ("raised", None)]
    assert last == [{"event": "raised", "kind": "DivergedError"}]


def test_a_checkpoint_of_two_ranks_wants_two(done: Path) -> None:
    with pytest.raises(CheckpointError, match=r"with 1 processes: it was written by 2: use --nproc 2"):
        run(
            RunConfig.from_dict(small()),
            directory=None,
            report=lambda _: None,
            resume=done / "short" / checkpoints.FILE_NAME,
        )


@pytest.mark.usefixtures("cold")
def test_torchrun_gives_the_same(done: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(small()))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += [
        "--local-addr",
        "localhost",
        "-m",
        "protein.trainer",
        "--config",
        str(file),
        "--directory",
        str(tmp_path),
    ]
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    events = [json.loads(line) for line in process.stdout.splitlines()]
    kinds = [event["event"] for event in events]  # on a busy machine a second measurement is due before the end
    assert kinds == ["start", *["measurement"] * (len(kinds) - 2), "result"], "the first rank alone reports"
    steps = [event["steps"] for event in events[1:-1]]
    assert steps and steps == sorted(set(steps)), "the first rank alone reports"
    ours, theirs = tensors(tmp_path), tensors(done / "short")
    assert ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)


def test_what_cannot_be_shared_evenly_is_refused() -> None:
    config = RunConfig.from_dict(SMALL)
    config.check_processes(4)
    with pytest.raises(ConfigError, match=r"env.num_envs \(16\) must be a multiple of 3, so that 3 processes share"):
        config.check_processes(3)
    check_batch(config, 1, 16, has_memory=True)
    with pytest.raises(ConfigError, match=r"minibatch_size \(512\) is smaller .* in each of 17 processes"):
        check_batch(config, 1, 17, has_memory=True)


def test_each_rank_wants_a_device_of_its_own() -> None:
    world = World(rank=1, size=2, local_rank=1, local_size=2)
    assert world.device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"2 processes cannot share train.device 'cuda:0': use 'cuda'"):
        world.device(torch.device("cuda:0"))
    with pytest.raises(ConfigError, match=r"2 processes need a device each, and train.device 'mps' gives 1"):
        world.device(torch.device("mps"))


def test_one_process_alone_pays_and_changes_nothing() -> None:
    world, numbers = World(), torch.tensor([1.0, 2.0, 6.0])
    assert world.sum_(numbers) is numbers and numbers.tolist() == [1.0, 2.0, 6.0]
    assert world.agree(True, 2.5) == (True, 2.5)
    assert world.gather("x") == ["x"]
    deviation, mean = world.std_mean(numbers)
    assert float(mean) == 3.0
    assert float(deviation) == pytest.approx((14 / 3) ** 0.5)

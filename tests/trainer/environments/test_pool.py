"""Worker processes over shared memory: the same rows as in one process, in whatever order they come."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gym_worlds
import numpy as np
import psutil
import pytest
import torch
from patience import PATIENCE_SECONDS
from training_parts import make_policy, make_rollout

from protein.trainer.environments import groups, make, resume, worker
from protein.trainer.environments.pool import PoolEnv
from protein.trainer.errors import ConfigError, TrainerError
from protein.trainer.ppo.rollout import Batch, Rollout

COUNTER = "gym-async:gym_worlds:Counter-v0"


def collect(rollout: Rollout, times: int = 3) -> list[torch.Tensor]:
    """Returns everything of some batches; a batch is overwritten by the next."""
    found: list[torch.Tensor] = []
    for _ in range(times):
        batch: Batch = rollout.collect(gym_worlds.LIMIT - 2)
        parts = (batch.observations, batch.actions, batch.logprobs, batch.values, batch.rewards, batch.ends)
        found += [part.clone() for part in parts]
    return found


@pytest.mark.parametrize("recurrence", ["none", "mingru"])
def test_batches_are_those_of_one_process_whatever_the_workers(recurrence: str) -> None:
    alone = [make("gym" + COUNTER.removeprefix("gym-async"), 2, first_index=2 * part) for part in range(4)]
    policy = make_policy(alone[0].spec, recurrence=recurrence)
    rollout = make_rollout(alone, policy, gym_worlds.LIMIT - 2)
    rollout.reset(1)
    expected = collect(rollout)
    episodes = rollout.drain_episodes()
    assert len(episodes) >= 8
    for workers in (1, 3):
        pool = make(COUNTER, 8, workers=workers)
        assert isinstance(pool, PoolEnv) and pool.workers == workers
        in_processes = make_rollout(list(groups(pool)), policy, gym_worlds.LIMIT - 2)
        in_processes.reset(1)
        for ours, theirs in zip(collect(in_processes), expected, strict=True):
            assert torch.equal(ours, theirs)
        drained = in_processes.drain_episodes()
        assert (drained.agent.tolist(), drained.score.tolist()) == (episodes.agent.tolist(), episodes.score.tolist())
        pool.close()


def test_a_rollout_that_is_out_of_time_ends_at_one_step_for_all_groups() -> None:
    pool = make(COUNTER, 5, workers=2)
    rollout = make_rollout(list(groups(pool)), make_policy(pool.spec), gym_worlds.LIMIT)
    rollout.reset(1)
    batch = rollout.collect(gym_worlds.LIMIT, lambda: True)
    assert batch.rewards.shape == (1, 5)
    ages = (~batch.ends[0]).float()  # an episode that has ended has begun anew
    again = rollout.collect(gym_worlds.LIMIT)
    assert torch.equal(again.observations[0, :, 1], ages) and ages.any(), "it goes on from there"
    pool.close()


def test_a_pool_that_is_resumed_begins_new_episodes_once() -> None:
    pool, observations = make(COUNTER, 5, workers=1), np.zeros((5, 2), np.float32)
    rollout = make_rollout(list(groups(pool)), make_policy(pool.spec), gym_worlds.LIMIT)
    rollout.reset(1)
    rollout.collect(2)
    saved = rollout.state()
    firsts = []
    for _ in range(2):
        rollout.set_state(saved)
        batch = rollout.collect(1)
        firsts.append(batch.observations[0].clone())
    assert torch.equal(firsts[0], firsts[1]) and (firsts[0][:, 1] == 0).all()
    assert len(firsts[0][:, 0].unique()) == 5
    assert not resume(pool, pool.get_state(), observations)
    with pytest.raises(ValueError, match="the state is not of 5 environments"):
        pool.set_state(b"{}")
    pool.close()


def test_the_number_of_workers_is_measured_and_bounded() -> None:
    pool = make(COUNTER, 3)
    assert isinstance(pool, PoolEnv)
    assert 1 <= pool.workers <= min(3, os.cpu_count() or 1)
    assert len(pool.processes) == pool.workers
    pool.close()


def test_an_error_in_a_worker_is_told_in_one_line() -> None:
    faulty = make("gym-async:gym_worlds:Faulty-v0", 2, args={"fault": "nan"}, workers=2)
    observations, rewards, ends = np.zeros((2, 2), np.float32), np.zeros(2, np.float32), np.zeros((2, 2), np.bool_)
    faulty.reset(0, observations)
    faulty.step(np.array([0, 0]), observations, rewards, *ends)
    with pytest.raises(TrainerError, match=r"instance 1 of '.*Faulty-v0' observed nan in element 1") as raised:
        faulty.step(np.array([0, 1]), observations, rewards, *ends)
    assert "\n" not in str(raised.value)
    faulty.close()
    with pytest.raises(ConfigError, match=r"takes no argument env.args.falt; did you mean 'fault'"):
        make("gym-async:gym_worlds:Faulty-v0", 2, args={"falt": "nan"})


def test_a_worker_that_fails_after_another_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trainer has closed the pipes by then."""

    def fails(*_: Any) -> None:
        raise TrainerError("an environment is wrong")

    monkeypatch.setattr(worker, "_work", fails)
    monkeypatch.setattr(worker, "Shared", lambda layout: layout)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    ours, theirs = multiprocessing.Pipe()
    ours.send(SimpleNamespace(path=sys.path))
    ours.close()
    read, write = os.pipe()
    os.close(read)
    worker.main(0, theirs, write)
    os.close(write)
    theirs.close()
    assert not capsys.readouterr().err


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_dies_within_a_step_ends_the_run(workers: int) -> None:
    envs = make(COUNTER, 2, workers=workers)
    assert isinstance(envs, PoolEnv)
    envs.reset(0, np.zeros((2, 2), np.float32))
    envs.processes[0].send_signal(signal.SIGSTOP)
    for group in envs.groups:
        group.begin(np.zeros((1, 1), np.int32))
    envs.processes[0].kill()
    envs.processes[0].wait()
    with pytest.raises(TrainerError, match="has died"):
        for group in envs.groups:
            envs.wait(group.number)
    envs.close()


def test_processes_that_nobody_closed_do_not_outlive_the_trainer() -> None:
    """Neither in a program of its own nor in a sweep's trial, which is a process of multiprocessing's."""
    code = (
        "import multiprocessing, numpy as np\n"
        "from protein.trainer.environments import make\n"
        "def run():\n"
        f"    envs = make({COUNTER!r}, 2, workers=2)\n"
        "    envs.reset(0, np.zeros((2, 2), np.float32))\n"
        "    print(*(process.pid for process in envs.processes), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    trial = multiprocessing.get_context('fork').Process(target=run)\n"
        "    trial.start()\n"
        "    trial.join()\n"
        "    run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
        cwd=Path(gym_worlds.__file__).parent,
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 4
    assert not any(psutil.pid_exists(pid) for pid in pids)

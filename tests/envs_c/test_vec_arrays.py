"""The vectorised binding's arrays: which it takes, and which threads and processes may step them."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from env_buffers import SENTINEL, Buffers, Stepper, scripted_actions
from patience import PATIENCE_SECONDS

from protein import envs_c

WRONG_ARRAYS = [
    ("actions", np.zeros(4, np.int64), r"actions must be a C-contiguous int32 array of shape \(4,\), got dtype int64"),
    ("actions", np.zeros(5, np.int32), r"got shape \(5,\)"),
    ("actions", np.zeros((4, 2), np.int32), r"of shape \(4, 1\), got shape \(4, 2\)"),
    ("actions", np.zeros((2, 2), np.int32), r"got shape \(2, 2\)"),
    ("actions", np.zeros(4, np.float32), "got dtype float32"),
    ("actions", [0, 0, 0, 0], "got list"),
    ("actions", np.array([0, 1, 2, 3], np.int32), r"actions\[3\] is 3; pong takes 0 to 2"),
    ("actions", np.array([0, -1, 2, 0], np.int32), r"actions\[1\] is -1; pong takes 0 to 2"),
    ("observations", np.zeros((4, 8), np.float64), "observations must be a writeable .* got dtype float64"),
    ("observations", np.zeros((8, 4), np.float32), r"of shape \(4, 8\), got shape \(8, 4\)"),
    ("observations", np.zeros((8, 4), np.float32).T, "got one that is not contiguous"),
    ("rewards", np.zeros(8, np.float32)[::2], "rewards must be .* got one that is not contiguous"),
    ("rewards", np.zeros(4, np.float32).astype(">f4"), "got dtype >f4"),
    ("rewards", np.zeros(17, np.uint8)[1:].view(np.float32), "got one that is not aligned"),
    ("terminals", np.zeros(4, np.int32), "terminals must be a writeable C-contiguous bool array"),
    ("truncations", np.broadcast_to(np.zeros(1, np.bool_), (4,)), "got one that is not contiguous"),
    ("truncations", np.frombuffer(b"\0" * 4, np.bool_), "got a read-only one"),
    ("final_observations", np.zeros((4, 7), np.float32), "final_observations must be .* got shape"),
]


@pytest.mark.parametrize(("name", "wrong", "message"), WRONG_ARRAYS)
def test_wrong_arrays_are_refused_before_anything_moves(name: str, wrong: object, message: str) -> None:
    vec = envs_c.VecEnv("pong", 4)
    before = vec.get_state()
    out = Buffers.of(vec)
    arrays = {"actions": np.zeros(4, np.int32), **vars(out), name: wrong}
    with pytest.raises(ValueError, match=message):
        vec.step(**arrays)
    assert vec.get_state() == before
    if name == "observations":
        with pytest.raises(ValueError, match=message):
            vec.reset(0, wrong)  # type: ignore[arg-type]
        assert vec.get_state() == before


def test_a_column_of_actions_is_the_same_as_a_row() -> None:
    flat, column = Stepper("pong", 40, seed=2), Stepper("pong", 40, seed=2)
    for step in range(100):
        actions = scripted_actions(step, 40, flat.vec.spec)
        assert actions.shape == (40, 1)
        assert flat.step(actions.ravel()).bytes() == column.step(actions).bytes()


def test_tensors_share_their_memory_with_a_step() -> None:
    vec = envs_c.VecEnv("pong", 8)
    observations = torch.zeros(8, 8)
    rewards, terminals, truncations = torch.full((8,), 9.0), torch.ones(8, dtype=torch.bool), torch.ones(8).bool()
    actions = torch.ones(8, dtype=torch.int32)
    vec.step(actions.numpy(), observations.numpy(), rewards.numpy(), terminals.numpy(), truncations.numpy())
    assert observations[:, 0].tolist() == [0.015625] * 8
    assert rewards.tolist() == [0.0] * 8
    assert not terminals.any()
    assert not truncations.any()


def test_a_row_of_a_larger_buffer_is_written_in_place_and_nothing_beside_it() -> None:
    stepper = Stepper("pong", 6, frame_skip=3)
    rollout = np.full((5, 6, 8), SENTINEL, np.float32)
    stepper.vec.step(np.zeros(6, np.int32), rollout[2], *stepper.out.arrays()[1:])
    assert (rollout[2] != SENTINEL).all()
    assert (rollout[[0, 1, 3, 4]] == SENTINEL).all()


def test_uint8_serves_as_bool() -> None:
    stepper = Stepper("pong", 4)
    terminals, truncations = np.full(4, 7, np.uint8), np.full(4, 7, np.uint8)
    out = stepper.out
    stepper.vec.step(np.zeros(4, np.int32), out.observations, out.rewards, terminals, truncations)
    assert terminals.tolist() == truncations.tolist() == [0] * 4


def test_a_step_releases_the_gil() -> None:
    """With an endless switch interval the main thread can go on only if `step` lets go of the GIL by itself."""
    vec = envs_c.VecEnv("pong", 4096, frame_skip=64)
    actions, arrays = np.zeros(4096, np.int32), Buffers.of(vec).arrays()
    stepping: list[bool] = []
    seen: list[bool] = []
    noticed: list[bool] = []

    def work() -> None:  # plain lists: an Event would wait for its lock, and that lets go of the GIL
        stepping.append(True)
        for _ in range(2000):
            vec.step(actions, *arrays)
            if seen:
                noticed.append(True)
                return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        worker = threading.Thread(target=work)
        worker.start()
        while not stepping:
            time.sleep(0.0005)
        seen.append(True)
        worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert noticed


@pytest.mark.parametrize("threads", [1, 3])
def test_calls_from_several_threads_take_turns(threads: int) -> None:
    shared = Stepper("pong", 512, seed=1, frame_skip=4, threads=threads)
    alone = Stepper("pong", 512, seed=1, frame_skip=4)
    actions = np.ones(512, np.int32)

    def work() -> None:
        out = Buffers.of(shared.vec)
        for _ in range(100):
            shared.vec.step(actions, *out.arrays())

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for _ in range(300):
        alone.step(actions)
    assert shared.vec.get_state() == alone.vec.get_state()


def test_a_forked_child_steps_without_the_threads_and_ends() -> None:
    script = """
        import gc, os, sys, time
        from env_buffers import Stepper

        parent, child = (Stepper("pong", 1000, threads=3) for _ in range(2))
        parent.step()
        child.step()
        time.sleep(0.2)  # the workers sleep now, as they mostly do
        pid = os.fork()
        if pid == 0:
            for _ in range(20):
                child.step()
            state = child.vec.get_state()
            for _ in range(20):
                parent.step()
            same = parent.vec.get_state() == state
            del child, parent
            gc.collect()
            os._exit(0 if same else 1)
        parent.step()
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
    )


def test_the_package_needs_numpy_alone() -> None:
    others = {"torch", "protein.trainer", "protein.storage", "protein.engine"}
    script = f"import sys, protein.envs_c; assert not {others} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE_SECONDS)

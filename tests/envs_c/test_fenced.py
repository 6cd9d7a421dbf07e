"""The compiled module over arrays that lie between pages which nobody may touch: a stray access ends the process.

`test_native.py` does this with each header; here it is the batch loops' turn, as they were built: first and last
rows, chunks of threads, final observations, agents that end alone.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from env_buffers import GAMES
from patience import PATIENCE_SECONDS

SCRIPT = """
    import ctypes, mmap, sys
    import numpy as np
    from protein import envs_c
    from env_buffers import Buffers, scripted_actions

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    PAGE, NONE, READ_WRITE = mmap.PAGESIZE, 0, mmap.PROT_READ | mmap.PROT_WRITE
    RUBBISH = 0xA5
    rooms = []

    def fenced(like, at_end):
        room = -(-like.nbytes // PAGE) * PAGE
        start = libc.mmap(None, room + 2 * PAGE, NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0) + PAGE
        assert libc.mprotect(start, room, READ_WRITE) == 0
        pages = np.frombuffer((ctypes.c_uint8 * room).from_address(start), np.uint8)
        pages[:] = RUBBISH
        low = room - like.nbytes if at_end else 0
        rooms.append((pages[:low], pages[low + like.nbytes:]))
        return pages[low:low + like.nbytes].view(like.dtype).reshape(like.shape)

    def play(name):
        ends = 0
        for num_envs, threads, frame_skip, at_end in [(1, 1, 1, 1), (65, 2, 8, 1), (200, 3, 5, 0), (130, 1, 3, 0)]:
            vec = envs_c.VecEnv(name, num_envs, frame_skip=frame_skip, threads=threads)
            actions = fenced(scripted_actions(0, vec.num_agents, vec.spec), at_end)
            out = Buffers(**{key: fenced(array, at_end) for key, array in vars(Buffers.of(vec)).items()})
            vec.reset(1, out.observations)
            assert np.isfinite(out.observations).all()
            for step in range(300 if vec.spec.agents_per_env < 20 else 15):
                actions[:] = scripted_actions(step, vec.num_agents, vec.spec)
                out.dirty()
                arrays = out.arrays()
                vec.step(actions, *(arrays if step % 3 else arrays[:-1]))
                assert np.array_equal(actions, scripted_actions(step, vec.num_agents, vec.spec))
            ends += len(vec.drain_episodes())
        assert ends > 0
        assert all((part == RUBBISH).all() for room in rooms for part in room)
        rooms.clear()

    play(sys.argv[1])
    if sys.argv[2:]:  # and one element too few, which must not go unnoticed
        array = fenced(np.zeros(4, np.float32), 1)
        longer = np.frombuffer((ctypes.c_float * 5).from_address(array.ctypes.data), np.float32)
        envs_c.VecEnv(sys.argv[1], 5).step(*[np.zeros(5, np.int32), np.zeros((5, 8), np.float32)], longer,
                                           *np.zeros((2, 5), np.bool_))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment)


@pytest.mark.parametrize("name", GAMES)
def test_no_step_touches_anything_beside_the_callers_arrays(name: str) -> None:
    done = run(name)
    assert done.returncode == 0, done.stderr


def test_the_fence_is_closed() -> None:
    assert run("pong", "and beyond").returncode < 0  # killed by a signal

"""A worker process of `pool`: owns some instances of every group and steps a group when it is told to.

It is a program of its own, `python -m protein.trainer.environments.worker`, and does not import the trainer's main
module. It gets two descriptors: a socket to the trainer, and the pipe for the answers of all workers. The first message
is a `Layout`. The worker ends when the socket is closed.
"""

import contextlib
import math
import mmap
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import TrainerError
from ..users_code import RAISED, fail
from .base import Rows
from .instances import Instances

PROBE_SECONDS = 0.1  # for which an instance is stepped to see how fast it is
LINGER_SECONDS = 5.0  # for which a worker that has failed waits to be ended
GROUPS = 4  # that are in flight together
READY, FAILED = 254, 255  # answers, instead of a group's number
PROBE, BUILD, RESET = b"P", b"B", b"R"  # commands, instead of a group's number
MOST_WORKERS = 128


class Layout(NamedTuple):
    """What a worker needs to know: which environment, and which rows of the shared arrays are its own."""

    name: str
    args: Mapping[str, Any]
    frame_skip: int
    first_index: int
    rows: int
    size: int
    dtype: str
    components: int
    actions: str
    path: list[str]  # of modules, as in the trainer
    memory: int  # descriptor of the shared memory


class Shared:
    """The arrays in shared memory, each at a multiple of 64 bytes."""

    def __init__(self, layout: Layout) -> None:
        buffer, at = mmap.mmap(layout.memory, num_bytes(layout)), 0
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, shape, dtype in _arrays(layout):
            count = math.prod(shape)
            arrays[name] = np.frombuffer(buffer, dtype, count, at).reshape(shape)
            at += _padded(count * np.dtype(dtype).itemsize)
        self.actions, self.probed = arrays["actions"], arrays["probed"]
        self.rows = Rows(*(arrays[name] for name in Rows._fields))


def num_bytes(layout: Layout) -> int:
    """Returns the size of the shared memory."""
    return sum(_padded(math.prod(shape) * np.dtype(dtype).itemsize) for _, shape, dtype in _arrays(layout))


def _arrays(layout: Layout) -> list[tuple[str, tuple[int, ...], str]]:
    rows = layout.rows
    return [
        ("observations", (rows, layout.size), layout.dtype),
        ("finals", (rows, layout.size), layout.dtype),
        ("actions", (rows, layout.components), layout.actions),
        ("rewards", (rows,), "float32"),
        ("terminals", (rows,), "bool"),
        ("truncations", (rows,), "bool"),
        ("probed", (MOST_WORKERS,), "float64"),
    ]


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


def main(number: int, commands: Connection, answers: int) -> None:
    """Does what it is told until the trainer has closed the socket or is gone."""
    # Ctrl-C and a sweep's SIGTERM go to the trainer's whole group, of which this process is no part. But a terminal's
    # user may signal all that it shows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        layout = commands.recv()
        sys.path[:] = layout.path
        _work(number, Shared(layout), layout, commands, answers)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception as error:
        text = str(error) if isinstance(error, TrainerError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, TrainerError):
            traceback.print_exc()
        with contextlib.suppress(OSError):  # another worker has failed before, and the trainer has closed the pipes
            commands.send(" ".join(text.split()))
            os.write(answers, bytes([FAILED, number]))
            threading.Event().wait(LINGER_SECONDS)  # the trainer reads it, and ends this process


def _work(number: int, shared: Shared, layout: Layout, commands: Connection, answers: int) -> None:
    from .gym import describe, maker, one_line  # late: an error is to reach the trainer

    _, read, actions = describe(layout.name, layout.args)
    parts: dict[int, tuple[Instances, npt.NDArray[Any], Rows]] = {}

    def instances(num: int, first: int) -> Instances:
        with one_line(layout.name, layout.args):
            return Instances(
                maker(layout.name, layout.args),
                num,
                name=layout.name,
                read=read,
                actions=actions,
                frame_skip=layout.frame_skip,
                first_index=layout.first_index + first,
            )

    ready = bytes([READY, number])
    os.write(answers, ready)
    while True:
        command = commands.recv_bytes()
        group = command[0]
        if group < GROUPS:
            stepped, taken, rows = parts[group]
            stepped.step(taken, rows)
            os.write(answers, bytes([group, number]))
            continue
        if command == PROBE:
            shared.probed[number] = _rate(instances(1, number), layout.name)
        elif command == BUILD:
            for part, start, stop in commands.recv():
                rows_of = slice(start, stop)
                parts[part] = instances(stop - start, start), shared.actions[rows_of], shared.rows.part(rows_of)
        else:
            for stepped, _, rows in parts.values():
                stepped.reset(int.from_bytes(command[1:], "little"), rows.observations)
        os.write(answers, ready)


def _rate(probe: Instances, name: str) -> float:
    """Returns how many steps a second one instance makes with random actions, while other workers do the same."""
    (env,) = probe.envs
    steps, began = 0, time.perf_counter()
    try:
        env.reset(seed=0)
        while (passed := time.perf_counter() - began) < PROBE_SECONDS:
            _, _, terminal, truncation, _ = env.step(env.action_space.sample())
            if terminal or truncation:
                env.reset()
            steps += 1
    except RAISED as error:  # the user's code may raise anything
        fail(f"an instance of '{name}' failed when it was tried out", error)
    probe.close()
    return steps / passed


if __name__ == "__main__":
    main(int(sys.argv[1]), Connection(int(sys.argv[2])), int(sys.argv[3]))

"""A Gymnasium environment in worker processes over shared memory: `gym-async:ID`.

The instances form `GROUPS` groups of rows. Each worker owns an even share of every group. The trainer acts for one group
while the workers step the others, and takes the groups in the order in which they finish. So it does not wait for the
slowest instance while there is other work. The groups depend on the number of environments alone. A group's rows are the
same whatever the number of workers and whichever group finishes first. So results repeat.

A command to a worker is one byte, the group's number. Its answer is two, the group's and the worker's, in a pipe that
all workers share. Everything else lies in shared memory. A worker that has an error sends it as text beside that.

How many workers pay is measured once, at the start: each worker steps an instance of its own with random actions, first
in one worker alone and then in more. The smallest number that comes near the best is taken.

Source: groups in flight as in Weng et al. 2022, "EnvPool", section 3.
"""

import ctypes
import math
import multiprocessing
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...envs_c import Episodes
from ..errors import TrainerError
from .episodes import EpisodeCounter, require
from .gym import Resumption, describe, maker, one_line
from .instances import Instances, Rows, shares

GROUPS = 4  # that are in flight together
PROBE_SECONDS = 0.1  # for which each number of workers is tried
NEAR = 0.9  # of the best rate is near enough
CLOSE_SECONDS = 5.0  # for workers to end by themselves
START_SECONDS = 120.0  # for workers to start
_READY, _FAILED = 254, 255  # instead of a group's number
_PROBE, _BUILD, _RESET = b"P", b"B", b"R"

_measured: dict[str, int] = {}  # workers that were found for an environment, so that its evaluation need not measure


class _Layout(NamedTuple):
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


class PoolEnv:
    """`num_envs` instances in worker processes. It can be stepped as a whole, or group by group: see `groups`."""

    resumable = False

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        seed: int = 0,
        frame_skip: int = 1,
        first_index: int = 0,
        args: Mapping[str, Any] | None = None,
        workers: int = 0,
        cores: int = 0,
    ) -> None:
        """Starts the workers.

        Args:
            name: `gym-async:ID`.
            num_envs: at least 1.
            seed: of the first episodes.
            frame_skip: frames for which a decision is held.
            first_index: of the first instance.
            args: of the environment's constructor.
            workers: processes; 0: measured.
            cores: that may be used; 0: all that this process may use.

        Raises:
            ConfigError: as `gym.describe`.
            TrainerError: a worker could not make its instances.
        """
        self.spec, read, _ = describe(name, args or {})
        self.num_envs = self.num_agents = num_envs
        self._resumption = Resumption(name, num_envs, seed)
        spec, context = self.spec, multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        layout = _Layout(
            name=name,
            args=dict(args or {}),
            frame_skip=frame_skip,
            first_index=first_index,
            rows=num_envs,
            size=spec.observation_size,
            dtype=spec.observation_dtype,
            components=spec.action_components,
            actions="float32" if spec.continuous_actions else "int32",
        )
        self.memory = context.RawArray(ctypes.c_uint8, _Shared.num_bytes(layout))
        self.shared = _Shared(self.memory, layout)
        self.groups = [PoolGroup(self, number, rows) for number, rows in enumerate(shares(num_envs, GROUPS))]
        self._columns = [group.rows for group in self.groups]
        most = min(workers or _measured.get(name) or cores or _cores(), num_envs)
        self._answers, answer = context.Pipe(duplex=False)
        self.processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._left: list[int] = [0] * len(self.groups)  # workers that have not finished a group's step
        self._workers_of: list[list[int]] = []
        self._failed = False
        self.fresh_seed: int | None = None  # that all episodes have just begun with
        try:
            for number in range(most):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_serve, args=(number, self.memory, layout, theirs, answer), daemon=True
                )
                process.start()
                theirs.close()
                self.processes.append(process)
                self._pipes.append(ours)
            answer.close()
            self._poll = select.poll()
            self._poll.register(self._answers.fileno(), select.POLLIN)
            for process in self.processes:
                self._poll.register(process.sentinel, select.POLLIN)
            self._expect(range(most))
            if not workers and name not in _measured:
                _measured[name] = self._measure(most)
            self.workers = min(workers or _measured[name], most)
            self._retire(self.workers)
            self._build()
        except BaseException:
            self.close()
            raise

    def reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds every instance anew and writes its first observation."""
        require("observations", observations, self.shared.observations.shape, self.shared.observations.dtype.type)
        self.begin(seed)
        observations[:] = self.shared.observations

    def begin(self, seed: int) -> None:
        """Seeds every instance anew; the shared memory has the first observations."""
        self._resumption.begin(seed)
        for pipe in self._pipes:
            pipe.send_bytes(_RESET + seed.to_bytes(16, "little"))
        self._expect(range(self.workers))
        for group in self.groups:
            group.begin_anew(seed)
        self.fresh_seed = seed

    def step(
        self,
        actions: npt.NDArray[Any],
        observations: npt.NDArray[Any],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[Any] | None = None,
    ) -> None:
        """Takes one decision in each instance."""
        outputs = [observations, rewards, terminals, truncations]
        for group in self.groups:
            group.begin(actions[group.rows])
        for group in self.groups:
            finals = None if final_observations is None else final_observations[group.rows]
            group.finish(*(array[group.rows] for array in outputs), finals)
        self._resumption.steps += 1

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call, group by group."""
        drained = [group.drain_episodes() for group in self.groups]
        starts = [np.int32(group.rows.start) for group in self.groups]
        return Episodes(
            agent=np.concatenate([e.agent + start for e, start in zip(drained, starts, strict=True)]),
            score=np.concatenate([e.score for e in drained]),
            return_=np.concatenate([e.return_ for e in drained]),
            length=np.concatenate([e.length for e in drained]),
        )

    def get_state(self) -> bytes:
        """Returns what the new episodes of a resumed run are drawn from."""
        return self._resumption.state()

    def set_state(self, state: bytes) -> None:
        """Checks that the state fits these environments. Raises ValueError where it does not."""
        self._resumption.require(state)

    def send(self, group: int) -> None:
        """Has the workers step a group, whose actions lie in the shared memory."""
        self.fresh_seed = None
        workers = self._workers_of[group]
        self._left[group] = len(workers)
        try:
            for worker in workers:
                self._pipes[worker].send_bytes(bytes([group]))
        except OSError:
            self._lost()

    def wait(self, group: int) -> None:
        """Waits until a group has been stepped."""
        while self._left[group]:
            self.receive()

    def is_done(self, group: int) -> bool:
        """Whether a group's step is done, as far as the last `receive` saw."""
        return self._left[group] == 0

    def receive(self) -> None:
        """Waits for an answer of any worker.

        Raises:
            TrainerError: an environment raised an error, or a process has died.
        """
        for descriptor, _ in self._poll.poll():
            if descriptor != self._answers.fileno():
                self._lost()
        answers = os.read(descriptor, 4096)
        for at in range(0, len(answers), 2):
            if answers[at] == _FAILED:
                self._fail(answers[at + 1])
            elif answers[at] < len(self._left):
                self._left[answers[at]] -= 1
            else:
                self._ready.discard(answers[at + 1])

    def close(self) -> None:
        """Ends the workers. Calling it again does nothing."""
        for pipe in self._pipes:
            pipe.close()  # which ends a worker that waits for a command
        deadline = time.monotonic() + CLOSE_SECONDS
        for process in self.processes:
            process.join(0.0 if self._failed else max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        if not self._answers.closed:
            self._answers.close()

    def _expect(self, workers: Sequence[int]) -> None:
        """Waits until these workers have done what is no step."""
        self._ready = set(workers)
        while self._ready:
            self.receive()

    def _measure(self, most: int) -> int:
        """Returns how many workers to use."""
        tried = sorted(
            {most, *(2**power for power in range(most.bit_length())), max(1, most - 1)} & set(range(1, most + 1))
        )
        if len(tried) == 1:
            return most
        rates = {}
        for number in tried:
            for pipe in self._pipes[:number]:
                pipe.send_bytes(_PROBE)
            self._expect(range(number))
            rates[number] = float(self.shared.probed[:number].sum())
        best = max(rates.values())
        return next(number for number in tried if rates[number] >= NEAR * best)

    def _retire(self, workers: int) -> None:
        """Ends the workers beyond these."""
        for pipe, process in zip(self._pipes[workers:], self.processes[workers:], strict=True):
            self._poll.unregister(process.sentinel)
            pipe.close()
        for process in self.processes[workers:]:
            process.join(CLOSE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        del self._pipes[workers:], self.processes[workers:]

    def _build(self) -> None:
        """Has each worker make its share of every group."""
        of_workers: list[list[tuple[int, int, int]]] = [[] for _ in self._pipes]
        for group in self.groups:
            parts = shares(group.num_envs, self.workers)
            first = group.number % self.workers  # so that small groups do not all go to the same workers
            chosen = [(first + part) % self.workers for part in range(len(parts))]
            for worker, part in zip(chosen, parts, strict=True):
                of_workers[worker].append((group.number, group.rows.start + part.start, group.rows.start + part.stop))
            self._workers_of.append(chosen)
        for pipe, parts_of in zip(self._pipes, of_workers, strict=True):
            pipe.send_bytes(_BUILD)
            pipe.send(parts_of)
        self._expect(range(self.workers))

    def _fail(self, worker: int) -> None:
        self._failed = True
        raise TrainerError(str(self._pipes[worker].recv()))

    def _lost(self) -> None:
        self._failed = True
        raise TrainerError(f"a process of '{self.spec.name}' has died; its own message is above")


class PoolGroup:
    """Some rows of a pool, as environments of their own: `begin` a step, do something else, `finish` it."""

    resumable = False

    def __init__(self, pool: PoolEnv, number: int, rows: slice) -> None:
        self.pool, self.number, self.rows = pool, number, rows
        self.spec = pool.spec
        self.num_envs = self.num_agents = rows.stop - rows.start
        self._resumption = Resumption(pool.spec.name, pool.num_envs, 0)  # of all groups, which begin anew together
        self._counter = EpisodeCounter(self.num_envs)
        shared = pool.shared
        self._actions = shared.actions[rows]
        self._outputs = (
            shared.observations[rows],
            shared.rewards[rows],
            shared.terminals[rows],
            shared.truncations[rows],
        )
        self._finals = shared.finals[rows]

    def begin_anew(self, seed: int) -> None:
        """Notes that all episodes have begun anew."""
        self._resumption.begin(seed)
        self._counter.reset()

    def reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds the whole pool anew, unless another group has just done so, and writes these rows' observations."""
        if self.pool.fresh_seed != seed:
            self.pool.begin(seed)
        observations[:] = self._outputs[0]

    def begin(self, actions: npt.NDArray[Any]) -> None:
        """Begins a step. The actions may be overwritten afterwards."""
        self._actions[:] = actions.reshape(self._actions.shape)
        self.pool.send(self.number)

    def finish(
        self,
        observations: npt.NDArray[Any],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[Any] | None = None,
    ) -> None:
        """Waits for the step that was begun, and writes what came of it."""
        self.pool.wait(self.number)
        for ours, theirs in zip((observations, rewards, terminals, truncations), self._outputs, strict=True):
            ours[:] = theirs
        if final_observations is not None and truncations.any():
            final_observations[truncations] = self._finals[truncations]
        self._resumption.steps += 1
        self._counter.add(rewards, terminals | truncations)

    def step(
        self,
        actions: npt.NDArray[Any],
        observations: npt.NDArray[Any],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[Any] | None = None,
    ) -> None:
        """Takes one decision in each instance."""
        self.begin(actions)
        self.finish(observations, rewards, terminals, truncations, final_observations)

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call."""
        return self._counter.drain()

    def get_state(self) -> bytes:
        """Returns what the new episodes of a resumed run are drawn from."""
        return self._resumption.state()

    def set_state(self, state: bytes) -> None:
        """Checks that the state fits these environments. Raises ValueError where it does not."""
        self._resumption.require(state)

    def close(self) -> None:
        """Closes the whole pool."""
        self.pool.close()


class _Shared:
    """The arrays in shared memory, each at a multiple of 64 bytes."""

    def __init__(self, memory: Any, layout: _Layout) -> None:
        buffer, arrays, at = memoryview(memory).cast("B"), {}, 0
        for name, shape, dtype in _arrays(layout):
            count = math.prod(shape)
            arrays[name] = np.frombuffer(buffer, dtype, count, at).reshape(shape)
            at += _padded(count * np.dtype(dtype).itemsize)
        self.observations, self.finals = arrays["observations"], arrays["finals"]
        self.actions, self.rewards, self.probed = arrays["actions"], arrays["rewards"], arrays["probed"]
        self.terminals, self.truncations = arrays["terminals"], arrays["truncations"]

    @staticmethod
    def num_bytes(layout: _Layout) -> int:
        return sum(_padded(math.prod(shape) * np.dtype(dtype).itemsize) for _, shape, dtype in _arrays(layout))

    def part(self, rows: slice) -> Rows:
        """Returns the rows that one worker writes."""
        return Rows(
            self.observations[rows], self.rewards[rows], self.terminals[rows], self.truncations[rows], self.finals[rows]
        )


def _arrays(layout: _Layout) -> list[tuple[str, tuple[int, ...], str]]:
    rows = layout.rows
    return [
        ("observations", (rows, layout.size), layout.dtype),
        ("finals", (rows, layout.size), layout.dtype),
        ("actions", (rows, layout.components), layout.actions),
        ("rewards", (rows,), "float32"),
        ("terminals", (rows,), "bool"),
        ("truncations", (rows,), "bool"),
        ("probed", (256,), "float64"),
    ]


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // 64) * 64


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(len(affinity(0)) if affinity else os.cpu_count() or 1, 128)


def _serve(number: int, memory: Any, layout: _Layout, commands: Connection, answers: Connection) -> None:
    """The process of one worker: does what it is told until the trainer has closed the pipe or is gone."""
    # Ctrl-C and a sweep's SIGTERM go to the trainer's whole group. But only the trainer can end in order, and until
    # then it needs this process.
    if hasattr(os, "setsid"):
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _work(number, _Shared(memory, layout), layout, commands, answers.fileno())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception as error:
        text = str(error) if isinstance(error, TrainerError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, TrainerError):
            traceback.print_exc()
        commands.send(" ".join(text.split()))
        os.write(answers.fileno(), bytes([_FAILED, number]))
        threading.Event().wait(CLOSE_SECONDS)  # the trainer reads it, and ends this process


def _work(number: int, shared: _Shared, layout: _Layout, commands: Connection, answers: int) -> None:
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

    ready = bytes([_READY, number])
    os.write(answers, ready)
    while True:
        command = commands.recv_bytes()
        group = command[0]
        if group < GROUPS:
            stepped, taken, rows = parts[group]
            stepped.step(taken, rows)
            os.write(answers, bytes([group, number]))
            continue
        if command == _PROBE:
            shared.probed[number] = _rate(instances(1, number))
        elif command == _BUILD:
            for part, start, stop in commands.recv():
                rows_of = slice(start, stop)
                parts[part] = instances(stop - start, start), shared.actions[rows_of], shared.part(rows_of)
        else:
            for stepped, _, rows in parts.values():
                stepped.reset(int.from_bytes(command[1:], "little"), rows.observations)
        os.write(answers, ready)


def _rate(probe: Instances) -> float:
    """Returns how many steps a second one instance makes with random actions, while other workers do the same."""
    (env,) = probe.envs
    env.reset(seed=0)
    steps, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < PROBE_SECONDS:
        _, _, terminal, truncation, _ = env.step(env.action_space.sample())
        if terminal or truncation:
            env.reset()
        steps += 1
    probe.close()
    return steps / passed

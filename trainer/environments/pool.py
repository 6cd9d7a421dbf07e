"""A Gymnasium environment in worker processes over shared memory: `gym-async:ID`.

The instances form `GROUPS` groups of rows. Each worker owns an even share of every group. The trainer acts for one
group while the workers step the others, and takes the groups in the order in which they finish. So it does not wait for
the slowest instance while there is other work. The groups depend on the number of environments alone. A group's rows
are the same whatever the number of workers and whichever group finishes first. So results repeat.

A command to a worker is one byte, the group's number. Its answer is two, the group's and the worker's, in a pipe that
all workers share. Everything else lies in shared memory. A worker that has an error sends it as text beside that.

How many workers pay is measured once, at the start: each worker steps an instance of its own with random actions, first
in one worker alone and then in more. The smallest number that comes near the best is taken.

Source: groups in flight as in Weng et al. 2022, "EnvPool", section 3.
"""

import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

import numpy.typing as npt

from protein.envs_c import Episodes

from ..errors import TrainerError
from .base import CountedEnv, Resumption, Rows, joined
from .gym import describe
from .instances import shares
from .worker import BUILD, FAILED, GROUPS, MOST_WORKERS, PROBE, READY, RESET, Layout, Shared, num_bytes

NEAR = 0.9  # of the best rate is near enough
CLOSE_SECONDS = 5.0  # for workers to end by themselves

_measured: dict[str, int] = {}  # workers that were found for an environment, so that its evaluation need not measure


class PoolEnv(CountedEnv):
    """`num_envs` instances in worker processes. It can be stepped as a whole, or group by group: see `groups`."""

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
        """Starts the workers; see `trainer.environments.make`.

        Raises:
            ConfigError: as `gym.describe`.
            TrainerError: a worker could not make its instances.
        """
        spec, *_ = describe(name, args or {})
        super().__init__(spec, num_envs, seed, counts=False)
        memory = _memory()
        layout = Layout(
            name=name,
            args=dict(args or {}),
            frame_skip=frame_skip,
            first_index=first_index,
            rows=num_envs,
            size=spec.observation_size,
            dtype=spec.observation_dtype,
            components=spec.action_components,
            actions="float32" if spec.continuous_actions else "int32",
            path=[entry or os.getcwd() for entry in sys.path],  # noqa: PTH109
            memory=memory,
        )
        os.ftruncate(memory, num_bytes(layout))
        self.shared = Shared(layout)
        self.groups = [PoolGroup(self, number, rows) for number, rows in enumerate(shares(num_envs, GROUPS))]
        self._columns = [group.rows for group in self.groups]
        most = min(workers or _measured.get(name) or cores or _cores(), num_envs)
        self._answers, answer = os.pipe()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        self._left: list[int] = [0] * len(self.groups)  # workers that have not finished a group's step
        self._workers_of: list[list[int]] = []
        self.fresh_seed: int | None = None  # that all episodes have just begun with
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)
        # At the end of the program, if nobody has closed the pool; also in a process of multiprocessing's.
        self._close = Finalize(self, _end, (self.processes, self._pipes, self._answers), exitpriority=10)
        try:
            for number in range(most):
                ours, theirs = multiprocessing.Pipe()
                self._pipes.append(ours)
                with theirs:
                    self.processes.append(_start(number, theirs.fileno(), answer, memory))
                ours.send(layout)
                self._poll.register(ours.fileno(), 0)  # tells when the process has died
            self._expect(range(most))
            if not workers and name not in _measured:
                _measured[name] = self._measure(most)
            self.workers = min(workers or _measured[name], most)
            self._retire(self.workers)
            self._build()
        except OSError as error:
            self.close()
            raise TrainerError(f"a worker of '{name}' could not be started, or has died: {error}") from error
        except BaseException:
            self.close()
            raise
        finally:
            os.close(answer)
            os.close(memory)

    def _reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        self.begin(seed)
        observations[:] = self.shared.rows.observations

    def begin(self, seed: int) -> None:
        """Seeds every instance anew; the shared memory has the first observations."""
        self._resumption.begin(seed)
        for pipe in self._pipes:
            pipe.send_bytes(RESET + seed.to_bytes(16, "little"))
        self._expect(range(self.workers))
        for group in self.groups:
            group.begin_anew(seed)
        self.fresh_seed = seed

    def _step(self, actions: npt.NDArray[Any], out: Rows) -> None:
        for group in self.groups:
            group.begin(actions[group.rows])
        for group in self.groups:
            group.finish(out.part(group.rows))

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call, group by group."""
        return joined((group.drain_episodes(), group.rows.start) for group in self.groups)

    def send(self, group: int) -> None:
        """Has the workers step a group, whose actions lie in the shared memory."""
        self.fresh_seed = None
        workers = self._workers_of[group]
        self._left[group] = len(workers)
        try:
            for worker in workers:
                self._pipes[worker].send_bytes(bytes([group]))
        except OSError as error:
            self.receive()  # the worker may have said why
            raise self._died() from error

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
        found = [descriptor for descriptor, _ in self._poll.poll()]
        answers = os.read(self._answers, 4096) if self._answers in found else b""
        if not answers:  # of the pipe of answers, too, poll tells that its last writer has died
            raise self._died()
        for at in range(0, len(answers), 2):
            if answers[at] == FAILED:
                raise TrainerError(str(self._pipes[answers[at + 1]].recv()))
            if answers[at] == READY:
                self._ready.discard(answers[at + 1])
            else:
                self._left[answers[at]] -= 1

    def close(self) -> None:
        """Ends the workers. Calling it again does nothing."""
        self._close()

    def _expect(self, workers: Sequence[int]) -> None:
        """Waits until these workers have done what is no step."""
        self._ready = set(workers)
        while self._ready:
            self.receive()

    def _measure(self, most: int) -> int:
        """Returns how many workers to use."""
        tried = sorted({most, max(1, most - 1), *(1 << power for power in range(most.bit_length()))})
        if len(tried) == 1:
            return most
        rates = {}
        for number in tried:
            for pipe in self._pipes[:number]:
                pipe.send_bytes(PROBE)
            self._expect(range(number))
            rates[number] = float(self.shared.probed[:number].sum())
        best = max(rates.values())
        near = [number for number in tried if rates[number] >= NEAR * best]
        return min(near)

    def _retire(self, workers: int) -> None:
        """Ends the workers beyond these."""
        for pipe in self._pipes[workers:]:
            self._poll.unregister(pipe.fileno())
        _end(self.processes[workers:], self._pipes[workers:])
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
            pipe.send_bytes(BUILD)
            pipe.send(parts_of)
        self._expect(range(self.workers))

    def _died(self) -> TrainerError:
        return TrainerError(f"a process of '{self.spec.name}' has died; its own message is above")


class PoolGroup(CountedEnv):
    """Some rows of a pool, as environments of their own: `begin` a step, do something else, `finish` it."""

    def __init__(self, pool: PoolEnv, number: int, rows: slice) -> None:
        super().__init__(pool.spec, rows.stop - rows.start, 0)
        self.pool, self.number, self.rows = pool, number, rows
        self._resumption = Resumption(pool.spec.name, pool.num_envs, 0)  # of all groups, which begin anew together
        self._actions, self._shared = pool.shared.actions[rows], pool.shared.rows.part(rows)

    def begin_anew(self, seed: int) -> None:
        """Notes that all episodes have begun anew."""
        self._begin(seed)

    def _reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds the whole pool anew, unless another group has just done so, and writes these rows' observations."""
        if self.pool.fresh_seed != seed:
            self.pool.begin(seed)
        observations[:] = self._shared.observations

    def begin(self, actions: npt.NDArray[Any]) -> None:
        """Begins a step. The actions may be overwritten afterwards."""
        self._actions[:] = actions.reshape(self._actions.shape)
        self.pool.send(self.number)

    def finish(self, out: Rows) -> None:
        """Waits for the step that was begun, and writes what came of it."""
        self._receive(out)
        self._count(out)

    def _step(self, actions: npt.NDArray[Any], out: Rows) -> None:
        self.begin(actions)
        self._receive(out)

    def _receive(self, out: Rows) -> None:
        self.pool.wait(self.number)
        for ours, theirs in zip(out[:-1], self._shared[:-1], strict=True):
            ours[:] = theirs
        cut = out.truncations
        if cut.any():
            out.finals[cut] = self._shared.finals[cut]

    def close(self) -> None:
        """Closes the whole pool."""
        self.pool.close()


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return min(len(affinity(0)) if affinity else os.cpu_count() or 1, MOST_WORKERS)


def _memory() -> int:
    """Returns the descriptor of a new file that lies in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("protein")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _start(number: int, commands: int, answers: int, memory: int) -> "subprocess.Popen[bytes]":
    """Starts a worker.

    Ctrl-C and a sweep's SIGTERM go to the trainer's whole group. But only the trainer can end in order, and until then
    it needs this process. So it has a group of its own.
    """
    words = [sys.executable, "-P", "-m", "protein.trainer.environments.worker", *map(str, (number, commands, answers))]
    return subprocess.Popen(words, pass_fds=(commands, answers, memory), start_new_session=True)


def _end(processes: "list[subprocess.Popen[bytes]]", pipes: list[Connection], answers: int | None = None) -> None:
    """Ends workers: those that wait for a command by themselves."""
    for pipe in pipes:
        pipe.close()
    deadline = time.monotonic() + CLOSE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if answers is not None:
        os.close(answers)

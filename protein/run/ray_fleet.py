"""The slots of one sweep on a Ray cluster: where trials are placed, and how dead nodes are noticed.

A slot (`protein.run.slot`) is an actor that holds the resources of one trial on one node, and lives across
trials. The node is chosen here, so that it is known which one died. All this runs in the process of `ray_driver`.
"""

import contextlib
import dataclasses
import importlib.metadata
import math
import os
import queue
import socket
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from protein.errors import UsageError
from protein.ports import Finished, Job, TrialProgress
from protein.run import ray_cluster
from protein.run.ray_messages import Connect, NewMachine, Note, Slots, Stop
from protein.run.slot import Facts, Slot, SlotSettings, factor, facts
from protein.types import PREEMPTED, Measurement, Outcome, Trial, TrialEnd

POLL_SECONDS = 0.5  # how long a slot waits for news of its trial before it answers
LOOK_SECONDS = 1.0  # how often nodes and their free resources are looked at
SETTLE_SECONDS = 3.0  # after which Ray's figures of free resources count a new actor
NODE_SECONDS = 600.0  # within which a node must answer what it is: it starts a process, and may calibrate itself
SLOW_SECONDS = 60.0  # after which a person is told that no node has answered yet
OTHERS_SECONDS = 5.0  # for further nodes to answer, once one can run trials
REST_SECONDS = 60.0  # for which a node that died or could not start a trial gets none: its disk may be full
CLOSE_SECONDS = 5.0  # for slots to end in order


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class _Slot:
    node: str  # its id
    actor: Any
    trial: Trial | None = None
    last: Measurement | None = None  # of its trial


class _SlotActor:
    """A slot as an actor. What it returns is a list of events and one of notes."""

    def __init__(self, settings: SlotSettings) -> None:
        self._slot = Slot(settings)

    def start(self, job: Job) -> None:
        self._slot.start(job)

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        self._slot.stop(trial, end, reason)

    def poll(self) -> tuple[list[TrialProgress | Finished], list[str]]:
        return self._slot.poll(POLL_SECONDS), self._slot.take_notes()

    def close(self) -> None:
        self._slot.close()


class Fleet:
    """The slots of one sweep. One thread runs it; all that happens comes through `news`.

    Attributes:
        news: answers of slots and nodes, each after the one who was asked; messages of the sweep after None; and None
            twice when the sweep has closed the connection.
    """

    def __init__(self, connection: Connection, connect: Connect) -> None:
        self._connection, self._needs, self._settings = connection, connect.needs, connect.slot
        self.news: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
        self._names: dict[str, str] = {}  # of all nodes that were seen, by node id
        self._hosts: dict[str, str] = {}  # names of the nodes that have answered, by node id
        self._version = importlib.metadata.version("protein-sweep")
        calibrating = connect.slot.calibrating
        self._machines = [] if calibrating is None else list(calibrating.known)
        self._speeds: dict[str, float] = {}  # reference seconds in one second of each node, by node id
        self._asked: dict[str, float] = {}  # nodes that have not answered yet: when they were asked
        self._unfit: dict[str, str] = {}  # why nodes are not used, by node id
        self._rests: dict[str, float] = {}  # until when nodes get no trial, on the monotonic clock, by node id
        self._slots: list[_Slot] = []
        self._waiting: list[Job] = []  # for a slot
        self._room: dict[str, int] = {}  # how many more slots each node could hold, by node id
        self._placed_at = -NODE_SECONDS  # when the last slot was made, on the monotonic clock
        self._told = -1  # the number of slots that was told last

    def find_nodes(self) -> None:
        """Waits until a node can run trials. Raises `UsageError` where none can."""
        self._look(first=True)

    def run(self) -> None:
        """Serves until the sweep closes the connection."""
        looked = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                source, news = self.news.get(timeout=LOOK_SECONDS)
                if source is None and news is None:
                    self._close()
                    return
                self._handle(source, news)
            if time.monotonic() - looked >= LOOK_SECONDS:
                self._look()
                looked = time.monotonic()

    def _close(self) -> None:
        if closing := [slot.actor.close.remote() for slot in self._slots]:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)

    def _handle(self, source: Any, news: Any) -> None:
        if isinstance(news, Job):
            self._waiting.append(news)
            self._start_waiting()
        elif isinstance(news, Stop):
            self._stop(news)
        elif isinstance(source, _Slot):
            self._on_answer(source, news)
        else:
            self._on_facts(source, news)

    def _stop(self, stop: Stop) -> None:
        for job in self._waiting:
            if job.trial.id == stop.trial.id:
                self._waiting.remove(job)
                cost, steps = job.spent_seconds, job.steps_behind  # of its runs before
                outcome = Outcome(end=stop.end, reason=stop.reason, cost_seconds=cost, steps=steps)
                self._send(Finished(trial=job.trial, outcome=outcome))
                return
        for slot in self._slots:
            if slot.trial is not None and slot.trial.id == stop.trial.id:
                slot.actor.stop.remote(stop.trial, stop.end, stop.reason)

    def _start_waiting(self) -> None:
        while self._waiting:
            slot = next((slot for slot in self._slots if slot.trial is None), None) or self._new_slot()
            if slot is None:
                return
            job = self._waiting.pop(0)
            slot.trial, slot.last = job.trial, None
            job = dataclasses.replace(job, speed=self._speeds.get(slot.node, 1.0))
            self._call(slot, slot.actor.start.remote(job))
        self._tell()

    def _new_slot(self) -> _Slot | None:
        node = max(self._room, key=lambda node: self._room[node], default=None)
        if node is None or self._room[node] < 1:
            return None
        self._room[node] -= 1
        self._placed_at = time.monotonic()
        actor = (
            ray.remote(_SlotActor)
            .options(
                num_cpus=self._needs.cores,
                num_gpus=self._needs.gpus,
                resources=dict(self._needs.resources),
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                max_restarts=0,
            )
            .remote(self._settings)
        )
        slot = _Slot(node=node, actor=actor)
        self._slots.append(slot)
        return slot

    def _call(self, source: Any, reference: Any) -> None:
        """Puts the result of a call, or its exception, into the news when it is there."""

        def done(future: Any) -> None:
            error = future.exception()
            self.news.put((source, future.result() if error is None else error))

        reference.future().add_done_callback(done)

    def _on_answer(self, slot: _Slot, answer: Any) -> None:
        if slot not in self._slots:
            return
        if isinstance(answer, RayError):  # the slot has died, or lives and could not start its trial
            self._on_lost(slot, answer)
            return
        events, notes = ([], []) if answer is None else answer
        for note in notes:
            self._send(Note(text=note))
        for event in events:
            if isinstance(event, TrialProgress) and event.measurements:
                slot.last = event.measurements[-1]
            elif isinstance(event, Finished):
                slot.trial = None
            self._send(event)
        if slot.trial is not None:
            self._call(slot, slot.actor.poll.remote())
        else:
            self._start_waiting()

    def _on_lost(self, slot: _Slot, error: RayError) -> None:
        """Takes a slot away and gives its trial back."""
        self._slots.remove(slot)
        host, cause = self._names[slot.node], ray_cluster.in_one_line(getattr(error, "cause", None) or error)
        if self._is_gone(slot.node):
            why = f"node {host} died"
            self._rest(slot.node)  # Ray may go on to list it as alive
        elif isinstance(error, RayActorError):
            why = f"the worker process on node {host} died: {cause}"
        else:
            why = f"node {host} cannot run it: {cause}"
            self._rest(slot.node)
            self._send(Note(text=f"node {host} gets no trial for {REST_SECONDS:.0f} s: {cause}"))
        with contextlib.suppress(RayError, ValueError):  # it may live, and only not be reached: nobody waits for it now
            ray.kill(slot.actor)
        if slot.trial is not None:
            last = slot.last
            outcome = Outcome(
                end=TrialEnd.INTERRUPTED,
                reason=f"{PREEMPTED}{why}",
                cost_seconds=0.0 if last is None else last.elapsed_seconds,
                steps=0 if last is None else last.steps,
            )
            self._send(Finished(trial=slot.trial, outcome=outcome))
        self._tell()

    def _rest(self, node: str) -> None:
        """Places no trial on a node for a while."""
        self._rests[node] = time.monotonic() + REST_SECONDS
        self._room.pop(node, None)

    def _is_gone(self, node: str) -> bool:
        """Whether a node's daemon has ended. Ray itself may take minutes to say so."""
        known = next((one for one in ray.nodes() if one["NodeID"] == node and one["Alive"]), None)
        if known is None:
            return True
        try:
            socket.create_connection((known["NodeManagerAddress"], known["NodeManagerPort"]), timeout=1.0).close()
        except OSError:
            return True
        return False

    def _look(self, *, first: bool = False) -> None:
        """Asks nodes that are new what they are, and counts the slots that more trials could have."""
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        self._names |= {node: known["NodeManagerHostname"] for node, known in alive.items()}
        for gone in [node for node in self._hosts if node not in alive]:
            self._send(Note(text=f"node {self._hosts.pop(gone)} has left the cluster"))
            self._room.pop(gone, None)
        fit = {node for node, known in alive.items() if self._fits(known["Resources"]) and node not in self._unfit}
        for node in fit - set(self._hosts) - set(self._asked):
            self._asked[node] = time.monotonic()
            affinity = NodeAffinitySchedulingStrategy(node, soft=False)
            question = ray.remote(ray_cluster.asked(self._version, facts, self._settings))
            asked = question.options(num_cpus=0, scheduling_strategy=affinity, max_retries=0)
            self._call(node, asked.remote())
        if first:
            self._require_a_node(alive, fit)
        for node, since in list(self._asked.items()):
            if time.monotonic() - since > NODE_SECONDS:
                self._refuse(node, f"it has not answered within {NODE_SECONDS:.0f} s")
        if time.monotonic() - self._placed_at > SETTLE_SECONDS:
            self._count_room()
        self._start_waiting()
        self._tell()

    def _fits(self, resources: Mapping[str, float]) -> bool:
        return all(resources.get(name, 0.0) >= amount for name, amount in self._needs.by_name().items())

    def _count_room(self) -> None:
        free = ray._private.state.available_resources_per_node()
        for node in self._hosts:
            if time.monotonic() >= self._rests.get(node, math.inf):
                del self._rests[node]
                if self._is_gone(node):
                    self._rest(node)
            counts = [free.get(node, {}).get(name, 0.0) / amount for name, amount in self._needs.by_name().items()]
            self._room[node] = 0 if node in self._rests else int(min(counts) + 1e-6)

    def _require_a_node(self, alive: Mapping[str, Mapping[str, Any]], fit: set[str]) -> None:
        """Waits until a node has answered, and a moment for others. Raises `UsageError` unless one can run trials."""
        remedy = f"; the cluster at {ray_cluster.where()} has {ray_cluster.nodes_in_words(alive.values())}; lower"
        remedy += " --trial-cores, --gpus-per-trial or --resources, add a node, or give --backend ray:HOST:PORT"
        for name, amount in self._needs.by_name().items():
            most = max((node["Resources"].get(name, 0.0) for node in alive.values()), default=0.0)
            if most < amount:
                what = {"CPU": "cores", "GPU": "GPUs"}.get(name, name)
                raise UsageError(
                    f"a trial needs {amount:g} of {what}, and no node of the Ray cluster has more than {most:g}{remedy}"
                )
        if not fit:
            needs = ray_cluster.in_words(self._needs.by_name())
            raise UsageError(f"no single node of the Ray cluster has all that a trial needs ({needs}){remedy}")
        until, told = time.monotonic() + NODE_SECONDS, time.monotonic()
        while self._asked and time.monotonic() < until:
            if time.monotonic() - told > SLOW_SECONDS:
                told = time.monotonic()
                names = ", ".join(sorted({self._names[node] for node in self._asked}))
                self._send(Note(text=f"waiting for the first process on {names}; on busy machines this takes minutes"))
            with contextlib.suppress(queue.Empty):
                self._handle(*self.news.get(timeout=LOOK_SECONDS))  # once a node has answered, trials may come, too
            if self._hosts:
                until = min(until, time.monotonic() + OTHERS_SECONDS)
        if not self._hosts:
            why = f"within {NODE_SECONDS:.0f} s" if self._asked else "before it died"
            nobody = f"no node of the Ray cluster has answered {why}; run the same command again"
            raise UsageError(next(iter(self._unfit.values()), nobody))

    def _on_facts(self, node: str, answer: Any) -> None:
        """Takes a node into use, or refuses it."""
        if node not in self._asked:
            return
        if isinstance(answer, Exception):
            if self._is_gone(node):  # it is not there to be refused, and nobody has counted on it
                del self._asked[node]
            else:
                self._refuse(node, f"protein does not run there: {ray_cluster.in_one_line(answer)}")
            return
        self._names[node], answer = answer
        if not isinstance(answer, Facts):
            self._refuse(node, answer)
            return
        if not answer.shares_artifacts:
            folder = self._settings.artifacts
            remedy = "give --artifacts a folder that all nodes share, or a URL such as s3://BUCKET/FOLDER"
            self._refuse(node, f"it does not see the folder of artifacts, {folder}; {remedy}")
            return
        del self._asked[node]
        self._hosts[node] = answer.host
        self._take_machine(node, answer)
        self._count_room()
        self._start_waiting()

    def _take_machine(self, node: str, answer: Facts) -> None:
        if answer.problem:
            self._send(Note(text=f"node {answer.host}: {answer.problem}"))
        if answer.niceness > os.getpriority(os.PRIO_PROCESS, 0):
            remedy = "if others use it, too, start Ray there with RAY_worker_niceness=0 in its environment"
            self._send(
                Note(text=f"node {answer.host} runs trials with low priority (nice {answer.niceness}); {remedy}")
            )
        if answer.machine is not None and answer.machine not in self._machines:
            self._machines.append(answer.machine)
            self._send(NewMachine(machine=answer.machine))
        self._speeds[node] = factor(self._machines, answer.machine)
        if self._speeds[node] != 1.0:
            times = f"{self._speeds[node]:.2f} times as fast as the reference machine"
            self._send(Note(text=f"node {answer.host} is {times}, in whose seconds costs are"))

    def _refuse(self, node: str, why: str) -> None:
        self._asked.pop(node, None)
        self._unfit[node] = f"node {self._names[node]} is not used: {why}"
        self._send(Note(text=self._unfit[node]))

    def _tell(self) -> None:
        number = len(self._slots) + sum(self._room.values())
        if number != self._told:
            self._told = number
            self._send(Slots(number=number))

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # the sweep has gone, which `_listen` notices
            self._connection.send(message)

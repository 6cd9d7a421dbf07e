"""Trials on other machines: the one backend of remote slots, whatever carries its messages.

A slot is a place for one trial at a time on some node, and lives across trials (`protein.run.slot`). The fleet keeps
the jobs that wait, decides which slot gets which, knows how fast each slot's machine is, and gives back the trial of a
slot that is lost. A transport makes slots, carries messages, and finds out which slots have died: `protein.run.ray`
with Ray's actors, `protein.run.slurm` with jobs of Slurm and files.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from protein.files import prepare_folder
from protein.ports import Finished, Job, TrialProgress
from protein.run import speed
from protein.run.process import joined
from protein.run.slot import Close, Facts, Leaving, Ready, SlotSettings, Stop, copies_of, mirror, name_of
from protein.types import PREEMPTED, Machine, Measurement, Outcome, Trial, TrialEnd, max_trial_seconds

OVERHEAD_SECONDS = 90.0  # start-up and evaluation of a trial, on top of its cap
NUM_FETCHING_THREADS = 4
FETCHED_SECONDS = 0.1  # how often it is looked whether files have been fetched


@dataclasses.dataclass(eq=False, kw_only=True)
class RemoteSlot:
    """What a sweep knows of one slot. A transport may add what it needs to reach it."""

    name: str = ""  # for messages, where it has an end of its own
    speed: float = 1.0  # reference seconds in one second of its machine
    ends_at: float | None = None  # on the monotonic clock; None: it has no end of its own
    leaving: bool = False  # it gets no more trials
    served: int = 0  # trials
    job: Job | None = None  # that it runs
    last: Measurement | None = None  # of that job's trial

    @property
    def is_free(self) -> bool:
        return not self.leaving and self.job is None

    def has_time_for(self, job: Job) -> bool:
        """Whether a trial that spends all that it may ends before the slot does."""
        if self.ends_at is None or (cap := max_trial_seconds(job.config)) is None:
            return True
        # A cap is in reference seconds, and a slower machine takes more of its own.
        return self.ends_at - time.monotonic() > (cap - job.spent_seconds) / self.speed + OVERHEAD_SECONDS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A slot is gone, and with it the trial that it ran."""

    why: str


# What comes from a slot, and the slot. Facts are those of a node on which no slot was made yet.
News = tuple[RemoteSlot, Ready | Leaving | Lost | TrialProgress | Finished] | tuple[None, Facts]


class Transport(Protocol):
    """Makes slots on other machines and carries messages to them and back.

    Attributes:
        settings: what new slots are told. The fleet adds the machines that were calibrated.
    """

    settings: SlotSettings

    def start(self, settings: SlotSettings, note: Callable[[str], None]) -> None:
        """Connects. From now on `note` is called with what a person should know, as one line.

        Raises:
            UsageError: there is nothing to connect to, or it cannot run trials.
        """
        ...

    def start_slots(self, num_jobs: int) -> None:
        """Makes slots for that number of jobs, running ones included, as far as there is room. It is called often.

        Raises:
            UsageError: no slot can be made any more.
        """
        ...

    def num_slots(self) -> int:
        """Returns how many trials can run at once now, also in slots that are only made when a job needs them."""
        ...

    def receive(self, timeout_seconds: float) -> list[News]:
        """Returns what is new, after waiting for it at most so long.

        The first news of a slot is `Ready`, and its last one `Lost`, where it does not outlive the sweep. One that
        never got ready has `Lost` alone.
        """
        ...

    def send(self, slot: RemoteSlot, message: Job | Stop | Close) -> None: ...

    def close(self) -> None:
        """Ends all slots and what runs there. Safe to call twice."""
        ...


class Fleet:
    """Implements `protein.ports.Backend` with slots on other machines.

    Where artifacts are kept under a URL, a trial ends when its files are here, too. So everything that reads a trial's
    folder (what it can be resumed from, `protein train --from`, the views) reads files.

    Attributes:
        note: called with what a person should know, as one line.
    """

    def __init__(
        self,
        transport: Transport,
        settings: SlotSettings,
        *,
        note: Callable[[str], None] = lambda line: None,
        on_machine: Callable[[Machine], None] = lambda machine: None,
    ) -> None:
        """Connects to the machines. `on_machine` is called with each machine that was calibrated.

        Raises:
            UsageError: they cannot be reached, or cannot run trials.
        """
        self.note, self._on_machine = note, on_machine
        self._slots: list[RemoteSlot] = []
        self._waiting: list[Job] = []
        self._events: list[TrialProgress | Finished] = []  # for the next poll
        self._told: set[str] = set()  # problems of nodes
        self._copies = copies_of(settings)
        self._threads = ThreadPoolExecutor(NUM_FETCHING_THREADS)
        self._fetching: list[tuple[Finished, Future[str]]] = []  # trials whose files are on their way
        self._transport = transport
        transport.start(settings, lambda line: self.note(line))
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            self._receive(0.0)
            stack.pop_all()

    def num_slots(self) -> int:
        if not self._events:  # else there is enough to do first
            self._receive(0.0)
        return self._transport.num_slots()

    def start(self, job: Job) -> None:
        prepare_folder(job.directory)
        self._waiting.append(job)
        self._start_waiting()

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        until = time.monotonic() + timeout_seconds
        while True:
            left = max(until - time.monotonic(), 0.0)
            wait = min(left, FETCHED_SECONDS) if self._fetching else left
            self._receive(0.0 if self._events else wait)
            for pending in [pending for pending in self._fetching if pending[1].done()]:
                self._fetching.remove(pending)
                if problem := pending[1].result():
                    self.note(problem)
                self._events.append(pending[0])
            if self._events or not left:
                break
        events, self._events = joined(self._events), []
        return events

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        for job in [job for job in self._waiting if job.trial.id == trial.id]:
            self._waiting.remove(job)
            outcome = Outcome(end=end, reason=reason, cost_seconds=job.spent_seconds, steps=job.steps_behind)
            self._end(job, Finished(trial=trial, outcome=outcome))
        for slot in self._slots:
            if slot.job is not None and slot.job.trial.id == trial.id:
                self._transport.send(slot, Stop(trial=trial, end=end, reason=reason))

    def close(self) -> None:
        self._transport.close()
        self._slots.clear()
        self._waiting.clear()
        self._threads.shutdown()

    def _receive(self, timeout_seconds: float) -> None:
        for news in self._transport.receive(timeout_seconds):
            self._take(*news)
        self._start_waiting()

    def _take(self, slot: RemoteSlot | None, news: Ready | Leaving | Lost | TrialProgress | Finished | Facts) -> None:
        if isinstance(news, Facts):
            if (factor := self._speed(news)) != 1.0:
                times = f"{factor:.2f} times as fast as the reference machine"
                self.note(f"node {news.host} is {times}, in whose seconds costs are")
            return
        assert slot is not None
        if isinstance(news, Ready):
            slot.speed = self._speed(news.facts)
            if news.seconds_left is not None:
                slot.ends_at = time.monotonic() + news.seconds_left
            self._slots.append(slot)
        elif isinstance(news, Leaving):
            slot.leaving = True
        elif isinstance(news, Lost):
            self._lose(slot, news.why)
        elif slot.job is None or slot.job.trial.id != news.trial.id:
            self.note(f"a late report of trial {news.trial.number} was ignored: it runs elsewhere or has ended")
        elif isinstance(news, Finished):
            job, slot.job = slot.job, None
            self._end(job, dataclasses.replace(news, trial=job.trial))  # as it was given, and not as it is told
        else:
            if news.measurements:
                slot.last = news.measurements[-1]
            self._events.append(dataclasses.replace(news, trial=slot.job.trial))

    def _speed(self, facts: Facts) -> float:
        """Returns how many reference seconds a second of a node is worth; 1 where that is not known, which is told."""
        settings, machine = self._transport.settings, facts.machine
        if facts.problem and (line := f"node {facts.host}: {facts.problem}") not in self._told:
            self._told.add(line)
            self.note(line)
        if machine is None or settings.calibrating is None:
            return 1.0
        if machine not in settings.calibrating.known:
            self._on_machine(machine)
            self._transport.settings = settings.knowing(machine)
        return speed.speed_of((*settings.calibrating.known, machine), machine)

    def _lose(self, slot: RemoteSlot, why: str) -> None:
        """Takes a slot away and gives its trial back."""
        if slot in self._slots:
            self._slots.remove(slot)
        if slot.job is not None:
            outcome = Outcome(
                end=TrialEnd.INTERRUPTED,
                reason=f"{PREEMPTED}{why}",
                cost_seconds=0.0 if slot.last is None else slot.last.elapsed_seconds,
                steps=0 if slot.last is None else slot.last.steps,
            )
            self._end(slot.job, Finished(trial=slot.job.trial, outcome=outcome))
            slot.job = None

    def _end(self, job: Job, event: Finished) -> None:
        """Passes the end of a trial on, after its files were fetched where they are kept under a URL."""
        if self._copies is None:
            self._events.append(event)
        else:
            fetched = self._threads.submit(mirror, self._copies, name_of(job, self._transport.settings), job.directory)
            self._fetching.append((event, fetched))

    def _start_waiting(self) -> None:
        for job in list(self._waiting):
            free = [slot for slot in self._slots if slot.is_free]
            # One that has served nobody has as much time as a fresh one will have.
            found = next((slot for slot in free if slot.has_time_for(job) or not slot.served), None)
            if found is not None:
                self._waiting.remove(job)
                found.job, found.last = job, None
                found.served += 1
                self._transport.send(found, dataclasses.replace(job, speed=found.speed))
            elif free:  # its time is too short for the trials to come
                free[0].leaving = True
                self._transport.send(free[0], Close())
                self.note(f"{free[0].name} has too little time left for another trial, and ends")
        if not self._events:  # they come first: here a transport may connect anew, or give up
            self._transport.start_slots(len(self._waiting) + sum(slot.job is not None for slot in self._slots))

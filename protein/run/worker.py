"""A slot that talks to its sweep through files: `python -m protein.run.worker FOLDER`. It runs trial after trial.

It ends when it is told to; when its allocation ends, which Slurm announces by a signal (SIGUSR1 some time before,
SIGTERM for a preemption): the trial then writes its checkpoint and is given back; and when the sweep has been silent
for `DEAD_SECONDS`, or its folder of messages is gone: nobody would take the result.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from protein.errors import ProteinError
from protein.ports import Finished, Job
from protein.run.mailbox import ALIVE, ALIVE_SECONDS, FROM_WORKER, TO_WORKER, Inbox, Outbox, Silence
from protein.run.slot import Alive, Close, Leaving, Ready, Slot, SlotSettings, Stop, facts
from protein.types import PREEMPTED, Outcome, Trial, TrialEnd

POLL_SECONDS = 0.1
SETTINGS_SECONDS = 60.0  # within which the first message must be there
MAX_BUSY_SECONDS = 1800.0  # with one trial's start, after which it counts as hung


class _Worker:
    def __init__(self, folder: Path) -> None:
        self._inbox, self._outbox = Inbox(folder / TO_WORKER), Outbox(folder / FROM_WORKER)
        self._alive = folder.parent / ALIVE
        self._heard, self._silence = "", Silence()
        self._early: list[object] = []  # what came with the first message
        self._turn, self._done = threading.Lock(), threading.Event()
        self._looked = time.monotonic()  # when the loop last went round
        self._trial: Trial | None = None
        self._signal = ""  # the one by which Slurm has announced the end
        self._leaving = False
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def run(self) -> None:
        settings = self._settings()
        if any(isinstance(message, Close) for message in self._early):  # before it is measured how fast the node is
            self._outbox.close()
            return
        slot = Slot(settings)
        threading.Thread(target=self._say_alive, daemon=True).start()
        try:
            self._send(Ready(facts=facts(settings), seconds_left=seconds_left()))
            while not (self._leaving and self._trial is None) and self._sweep_lives():
                self._looked = time.monotonic()
                if self._is_told_to_end(slot):
                    return
                self._leave_if_told(slot)
                self._report(slot)
        finally:
            slot.close()
            self._done.set()
            with self._turn:
                self._outbox.close()

    def _send(self, *messages: object) -> None:
        with self._turn:
            self._outbox.send(*messages)

    def _say_alive(self) -> None:
        """Says that the worker lives, also while it starts a trial, for which it may copy large checkpoints."""
        while not self._done.wait(ALIVE_SECONDS):
            if time.monotonic() - self._looked < MAX_BUSY_SECONDS:
                with contextlib.suppress(OSError, ValueError):  # it is closed just now; or the loop will say it
                    self._send(Alive())

    def _on_signal(self, number: int, _: object) -> None:
        self._signal = signal.Signals(number).name

    def _settings(self) -> SlotSettings:
        until = time.monotonic() + SETTINGS_SECONDS
        while time.monotonic() < until:
            if messages := self._inbox.receive():
                settings, *self._early = messages
                if not isinstance(settings, SlotSettings):
                    raise ProteinError("the first message of the sweep is none to begin with; submit the job again")
                return settings
            time.sleep(POLL_SECONDS)
        raise ProteinError(f"no message of the sweep within {SETTINGS_SECONDS:.0f} s: is the folder shared?")

    def _is_told_to_end(self, slot: Slot) -> bool:
        """Does what the sweep has asked for. Returns whether that is to end."""
        early, self._early = self._early, []
        for message in [*early, *self._inbox.receive()]:
            if isinstance(message, Job):
                self._start(slot, message)
            elif isinstance(message, Stop):
                slot.stop(message.trial, message.end, message.reason)
            elif isinstance(message, Close):
                return True
        return False

    def _start(self, slot: Slot, job: Job) -> None:
        reason = "its Slurm job is about to end"
        if not self._leaving:
            try:
                slot.start(job)
            except OSError as error:  # nor the next ones, which would all spend their attempts here
                reason = f"its Slurm job cannot start it: {error}"
                self._leaving = True
                self._send(Leaving())
            else:
                self._trial = job.trial
                return
        outcome = Outcome(end=TrialEnd.INTERRUPTED, reason=f"{PREEMPTED}{reason}", cost_seconds=job.spent_seconds)
        self._send(Finished(trial=job.trial, outcome=outcome))

    def _leave_if_told(self, slot: Slot) -> None:
        if self._signal and not self._leaving:
            self._leaving = True
            self._send(Leaving())
            if self._trial is not None:
                slot.stop(
                    self._trial, TrialEnd.INTERRUPTED, f"{PREEMPTED}its Slurm job ends (Slurm sent {self._signal})"
                )

    def _report(self, slot: Slot) -> None:
        if news := slot.poll(POLL_SECONDS):
            self._send(*news)
        if any(isinstance(one, Finished) for one in news):
            self._trial = None

    def _sweep_lives(self) -> bool:
        heard = self._heard
        try:
            heard = self._alive.read_text()
        except OSError:  # of a shared file system it may be for a moment; not if the folder itself was removed
            if not self._alive.parent.exists():  # the sweep has ended, or another process goes on with it
                return False
        self._silence.look(heard=heard != self._heard)
        self._heard = heard
        return not self._silence.is_death


def seconds_left() -> float | None:
    """Returns how long this process's allocation lasts; None: without limit, or it is not known."""
    if (end := os.environ.get("SLURM_JOB_END_TIME")) is not None:
        return max(float(end) - time.time(), 0.0)
    command = ["squeue", "-h", "-j", os.environ.get("SLURM_JOB_ID", ""), "-o", "%L"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_left(answer)


def parse_left(text: str) -> float | None:
    """Returns the seconds of a time as squeue prints it, [DAYS-][HOURS:]MINUTES:SECONDS; None: it is none."""
    days, _, rest = text.rpartition("-")
    try:
        parts = [int(part) for part in rest.split(":")]
        seconds = float(int(days) * 86_400) if days else 0.0
    except ValueError:  # such as UNLIMITED
        return None
    for part, unit in zip(reversed(parts), (1, 60, 3600), strict=False):
        seconds += part * unit
    return seconds


if __name__ == "__main__":
    try:
        _Worker(Path(sys.argv[1])).run()
    except ProteinError as error:
        sys.exit(f"error: {error}")

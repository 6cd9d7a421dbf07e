"""What `protein worker` does: a machine offers slots to the sweeps that run in a folder (`protein.run.folder`).

Each slot that serves a sweep is a process of its own (`protein.run.mailbox`). The machine's slots go to the sweep that
has the fewest workers. A sweep with at least two workers more than another one gives one away, when that has no trial.
The sweep says which: it knows who is idle.
"""

import contextlib
import dataclasses
import math
import os
import platform
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from protein.errors import UsageError
from protein.run.folder import Offer, goes_next, join, offers
from protein.run.mailbox import AGAIN, FROM_WORKER, READY, Outbox
from protein.run.served import TOKEN, Server
from protein.run.slot import Left

LOOK_SECONDS = 0.5  # how often it is looked which sweeps there are
RETRY_SECONDS = 10.0  # after which a slot whose process has failed is used again
LEAVE_SECONDS = 120.0  # within which the trials' checkpoints must be written when the worker leaves


@dataclasses.dataclass(eq=False, kw_only=True)
class _Slot:
    """A place for one trial, and the process that serves a sweep there."""

    number: int
    gpus: Sequence[str]
    process: "subprocess.Popen[bytes] | None" = None
    sweep: Path = Path()  # its folder of messages
    offer: Offer | None = None
    folder: Path = Path()  # of this slot's messages, in it
    is_ready: bool = False
    moves: bool = False  # it was told to leave its sweep for another one
    free_after: float = -math.inf  # on the monotonic clock


class Workers:
    """The slots of this machine.

    Args:
        root: the folder.
        slots: how many trials may run at once; None: one for each GPU, or one.
        gpus: ids of the GPUs that trials may use; None: those that the slots see, whatever that is.
        seconds: after which the worker leaves.
        note: called with what a person should know, as one line.
        server: which the folder mirrors (`protein.run.mirror`); None: none.

    Raises:
        UsageError: there is no such folder; or the GPUs cannot be divided evenly among the slots.
    """

    def __init__(
        self,
        root: Path,
        *,
        slots: int | None,
        gpus: Sequence[str] | None,
        seconds: float | None,
        note: Callable[[str], None],
        server: Server | None = None,
    ) -> None:
        if not root.is_dir():
            raise UsageError(f"there is no folder {root}: give the one of protein sweep --backend folder:DIR")
        self._root, self._note, self._has_gpus, self._server = root, note, gpus is not None, server
        self._ends_at = math.inf if seconds is None else time.monotonic() + seconds
        self._slots = [_Slot(number=number, gpus=ids) for number, ids in enumerate(_divided(gpus or (), slots))]
        self._told: set[str] = set()  # once
        self._signs: dict[Path, tuple[str, float]] = {}  # of life, of sweeps
        self._done: set[str] = set()  # processes of sweeps that have sent a slot away
        self._has_served = False

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Serves sweeps until then. Trials that run are given back, and go on elsewhere.

        Raises:
            UsageError: no sweep that runs now can use this machine.
        """
        try:
            while not should_stop() and time.monotonic() < self._ends_at:
                self.look()
                time.sleep(LOOK_SECONDS)
            self._note("leaving: trials that run are given back")
            self._leave()
        finally:
            for slot in self._slots:
                if slot.process is not None:
                    slot.process.kill()
                    slot.process.communicate()

    def look(self) -> None:
        """Looks once what the slots do, and gives work to those that are free. Raises `UsageError` as `run`."""
        self._watch()
        served = {slot.sweep for slot in self._slots if slot.process is not None}
        refused = {at: (offer, self._refusal(offer)) for at, offer in offers(self._root, served, self._signs).items()}
        found = {at: offer for at, (offer, why) in refused.items() if not why and offer.process not in self._done}
        for _, why in refused.values():
            if why and not found and not self._has_served:
                raise UsageError(why)
            self._tell(why)
        self._join(found)
        self._balance(found)

    def _refusal(self, offer: Offer) -> str:
        """Returns why a sweep cannot use this machine; "": it can."""
        why, each = offer.refusal(), len(self._slots[0].gpus)
        if not why and offer.gpus_per_trial and not self._has_gpus:
            why = f"sweep '{offer.name}' needs {offer.gpus_per_trial} GPUs for a trial: name them, as in --gpus all"
        elif not why and offer.gpus_per_trial > each:
            why = f"sweep '{offer.name}' needs {offer.gpus_per_trial} GPUs for a trial, and a slot here has {each}"
            why += ": give more --gpus, or fewer --slots"
        return why

    def _tell(self, line: str) -> None:
        if line and line not in self._told:
            self._told.add(line)
            self._note(line)

    def _watch(self) -> None:
        """Takes note of slots' processes that are ready, or have ended."""
        for slot in self._slots:
            if slot.process is None:
                continue
            assert slot.process.stdout is not None and slot.offer is not None
            if not slot.is_ready and (said := slot.process.stdout.read(len(READY))):
                slot.is_ready = said.decode(errors="replace") == READY
            if (code := slot.process.poll()) is None:
                continue
            slot.process.stdout.close()
            slot.process = None
            if code not in (0, AGAIN):
                with contextlib.suppress(OSError):  # it may not have said so itself
                    why = f"its process has ended with exit code {code}; what it printed is where the worker runs"
                    Outbox(slot.folder / FROM_WORKER).send(Left(why=why))
                self._note(
                    f"slot {slot.number} has failed (exit code {code}); it is used again in {RETRY_SECONDS:.0f} s"
                )
            elif not (code or slot.moves) and self._ends_at < math.inf:  # it ended, or no trial of it would end in time
                self._done.add(slot.offer.process)
            if not slot.moves:  # the sweep may have given it up after a silence, too
                slot.free_after = time.monotonic() + RETRY_SECONDS

    def _join(self, found: Mapping[Path, Offer]) -> None:
        """Gives each free slot to the sweep with the fewest workers."""
        if not found:
            place = self._root if self._server is None else "DIR on a machine that sees the folder of protein serve"
            self._tell(f"waiting for a sweep: protein sweep ... --backend folder:{place}")
            return
        for slot in self._slots:
            wanted = found
            if slot.offer is not None and time.monotonic() < slot.free_after:
                wanted = {sweep: offer for sweep, offer in found.items() if offer.process != slot.offer.process}
            if slot.process is not None or not wanted:
                continue
            num_workers = {sweep: len(_workers(sweep)) for sweep in wanted}
            sweep = min(wanted, key=lambda one: (num_workers[one], wanted[one].name))
            # The first slot measures how fast the machine is, which others would disturb. The sweep tells them.
            if any(one.process is not None and one.sweep == sweep and not one.is_ready for one in self._slots):
                continue
            slot.offer, slot.free_after = found[sweep], time.monotonic() + RETRY_SECONDS
            try:
                self._start(slot, sweep)
            except FileNotFoundError:  # it has just ended
                continue
            except OSError as error:  # such as a full disk
                self._tell(f"slot {slot.number} cannot join sweep '{found[sweep].name}' now: {error}")
                continue
            self._has_served = True
            self._note(f"slot {slot.number} joins sweep '{found[sweep].name}'")

    def _start(self, slot: _Slot, sweep: Path) -> None:
        host = re.sub(r"[^\w.-]", "", platform.node(), flags=re.ASCII)[:60].strip(".-") or "worker"
        name = f"{host}-{os.getpid()}-{slot.number}-{secrets.token_hex(4)}"
        slot.folder, slot.sweep = join(sweep, name), sweep
        slot.is_ready = slot.moves = False
        ends_at = "inf" if self._ends_at == math.inf else str(time.time() + self._ends_at - time.monotonic())
        program = "protein.run.mailbox" if self._server is None else "protein.run.mirror"
        command = [sys.executable, "-P", "-m", program, str(slot.folder), ends_at]
        given: dict[str, str] = {}
        if self._has_gpus:
            given = {"CUDA_VISIBLE_DEVICES": ",".join(slot.gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        if self._server is not None:
            command.append(self._server.url)
            given[TOKEN] = self._server.token
        # A session of its own: Ctrl-C is for this process, which tells it.
        slot.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **given},
            start_new_session=True,
        )
        assert slot.process.stdout is not None
        os.set_blocking(slot.process.stdout.fileno(), False)

    def _balance(self, found: Mapping[Path, Offer]) -> None:
        """Frees a slot for another sweep, where its own has two workers more, and says that this one goes next."""
        workers = {sweep: _workers(sweep) for sweep in found}
        for slot in self._slots:
            if slot.process is None or slot.moves or not (mine := workers.get(slot.sweep)):  # it has just ended
                continue
            if len(mine) - 2 >= min(map(len, workers.values())) and slot.folder.name == goes_next(slot.sweep):
                slot.moves = True
                slot.process.send_signal(signal.SIGUSR2)

    def _leave(self) -> None:
        running = [slot.process for slot in self._slots if slot.process is not None]
        for process in running:
            process.terminate()
        until = time.monotonic() + LEAVE_SECONDS
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0.0))


def _divided(gpus: Sequence[str], slots: int | None) -> list[Sequence[str]]:
    """Returns the GPUs of each slot. Slots may share them, or have several each."""
    slots = max(len(gpus), 1) if slots is None else slots
    if slots < 1:
        raise UsageError(f"--slots {slots} is below the limit of 1; use 1 or more")
    if not gpus:
        return [()] * slots
    if len(gpus) % slots and slots % len(gpus):
        raise UsageError(f"--gpus: {len(gpus)} GPUs cannot be divided evenly among {slots} slots; change --slots")
    each = max(len(gpus) // slots, 1)
    return [gpus[start % len(gpus) : start % len(gpus) + each] for start in range(0, slots * each, each)]


def _workers(sweep: Path) -> list[str]:
    """Returns the names of the workers of a sweep."""
    with contextlib.suppress(OSError):
        return [entry.name for entry in os.scandir(sweep) if not entry.name.startswith(".") and entry.is_dir()]
    return []
